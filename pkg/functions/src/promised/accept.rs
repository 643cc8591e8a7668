//! A call is promised: it is in the API before anybody is told so.

use super::MOST_PROMISED;
use crate::controller::Shared;
use crate::definition::{Definition, Program, hex};
use crate::fleet::Refusal;
use api::kinds::minik8s::{FunctionCall, FunctionCallSpec};
use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use http::{HeaderMap, Response, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

/// Parameters that are larger have no room in an object.
const MOST_BYTES: usize = 512 << 10;
/// A key is no longer than this.
const LONGEST_KEY: usize = 255;
/// By which a caller asks that nobody waits.
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// By which a caller says that two calls are one.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// What is kept of what comes with a call; and all that begins with `ce-`.
const KEPT: [&str; 4] = ["content-type", "traceparent", "tracestate", "x-request-id"];

/// A call that is to be promised.
pub struct Promise {
    /// Its name: the same name is the same call.
    pub name: String,
    /// Its parameters.
    pub params: String,
    /// What goes with it.
    pub headers: Vec<(String, String)>,
    /// Who asked for it.
    pub cause: String,
}

/// Whether a caller wants to be answered before the call is made.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case("respond-async"))
}

/// Promises a call, and tells so.
///
/// # Errors
///
/// Why it is not promised.
pub async fn accept(
    shared: &Shared,
    definition: &Definition,
    headers: &HeaderMap,
    body: &Bytes,
    user: &str,
) -> Result<Response<Body>, Refusal> {
    if body.len() > MOST_BYTES {
        let message =
            format!("the body is larger than {MOST_BYTES} bytes, which is what can be kept for later");
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestTooLarge", message));
    }
    let wrong = |message: String| Refusal::new(StatusCode::BAD_REQUEST, "BadRequest", message);
    let params = std::str::from_utf8(body)
        .map_err(|_| wrong("only text can be kept for later: the body is not UTF-8".to_owned()))?;
    if matches!(definition.program(), Ok(Program::Source(_))) && !params.is_empty() {
        serde_json::from_str::<Value>(params)
            .map_err(|error| wrong(format!("the parameters are not JSON: {error}")))?;
    }
    if shared.promised_in(&definition.key.namespace, 0) >= MOST_PROMISED {
        let message =
            format!("{MOST_PROMISED} calls of namespace {:?} are promised already", definition.key.namespace);
        return Err(Refusal::for_now(StatusCode::TOO_MANY_REQUESTS, "QueueFull", message));
    }
    let is_kept = |name: &str| KEPT.contains(&name) || name.starts_with("ce-");
    let kept = headers.iter().filter(|(name, _)| is_kept(name.as_str()));
    let headers_kept: Vec<(String, String)> =
        kept.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned()))).collect();
    let name = name(definition, headers, user)?;
    let promise = Promise { name, params: params.to_owned(), headers: headers_kept, cause: user.to_owned() };
    let call = promise_it(shared, definition, promise).await?;
    Ok(accepted(definition, &call))
}

/// The same key of the same caller is the same name; without one, each call has a name of its own.
fn name(definition: &Definition, headers: &HeaderMap, user: &str) -> Result<String, Refusal> {
    let function = &definition.key.name;
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else {
        let suffix: String = (0..10).map(|_| fastrand::alphanumeric().to_ascii_lowercase()).collect();
        return Ok(format!("{function}-{suffix}"));
    };
    if key.is_empty() || key.len() > LONGEST_KEY {
        let message = format!("an Idempotency-Key has between 1 and {LONGEST_KEY} bytes");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "BadRequest", message));
    }
    let uid = definition.function.metadata.uid.as_deref().unwrap_or_default();
    Ok(format!("{function}-{}", digest(&[uid.as_bytes(), user.as_bytes(), key.as_bytes()])))
}

/// A name made of parts.
pub fn digest(parts: &[&[u8]]) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for part in parts {
        context.update(&part.len().to_be_bytes());
        context.update(part);
    }
    hex(&context.finish().as_ref()[..10])
}

