//! Autoscalers that cannot work: they count in percent of what containers request, and these request nothing.

use crate::connection::Connection;
use crate::resources::{Catalogue, Resource};
use crate::select::name_of;
use serde_json::Value;

/// Says so of those that were applied, when all of what they are about has been applied too.
pub async fn warn(connection: &Connection, catalogue: &Catalogue, applied: &[(Resource, Value)]) {
    for (_, autoscaler) in applied.iter().filter(|(resource, _)| resource.kind == "HorizontalPodAutoscaler") {
        let target = &autoscaler["spec"]["scaleTargetRef"];
        let text = |field: &str| target[field].as_str().unwrap_or_default();
        let namespace = autoscaler["metadata"]["namespace"].as_str();
        let Some(resource) = catalogue.of(text("apiVersion"), text("kind")) else { continue };
        // What cannot be looked at is nothing to complain of.
        let path = format!("{}/{}", resource.path(namespace), text("name"));
        let Ok(workload) = connection.get(&path).await else { continue };
        let ranges = format!("/api/v1/namespaces/{}/limitranges?limit=1", namespace.unwrap_or_default());
        let ranges = connection.get(&ranges).await.unwrap_or_default();
        if ranges["items"].as_array().is_some_and(|ranges| !ranges.is_empty()) {
            continue;
        }
        for (container, requests) in missing(autoscaler, &workload) {
            eprintln!(
                "Warning: autoscaler {:?} counts in percent of requests, and container {container:?} of {} requests no {}: \
                 it will show <unknown> and not scale. For example: kubectl set resources {} --requests={}",
                name_of(autoscaler),
                resource.named(text("name")),
                requests.join(" and no "),
                resource.named(text("name")),
                requests.iter().map(|name| format!("{name}={}", usual(name))).collect::<Vec<_>>().join(","),
            );
        }
    }
}

fn usual(resource: &str) -> &'static str {
    if resource == "cpu" { "100m" } else { "100Mi" }
}

/// What containers would have to request, by container.
fn missing(autoscaler: &Value, workload: &Value) -> Vec<(String, Vec<String>)> {
    let spec = &autoscaler["spec"];
    let metrics = spec["metrics"].as_array().into_iter().flatten();
    let of_all = metrics.filter_map(|metric| metric.get("resource"));
    let mut counted: Vec<&str> = of_all
        .filter(|resource| resource["target"]["type"] == "Utilization")
        .filter_map(|resource| resource["name"].as_str())
        .collect();
    if spec["targetCPUUtilizationPercentage"].is_number() {
        counted.push("cpu");
    }
    let containers = workload.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    let lacks = |container: &Value| {
        let has = |name: &str| {
            ["requests", "limits"].iter().any(|list| !container["resources"][*list][name].is_null())
        };
        let lacking = counted.iter().filter(|name| !has(name)).map(|name| (*name).to_owned()).collect();
        (name_of_container(container), lacking)
    };
    let found = containers.into_iter().flatten().map(lacks);
    found.filter(|(_, lacking): &(String, Vec<String>)| !lacking.is_empty()).collect()
}

fn name_of_container(container: &Value) -> String {
    container["name"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn containers_that_request_nothing_are_found() {
        let metric = |name: &str, ty: &str| json!({"type": "Resource", "resource": {"name": name, "target": {"type": ty}}});
        let workload = |resources: Value| {
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "a", "resources": resources}, {"name": "b", "resources": {"limits": {"cpu": 1, "memory": 1}}}]}}}})
        };
        let check = |spec: Value, resources: Value, expected: &[&str]| {
            let found = missing(&json!({"spec": spec}), &workload(resources));
            let found: Vec<String> =
                found.into_iter().map(|(name, lacks)| format!("{name}: {}", lacks.join(" "))).collect();
            assert_eq!(found, expected);
        };
        let both = json!({"metrics": [metric("cpu", "Utilization"), metric("memory", "Utilization")]});
        check(both.clone(), json!({}), &["a: cpu memory"]);
        check(both, json!({"requests": {"cpu": "1"}}), &["a: memory"]);
        check(json!({"metrics": [metric("cpu", "AverageValue")]}), json!({}), &[]);
        check(json!({"targetCPUUtilizationPercentage": 50}), Value::Null, &["a: cpu"]);
    }
}
