//! Rules for where a pod may run: affinity, tolerations, spreading, selectors.

use crate::field::{Errors, Field, Reason};
use crate::{meta, names};
use std::collections::BTreeSet;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Complains about `affinity`.
pub(super) fn validate_affinity(affinity: &Field<'_>, errors: &mut Errors) {
    let node = affinity.get("nodeAffinity");
    let required = node.get(REQUIRED);
    if required.exists() {
        validate_node_selector(&required, errors);
    }
    for term in node.get(PREFERRED).items() {
        validate_weight(&term.get("weight"), errors);
        validate_node_selector_term(&term.get("preference"), false, errors);
    }
    for name in ["podAffinity", "podAntiAffinity"] {
        let affinity = affinity.get(name);
        for term in affinity.get(REQUIRED).items() {
            validate_pod_affinity_term(&term, errors);
        }
        for term in affinity.get(PREFERRED).items() {
            validate_weight(&term.get("weight"), errors);
            validate_pod_affinity_term(&term.get("podAffinityTerm"), errors);
        }
    }
}

/// Complains about a selector of nodes.
pub fn validate_node_selector(selector: &Field<'_>, errors: &mut Errors) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.required_because("must have at least one node selector term", errors) {
        for term in terms.items() {
            validate_node_selector_term(&term, true, errors);
        }
    }
}

/// Complains about `tolerations`.
pub fn validate_tolerations(tolerations: &Field<'_>, errors: &mut Errors) {
    for toleration in tolerations.items() {
        let (key, operator) = (toleration.get("key"), toleration.get("operator"));
        let (value, effect) = (toleration.get("value"), toleration.get("effect"));
        if !key.text().is_empty() {
            key.conforms(names::is_qualified_name, errors);
        } else if operator.text() != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            operator.invalid_value(operator.text(), detail, errors);
        }
        if toleration.get("tolerationSeconds").exists() && effect.text() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            effect.invalid_value(effect.text(), detail, errors);
        }
        match operator.text() {
            "Equal" | "" => {
                let faults = names::is_label_value(value.text());
                if !faults.is_empty() {
                    operator.invalid_value(value.text(), faults.join(";"), errors);
                }
            }
            "Exists" if !value.text().is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                operator.invalid_value(value.text(), detail, errors);
            }
            "Exists" => {}
            _ => operator.not_supported(&["Equal", "Exists"], errors),
        }
        if !effect.text().is_empty() {
            effect.one_of(&["NoExecute", "NoSchedule", "PreferNoSchedule"], errors);
        }
    }
}

/// Complains about `topologySpreadConstraints`.
pub(super) fn validate_spread_constraints(constraints: &Field<'_>, errors: &mut Errors) {
    let mut taken = BTreeSet::new();
    for constraint in constraints.items() {
        positive(&constraint.get("maxSkew"), errors);
        let (key, action) = (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"));
        key.required_because("can not be empty", errors);
        if !matches!(action.text(), "DoNotSchedule" | "ScheduleAnyway") {
            action.not_supported(&["DoNotSchedule", "ScheduleAnyway"], errors);
        }
        if !taken.insert((key.text().to_owned(), action.text().to_owned())) {
            let pair = format!("{{{}, {}}}", key.text(), action.text()).into();
            let place = constraint.get("{topologyKey, whenUnsatisfiable}");
            place.with_value(&pair).duplicate(errors);
        }
        let domains = constraint.get("minDomains");
        if domains.exists() {
            positive(&domains, errors);
            if action.text() != "DoNotSchedule" {
                let action = action.text();
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                domains.invalid(detail, errors);
            }
        }
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            constraint.get(name).one_of(&["Honor", "Ignore"], errors);
        }
        validate_match_label_keys(&constraint, errors);
        meta::validate_label_selector(&constraint.get("labelSelector"), errors);
    }
}

/// Complains about `schedulingGates`.
pub(super) fn validate_scheduling_gates(gates: &Field<'_>, errors: &mut Errors) {
    let mut taken = BTreeSet::new();
    for gate in gates.items() {
        let name = gate.get("name");
        let named = gate.with_value(name.value());
        named.conforms(names::is_qualified_name, errors);
        if !taken.insert(name.text().to_owned()) {
            named.duplicate(errors);
        }
    }
}

