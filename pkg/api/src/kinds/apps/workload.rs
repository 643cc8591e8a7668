//! What the kinds that make pods from a template share: rules for selectors, templates, rollouts and counts, and
//! the wide columns.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Column, wide};
use crate::kinds::pod_spec;
use crate::object::object_mut;
use crate::{meta, printing};
use serde_json::Value;

/// Defaults for `spec.template`.
pub(crate) fn default_template(object: &mut Value) {
    object_mut(object, "spec");
    object_mut(&mut object["spec"], "template");
    pod_spec::default_template(&mut object["spec"]["template"]);
}

/// The selector must be there, be well formed and select something.
pub(crate) fn validate_selector(spec: &Field<'_>, noun: &str, errors: &mut Errors) {
    let selector = spec.get("selector");
    if !selector.exists() {
        selector.complain(Reason::Required, "", errors);
        return;
    }
    meta::validate_label_selector(&selector, errors);
    if selector.get("matchLabels").is_empty() && selector.get("matchExpressions").is_empty() {
        selector.invalid(format!("empty selector is invalid for {noun}"), errors);
    }
}

/// The template must be valid and selected by `spec.selector`.
pub(crate) fn validate_template(spec: &Field<'_>, errors: &mut Errors) {
    let template = spec.get("template");
    validate_template_is_selected(spec, errors);
    pod_spec::validate_template(&template, errors);
}

/// The template's labels must match `spec.selector`; no selector at all matches nothing.
pub(crate) fn validate_template_is_selected(spec: &Field<'_>, errors: &mut Errors) {
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    let metadata = template.get("metadata");
    let labels = metadata.get("labels");
    if !selector.exists() || !selects(selector.value(), labels.value()) {
        labels.invalid_value(labels.value().clone(), "`selector` does not match template `labels`", errors);
    }
}

/// The pods of a workload that never ends are restarted for ever.
pub(crate) fn validate_runs_for_ever(spec: &Field<'_>, owner: &str, errors: &mut Errors) {
    let template = spec.get("template");
    let pod = template.get("spec");
    let restart_policy = pod.get("restartPolicy");
    if restart_policy.text() != "Always" {
        restart_policy.not_supported(&["Always"], errors);
    }
    let deadline = pod.get("activeDeadlineSeconds");
    if deadline.exists() {
        deadline.forbidden(format!("activeDeadlineSeconds in {owner} is not Supported"), errors);
    }
}

/// Whether a label selector selects labels. What is not a valid requirement holds.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = |(key, value): (&String, &Value)| label(key) == value.as_str();
    let holds = |requirement: &Value| {
        let values = printing::items(requirement, "values");
        let found = label(printing::text(requirement, "key"));
        let listed = found.is_some_and(|found| values.iter().any(|value| value == found));
        match printing::text(requirement, "operator") {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => true,
        }
    };
    selector.get("matchLabels").and_then(Value::as_object).is_none_or(|labels| labels.iter().all(equal))
        && printing::items(selector, "matchExpressions").iter().all(holds)
}

/// Counts are not negative.
pub(crate) fn validate_counts(status: &Field<'_>, names: &[&str], errors: &mut Errors) {
    for name in names {
        status.get(name).non_negative(errors);
    }
}

/// One count is at most another.
pub(crate) fn validate_at_most(
    status: &Field<'_>,
    name: &str,
    most: &str,
    detail: &str,
    errors: &mut Errors,
) {
    let count = status.get(name);
    if count.int().unwrap_or(0) > status.get(most).int().unwrap_or(0) {
        count.invalid(detail, errors);
    }
}

/// The count of hash collisions only grows: names of replica sets and revisions are made from it.
pub(crate) fn validate_collision_count(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    let (count, before) = (status.get("collisionCount"), before.get("collisionCount"));
    if before.int().is_some_and(|before| count.int().unwrap_or(i64::MIN) < before) {
        count.invalid_value(count.int().unwrap_or(0), "cannot be decremented", errors);
    }
}

/// CONTAINERS and IMAGES of `spec.template`.
pub(crate) fn container_columns() -> [Column; 2] {
    [
        wide("Containers", "string", |object, _| {
            printing::container_names_and_images(printing::at(object, "spec.template.spec")).0.into()
        }),
        wide("Images", "string", |object, _| {
            printing::container_names_and_images(printing::at(object, "spec.template.spec")).1.into()
        }),
    ]
}

/// SELECTOR of `spec.selector`.
pub(crate) fn selector_column() -> Column {
    wide("Selector", "string", |object, _| {
        printing::label_selector(printing::at(object, "spec.selector")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_select_as_upstreams() {
        let labels = json!({"app": "web", "tier": "front"});
        for (selector, selected) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (json!({"matchLabels": {"zone": "a"}}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}), false),
            (json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}), true),
            (json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), false),
            (json!({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}), true),
        ] {
            assert_eq!(selects(&selector, &labels), selected, "{selector}");
        }
    }
}
