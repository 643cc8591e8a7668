//! LocalSubjectAccessReview: may they do that in this namespace?

use super::{validate_attributes, validate_no_metadata, validate_subject};
use crate::field::{Errors, Field};
use crate::kind::{Kind, Verbs};
use crate::object;
use k8s_openapi::api::authorization::v1::LocalSubjectAccessReview;

/// The kind.
pub fn kind() -> Kind {
    Kind { verbs: Verbs::CreateOnly, validate, ..Kind::new::<LocalSubjectAccessReview>() }
}

fn validate(review: &Field<'_>, errors: &mut Errors) {
    validate_attributes(review, errors);
    validate_subject(review, errors);
    validate_no_metadata(review, &["namespace"], "must be empty except for namespace", errors);
    let spec = review.get("spec");
    let (resource, path) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    let namespace = resource.get("namespace");
    if resource.exists() && namespace.text() != object::namespace(review.value()) {
        namespace.invalid_value(namespace.text(), "must match metadata.namespace", errors);
    }
    if path.exists() {
        path.invalid("disallowed on this kind of request", errors);
    }
}
