//! ClusterRoles that are made of others: an `aggregationRule` gathers the rules of all that carry certain labels.

use super::Rule;
use api::selector::LabelSelector;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The rules that each aggregated ClusterRole should have, by name, given all ClusterRoles there are.
///
/// An aggregated role may gather other aggregated roles (`admin` gathers `edit`, which gathers `view`): what it
/// gets is what those should have, not what happens to stand in them now.
pub fn aggregated_rules(roles: &[Value]) -> BTreeMap<&str, Vec<Rule>> {
    let mut sorted: Vec<&Value> = roles.iter().collect();
    sorted.sort_by_key(|role| api::object::name(role));
    let mut rules: BTreeMap<&str, Vec<Rule>> = sorted
        .iter()
        .map(|role| {
            let own = if selectors(role).is_some() { Vec::new() } else { Rule::all_of(role) };
            (api::object::name(role), own)
        })
        .collect();
    let aggregated: Vec<&Value> = sorted.iter().copied().filter(|role| selectors(role).is_some()).collect();
    // Each round carries rules one step further; no chain is longer than the number of links.
    for _ in 0..=aggregated.len() {
        let mut changed = false;
        for role in &aggregated {
            let gathered = gather(role, &sorted, &rules);
            let name = api::object::name(role);
            if rules.get(name) != Some(&gathered) {
                rules.insert(name, gathered);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    rules.retain(|name, _| aggregated.iter().any(|role| api::object::name(role) == *name));
    rules
}

fn gather(role: &Value, all: &[&Value], rules: &BTreeMap<&str, Vec<Rule>>) -> Vec<Rule> {
    let mut gathered: Vec<Rule> = Vec::new();
    for selector in selectors(role).into_iter().flatten() {
        for other in all.iter().filter(|other| selects(selector, other)) {
            let name = api::object::name(other);
            if name == api::object::name(role) {
                continue;
            }
            for rule in rules.get(name).into_iter().flatten() {
                if !gathered.contains(rule) {
                    gathered.push(rule.clone());
                }
            }
        }
    }
    gathered
}

/// The selectors of an aggregated role; `None` where it is an ordinary one.
fn selectors(role: &Value) -> Option<&[Value]> {
    let rule = role.get("aggregationRule").filter(|rule| rule.is_object())?;
    Some(rule.get("clusterRoleSelectors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default())
}

/// Whether a label selector selects the object. One that cannot be understood selects nothing.
fn selects(selector: &Value, object: &Value) -> bool {
    let none = Map::new();
    let labels =
        object.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
    LabelSelector::from_json(selector).is_ok_and(|selector| selector.matches(labels.unwrap_or(&none)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn role(name: &str, labels: Value, verb: &str) -> Value {
        json!({"kind": "ClusterRole", "metadata": {"name": name, "labels": labels},
            "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]})
    }

    fn aggregated(name: &str, labels: Value, selector: Value) -> Value {
        json!({"kind": "ClusterRole", "metadata": {"name": name, "labels": labels}, "rules": null,
            "aggregationRule": {"clusterRoleSelectors": [selector]}})
    }

    fn verbs(roles: &[Value], name: &str) -> Vec<String> {
        aggregated_rules(roles)[name].iter().map(|rule| rule.verbs[0].clone()).collect()
    }

    #[test]
    fn rules_flow_through_chains() {
        let to = |name: &str| json!({"matchLabels": {name: "true"}});
        let roles = [
            aggregated("admin", json!({}), to("to-admin")),
            aggregated("edit", json!({"to-admin": "true"}), to("to-edit")),
            aggregated("view", json!({"to-edit": "true"}), to("to-view")),
            role("a", json!({"to-view": "true"}), "get"),
            role("b", json!({"to-edit": "true"}), "update"),
            role("c", json!({"to-admin": "true", "to-view": "false"}), "delete"),
        ];
        assert_eq!(verbs(&roles, "view"), ["get"]);
        assert_eq!(verbs(&roles, "edit"), ["update", "get"]);
        assert_eq!(verbs(&roles, "admin"), ["delete", "update", "get"]);
        assert_eq!(aggregated_rules(&roles).len(), 3, "ordinary roles are left out");
    }

    #[test]
    fn circles_and_self_references_end() {
        let all = json!({});
        let roles = [
            aggregated("a", json!({}), all.clone()),
            aggregated("b", json!({}), all),
            role("c", json!({}), "get"),
        ];
        assert_eq!(verbs(&roles, "a"), ["get"]);
        assert_eq!(verbs(&roles, "b"), ["get"]);
    }

    #[test]
    fn selectors_mean_what_they_mean_elsewhere() {
        let check = |selector: Value, expected: bool| {
            let object = json!({"metadata": {"labels": {"a": "1"}}});
            assert_eq!(selects(&selector, &object), expected, "{selector}");
        };
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(json!({}), true);
        check(json!({"matchLabels": {"a": "1"}}), true);
        check(json!({"matchLabels": {"a": "2"}}), false);
        check(json!({"matchLabels": {"b": "1"}}), false);
        check(expression("a", "In", &["1", "2"]), true);
        check(expression("b", "In", &["1"]), false);
        check(expression("a", "NotIn", &["1"]), false);
        check(expression("b", "NotIn", &["1"]), true);
        check(expression("a", "Exists", &[]), true);
        check(expression("a", "DoesNotExist", &[]), false);
        check(expression("a", "Near", &[]), false);
    }
}
