//! Plans of Jobs, by tables.

use super::*;
use k8s_openapi::api::batch::v1::JobStatus;
use serde_json::Value;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000_000).expect("a time")
}

fn job(spec: Value, status: Value) -> Job {
    let mut job = json!({
        "metadata": {"namespace": "default", "name": "work", "uid": "job", "generation": 1},
        "spec": {
            "parallelism": 2, "completions": 3, "backoffLimit": 2, "completionMode": "NonIndexed",
            "podReplacementPolicy": "TerminatingOrFailed", "selector": {"matchLabels": {"job": "work"}},
            "template": {"metadata": {"labels": {"job": "work"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}},
        },
        "status": status,
    });
    for (key, value) in spec.as_object().expect("fields") {
        job["spec"][key] = value.clone();
    }
    serde_json::from_value(job).expect("a job")
}

/// A pod from words: `running`, `succeeded`, `failed`, `going`, `free` of its finalizer, `index=3`, `exit=42`, `after=1`
/// failures.
fn pod(name: &str, words: &str) -> Arc<Pod> {
    let has = |word: &str| words.split(' ').any(|found| found == word);
    let value = |key: &str| words.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let phase = match () {
        () if has("succeeded") => "Succeeded",
        () if has("failed") => "Failed",
        () => "Running",
    };
    let mut annotations = serde_json::Map::new();
    if let Some(index) = value("index") {
        annotations.insert(worker::INDEX.into(), index.into());
    }
    if let Some(failures) = value("after") {
        annotations.insert("batch.kubernetes.io/job-index-failure-count".into(), failures.into());
    }
    let long_ago = "2000-01-01T00:00:00Z";
    let exit: i32 = value("exit").map_or(1, |code| code.parse().expect("a code"));
    let state = match phase {
        "Running" => json!({"running": {}}),
        _ => json!({"terminated": {"exitCode": exit, "finishedAt": long_ago}}),
    };
    let pod = json!({
        "metadata": {
            "namespace": "default", "name": name, "uid": name, "labels": {"job": "work"}, "annotations": annotations,
            "finalizers": if has("free") { json!([]) } else { json!([FINALIZER]) },
            "deletionTimestamp": has("going").then_some(long_ago),
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "job", "controller": true}],
        },
        "spec": {"containers": []},
        "status": {"phase": phase, "containerStatuses": [
            {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]},
    });
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn plan_of(job: Job, pods: &[Arc<Pod>]) -> Plan {
    plan(&View { job: Some(Arc::new(job)), pods: pods.to_vec() }, now())
}

/// What a plan does, in order: `+`, `+3` (an index), `-pod`, `status`, `free pod`.
fn done(plan: &Plan) -> Vec<String> {
    let say = |write: &Write| match write.verb {
        Verb::Create => {
            format!("+{}", write.body["metadata"]["annotations"][worker::INDEX].as_str().unwrap_or_default())
        }
        Verb::Delete => format!("-{}", write.target.key.name),
        Verb::Update => "status".to_owned(),
        _ => format!("free {}", write.target.key.name),
    };
    plan.writes.iter().map(say).collect()
}

fn status(plan: &Plan) -> JobStatus {
    let write = plan.writes.iter().find(|write| write.target.subresource == "status").expect("a status");
    serde_json::from_value(write.body["status"].clone()).expect("a status")
}

fn types(status: &JobStatus) -> Vec<String> {
    let conditions = status.conditions.iter().flatten().filter(|condition| condition.status == "True");
    conditions
        .map(|condition| format!("{} {}", condition.type_, condition.reason.clone().unwrap_or_default()))
        .collect()
}

#[test]
fn so_many_run_at_once_as_are_still_needed() {
    type Case<'a> = (&'a str, Value, Value, &'a [Arc<Pod>], &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        ("at first", json!({}), json!({}), &[], &["+", "+", "status"]),
        (
            "one ran",
            json!({}),
            json!({"succeeded": 1, "startTime": "2000-01-01T00:00:00Z"}),
            &[pod("a", "running")],
            &["+", "status"],
        ),
        ("only the last is missing", json!({}), json!({"succeeded": 2}), &[pod("a", "running")], &["status"]),
        (
            "too many",
            json!({"parallelism": 1}),
            json!({}),
            &[pod("a", "running"), pod("b", "running")],
            &["-a", "status"],
        ),
        ("suspended", json!({"suspend": true}), json!({}), &[pod("a", "running")], &["-a", "status"]),
        (
            "without completions one success is enough",
            json!({"completions": null}),
            json!({"succeeded": 1}),
            &[pod("a", "running")],
            &["status"],
        ),
    ];
    for (what, spec, status, pods, expected) in cases {
        assert_eq!(done(&plan_of(job(spec.clone(), status.clone()), pods)), *expected, "{what}");
    }
}

