//! ValidatingAdmissionPolicyBinding: where a policy holds, with which parameters, and what comes of breaking it.

use super::matching;
use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::{meta, names, printing};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use serde_json::Value;
use std::collections::HashSet;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        categories: vec!["api-extensions".into()],
        columns: vec![
            printing::name_column(),
            column("PolicyName", "string", |binding, _| printing::text(binding, "spec.policyName").into()),
            column("ParamRef", "string", |binding, _| param_ref(binding).into()),
            printing::age_column(),
        ],
        unconditional_update: false,
        validate_name: names::dns_subdomain_name,
        default: |binding| matching::default_resources(binding, "matchResources"),
        validate,
        ..Kind::new::<ValidatingAdmissionPolicyBinding>().with_generation()
    }
}

fn param_ref(binding: &Value) -> String {
    let Some(reference) = printing::at(binding, "spec.paramRef") else { return "<unset>".to_owned() };
    match (printing::text(reference, "namespace"), printing::text(reference, "name")) {
        (_, "") => selector(&reference["selector"]),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// A selector as Go shows it.
fn selector(selector: &Value) -> String {
    if !selector.is_object() {
        return "<unset>".to_owned();
    }
    let mut labels: Vec<String> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        labels.push(format!("{key}: {},", value.as_str().unwrap_or_default()));
    }
    labels.sort();
    let requirement = |requirement: &Value| {
        let values: Vec<_> =
            printing::items(requirement, "values").iter().filter_map(Value::as_str).collect();
        let (key, operator) = (printing::text(requirement, "key"), printing::text(requirement, "operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    };
    let requirements: String =
        printing::items(selector, "matchExpressions").iter().map(requirement).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}",
        labels.concat()
    )
}

fn validate(binding: &Field<'_>, errors: &mut Errors) {
    let spec = binding.get("spec");
    let policy = spec.get("policyName");
    if policy.required(errors) {
        policy.conforms(names::is_dns1123_subdomain, errors);
    }
    if spec.get("paramRef").exists() {
        validate_param_ref(&spec.get("paramRef"), errors);
    }
    matching::validate_resources(&spec.get("matchResources"), errors);
    let actions = spec.get("validationActions");
    let mut seen = HashSet::new();
    for action in actions.items() {
        action.one_of(&["Audit", "Deny", "Warn"], errors);
        if !seen.insert(action.text().to_owned()) {
            action.duplicate(errors);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        actions.invalid(detail, errors);
    }
    actions.required_because("at least one validation action is required", errors);
}

fn validate_param_ref(reference: &Field<'_>, errors: &mut Errors) {
    let (name, selector) = (reference.get("name"), reference.get("selector"));
    let has_name = !name.text().is_empty();
    if has_name {
        name.conforms(names::is_path_segment, errors);
    }
    if has_name && selector.exists() {
        name.forbidden("name and selector are mutually exclusive", errors);
    }
    if selector.exists() {
        meta::validate_label_selector(&selector, errors);
    }
    if has_name && selector.exists() {
        selector.forbidden("name and selector are mutually exclusive", errors);
    }
    if !has_name && !selector.exists() {
        reference.complain(Reason::Required, "one of name or selector must be specified", errors);
    }
    let action = reference.get("parameterNotFoundAction");
    if action.required(errors) && !matches!(action.text(), "Deny" | "Allow") {
        action.not_supported_in_order(&["Deny", "Allow"], errors);
    }
}
