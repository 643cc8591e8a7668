//! HorizontalPodAutoscaler (autoscaling/v2): changes the replicas of something that can be scaled, by metrics.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Column, Kind, column};
use crate::kinds::rules;
use crate::object::{object_mut, set_default};
use crate::{Quantity, names, printing};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::{Value, json};

/// The utilization aimed at where no metric is given.
pub(super) const DEFAULT_CPU_UTILIZATION: i64 = 80;
const MOST_PERIOD_SECONDS: i64 = 1800;
const MOST_WINDOW_SECONDS: i64 = 3600;
/// The types of metrics, with the member that describes each.
const METRIC_TYPES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: columns(),
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        validate_create: validate_target_group,
        validate_update: |new, old, errors| {
            if has_group(old) {
                validate_target_group(new, errors);
            }
        },
        validate_status,
        ..Kind::new::<HorizontalPodAutoscaler>().short(&["hpa"]).in_all().with_status()
    }
}

/// The columns, which read the stored version.
fn columns() -> Vec<Column> {
    vec![
        printing::name_column(),
        column("Reference", "string", |hpa, _| reference_cell(hpa).into()),
        column("Targets", "string", |hpa, _| targets_cell(hpa).into()),
        column("MinPods", "string", |hpa, _| min_pods_cell(hpa).into()),
        column("MaxPods", "string", |hpa, _| printing::int(hpa, "spec.maxReplicas").into()),
        column("Replicas", "string", |hpa, _| printing::int(hpa, "status.currentReplicas").into()),
        printing::age_column(),
    ]
}

/// The metric where none is given.
pub(super) fn default_metrics() -> Value {
    json!([{"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": DEFAULT_CPU_UTILIZATION}}}])
}

fn default(hpa: &mut Value) {
    object_mut(hpa, "spec");
    let spec = &mut hpa["spec"];
    set_default(spec, "minReplicas", 1);
    if printing::items(spec, "metrics").is_empty() {
        spec["metrics"] = default_metrics();
    }
    if let Some(behavior) = spec.get_mut("behavior").filter(|behavior| behavior.is_object()) {
        let (up, down) = (
            json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15}]}),
            // How long to wait before scaling down is the controller's to say.
            json!({"selectPolicy": "Max", "policies": [
                {"type": "Percent", "value": 100, "periodSeconds": 15}]}),
        );
        for (name, defaults) in [("scaleUp", up), ("scaleDown", down)] {
            object_mut(behavior, name);
            for (member, value) in defaults.as_object().into_iter().flatten() {
                set_default(&mut behavior[name], member, value.clone());
            }
        }
    }
}

/// Rules for the stored version, whichever version was written.
pub(super) fn validate(hpa: &Field<'_>, errors: &mut Errors) {
    let spec = hpa.get("spec");
    let (min, max) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    if min.int().is_some_and(|min| min < 1) {
        min.invalid("must be greater than or equal to 1", errors);
    }
    let most = max.int().unwrap_or(0);
    if most < 1 {
        max.invalid_value(most, "must be greater than 0", errors);
    }
    if min.int().is_some_and(|min| most < min) {
        max.invalid_value(most, "must be greater than or equal to `minReplicas`", errors);
    }
    validate_reference(&spec.get("scaleTargetRef"), errors);
    let metrics = spec.get("metrics");
    for metric in metrics.items() {
        validate_metric(&metric, errors);
    }
    let behavior = spec.get("behavior");
    for name in ["scaleUp", "scaleDown"] {
        let rules = behavior.get(name);
        if rules.exists() {
            validate_scaling_rules(&rules, errors);
        }
    }
}

/// What is scaled is of a group; autoscalers from before that was asked for may stay as they are.
pub(super) fn validate_target_group(hpa: &Field<'_>, errors: &mut Errors) {
    if !has_group(hpa) {
        let spec = hpa.get("spec");
        let target = spec.get("scaleTargetRef");
        let version = target.get("apiVersion");
        version.invalid_value(version.text(), "apiVersion must specify API group", errors);
    }
}

pub(super) fn has_group(hpa: &Field<'_>) -> bool {
    hpa.get("spec").get("scaleTargetRef").get("apiVersion").text().contains('/')
}

