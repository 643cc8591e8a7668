//! Plans of StatefulSets, by tables.

use super::*;
use serde_json::{Value, json};

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).expect("a time")
}

fn template(version: &str) -> Value {
    json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": version}]}})
}

fn set(fields: Value) -> StatefulSet {
    let mut set = json!({
        "metadata": {"namespace": "default", "name": "db", "uid": "set", "generation": 1},
        "spec": {
            "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("v1"),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
        },
        "status": {"replicas": 0, "currentRevision": "db-v1"},
    });
    for (key, value) in fields.as_object().expect("fields") {
        set["spec"][key] = value.clone();
    }
    serde_json::from_value(set).expect("a set")
}

fn revision(version: &str, number: i64) -> Arc<ControllerRevision> {
    let set = set(json!({"template": template(version)}));
    let mut revision =
        history::new(&set, &set.spec.as_ref().expect("a spec").template, number, version, HASH_LABEL);
    revision.metadata.uid = Some(version.into());
    Arc::new(revision)
}

/// A pod from words: `v1` or `v2`, `ready`, `going`, `failed`, `pending`.
fn pod(number: i32, words: &str) -> Arc<Pod> {
    let has = |word: &str| words.split(' ').any(|found| found == word);
    let set = set(json!({}));
    let version = if has("v2") { "db-v2" } else { "db-v1" };
    let mut pod = identity::pod(&set, &set.spec.as_ref().expect("a spec").template, number, version);
    pod.metadata.uid = Some(format!("uid-{number}"));
    pod.metadata.deletion_timestamp =
        has("going").then(|| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    let phase = if has("failed") {
        "Failed"
    } else if has("pending") {
        "Pending"
    } else {
        "Running"
    };
    let ready = if has("ready") { "True" } else { "False" };
    let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2000-01-01T00:00:00Z"}]});
    pod.status = Some(serde_json::from_value(status).expect("a status"));
    Arc::new(pod)
}

fn view(set: StatefulSet, pods: &[Arc<Pod>]) -> View {
    let mut revisions = vec![revision("v1", 1)];
    if set.spec.as_ref().expect("a spec").template != history::template(&revisions[0]).expect("a template") {
        revisions.push(revision("v2", 2));
    }
    View { set: Arc::new(set), pods: pods.to_vec(), revisions, claims: BTreeMap::new() }
}

fn written(plan: &Plan) -> Vec<String> {
    plan.writes.iter().map(|write| format!("{:?} {}", write.verb, write.target.key.name)).collect()
}

#[test]
fn a_new_set_begins_with_its_revision() {
    let mut view = view(set(json!({})), &[]);
    view.revisions.clear();
    let plan = plan(&view, now());
    assert_eq!(plan.writes[0].target.plural, "controllerrevisions");
    assert_eq!(plan.writes[0].body["data"]["spec"]["template"]["$patch"], "replace");
    assert_eq!(plan.writes.len(), 1);
}

#[test]
fn pods_come_up_one_after_the_other() {
    type Case<'a> = (&'a str, &'a [Arc<Pod>], &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        ("the first", &[], &["Create db-0"]),
        ("waits until it is ready", &[pod(0, "")], &[]),
        ("the second", &[pod(0, "ready")], &["Create db-1"]),
        ("a gap is filled", &[pod(0, "ready"), pod(2, "ready")], &["Create db-1"]),
        ("a going one is waited for", &[pod(0, "ready going"), pod(1, "ready")], &[]),
        ("a failed one is replaced", &[pod(0, "failed"), pod(1, "ready")], &["Delete db-0"]),
        ("all there", &[pod(0, "ready"), pod(1, "ready"), pod(2, "ready")], &[]),
        (
            "too many go from the end",
            &[pod(0, "ready"), pod(1, "ready"), pod(2, "ready"), pod(3, "ready"), pod(4, "ready")],
            &["Delete db-4"],
        ),
        (
            "and one at a time",
            &[pod(0, "ready"), pod(1, "ready"), pod(2, "ready"), pod(3, "ready"), pod(4, "going")],
            &[],
        ),
        ("not while one is not ready", &[pod(0, "ready"), pod(1, ""), pod(2, "ready"), pod(3, "ready")], &[]),
    ];
    for (what, pods, expected) in cases {
        assert_eq!(written(&plan(&view(set(json!({})), pods), now())), *expected, "{what}");
    }
}

