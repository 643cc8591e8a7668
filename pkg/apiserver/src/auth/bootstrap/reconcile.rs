//! What to write so that a role or binding has at least what it should have.

use crate::auth::rbac::{Rule, uncovered};
use serde_json::{Value, json};

/// The annotation by which an object asks to be left alone (`"false"`).
pub(super) const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What to do about one object.
#[derive(Debug, Clone, PartialEq)]
pub enum Reconcile {
    /// Nothing.
    Nothing,
    /// Create it.
    Create(Value),
    /// Write this over it.
    Update(Value),
    /// Delete it and create this: what a binding binds cannot be changed.
    Recreate(Value),
}

/// Compares what is there with what should be: a role, ClusterRole, binding or ClusterRoleBinding.
pub fn reconcile(existing: Option<&Value>, expected: &Value) -> Reconcile {
    let Some(existing) = existing else { return Reconcile::Create(expected.clone()) };
    let annotations = existing.get("metadata").and_then(|metadata| metadata.get("annotations"));
    if annotations.and_then(|annotations| annotations.get(AUTOUPDATE)) == Some(&json!("false")) {
        return Reconcile::Nothing;
    }
    let mut result = existing.clone();
    merge_metadata(&mut result, expected);
    match expected.get("roleRef") {
        Some(role) if existing.get("roleRef") != Some(role) => return Reconcile::Recreate(expected.clone()),
        Some(_) => add_subjects(&mut result, expected),
        None => {
            add_rules(&mut result, expected);
            add_selectors(&mut result, expected);
        }
    }
    if result == *existing { Reconcile::Nothing } else { Reconcile::Update(result) }
}

/// Adds labels and annotations that are missing; those that are there win.
fn merge_metadata(result: &mut Value, expected: &Value) {
    for name in ["labels", "annotations"] {
        let wanted = expected.get("metadata").and_then(|metadata| metadata.get(name));
        for (key, value) in wanted.and_then(Value::as_object).into_iter().flatten() {
            api::object::object_mut(result, "metadata");
            let list = api::object::object_mut(&mut result["metadata"], name);
            list.entry(key).or_insert_with(|| value.clone());
        }
    }
}

fn add_rules(result: &mut Value, expected: &Value) {
    let missing = uncovered(&Rule::all_of(result), &Rule::all_of(expected));
    if !missing.is_empty() {
        append(&mut result["rules"], missing.iter().map(Rule::to_json));
    }
}

fn add_selectors(result: &mut Value, expected: &Value) {
    let wanted = expected.get("aggregationRule").filter(|rule| rule.is_object());
    match (wanted, result.get("aggregationRule").filter(|rule| rule.is_object())) {
        (None, None) => {}
        // A role that was gathered from others and is so no longer.
        (None, Some(_)) => {
            if let Some(members) = result.as_object_mut() {
                members.remove("aggregationRule");
            }
        }
        (Some(wanted), present) => {
            let present = items(present.and_then(|rule| rule.get("clusterRoleSelectors"))).to_vec();
            let missing: Vec<Value> = items(wanted.get("clusterRoleSelectors"))
                .iter()
                .filter(|selector| !present.contains(selector))
                .cloned()
                .collect();
            if !missing.is_empty() {
                api::object::object_mut(result, "aggregationRule");
                append(&mut result["aggregationRule"]["clusterRoleSelectors"], missing.into_iter());
            }
        }
    }
}

fn add_subjects(result: &mut Value, expected: &Value) {
    let key = |subject: &Value| {
        ["kind", "apiGroup", "name", "namespace"]
            .map(|name| subject.get(name).and_then(Value::as_str).unwrap_or_default().to_owned())
    };
    let present: Vec<_> = items(result.get("subjects")).iter().map(key).collect();
    let missing: Vec<Value> = items(expected.get("subjects"))
        .iter()
        .filter(|subject| !present.contains(&key(subject)))
        .cloned()
        .collect();
    if !missing.is_empty() {
        append(&mut result["subjects"], missing.into_iter());
    }
}

fn items(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn append(list: &mut Value, more: impl Iterator<Item = Value>) {
    match list.as_array_mut() {
        Some(present) => present.extend(more),
        None => *list = more.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(rules: Value) -> Value {
        json!({"kind": "ClusterRole", "metadata": {"name": "r", "labels": {"l": "1"}}, "rules": rules})
    }

    fn rule(verbs: &[&str]) -> Value {
        json!({"verbs": verbs, "apiGroups": [""], "resources": ["pods"]})
    }

    fn check(existing: Value, expected: Value, outcome: Reconcile) {
        assert_eq!(reconcile(Some(&existing), &expected), outcome);
    }

    #[test]
    fn what_is_missing_is_created() {
        let expected = role(json!([]));
        assert_eq!(reconcile(None, &expected), Reconcile::Create(expected));
    }

    #[test]
    fn rules_are_added_and_never_taken_away() {
        let wide = role(json!([rule(&["*"])]));
        check(wide.clone(), role(json!([rule(&["get"])])), Reconcile::Nothing);
        check(
            role(json!([rule(&["delete", "get"])])),
            role(json!([rule(&["get", "list"])])),
            Reconcile::Update(role(json!([rule(&["delete", "get"]), rule(&["list"])]))),
        );
        let mut kept = wide;
        kept["metadata"]["labels"]["l"] = json!("2");
        check(kept, role(json!([rule(&["get"])])), Reconcile::Nothing);
    }

    #[test]
    fn an_object_may_ask_to_be_left_alone() {
        let mut existing = role(json!([]));
        existing["metadata"]["annotations"] = json!({AUTOUPDATE: "false"});
        check(existing, role(json!([rule(&["get"])])), Reconcile::Nothing);
    }

    #[test]
    fn aggregation_is_added_and_dropped() {
        let aggregated = |selectors: &[&str]| {
            let selectors: Vec<Value> =
                selectors.iter().map(|label| json!({"matchLabels": {*label: "true"}})).collect();
            let mut role = role(json!([rule(&["get"])]));
            role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
            role
        };
        check(aggregated(&["a"]), aggregated(&["b"]), Reconcile::Update(aggregated(&["a", "b"])));
        check(aggregated(&["a", "b"]), aggregated(&["b"]), Reconcile::Nothing);
        let plain = role(json!([rule(&["get"])]));
        check(plain.clone(), aggregated(&["b"]), Reconcile::Update(aggregated(&["b"])));
        check(aggregated(&["a"]), plain.clone(), Reconcile::Update(plain));
    }

    #[test]
    fn subjects_are_added_and_another_role_means_another_binding() {
        let binding = |role: &str, users: &[&str]| {
            let subjects: Vec<Value> =
                users.iter().map(|name| json!({"kind": "User", "name": name})).collect();
            json!({"kind": "RoleBinding", "metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": role},
                "subjects": subjects})
        };
        check(binding("r", &["a"]), binding("r", &["b"]), Reconcile::Update(binding("r", &["a", "b"])));
        check(binding("r", &["a", "b"]), binding("r", &["b"]), Reconcile::Nothing);
        check(binding("r", &["a"]), binding("s", &["a"]), Reconcile::Recreate(binding("s", &["a"])));
    }
}
