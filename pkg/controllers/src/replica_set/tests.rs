//! Plans of ReplicaSets, by tables.

use super::*;
use crate::runtime::Verb;
use serde_json::{Value, json};

fn set(replicas: i32, status: Value) -> Arc<ReplicaSet> {
    let set = json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "set", "generation": 1},
        "spec": {
            "replicas": replicas,
            "minReadySeconds": 10,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web", "tier": "front"}}, "spec": {"containers": []}},
        },
        "status": status,
    });
    Arc::new(serde_json::from_value(set).expect("a set"))
}

/// A pod from words: `owned`, `other`'s or an orphan; `ready` since a second; `going`; `failed`; `unlabeled`.
fn pod(name: &str, words: &str) -> Arc<Pod> {
    let has = |word: &str| words.split(' ').any(|found| found == word);
    let owner = if has("owned") { Some("set") } else { has("other").then_some("other") };
    let owners: Vec<Value> = owner
        .map(|uid| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true}))
        .into_iter()
        .collect();
    let ready_at = words.split(' ').find_map(|word| word.strip_prefix("ready@"));
    let conditions: Vec<Value> = ready_at
        .map(|second| {
            let at = Timestamp::from_second(second.parse().expect("a second")).expect("a time");
            json!({"type": "Ready", "status": "True", "lastTransitionTime": at})
        })
        .into_iter()
        .collect();
    let phase = if has("failed") { "Failed" } else { "Running" };
    let node = words.split(' ').find_map(|word| word.strip_prefix("node="));
    let pod = json!({
        "metadata": {
            "namespace": "default", "name": name, "uid": name, "ownerReferences": owners,
            "labels": if has("unlabeled") { json!({}) } else { json!({"app": "web", "tier": "front"}) },
            "deletionTimestamp": has("going").then_some("2020-01-01T00:00:00Z"),
        },
        "spec": {"containers": [], "nodeName": node},
        "status": {"phase": phase, "conditions": conditions},
    });
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn view(replicas: i32, pods: &[Arc<Pod>]) -> View<ReplicaSet> {
    View { set: set(replicas, Value::Null), pods: pods.to_vec(), related: HashMap::new() }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_000).expect("a time")
}

/// What a plan writes, in words.
fn written(plan: &Plan) -> Vec<String> {
    plan.writes.iter().map(|write| format!("{:?} {}", write.verb, write.target.key.name)).collect()
}

#[test]
fn missing_pods_are_created_and_told_of() {
    let plan = plan(&view(3, &[pod("a", "owned")]), now());
    assert_eq!(written(&plan), ["Create ", "Create "]);
    let body = &plan.writes[0].body;
    assert_eq!(body["metadata"]["generateName"], "web-");
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "set");
    assert_eq!(body["metadata"]["labels"]["tier"], "front");
    assert_eq!(plan.writes[0].done.as_ref().expect("told").message, "Created pod: {name}");
}

#[test]
fn finished_and_going_pods_do_not_count() {
    let pods = [pod("a", "owned going"), pod("b", "owned failed"), pod("c", "owned")];
    let plan = plan(&view(2, &pods), now());
    assert_eq!(written(&plan), ["Create "]);
    let status = &plan.status.expect("a status").body["status"];
    assert_eq!(status["replicas"], 1);
    assert_eq!(status["terminatingReplicas"], 1);
}

#[test]
fn too_many_are_deleted_the_least_useful_first() {
    let pods = [
        pod("old", "owned node=n1 ready@10"),
        pod("unassigned", "owned"),
        pod("unready", "owned node=n1"),
        pod("young", "owned node=n1 ready@995"),
    ];
    for (replicas, deleted) in [
        (3, vec!["unassigned"]),
        (2, vec!["unassigned", "unready"]),
        (1, vec!["unassigned", "unready", "young"]),
    ] {
        let plan = plan(&view(replicas, &pods), now());
        let expected: Vec<String> = deleted.iter().map(|name| format!("Delete {name}")).collect();
        assert_eq!(written(&plan), expected, "{replicas} replicas");
    }
}

#[test]
fn of_equals_those_that_share_a_node_go_first() {
    let pods = [pod("alone", "owned node=n1 ready@10"), pod("doubled", "owned node=n2 ready@10")];
    let mut view = view(1, &pods);
    view.related = HashMap::from([("n1".into(), 1), ("n2".into(), 2)]);
    assert_eq!(written(&plan(&view, now())), ["Delete doubled"]);
}

#[test]
fn orphans_are_adopted_and_strangers_released_before_anything_else() {
    let pods = [
        pod("orphan", ""),
        pod("astray", "owned unlabeled"),
        pod("others", "other"),
        pod("stray", "unlabeled"),
    ];
    let plan = plan(&view(5, &pods), now());
    assert_eq!(written(&plan), ["StrategicPatch orphan", "StrategicPatch astray"]);
    assert!(plan.writes[0].only_if.is_some(), "the set must still be there");
    assert_eq!(plan.writes[1].body["metadata"]["ownerReferences"][0]["$patch"], "delete");
    assert_eq!(plan.status, None);
}

#[test]
fn a_set_that_is_going_creates_nothing() {
    let mut view = view(3, &[pod("orphan", "")]);
    Arc::make_mut(&mut view.set).metadata.deletion_timestamp = Some(Time(now()));
    assert_eq!(written(&plan(&view, now())), Vec::<String>::new());
}

#[test]
fn ready_pods_are_available_after_a_while() {
    let view = view(2, &[pod("a", "owned ready@985"), pod("b", "owned ready@995")]);
    let plan = plan(&view, now());
    let status = &plan.status.as_ref().expect("a status").body["status"];
    assert_eq!((&status["readyReplicas"], &status["availableReplicas"]), (&json!(2), &json!(1)));
    assert_eq!(plan.look_again.expect("a time").as_secs(), 5);
}

#[test]
fn nothing_is_written_when_all_is_well() {
    let pods = [pod("a", "owned ready@985")];
    let first = plan(&view(1, &pods), now());
    let status = first.status.expect("a status").body["status"].clone();
    let view = View { set: set(1, status), pods: pods.to_vec(), related: HashMap::new() };
    assert!(plan(&view, now()).is_quiet());
}

#[test]
fn a_create_that_fails_is_a_condition() {
    let context = Sets { sets: Cache::<ReplicaSet>::default(), pods: Cache::default() };
    let view = view(1, &[]);
    let plan = context.plan(&view, now());
    let error = kube::Error::Service("exceeded quota".into());
    let failure = Failure { write: plan.writes[0].clone(), error };
    let status = context.after_failure(&view, &plan, &failure, now()).into_iter().next().expect("a status");
    let condition = &status.body["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("ReplicaFailure"), &json!("FailedCreate"))
    );
    assert_eq!(status.verb, Verb::Update);
}
