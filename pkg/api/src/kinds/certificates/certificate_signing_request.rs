//! CertificateSigningRequest: somebody asks for a certificate, somebody approves, a signer signs.
//!
//! Who asks is written into the spec by the server, after [`Kind::prepare`] has cleared what the writer claimed.
//! Whether the request's signature fits its key is the server's to check, too: this crate knows no cryptography.

use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::object::object_mut;
use crate::{names, printing};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::{Value, json};
use std::collections::HashSet;

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const LEAST_SECONDS: i64 = 600;
const MOST_SIGNER_BYTES: usize = 253 + 253 + 63 + 1 + 1;
/// Conditions that only an approver sets.
const APPROVAL: [&str; 2] = ["Approved", "Denied"];

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            printing::age_column(),
            column("SignerName", "string", |csr, _| {
                printing::or_none(printing::text(csr, "spec.signerName")).into()
            }),
            column("Requestor", "string", |csr, _| printing::text(csr, "spec.username").into()),
            column("RequestedDuration", "string", |csr, _| {
                match printing::at(csr, "spec.expirationSeconds").and_then(Value::as_i64) {
                    Some(seconds) => printing::human_duration(seconds).into(),
                    None => printing::NONE.into(),
                }
            }),
            column("Condition", "string", |csr, _| condition_cell(csr).into()),
        ],
        validate_name: names::path_segment_name,
        default: |csr| {
            object_mut(csr, "spec");
        },
        prepare,
        prepare_status,
        validate,
        validate_update: |new, old, errors| validate_change(new, old, Change::Other, errors),
        validate_status: |new, old, errors| {
            validate_conditions(new, errors);
            validate_change(new, old, Change::Status, errors);
        },
        ..Kind::new::<CertificateSigningRequest>()
            .short(&["csr"])
            .with_status()
            .with_subresource("approval", ("", "", "CertificateSigningRequest"), &["get", "patch", "update"])
            .selectable(&["spec.signerName"])
    }
}

/// Adjusts an update of `approval`, which changes conditions and nothing else.
pub fn prepare_approval(csr: &mut Value, old: &Value) {
    let conditions = printing::at(csr, "status.conditions").cloned();
    keep(csr, old, "spec");
    keep(csr, old, "status");
    let status = object_mut(csr, "status");
    match conditions {
        Some(conditions) => status.insert("conditions".into(), conditions),
        None => status.remove("conditions"),
    };
}

/// Complains about an update of `approval`: new, then old.
pub fn validate_approval(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    validate_conditions(new, errors);
    validate_change(new, old, Change::Approval, errors);
}

fn keep(csr: &mut Value, old: &Value, part: &str) {
    csr[part] = printing::at(old, part).cloned().unwrap_or_else(|| json!({}));
}

/// Nobody says who they are in the object, and nothing of a request changes once it is made.
fn prepare(csr: &mut Value, old: Option<&Value>) {
    match old {
        Some(old) => keep(csr, old, "spec"),
        None => {
            let spec = object_mut(csr, "spec");
            for name in ["username", "uid", "groups", "extra"] {
                spec.remove(name);
            }
        }
    }
}

/// Keeps approvals as they were, where there are as many as there were: a signer that writes back what it read must
/// not be refused for it.
fn prepare_status(csr: &mut Value, old: Option<&Value>) {
    let Some(old) = old else { return };
    for ty in APPROVAL {
        let of_type = |condition: &&Value| condition["type"] == ty;
        let before: Vec<Value> =
            printing::items(old, "status.conditions").iter().filter(of_type).cloned().collect();
        let Some(now) = csr.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else { return };
        let mut now: Vec<&mut Value> = now.iter_mut().filter(|condition| condition["type"] == ty).collect();
        if now.len() == before.len() {
            for (slot, condition) in now.iter_mut().zip(before) {
                **slot = condition;
            }
        }
    }
}

fn validate(csr: &Field<'_>, errors: &mut Errors) {
    let spec = csr.get("spec");
    let request = spec.get("request");
    let pem = BASE64_STANDARD.decode(request.text()).unwrap_or_default();
    if !String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE REQUEST-----") {
        request.invalid("PEM block type must be CERTIFICATE REQUEST", errors);
    }
    let usages = spec.get("usages");
    usages.required(errors);
    let mut seen = HashSet::new();
    for usage in usages.items() {
        usage.one_of(&USAGES, errors);
        if !seen.insert(usage.text().to_owned()) {
            usage.duplicate(errors);
        }
    }
    validate_signer_name(&spec.get("signerName"), errors);
    let expiration = spec.get("expirationSeconds");
    if expiration.int().is_some_and(|seconds| seconds < LEAST_SECONDS) {
        let detail = format!("may not specify a duration less than {LEAST_SECONDS} seconds (10 minutes)");
        expiration.invalid(detail, errors);
    }
    validate_conditions(csr, errors);
}

