//! Answers of the activator's own: a Status, as the API's errors are.

use crate::fleet::{Fault, Refusal};
use axum::body::Body;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;

/// The header that says why a call failed, in a word.
const REASON: HeaderName = HeaderName::from_static("x-function-error");

/// A refusal, as its caller gets it.
pub fn refusal(refusal: &Refusal) -> Response<Body> {
    let mut response = status(refusal.status, &refusal.fault);
    if let Some(after) = refusal.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    }
    response
}

/// A failure of the function's own.
pub fn status(code: StatusCode, fault: &Fault) -> Response<Body> {
    let text = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": fault.message, "reason": fault.reason, "code": code.as_u16(),
    });
    let mut response = Response::new(Body::from(text.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(reason) = HeaderValue::from_str(&fault.reason) {
        response.headers_mut().insert(REASON, reason);
    }
    response
}
