//! What webhooks and policies want to be asked about.

use crate::admission::Compiler;
use crate::field::{Errors, Field, Reason};
use crate::object::set_default;
use crate::{meta, names};
use serde_json::{Value, json};
use std::collections::HashSet;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MOST_CONDITIONS: usize = 64;

/// Fills in rules.
pub(super) fn default_rules(parent: &mut Value, name: &str) {
    for rule in parent.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
        set_default(rule, "scope", "*");
    }
}

/// Fills in the resources that a policy or binding in `spec` is about, if it says any.
pub(super) fn default_resources(object: &mut Value, name: &str) {
    let resources = object.get_mut("spec").and_then(|spec| spec.get_mut(name));
    let Some(resources) = resources.filter(|resources| resources.is_object()) else { return };
    set_default(resources, "matchPolicy", "Equivalent");
    set_default(resources, "namespaceSelector", json!({}));
    set_default(resources, "objectSelector", json!({}));
    default_rules(resources, "resourceRules");
    default_rules(resources, "excludeResourceRules");
}

/// Complains about the resources that a policy or binding is about.
pub(super) fn validate_resources(resources: &Field<'_>, errors: &mut Errors) {
    if !resources.exists() {
        return;
    }
    resources.get("matchPolicy").required_one_of(&["Equivalent", "Exact"], errors);
    meta::validate_label_selector(&resources.get("namespaceSelector"), errors);
    meta::validate_label_selector(&resources.get("objectSelector"), errors);
    for rules in [resources.get("resourceRules"), resources.get("excludeResourceRules")] {
        for rule in rules.items() {
            let mut seen = HashSet::new();
            for name in rule.get("resourceNames").items() {
                name.conforms(names::is_path_segment, errors);
                if !seen.insert(name.text().to_owned()) {
                    name.duplicate(errors);
                }
            }
            validate_rule(&rule, errors);
        }
    }
}

/// Complains about operations and resources.
pub(super) fn validate_rule(rule: &Field<'_>, errors: &mut Errors) {
    let operations = rule.get("operations");
    only_wildcard(&operations, "operations", errors);
    for operation in operations.items() {
        operation.one_of(&OPERATIONS, errors);
    }
    only_wildcard(&rule.get("apiGroups"), "API groups", errors);
    let versions = rule.get("apiVersions");
    only_wildcard(&versions, "API versions", errors);
    for version in versions.items() {
        version.required(errors);
    }
    validate_names(&rule.get("resources"), errors);
    rule.get("scope").one_of(&["*", "Cluster", "Namespaced"], errors);
}

fn only_wildcard(list: &Field<'_>, what: &str, errors: &mut Errors) {
    list.required(errors);
    if list.len() > 1 && list.items().any(|item| item.text() == "*") {
        list.invalid(format!("if '*' is present, must not specify other {what}"), errors);
    }
}

fn validate_names(resources: &Field<'_>, errors: &mut Errors) {
    resources.required(errors);
    let (mut all_of, mut of_all) = (HashSet::new(), HashSet::new());
    let mut is_plain = false;
    for item in resources.items() {
        if !item.required(errors) {
            continue;
        }
        let text = item.text();
        let Some((resource, part)) = text.split_once('/') else {
            is_plain = text != "*";
            continue;
        };
        if all_of.contains(resource) {
            item.invalid(format!("if '{resource}/*' is present, must not specify {text}"), errors);
        }
        if of_all.contains(part) {
            item.invalid(format!("if '*/{part}' is present, must not specify {text}"), errors);
        }
        if part == "*" {
            all_of.insert(resource.to_owned());
        }
        if resource == "*" {
            of_all.insert(part.to_owned());
        }
    }
    let has = |wanted: &str| resources.items().any(|item| item.text() == wanted);
    if resources.len() > 1 && has("*/*") {
        resources.invalid("if '*/*' is present, must not specify other resources", errors);
    }
    if has("*") && is_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        resources.invalid(detail, errors);
    }
}

/// Complains about conditions, which may name parameters or not.
pub(super) fn validate_conditions(conditions: &Field<'_>, has_params: bool, errors: &mut Errors) {
    if conditions.len() > MOST_CONDITIONS {
        conditions.too_many(MOST_CONDITIONS, errors);
    }
    let mut compiler = Compiler::new(has_params, false);
    let mut seen = HashSet::new();
    for condition in conditions.items() {
        let (name, expression) = (condition.get("name"), condition.get("expression"));
        let text = expression.text().trim();
        if text.is_empty() {
            expression.complain(Reason::Required, "", errors);
        } else if let Err(why) = compiler.expression(text, &["bool"]) {
            expression.invalid_value(text, why, errors);
        }
        if name.required(errors) {
            name.conforms(names::is_qualified_name, errors);
            if !seen.insert(name.text().to_owned()) {
                name.duplicate(errors);
            }
        }
    }
}
