//! Role: what may be done in one namespace.

use super::validate_rule;
use crate::kind::Kind;
use crate::kinds::rules;
use crate::{names, printing};
use k8s_openapi::api::rbac::v1::Role;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![printing::name_column(), rules::created_at_column()],
        create_on_update: true,
        validate_name: names::path_segment_name,
        validate: |role, errors| {
            for rule in role.get("rules").items() {
                validate_rule(&rule, true, errors);
            }
        },
        ..Kind::new::<Role>()
    }
}
