//! Whoever writes a certificate, or what became of a request for one, may sign for its signer.

use super::Request;
use super::certificate_approval::{check, is_part};
use crate::error::Result;
use api::Value;

pub(super) fn validate(request: &Request<'_>, new: &Value) -> Result<()> {
    match request.old.filter(|_| is_part(request, "status")) {
        Some(old) if signs(new, old) => check(request, "sign", old),
        _ => Ok(()),
    }
}

/// Whether anything changes that is a signer's to say.
fn signs(new: &Value, old: &Value) -> bool {
    let differs = |member: &str| {
        // None is as good as an empty one.
        let said = |request: &Value| {
            let said = request["status"][member].clone();
            if said.is_null() || said == "" || said.as_array().is_some_and(Vec::is_empty) {
                Value::Null
            } else {
                said
            }
        };
        said(new) != said(old)
    };
    differs("certificate") || differs("conditions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_are_not_signatures() {
        let check = |new: Value, expected| {
            let old = json!({"status": {"conditions": [{"type": "Approved"}]}});
            assert_eq!(signs(&new, &old), expected, "{new}");
        };
        check(
            json!({"metadata": {"labels": {"a": "b"}}, "status": {"conditions": [{"type": "Approved"}]}}),
            false,
        );
        check(json!({"status": {"conditions": [{"type": "Approved"}], "certificate": ""}}), false);
        check(json!({"status": {"conditions": [{"type": "Approved"}], "certificate": "eA=="}}), true);
        check(json!({"status": {"conditions": [{"type": "Approved"}, {"type": "Failed"}]}}), true);
        check(json!({"status": {}}), true);
    }
}
