//! apps and batch.

use super::*;

fn workload(kind: &str, spec: Value) -> Value {
    let mut object =
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata("web"), "spec": spec});
    object["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    object["spec"]["template"] = template();
    created(object)
}

fn job(spec: Value) -> Value {
    let mut object =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata("pi"), "spec": spec});
    object["spec"]["template"] = template();
    object["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    created(object)
}

fn cron_job() -> Value {
    let mut spec = json!({"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": template()}}});
    spec["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    created(json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata("tick"), "spec": spec}))
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

#[test]
fn jobs_get_a_selector_of_their_own() {
    let job = job(json!({}));
    let mut spec = job["spec"].clone();
    let labels = spec["template"]["metadata"]["labels"].take();
    spec.as_object_mut().expect("a spec").remove("template");
    assert_eq!(
        spec,
        json!({"completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
            "suspend": false, "podReplacementPolicy": "TerminatingOrFailed", "manualSelector": false,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}})
    );
    assert_eq!(
        labels,
        json!({"app": "web", "job-name": "pi", "batch.kubernetes.io/job-name": "pi", "controller-uid": "u-1",
            "batch.kubernetes.io/controller-uid": "u-1"})
    );
    // Without labels of its own it has those of its pods.
    assert_eq!(job["metadata"]["labels"], labels);
}

#[test]
fn bad_jobs_say_why() {
    let plain = job(json!({}));
    check_invalid(
        &plain,
        &[
            ("/spec/parallelism", json!(-1), "spec.parallelism: Invalid value: -1"),
            (
                "/spec/completionMode",
                json!("X"),
                "spec.completionMode: Unsupported value: \"X\": supported values: \"Indexed\", \"NonIndexed\"",
            ),
            (
                "/spec/backoffLimitPerIndex",
                json!(1),
                "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
            ),
            (
                "/spec/maxFailedIndexes",
                json!(1),
                "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
            ),
            (
                "/spec/managedBy",
                json!("me"),
                "spec.managedBy: Invalid value: \"me\": must be a domain-prefixed path (such as \"acme.io/foo\")",
            ),
            ("/spec/podReplacementPolicy", json!("X"), "spec.podReplacementPolicy: Unsupported value"),
            (
                "/spec/successPolicy",
                json!({"rules": []}),
                "spec.successPolicy: Invalid value: {\"rules\":[]}: requires indexed completion mode",
            ),
            (
                "/spec/template/spec/restartPolicy",
                json!("Always"),
                "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
            ),
            ("/spec/selector", json!(null), "spec.selector: Required value"),
            (
                "/spec/selector/matchLabels",
                json!({"a": "b"}),
                "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: `selector` not auto-generated",
            ),
            (
                "/spec/template/metadata/labels/job-name",
                json!("x"),
                "spec.template.metadata.labels[job-name]: Invalid value",
            ),
            (
                "/spec/template/metadata/labels/controller-uid",
                json!(null),
                "spec.template.metadata.labels[controller-uid]: Required value: must be 'u-1'",
            ),
        ],
    );
    let rule = |rule: Value| json!({"rules": [rule]});
    let policy = rule(json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2]}}));
    let failing = job(json!({"podFailurePolicy": policy}));
    assert_eq!(failing["spec"]["podReplacementPolicy"], "Failed");
    let at = "/spec/podFailurePolicy/rules/0";
    check_invalid(
        &failing,
        &[
            (&format!("{at}/action"), json!("X"), "spec.podFailurePolicy.rules[0].action: Unsupported value"),
            (
                &format!("{at}/action"),
                json!(""),
                "spec.podFailurePolicy.rules[0].action: Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
            ),
            (
                &format!("{at}/action"),
                json!("FailIndex"),
                "spec.podFailurePolicy.rules[0].action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
            ),
            (
                &format!("{at}/onExitCodes/values"),
                json!([0]),
                "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
            ),
            (
                &format!("{at}/onExitCodes/values"),
                json!([2, 1]),
                "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,1]: must be ordered",
            ),
            (
                &format!("{at}/onExitCodes/values"),
                json!([1, 1]),
                "spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Duplicate value: 1",
            ),
            (
                &format!("{at}/onExitCodes/containerName"),
                json!("x"),
                "spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value",
            ),
            (
                &format!("{at}/onExitCodes"),
                json!(null),
                "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
            ),
            (
                "/spec/template/spec/restartPolicy",
                json!("OnFailure"),
                "spec.template.spec.restartPolicy: Invalid value: \"OnFailure\": only \"Never\" is supported when podFailurePolicy is specified",
            ),
            (
                "/spec/podReplacementPolicy",
                json!("TerminatingOrFailed"),
                "spec.podReplacementPolicy: Unsupported value",
            ),
        ],
    );
    let indexed = job(json!({"completionMode": "Indexed", "completions": 5, "parallelism": 5,
        "backoffLimitPerIndex": 1, "successPolicy": rule(json!({"succeededIndexes": "0,2-3", "succeededCount": 2}))}));
    assert_eq!(indexed["spec"]["backoffLimit"], i32::MAX);
    let rule = "spec.successPolicy.rules[0]";
    check_invalid(
        &indexed,
        &[
            (
                "/spec/completions",
                json!(null),
                "spec.completions: Required value: when completion mode is Indexed",
            ),
            (
                "/spec/maxFailedIndexes",
                json!(6),
                "spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to completions",
            ),
            (
                "/spec/parallelism",
                json!(100_001),
                "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
            ),
            (
                "/spec/successPolicy/rules",
                json!([]),
                "spec.successPolicy.rules: Required value: at least one rules must be specified",
            ),
            ("/spec/successPolicy/rules/0", json!({}), &format!("{rule}: Required value: at least one of")),
            (
                "/spec/successPolicy/rules/0/succeededIndexes",
                json!("9"),
                &format!(
                    "{rule}.succeededIndexes: Invalid value: \"9\": error parsing succeededIndexes: too large index: \"9\""
                ),
            ),
            (
                "/spec/successPolicy/rules/0/succeededIndexes",
                json!("3,1"),
                &format!(
                    "{rule}.succeededIndexes: Invalid value: \"3,1\": error parsing succeededIndexes: non-increasing order, previous: 3, current: 1"
                ),
            ),
            (
                "/spec/successPolicy/rules/0/succeededCount",
                json!(4),
                &format!(
                    "{rule}.succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of indexes"
                ),
            ),
            ("/metadata/name", json!("a".repeat(62)), "metadata.name: Invalid value"),
        ],
    );
}

