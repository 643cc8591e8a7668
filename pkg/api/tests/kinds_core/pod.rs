//! Pods: what is filled in and what is refused.

use super::{Change, check, check_all, defaulted, fine, kind};
use serde_json::{Value, json};

#[test]
fn what_is_left_out_is_filled_in() {
    let mut pod = fine("Pod");
    pod["spec"] = json!({
        "hostNetwork": true,
        "serviceAccount": "sa",
        "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "s"}},
            {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {"name": "h", "hostPath": {"path": "/h"}}],
        "containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": 0.5, "memory": "1.5Gi"}, "requests": {"cpu": "0.1u"}},
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"port": 80}}}],
    });
    let pod = defaulted(kind("Pod"), pod);
    let expected = json!({
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": true,
        "hostNetwork": true,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": "sa",
        "serviceAccountName": "sa",
        "terminationGracePeriodSeconds": 30,
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "s", "defaultMode": 420}},
            {"name": "t", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}},
            {"name": "h", "hostPath": {"path": "/h", "type": ""}}],
        "containers": [{"name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent",
            "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "1536Mi"}, "requests": {"cpu": "1m", "memory": "1536Mi"}},
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
    });
    assert_eq!(pod["spec"], expected);
    let mut prepared = pod.clone();
    (kind("Pod").prepare)(&mut prepared, None);
    assert_eq!(prepared["status"], json!({"phase": "Pending", "qosClass": "Burstable"}));
}

#[test]
fn less_than_no_time_to_end_is_a_second() {
    let mut pod = fine("Pod");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(-1);
    assert_eq!(defaulted(kind("Pod"), pod)["spec"]["terminationGracePeriodSeconds"], 1);
    let mut template = fine("PodTemplate");
    template["template"]["spec"]["terminationGracePeriodSeconds"] = json!(-1);
    let template = &defaulted(kind("PodTemplate"), template)["template"];
    assert_eq!(template["spec"]["terminationGracePeriodSeconds"], -1, "as it was written");
}

#[test]
fn label_keys_become_requirements() {
    let kind = kind("Pod");
    let mut pod = fine("Pod");
    pod["metadata"]["labels"] = json!({"app": "a"});
    pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}, "matchLabelKeys": ["app", "missing"]}]);
    let mut pod = defaulted(kind, pod);
    (kind.prepare)(&mut pod, None);
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]});
    assert_eq!(pod["spec"]["topologySpreadConstraints"][0]["labelSelector"], selector);
}

#[test]
fn containers() {
    let c = |name: &str| json!({"name": name, "image": "i"});
    check_all(
        "Pod",
        vec![
            ("/spec/containers", json!([]), "spec.containers: Required value"),
            ("/spec/containers/0/name", json!(""), "spec.containers[0].name: Required value"),
            (
                "/spec/containers/0/name",
                json!("A"),
                "spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label",
            ),
            ("/spec/containers/0/image", json!(""), "spec.containers[0].image: Required value"),
            (
                "/spec/containers/0/image",
                json!(" i"),
                "spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
            ),
            ("/spec/containers", json!([c("c"), c("c")]), "spec.containers[1].name: Duplicate value: \"c\""),
            ("/spec/initContainers", json!([c("c")]), "spec.initContainers[0].name: Duplicate value: \"c\""),
            (
                "/spec/ephemeralContainers",
                json!([c("e")]),
                "spec.ephemeralContainers: Forbidden: cannot be set on create",
            ),
            (
                "/spec/containers/0/imagePullPolicy",
                json!("X"),
                "spec.containers[0].imagePullPolicy: Unsupported value: \"X\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
            ),
            (
                "/spec/containers/0/terminationMessagePolicy",
                json!("X"),
                "spec.containers[0].terminationMessagePolicy: Unsupported value",
            ),
            (
                "/spec/containers/0/restartPolicy",
                json!("X"),
                "spec.containers[0].restartPolicy: Unsupported value",
            ),
            (
                "/spec/containers/0/restartPolicyRules",
                json!([{"action": "Restart"}]),
                "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
            ),
            (
                "/spec/containers/0/resizePolicy",
                json!([{"resourceName": "x", "restartPolicy": "NotRequired"}]),
                "spec.containers[0].resizePolicy: Unsupported value: \"x\"",
            ),
        ],
    );
    let sidecar = |policy: Value| json!([{"name": "i", "image": "i", "restartPolicy": policy, "livenessProbe": {"exec": {"command": ["x"]}}}]);
    check("Pod", &[("/spec/initContainers", sidecar(json!("Always")))], &[]);
    let forbidden = "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always";
    check("Pod", &[("/spec/initContainers", sidecar(json!(null)))], &[forbidden]);
}

