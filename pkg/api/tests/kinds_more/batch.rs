//! batch.

use super::*;

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