/// `example.com/signer-name`.
fn validate_signer_name(signer: &Field<'_>, errors: &mut Errors) {
    if !signer.required(errors) {
        return;
    }
    if signer.text() == LEGACY_SIGNER {
        signer.invalid("the legacy signerName is not allowed via this API version", errors);
        return;
    }
    let segments: Vec<&str> = signer.text().split('/').collect();
    let &[domain, path] = segments.as_slice() else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        signer.invalid(detail, errors);
        return;
    };
    if domain.len() > 253 {
        signer.too_long(253, errors);
    }
    validate_labels(signer, domain, names::is_dns1123_label, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        signer.invalid_value(domain, detail, errors);
    }
    validate_labels(signer, path, names::is_dns1123_subdomain, errors);
    if signer.text().len() > MOST_SIGNER_BYTES {
        signer.too_long(MOST_SIGNER_BYTES, errors);
    }
}

/// Complains about the first label of a dotted name that is not as it should be.
fn validate_labels(signer: &Field<'_>, dotted: &str, check: names::Check, errors: &mut Errors) {
    let bad = dotted.split('.').map(|label| (label, check(label))).find(|(_, faults)| !faults.is_empty());
    for (label, fault) in
        bad.into_iter().flat_map(|(label, faults)| faults.into_iter().map(move |f| (label, f)))
    {
        signer.invalid_value(dotted, format!("validating label {label:?}: {fault}"), errors);
    }
}

fn validate_conditions(csr: &Field<'_>, errors: &mut Errors) {
    let status = csr.get("status");
    let conditions = status.get("conditions");
    let mut seen: HashSet<String> = HashSet::new();
    for condition in conditions.items() {
        let (ty, state) = (condition.get("type"), condition.get("status"));
        ty.required(errors);
        let allowed: &[&str] = match ty.text() {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        if state.required(errors) {
            state.one_of(allowed, errors);
        }
        let other = match ty.text() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if seen.contains(other) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            conditions.invalid_value(ty.text(), detail, errors);
        }
        if !seen.insert(ty.text().to_owned()) {
            ty.duplicate(errors);
        }
    }
}

/// By which way a request is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The request itself.
    Other,
    /// `status`: a signer's.
    Status,
    /// `approval`: an approver's.
    Approval,
}

/// Conditions that decide are never taken back; only approvers approve, and only signers sign, once.
fn validate_change(new: &Field<'_>, old: &Field<'_>, change: Change, errors: &mut Errors) {
    let status = new.get("status");
    let conditions = status.get("conditions");
    let of_type = |csr: &Field<'_>, ty: &str| -> Vec<Value> {
        let conditions = printing::items(csr.value(), "status.conditions").iter();
        conditions.filter(|condition| condition["type"] == ty).cloned().collect()
    };
    for ty in ["Approved", "Denied", "Failed"] {
        if of_type(new, ty).len() < of_type(old, ty).len() {
            conditions.forbidden(format!("updates may not remove a condition of type {ty:?}"), errors);
        }
    }
    for ty in APPROVAL.into_iter().filter(|_| change != Change::Approval) {
        let (now, before) = (of_type(new, ty), of_type(old, ty));
        if now.len() > before.len() {
            conditions.forbidden(format!("updates may not add a condition of type {ty:?}"), errors);
        } else if now.len() == before.len() && now != before {
            conditions.forbidden(format!("updates may not modify a condition of type {ty:?}"), errors);
        }
    }
    let certificate = status.get("certificate");
    let before = printing::text(old.value(), "status.certificate");
    if certificate.text() != before {
        if change != Change::Status {
            certificate.forbidden("updates may not set certificate content", errors);
        } else if !before.is_empty() {
            certificate.forbidden("updates may not modify existing certificate content", errors);
        }
        validate_certificate(&certificate, errors);
    }
}

/// Certificates in PEM, and nothing else.
fn validate_certificate(certificate: &Field<'_>, errors: &mut Errors) {
    if certificate.text().is_empty() {
        return;
    }
    let pem = BASE64_STANDARD.decode(certificate.text()).unwrap_or_default();
    let pem = String::from_utf8_lossy(&pem).into_owned();
    let mut types =
        pem.split("-----BEGIN ").skip(1).filter_map(|block| block.split("-----").next()).peekable();
    if types.peek().is_none() {
        let detail = "must contain at least one CERTIFICATE PEM block";
        certificate.invalid_value("<certificate data>", detail, errors);
    }
    if let Some(other) = types.find(|ty| *ty != "CERTIFICATE") {
        let detail = format!("only CERTIFICATE PEM blocks are allowed, found {other:?}");
        certificate.invalid_value("<certificate data>", detail, errors);
    }
}

fn condition_cell(csr: &Value) -> String {
    let conditions = printing::items(csr, "status.conditions");
    let has = |ty: &str| conditions.iter().any(|condition| condition["type"] == ty);
    let mut cell = String::from(match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    });
    if has("Failed") {
        cell.push_str(",Failed");
    }
    if !printing::text(csr, "status.certificate").is_empty() {
        cell.push_str(",Issued");
    }
    cell
}