#[test]
fn ports() {
    check_all(
        "Pod",
        vec![
            (
                "/spec/containers/0/ports",
                json!([{"containerPort": 0}]),
                "spec.containers[0].ports[0].containerPort: Required value",
            ),
            (
                "/spec/containers/0/ports",
                json!([{"containerPort": 70000}]),
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ),
            (
                "/spec/containers/0/ports",
                json!([{"containerPort": 1, "protocol": "X"}]),
                "spec.containers[0].ports[0].protocol: Unsupported value: \"X\"",
            ),
            (
                "/spec/containers/0/ports",
                json!([{"containerPort": 1, "name": "A"}]),
                "spec.containers[0].ports[0].name: Invalid value: \"A\": must contain",
            ),
            (
                "/spec/containers/0/ports",
                json!([{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
                "spec.containers[0].ports[1].name: Duplicate value: \"a\"",
            ),
            (
                "/spec/containers/0/ports",
                json!([{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]),
                "spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//5\"",
            ),
        ],
    );
    let host: [Change; 2] = [
        ("/spec/hostNetwork", json!(true)),
        ("/spec/containers/0/ports", json!([{"containerPort": 1, "hostPort": 2}])),
    ];
    check(
        "Pod",
        &host,
        &[
            "spec.containers[0].ports[0].hostPort: Invalid value: 2: must match `containerPort` when `hostNetwork` is true",
        ],
    );
}

#[test]
fn environment() {
    let from = |source: Value| json!([{"name": "A", "valueFrom": source}]);
    check_all(
        "Pod",
        vec![
            (
                "/spec/containers/0/env",
                json!([{"name": ""}]),
                "spec.containers[0].env[0].name: Required value",
            ),
            (
                "/spec/containers/0/env",
                json!([{"name": "a=b"}]),
                "spec.containers[0].env[0].name: Invalid value: \"a=b\"",
            ),
            ("/spec/containers/0/env", json!([{"name": "1 odd.name"}]), ""),
            (
                "/spec/containers/0/env",
                from(json!({})),
                "spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of",
            ),
            ("/spec/containers/0/env", from(json!({"fieldRef": {"fieldPath": "metadata.labels['a']"}})), ""),
            (
                "/spec/containers/0/env",
                from(json!({"fieldRef": {"fieldPath": "metadata.labels"}})),
                "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"metadata.labels\"",
            ),
            (
                "/spec/containers/0/env",
                from(json!({"fieldRef": {"fieldPath": "spec.x"}})),
                "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": error converting fieldPath: field label not supported: spec.x",
            ),
            (
                "/spec/containers/0/env",
                from(json!({"resourceFieldRef": {"resource": "limits.x"}})),
                "spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Unsupported value",
            ),
            (
                "/spec/containers/0/env",
                from(json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}})),
                "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1",
            ),
            (
                "/spec/containers/0/env",
                from(json!({"secretKeyRef": {"name": "s", "key": "a b"}})),
                "spec.containers[0].env[0].valueFrom.secretKeyRef.key: Invalid value: \"a b\"",
            ),
            (
                "/spec/containers/0/env",
                from(
                    json!({"secretKeyRef": {"name": "s", "key": "a"}, "configMapKeyRef": {"name": "s", "key": "a"}}),
                ),
                "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not have more than one field",
            ),
            (
                "/spec/containers/0/envFrom",
                json!([{}]),
                "spec.containers[0].envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
            ),
            (
                "/spec/containers/0/envFrom",
                json!([{"secretRef": {"name": "A"}}]),
                "spec.containers[0].envFrom[0].secretRef.name: Invalid value: \"A\"",
            ),
        ],
    );
}

#[test]
fn probes_and_lifecycle() {
    let probe = |handler: Value| ("/spec/containers/0/livenessProbe", handler);
    let at = "spec.containers[0].livenessProbe";
    for (change, expected) in [
        (probe(json!({})), format!("{at}: Required value: must specify a handler type")),
        (probe(json!({"exec": {}})), format!("{at}.exec.command: Required value")),
        (probe(json!({"httpGet": {"port": "A!"}})), format!("{at}.httpGet.port: Invalid value: \"A!\"")),
        (probe(json!({"httpGet": {"port": 80, "scheme": "FTP"}})), format!("{at}.httpGet.scheme: Unsupported value: \"FTP\"")),
        (probe(json!({"httpGet": {"port": 80, "httpHeaders": [{"name": "a b", "value": ""}]}})), format!("{at}.httpGet.httpHeaders: Invalid value: \"a b\"")),
        (probe(json!({"tcpSocket": {"port": 0}})), format!("{at}.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive")),
        (probe(json!({"tcpSocket": {"port": 1}, "grpc": {"port": 1}})), format!("{at}.grpc: Forbidden: may not specify more than 1 handler type")),
        (probe(json!({"tcpSocket": {"port": 1}, "successThreshold": 2})), format!("{at}.successThreshold: Invalid value: 2: must be 1")),
        (probe(json!({"tcpSocket": {"port": 1}, "periodSeconds": -1})), format!("{at}.periodSeconds: Invalid value: -1: must be greater than or equal to 0")),
        (probe(json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 0})), format!("{at}.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0")),
        (("/spec/containers/0/lifecycle/preStop/sleep/seconds", json!(31)), "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)".into()),
        (("/spec/containers/0/readinessProbe", json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 1})), "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes".into()),
    ] {
        check("Pod", &[change], &[&expected]);
    }
}