fn validate_reference(reference: &Field<'_>, errors: &mut Errors) {
    rules::validate_kind_and_name(reference, errors);
    let version = reference.get("apiVersion");
    if version.text().matches('/').count() > 1 {
        version.invalid(format!("unexpected GroupVersion string: {}", version.text()), errors);
    }
}

fn validate_metric(metric: &Field<'_>, errors: &mut Errors) {
    let ty = metric.get("type");
    ty.required_because("must specify a metric source type", errors);
    let types: Vec<&str> = METRIC_TYPES.iter().map(|(ty, _)| *ty).collect();
    let expected = METRIC_TYPES.iter().find(|(name, _)| *name == ty.text()).map(|(_, member)| *member);
    if expected.is_none() {
        ty.not_supported(&types, errors);
    }
    let present: Vec<&str> = ["object", "external", "pods", "resource", "containerResource"]
        .into_iter()
        .filter(|member| metric.get(member).exists())
        .collect();
    if let Some(&first) = present.first() {
        validate_source(&metric.get(first), first, errors);
    }
    if let Some(expected) = expected.filter(|expected| !present.contains(expected)) {
        let detail = "must populate information for the given metric source";
        metric.get(expected).complain(Reason::Required, detail, errors);
    }
    if present.len() > 1 || expected.is_none_or(|expected| !present.contains(&expected)) {
        for other in present.into_iter().filter(|&member| Some(member) != expected) {
            metric.get(other).forbidden("must populate the given metric source only", errors);
        }
    }
}

fn validate_source(source: &Field<'_>, member: &str, errors: &mut Errors) {
    if member == "object" {
        validate_reference(&source.get("describedObject"), errors);
    }
    if matches!(member, "object" | "external" | "pods") {
        let metric = source.get("metric");
        let name = metric.get("name");
        if name.required_because("must specify a metric name", errors) {
            name.conforms(names::is_path_segment, errors);
        }
    } else {
        source.get("name").required_because("must specify a resource name", errors);
    }
    if member == "containerResource" {
        let container = source.get("container");
        if container.required_because("must specify a container", errors) {
            container.conforms(names::is_dns1123_label, errors);
        }
    }
    let target = source.get("target");
    validate_target(&target, errors);
    let (value, average) = (target.get("value"), target.get("averageValue"));
    let utilization = target.get("averageUtilization");
    let missing = |field: &Field<'_>, detail: &str, errors: &mut Errors| {
        field.complain(Reason::Required, detail, errors);
    };
    match member {
        "object" if !value.exists() && !average.exists() => {
            missing(&average, "must set either a target value or averageValue", errors);
        }
        "external" if !value.exists() && !average.exists() => {
            missing(&average, "must set either a target value for metric or a per-pod target", errors);
        }
        "external" if value.exists() && average.exists() => {
            value.forbidden("may not set both a target value for metric and a per-pod target", errors);
        }
        "pods" if !average.exists() => {
            missing(&average, "must specify a positive target averageValue", errors);
        }
        "resource" | "containerResource" if !utilization.exists() && !average.exists() => {
            missing(&utilization, "must set either a target raw value or a target utilization", errors);
        }
        "resource" | "containerResource" if utilization.exists() && average.exists() => {
            average.forbidden("may not set both a target raw value and a target utilization", errors);
        }
        _ => {}
    }
}

fn validate_target(target: &Field<'_>, errors: &mut Errors) {
    let ty = target.get("type");
    ty.required_because("must specify a metric target type", errors);
    if !matches!(ty.text(), "Utilization" | "Value" | "AverageValue") {
        ty.invalid_value(ty.text(), "must be either Utilization, Value, or AverageValue", errors);
    }
    for name in ["value", "averageValue"] {
        let field = target.get(name);
        let quantity = field.str().map(str::parse::<Quantity>);
        match quantity {
            Some(Err(fault)) => field.invalid(fault.to_string(), errors),
            Some(Ok(quantity)) if quantity.is_negative() || quantity.is_zero() => {
                field.invalid("must be positive", errors);
            }
            _ => {}
        }
    }
    let utilization = target.get("averageUtilization");
    if utilization.int().is_some_and(|percent| percent < 1) {
        utilization.invalid("must be greater than 0", errors);
    }
}