#[test]
fn running_jobs_keep_their_template() {
    let running = job(json!({}));
    let immutable = "spec.template: Invalid value";
    check_update(
        &running,
        &[
            ("/spec/parallelism", json!(3), ""),
            ("/spec/suspend", json!(true), ""),
            ("/spec/completions", json!(3), "spec.completions: Invalid value: 3: field is immutable"),
            (
                "/spec/completionMode",
                json!("Indexed"),
                "spec.completionMode: Invalid value: \"Indexed\": field is immutable",
            ),
            (
                "/spec/managedBy",
                json!("a.io/b"),
                "spec.managedBy: Invalid value: \"a.io/b\": field is immutable",
            ),
            ("/spec/template/spec/containers/0/image", json!("nginx:2"), immutable),
            ("/spec/template/spec/nodeSelector", json!({"a": "b"}), immutable),
        ],
    );
    let suspended = job(json!({"suspend": true}));
    let node_affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}});
    check_update(
        &suspended,
        &[
            ("/spec/template/spec/nodeSelector", json!({"a": "b"}), ""),
            ("/spec/template/spec/affinity", node_affinity, ""),
            ("/spec/template/metadata/annotations", json!({"a": "b"}), ""),
            ("/spec/template/spec/tolerations", json!([{"key": "a", "operator": "Exists"}]), ""),
            ("/spec/template/spec/containers/0/image", json!("nginx:2"), immutable),
        ],
    );
    let indexed = job(json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2}));
    let scaled = with(&indexed, "/spec/parallelism", json!(3));
    check_update(&scaled, &[("/spec/completions", json!(3), "")]);
    check_update(
        &indexed,
        &[(
            "/spec/completions",
            json!(3),
            "spec.completions: Invalid value: 3: can only be modified in tandem with spec.parallelism",
        )],
    );
}