#[test]
fn in_parallel_nobody_waits() {
    let parallel = |replicas: i32| set(json!({"podManagementPolicy": "Parallel", "replicas": replicas}));
    assert_eq!(written(&plan(&view(parallel(3), &[]), now())), ["Create db-0", "Create db-1", "Create db-2"]);
    let pods = [pod(0, ""), pod(1, ""), pod(2, "")];
    assert_eq!(written(&plan(&view(parallel(1), &pods), now())), ["Delete db-2", "Delete db-1"]);
}

#[test]
fn updates_go_downwards_to_the_partition() {
    type Case<'a> = (&'a str, i32, &'a [Arc<Pod>], &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        ("the last first", 0, &[pod(0, "ready"), pod(1, "ready"), pod(2, "ready")], &["Delete db-2"]),
        ("then its successor", 0, &[pod(0, "ready"), pod(1, "ready")], &["Create db-2"]),
        ("which is waited for", 0, &[pod(0, "ready"), pod(1, "ready"), pod(2, "v2")], &[]),
        ("then the next", 0, &[pod(0, "ready"), pod(1, "ready"), pod(2, "v2 ready")], &["Delete db-1"]),
        ("but not below the partition", 2, &[pod(0, "ready"), pod(1, "ready"), pod(2, "v2 ready")], &[]),
    ];
    for (what, partition, pods, expected) in cases {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
        let set = set(json!({"template": template("v2"), "updateStrategy": strategy}));
        let plan = plan(&view(set, pods), now());
        assert_eq!(written(&plan), *expected, "{what}");
    }
    let set = set(json!({"template": template("v2"), "updateStrategy": {"type": "OnDelete"}}));
    let pods = [pod(0, "ready"), pod(1, "ready"), pod(2, "ready")];
    assert_eq!(written(&plan(&view(set, &pods), now())), Vec::<String>::new());
}

#[test]
fn below_the_partition_new_pods_are_of_the_current_revision() {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    let set = set(json!({"template": template("v2"), "updateStrategy": strategy}));
    let first = plan(&view(set.clone(), &[]), now());
    let body = &first.writes[0].body;
    assert_eq!(body["metadata"]["labels"]["controller-revision-hash"], "db-v1");
    assert_eq!(body["spec"]["containers"][0]["image"], "v1");
    let second = plan(&view(set, &[pod(0, "ready")]), now());
    assert_eq!(second.writes[0].body["metadata"]["labels"]["controller-revision-hash"], "db-v2");
    assert_eq!(second.writes[0].body["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "1");
    assert_eq!(second.writes[0].body["spec"]["hostname"], "db-1");
    assert_eq!(second.writes[0].body["spec"]["subdomain"], "db");
}

#[test]
fn claims_come_before_their_pod_and_stay() {
    let templates = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    let plan = plan(&view(set(json!({"volumeClaimTemplates": templates})), &[]), now());
    assert_eq!(written(&plan), ["Create data-db-0", "Create db-0"]);
    let volume = &plan.writes[1].body["spec"]["volumes"][0];
    assert_eq!(
        (&volume["name"], &volume["persistentVolumeClaim"]["claimName"]),
        (&json!("data"), &json!("data-db-0"))
    );
}

#[test]
fn a_finished_update_makes_its_revision_the_current_one() {
    let set = set(json!({"template": template("v2")}));
    let pods = [pod(0, "v2 ready"), pod(1, "v2 ready"), pod(2, "v2 ready")];
    let first = plan(&view(set.clone(), &pods), now());
    let status = first.status.expect("a status").body["status"].clone();
    assert_eq!((&status["currentRevision"], &status["currentReplicas"]), (&json!("db-v2"), &json!(3)));
    let mut settled = set;
    settled.status = Some(serde_json::from_value(status).expect("a status"));
    assert!(plan(&view(settled, &pods), now()).is_quiet());
}
