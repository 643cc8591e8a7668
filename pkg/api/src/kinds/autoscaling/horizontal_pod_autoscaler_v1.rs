//! HorizontalPodAutoscaler as autoscaling/v1 has it: one CPU target in the spec, everything else in annotations.
//!
//! ```text
//! v2 spec.metrics (but for CPU utilization) <──> annotation …/metrics, in v1's words
//! v2 spec.behavior                          <──> annotation …/behavior, in Go's field names
//! v2 status.currentMetrics, conditions      <──> annotations …/current-metrics, …/conditions
//! ```

use super::horizontal_pod_autoscaler as v2;
use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::object::{object_mut, set_default};
use crate::schema::definitions;
use crate::{names, printing};
use k8s_openapi::api::autoscaling::v1::HorizontalPodAutoscaler;
use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// Annotations that are made by conversion, so that no other may stand.
const ROUND_TRIP: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// How the members of a metric are called: `(type's member, [(v1, v2)])`. `$` stands for `target` in a spec and for
/// `current` in a status.
const MEMBERS: [(&str, &[(&str, &str)]); 5] = [
    (
        "object",
        &[
            ("target", "describedObject"),
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("$Value", "$.value"),
            ("averageValue", "$.averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "metric.name"),
            ("selector", "metric.selector"),
            ("$AverageValue", "$.averageValue"),
        ],
    ),
    ("resource", RESOURCE),
    ("containerResource", RESOURCE),
    (
        "external",
        &[
            ("metricName", "metric.name"),
            ("metricSelector", "metric.selector"),
            ("$Value", "$.value"),
            ("$AverageValue", "$.averageValue"),
        ],
    ),
];

const RESOURCE: &[(&str, &str)] = &[
    ("name", "name"),
    ("container", "container"),
    ("$AverageUtilization", "$.averageUtilization"),
    ("$AverageValue", "$.averageValue"),
];

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Reference", "string", |hpa, _| v2::reference_cell(hpa).into()),
            column("Targets", "string", |hpa, _| v2::targets_cell(&to_stored(hpa.clone())).into()),
            column("MinPods", "string", |hpa, _| v2::min_pods_cell(hpa).into()),
            column("MaxPods", "string", |hpa, _| printing::int(hpa, "spec.maxReplicas").into()),
            column("Replicas", "string", |hpa, _| printing::int(hpa, "status.currentReplicas").into()),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        default: |hpa| {
            object_mut(hpa, "spec");
            set_default(&mut hpa["spec"], "minReplicas", 1);
        },
        validate,
        validate_create: v2::validate_target_group,
        validate_update: |new, old, errors| {
            if v2::has_group(old) {
                v2::validate_target_group(new, errors);
            }
        },
        validate_status: v2::validate_status,
        convert: Some((from_stored, to_stored)),
        ..Kind::new::<HorizontalPodAutoscaler>().short(&["hpa"]).in_all().with_status()
    }
}

/// As upstream does, complains in the words of the stored version.
fn validate(hpa: &Field<'_>, errors: &mut Errors) {
    let stored = to_stored(hpa.value().clone());
    v2::validate(&Field::root(&stored), errors);
}

/// v2 to v1.
fn from_stored(mut hpa: Value) -> Value {
    let metrics = take_list(&mut hpa, "spec", "metrics");
    let current = take_list(&mut hpa, "status", "currentMetrics");
    let conditions = take_list(&mut hpa, "status", "conditions");
    let behavior = part_mut(&mut hpa, "spec").and_then(|spec| spec.remove("behavior"));
    drop_round_trip_annotations(&mut hpa);
    hpa["apiVersion"] = json!("autoscaling/v1");

    let utilization = |metric: &Value, place: &str| -> Option<Value> {
        let is_cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
        is_cpu.then(|| printing::at(&metric["resource"][place], "averageUtilization").cloned())?
    };
    if let Some(percent) = metrics.iter().find_map(|metric| utilization(metric, "target")) {
        object_mut(&mut hpa, "spec").insert("targetCPUUtilizationPercentage".into(), percent);
    }
    if let Some(percent) = current.iter().rev().find_map(|metric| utilization(metric, "current")) {
        object_mut(&mut hpa, "status").insert("currentCPUUtilizationPercentage".into(), percent);
    }
    let others = metrics.iter().filter(|metric| utilization(metric, "target").is_none());
    let others: Vec<Value> = others.map(|metric| metric_to_v1(metric, "target")).collect();
    // Kept whole, CPU as well: the annotation has the raw value too.
    let current: Vec<Value> = current.iter().map(|metric| metric_to_v1(metric, "current")).collect();
    annotate(&mut hpa, METRICS, others);
    annotate(&mut hpa, CURRENT_METRICS, current);
    annotate(&mut hpa, CONDITIONS, conditions);
    if let Some(behavior) = behavior.filter(Value::is_object) {
        let text = with_first_letters(&behavior, |c| c.to_ascii_uppercase()).to_string();
        object_mut(&mut hpa["metadata"], "annotations").insert(BEHAVIOR.into(), text.into());
    }
    hpa
}

