//! Kinds other than pods.

use super::{check, check_all, check_update, defaulted, fine, kind};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

#[test]
fn namespaces_carry_their_name_and_finalizer() {
    let kind = kind("Namespace");
    let mut namespace = defaulted(kind, fine("Namespace"));
    (kind.prepare)(&mut namespace, None);
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "x");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(namespace["status"], json!({"phase": "Active"}));
    check_all(
        "Namespace",
        vec![
            ("/metadata/name", json!("a.b"), "metadata.name: Invalid value: \"a.b\": must not contain dots"),
            (
                "/spec/finalizers",
                json!(["x"]),
                "spec.finalizers: Invalid value: \"x\": name is neither a standard",
            ),
        ],
    );
    let phase = ("/status/phase", json!("Terminating"));
    let expected =
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty";
    check_update("Namespace", &[], &[phase], true, &[expected]);
}

#[test]
fn nodes() {
    let mut node = fine("Node");
    node["spec"] = json!({"podCIDR": "10.0.0.0/24"});
    node["status"] = json!({"capacity": {"cpu": 2}});
    let node = defaulted(kind("Node"), node);
    assert_eq!(node["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "2"}));
    let taint = |effect: &str| json!({"key": "k", "value": "v", "effect": effect});
    check_all(
        "Node",
        vec![
            ("/spec/taints", json!([taint("NoSchedule"), taint("NoExecute")]), ""),
            ("/spec/taints", json!([taint("X")]), "metadata.taints[0].effect: Unsupported value: \"X\""),
            (
                "/spec/taints",
                json!([taint("NoSchedule"), taint("NoSchedule")]),
                "metadata.taints[1]: Duplicate value",
            ),
            (
                "/spec/podCIDRs",
                json!(["10.0.0.0"]),
                "spec.podCIDRs[0]: Invalid value: \"10.0.0.0\": must be a valid CIDR",
            ),
            ("/spec/podCIDRs", json!(["10.0.0.0/24", "10.0.1.0/24"]), "spec.podCIDRs: Invalid value"),
            (
                "/status/capacity",
                json!({"cpu": "-1"}),
                "status.capacity.cpu: Invalid value: \"-1\": must be greater && status.allocatable.cpu: Invalid value",
            ),
            (
                "/status/capacity",
                json!({"pods": "1500m"}),
                "status.capacity.pods: Invalid value: \"1500m\": must be an integer && status.allocatable.pods",
            ),
        ],
    );
    let before = [("/spec/providerID", json!("a")), ("/spec/podCIDRs", json!(["10.0.0.0/24"]))];
    for (pointer, value, expected) in [
        (
            "/spec/providerID",
            json!("b"),
            "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
        ),
        (
            "/spec/podCIDR",
            json!("10.0.1.0/24"),
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
        ),
    ] {
        check_update("Node", &before, &[(pointer, value)], false, &[expected]);
    }
}

#[test]
fn config_maps_and_secrets() {
    let large = "a".repeat(1024 * 1024 + 1);
    check_all(
        "ConfigMap",
        vec![
            ("/data", json!({"a b": ""}), "data[a b]: Invalid value: \"a b\": a valid config key"),
            ("/binaryData", json!({"..": ""}), "binaryData[..]: Invalid value: \"..\": must not be '..'"),
            ("/data", json!({"a": large}), "<nil>: Too long: may not be more than 1048576 bytes"),
        ],
    );
    let both = [("/data", json!({"a": ""})), ("/binaryData", json!({"a": ""}))];
    check("ConfigMap", &both, &["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"]);
    for name in ["ConfigMap", "Secret"] {
        let frozen = [("/immutable", json!(true)), ("/data", json!({"a": "YQ=="}))];
        let change = |pointer, value, expected: &str| {
            check_update(name, &frozen, &[(pointer, value)], false, &[expected])
        };
        change(
            "/immutable",
            json!(false),
            "immutable: Forbidden: field is immutable when `immutable` is set",
        );
        change("/data", json!({"a": "Yg=="}), "data: Forbidden: field is immutable when `immutable` is set");
    }
    let mut secret = fine("Secret");
    secret["stringData"] = json!({"a": "b"});
    let secret = defaulted(kind("Secret"), secret);
    assert_eq!((&secret["type"], &secret["data"]), (&json!("Opaque"), &json!({"a": "Yg=="})));
    assert_eq!(secret.get("stringData"), None);
    check_all(
        "Secret",
        vec![
            (
                "/type",
                json!("kubernetes.io/tls"),
                "data[tls.crt]: Required value && data[tls.key]: Required value",
            ),
            (
                "/type",
                json!("kubernetes.io/basic-auth"),
                "data[username]: Required value && data[password]: Required value",
            ),
            ("/type", json!("kubernetes.io/ssh-auth"), "data[ssh-privatekey]: Required value"),
            ("/type", json!("kubernetes.io/dockerconfigjson"), "data[.dockerconfigjson]: Required value"),
            (
                "/type",
                json!("kubernetes.io/service-account-token"),
                "metadata.annotations[kubernetes.io/service-account.name]: Required value",
            ),
            (
                "/data",
                json!({"a": STANDARD.encode(vec![0; 1024 * 1024 + 1])}),
                "data: Too long: may not be more than 1048576 bytes",
            ),
        ],
    );
    let broken = [("/type", json!("kubernetes.io/dockercfg")), ("/data", json!({".dockercfg": "YQ=="}))];
    check("Secret", &broken, &["data[.dockercfg]: Invalid value: \"<secret contents redacted>\": "]);
    check_update(
        "Secret",
        &[],
        &[("/type", json!("x"))],
        false,
        &["type: Invalid value: \"x\": field is immutable"],
    );
}

#[test]
fn endpoints() {
    let ports = |ports: Value| json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": ports}]);
    let address = |ip: &str| json!([{"addresses": [{"ip": ip}], "ports": [{"port": 1}]}]);
    check_all(
        "Endpoints",
        vec![
            (
                "/subsets",
                json!([{"ports": [{"port": 1}]}]),
                "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
            ),
            ("/subsets", address("x"), "subsets[0].addresses[0].ip: Invalid value: \"x\""),
            (
                "/subsets",
                address("127.0.0.1"),
                "subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loopback range",
            ),
            (
                "/subsets",
                address("fe80::1"),
                "subsets[0].addresses[0].ip: Invalid value: \"fe80::1\": may not be in the link-local range",
            ),
            (
                "/subsets",
                ports(json!([{"port": 0}])),
                "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ),
            (
                "/subsets",
                ports(json!([{"port": 1, "name": "a"}, {"port": 2}])),
                "subsets[0].ports[1].name: Required value",
            ),
            (
                "/subsets",
                ports(json!([{"port": 1, "protocol": "X"}])),
                "subsets[0].ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ),
        ],
    );
}

#[test]
fn events() {
    check(
        "Event",
        &[("/metadata/name", json!("a/b"))],
        &["metadata.name: Invalid value: \"a/b\": may not contain '/'"],
    );
    check("Event", &[("/metadata/name", json!("X.17"))], &[]);
    check_all(
        "Event",
        vec![
            (
                "/involvedObject/namespace",
                json!("other"),
                "involvedObject.namespace: Invalid value: \"other\": does not match event.namespace",
            ),
            (
                "/eventTime",
                json!("2024-01-01T00:00:00.000000Z"),
                "reportingComponent: && reportingInstance: Required value && action: Required value && reason: Required value",
            ),
        ],
    );
}

#[test]
fn volumes_and_claims() {
    let mut volume = fine("PersistentVolume");
    volume["status"] = json!({});
    let volume = defaulted(kind("PersistentVolume"), volume);
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    assert_eq!(volume["spec"]["volumeMode"], "Filesystem");
    assert_eq!(volume["spec"]["hostPath"]["type"], "");
    check_all(
        "PersistentVolume",
        vec![
            ("/spec/accessModes", json!([]), "spec.accessModes: Required value"),
            ("/spec/accessModes", json!(["X"]), "spec.accessModes: Unsupported value: \"X\""),
            (
                "/spec/accessModes",
                json!(["ReadWriteOnce", "ReadWriteOncePod"]),
                "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
            ),
            (
                "/spec/capacity",
                json!({}),
                "spec.capacity: Required value && spec.capacity: Unsupported value",
            ),
            (
                "/spec/capacity/storage",
                json!("0"),
                "spec.capacity[storage]: Invalid value: \"0\": must be greater than zero",
            ),
            (
                "/spec/persistentVolumeReclaimPolicy",
                json!("X"),
                "spec.persistentVolumeReclaimPolicy: Unsupported value: \"X\": supported values: \"Delete\", \"Recycle\", \"Retain\"",
            ),
            ("/spec/hostPath", json!(null), "spec: Required value: must specify a volume type"),
            (
                "/spec/nfs",
                json!({"server": "s", "path": "/p"}),
                "spec.nfs: Forbidden: may not specify more than 1 volume type",
            ),
            (
                "/spec/nodeAffinity",
                json!({}),
                "spec.nodeAffinity.required: Required value: must specify required node constraints",
            ),
            ("/spec/volumeMode", json!("X"), "spec.volumeMode: Unsupported value: \"X\""),
        ],
    );
    let local = [("/spec/hostPath", json!(null)), ("/spec/local", json!({"path": "/d"}))];
    check(
        "PersistentVolume",
        &local,
        &["spec.nodeAffinity: Required value: Local volume requires node affinity"],
    );
    let csi = [("/spec/hostPath", json!(null)), ("/spec/csi", json!({"driver": "d!", "volumeHandle": ""}))];
    check(
        "PersistentVolume",
        &csi,
        &["spec.csi.driver: Invalid value: \"d!\"", "spec.csi.volumeHandle: Required value"],
    );
    for (pointer, value, expected) in [
        (
            "/spec/hostPath/path",
            json!("/other"),
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation",
        ),
        ("/spec/volumeMode", json!("Block"), "volumeMode: Invalid value: \"Block\": field is immutable"),
    ] {
        check_update("PersistentVolume", &[], &[(pointer, value)], false, &[expected]);
    }
    check_all(
        "PersistentVolumeClaim",
        vec![
            (
                "/spec/accessModes",
                json!([]),
                "spec.accessModes: Required value: at least 1 access mode is required",
            ),
            ("/spec/resources", json!({}), "spec.resources[storage]: Required value"),
            (
                "/spec/resources/requests/storage",
                json!("0"),
                "spec.resources[storage]: Invalid value: \"0\": must be greater than zero",
            ),
            ("/spec/storageClassName", json!("A"), "spec.storageClassName: Invalid value: \"A\""),
            (
                "/spec/dataSource",
                json!({"kind": "X", "name": "x"}),
                "spec.dataSource: Invalid value: \"X\": must be 'PersistentVolumeClaim' && spec.dataSourceRef: Invalid value",
            ),
            (
                "/spec/selector",
                json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "spec.selector.matchExpressions[0].values: Required value",
            ),
        ],
    );
    let claims = kind("PersistentVolumeClaim");
    let mut claim = fine("PersistentVolumeClaim");
    claim["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "y"});
    let mut claim = defaulted(claims, claim);
    (claims.prepare)(&mut claim, None);
    assert_eq!(claim["spec"]["dataSourceRef"], claim["spec"]["dataSource"]);
    let size = || ("/spec/resources/requests/storage", json!("2Gi"));
    let bound = [("/status/phase", json!("Bound")), ("/spec/volumeName", json!("v"))];
    check_update("PersistentVolumeClaim", &bound, &[size()], false, &[]);
    check_update(
        "PersistentVolumeClaim",
        &[],
        &[size()],
        false,
        &["spec: Forbidden: spec is immutable after creation except resources.requests"],
    );
    check_update("PersistentVolumeClaim", &[], &[("/spec/volumeName", json!("v"))], false, &[]);
    check_update(
        "PersistentVolumeClaim",
        &bound,
        &[("/spec/volumeName", json!("w"))],
        false,
        &["spec: Forbidden"],
    );
    let shrunk = [("/spec/resources/requests/storage", json!("1Mi"))];
    let held = [("/status/phase", json!("Bound")), ("/status/capacity", json!({"storage": "1Gi"}))];
    check_update(
        "PersistentVolumeClaim",
        &held,
        &shrunk,
        false,
        &["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"],
    );
}

#[test]
fn limits_and_quotas() {
    let range = defaulted(kind("LimitRange"), fine("LimitRange"));
    assert_eq!(range["spec"]["limits"][0]["default"], json!({"cpu": "2"}));
    assert_eq!(range["spec"]["limits"][0]["defaultRequest"], json!({"cpu": "2"}));
    let limit = |limit: Value| json!([limit]);
    check_all(
        "LimitRange",
        vec![
            (
                "/spec/limits/0/min/cpu",
                json!("3"),
                "spec.limits[0].min[cpu]: Invalid value: \"3\": min value 3 is greater than max value 2 && spec.limits[0].defaultRequest[cpu] && spec.limits[0].default[cpu]",
            ),
            (
                "/spec/limits/0/type",
                json!("X"),
                "spec.limits[0].type: Invalid value: \"X\": must be a standard limit type or fully qualified",
            ),
            (
                "/spec/limits/0/max",
                json!({"pods": "1"}),
                "spec.limits[0].max[pods]: Invalid value: \"pods\": must be a standard resource for containers && spec.limits[0].default",
            ),
            (
                "/spec/limits",
                limit(json!({"type": "Pod", "default": {"cpu": "1"}})),
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
            ),
            (
                "/spec/limits",
                limit(json!({"type": "PersistentVolumeClaim"})),
                "spec.limits[0].limits: Required value: either minimum or maximum storage value",
            ),
            (
                "/spec/limits",
                limit(json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}})),
                "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
            ),
        ],
    );
    check_all(
        "ResourceQuota",
        vec![
            (
                "/spec/hard",
                json!({"x": "1"}),
                "spec.hard[x]: Invalid value: \"x\": must be a standard resource",
            ),
            (
                "/spec/hard",
                json!({"pods": "1500m"}),
                "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
            ),
            ("/spec/hard", json!({"count/deployments.apps": "1", "requests.nvidia.com/gpu": "4"}), ""),
            ("/spec/scopes", json!(["X"]), "spec.scopes: Invalid value"),
            (
                "/spec/scopes",
                json!(["BestEffort", "NotBestEffort"]),
                "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes",
            ),
            (
                "/spec/scopeSelector",
                json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}),
                "spec.scopeSelector.matchExpressions.values: Required value",
            ),
        ],
    );
    check_update(
        "ResourceQuota",
        &[],
        &[("/spec/scopes", json!(["BestEffort"]))],
        false,
        &["spec.scopes: Invalid value: [\"BestEffort\"]: field is immutable"],
    );
}