fn validate_scaling_rules(rules: &Field<'_>, errors: &mut Errors) {
    let window = rules.get("stabilizationWindowSeconds");
    if window.int().is_some_and(|seconds| seconds < 0) {
        window.invalid("must be greater than or equal to zero", errors);
    }
    if window.int().is_some_and(|seconds| seconds > MOST_WINDOW_SECONDS) {
        window.invalid(format!("must be less than or equal to {MOST_WINDOW_SECONDS}"), errors);
    }
    rules.get("selectPolicy").one_of(&["Disabled", "Max", "Min"], errors);
    let policies = rules.get("policies");
    policies.required_because("must specify at least one Policy", errors);
    for policy in policies.items() {
        let ty = policy.get("type");
        if !matches!(ty.text(), "Pods" | "Percent") {
            ty.not_supported(&["Percent", "Pods"], errors);
        }
        for name in ["value", "periodSeconds"] {
            let field = policy.get(name);
            if field.int().unwrap_or(0) <= 0 {
                field.invalid_value(field.int().unwrap_or(0), "must be greater than zero", errors);
            }
        }
        let period = policy.get("periodSeconds");
        if period.int().is_some_and(|seconds| seconds > MOST_PERIOD_SECONDS) {
            period.invalid(format!("must be less than or equal to {MOST_PERIOD_SECONDS}"), errors);
        }
    }
    let tolerance = rules.get("tolerance");
    match tolerance.str().map(str::parse::<Quantity>) {
        Some(Err(fault)) => tolerance.invalid(fault.to_string(), errors),
        Some(Ok(quantity)) if quantity.is_negative() => {
            tolerance.invalid("must be greater than or equal to 0", errors);
        }
        _ => {}
    }
}

/// Rules for a status, which both versions have in common.
pub(super) fn validate_status(new: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
    let status = new.get("status");
    status.get("currentReplicas").non_negative(errors);
    status.get("desiredReplicas").non_negative(errors);
}

pub(super) fn reference_cell(hpa: &Value) -> String {
    let reference = &hpa["spec"]["scaleTargetRef"];
    format!("{}/{}", printing::text(reference, "kind"), printing::text(reference, "name"))
}

pub(super) fn min_pods_cell(hpa: &Value) -> String {
    printing::at(hpa, "spec.minReplicas").map_or("<unset>".into(), Value::to_string)
}

/// `cpu: 20%/80%, memory: 1Gi/2Gi + 1 more...`.
pub(super) fn targets_cell(hpa: &Value) -> String {
    let (specs, statuses) =
        (printing::items(hpa, "spec.metrics"), printing::items(hpa, "status.currentMetrics"));
    let cells: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(index, spec)| target_cell(spec, statuses.get(index).unwrap_or(&Value::Null)))
        .collect();
    match cells.len() {
        0 => printing::NONE.into(),
        1 | 2 => cells.join(", "),
        count => format!("{} + {} more...", cells[..2].join(", "), count - 2),
    }
}

fn target_cell(spec: &Value, status: &Value) -> String {
    let ty = printing::text(spec, "type");
    let Some((_, member)) = METRIC_TYPES.iter().find(|(name, _)| *name == ty) else {
        return "<unknown type>".into();
    };
    let (source, target) = (&spec[member], &spec[member]["target"]);
    let current = |name: &str| status[member]["current"][name].as_str().unwrap_or(printing::UNKNOWN);
    let wanted = |name: &str| target[name].as_str();
    match ty {
        "Pods" => format!("{}/{}", current("averageValue"), wanted("averageValue").unwrap_or_default()),
        "External" | "Object" => match wanted("averageValue") {
            Some(average) => format!("{}/{average} (avg)", current("averageValue")),
            None => format!("{}/{}", current("value"), wanted("value").unwrap_or_default()),
        },
        _ => {
            let name = printing::text(source, "name");
            let percent = |value: &Value| value.as_i64().map(|percent| format!("{percent}%"));
            match wanted("averageValue") {
                Some(average) => format!("{name}: {}/{average}", current("averageValue")),
                None => {
                    let now = percent(&status[member]["current"]["averageUtilization"]);
                    let aim = percent(&target["averageUtilization"]);
                    let (now, aim) = (now.as_deref(), aim.as_deref());
                    format!("{name}: {}/{}", now.unwrap_or(printing::UNKNOWN), aim.unwrap_or("<auto>"))
                }
            }
        }
    }
}