/// v1 to v2. An annotation that does not hold what it should is dropped.
fn to_stored(mut hpa: Value) -> Value {
    let metrics = annotation(&hpa, METRICS, "MetricSpec", |metric| metric_to_v2(&metric, "target"));
    let current =
        annotation(&hpa, CURRENT_METRICS, "MetricStatus", |metric| metric_to_v2(&metric, "current"));
    let conditions = annotation(&hpa, CONDITIONS, "HorizontalPodAutoscalerCondition", |condition| condition);
    let behavior = read(&hpa, BEHAVIOR)
        .map(|behavior| with_first_letters(&behavior, |c| c.to_ascii_lowercase()))
        .filter(|behavior| behavior.as_object().is_some_and(|rules| !rules.is_empty()))
        .and_then(|behavior| of_type(behavior, "HorizontalPodAutoscalerBehavior"));
    drop_round_trip_annotations(&mut hpa);
    hpa["apiVersion"] = json!("autoscaling/v2");

    let spec = object_mut(&mut hpa, "spec");
    let percent = spec.remove("targetCPUUtilizationPercentage").filter(|percent| !percent.is_null());
    let mut metrics = metrics.unwrap_or_default();
    metrics.extend(percent.map(|percent| {
        json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": percent}}})
    }));
    let metrics = if metrics.is_empty() { v2::default_metrics() } else { metrics.into() };
    spec.insert("metrics".into(), metrics);
    if let Some(behavior) = behavior {
        spec.insert("behavior".into(), behavior);
    }
    let percent = part_mut(&mut hpa, "status")
        .and_then(|status| status.remove("currentCPUUtilizationPercentage"))
        .filter(|percent| !percent.is_null());
    let current = current.or_else(|| {
        let percent = percent?;
        let current = json!({"averageUtilization": percent});
        Some(vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": current}})])
    });
    for (name, items) in [("currentMetrics", current), ("conditions", conditions)] {
        if let Some(items) = items {
            object_mut(&mut hpa, "status").insert(name.into(), items.into());
        }
    }
    hpa
}

/// The JSON in an annotation.
fn read(hpa: &Value, key: &str) -> Option<Value> {
    serde_json::from_str(hpa["metadata"]["annotations"][key].as_str()?).ok()
}

/// The list in an annotation, each item converted and of the named type of v2.
fn annotation(hpa: &Value, key: &str, ty: &str, convert: fn(Value) -> Value) -> Option<Vec<Value>> {
    let Value::Array(items) = read(hpa, key)? else { return None };
    let convert = |item: Value| item.is_object().then(|| convert(item));
    items.into_iter().map(|item| of_type(convert(item)?, ty)).collect()
}

/// The value, if it is of a type of v2: what comes out of an annotation has not been checked before.
fn of_type(mut value: Value, ty: &str) -> Option<Value> {
    let schema = definitions().get(&format!("io.k8s.api.autoscaling.v2.{ty}"))?;
    value.is_object().then_some(())?;
    schema.check(&mut value).ok()?;
    Some(value)
}

fn part_mut<'a>(hpa: &'a mut Value, part: &str) -> Option<&'a mut Map<String, Value>> {
    hpa.get_mut(part).and_then(Value::as_object_mut)
}

fn take_list(hpa: &mut Value, part: &str, name: &str) -> Vec<Value> {
    match part_mut(hpa, part).and_then(|members| members.remove(name)) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn annotate(hpa: &mut Value, key: &str, items: Vec<Value>) {
    if !items.is_empty() {
        let text = Value::from(items).to_string();
        object_mut(&mut hpa["metadata"], "annotations").insert(key.into(), text.into());
    }
}

fn drop_round_trip_annotations(hpa: &mut Value) {
    object_mut(hpa, "metadata");
    let Some(metadata) = part_mut(hpa, "metadata") else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.retain(|key, _| !ROUND_TRIP.contains(&key.as_str()));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// The metric in v1's words. `place` is where v2 has the numbers: `target` in a spec, `current` in a status.
fn metric_to_v1(metric: &Value, place: &str) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (member, names) in MEMBERS.iter().filter(|(member, _)| metric.get(member).is_some()) {
        out[member] = json!({});
        for (v1, v2) in *names {
            if let Some(value) = printing::at(&metric[member], &v2.replace('$', place)) {
                out[member][v1.replace('$', place)] = value.clone();
            }
        }
    }
    out
}

/// The metric in v2's words.
fn metric_to_v2(metric: &Value, place: &str) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (member, names) in MEMBERS.iter().filter(|(member, _)| metric.get(member).is_some()) {
        out[member] = json!({});
        for (v1, v2) in *names {
            // Go writes an amount that nobody gave as "0".
            let value = metric[member].get(v1.replace('$', place)).filter(|value| !value.is_null());
            if let Some(value) = value.filter(|value| place == "current" || *value != "0") {
                set(&mut out[member], &v2.replace('$', place), value.clone());
            }
        }
        if place == "target" {
            let has = |name: &str| out[member]["target"].get(name).is_some();
            let ty = match *member {
                _ if has("averageUtilization") => "Utilization",
                _ if has("averageValue") => "AverageValue",
                "object" | "external" => "Value",
                _ => "AverageValue",
            };
            set(&mut out[member], "target.type", ty.into());
        }
    }
    out
}

