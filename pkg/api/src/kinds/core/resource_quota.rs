//! ResourceQuota: how much all objects of a namespace may take together.

use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec::resources::{is_huge_page, validate_amount, validate_resource_name};
use crate::kinds::pod_spec::round_resources;
use crate::names;
use crate::printing::{age_column, at, name_column};
use k8s_openapi::api::core::v1::ResourceQuota;
use serde_json::Value;
use std::collections::BTreeSet;

const QUOTA_RESOURCES: [&str; 21] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
    "count/pods",
    "storage",
];
const COMPUTE_RESOURCES: [&str; 7] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "pods"];

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        validate_update,
        validate_status,
        columns: vec![
            name_column(),
            column("Request", "string", |quota, _| used(quota, false).into()),
            column("Limit", "string", |quota, _| used(quota, true).into()),
            age_column(),
        ],
        ..Kind::new::<ResourceQuota>().short(&["quota"]).with_status()
    }
}

fn default(quota: &mut Value) {
    for path in ["/spec/hard", "/status/hard", "/status/used"] {
        round_resources(quota.pointer_mut(path));
    }
}

fn validate(quota: &Field<'_>, errors: &mut Errors) {
    let spec = quota.get("spec");
    validate_amounts(&spec.get("hard"), errors);
    validate_scopes(&spec, errors);
    validate_scope_selector(&spec, errors);
}

fn validate_update(quota: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let set = |object: &Field<'_>| -> BTreeSet<String> {
        let spec = object.get("spec");
        let scopes = spec.get("scopes");
        scopes.items().map(|scope| scope.text().to_owned()).collect()
    };
    if set(quota) != set(old) {
        quota.get("spec").get("scopes").invalid("field is immutable", errors);
    }
}

fn validate_status(quota: &Field<'_>, _old: &Field<'_>, errors: &mut Errors) {
    let status = quota.get("status");
    validate_amounts(&status.get("hard"), errors);
    validate_amounts(&status.get("used"), errors);
}

fn is_quota_resource(name: &str) -> bool {
    QUOTA_RESOURCES.contains(&name)
        || is_huge_page(name)
        || name.strip_prefix("requests.").is_some_and(is_huge_page)
}

fn validate_amounts(list: &Field<'_>, errors: &mut Errors) {
    for (name, amount) in list.entries() {
        validate_resource_name(name, &amount, errors);
        if !name.contains('/') && !is_quota_resource(name) {
            amount.invalid_value(name, "must be a standard resource for quota", errors);
        }
        validate_amount(name, &amount, errors);
    }
}

fn is_scope(name: &str) -> bool {
    matches!(
        name,
        "Terminating"
            | "NotTerminating"
            | "BestEffort"
            | "NotBestEffort"
            | "PriorityClass"
            | "CrossNamespacePodAffinity"
            | "VolumeAttributesClass"
    )
}

fn scope_fits(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage" | "storage")
        }
        _ => COMPUTE_RESOURCES.contains(&resource) || is_huge_page(resource),
    }
}

fn has_unfit_resource(spec: &Field<'_>, scope: &str) -> usize {
    spec.get("hard").entries().filter(|(name, _)| is_quota_resource(name) && !scope_fits(scope, name)).count()
}

fn conflicting(scopes: &BTreeSet<String>) -> usize {
    [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")]
        .iter()
        .filter(|(a, b)| scopes.contains(*a) && scopes.contains(*b))
        .count()
}

fn validate_scopes(spec: &Field<'_>, errors: &mut Errors) {
    let scopes = spec.get("scopes");
    let mut seen = BTreeSet::new();
    for scope in scopes.items() {
        if !is_scope(scope.text()) {
            scopes.invalid("unsupported scope", errors);
        }
        for _ in 0..has_unfit_resource(spec, scope.text()) {
            scopes.invalid("unsupported scope applied to resource", errors);
        }
        seen.insert(scope.text().to_owned());
    }
    for _ in 0..conflicting(&seen) {
        scopes.invalid("conflicting scopes", errors);
    }
}

fn validate_scope_selector(spec: &Field<'_>, errors: &mut Errors) {
    let selector = spec.get("scopeSelector");
    let expressions = selector.get("matchExpressions");
    let mut seen = BTreeSet::new();
    for requirement in expressions.items() {
        let (scope, operator) = (requirement.get("scopeName"), requirement.get("operator"));
        let values = requirement.get("values");
        // Upstream names the list, not the element, in these.
        if !is_scope(scope.text()) {
            expressions.get("scopeName").invalid_value(scope.text(), "unsupported scope", errors);
        }
        for _ in 0..has_unfit_resource(spec, scope.text()) {
            let detail = "unsupported scope applied to resource";
            expressions.invalid_value(selector.value().clone(), detail, errors);
        }
        let shown = expressions.get("operator");
        if is_scope(scope.text())
            && !matches!(scope.text(), "PriorityClass" | "VolumeAttributesClass")
            && operator.text() != "Exists"
        {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            shown.invalid_value(operator.text(), detail, errors);
        }
        let shown_values = expressions.get("values").with_value(values.value());
        match operator.text() {
            "In" | "NotIn" => {
                let detail =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                shown_values.required_because(detail, errors);
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let detail =
                        "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                    shown_values.invalid(detail, errors);
                }
            }
            unknown => shown.invalid_value(unknown, "not a valid selector operator", errors),
        }
        seen.insert(scope.text().to_owned());
    }
    for _ in 0..conflicting(&seen) {
        expressions.invalid("conflicting scopes", errors);
    }
}

fn used(quota: &Value, limits: bool) -> String {
    let hard = at(quota, "status.hard").and_then(Value::as_object).into_iter().flatten();
    let mut cells: Vec<String> = hard
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| {
            let used = at(quota, "status.used").and_then(|used| used.get(name)).and_then(Value::as_str);
            format!("{name}: {}/{}", used.unwrap_or("0"), hard.as_str().unwrap_or("0"))
        })
        .collect();
    cells.sort_unstable();
    cells.join(", ")
}
