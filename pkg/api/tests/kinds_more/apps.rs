//! apps.

use super::*;

fn workload(kind: &str, spec: Value) -> Value {
    let mut object =
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata("web"), "spec": spec});
    object["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    object["spec"]["template"] = template();
    created(object)
}

#[test]
fn deployments_roll_a_quarter_at_a_time() {
    let deployment = workload("Deployment", json!({}));
    let mut spec = deployment["spec"].clone();
    spec.as_object_mut().expect("a spec").retain(|name, _| !matches!(name.as_str(), "template" | "selector"));
    assert_eq!(
        spec,
        json!({"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}})
    );
    assert_eq!(deployment["spec"]["template"]["spec"]["restartPolicy"], "Always");
    check_valid(
        &deployment,
        &[("/spec/replicas", json!(0)), ("/spec/strategy", json!({"type": "Recreate"}))],
    );
}

#[test]
fn bad_deployments_say_why() {
    let deployment = workload("Deployment", json!({}));
    check_invalid(
        &deployment,
        &[
            (
                "/spec/replicas",
                json!(-1),
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            ("/spec/selector", json!(null), "spec.selector: Required value"),
            (
                "/spec/selector",
                json!({}),
                "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
            ),
            (
                "/spec/template/metadata/labels/app",
                json!("db"),
                "spec.template.metadata.labels: Invalid value: {\"app\":\"db\"}: `selector` does not match template `labels`",
            ),
            (
                "/spec/template/spec/restartPolicy",
                json!("Never"),
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ),
            (
                "/spec/template/spec/activeDeadlineSeconds",
                json!(5),
                "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
            ),
            ("/spec/template/spec/containers", json!([]), "spec.template.spec.containers: Required value"),
            ("/spec/strategy/type", json!("Canary"), "spec.strategy: Unsupported value"),
            (
                "/spec/strategy/type",
                json!("Recreate"),
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ),
            (
                "/spec/strategy/rollingUpdate/maxSurge",
                json!("a"),
                "spec.strategy.rollingUpdate.maxSurge: Invalid value: \"a\": a valid percent string",
            ),
            (
                "/spec/strategy/rollingUpdate/maxUnavailable",
                json!("101%"),
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
            ),
            (
                "/spec/strategy/rollingUpdate",
                json!({"maxSurge": 0, "maxUnavailable": 0}),
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
            ),
            (
                "/spec/minReadySeconds",
                json!(600),
                "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
            ),
            ("/spec/revisionHistoryLimit", json!(-1), "spec.revisionHistoryLimit: Invalid value"),
        ],
    );
    check_update(
        &deployment,
        &[
            ("/spec/replicas", json!(3), ""),
            (
                "/spec/selector/matchLabels/tier",
                json!("x"),
                "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\",\"tier\":\"x\"}}: field is immutable",
            ),
        ],
    );
    check_status(
        &with(&deployment, "/status", json!({"replicas": 2, "collisionCount": 1})),
        &[
            ("/status/readyReplicas", json!(2), ""),
            (
                "/status/readyReplicas",
                json!(3),
                "status.readyReplicas: Invalid value: 3: cannot be greater than status.replicas",
            ),
            ("/status/replicas", json!(-1), "status.replicas: Invalid value: -1"),
            (
                "/status/collisionCount",
                json!(0),
                "status.collisionCount: Invalid value: 0: cannot be decremented",
            ),
        ],
    );
}

#[test]
fn a_change_of_annotations_is_a_new_generation_of_a_deployment() {
    let old = with(&workload("Deployment", json!({})), "/metadata/generation", json!(4));
    let mut new = with(&old, "/metadata/annotations", json!({"a": "b"}));
    (kind_of(&old).prepare)(&mut new, Some(&old));
    assert_eq!(new["metadata"]["generation"], 5);
}

#[test]
fn workloads_show_what_is_ready() {
    let status = json!({"replicas": 3, "readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1});
    let deployment = with(&workload("Deployment", json!({"replicas": 3})), "/status", status.clone());
    assert_eq!(
        row(&deployment),
        "Name=web | Ready=2/3 | Up-to-date=3 | Available=1 | Age=5m | +Containers=c | +Images=nginx:1 | +Selector=app=web"
    );
    let replica_set = with(&workload("ReplicaSet", json!({"replicas": 3})), "/status", status.clone());
    assert_eq!(
        row(&replica_set),
        "Name=web | Desired=3 | Current=3 | Ready=2 | Age=5m | +Containers=c | +Images=nginx:1 | +Selector=app=web"
    );
    let stateful_set = with(&workload("StatefulSet", json!({"replicas": 3})), "/status", status);
    assert_eq!(row(&stateful_set), "Name=web | Ready=2/3 | Age=5m | +Containers=c | +Images=nginx:1");
    let status = json!({"desiredNumberScheduled": 4, "currentNumberScheduled": 3, "numberReady": 2,
        "updatedNumberScheduled": 1, "numberAvailable": 0});
    let daemon_set = with(&workload("DaemonSet", json!({})), "/status", status);
    assert_eq!(
        row(&daemon_set),
        "Name=web | Desired=4 | Current=3 | Ready=2 | Up-to-date=1 | Available=0 | Node Selector=<none> | Age=5m | +Containers=c | +Images=nginx:1 | +Selector=app=web"
    );
}

#[test]
fn bad_replica_sets_say_why() {
    let set = workload("ReplicaSet", json!({}));
    assert_eq!(set["spec"]["replicas"], 1);
    check_invalid(
        &set,
        &[
            ("/spec/replicas", json!(-1), "spec.replicas: Invalid value: -1"),
            ("/spec/minReadySeconds", json!(-1), "spec.minReadySeconds: Invalid value: -1"),
            ("/spec/selector", json!(null), "spec.template.metadata.labels: Invalid value"),
        ],
    );
    check_update(&set, &[("/spec/selector/matchLabels/a", json!("b"), "spec.selector: Invalid value")]);
}

#[test]
fn daemon_sets_count_changes_of_their_template() {
    let set = workload("DaemonSet", json!({}));
    let annotation = "deprecated.daemonset.template.generation";
    assert_eq!(set["metadata"]["annotations"][annotation], "1");
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
    );
    let mut changed = with(&set, "/spec/template/spec/containers/0/image", json!("nginx:2"));
    (kind_of(&set).prepare)(&mut changed, Some(&set));
    assert_eq!(changed["metadata"]["annotations"][annotation], "2");
    check_invalid(
        &set,
        &[
            (
                "/spec/selector",
                json!(null),
                "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match",
            ),
            (
                "/spec/selector",
                json!({}),
                "spec.selector: Invalid value: {}: empty selector is invalid for daemonset",
            ),
            ("/spec/updateStrategy/type", json!("X"), "spec.updateStrategy: Unsupported value"),
            (
                "/spec/updateStrategy/rollingUpdate",
                json!(null),
                "spec.updateStrategy.rollingUpdate: Required value",
            ),
            (
                "/spec/updateStrategy/rollingUpdate/maxSurge",
                json!(1),
                "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
            ),
            (
                "/spec/updateStrategy/rollingUpdate/maxUnavailable",
                json!(0),
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
            ),
            (
                "/spec/template/spec/restartPolicy",
                json!("OnFailure"),
                "spec.template.spec.restartPolicy: Unsupported value",
            ),
        ],
    );
    check_update(&set, &[("/spec/selector/matchLabels/a", json!("b"), "spec.selector: Invalid value")]);
    check_status(&set, &[("/status", json!({"numberReady": -1}), "status.numberReady: Invalid value: -1")]);
}

#[test]
fn stateful_sets_keep_what_they_were_made_with() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let mut set = workload("StatefulSet", json!({"serviceName": "web", "volumeClaimTemplates": [claim]}));
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}]);
    assert_eq!(set["spec"]["podManagementPolicy"], "OrderedReady");
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    );
    assert_eq!(
        set["spec"]["persistentVolumeClaimRetentionPolicy"],
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
    );
    let claim = &set["spec"]["volumeClaimTemplates"][0];
    assert_eq!(
        (&claim["kind"], &claim["spec"]["volumeMode"]),
        (&json!("PersistentVolumeClaim"), &json!("Filesystem"))
    );
    check_invalid(
        &set,
        &[
            ("/spec/podManagementPolicy", json!(null), "spec.podManagementPolicy: Required value"),
            (
                "/spec/podManagementPolicy",
                json!("X"),
                "spec.podManagementPolicy: Invalid value: \"X\": must be 'OrderedReady' or 'Parallel'",
            ),
            ("/spec/updateStrategy/type", json!(null), "spec.updateStrategy: Required value"),
            (
                "/spec/updateStrategy/type",
                json!("OnDelete"),
                "spec.updateStrategy.rollingUpdate: Invalid value",
            ),
            (
                "/spec/updateStrategy/rollingUpdate/partition",
                json!(-1),
                "spec.updateStrategy.rollingUpdate.partition: Invalid value",
            ),
            (
                "/spec/updateStrategy/rollingUpdate/maxUnavailable",
                json!(0),
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0",
            ),
            (
                "/spec/persistentVolumeClaimRetentionPolicy/whenScaled",
                json!("Lose"),
                "spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value",
            ),
            ("/spec/ordinals", json!({"start": -1}), "spec.ordinals.start: Invalid value: -1"),
            (
                "/spec/serviceName",
                json!("a.b"),
                "spec.serviceName: Invalid value: \"a.b\": must not contain dots",
            ),
            (
                "/spec/volumeClaimTemplates/0/spec/accessModes",
                json!([]),
                "spec.volumeClaimTemplates[0].spec.accessModes: Required value",
            ),
            (
                "/spec/volumeClaimTemplates",
                json!([]),
                "spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"data\"",
            ),
        ],
    );
    let forbidden = "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template'";
    check_update(
        &set,
        &[
            ("/spec/replicas", json!(3), ""),
            ("/spec/minReadySeconds", json!(3), ""),
            ("/spec/serviceName", json!("other"), forbidden),
            ("/spec/podManagementPolicy", json!("Parallel"), forbidden),
        ],
    );
    check_status(
        &with(&set, "/status", json!({"replicas": 1})),
        &[(
            "/status/currentReplicas",
            json!(2),
            "status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas",
        )],
    );
}

#[test]
fn controller_revisions_never_change() {
    let revision = created(json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": metadata("web-1"), "revision": 1, "data": {"spec": {}}}));
    check_invalid(
        &revision,
        &[
            ("/revision", json!(-1), "revision: Invalid value: -1"),
            ("/data", json!(null), "data: Required value: data is mandatory"),
            ("/data", json!("x"), "data: Required value: data must be a valid JSON object"),
        ],
    );
    check_update(
        &revision,
        &[("/revision", json!(2), ""), ("/data", json!({"a": 1}), "data: Invalid value")],
    );
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true}]);
    let owned = with(&revision, "/metadata/ownerReferences", owner);
    assert_eq!(row(&owned), "Name=web-1 | Controller=statefulset.apps/web | Revision=1 | Age=5m");
}
