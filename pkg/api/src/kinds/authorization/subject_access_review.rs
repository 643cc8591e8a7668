//! SubjectAccessReview: may they do that?

use super::{validate_attributes, validate_no_metadata, validate_subject};
use crate::kind::{Kind, Verbs};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        verbs: Verbs::CreateOnly,
        validate: |review, errors| {
            validate_attributes(review, errors);
            validate_subject(review, errors);
            validate_no_metadata(review, &[], "must be empty", errors);
        },
        ..Kind::new::<SubjectAccessReview>()
    }
}