#[test]
fn an_end_is_noted_then_let_go_then_counted() {
    let ended = plan_of(job(json!({"parallelism": 1}), json!({})), &[pod("a", "succeeded")]);
    assert_eq!(done(&ended), ["+", "status", "free a"]);
    let noted = status(&ended);
    assert_eq!(
        noted.uncounted_terminated_pods.as_ref().expect("uncounted").succeeded,
        Some(vec!["a".to_owned()])
    );
    assert_eq!(noted.succeeded, None);
    let noted = serde_json::to_value(&noted).expect("JSON");
    let again =
        plan_of(job(json!({"parallelism": 1}), noted.clone()), &[pod("a", "succeeded"), pod("b", "running")]);
    assert_eq!(done(&again), ["free a"], "after a restart in between");
    let counted =
        plan_of(job(json!({"parallelism": 1}), noted), &[pod("a", "succeeded free"), pod("b", "running")]);
    assert_eq!(status(&counted).succeeded, Some(1));
    assert_eq!(done(&counted), ["status"]);
}

#[test]
fn a_job_is_complete_when_everything_is_counted() {
    let last = plan_of(job(json!({}), json!({"succeeded": 2})), &[pod("c", "succeeded")]);
    assert_eq!(types(&status(&last)), ["SuccessCriteriaMet CompletionsReached"]);
    let complete = plan_of(job(json!({}), json!({"succeeded": 3})), &[pod("c", "succeeded free")]);
    let complete = status(&complete);
    assert_eq!(types(&complete), ["SuccessCriteriaMet CompletionsReached", "Complete CompletionsReached"]);
    assert!(complete.completion_time.is_some());
    let complete = job(json!({}), serde_json::to_value(&complete).expect("JSON"));
    assert!(plan_of(complete, &[pod("c", "succeeded free")]).is_quiet());
}

#[test]
fn failures_beyond_the_limit_end_it() {
    let failing = plan_of(job(json!({}), json!({"failed": 2})), &[pod("a", "failed"), pod("b", "running")]);
    assert_eq!(done(&failing), ["-b", "status", "free a"]);
    assert_eq!(types(&status(&failing)), ["FailureTarget BackoffLimitExceeded"]);
    let target = serde_json::to_value(status(&failing)).expect("JSON");
    let waiting =
        plan_of(job(json!({}), target.clone()), &[pod("a", "failed free"), pod("b", "running going")]);
    assert!(!types(&status(&waiting)).iter().any(|ty| ty.starts_with("Failed ")), "one is still going");
    let failed = plan_of(job(json!({}), target), &[pod("a", "failed free")]);
    assert!(types(&status(&failed)).contains(&"Failed BackoffLimitExceeded".to_owned()));
}

#[test]
fn a_deadline_ends_it() {
    let started = |seconds: i64| json!({"startTime": now() - jiff::SignedDuration::from_secs(seconds)});
    let in_time = plan_of(job(json!({"activeDeadlineSeconds": 60}), started(59)), &[]);
    assert_eq!(in_time.look_again.expect("a time").as_secs(), 1);
    let late = plan_of(job(json!({"activeDeadlineSeconds": 60}), started(60)), &[pod("a", "running")]);
    assert_eq!(done(&late), ["-a", "status"]);
    assert_eq!(types(&status(&late)), ["FailureTarget DeadlineExceeded"]);
}

#[test]
fn a_failure_is_not_followed_at_once() {
    let mut failed = pod("a", "failed");
    let just_now = json!([{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 1, "finishedAt": now()}}}]);
    Arc::make_mut(&mut failed).status.as_mut().expect("a status").container_statuses =
        Some(serde_json::from_value(just_now).expect("statuses"));
    let plan = plan_of(job(json!({}), json!({})), &[failed]);
    assert_eq!(done(&plan), ["status", "free a"]);
    assert_eq!(plan.look_again.expect("a time").as_secs(), 10);
}

#[test]
fn every_index_is_done_once() {
    let indexed = |status: Value| job(json!({"completionMode": "Indexed", "parallelism": 3}), status);
    assert_eq!(done(&plan_of(indexed(json!({})), &[])), ["+0", "+1", "+2", "status"]);
    let pods = [pod("a", "succeeded index=0"), pod("b", "running index=1"), pod("c", "failed index=2")];
    let plan = plan_of(indexed(json!({})), &pods);
    assert_eq!(done(&plan), ["+2", "status", "free a", "free c"]);
    assert_eq!(status(&plan).completed_indexes.as_deref(), Some("0"));
    let doubled = [pod("a", "running index=1"), pod("b", "running index=1"), pod("c", "running index=7")];
    let plan = plan_of(indexed(json!({"completedIndexes": "0,2", "succeeded": 2})), &doubled);
    assert_eq!(done(&plan).iter().filter(|write| write.starts_with('-')).count(), 2);
}