fn validate_weight(weight: &Field<'_>, errors: &mut Errors) {
    let number = weight.int().unwrap_or(0);
    if !(1..=100).contains(&number) {
        weight.invalid_value(number, "must be in the range 1-100", errors);
    }
}

fn positive(field: &Field<'_>, errors: &mut Errors) {
    let number = field.int().unwrap_or(0);
    if number <= 0 {
        field.invalid_value(number, "must be greater than zero", errors);
    }
}

fn validate_node_selector_term(term: &Field<'_>, check_values: bool, errors: &mut Errors) {
    for requirement in term.get("matchExpressions").items() {
        let (operator, values) = (requirement.get("operator"), requirement.get("values"));
        match operator.text() {
            "In" | "NotIn" => {
                values.required_because("must be specified when `operator` is 'In' or 'NotIn'", errors);
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    values.forbidden(detail, errors);
                }
            }
            "Gt" | "Lt" => {
                if values.len() != 1 {
                    let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                    values.complain(Reason::Required, detail, errors);
                }
            }
            unknown => operator.invalid_value(unknown, "not a valid selector operator", errors),
        }
        requirement.get("key").conforms(names::is_qualified_name, errors);
        for value in values.items().filter(|_| check_values) {
            value.conforms(names::is_label_value, errors);
        }
    }
    for requirement in term.get("matchFields").items() {
        let (operator, values) = (requirement.get("operator"), requirement.get("values"));
        let key = requirement.get("key");
        if !matches!(operator.text(), "In" | "NotIn") {
            operator.invalid_value(operator.text(), "not a valid selector operator", errors);
        } else if values.len() != 1 {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            values.complain(Reason::Required, detail, errors);
        }
        if key.text() != "metadata.name" {
            key.invalid_value(key.text(), "not a valid field selector key", errors);
        } else {
            for value in values.items() {
                value.conforms(names::is_dns1123_subdomain, errors);
            }
        }
    }
}

fn validate_pod_affinity_term(term: &Field<'_>, errors: &mut Errors) {
    meta::validate_label_selector(&term.get("labelSelector"), errors);
    meta::validate_label_selector(&term.get("namespaceSelector"), errors);
    for namespace in term.get("namespaces").items() {
        term.get("namespace").with_value(namespace.value()).conforms(names::is_dns1123_label, errors);
    }
    validate_match_label_keys(term, errors);
    let key = term.get("topologyKey");
    key.required_because("can not be empty", errors);
    key.conforms(names::is_qualified_name, errors);
}

/// Keys whose values a pod takes from its own labels: only with a selector to add them to, and not named twice.
fn validate_match_label_keys(term: &Field<'_>, errors: &mut Errors) {
    let selector = term.get("labelSelector");
    let (matching, mismatching) = (term.get("matchLabelKeys"), term.get("mismatchLabelKeys"));
    for keys in [&matching, &mismatching] {
        if !keys.is_empty() && !selector.exists() {
            keys.forbidden("must not be specified when labelSelector is not set", errors);
            continue;
        }
        for key in keys.items() {
            key.conforms(names::is_qualified_name, errors);
        }
    }
    let both: BTreeSet<String> = mismatching.items().map(|key| key.text().to_owned()).collect();
    let mut selected: Vec<String> =
        selector.get("matchLabels").entries().map(|(key, _)| key.to_owned()).collect();
    selected.extend(selector.get("matchExpressions").items().map(|e| e.get("key").text().to_owned()));
    for key in matching.items() {
        // Once is the requirement that the key itself was turned into.
        if selected.iter().filter(|selected| *selected == key.text()).count() > 1 {
            key.invalid("exists in both matchLabelKeys and labelSelector", errors);
        }
        if both.contains(key.text()) {
            key.invalid("exists in both matchLabelKeys and mismatchLabelKeys", errors);
        }
    }
}