#[test]
fn finished_jobs_stay_finished() {
    let time = |minute: i32| json!(format!("2026-01-01T00:0{minute}:00Z"));
    let condition =
        |types: &[&str]| -> Value { types.iter().map(|ty| json!({"type": ty, "status": "True"})).collect() };
    let started = with(
        &job(json!({})),
        "/status",
        json!({"startTime": time(0), "active": 1, "succeeded": 0, "failed": 2}),
    );
    let done = json!({"startTime": time(0), "completionTime": time(1), "succeeded": 1, "failed": 2,
        "conditions": condition(&["SuccessCriteriaMet", "Complete"])});
    check_status(
        &started,
        &[
            ("/status", done.clone(), ""),
            ("/status/active", json!(-1), "status.active: Invalid value: -1"),
            (
                "/status/failed",
                json!(1),
                "status.failed: Invalid value: 1: cannot decrease the failed counter",
            ),
            (
                "/status/ready",
                json!(2),
                "status.ready: Invalid value: 2: cannot set more ready pods than active",
            ),
            ("/status/completionTime", time(1), "status.completionTime: Invalid value"),
            (
                "/status/conditions",
                condition(&["Complete"]),
                "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            ),
            (
                "/status/conditions",
                condition(&["Failed"]),
                "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
            ),
            (
                "/status/conditions",
                condition(&["Failed", "FailureTarget"]),
                "status.active: Invalid value: 1: active>0 is invalid for finished job",
            ),
            (
                "/status/completedIndexes",
                json!("0"),
                "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes",
            ),
            (
                "/status/uncountedTerminatedPods",
                json!({"failed": ["a"], "succeeded": ["a"]}),
                "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"",
            ),
        ],
    );
    check_status(
        &with(&started, "/status", done),
        &[
            (
                "/status/conditions",
                json!([]),
                "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
            ),
            (
                "/status/completionTime",
                time(2),
                "status.completionTime: Invalid value: \"2026-01-01T00:02:00Z\": field is immutable",
            ),
        ],
    );
}

#[test]
fn jobs_and_cron_jobs_show_how_they_stand() {
    let job = job(json!({"completions": 3, "parallelism": 2}));
    let job = with(&job, "/status", json!({"succeeded": 1, "startTime": "2026-01-01T00:04:00Z"}));
    assert_eq!(
        row(&job),
        "Name=pi | Status=Running | Completions=1/3 | Duration=60s | Age=5m | +Containers=c | +Images=nginx:1 | +Selector=batch.kubernetes.io/controller-uid=u-1"
    );
    let complete = with(&job, "/status/conditions", json!([{"type": "Complete", "status": "True"}]));
    assert!(row(&complete).contains("Status=Complete"));
    let cron = cron_job();
    assert_eq!(
        row(&cron),
        "Name=tick | Schedule=*/5 * * * * | Timezone=<none> | Suspend=False | Active=0 | Last Schedule=<none> | Age=5m | +Containers=c | +Images=nginx:1 | +Selector=<none>"
    );
}

#[test]
fn bad_cron_jobs_say_why() {
    let cron = cron_job();
    assert_eq!(cron["spec"]["concurrencyPolicy"], "Allow");
    assert_eq!(cron["spec"]["successfulJobsHistoryLimit"], 3);
    assert_eq!(cron["spec"]["failedJobsHistoryLimit"], 1);
    check_valid(&cron, &[("/spec/timeZone", json!("Europe/Berlin")), ("/spec/schedule", json!("@every 1h"))]);
    check_invalid(
        &cron,
        &[
            ("/spec/schedule", json!(""), "spec.schedule: Required value"),
            (
                "/spec/schedule",
                json!("* * *"),
                "spec.schedule: Invalid value: \"* * *\": expected exactly 5 fields, found 3: [* * *]",
            ),
            (
                "/spec/schedule",
                json!("TZ=UTC 0 * * * *"),
                "spec.schedule: Invalid value: \"TZ=UTC 0 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            ),
            (
                "/spec/timeZone",
                json!(""),
                "spec.timeZone: Invalid value: \"\": timeZone must be nil or non-empty string",
            ),
            (
                "/spec/timeZone",
                json!("local"),
                "spec.timeZone: Invalid value: \"local\": timeZone must be an explicit time zone",
            ),
            (
                "/spec/timeZone",
                json!("../x"),
                "spec.timeZone: Invalid value: \"../x\": unknown time zone ../x",
            ),
            ("/spec/concurrencyPolicy", json!("X"), "spec.concurrencyPolicy: Unsupported value"),
            ("/spec/startingDeadlineSeconds", json!(-1), "spec.startingDeadlineSeconds: Invalid value: -1"),
            ("/spec/failedJobsHistoryLimit", json!(-1), "spec.failedJobsHistoryLimit: Invalid value: -1"),
            (
                "/spec/jobTemplate/spec/selector",
                json!({}),
                "spec.jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated",
            ),
            (
                "/spec/jobTemplate/spec/manualSelector",
                json!(true),
                "spec.jobTemplate.spec.manualSelector: Unsupported value",
            ),
            (
                "/spec/jobTemplate/spec/template/spec/restartPolicy",
                json!("Always"),
                "spec.jobTemplate.spec.template.spec.restartPolicy: Required value",
            ),
            ("/metadata/name", json!("a".repeat(53)), "metadata.name: Invalid value"),
        ],
    );
}