/// Sets the value at a dotted path of two names at most.
fn set(object: &mut Value, path: &str, value: Value) {
    match path.split_once('.') {
        Some((parent, name)) => object_mut(object, parent).insert(name.into(), value),
        None => object.as_object_mut().and_then(|members| members.insert(path.into(), value)),
    };
}

/// The same with the first letter of every name changed; members that hold nothing are left out.
fn with_first_letters(value: &Value, change: fn(char) -> char) -> Value {
    let rename = |name: &str| {
        let mut letters = name.chars();
        letters.next().map(change).into_iter().chain(letters).collect::<String>()
    };
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (rename(name), with_first_letters(value, change)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(|item| with_first_letters(item, change)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Value {
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "annotations": {"kept": "yes"}},
            "spec": {"minReplicas": 1, "maxReplicas": 5,
                "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
                "behavior": {"scaleUp": {"selectPolicy": "Max", "policies": [
                    {"type": "Pods", "value": 4, "periodSeconds": 15}]}},
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "rps"},
                        "target": {"type": "AverageValue", "averageValue": "10"}}},
                    {"type": "Object", "object": {"metric": {"name": "queue"},
                        "describedObject": {"kind": "Service", "name": "q"},
                        "target": {"type": "Value", "value": "100"}}},
                    {"type": "External", "external": {
                        "metric": {"name": "jobs", "selector": {"matchLabels": {"a": "b"}}},
                        "target": {"type": "AverageValue", "averageValue": "3"}}},
                    {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c",
                        "target": {"type": "Utilization", "averageUtilization": 50}}},
                    {"type": "Resource", "resource": {"name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 70}}}]},
            "status": {"currentReplicas": 2, "desiredReplicas": 2,
                "conditions": [{"type": "AbleToScale", "status": "True"}],
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "current": {"averageUtilization": 20, "averageValue": "200m"}}}]}})
    }

    #[test]
    fn a_round_trip_through_v1_loses_nothing() {
        let v1 = from_stored(full());
        assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 70);
        assert_eq!(v1["status"]["currentCPUUtilizationPercentage"], 20);
        let annotations = &v1["metadata"]["annotations"];
        let metrics: Value = serde_json::from_str(annotations[METRICS].as_str().unwrap()).unwrap();
        assert_eq!(
            metrics[0],
            json!({"type": "Pods", "pods": {"metricName": "rps", "targetAverageValue": "10"}})
        );
        assert!(annotations[BEHAVIOR].as_str().unwrap().contains(r#""ScaleUp""#));
        assert_eq!(v1["spec"].get("metrics"), None);
        assert_eq!(to_stored(v1), full());
    }

    #[test]
    fn annotations_that_make_no_sense_are_dropped() {
        for text in ["", "5", "[5]", "{}", r#"[{"type": 5}]"#, r#"{"ScaleUp": 5}"#] {
            let annotations: Map<_, _> =
                ROUND_TRIP.iter().map(|&key| (key.to_owned(), text.into())).collect();
            let v1 =
                json!({"metadata": {"name": "web", "annotations": annotations}, "spec": {"maxReplicas": 3}});
            let stored = to_stored(v1);
            assert_eq!(stored["spec"]["metrics"], v2::default_metrics(), "{text}");
            assert_eq!(stored["spec"].get("behavior"), None, "{text}");
            assert_eq!(stored.get("status"), None, "{text}");
        }
    }

    #[test]
    fn what_v1_leaves_out_is_eighty_percent_of_cpu() {
        let v1 = json!({"metadata": {"name": "web"}, "spec": {"maxReplicas": 3}});
        let stored = to_stored(v1);
        assert_eq!(stored["spec"]["metrics"], v2::default_metrics());
        assert_eq!(stored["apiVersion"], "autoscaling/v2");
    }
}
