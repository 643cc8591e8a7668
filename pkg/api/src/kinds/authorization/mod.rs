//! authorization.k8s.io/v1: questions about who may do what. Nothing here is stored.

pub mod local_subject_access_review;
pub mod self_subject_access_review;
pub mod self_subject_rules_review;
pub mod subject_access_review;

use crate::equality;
use crate::field::{Errors, Field, Reason};
use serde_json::{Value, json};

/// Complains about what is asked: one thing, either a resource or a path.
fn validate_attributes(review: &Field<'_>, errors: &mut Errors) {
    let spec = review.get("spec");
    let (resource, path) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    match (resource.exists(), path.exists()) {
        (true, true) => path.invalid("cannot be specified in combination with resourceAttributes", errors),
        (false, false) => resource.invalid_value(
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            errors,
        ),
        _ => {}
    }
    for name in ["fieldSelector", "labelSelector"] {
        let selector = resource.get(name);
        if selector.exists() {
            validate_selector(&selector, errors);
        }
    }
}

fn validate_selector(selector: &Field<'_>, errors: &mut Errors) {
    let (raw, requirements) = (selector.get("rawSelector"), selector.get("requirements"));
    if !raw.text().is_empty() && !requirements.is_empty() {
        raw.invalid("may not specified at the same time as requirements", errors);
    }
    if raw.text().is_empty() && requirements.is_empty() {
        let detail =
            format!("when {} is specified, requirements or rawSelector is required", selector.path());
        requirements.complain(Reason::Required, detail, errors);
    }
    for requirement in requirements.items() {
        requirement.get("key").required(errors);
    }
}

/// Complains unless somebody is asked about.
fn validate_subject(review: &Field<'_>, errors: &mut Errors) {
    let spec = review.get("spec");
    let user = spec.get("user");
    if user.text().is_empty() && spec.get("groups").is_empty() {
        user.invalid_value("", "at least one of user or group must be specified", errors);
    }
}

/// Complains about metadata other than `except`: a question has no name.
fn validate_no_metadata(review: &Field<'_>, except: &[&str], detail: &str, errors: &mut Errors) {
    let metadata = review.get("metadata");
    let mut members = metadata.object().cloned().unwrap_or_default();
    members.retain(|name, _| name != "managedFields" && !except.contains(&name.as_str()));
    if !equality::same(&Value::Object(members), &json!({})) {
        metadata.invalid(detail, errors);
    }
}