#[test]
fn replication_controllers_and_templates() {
    let controller = defaulted(kind("ReplicationController"), fine("ReplicationController"));
    assert_eq!(controller["spec"]["replicas"], 1);
    assert_eq!(controller["spec"]["selector"], json!({"app": "a"}));
    assert_eq!(controller["metadata"]["labels"], json!({"app": "a"}));
    check_all(
        "ReplicationController",
        vec![
            (
                "/spec/replicas",
                json!(-1),
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            ("/spec/minReadySeconds", json!(-1), "spec.minReadySeconds: Invalid value: -1"),
            (
                "/spec/selector",
                json!({"app": "b"}),
                "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
            ),
            ("/spec/template", json!(null), "spec.selector: Required value && spec.template: Required value"),
            (
                "/spec/template/spec/restartPolicy",
                json!("Never"),
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ),
            (
                "/spec/template/metadata/annotations",
                json!({"a b": ""}),
                "spec.template.annotations: Invalid value: \"a b\"",
            ),
        ],
    );
    let ready = [("/status/readyReplicas", json!(2)), ("/status/replicas", json!(1))];
    check_update(
        "ReplicationController",
        &[],
        &ready,
        true,
        &["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"],
    );
    check_all(
        "PodTemplate",
        vec![("/template/spec/containers", json!([]), "template.spec.containers: Required value")],
    );
}

#[test]
fn bindings() {
    check_all(
        "Binding",
        vec![
            (
                "/target/kind",
                json!("Pod"),
                "target.kind: Unsupported value: \"Pod\": supported values: \"<empty>\", \"Node\"",
            ),
            ("/target/name", json!(""), "target.name: Required value"),
        ],
    );
}
