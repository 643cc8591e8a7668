//! AdmissionReview: the question and the answer, as JSON.

use crate::error::ApiError;
use api::Value;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::json;

/// The versions of AdmissionReview, which differ in how strictly the answer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `v1`
    V1,
    /// `v1beta1`
    V1Beta1,
}

impl Version {
    /// The version of that name.
    pub fn named(name: &str) -> Option<Version> {
        match name {
            "v1" => Some(Version::V1),
            "v1beta1" => Some(Version::V1Beta1),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Version::V1 => "admission.k8s.io/v1",
            Version::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// The whole body of a question.
pub fn body(version: Version, request: Value) -> Vec<u8> {
    json!({"kind": "AdmissionReview", "apiVersion": version.api_version(), "request": request})
        .to_string()
        .into_bytes()
}

/// What a webhook said.
#[derive(Debug, PartialEq)]
pub struct Verdict {
    /// Whether the write may go on.
    pub is_allowed: bool,
    /// The operations of a JSON patch, where there are any.
    pub patch: Option<Value>,
    /// What the client should know.
    pub warnings: Vec<String>,
    /// Why not.
    pub status: Value,
}

/// Reads an answer, or says why it is none.
pub fn verdict(answer: &[u8], version: Version, uid: &str, is_mutating: bool) -> Result<Verdict, String> {
    let review: Value = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
    let Some(response) = review.get("response").filter(|response| response.is_object()) else {
        return Err("webhook response was absent".into());
    };
    let text = |name: &str| response.get(name).and_then(Value::as_str);
    let (patch, patch_type) = (text("patch").filter(|patch| !patch.is_empty()), text("patchType"));
    if version == Version::V1 {
        let given = text("uid").unwrap_or_default();
        if given != uid {
            return Err(format!("expected response.uid={uid:?}, got {given:?}"));
        }
        if review["apiVersion"] != version.api_version() || review["kind"] != "AdmissionReview" {
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}, Kind={}",
                review["apiVersion"].as_str().unwrap_or_default(),
                review["kind"].as_str().unwrap_or_default()
            ));
        }
        match (is_mutating, patch, patch_type) {
            (true, Some(_), None) => {
                return Err("webhook returned response.patch but not response.patchType".into());
            }
            (true, None, Some(_)) => {
                return Err("webhook returned response.patchType but not response.patch".into());
            }
            (true, Some(_), Some(other)) if other != "JSONPatch" => {
                return Err(format!("unsupported patch type {other:?}"));
            }
            (false, Some(_), _) => return Err("validating webhook may not return response.patch".into()),
            (false, _, Some(_)) => return Err("validating webhook may not return response.patchType".into()),
            _ => {}
        }
    }
    let warnings = response.get("warnings").and_then(Value::as_array).into_iter().flatten();
    Ok(Verdict {
        is_allowed: response.get("allowed").and_then(Value::as_bool).unwrap_or(false),
        patch: patch.filter(|_| is_mutating).map(operations).transpose()?.flatten(),
        warnings: warnings.filter_map(|warning| warning.as_str().map(str::to_owned)).collect(),
        status: response.get("status").cloned().unwrap_or_default(),
    })
}

fn operations(patch: &str) -> Result<Option<Value>, String> {
    let undecodable =
        |why: &dyn std::fmt::Display| format!("received undecodable patch in webhook response: {why}");
    let bytes = STANDARD.decode(patch).map_err(|error| undecodable(&error))?;
    let operations: Value = serde_json::from_slice(&bytes).map_err(|error| undecodable(&error))?;
    match operations.as_array() {
        Some(list) if list.is_empty() => Ok(None),
        Some(_) => Ok(Some(operations)),
        None => Err(undecodable(&"it is not a list of operations")),
    }
}

/// The error that a refusal becomes.
pub fn refusal(webhook: &str, status: Value) -> ApiError {
    let text = |name: &str| status.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let denied = format!("admission webhook {webhook:?} denied the request");
    let message = match text("message").or(text("reason")) {
        Some(why) => format!("{denied}: {why}"),
        None => format!("{denied} without explanation"),
    };
    let code = status.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| *code >= 400).and_then(|code| StatusCode::from_u16(code).ok());
    let mut error = ApiError::bad_request(message);
    error.code = code.unwrap_or(StatusCode::BAD_REQUEST);
    error.reason = text("reason").unwrap_or_default().to_owned().into();
    error.details = status.get("details").filter(|details| details.is_object()).cloned();
    error
}