#[test]
fn resources() {
    check_all(
        "Pod",
        vec![
            (
                "/spec/containers/0/resources/limits",
                json!({"x": "1"}),
                "spec.containers[0].resources.limits[x]: Invalid value: \"x\": must be a standard resource && spec.containers[0].resources.requests[x]: Invalid value: \"x\": must be a standard resource",
            ),
            (
                "/spec/containers/0/resources/limits",
                json!({"cpu": "-1"}),
                "spec.containers[0].resources.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0 && spec.containers[0].resources.requests[cpu]",
            ),
            (
                "/spec/containers/0/resources",
                json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
                "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            ),
            (
                "/spec/containers/0/resources",
                json!({"requests": {"x.io/gpu": "1"}}),
                "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
            ),
            (
                "/spec/containers/0/resources",
                json!({"limits": {"x.io/gpu": "1500m"}}),
                "spec.containers[0].resources.limits[x.io/gpu]: Invalid value: \"1500m\": must be an integer && spec.containers[0].resources.requests[x.io/gpu]",
            ),
            (
                "/spec/containers/0/resources",
                json!({"limits": {"hugepages-2Mi": "2Mi"}}),
                "spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
            ),
            (
                "/spec/containers/0/resources",
                json!({"limits": {"cpu": "1", "hugepages-2Mi": "3Mi"}}),
                "spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi && spec.containers[0].resources.requests",
            ),
            (
                "/spec/containers/0/resources/claims",
                json!([{"name": "a"}]),
                "spec.containers[0].resources.claims[0]: Not found: \"a\": must be one of the names in pod.spec.resourceClaims which is empty",
            ),
            (
                "/spec/resources/limits",
                json!({"x.io/y": "1"}),
                "spec.resources.limits[x.io/y]: Unsupported value && spec.resources.requests[x.io/y]",
            ),
            (
                "/spec/overhead",
                json!({"x": "1"}),
                "spec.overhead[x]: Invalid value: \"x\": must be a standard resource",
            ),
        ],
    );
}
