//! Role-based access control: what roles allow, and to whom bindings give them.
//!
//! ```text
//! (Cluster)RoleBinding ──> index: user or group ──> grants ──> slot ──> compiled role
//! (Cluster)Role ──────────────────────────────────────────────> slot
//! ```
//!
//! [`Index`] answers with a hash lookup per subject and one per role bound to it. Roles and bindings come in any
//! order: a binding to a role that is not there (yet) grants nothing and says so in refusals.

mod aggregation;
mod escalation;
mod index;
mod rule;

pub use aggregation::aggregated_rules;
pub use escalation::{Escalation, check_binding_write, check_role_write};
pub use index::{Grant, Index, RoleRef};
pub use rule::{Rule, covers, uncovered};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Several errors as one text, as upstream joins them.
pub(crate) fn aggregate_errors(errors: &[String]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for error in errors {
        if !seen.contains(&error.as_str()) {
            seen.push(error);
        }
    }
    match seen[..] {
        [one] => one.to_owned(),
        _ => format!("[{}]", seen.join(", ")),
    }
}
