//! TokenReview: whose token is this?

use crate::kind::{Kind, Verbs};
use k8s_openapi::api::authentication::v1::TokenReview;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        verbs: Verbs::CreateOnly,
        validate: |review, errors| {
            review.get("spec").get("token").required(errors);
        },
        ..Kind::new::<TokenReview>()
    }
}
