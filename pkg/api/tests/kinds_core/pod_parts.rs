//! Pods: volumes, scheduling, security and the rest of the spec.

use super::{Change, check, check_all};
use serde_json::{Value, json};

#[test]
fn volumes_and_mounts() {
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        volume.as_object_mut().expect("an object").extend(source.as_object().expect("an object").clone());
        json!([volume])
    };
    let v = "spec.volumes[0]";
    for (source, expected) in [
        (
            json!({"emptyDir": {}, "hostPath": {"path": "/"}}),
            "hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            json!({"hostPath": {"path": "/a/../b"}}),
            "hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (json!({"hostPath": {"path": "/a", "type": "X"}}), "hostPath.type: Unsupported value: \"X\""),
        (json!({"secret": {}}), "secret.secretName: Required value"),
        (
            json!({"secret": {"secretName": "s", "defaultMode": 512}}),
            "secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
        ),
        (
            json!({"configMap": {"name": "c", "items": [{"key": "a", "path": "/a"}]}}),
            "configMap.items[0].path: Invalid value: \"/a\": must be a relative path",
        ),
        (
            json!({"configMap": {"name": "c", "items": [{"key": "a", "path": "..a"}]}}),
            "configMap.items[0].path: Invalid value: \"..a\": must not start with '..'",
        ),
        (
            json!({"nfs": {"server": "s", "path": "p"}}),
            "nfs.path: Invalid value: \"p\": must be an absolute path",
        ),
        (
            json!({"persistentVolumeClaim": {"claimName": ""}}),
            "persistentVolumeClaim.claimName: Required value",
        ),
        (
            json!({"downwardAPI": {"items": [{"path": "a"}]}}),
            "downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
        ),
        (json!({"csi": {"driver": ""}}), "csi.driver: Required value"),
        (
            json!({"projected": {"sources": [{"secret": {"name": "s"}, "configMap": {"name": "c"}}]}}),
            "projected.sources[0]: Forbidden: may not specify more than 1 volume type per source",
        ),
        (
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}),
            "ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
        ),
        (json!({"image": {}}), "image.reference: Required value"),
    ] {
        check("Pod", &[("/spec/volumes", volume(source))], &[&format!("{v}.{expected}")]);
    }
    let twice = ("/spec/volumes", json!([{"name": "v"}, {"name": "v"}]));
    check("Pod", &[twice], &["spec.volumes[1].name: Duplicate value: \"v\""]);
    let token = (
        "/spec/volumes",
        volume(
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 60}}]}}),
        ),
    );
    let expected = [
        "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes",
        "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
    ];
    check("Pod", &[token], &expected);
    let m = "spec.containers[0].volumeMounts";
    for (mounts, expected) in [
        (json!([{"name": "v", "mountPath": "/a"}]), vec![]),
        (json!([{"name": "w", "mountPath": "/a"}]), vec![format!("{m}[0].name: Not found: \"w\"")]),
        (json!([{"name": "v", "mountPath": ""}]), vec![format!("{m}[0].mountPath: Required value")]),
        (
            json!([{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]),
            vec![format!("{m}[1].mountPath: Invalid value: \"/a\": must be unique")],
        ),
        (
            json!([{"name": "v", "mountPath": "/a", "subPath": "../x"}]),
            vec![format!("{m}.subPath: Invalid value: \"../x\": must not contain '..'")],
        ),
        (
            json!([{"name": "v", "mountPath": "/a", "subPath": "x", "subPathExpr": "y"}]),
            vec![format!(
                "{m}[0].subPathExpr: Invalid value: \"y\": subPathExpr and subPath are mutually exclusive"
            )],
        ),
        (
            json!([{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}]),
            vec![format!(
                "{m}.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers"
            )],
        ),
        (
            json!([{"name": "v", "mountPath": "/a", "recursiveReadOnly": "Enabled"}]),
            vec![format!("{m}.recursiveReadOnly: Forbidden: may only be specified when readOnly is true")],
        ),
    ] {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(
            "Pod",
            &[("/spec/volumes", json!([{"name": "v"}])), ("/spec/containers/0/volumeMounts", mounts)],
            &expected,
        );
    }
    let device = ("/spec/containers/0/volumeDevices", json!([{"name": "v", "devicePath": "/d"}]));
    check(
        "Pod",
        &[("/spec/volumes", json!([{"name": "v"}])), device],
        &[
            "spec.containers[0].volumeDevices[0].name: Invalid value: \"v\": can only use volume source type of PersistentVolumeClaim or Ephemeral",
        ],
    );
}

