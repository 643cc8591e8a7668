//! ClusterRole: what may be done in the cluster as a whole, or in whichever namespace it is bound.

use super::validate_rule;
use crate::field::{Errors, Field};
use crate::kind::Kind;
use crate::kinds::rules;
use crate::{meta, names, printing};
use k8s_openapi::api::rbac::v1::ClusterRole;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![printing::name_column(), rules::created_at_column()],
        create_on_update: true,
        validate_name: names::path_segment_name,
        validate,
        ..Kind::new::<ClusterRole>()
    }
}

fn validate(role: &Field<'_>, errors: &mut Errors) {
    for rule in role.get("rules").items() {
        validate_rule(&rule, false, errors);
    }
    let aggregation = role.get("aggregationRule");
    if aggregation.exists() {
        let selectors = aggregation.get("clusterRoleSelectors");
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        selectors.required_because(detail, errors);
        for selector in selectors.items() {
            meta::validate_label_selector(&selector, errors);
        }
    }
}
