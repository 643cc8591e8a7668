//! Nobody becomes one of those who may do everything by a certificate that the cluster's own signer of clients makes.

use super::{Operation, Request};
use crate::auth::User;
use crate::error::{ApiError, Result};
use api::Value;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

pub(super) fn validate(request: &Request<'_>, new: &Value) -> Result<()> {
    let is_new = request.operation == Operation::Create;
    if !is_new || !request.is_for("certificates.k8s.io", "certificatesigningrequests") {
        return Ok(());
    }
    refusal(&new["spec"]).map_or(Ok(()), |why| Err(ApiError::forbidden(request.kind, &request.name, why)))
}

/// Why that may not be asked for, if it may not.
fn refusal(spec: &Value) -> Option<String> {
    if spec["signerName"] != CLIENT_SIGNER {
        return None;
    }
    let pem = BASE64_STANDARD.decode(spec["request"].as_str().unwrap_or_default()).unwrap_or_default();
    match pki::Request::from_pem(&String::from_utf8_lossy(&pem)) {
        Err(error) => Some(format!("failed to parse CSR: {error}")),
        Ok(asked) if asked.facts.organizations.iter().any(|group| group == User::MASTERS) => {
            Some(format!("use of {CLIENT_SIGNER} signer with {} group is not allowed", User::MASTERS))
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn masters_are_not_made_by_certificate() {
        let key = pki::PrivateKey::generate().expect("a key");
        let check = |signer: &str, groups: &[&str], expected: Option<&str>| {
            let pem = pki::request(&key, "jane", groups, &[]).expect("a request");
            let spec = json!({"signerName": signer, "request": BASE64_STANDARD.encode(pem)});
            assert_eq!(refusal(&spec).as_deref(), expected);
        };
        check(CLIENT_SIGNER, &["people"], None);
        check("example.com/any", &["system:masters"], None);
        check(
            CLIENT_SIGNER,
            &["people", "system:masters"],
            Some(
                "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
            ),
        );
        let spec = json!({"signerName": CLIENT_SIGNER, "request": "eA=="});
        assert!(refusal(&spec).is_some_and(|why| why.starts_with("failed to parse CSR: ")));
    }
}
