//! SelfSubjectRulesReview: what may I do in a namespace?

use crate::kind::{Kind, Verbs};
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        verbs: Verbs::CreateOnly,
        validate: |review, errors| {
            review.get("spec").get("namespace").required_because("no namespace on request", errors);
        },
        ..Kind::new::<SelfSubjectRulesReview>()
    }
}