async fn promise_it(
    shared: &Shared,
    definition: &Definition,
    wanted: Promise,
) -> Result<FunctionCall, Refusal> {
    let (name, params) = (wanted.name.clone(), wanted.params.clone());
    let unavailable = |error: kube::Error| match error {
        kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
            Refusal::new(StatusCode::FORBIDDEN, "NotPromised", status.message)
        }
        error => {
            tracing::warn!(%error, "a call cannot be promised");
            let message = "the call cannot be kept for later now: try again";
            Refusal::for_now(StatusCode::SERVICE_UNAVAILABLE, "NotPromised", message)
        }
    };
    let calls: Api<FunctionCall> = Api::namespaced(shared.client.clone(), &definition.key.namespace);
    match promise(shared, definition, wanted).await {
        Ok(call) => Ok(call),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let known = calls.get(&name).await.map_err(unavailable)?;
            if known.spec.params != params {
                let message = "the Idempotency-Key was used for a call with other parameters";
                return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "KeyReused", message));
            }
            Ok(known)
        }
        Err(error) => Err(unavailable(error)),
    }
}

/// Stores what is promised.
///
/// # Errors
///
/// It is not stored, or was before.
pub async fn promise(
    shared: &Shared,
    definition: &Definition,
    wanted: Promise,
) -> kube::Result<FunctionCall> {
    let owner = OwnerReference {
        api_version: "minik8s.io/v1".to_owned(),
        kind: "Function".to_owned(),
        name: definition.key.name.clone(),
        uid: definition.function.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let call = FunctionCall {
        metadata: ObjectMeta {
            name: Some(wanted.name),
            namespace: Some(definition.key.namespace.clone()),
            labels: Some([(crate::pod::FUNCTION.to_owned(), definition.key.name.clone())].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: FunctionCallSpec {
            function: definition.key.name.clone(),
            params: wanted.params,
            headers: wanted.headers.into_iter().collect(),
            cause: wanted.cause,
        },
        ..FunctionCall::default()
    };
    let calls: Api<FunctionCall> = Api::namespaced(shared.client.clone(), &definition.key.namespace);
    calls.create(&PostParams::default(), &call).await
}

fn accepted(definition: &Definition, call: &FunctionCall) -> Response<Body> {
    let (namespace, name) = (&definition.key.namespace, call.metadata.name.as_deref().unwrap_or_default());
    let text = json!({
        "apiVersion": "minik8s.io/v1", "kind": "FunctionCall",
        "metadata": {"namespace": namespace, "name": name, "uid": call.metadata.uid},
        "spec": {"function": definition.key.name},
        "status": {"phase": match call.status.phase.as_str() { "" => "Pending", phase => phase }},
    });
    let mut response = Response::new(Body::from(text.to_string()));
    *response.status_mut() = StatusCode::ACCEPTED;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let location = format!("/apis/minik8s.io/v1/namespaces/{namespace}/functioncalls/{name}");
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::kinds::minik8s::Function;
    use std::sync::Arc;

    #[test]
    fn the_same_key_of_the_same_caller_is_the_same_call() {
        let function =
            json!({"metadata": {"namespace": "a", "name": "f", "uid": "u"}, "spec": {"code": "x"}});
        let function: Function = serde_json::from_value(function).expect("a function");
        let definition = Definition::new(Arc::new(function));
        let named = |key: &'static str, user: &str| {
            let headers = [(IDEMPOTENCY_KEY, HeaderValue::from_static(key))].into_iter().collect();
            name(&definition, &headers, user).ok()
        };
        assert_eq!(named("k", "ann"), named("k", "ann"));
        assert_ne!(named("k", "ann"), named("k", "bob"));
        assert_ne!(named("k", "ann"), named("l", "ann"));
        assert_eq!(named("", "ann"), None);
        let none = HeaderMap::new();
        assert_ne!(name(&definition, &none, "ann").ok(), name(&definition, &none, "ann").ok());
    }

    #[test]
    fn who_does_not_want_to_wait_says_so() {
        let check = |value: &'static str| {
            is_wanted(&[(PREFER, HeaderValue::from_static(value))].into_iter().collect())
        };
        assert!(check("respond-async") && check("wait=10, Respond-Async"));
        assert!(!check("return=minimal"));
    }
}