#[test]
fn scheduling() {
    let node = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
    let expression = |operator: &str, values: Value| {
        node(json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}))
    };
    let pod = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let spread =
        |key: &str, action: &str| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action});
    let r = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    for (value, expected) in [
        (json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}), format!("{r}: Required value: must have at least one node selector term")),
        (expression("In", json!([])), format!("{r}[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'")),
        (expression("Exists", json!(["a"])), format!("{r}[0].matchExpressions[0].values: Forbidden")),
        (expression("Gt", json!(["1", "2"])), format!("{r}[0].matchExpressions[0].values: Required value: must be specified single value")),
        (expression("X", json!([])), format!("{r}[0].matchExpressions[0].operator: Invalid value: \"X\": not a valid selector operator")),
        (expression("In", json!(["a b"])), format!("{r}[0].matchExpressions[0].values[0]: Invalid value: \"a b\"")),
        (node(json!({"matchFields": [{"key": "x", "operator": "In", "values": ["a"]}]})), format!("{r}[0].matchFields[0].key: Invalid value: \"x\": not a valid field selector key")),
        (json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "preference": {}}]}), "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100".into()),
    ] {
        check("Pod", &[("/spec/affinity/nodeAffinity", value)], &[&expected]);
    }
    check_all(
        "Pod",
        vec![
            ("/spec/affinity/podAffinity", pod(json!({"topologyKey": "zone", "labelSelector": {}})), ""),
            (
                "/spec/affinity/podAffinity",
                pod(json!({"topologyKey": ""})),
                "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty && spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value",
            ),
            (
                "/spec/affinity/podAntiAffinity",
                pod(json!({"topologyKey": "a", "matchLabelKeys": ["a"]})),
                "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
            ),
            ("/spec/tolerations", json!([{"operator": "Exists"}]), ""),
            (
                "/spec/tolerations",
                json!([{"operator": "Equal"}]),
                "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty",
            ),
            (
                "/spec/tolerations",
                json!([{"key": "a", "operator": "X"}]),
                "spec.tolerations[0].operator: Unsupported value: \"X\": supported values: \"Equal\", \"Exists\"",
            ),
            (
                "/spec/tolerations",
                json!([{"key": "a", "operator": "Exists", "value": "b"}]),
                "spec.tolerations[0].operator: Invalid value: \"b\": value must be empty",
            ),
            (
                "/spec/tolerations",
                json!([{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]),
                "spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute'",
            ),
            (
                "/spec/topologySpreadConstraints",
                json!([{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]),
                "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            ),
            (
                "/spec/topologySpreadConstraints",
                json!([spread("", "DoNotSchedule")]),
                "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
            ),
            (
                "/spec/topologySpreadConstraints",
                json!([spread("z", "X")]),
                "spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"X\"",
            ),
            (
                "/spec/topologySpreadConstraints",
                json!([spread("z", "DoNotSchedule"), spread("z", "DoNotSchedule")]),
                "spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{z, DoNotSchedule}\"",
            ),
            (
                "/spec/schedulingGates",
                json!([{"name": "a b"}]),
                "spec.schedulingGates[0]: Invalid value: \"a b\"",
            ),
            (
                "/spec/schedulingGates",
                json!([{"name": "a"}, {"name": "a"}]),
                "spec.schedulingGates[1]: Duplicate value: \"a\"",
            ),
            ("/spec/nodeSelector", json!({"a": "b c"}), "spec.nodeSelector: Invalid value: \"b c\""),
            (
                "/spec/readinessGates",
                json!([{"conditionType": "a b"}]),
                "spec.readinessGates[0].conditionType: Invalid value: \"a b\"",
            ),
        ],
    );
    let gated = [("/spec/schedulingGates", json!([{"name": "a"}])), ("/spec/nodeName", json!("n"))];
    check(
        "Pod",
        &gated,
        &["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
    );
}

#[test]
fn the_rest_of_the_spec() {
    check_all(
        "Pod",
        vec![
            (
                "/spec/restartPolicy",
                json!("X"),
                "spec.restartPolicy: Unsupported value: \"X\": supported values: \"Always\", \"Never\", \"OnFailure\"",
            ),
            ("/spec/dnsPolicy", json!("X"), "spec.dnsPolicy: Unsupported value: \"X\""),
            (
                "/spec/dnsPolicy",
                json!("None"),
                "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
            ),
            (
                "/spec/dnsConfig",
                json!({"nameservers": ["a"]}),
                "spec.dnsConfig.nameservers[0]: Invalid value: \"a\": must be a valid IP address",
            ),
            (
                "/spec/dnsConfig",
                json!({"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"]}),
                "spec.dnsConfig.nameservers: Invalid value: [\"1.1.1.1\",\"1.1.1.2\",\"1.1.1.3\",\"1.1.1.4\"]: must not have more than 3 nameservers",
            ),
            ("/spec/dnsConfig", json!({"searches": ["_x.y.", "."]}), ""),
            (
                "/spec/dnsConfig",
                json!({"options": [{"value": "a"}]}),
                "spec.dnsConfig.options[0]: Required value: must not be empty",
            ),
            (
                "/spec/hostAliases",
                json!([{"ip": "a", "hostnames": ["A"]}]),
                "spec.hostAliases[0].ip: Invalid value: \"a\" && spec.hostAliases[0].hostnames[0]: Invalid value: \"A\"",
            ),
            (
                "/spec/activeDeadlineSeconds",
                json!(0),
                "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
            ),
            ("/spec/hostname", json!("a.b"), "spec.hostname: Invalid value: \"a.b\": must not contain dots"),
            ("/spec/nodeName", json!("A"), "spec.nodeName: Invalid value: \"A\""),
            ("/spec/serviceAccountName", json!("A"), "spec.serviceAccountName: Invalid value: \"A\""),
            ("/spec/priorityClassName", json!("A"), "spec.priorityClassName: Invalid value: \"A\""),
            ("/spec/runtimeClassName", json!("A"), "spec.runtimeClassName: Invalid value: \"A\""),
            ("/spec/preemptionPolicy", json!("X"), "spec.preemptionPolicy: Unsupported value: \"X\""),
            (
                "/spec/os",
                json!({"name": "mac"}),
                "spec.os: Unsupported value: \"mac\": supported values: \"linux\", \"windows\"",
            ),
            (
                "/spec/resourceClaims",
                json!([{"name": "a"}]),
                "spec.resourceClaims[0]: Invalid value: {\"name\":\"a\"}: must specify one of",
            ),
            (
                "/metadata/annotations",
                json!({"kubernetes.io/config.mirror": "a"}),
                "metadata.annotations[kubernetes.io/config.mirror]: Invalid value: \"a\": must set spec.nodeName",
            ),
            (
                "/metadata/annotations",
                json!({"controller.kubernetes.io/pod-deletion-cost": "+1"}),
                "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"+1\": must be a 32bit integer",
            ),
        ],
    );
    let windows: [Change; 2] =
        [("/spec/os/name", json!("windows")), ("/spec/securityContext/runAsUser", json!(1))];
    check("Pod", &windows, &["spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod"]);
}

#[test]
fn security() {
    let context = "/spec/containers/0/securityContext";
    check_all(
        "Pod",
        vec![
            (
                "/spec/securityContext/fsGroup",
                json!(-1),
                "spec.securityContext.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            ),
            (
                "/spec/securityContext/supplementalGroups",
                json!([-1]),
                "spec.securityContext.supplementalGroups[0]: Invalid value: -1",
            ),
            (
                "/spec/securityContext/fsGroupChangePolicy",
                json!("X"),
                "spec.securityContext.fsGroupChangePolicy: Unsupported value: \"X\"",
            ),
            (
                "/spec/securityContext/sysctls",
                json!([{"name": "A", "value": "1"}]),
                "spec.securityContext.sysctls[0].name: Invalid value: \"A\": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            ),
            (
                "/spec/securityContext/seccompProfile",
                json!({"type": "Localhost"}),
                "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
            ),
            (
                "/spec/securityContext/seccompProfile",
                json!({"type": "X"}),
                "spec.securityContext.seccompProfile.type: Unsupported value: \"X\"",
            ),
            (
                "/spec/securityContext/appArmorProfile",
                json!({"type": ""}),
                "spec.securityContext.appArmorProfile.type: Required value: type is required when appArmorProfile is set",
            ),
            (
                context,
                json!({"runAsUser": -1}),
                "spec.containers[0].securityContext.runAsUser: Invalid value: -1",
            ),
            (
                context,
                json!({"procMount": "Unmasked"}),
                "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
            ),
            (
                context,
                json!({"allowPrivilegeEscalation": false, "privileged": true}),
                "spec.containers[0].securityContext: Invalid value",
            ),
            ("/spec/shareProcessNamespace", json!(true), ""),
        ],
    );
    let shared: [Change; 2] = [("/spec/shareProcessNamespace", json!(true)), ("/spec/hostPID", json!(true))];
    check(
        "Pod",
        &shared,
        &[
            "spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
        ],
    );
    let users: [Change; 2] = [("/spec/hostUsers", json!(false)), ("/spec/hostNetwork", json!(true))];
    check("Pod", &users, &["spec.hostNetwork: Forbidden: when `hostUsers` is false"]);
    let net: [Change; 2] = [
        ("/spec/hostNetwork", json!(true)),
        ("/spec/securityContext/sysctls", json!([{"name": "net.ipv4.ip_forward", "value": "1"}])),
    ];
    check(
        "Pod",
        &net,
        &[
            "spec.securityContext.sysctls[0].name: Invalid value: \"net.ipv4.ip_forward\": may not be specified when 'hostNetwork' is true",
        ],
    );
}
