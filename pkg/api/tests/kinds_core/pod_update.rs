//! Pods: what may change, and by which door.

use super::{Change, apply, check_update, compare, defaulted, fine, kind, said};
use api::kinds::core::pod;
use api::{Field, Value};
use serde_json::json;

const UPDATABLE: &str = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

#[test]
fn little_of_a_pod_may_change() {
    let before: &[Change] = &[
        ("/spec/activeDeadlineSeconds", json!(10)),
        ("/spec/tolerations", json!([{"key": "a", "operator": "Exists"}])),
        ("/spec/hostNetwork", json!(false)),
    ];
    for (pointer, value, expected) in [
        ("/spec/containers/0/image", json!("j"), ""),
        ("/spec/containers/0/image", json!(""), "spec.containers[0].image: Required value"),
        ("/spec/containers/0/env", json!([{"name": "A"}]), UPDATABLE),
        ("/spec/containers/0/env", json!([]), ""),
        (
            "/spec/containers/1",
            json!({"name": "d", "image": "i"}),
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        ("/spec/hostNetwork", json!(null), ""),
        ("/spec/nodeName", json!("n"), UPDATABLE),
        ("/spec/terminationGracePeriodSeconds", json!(1), UPDATABLE),
        ("/spec/activeDeadlineSeconds", json!(5), ""),
        (
            "/spec/activeDeadlineSeconds",
            json!(20),
            "spec.activeDeadlineSeconds: Invalid value: 20: must be less than or equal to previous value",
        ),
        (
            "/spec/activeDeadlineSeconds",
            json!(null),
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
        ),
        ("/spec/tolerations/1", json!({"key": "b", "operator": "Exists"}), ""),
        (
            "/spec/tolerations",
            json!([]),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            "/spec/schedulingGates",
            json!([{"name": "g"}]),
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'",
        ),
        ("/spec/nodeSelector", json!({"a": "b"}), UPDATABLE),
        ("/metadata/labels", json!({"a": "b"}), ""),
        (
            "/metadata/annotations",
            json!({"kubernetes.io/config.mirror": "x"}),
            "metadata.annotations[kubernetes.io/config.mirror]",
        ),
    ] {
        let expected: Vec<&str> =
            Some(expected).filter(|expected| !expected.is_empty()).into_iter().collect();
        check_update("Pod", before, &[(pointer, value)], false, &expected);
    }
    let negative = [("/spec/terminationGracePeriodSeconds", json!(-1))];
    check_update("Pod", &negative, &[("/spec/terminationGracePeriodSeconds", json!(1))], false, &[]);
}

#[test]
fn a_gated_pod_may_choose_its_nodes_more_narrowly() {
    let before =
        [("/spec/schedulingGates", json!([{"name": "g"}])), ("/spec/nodeSelector", json!({"a": "b"}))];
    for (pointer, value, expected) in [
        ("/spec/schedulingGates", json!([]), ""),
        ("/spec/nodeSelector/c", json!("d"), ""),
        (
            "/spec/nodeSelector",
            json!({"a": "c"}),
            "spec.nodeSelector: Invalid value: {\"a\":\"c\"}: only additions to spec.nodeSelector are allowed",
        ),
        (
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
            json!([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]),
            "",
        ),
        ("/spec/hostNetwork", json!(true), UPDATABLE),
    ] {
        let expected: Vec<&str> =
            Some(expected).filter(|expected| !expected.is_empty()).into_iter().collect();
        check_update("Pod", &before, &[(pointer, value)], false, &expected);
    }
}

#[test]
fn status() {
    let ended = json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}]);
    let running = ("/status/containerStatuses/0/state", json!({"running": {}}));
    for (policy, expected) in [
        ("Always", ""),
        (
            "Never",
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
        ),
    ] {
        let before = [("/spec/restartPolicy", json!(policy)), ("/status/containerStatuses", ended.clone())];
        let expected: Vec<&str> =
            Some(expected).filter(|expected| !expected.is_empty()).into_iter().collect();
        check_update("Pod", &before, std::slice::from_ref(&running), true, &expected);
    }
    let ip = |ip: &str| json!({"ip": ip});
    for (pointer, value, expected) in [
        ("/status/podIPs", json!([ip("10.0.0.1"), ip("fd00::1")]), ""),
        ("/status/podIPs", json!([ip("10.0.0.1"), ip("10.0.0.2")]), "status.podIPs: Invalid value"),
        ("/status/podIP", json!("x"), "status.podIPs[0]: Invalid value: \"x\""),
        (
            "/status/hostIPs",
            json!([ip("10.0.0.1")]),
            "status.hostIPs[0].ip: Invalid value: \"10.0.0.1\": must be equal to `hostIP`",
        ),
        (
            "/status/qosClass",
            json!("Burstable"),
            "status.qosClass: Invalid value: \"Burstable\": field is immutable",
        ),
        ("/status/qosClass", json!(null), ""),
        ("/status/nominatedNodeName", json!("A"), "status.nominatedNodeName: Invalid value: \"A\""),
        (
            "/status/conditions",
            json!([{"type": "a b", "status": "True"}]),
            "status.conditions[0].Type: Invalid value: \"a b\"",
        ),
    ] {
        let expected: Vec<&str> =
            Some(expected).filter(|expected| !expected.is_empty()).into_iter().collect();
        check_update("Pod", &[], &[(pointer, value)], true, &expected);
    }
}