#[test]
fn an_index_fails_by_itself() {
    let spec = json!({"completionMode": "Indexed", "completions": 2, "backoffLimit": 100, "backoffLimitPerIndex": 1});
    let first =
        plan_of(job(spec.clone(), json!({})), &[pod("a", "failed index=0"), pod("b", "running index=1")]);
    let replacement = &first.writes[0].body["metadata"]["annotations"];
    assert_eq!(replacement["batch.kubernetes.io/job-index-failure-count"], "1");
    assert_eq!(done(&first), ["+0", "status"], "the failed one is kept until its successor is there");
    let pods = [pod("a", "failed index=0"), pod("c", "failed index=0 after=1"), pod("b", "running index=1")];
    let second = plan_of(job(spec.clone(), json!({})), &pods);
    assert_eq!(status(&second).failed_indexes.as_deref(), Some("0"));
    let pods = [pod("c", "failed free index=0 after=1"), pod("b", "succeeded index=1")];
    let last = plan_of(job(spec, json!({"failedIndexes": "0"})), &pods);
    assert_eq!(types(&status(&last)), ["FailureTarget FailedIndexes"]);
}

#[test]
fn a_pod_failure_policy_decides_what_a_failure_means() {
    let policy = |action: &str| {
        let rule = json!({"action": action, "onExitCodes": {"operator": "In", "values": [42]}});
        job(
            json!({"podFailurePolicy": {"rules": [rule]}, "podReplacementPolicy": "Failed", "backoffLimit": 0}),
            json!({}),
        )
    };
    let ignored = plan_of(policy("Ignore"), &[pod("a", "failed exit=42")]);
    assert_eq!(done(&ignored), ["+", "+", "status", "free a"]);
    let fails = status(&plan_of(policy("FailJob"), &[pod("a", "failed exit=42")]));
    let condition = fails.conditions.expect("conditions")[0].clone();
    assert_eq!(
        condition.message.as_deref(),
        Some("Container c for pod default/a failed with exit code 42 matching FailJob rule at index 0")
    );
    let other = plan_of(policy("Ignore"), &[pod("a", "failed exit=1")]);
    assert_eq!(types(&status(&other)), ["FailureTarget BackoffLimitExceeded"]);
}

#[test]
fn a_success_policy_may_be_met_early() {
    let rule = json!({"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]});
    let spec = json!({"completionMode": "Indexed", "completions": 5, "successPolicy": rule});
    let plan = plan_of(job(spec, json!({})), &[pod("a", "succeeded index=1"), pod("b", "running index=0")]);
    assert_eq!(types(&status(&plan)), ["SuccessCriteriaMet SuccessPolicy"]);
    assert!(done(&plan).contains(&"-b".to_owned()));
}

#[test]
fn going_pods_are_replaced_at_once_or_when_they_have_ended() {
    let pods = [pod("a", "running going"), pod("b", "running")];
    let at_once = plan_of(job(json!({}), json!({})), &pods);
    assert_eq!(done(&at_once), ["+", "status", "free a"]);
    let later = plan_of(job(json!({"podReplacementPolicy": "Failed"}), json!({})), &pods);
    assert_eq!(done(&later), ["status"]);
}

#[test]
fn what_a_job_leaves_behind_is_let_go() {
    let plan = plan(&View { job: None, pods: vec![pod("a", "running")] }, now());
    assert_eq!(done(&plan), ["free a"]);
}

#[test]
fn ends_are_counted_where_no_pod_can_be_created() {
    let view = View { job: Some(Arc::new(job(json!({}), json!({})))), pods: vec![pod("a", "failed")] };
    let plan = plan(&view, now());
    let create = plan.writes.iter().find(|write| write.verb == Verb::Create).cloned();
    let failure = |write: Write| {
        let status =
            kube::core::Status::failure("because it is being terminated", "Forbidden").with_code(403);
        Failure { write, error: kube::Error::Api(status.boxed()) }
    };
    let jobs = Jobs { jobs: Cache::default(), pods: Cache::default() };
    let rest = |write: Write| -> Vec<Write> {
        jobs.after_failure(&view, &plan, &failure(write), now()).into_iter().collect()
    };
    let writes = rest(create.expect("a pod is missing"));
    assert_eq!(done(&Plan { writes, ..Plan::default() }), ["status", "free a"]);
    assert!(rest(without_finalizer(&view.pods[0])).is_empty(), "that is tried again");
}

#[test]
fn a_pod_that_is_released_is_let_go() {
    let mut other = pod("a", "running").as_ref().clone();
    other.metadata.labels = None;
    let plan = plan_of(job(json!({}), json!({})), &[Arc::new(other)]);
    assert_eq!(
        plan.writes[0].body["metadata"],
        json!({"uid": "a", "ownerReferences": [{"$patch": "delete", "uid": "job"}], LET_GO: [FINALIZER]})
    );
}
