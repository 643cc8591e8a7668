//! What `kubectl get -o wide` shows.

use super::row;
use serde_json::{Value, json};

fn object(rest: Value) -> Value {
    let mut object = json!({"metadata": {"name": "x", "creationTimestamp": "2024-01-01T00:00:00Z"}});
    object.as_object_mut().expect("an object").extend(rest.as_object().expect("an object").clone());
    object
}

fn check(kind: &str, rest: Value, cells: &[&str]) {
    assert_eq!(row(kind, &object(rest)), cells, "{kind}");
}

#[test]
fn rows_read_as_upstreams() {
    check("Namespace", json!({"status": {"phase": "Active"}}), &["x", "Active", "60m"]);
    check("ConfigMap", json!({"data": {"a": "b"}, "binaryData": {"c": ""}}), &["x", "2", "60m"]);
    check("Secret", json!({"type": "Opaque", "data": {"a": "b"}}), &["x", "Opaque", "1", "60m"]);
    check("ServiceAccount", json!({}), &["x", "60m"]);
    let addresses: Vec<Value> = (1..6).map(|n| json!({"ip": format!("10.0.0.{n}")})).collect();
    let subsets = json!({"subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]});
    check("Endpoints", subsets, &["x", "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more...", "60m"]);
    check("Endpoints", json!({}), &["x", "<none>", "60m"]);
    let event = json!({"type": "Normal", "reason": "R", "message": " m ", "count": 3,
        "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet", "host": "n"},
        "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:59:55Z"});
    check("Event", event, &["5s", "Normal", "R", "pod/p", "", "kubelet, n", "m", "60m", "3", "x"]);
    let quota = json!({"status": {"hard": {"limits.cpu": "2", "pods": "10"}, "used": {"pods": "3"}}});
    check("ResourceQuota", quota, &["x", "pods: 3/10", "limits.cpu: 0/2", "60m"]);
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [
        {"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}});
    check("PodTemplate", json!({"template": template}), &["x", "c,d", "i,j", "app=a"]);
    let controller = json!({"spec": {"replicas": 3, "selector": {"app": "a"}, "template": template},
        "status": {"replicas": 2, "readyReplicas": 1}});
    check("ReplicationController", controller, &["x", "3", "2", "1", "60m", "c,d", "i,j", "app=a"]);
}

#[test]
fn nodes() {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let mut node = object(json!({"spec": {"unschedulable": true}, "status": {"conditions": ready,
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "nodeInfo": {"kubeletVersion": "v1.35.0"}}}));
    node["metadata"]["labels"] =
        json!({"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": ""});
    let status = "Ready,SchedulingDisabled";
    let expected = [
        "x",
        status,
        "control-plane,worker",
        "60m",
        "v1.35.0",
        "10.0.0.1",
        "<none>",
        "<unknown>",
        "<unknown>",
        "<unknown>",
    ];
    assert_eq!(row("Node", &node), expected);
}

#[test]
fn volumes() {
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "ns", "name": "c"}, "storageClassName": "s",
        "volumeMode": "Filesystem"});
    let volume = json!({"spec": spec, "status": {"phase": "Bound"}});
    check(
        "PersistentVolume",
        volume,
        &["x", "1Gi", "RWO,RWX", "Retain", "Bound", "ns/c", "s", "<unset>", "", "60m", "Filesystem"],
    );
    let claim = json!({"spec": {"volumeName": "v"}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}});
    check(
        "PersistentVolumeClaim",
        claim,
        &["x", "Bound", "v", "1Gi", "RWO", "", "<unset>", "60m", "<unset>"],
    );
    check(
        "PersistentVolumeClaim",
        json!({"status": {"phase": "Pending"}}),
        &["x", "Pending", "", "", "", "", "<unset>", "60m", "<unset>"],
    );
}

#[test]
fn pods() {
    let check = |pod: Value, expected: [&str; 3]| {
        let pod = object(pod);
        assert_eq!(row("Pod", &pod)[1..4], expected, "{pod}");
    };
    let spec = json!({"containers": [{"name": "c"}, {"name": "d"}]});
    let running =
        |ready: bool| json!({"name": "c", "ready": ready, "restartCount": 0, "state": {"running": {}}});
    let ended = |code: i64, reason: &str| {
        json!({"name": "d", "restartCount": 1,
        "state": {"terminated": {"exitCode": code, "reason": reason}},
        "lastState": {"terminated": {"finishedAt": "2024-01-01T00:59:00Z"}}})
    };
    let status = |statuses: Value| {
        json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": statuses,
        "conditions": [{"type": "Ready", "status": "True"}]}})
    };
    check(json!({"spec": spec, "status": {"phase": "Pending"}}), ["0/2", "Pending", "0"]);
    check(status(json!([running(true), running(true)])), ["2/2", "Running", "0"]);
    check(status(json!([running(true), ended(0, "Completed")])), ["1/2", "Running", "1 (60s ago)"]);
    check(status(json!([running(true), ended(1, "Error")])), ["1/2", "Error", "1 (60s ago)"]);
    check(status(json!([running(true), ended(3, "")])), ["1/2", "ExitCode:3", "1 (60s ago)"]);
    let waiting =
        json!([{"name": "c", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
    check(status(waiting), ["0/2", "CrashLoopBackOff", "4"]);
    let with_init = |init: Value, status: Value| {
        json!({"spec": {"initContainers": init, "containers": [{"name": "c"}]},
        "status": {"phase": "Pending", "initContainerStatuses": status}})
    };
    let plain = json!([{"name": "i"}, {"name": "j"}]);
    let state = |state: Value| json!([{"name": "i", "restartCount": 0, "state": state}]);
    check(with_init(plain.clone(), state(json!({"running": {}}))), ["0/1", "Init:0/2", "0"]);
    check(
        with_init(plain.clone(), state(json!({"waiting": {"reason": "ImagePullBackOff"}}))),
        ["0/1", "Init:ImagePullBackOff", "0"],
    );
    check(with_init(plain, state(json!({"terminated": {"exitCode": 2}}))), ["0/1", "Init:ExitCode:2", "0"]);
    let sidecar = json!([{"name": "i", "restartPolicy": "Always"}]);
    let started =
        json!([{"name": "i", "restartCount": 2, "started": true, "ready": true, "state": {"running": {}}}]);
    check(with_init(sidecar, started), ["1/2", "Pending", "2"]);
    let gated = json!({"spec": spec, "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}});
    check(gated, ["0/2", "SchedulingGated", "0"]);
    let mut leaving = status(json!([running(true)]));
    leaving["metadata"] = json!({"name": "x", "deletionTimestamp": "2024-01-01T00:00:00Z"});
    assert_eq!(row("Pod", &leaving)[2], "Terminating");
    let mut wide = object(json!({"spec": {"nodeName": "n", "readinessGates": [{"conditionType": "g"}]}}));
    wide["status"] = json!({"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "g", "status": "True"}]});
    assert_eq!(row("Pod", &wide)[5..], ["10.0.0.1", "n", "<none>", "1/1"]);
}
