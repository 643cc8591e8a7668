//! What goes wrong, as clients see it: one type, one conversion to a `Status`.
//!
//! The message is for the client; what only operators should see is logged where it happens, never returned.

use api::FieldError;
use http::StatusCode;
use patch::{ApplyError, PatchError};
use serde_json::{Value, json};
use std::borrow::Cow;

/// An error answer. Made by the functions below, one for each of upstream's reasons.
#[derive(Debug, Clone)]
pub struct ApiError {
    /// The HTTP status.
    pub code: StatusCode,
    /// Upstream's `metav1.StatusReason`.
    pub reason: Cow<'static, str>,
    /// What happened, for people.
    pub message: String,
    /// `details`: name, group, kind, causes.
    pub details: Option<Value>,
    /// When to try again.
    pub retry_after_seconds: Option<u32>,
    /// Where a list that can no longer be consistent may go on.
    pub continue_token: Option<String>,
}

/// What most functions here return.
pub type Result<T, E = ApiError> = std::result::Result<T, E>;

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        ApiError {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
            retry_after_seconds: None,
            continue_token: None,
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let mut details = json!({});
        for (member, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details[member] = value.into();
            }
        }
        self.details = Some(details);
        self
    }

    /// 400: the request itself cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403, about a resource; `why` ends the sentence.
    pub fn forbidden(kind: &api::Kind, name: &str, why: impl std::fmt::Display) -> Self {
        let subject = if name.is_empty() {
            format!("{} is forbidden: {why}", kind.group_resource())
        } else {
            format!("{} {name:?} is forbidden: {why}", kind.group_resource())
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", subject).about(&kind.group, &kind.plural, name)
    }

    /// 403 with a sentence of its own.
    pub fn forbidden_text(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// 404 for a path that nothing serves.
    pub fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
            .about("", "", "")
    }

    /// 404 with a sentence of its own.
    pub fn not_found_text(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    /// 404 for an object.
    pub fn not_found(kind: &api::Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.group_resource());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(&kind.group, &kind.plural, name)
    }

    /// 405.
    pub fn method_not_allowed(kind: &api::Kind, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind {:?}", kind.group_resource());
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).about(
            &kind.group,
            &kind.plural,
            "",
        )
    }

    /// 406.
    pub fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 409 on create.
    pub fn already_exists(kind: &api::Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.group_resource());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(&kind.group, &kind.plural, name)
    }

    /// 409 on update, patch or delete; `why` ends the sentence.
    pub fn conflict(kind: &api::Kind, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.group_resource());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(&kind.group, &kind.plural, name)
    }

    /// 409: the object has changed since the client read it.
    pub fn modified(kind: &api::Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 410: history that is gone; list again.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 413.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 415.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// 422 with every complaint as a cause.
    pub fn invalid(kind: &api::Kind, name: &str, errors: &[FieldError]) -> Self {
        let list: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        let text = match list.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let subject =
            if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        let mut error = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("{subject} {name:?} is invalid: {text}"),
        )
        .about(&kind.group, &kind.kind, name);
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.reason.cause(), "message": e.message(), "field": e.path}))
            .collect();
        if let Some(details) = &mut error.details {
            details["causes"] = causes.into();
        }
        error
    }

    /// 422 for a patch after which the object has fields that its kind does not have.
    pub fn invalid_patch(patch: &str, why: &str) -> Self {
        let detail = format!("Invalid value: {patch:?}: {why}");
        Self::unprocessable(format!(" \"\" is invalid: patch: {detail}")).with_cause(
            "FieldValueInvalid",
            &detail,
            "patch",
        )
    }

    /// 422 for a patch that cannot be applied.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    /// 429.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        error.retry_after_seconds = Some(retry_after_seconds);
        error.details = Some(json!({ "retryAfterSeconds": retry_after_seconds }));
        error
    }

    /// 429: too much is going on.
    pub fn overloaded() -> Self {
        Self::too_many_requests("The apiserver is currently overloaded; please try again later", 1)
    }

    /// 500. The cause is for the log.
    pub fn internal(message: impl Into<String>) -> Self {
        let message = format!("Internal error occurred: {}", message.into());
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 500 for a configuration that does not fit the schema. It is no internal error, but that is upstream's answer.
    pub fn untyped(message: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 503: try again.
    pub fn unavailable(message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message);
        error.retry_after_seconds = Some(1);
        error
    }

    /// 504: a resourceVersion that is not there yet.
    pub fn timeout(message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        error.details = Some(json!({ "retryAfterSeconds": 1 }));
        error.retry_after_seconds = Some(1);
        error
    }

    /// 504: the request took longer than it may.
    pub fn deadline_exceeded() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        error.details = Some(json!({}));
        error
    }

    /// Adds a cause to the details.
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let details = self.details.get_or_insert_with(|| json!({}));
        let cause = json!({"reason": reason, "message": message, "field": field});
        match details.get_mut("causes").and_then(Value::as_array_mut) {
            Some(causes) => causes.push(cause),
            None => details["causes"] = json!([cause]),
        }
        self
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = token.as_str().into();
        }
        status
    }
}

/// Store errors that no caller has turned into something more telling.
impl From<store::Error> for ApiError {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Compacted { .. } => ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
            ),
            store::Error::Future { asked, current } => {
                ApiError::timeout(format!("Too large resource version: {asked}, current: {current}"))
                    .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
            }
            store::Error::Conflict { key, .. } => {
                tracing::warn!(%key, "unexpected write conflict");
                ApiError::unavailable("the object changed while it was being written; please try again")
            }
            store::Error::Unavailable { .. } => {
                tracing::error!(error = &error as &dyn std::error::Error, "the store is unavailable");
                ApiError::unavailable("the storage is not available at the moment; please try again")
            }
        }
    }
}

/// What the caches cannot show.
impl From<listwatch::Error> for ApiError {
    fn from(error: listwatch::Error) -> Self {
        match error {
            listwatch::Error::TooOld { .. } | listwatch::Error::Replaced => {
                ApiError::expired(error.to_string())
            }
            listwatch::Error::Future { asked, current } => store::Error::Future { asked, current }.into(),
            listwatch::Error::Closed => ApiError::no_such_path(),
        }
    }
}

/// Patches that do not apply.
impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::BadRequest(message) => ApiError::bad_request(message),
            // The sentence is upstream's, which says no more; what is wrong with the patch is in the causes.
            PatchError::Unprocessable(message) => {
                ApiError::unprocessable("the server rejected our request due to an error in our request")
                    .with_cause("FieldValueInvalid", &message, "patch")
            }
            PatchError::TooLarge(message) => ApiError::too_large(message),
        }
    }
}

/// Configurations that are not applied.
impl From<ApplyError> for ApiError {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::BadRequest(message) => ApiError::bad_request(message),
            ApplyError::Untyped { .. } => ApiError::untyped(error.to_string()),
            ApplyError::Conflict { message, causes } => {
                let mut conflict = ApiError::new(StatusCode::CONFLICT, "Conflict", message);
                for cause in causes {
                    conflict = conflict.with_cause("FieldManagerConflict", &cause.message, &cause.field);
                }
                conflict
            }
        }
    }
}
