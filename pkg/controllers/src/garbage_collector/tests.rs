//! Tables over the graph and the plan.

use super::graph::{Deletion, Graph, Uid};
use super::plan::{Dependent, Outcome, OwnerState, View, plan};
use crate::discovery::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::sync::Arc;

fn resource(kind: &str, namespaced: bool) -> Arc<Resource> {
    Arc::new(Resource {
        group: String::new(),
        version: "v1".into(),
        kind: kind.into(),
        plural: format!("{}s", kind.to_lowercase()),
        namespaced,
        verbs: vec![],
    })
}

fn metadata(uid: &str, more: Value) -> ObjectMeta {
    let mut all = json!({"name": uid, "namespace": "default", "uid": uid, "resourceVersion": "7"});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

fn owned_by(owners: &[&str]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|uid| json!({"apiVersion": "v1", "kind": "Pod", "name": uid, "uid": uid, "blockOwnerDeletion": true}))
        .collect();
    json!({"ownerReferences": owners})
}

fn deleted(finalizers: &[&str]) -> Value {
    json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers})
}

fn texts(uids: Vec<Uid>) -> Vec<String> {
    let mut texts: Vec<String> = uids.iter().map(|uid| uid.to_string()).collect();
    texts.sort();
    texts
}

#[test]
fn the_graph_says_who_is_worth_a_look() {
    let pods = resource("Pod", true);
    let mut graph = Graph::default();
    assert!(graph.apply(&pods, &metadata("a", json!({}))).is_empty());
    assert!(graph.apply(&pods, &metadata("b", owned_by(&["a"]))).is_empty());
    assert_eq!(texts(graph.apply(&pods, &metadata("c", owned_by(&["nobody"])))), ["c"]);
    // Deleted in the foreground: it is looked at, and when its last dependent goes, again.
    assert_eq!(texts(graph.apply(&pods, &metadata("a", deleted(&["foregroundDeletion"])))), ["a"]);
    assert!(graph.needs_look("b"), "its owner waits for it");
    assert_eq!(texts(graph.remove("b")), ["a"]);
    assert!(graph.dependents("a").is_empty());
    // Gone: those who belonged to it.
    graph.apply(&pods, &metadata("d", owned_by(&["a"])));
    assert_eq!(texts(graph.remove("a")), ["d"]);
    // References that are taken away let the owner go on.
    graph.apply(&pods, &metadata("e", deleted(&["foregroundDeletion"])));
    graph.apply(&pods, &metadata("f", owned_by(&["e"])));
    assert_eq!(texts(graph.apply(&pods, &metadata("f", json!({})))), ["e"]);
    assert!(graph.dependents("e").is_empty());
    // Whoever goes by himself is left alone.
    assert!(graph.apply(&pods, &metadata("g", deleted(&["example.com/x"]))).is_empty());
}

