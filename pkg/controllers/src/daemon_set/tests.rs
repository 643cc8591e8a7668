//! Plans of DaemonSets, by tables.

use super::*;
use crate::runtime::Verb;
use serde_json::{Value, json};

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).expect("a time")
}

fn set(fields: Value) -> DaemonSet {
    let mut set = json!({
        "metadata": {"namespace": "default", "name": "ds", "uid": "set", "generation": 1},
        "spec": {
            "selector": {"matchLabels": {"app": "ds"}},
            "template": {"metadata": {"labels": {"app": "ds"}}, "spec": {"containers": [{"name": "c", "image": "v2"}]}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "revisionHistoryLimit": 10,
        },
    });
    for (key, value) in fields.as_object().expect("fields") {
        set["spec"][key] = value.clone();
    }
    serde_json::from_value(set).expect("a set")
}

/// A node from words: `gpu` (a label), `noschedule`, `noexecute`, `cordoned`, `notready` (taints).
fn node(name: &str, words: &str) -> Arc<Node> {
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let taints: Vec<Value> = words
        .split(' ')
        .filter_map(|word| match word {
            "noschedule" => Some(taint("dedicated", "NoSchedule")),
            "noexecute" => Some(taint("dedicated", "NoExecute")),
            "cordoned" => Some(taint("node.kubernetes.io/unschedulable", "NoSchedule")),
            "notready" => Some(taint("node.kubernetes.io/not-ready", "NoExecute")),
            _ => None,
        })
        .collect();
    let labels = if words.contains("gpu") { json!({"gpu": "yes"}) } else { json!({}) };
    let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
    Arc::new(serde_json::from_value(node).expect("a node"))
}

/// A pod for a node: `v1` or `v2`, `ready`, `going`, `failed`, `waiting` for the scheduler.
fn pod(node: &str, words: &str) -> Arc<Pod> {
    let has = |word: &str| words.split(' ').any(|found| found == word);
    let set = set(json!({}));
    let mut pod = nodes::pod(&set, node, if has("v1") { "v1" } else { "v2" });
    pod.metadata.name = Some(format!("{node}-{}", words.replace(' ', "-")));
    pod.metadata.uid = pod.metadata.name.clone();
    pod.metadata.deletion_timestamp =
        has("going").then(|| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    let phase = if has("failed") {
        "Failed"
    } else if has("waiting") {
        "Pending"
    } else {
        "Running"
    };
    if !has("waiting") {
        pod.spec.get_or_insert_default().node_name = Some(node.into());
    }
    let ready = if has("ready") { "True" } else { "False" };
    let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2000-01-01T00:00:00Z"}]});
    pod.status = Some(serde_json::from_value(status).expect("a status"));
    Arc::new(pod)
}

fn view(set: DaemonSet, nodes: &[Arc<Node>], pods: &[Arc<Pod>]) -> View {
    let template = &set.spec.as_ref().expect("a spec").template;
    let mut revision = history::new(&set, template, 1, "v2", HASH_LABEL);
    revision.metadata.uid = Some("revision".into());
    View {
        set: Arc::new(set),
        pods: pods.to_vec(),
        nodes: nodes.to_vec(),
        revisions: vec![Arc::new(revision)],
        not_before: HashMap::new(),
    }
}

/// What a plan does: `+node`, `-pod`.
fn done(plan: &Plan) -> Vec<String> {
    let say = |write: &Write| match write.verb {
        Verb::Create => {
            let pod: Pod = serde_json::from_value(write.body.clone()).expect("a pod");
            format!("+{}", target_node(&pod).expect("a node"))
        }
        _ => format!("-{}", write.target.key.name),
    };
    plan.writes.iter().map(say).collect()
}

#[test]
fn every_node_that_fits_has_a_pod() {
    let cases: &[(&str, Value, &str, &str, &[&str])] = &[
        ("none yet", json!({}), "", "", &["+n"]),
        ("one is there", json!({}), "", "v2 ready", &[]),
        ("one is on its way", json!({}), "", "v2 waiting", &[]),
        ("a going one is waited for", json!({}), "", "v2 going", &[]),
        ("a failed one is deleted", json!({}), "", "v2 failed", &["-n-v2-failed"]),
        ("a cordoned node has one", json!({}), "cordoned", "", &["+n"]),
        ("a node that is not ready too", json!({}), "notready", "", &["+n"]),
        ("a tainted node gets none", json!({}), "noschedule", "", &[]),
        ("but keeps its own", json!({}), "noschedule", "v2 ready", &[]),
        ("unless it is evicted", json!({}), "noexecute", "v2 ready", &["-n-v2-ready"]),
    ];
    for (what, fields, words, words_of_pod, expected) in cases {
        let pods: Vec<_> = (!words_of_pod.is_empty()).then(|| pod("n", words_of_pod)).into_iter().collect();
        let plan = plan(&view(set(fields.clone()), &[node("n", words)], &pods), now());
        assert_eq!(done(&plan), *expected, "{what}");
    }
}

#[test]
fn node_selectors_count() {
    let mut with_selector = set(json!({}));
    let spec = with_selector.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).expect("a spec");
    spec.node_selector = Some(BTreeMap::from([("gpu".into(), "yes".into())]));
    let nodes = [node("a", "gpu"), node("b", "")];
    let plan = plan(&view(with_selector, &nodes, &[pod("b", "v2 ready")]), now());
    assert_eq!(done(&plan), ["+a", "-b-v2-ready"]);
}

#[test]
fn pods_for_nodes_that_are_gone_are_deleted() {
    let plan = plan(&view(set(json!({})), &[], &[pod("gone", "v2 waiting")]), now());
    assert_eq!(done(&plan), ["-gone-v2-waiting"]);
}

#[test]
fn an_update_takes_so_many_nodes_down_as_it_may() {
    let nodes = [node("a", ""), node("b", ""), node("c", "")];
    let cases: &[(&str, [&str; 3], &[&str])] = &[
        ("one at a time", ["v1 ready", "v1 ready", "v1 ready"], &["-a-v1-ready"]),
        ("while one is down, no other", ["v2", "v1 ready", "v1 ready"], &[]),
        ("then the next", ["v2 ready", "v1 ready", "v1 ready"], &["-b-v1-ready"]),
        ("what does not work goes anyway", ["v2", "v1", "v1 ready"], &["-b-v1"]),
        ("done", ["v2 ready", "v2 ready", "v2 ready"], &[]),
    ];
    for (what, pods, expected) in cases {
        let pods: Vec<_> = ["a", "b", "c"].iter().zip(pods).map(|(node, words)| pod(node, words)).collect();
        assert_eq!(done(&plan(&view(set(json!({})), &nodes, &pods), now())), *expected, "{what}");
    }
}

#[test]
fn with_surge_the_new_pod_comes_first() {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
    let surging = || set(json!({"updateStrategy": strategy}));
    let nodes = [node("a", ""), node("b", "")];
    type Case = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);
    let cases: &[Case] = &[
        ("beside the old one", &[("a", "v1 ready"), ("b", "v1 ready")], &["+a"]),
        ("no more than allowed", &[("a", "v1 ready"), ("a", "v2"), ("b", "v1 ready")], &[]),
        (
            "then the old one goes",
            &[("a", "v1 ready"), ("a", "v2 ready"), ("b", "v1 ready")],
            &["-a-v1-ready"],
        ),
        ("then the next", &[("a", "v2 ready"), ("b", "v1 ready")], &["+b"]),
    ];
    for (what, pods, expected) in cases {
        let pods: Vec<_> = pods.iter().map(|(node, words)| pod(node, words)).collect();
        assert_eq!(done(&plan(&view(surging(), &nodes, &pods), now())), *expected, "{what}");
    }
}

#[test]
fn nothing_is_written_when_all_is_well() {
    let (nodes, pods) = ([node("a", "")], [pod("a", "v2 ready")]);
    let first = plan(&view(set(json!({})), &nodes, &pods), now());
    let status = first.status.expect("a status").body["status"].clone();
    assert_eq!((&status["numberReady"], &status["desiredNumberScheduled"]), (&json!(1), &json!(1)));
    let mut settled = set(json!({}));
    settled.status = Some(serde_json::from_value(status).expect("a status"));
    assert!(plan(&view(settled, &nodes, &pods), now()).is_quiet());
}
