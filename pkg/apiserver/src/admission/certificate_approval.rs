//! Whoever approves or denies a request for a certificate may do so for its signer.

use super::Request;
use crate::auth::{Attributes, Authorizer, User};
use crate::error::{ApiError, Result};
use api::Value;

pub(super) fn validate(request: &Request<'_>, _new: &Value) -> Result<()> {
    match request.old.filter(|_| is_part(request, "approval")) {
        Some(old) => check(request, "approve", old),
        None => Ok(()),
    }
}

/// Whether this is about that part of a CertificateSigningRequest.
pub(super) fn is_part(request: &Request<'_>, subresource: &str) -> bool {
    request.subresource == subresource
        && request.kind.group == "certificates.k8s.io"
        && request.kind.plural == "certificatesigningrequests"
}

/// Refuses who may not do that for the signer of the request as it was: a signer is never changed.
pub(super) fn check(request: &Request<'_>, verb: &str, old: &Value) -> Result<()> {
    let signer = old["spec"]["signerName"].as_str().unwrap_or_default();
    if may(&request.server.auth.authorizer.read(), &request.context.user, verb, signer) {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(ApiError::forbidden(request.kind, &request.name, why))
}

/// Whether somebody may do that for a signer by its name, or for all of its domain.
fn may(authorizer: &Authorizer, user: &User, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    [signer, &format!("{domain}/*")].iter().any(|name| {
        let attributes = Attributes::resource(user, verb, "certificates.k8s.io", "signers");
        authorizer.authorize(&Attributes { name, version: "*", ..attributes }).allowed
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn authorizer(verb: &str, signers: &[&str]) -> Authorizer {
        let mut authorizer = Authorizer::default();
        let rule = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": [verb],
            "resourceNames": signers});
        authorizer.rbac.apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "r"}, "rules": [rule]}));
        authorizer.rbac.apply(
            &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "jane"}]}),
        );
        authorizer
    }

    #[test]
    fn a_signer_is_allowed_by_its_name_or_with_its_domain() {
        let check = |verb: &str, signers: &[&str], expected: bool| {
            let jane = User { name: "jane".into(), ..User::default() };
            let found = may(&authorizer(verb, signers), &jane, "approve", "example.com/web");
            assert_eq!(found, expected, "{verb} {signers:?}");
        };
        check("approve", &["example.com/web"], true);
        check("approve", &["example.com/*"], true);
        check("approve", &[], true);
        check("approve", &["example.com/db", "other.com/*"], false);
        check("sign", &["example.com/web"], false);
    }
}
