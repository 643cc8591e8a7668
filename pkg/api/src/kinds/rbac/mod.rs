//! rbac.authorization.k8s.io/v1: who may do what.
//!
//! ```text
//! subject <── RoleBinding, ClusterRoleBinding ──roleRef──> Role, ClusterRole ──> rules
//! ```

mod binding;
pub mod cluster_role;
pub mod cluster_role_binding;
pub mod role;
pub mod role_binding;

use crate::field::{Errors, Field};

/// Complains about one rule of a role.
fn validate_rule(rule: &Field<'_>, is_namespaced: bool, errors: &mut Errors) {
    rule.get("verbs").required_because("verbs must contain at least one value", errors);
    let (groups, resources) = (rule.get("apiGroups"), rule.get("resources"));
    let urls = rule.get("nonResourceURLs");
    if urls.is_empty() {
        groups.required_because("resource rules must supply at least one api group", errors);
        resources.required_because("resource rules must supply at least one resource", errors);
        return;
    }
    if is_namespaced {
        urls.invalid("namespaced rules cannot apply to non-resource URLs", errors);
    }
    if !groups.is_empty() || !resources.is_empty() || !rule.get("resourceNames").is_empty() {
        urls.invalid("rules cannot apply to both regular resources and non-resource URLs", errors);
    }
}
