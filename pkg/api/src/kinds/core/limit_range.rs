//! LimitRange: how much one container, pod or claim in a namespace may ask for, and asks for by default.

use crate::field::{Errors, Field, Reason};
use crate::kind::Kind;
use crate::kinds::pod_spec::resources::{
    is_huge_page, is_native, quantity, validate_container_resource_name, validate_resource_name,
};
use crate::kinds::pod_spec::{list_mut, round_resources};
use crate::names;
use crate::object::object_mut;
use crate::quantity::Quantity;
use k8s_openapi::api::core::v1::LimitRange;
use serde_json::Value;
use std::collections::BTreeSet;

const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        create_on_update: true,
        default,
        validate,
        ..Kind::new::<LimitRange>().short(&["limits"])
    }
}

fn default(range: &mut Value) {
    let Some(spec) = range.get_mut("spec") else { return };
    for limit in list_mut(spec, "limits") {
        if limit.get("type").and_then(Value::as_str) == Some("Container") {
            inherit(limit, "max", "default");
            inherit(limit, "default", "defaultRequest");
            inherit(limit, "min", "defaultRequest");
        }
        for list in LISTS {
            round_resources(limit.get_mut(list));
        }
    }
}

/// Takes what one list does not say from another.
fn inherit(limit: &mut Value, from: &str, to: &str) {
    let source = limit.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
    if source.is_empty() {
        return;
    }
    let target = object_mut(limit, to);
    for (name, amount) in source {
        target.entry(name).or_insert(amount);
    }
}

fn validate(range: &Field<'_>, errors: &mut Errors) {
    let spec = range.get("spec");
    let mut types = BTreeSet::new();
    for limit in spec.get("limits").items() {
        let ty = limit.get("type");
        let faults = names::is_qualified_name(ty.text());
        if !faults.is_empty() {
            faults.iter().for_each(|fault| ty.invalid_value(ty.text(), fault.as_str(), errors));
        } else if !ty.text().contains('/')
            && !matches!(ty.text(), "Pod" | "Container" | "PersistentVolumeClaim")
        {
            ty.invalid("must be a standard limit type or fully qualified", errors);
        }
        if !types.insert(ty.text().to_owned()) {
            ty.duplicate(errors);
        }
        validate_limit(&limit, ty.text(), errors);
    }
}

fn validate_limit(limit: &Field<'_>, ty: &str, errors: &mut Errors) {
    let mut resources = BTreeSet::new();
    for name in LISTS {
        let list = limit.get(name);
        if ty == "Pod" && name.starts_with("default") {
            if !list.is_empty() {
                list.forbidden("may not be specified when `type` is 'Pod'", errors);
            }
            continue;
        }
        for (resource, amount) in list.entries() {
            if matches!(ty, "Pod" | "Container") {
                validate_container_resource_name(resource, &amount, errors);
            } else {
                validate_resource_name(resource, &amount, errors);
            }
            resources.insert(resource.to_owned());
        }
    }
    if ty == "PersistentVolumeClaim"
        && !["min", "max"].iter().any(|name| limit.get(name).key("storage").exists())
    {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        limit.get("limits").complain(Reason::Required, detail, errors);
    }
    for resource in resources {
        validate_amounts(limit, &resource, ty == "Pod", errors);
    }
}

/// min ≤ default request ≤ default ≤ max, as far as they are given.
fn validate_amounts(limit: &Field<'_>, resource: &str, in_pod: bool, errors: &mut Errors) {
    let get = |list: &str| -> Option<Quantity> {
        if in_pod && list.starts_with("default") { None } else { quantity(&limit.get(list).key(resource)) }
    };
    let (min, max, default, request) = (get("min"), get("max"), get("default"), get("defaultRequest"));
    let mut ordered = |low: Option<Quantity>,
                       high: Option<Quantity>,
                       at: &str,
                       shown: Option<Quantity>,
                       low_name: &str,
                       high_name: &str| {
        if let (Some(low), Some(high), Some(shown)) = (low, high, shown)
            && low > high
        {
            let detail = format!("{low_name} value {low} is greater than {high_name} value {high}");
            limit.get(at).key(resource).invalid_value(shown.to_string(), detail, errors);
        }
    };
    ordered(min, max, "min", min, "min", "max");
    ordered(min, request, "defaultRequest", request, "min", "default request");
    ordered(request, max, "defaultRequest", request, "default request", "max");
    ordered(request, default, "defaultRequest", request, "default request", "default limit");
    ordered(min, default, "default", min, "min", "default");
    ordered(default, max, "default", max, "default", "max");
    validate_ratio(limit, resource, min.zip(max), errors);
    let overcommit = is_native(resource) && !is_huge_page(resource);
    if let (Some(default), Some(request), false) = (default, request, overcommit)
        && default != request
    {
        let detail =
            format!("default value {default} must equal to defaultRequest value {request} in {resource}");
        limit.get("defaultRequest").key(resource).invalid(detail, errors);
    }
}

fn validate_ratio(
    limit: &Field<'_>,
    resource: &str,
    bounds: Option<(Quantity, Quantity)>,
    errors: &mut Errors,
) {
    let ratios = limit.get("maxLimitRequestRatio");
    let ratio = ratios.key(resource);
    let Some(amount) = quantity(&ratio) else { return };
    if amount < Quantity::from_value(1) {
        ratio.invalid(format!("ratio {amount} is less than 1"), errors);
    }
    if let Some((min, max)) = bounds {
        let most = max.milli_value() as f64 / min.milli_value() as f64;
        if amount.milli_value() as f64 / 1000.0 > most {
            ratio.invalid(format!("ratio {amount} is greater than max/min = {most:.6}"), errors);
        }
    }
}
