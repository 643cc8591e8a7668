//! CertificateSigningRequests: those of kubelets are approved, approved ones are signed, old ones go.
//!
//! ```text
//! request ──recognized? may the user?──> Approved ──does it fit its signer?──> certificate
//!                                                                └──> Failed
//! ```

mod approve;
mod clean;
mod sign;

pub use approve::start as start_approving;
pub use clean::start as start_cleaning;
pub use sign::start as start_signing;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use pki::Facts;
use std::collections::BTreeSet;

/// Client certificates of kubelets.
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Serving certificates of kubelets.
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Client certificates of anybody.
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// From before there were signers.
const LEGACY: &str = "kubernetes.io/legacy-unknown";

fn has(request: &CertificateSigningRequest, kind: &str) -> bool {
    let mut conditions = request.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == kind && condition.status == "True")
}

fn is_issued(request: &CertificateSigningRequest) -> bool {
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    certificate.is_some_and(|certificate| !certificate.0.is_empty())
}

fn parse(request: &CertificateSigningRequest) -> Option<pki::Request> {
    pki::Request::from_pem(std::str::from_utf8(&request.spec.request.0).ok()?).ok()
}

fn usages(request: &CertificateSigningRequest) -> BTreeSet<&str> {
    request.spec.usages.iter().flatten().map(String::as_str).collect()
}

/// Why this is not a request for a kubelet's client certificate, in upstream's words.
fn kubelet_client(facts: &Facts, usages: &BTreeSet<&str>) -> Result<(), String> {
    let refuse = |why: &str| Err(why.to_owned());
    let names = Names::of(facts);
    if facts.organizations != ["system:nodes"] {
        refuse("subject organization is not system:nodes")
    } else if names.hosts {
        refuse("DNS subjectAltNames are not allowed")
    } else if names.mails {
        refuse("Email subjectAltNames are not allowed")
    } else if names.addresses {
        refuse("IP subjectAltNames are not allowed")
    } else if names.uris {
        refuse("URI subjectAltNames are not allowed")
    } else if !facts.common_name.starts_with("system:node:") {
        refuse("subject common name does not begin with system:node:")
    } else {
        exactly(usages, "client auth")
    }
}

/// Why this is not a request for a kubelet's serving certificate, in upstream's words.
fn kubelet_serving(facts: &Facts, usages: &BTreeSet<&str>) -> Result<(), String> {
    let refuse = |why: &str| Err(why.to_owned());
    let names = Names::of(facts);
    if facts.organizations != ["system:nodes"] {
        refuse("subject organization is not system:nodes")
    } else if !names.hosts && !names.addresses {
        refuse("DNS or IP subjectAltName is required")
    } else if names.mails {
        refuse("Email subjectAltNames are not allowed")
    } else if names.uris {
        refuse("URI subjectAltNames are not allowed")
    } else if let Err(why) = exactly(usages, "server auth") {
        Err(why)
    } else if !facts.common_name.starts_with("system:node:") {
        refuse("subject common name does not begin with system:node:")
    } else {
        Ok(())
    }
}

/// Which forms of alternative names there are.
struct Names {
    hosts: bool,
    addresses: bool,
    mails: bool,
    uris: bool,
}

impl Names {
    fn of(facts: &Facts) -> Names {
        let is_uri = |name: &str| name.contains(':') && name.parse::<std::net::IpAddr>().is_err();
        let mut found = Names { hosts: false, addresses: false, mails: false, uris: false };
        for name in &facts.sans {
            *match name.as_str() {
                name if name.contains('@') => &mut found.mails,
                name if is_uri(name) => &mut found.uris,
                name if name.parse::<std::net::IpAddr>().is_ok() => &mut found.addresses,
                _ => &mut found.hosts,
            } = true;
        }
        found
    }
}

/// Keys that are not RSA need no encipherment.
fn exactly(usages: &BTreeSet<&str>, purpose: &str) -> Result<(), String> {
    let with = BTreeSet::from(["digital signature", "key encipherment", purpose]);
    let without = BTreeSet::from(["digital signature", purpose]);
    if *usages == with || *usages == without {
        return Ok(());
    }
    let mut list: Vec<&str> = with.into_iter().collect();
    list.sort_unstable();
    Err(format!("usages did not match [{}]", list.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A request as the server has it.
    pub(super) fn request(
        signer: &str,
        common_name: &str,
        organizations: &[&str],
        sans: &[pki::San],
        usages: &[&str],
        status: Value,
    ) -> CertificateSigningRequest {
        let key = pki::PrivateKey::generate().unwrap();
        let pem = pki::request(&key, common_name, organizations, sans).unwrap();
        let request = json!({
            "metadata": {"name": "r", "uid": "u", "resourceVersion": "3", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"request": "", "signerName": signer, "usages": usages, "username": "system:node:n1", "groups": ["system:nodes"]},
            "status": status,
        });
        let mut request: CertificateSigningRequest = serde_json::from_value(request).unwrap();
        request.spec.request.0 = pem.into_bytes();
        request
    }

    #[test]
    fn kubelets_ask_for_what_kubelets_may_have() {
        let host = || vec!["node".to_owned()];
        let facts = |organization: &str, name: &str, sans: Vec<String>| Facts {
            organizations: vec![organization.to_owned()],
            common_name: name.to_owned(),
            sans,
            ..Facts::default()
        };
        let client = BTreeSet::from(["digital signature", "client auth"]);
        let server = BTreeSet::from(["digital signature", "key encipherment", "server auth"]);
        let node = |sans| facts("system:nodes", "system:node:n1", sans);
        let mismatch = |purpose| format!("usages did not match [{purpose}]");
        let cases = [
            (kubelet_client(&node(vec![]), &client), Ok(())),
            (
                kubelet_client(&node(vec![]), &server),
                Err(mismatch("client auth digital signature key encipherment")),
            ),
            (kubelet_client(&node(host()), &client), Err("DNS subjectAltNames are not allowed".into())),
            (
                kubelet_client(&node(vec!["::1".into()]), &client),
                Err("IP subjectAltNames are not allowed".into()),
            ),
            (
                kubelet_client(&node(vec!["a@b".into()]), &client),
                Err("Email subjectAltNames are not allowed".into()),
            ),
            (
                kubelet_client(&node(vec!["spiffe://x".into()]), &client),
                Err("URI subjectAltNames are not allowed".into()),
            ),
            (
                kubelet_client(&facts("system:masters", "system:node:n1", vec![]), &client),
                Err("subject organization is not system:nodes".into()),
            ),
            (
                kubelet_client(&facts("system:nodes", "admin", vec![]), &client),
                Err("subject common name does not begin with system:node:".into()),
            ),
            (kubelet_serving(&node(host()), &server), Ok(())),
            (kubelet_serving(&node(vec![]), &server), Err("DNS or IP subjectAltName is required".into())),
            (
                kubelet_serving(&node(host()), &client),
                Err(mismatch("digital signature key encipherment server auth")),
            ),
        ];
        for (index, (found, expected)) in cases.into_iter().enumerate() {
            assert_eq!(found, expected, "case {index}");
        }
    }
}
