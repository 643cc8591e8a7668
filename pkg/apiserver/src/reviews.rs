//! Questions: kinds that are posted, answered and forgotten.

use crate::answer::{self, Answer};
use crate::auth::{Attributes, User, token};
use crate::decode;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::subresources;
use api::{Errors, Field, FieldError, Value, object};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;

/// Answers a review (or takes a Binding, which is posted the same way).
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let kind = &*resource.kind;
    if kind.plural == "bindings" {
        let pods = server.registry.built_in("", "pods");
        return subresources::bind(server, &pods, call).await;
    }
    let context = call.context()?;
    let mut review = decode::object(kind, call.headers, &call.body, &context)?;
    let mut errors = Errors::new();
    (kind.validate)(&Field::root(&review), &mut errors);
    if !errors.is_empty() {
        return Err(ApiError::invalid(kind, object::name(&review), errors.as_slice()));
    }
    let status = match kind.plural.as_str() {
        "tokenreviews" => token::review(&review, &server.auth.authenticator, server, Timestamp::now())
            .map_err(ApiError::bad_request)?,
        "selfsubjectreviews" => json!({ "userInfo": call.user.to_json() }),
        "selfsubjectaccessreviews" => access(server, &review["spec"], &call.user),
        "subjectaccessreviews" => access(server, &review["spec"], &subject(&review["spec"])),
        "localsubjectaccessreviews" => {
            check_namespace(resource, &review, &call.target.namespace)?;
            access(server, &review["spec"], &subject(&review["spec"]))
        }
        "selfsubjectrulesreviews" => {
            let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
            if namespace.is_empty() {
                return Err(ApiError::bad_request("no namespace on request"));
            }
            server.auth.authorizer.read().rules_review(&call.user, namespace)
        }
        _ => return Err(ApiError::no_such_path()),
    };
    review["status"] = status;
    answer::object(resource, call, StatusCode::CREATED, review, &context)
}

/// Whether the user may do what the spec says.
fn access(server: &Server, spec: &Value, user: &User) -> Value {
    let text = |part: &'static str, name: &str| spec[part][name].as_str().unwrap_or_default().to_owned();
    let decision = if spec.get("resourceAttributes").is_some() {
        let [verb, group, resource] = ["verb", "group", "resource"].map(|name| text("resourceAttributes", name));
        let [version, subresource] = ["version", "subresource"].map(|name| text("resourceAttributes", name));
        let [namespace, name] = ["namespace", "name"].map(|name| text("resourceAttributes", name));
        server.auth.authorize(&Attributes {
            version: &version,
            subresource: &subresource,
            namespace: &namespace,
            name: &name,
            ..Attributes::resource(user, &verb, &group, &resource)
        })
    } else {
        let [verb, path] = ["verb", "path"].map(|name| text("nonResourceAttributes", name));
        server.auth.authorize(&Attributes::non_resource(user, &verb, &path))
    };
    let mut status = json!({ "allowed": decision.allowed });
    let reason = decision.reason.to_string();
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

/// The user that a SubjectAccessReview asks about.
fn subject(spec: &Value) -> User {
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let extra: BTreeMap<String, Vec<String>> = spec["extra"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, values)| (key.to_ascii_lowercase(), strings(values)))
        .collect();
    User {
        name: spec["user"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: strings(&spec["groups"]),
        extra,
    }
}

fn check_namespace(resource: &Resource, review: &Value, namespace: &str) -> Result<()> {
    let asked = review["spec"]["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
    if asked == namespace {
        return Ok(());
    }
    let error = FieldError {
        reason: api::field::Reason::Invalid,
        path: "spec.resourceAttributes.namespace".into(),
        value: Some(asked.into()),
        detail: "must match metadata.namespace".into(),
    };
    Err(ApiError::invalid(&resource.kind, "", &[error]))
}
