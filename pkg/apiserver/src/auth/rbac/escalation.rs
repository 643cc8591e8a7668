//! Nobody gives what they do not have: checks before roles and bindings are written.
//!
//! The verbs `escalate` (on roles) and `bind` (on the role bound) are the explicit permission to do so anyway.

use super::rule::{quoted, uncovered};
use super::{GROUP, Index, RoleRef, Rule};
use crate::auth::{Attributes, User};
use serde_json::Value;
use std::collections::BTreeSet;

/// Why a role or binding may not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Escalation {
    /// It would give more than its writer has: 403 with this text as its cause.
    #[error("{0}")]
    Forbidden(String),
    /// The role to be bound does not exist: 404.
    #[error("{resource}.{GROUP} {name:?} not found")]
    RoleNotFound {
        /// `roles` or `clusterroles`.
        resource: &'static str,
        /// The role's name.
        name: String,
    },
}

/// Checks a Role or ClusterRole before the request writes it (`old` is what stood there).
pub fn check_role_write(
    index: &Index,
    request: &Attributes<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Escalation> {
    let Attributes { user, namespace, .. } = *request;
    // A plain create has no name, so that a permission by name does not count for it.
    let escalate = Attributes { verb: "escalate", version: "*", ..*request };
    if is_privileged(user)
        || index.authorize(&escalate).allowed
        || old.is_some_and(|old| only_collection_changes(new, old))
    {
        return Ok(());
    }
    confirm(index, user, namespace, &Rule::all_of(new))?;
    if has_aggregation(new) || old.is_some_and(has_aggregation) {
        // It may gather anything, so it takes everything.
        confirm(index, user, namespace, &everything()).map_err(|_| {
            let text = "must have cluster-admin privileges to use the aggregationRule";
            Escalation::Forbidden(text.to_owned())
        })?;
    }
    Ok(())
}

/// Checks a RoleBinding or ClusterRoleBinding before the request writes it (`old` is what stood there).
pub fn check_binding_write(
    index: &Index,
    request: &Attributes<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Escalation> {
    let Attributes { user, namespace, .. } = *request;
    if is_privileged(user) || old.is_some_and(|old| only_collection_changes(new, old)) {
        return Ok(());
    }
    let Some(mut role) = RoleRef::of(new) else {
        let kind = new.get("roleRef").and_then(|role| role.get("kind")).and_then(Value::as_str);
        let text = format!("unsupported role reference kind: {:?}", kind.unwrap_or_default());
        return Err(Escalation::Forbidden(text));
    };
    let is_role = new["roleRef"]["kind"] == "Role";
    if is_role {
        // The object need not say its namespace yet; the request does.
        namespace.clone_into(&mut role.namespace);
    }
    let resource = if is_role { "roles" } else { "clusterroles" };
    let bind = Attributes {
        version: "*",
        namespace,
        name: &role.name,
        ..Attributes::resource(user, "bind", GROUP, resource)
    };
    if index.authorize(&bind).allowed {
        return Ok(());
    }
    let rules = index
        .role_rules(&role)
        .ok_or_else(|| Escalation::RoleNotFound { resource, name: role.name.clone() })?;
    confirm(index, user, namespace, rules)
}

fn confirm(index: &Index, user: &User, namespace: &str, rules: &[Rule]) -> Result<(), Escalation> {
    let (own, errors) = index.rules_for(user, namespace);
    let missing = uncovered(&own, rules);
    if missing.is_empty() {
        return Ok(());
    }
    let lines: BTreeSet<String> = compact(missing).iter().map(Rule::to_string).collect();
    let lines: Vec<String> = lines.into_iter().collect();
    let mut text = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        lines.join("\n")
    );
    if !errors.is_empty() {
        text.push_str(&format!("; resolution errors: [{}]", super::aggregate_errors(&errors)));
    }
    Err(Escalation::Forbidden(text))
}

/// Puts rules together again that differ in their verbs only.
fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut compacted: Vec<Rule> = Vec::new();
    for rule in rules {
        let simple = rule.non_resource_urls.is_empty();
        let same = compacted.iter_mut().find(|other| {
            simple
                && other.api_groups == rule.api_groups
                && other.resources == rule.resources
                && other.resource_names == rule.resource_names
        });
        match same {
            Some(other) => other.verbs.extend(rule.verbs),
            None => compacted.push(rule),
        }
    }
    compacted
}

fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
    ]
}

fn is_privileged(user: &User) -> bool {
    user.is_in(User::MASTERS)
}

fn has_aggregation(role: &Value) -> bool {
    let selectors = role.get("aggregationRule").and_then(|rule| rule.get("clusterRoleSelectors"));
    selectors.and_then(Value::as_array).is_some_and(|selectors| !selectors.is_empty())
}

/// Whether only what the garbage collector changes was changed: owners and finalizers.
fn only_collection_changes(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for name in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(name);
            }
        }
        object
    };
    rest(new) == rest(old)
}

#[cfg(test)]
mod tests;
