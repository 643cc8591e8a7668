//! SelfSubjectReview: who am I?

use crate::kind::{Kind, Verbs};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;

/// The kind.
pub fn kind() -> Kind {
    Kind { verbs: Verbs::CreateOnly, ..Kind::new::<SelfSubjectReview>() }
}