/// Goes through one of the doors that are not generic.
fn through(
    before: &[Change],
    changes: &[Change],
    prepare: fn(&mut Value, &Value),
    validate: fn(&Field<'_>, &Field<'_>, &mut api::Errors),
    expected: &[&str],
) {
    let mut old = fine("Pod");
    before.iter().for_each(|change| apply(&mut old, change));
    let mut old = defaulted(kind("Pod"), old);
    (kind("Pod").prepare)(&mut old, None);
    let mut new = old.clone();
    changes.iter().for_each(|change| apply(&mut new, change));
    let mut new = defaulted(kind("Pod"), new);
    prepare(&mut new, &old);
    let said = said(|errors| validate(&Field::root(&new), &Field::root(&old), errors));
    compare(&changes, &said, expected);
}

#[test]
fn ephemeral_containers_only_come() {
    let e = |image: &str| json!([{"name": "e", "image": image}]);
    let door = |before: &[Change], changes: &[Change], expected: &[&str]| {
        through(
            before,
            changes,
            pod::prepare_ephemeral_containers,
            pod::validate_ephemeral_containers,
            expected,
        );
    };
    let field = "/spec/ephemeralContainers";
    door(&[], &[(field, e("i")), ("/spec/nodeName", json!("ignored"))], &[]);
    door(
        &[(field, e("i"))],
        &[(field, e("j"))],
        &["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be changed"],
    );
    door(
        &[(field, e("i"))],
        &[(field, json!([]))],
        &["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed"],
    );
}

#[test]
fn resize_changes_cpu_and_memory() {
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let field = "/spec/containers/0/resources";
    let door = |changes: &[Change], expected: &[&str]| {
        through(&[(field, resources("1"))], changes, pod::prepare_resize, pod::validate_resize, expected);
    };
    door(&[(field, resources("2")), ("/spec/containers/0/image", json!("ignored"))], &[]);
    door(
        &[(field, json!({}))],
        &[
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
        ],
    );
    door(
        &[("/spec/containers/0/resources/requests/ephemeral-storage", json!("1Gi"))],
        &["spec: Forbidden: only cpu and memory resources are mutable"],
    );
    door(
        &[("/spec/containers/1", json!({"name": "d", "image": "i"}))],
        &["spec.containers: Forbidden: containers may not be added or removed on resize"],
    );
    door(
        &[("/spec/containers/0/name", json!("d"))],
        &["spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"],
    );
    door(
        &[("/spec/containers/0/resources/limits", json!({"cpu": "500m"}))],
        &[
            "spec.containers[0].resources.requests: Invalid value: \"1\": must be less than or equal to cpu limit of 500m",
        ],
    );
    let guaranteed =
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
    door(&[(field, guaranteed)], &["spec: Invalid value: \"Burstable\": Pod QOS Class may not change"]);
}

#[test]
fn not_every_pod_can_be_resized() {
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let field = "/spec/containers/0/resources";
    let door = |before: Change, expected: &str| {
        let mut old = fine("Pod");
        [(field, resources("1")), before].iter().for_each(|change| apply(&mut old, change));
        let old = defaulted(kind("Pod"), old);
        let mut new = old.clone();
        apply(&mut new, &(field, resources("2")));
        pod::prepare_resize(&mut new, &old);
        let said = said(|errors| pod::validate_resize(&Field::root(&new), &Field::root(&old), errors));
        match expected {
            "" => assert!(said.is_empty(), "{said:?}"),
            _ => assert!(said.len() == 1 && said[0].ends_with(expected), "{said:?}"),
        }
    };
    let status = |status: Value| ("/status/containerStatuses", json!([status]));
    let running = json!({"running": {}});
    door(status(json!({"name": "c", "state": running, "resources": {}})), "");
    door(status(json!({"name": "c", "state": {"waiting": {}}})), "");
    door(
        status(json!({"name": "c", "state": running})),
        "Forbidden: Pod running on node without support for resize",
    );
    door(("/spec/os", json!({"name": "windows"})), "windows pods cannot be resized");
    door(
        ("/spec/resources", json!({"requests": {"cpu": "4"}})),
        "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled",
    );
}
