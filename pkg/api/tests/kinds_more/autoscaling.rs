//! autoscaling, both versions.

use super::*;

fn autoscaler(version: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
        "metadata": metadata("web"), "spec": spec});
    object["spec"]["scaleTargetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    object["spec"]["maxReplicas"] = json!(5);
    created(object)
}

#[test]
fn what_is_left_out_is_filled_in() {
    let hpa = autoscaler("v2", json!({"behavior": {"scaleDown": {"policies": []}}}));
    assert_eq!(hpa["spec"]["minReplicas"], 1);
    let target = json!({"type": "Utilization", "averageUtilization": 80});
    assert_eq!(
        hpa["spec"]["metrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}])
    );
    assert_eq!(
        hpa["spec"]["behavior"],
        json!({"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15}]},
            "scaleDown": {"selectPolicy": "Max", "policies": []}})
    );
    assert_eq!(autoscaler("v1", json!({}))["spec"]["minReplicas"], 1);
}

#[test]
fn bad_autoscalers_say_why() {
    let hpa = autoscaler("v2", json!({"behavior": {}}));
    let metric = |metric: Value| json!([metric]);
    let target = "spec.metrics[0].resource.target";
    check_invalid(
        &hpa,
        &[
            (
                "/spec/minReplicas",
                json!(0),
                "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
            ),
            ("/spec/maxReplicas", json!(0), "spec.maxReplicas: Invalid value: 0: must be greater than 0"),
            (
                "/spec/minReplicas",
                json!(9),
                "spec.maxReplicas: Invalid value: 5: must be greater than or equal to `minReplicas`",
            ),
            ("/spec/scaleTargetRef/kind", json!(""), "spec.scaleTargetRef.kind: Required value"),
            (
                "/spec/scaleTargetRef/name",
                json!("a/b"),
                "spec.scaleTargetRef.name: Invalid value: \"a/b\": may not contain '/'",
            ),
            (
                "/spec/scaleTargetRef/apiVersion",
                json!("a/b/c"),
                "spec.scaleTargetRef.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            ),
            (
                "/spec/metrics/0/type",
                json!(""),
                "spec.metrics[0].type: Required value: must specify a metric source type",
            ),
            (
                "/spec/metrics/0/type",
                json!("X"),
                "spec.metrics[0].type: Unsupported value: \"X\": supported values: \"ContainerResource\", \"External\"",
            ),
            (
                "/spec/metrics/0/type",
                json!("Pods"),
                "spec.metrics[0].pods: Required value: must populate information for the given metric source",
            ),
            (
                "/spec/metrics/0/pods",
                json!({"metric": {"name": "a"}, "target": {"type": "AverageValue", "averageValue": "1"}}),
                "spec.metrics[0].pods: Forbidden: must populate the given metric source only",
            ),
            (
                "/spec/metrics/0/resource/name",
                json!(""),
                "spec.metrics[0].resource.name: Required value: must specify a resource name",
            ),
            (
                "/spec/metrics/0/resource/target/type",
                json!("X"),
                &format!(
                    "{target}.type: Invalid value: \"X\": must be either Utilization, Value, or AverageValue"
                ),
            ),
            (
                "/spec/metrics/0/resource/target/averageUtilization",
                json!(0),
                &format!("{target}.averageUtilization: Invalid value: 0: must be greater than 0"),
            ),
            (
                "/spec/metrics/0/resource/target/averageUtilization",
                json!(null),
                &format!(
                    "{target}.averageUtilization: Required value: must set either a target raw value or a target utilization"
                ),
            ),
            (
                "/spec/metrics/0/resource/target/averageValue",
                json!("-1"),
                &format!("{target}.averageValue: Invalid value: \"-1\": must be positive"),
            ),
            (
                "/spec/metrics",
                metric(
                    json!({"type": "External", "external": {"metric": {"name": ""}, "target": {"type": "Value", "value": "1"}}}),
                ),
                "spec.metrics[0].external.metric.name: Required value: must specify a metric name",
            ),
            (
                "/spec/metrics",
                metric(
                    json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5}}}),
                ),
                "spec.metrics[0].containerResource.container: Required value: must specify a container",
            ),
            (
                "/spec/behavior/scaleUp/policies",
                json!([]),
                "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
            ),
            (
                "/spec/behavior/scaleUp/policies/0/type",
                json!("X"),
                "spec.behavior.scaleUp.policies[0].type: Unsupported value",
            ),
            (
                "/spec/behavior/scaleUp/policies/0/value",
                json!(0),
                "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
            ),
            (
                "/spec/behavior/scaleUp/policies/0/periodSeconds",
                json!(1801),
                "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
            ),
            (
                "/spec/behavior/scaleUp/selectPolicy",
                json!("X"),
                "spec.behavior.scaleUp.selectPolicy: Unsupported value",
            ),
            (
                "/spec/behavior/scaleUp/stabilizationWindowSeconds",
                json!(3601),
                "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
            ),
        ],
    );
    check_status(
        &hpa,
        &[("/status", json!({"currentReplicas": -1}), "status.currentReplicas: Invalid value: -1")],
    );
    check_invalid(
        &autoscaler("v1", json!({"targetCPUUtilizationPercentage": 50})),
        &[(
            "/spec/targetCPUUtilizationPercentage",
            json!(0),
            "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0",
        )],
    );
}

#[test]
fn both_versions_show_the_same() {
    let metrics = json!([
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
        {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
        {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "7"}}}]);
    let hpa = autoscaler("v2", json!({"metrics": metrics}));
    let current =
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 20}}}]);
    let hpa = with(&hpa, "/status", json!({"currentReplicas": 2, "currentMetrics": current}));
    let shown = "Name=web | Reference=Deployment/web | Targets=cpu: 20%/50%, <unknown>/10 + 1 more... | MinPods=1 | MaxPods=5 | Replicas=2 | Age=5m";
    assert_eq!(row(&hpa), shown);
    let (from_stored, _) = kind_of(&autoscaler("v1", json!({}))).convert.expect("another version");
    // The annotation has CPU's target last, so its cell moves.
    let v1 = from_stored(hpa);
    assert!(row(&v1).contains("Targets=<unknown>/10, <unknown>/7 + 1 more..."), "{}", row(&v1));
}