#[test]
fn an_owner_must_be_what_the_reference_says() {
    let (pods, nodes) = (resource("Pod", true), resource("Node", false));
    let mut graph = Graph::default();
    graph.apply(&pods, &metadata("a", json!({})));
    graph.apply(&nodes, &metadata("n", json!({"namespace": null})));
    let reference = |kind: &str, name: &str, uid: &str| json!({"ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}]});
    let elsewhere = |mut more: Value| {
        more["namespace"] = json!("other");
        more
    };
    let cases = [
        ("as it is", reference("Pod", "a", "a"), false),
        ("of another name", reference("Pod", "b", "a"), true),
        ("of another kind", reference("Secret", "a", "a"), true),
        ("in another namespace", elsewhere(reference("Pod", "a", "a")), true),
        ("cluster-wide, from any namespace", elsewhere(reference("Node", "n", "n")), false),
    ];
    for (name, more, needs_look) in cases {
        graph.apply(&pods, &metadata("x", more));
        assert_eq!(graph.needs_look("x"), needs_look, "{name}");
    }
}

fn dependent(uid: &str, blocks: bool, foreground: bool) -> Dependent {
    Dependent { uid: uid.into(), blocks, foreground, live: None }
}

/// What a plan does, in short.
fn shown(outcome: &Outcome) -> Vec<String> {
    let writes = outcome.plan.writes.iter().map(|write| {
        format!("{:?} {} {}", write.verb, write.target.path().trim_start_matches("/api/v1/"), write.body)
    });
    writes.chain(outcome.look_at.iter().map(|uid| format!("look at {uid}"))).collect()
}

fn check(metadata: ObjectMeta, owners: &[OwnerState], dependents: Vec<Dependent>, expected: &[&str]) {
    let name = format!("{:?} {owners:?} {dependents:?}", Deletion::of(&metadata));
    let view = View { resource: resource("Pod", true), metadata, owners: owners.to_vec(), dependents };
    // The bodies as JSON: in which order members come is nobody's business.
    let parsed = |line: &str| {
        let (what, body) = line.split_at(line.find('{').unwrap_or(line.len()));
        (what.to_owned(), serde_json::from_str(body).unwrap_or(Value::Null))
    };
    let found: Vec<(String, Value)> = shown(&plan(&view)).iter().map(|line| parsed(line)).collect();
    let expected: Vec<(String, Value)> = expected.iter().map(|line| parsed(line)).collect();
    assert_eq!(found, expected, "{name}");
}

const DELETE: &str = r#"Delete namespaces/default/pods/x {"propagationPolicy":"Background","preconditions":{"uid":"x","resourceVersion":"7"}}"#;

#[test]
fn an_object_goes_when_no_owner_is_left() {
    use OwnerState::{Absent, Solid, Waiting};
    let of = |owners: &[&str]| metadata("x", owned_by(owners));
    check(metadata("x", json!({})), &[], vec![], &[]);
    check(of(&["a"]), &[Solid], vec![], &[]);
    check(of(&["a"]), &[Absent], vec![], &[DELETE]);
    check(of(&["a"]), &[Waiting], vec![], &[DELETE]);
    check(of(&["a", "b"]), &[Absent, Absent], vec![], &[DELETE]);
    let kept = r#"MergePatch namespaces/default/pods/x {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"kind":"Pod","name":"b","uid":"b"}],"uid":"x","resourceVersion":"7"}}"#;
    check(of(&["a", "b"]), &[Absent, Solid], vec![], &[kept]);
    check(of(&["a", "b"]), &[Waiting, Solid], vec![], &[kept]);
}

#[test]
fn finalizers_that_are_there_decide_how_it_goes() {
    for (finalizer, policy) in [("orphan", "Orphan"), ("foregroundDeletion", "Foreground")] {
        let mut more = owned_by(&["a"]);
        more["finalizers"] = json!([finalizer]);
        check(metadata("x", more), &[OwnerState::Absent], vec![], &[&DELETE.replace("Background", policy)]);
    }
}

#[test]
fn what_an_owner_waits_for_makes_its_own_dependents_go_first() {
    let of = || metadata("x", owned_by(&["a"]));
    let foreground = DELETE.replace("Background", "Foreground");
    check(of(), &[OwnerState::Waiting], vec![dependent("d", true, false)], &[&foreground]);
    // A circle: nobody may wait for this one.
    let unblock = r#"MergePatch namespaces/default/pods/x {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":false,"kind":"Pod","name":"a","uid":"a"}],"uid":"x","resourceVersion":"7"}}"#;
    let delete =
        r#"Delete namespaces/default/pods/x {"propagationPolicy":"Foreground","preconditions":{"uid":"x"}}"#;
    check(of(), &[OwnerState::Waiting], vec![dependent("d", true, true)], &[unblock, delete]);
}

#[test]
fn foreground_waits_for_those_who_block() {
    let of = || metadata("x", deleted(&["foregroundDeletion", "example.com/x"]));
    let freed = r#"MergePatch namespaces/default/pods/x {"metadata":{"finalizers":["example.com/x"],"uid":"x","resourceVersion":"7"}}"#;
    check(of(), &[], vec![], &[freed]);
    check(of(), &[], vec![dependent("d", false, false)], &[freed]);
    check(of(), &[], vec![dependent("d", true, false), dependent("e", true, true)], &["look at d"]);
    check(metadata("x", deleted(&["example.com/x"])), &[], vec![dependent("d", true, false)], &[]);
}

#[test]
fn orphans_lose_their_references_first() {
    let live = Some((resource("Pod", true), metadata("d", owned_by(&["x"]))));
    let gone = dependent("e", true, false);
    let dependents = vec![Dependent { live, ..dependent("d", true, false) }, gone];
    let released = r#"MergePatch namespaces/default/pods/d {"metadata":{"ownerReferences":[],"uid":"d","resourceVersion":"7"}}"#;
    let freed = r#"MergePatch namespaces/default/pods/x {"metadata":{"finalizers":[],"uid":"x","resourceVersion":"7"}}"#;
    check(metadata("x", deleted(&["orphan"])), &[], dependents, &[released, freed]);
}
