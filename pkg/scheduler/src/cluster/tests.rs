//! Tables over filters, scores and preemption; and histories: whatever happened, the state is that of the objects alone.

use super::*;
use crate::place::Profile;
use crate::scheduler::{Decision, Event, Kind, Object, Outcome, Scheduler};
use crate::volumes::ClaimAction;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A scheduler without an API: decisions are carried out at once.
struct World {
    scheduler: Scheduler,
    now_ms: u64,
}

impl World {
    fn new(nodes: &[Value]) -> World {
        let profiles = [
            ("default-scheduler".to_owned(), Profile::Default),
            ("round-robin-scheduler".to_owned(), Profile::RoundRobin),
        ];
        let mut world = World { scheduler: Scheduler::new(profiles.into(), 0, 1), now_ms: 0 };
        nodes.iter().for_each(|node| world.set_node(node));
        world
    }

    fn set(&mut self, object: Object) {
        self.scheduler.apply(Event::Set(object), self.now_ms);
    }

    fn set_node(&mut self, node: &Value) {
        self.set(Object::Node(serde_json::from_value(node.clone()).unwrap()));
    }

    fn set_pod(&mut self, pod: &Value) {
        self.set(Object::Pod(serde_json::from_value(pod.clone()).unwrap()));
    }

    fn delete_pod(&mut self, name: &str) {
        self.scheduler.apply(Event::Delete(Kind::Pod, "default".into(), name.into()), self.now_ms);
    }

    /// Decides about all pods that are to be tried now: by name, where each goes, or why nowhere.
    fn decide(&mut self) -> Vec<(String, Result<String, String>)> {
        self.now_ms += 60_000;
        let mut decided = Vec::new();
        while let Some(decision) = self.scheduler.next(self.now_ms) {
            decided.push(match decision {
                Decision::Bind { target, node, claims } => {
                    self.scheduler.bound(&target, &claims, Outcome::Bound, self.now_ms);
                    (target.name, Ok(node))
                }
                Decision::Refuse { target, message, .. } => (target.name, Err(message)),
            });
        }
        decided
    }

    /// Where a new pod goes.
    fn place(&mut self, pod: &Value) -> Result<String, String> {
        self.set_pod(pod);
        let name = pod["metadata"]["name"].as_str().unwrap();
        let decided = self.decide();
        decided.into_iter().rev().find(|(other, _)| other == name).expect("it was tried").1
    }
}

fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    })
}

fn zoned(name: &str, zone: &str) -> Value {
    let mut node = node(name);
    node["metadata"]["labels"]["topology.kubernetes.io/zone"] = zone.into();
    node
}

fn pod(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["schedulerName"] = spec.get("schedulerName").cloned().unwrap_or("default-scheduler".into());
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"image": "a"}]);
    }
    json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}}, "spec": spec})
}

fn asking(name: &str, cpu: &str) -> Value {
    pod(name, json!({"containers": [{"image": "a", "resources": {"requests": {"cpu": cpu}}}]}))
}

fn on(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeName"] = node.into();
    pod
}

fn prioritized(mut pod: Value, priority: i32) -> Value {
    pod["spec"]["priority"] = priority.into();
    pod
}

fn term(key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": key})
}

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const NO_HELP: &str = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

#[test]
fn what_a_node_does_not_take_is_said_in_upstreams_words() {
    let taken = |spec: Value| on(pod("there", spec), "n1");
    let port = json!({"containers": [{"image": "a", "ports": [{"hostPort": 80, "protocol": "TCP"}]}]});
    let claims = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let anti = |key: &str| json!({"affinity": {"podAntiAffinity": {REQUIRED: [term(key)]}}});
    let victims = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    let cases: Vec<(&str, Value, Option<Value>, Value, &str, &str)> = vec![
        ("cpu", node("n1"), None, asking("p", "5"), "1 Insufficient cpu", NO_HELP),
        (
            "cpu that is used",
            node("n1"),
            Some(on(asking("there", "3"), "n1")),
            asking("p", "2"),
            "1 Insufficient cpu",
            victims,
        ),
        (
            "cordoned",
            json!({"metadata": {"name": "n1"}, "spec": {"unschedulable": true}}),
            None,
            pod("p", json!({})),
            "1 node(s) were unschedulable",
            NO_HELP,
        ),
        (
            "tainted",
            json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
            None,
            pod("p", json!({})),
            "1 node(s) had untolerated taint(s)",
            NO_HELP,
        ),
        (
            "selector",
            node("n1"),
            None,
            pod("p", json!({"nodeSelector": {"a": "b"}})),
            "1 node(s) didn't match Pod's node affinity/selector",
            NO_HELP,
        ),
        (
            "ports",
            node("n1"),
            Some(taken(port.clone())),
            pod("p", port),
            "1 node(s) didn't have free ports for the requested pod ports",
            victims,
        ),
        (
            "affinity",
            node("n1"),
            None,
            pod(
                "p",
                json!({"affinity": {"podAffinity": {REQUIRED: [
                {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOST}]}}}),
            ),
            "1 node(s) didn't match pod affinity rules",
            NO_HELP,
        ),
        (
            "anti-affinity",
            node("n1"),
            Some(taken(json!({}))),
            pod("p", anti(HOST)),
            "1 node(s) didn't match pod anti-affinity rules",
            victims,
        ),
        (
            "anti-affinity of others",
            node("n1"),
            Some(taken(anti(HOST))),
            pod("p", json!({})),
            "1 node(s) didn't satisfy existing pods anti-affinity rules",
            victims,
        ),
        (
            "spreading without the label",
            node("n1"),
            None,
            pod(
                "p",
                json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]}),
            ),
            "1 node(s) didn't match pod topology spread constraints (missing required label)",
            NO_HELP,
        ),
        (
            "another resource",
            node("n1"),
            None,
            pod("p", json!({"containers": [{"image": "a", "resources": {"requests": {"a.com/gpu": "1"}}}]})),
            "1 Insufficient a.com/gpu",
            NO_HELP,
        ),
        (
            "a missing claim",
            node("n1"),
            None,
            pod("p", claims),
            "persistentvolumeclaim \"data\" not found",
            NO_HELP,
        ),
        (
            "a claim for a device",
            node("n1"),
            None,
            pod(
                "p",
                json!({"containers": [{}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}),
            ),
            "cannot allocate all claims",
            NO_HELP,
        ),
    ];
    for (what, node, there, pod, expected, preemption) in cases {
        let mut node = node;
        if node.get("status").is_none() {
            node["status"] = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}});
        }
        let mut world = World::new(&[node]);
        there.iter().for_each(|there| world.set_pod(there));
        let message = world.place(&pod).expect_err(what);
        assert_eq!(message, format!("0/1 nodes are available: {expected}. {preemption}"), "{what}");
    }
}

#[test]
fn without_nodes_there_is_nothing_to_choose_from() {
    let mut world = World::new(&[]);
    assert_eq!(world.place(&pod("p", json!({}))).unwrap_err(), "no nodes available to schedule pods");
    // A node makes it possible.
    world.set_node(&node("n1"));
    assert_eq!(world.decide(), [("p".to_owned(), Ok("n1".to_owned()))]);
}

#[test]
fn a_refusal_is_forgotten_with_the_last_of_its_kind() {
    let mut world = World::new(&[node("n1")]);
    let picky = pod("picky", json!({"nodeSelector": {"provider": "slurm"}}));
    assert!(world.place(&picky).is_err());
    world.delete_pod("picky");
    assert_eq!(world.place(&pod("plain", json!({}))), Ok("n1".to_owned()));
}

#[test]
fn too_many_pods_are_too_many() {
    let mut world = World::new(&[node("n1")]);
    for index in 0..10 {
        world.place(&pod(&format!("p{index}"), json!({}))).unwrap();
    }
    let message = world.place(&pod("p", json!({}))).unwrap_err();
    assert!(message.starts_with("0/1 nodes are available: 1 Too many pods. preemption:"), "{message}");
}

#[test]
fn a_pod_of_a_daemon_set_looks_at_its_node_only() {
    let spec = json!({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]}}}});
    let mut world = World::new(&[node("n1"), node("n2"), node("n3")]);
    assert_eq!(world.place(&pod("p1", spec.clone())), Ok("n2".to_owned()));
    world.set_pod(&on(asking("big", "4"), "n2"));
    let mut spec = spec;
    spec["containers"] = json!([{"image": "a", "resources": {"requests": {"cpu": "1"}}}]);
    let message = world.place(&pod("p2", spec)).unwrap_err();
    let expected =
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn the_emptier_node_is_better() {
    let mut world = World::new(&[node("n1"), node("n2"), node("n3")]);
    world.set_pod(&on(asking("a", "2"), "n1"));
    world.set_pod(&on(asking("b", "1"), "n3"));
    assert_eq!(world.place(&asking("p", "100m")), Ok("n2".to_owned()));
}

#[test]
fn equals_take_turns() {
    for scheduler in ["default-scheduler", "round-robin-scheduler"] {
        let mut world = World::new(&[node("n1"), node("n2"), node("n3")]);
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for index in 0..9 {
            let spec = json!({"schedulerName": scheduler});
            *counts.entry(world.place(&pod(&format!("p{index}"), spec)).unwrap()).or_default() += 1;
        }
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [3, 3, 3], "{scheduler}");
    }
}

/// Pods that are pinned, that go where memory is free, or that another profile places, take nobody's turn.
#[test]
fn only_pods_that_go_anywhere_take_turns() {
    let mut world = World::new(&[node("n1"), node("n2"), node("n3")]);
    let mut turns = Vec::new();
    for index in 0..4 {
        let in_turn =
            |name: &str| pod(&format!("{name}{index}"), json!({"schedulerName": "round-robin-scheduler"}));
        turns.push(world.place(&in_turn("p")).unwrap());
        for (label, value) in [("node", "n3"), ("resourcePolicy", "on")] {
            let mut other = in_turn(label);
            other["metadata"]["labels"][label] = value.into();
            world.place(&other).unwrap();
        }
        world.place(&pod(&format!("default{index}"), json!({}))).unwrap();
    }
    assert_eq!(turns, ["n1", "n2", "n3", "n1"]);
}

#[test]
fn the_seeds_labels_pin_and_prefer_free_memory() {
    let mut roomy = node("roomy");
    roomy["status"]["allocatable"]["memory"] = "16Gi".into();
    let mut world = World::new(&[node("n1"), roomy, node("n3")]);
    world.set_pod(&on(asking("busy", "3"), "roomy"));
    let mut pinned = pod("pinned", json!({}));
    pinned["metadata"]["labels"]["node"] = "n3".into();
    assert_eq!(world.place(&pinned), Ok("n3".to_owned()));
    let mut memory = pod("memory", json!({}));
    memory["metadata"]["labels"]["resourcePolicy"] = "on".into();
    assert_eq!(world.place(&memory), Ok("roomy".to_owned()));
    pinned["metadata"]["name"] = "lost".into();
    pinned["metadata"]["uid"] = "lost".into();
    pinned["metadata"]["labels"]["node"] = "gone".into();
    let message = world.place(&pinned).unwrap_err();
    assert!(message.contains("3 node(s) didn't match the requested node name"), "{message}");
}

#[test]
fn a_preferred_label_wins_and_a_soft_taint_loses() {
    let mut liked = node("liked");
    liked["metadata"]["labels"]["disk"] = "ssd".into();
    let mut tainted = node("a-tainted");
    tainted["spec"] = json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]});
    let mut world = World::new(&[tainted, node("n2"), liked]);
    let spec = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}]}}});
    assert_eq!(world.place(&pod("p1", spec)), Ok("liked".to_owned()));
    assert_ne!(world.place(&pod("p2", json!({}))), Ok("a-tainted".to_owned()));
}

#[test]
fn an_image_that_is_there_matters_if_it_is_large() {
    let mut holding = node("holding");
    holding["status"]["images"] = json!([{"names": ["big:1"], "sizeBytes": 900_000_000u64}]);
    let mut world = World::new(&[node("n1"), node("n2"), holding]);
    assert_eq!(world.place(&pod("p", json!({"containers": [{"image": "big:1"}]}))), Ok("holding".to_owned()));
}

#[test]
fn friends_are_near_and_the_first_may_go_anywhere() {
    let mut world = World::new(&[zoned("n1", "a"), zoned("n2", "b"), zoned("n3", "a")]);
    let spec = json!({"affinity": {"podAffinity": {REQUIRED: [term(ZONE)]}}});
    let zone_of = |node: &str| if node == "n2" { "b" } else { "a" };
    let first = world.place(&pod("p0", spec.clone())).unwrap();
    for index in 1..5 {
        let next = world.place(&pod(&format!("p{index}"), spec.clone())).unwrap();
        assert_eq!(zone_of(&next), zone_of(&first));
    }
}

#[test]
fn a_friend_that_comes_later_wakes_who_waits_for_it() {
    let mut world = World::new(&[node("n1"), node("n2")]);
    let mut lonely = pod("lonely", json!({"affinity": {"podAffinity": {REQUIRED: [term(HOST)]}}}));
    lonely["metadata"]["labels"] = json!({"app": "other"});
    assert!(world.place(&lonely).is_err());
    world.set_pod(&on(pod("friend", json!({})), "n2"));
    assert_eq!(world.decide(), [("lonely".to_owned(), Ok("n2".to_owned()))]);
}

#[test]
fn namespaces_are_chosen_by_their_labels() {
    let mut world = World::new(&[node("n1"), node("n2")]);
    let namespace = |labels: Value| {
        Object::Namespace(
            serde_json::from_value(json!({"metadata": {"name": "other", "labels": labels}})).unwrap(),
        )
    };
    world.set(namespace(json!({})));
    let mut there = on(pod("there", json!({})), "n1");
    there["metadata"]["namespace"] = "other".into();
    world.set_pod(&there);
    let mut near = term(HOST);
    near["namespaceSelector"] = json!({"matchLabels": {"team": "x"}});
    let mut asking = pod("p", json!({"affinity": {"podAffinity": {REQUIRED: [near]}}}));
    asking["metadata"]["labels"] = json!({"app": "else"});
    assert!(world.place(&asking).is_err());
    world.set(namespace(json!({"team": "x"})));
    assert_eq!(world.decide(), [("p".to_owned(), Ok("n1".to_owned()))]);
}

#[test]
fn match_label_keys_tell_revisions_apart() {
    let mut world = World::new(&[node("n1")]);
    let mut anti = term(HOST);
    anti["matchLabelKeys"] = json!(["revision"]);
    let spec = json!({"affinity": {"podAntiAffinity": {REQUIRED: [anti]}}});
    let of = |name: &str, revision: &str| {
        let mut pod = pod(name, spec.clone());
        pod["metadata"]["labels"]["revision"] = revision.into();
        pod
    };
    assert_eq!(world.place(&of("p1", "1")), Ok("n1".to_owned()));
    assert!(world.place(&of("p2", "1")).is_err());
    assert_eq!(world.place(&of("p3", "2")), Ok("n1".to_owned()));
}

#[test]
fn pods_are_spread_as_evenly_as_asked() {
    let mut world = World::new(&[zoned("n1", "a"), zoned("n2", "a"), zoned("n3", "b")]);
    let spec = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let mut in_b = 0;
    for index in 0..8 {
        in_b += i32::from(world.place(&pod(&format!("p{index}"), spec.clone())).unwrap() == "n3");
    }
    assert_eq!(in_b, 4);
}

#[test]
fn pods_of_a_set_are_spread_by_default() {
    let mut world = World::new(&[zoned("n1", "a"), zoned("n2", "b")]);
    let set = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    world.set(Object::Selecting(Kind::ReplicaSet, serde_json::from_value(set).unwrap()));
    world.set_pod(&on(pod("there", json!({})), "n1"));
    // It has more free, but a sibling.
    world.set_pod(&on(asking("load", "2500m"), "n2"));
    let mut stranger = asking("load2", "1");
    stranger["metadata"]["labels"] = json!({});
    world.set_pod(&on(stranger, "n2"));
    world.delete_pod("load");
    let mut owned = pod("p", json!({}));
    owned["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "name": "web", "controller": true}]);
    assert_eq!(world.place(&owned), Ok("n2".to_owned()));
}

#[test]
fn gates_hold_a_pod_until_they_are_gone() {
    let mut world = World::new(&[node("n1")]);
    world.set_pod(&pod("p", json!({"schedulingGates": [{"name": "wait"}]})));
    assert_eq!(world.decide(), []);
    world.set_pod(&pod("p", json!({})));
    assert_eq!(world.decide(), [("p".to_owned(), Ok("n1".to_owned()))]);
}

#[test]
fn pods_of_other_schedulers_are_left_alone() {
    let mut world = World::new(&[node("n1")]);
    world.set_pod(&pod("p", json!({"schedulerName": "mine"})));
    assert_eq!(world.decide(), []);
}

#[test]
fn room_that_is_too_small_wakes_nobody() {
    let mut world = World::new(&[node("n1"), node("n2")]);
    world.set_pod(&on(asking("a", "2"), "n1"));
    world.set_pod(&on(asking("b", "1"), "n1"));
    world.set_pod(&on(asking("c", "3"), "n2"));
    assert!(world.place(&asking("p", "3")).is_err());
    world.delete_pod("b");
    assert_eq!(world.decide(), []);
    world.delete_pod("a");
    assert_eq!(world.decide(), [("p".to_owned(), Ok("n1".to_owned()))]);
}

/// What preemption decides: the node, and who must go.
fn preemption(world: &mut World, pod: &Value) -> (Option<String>, Vec<String>, String) {
    world.set_pod(pod);
    world.now_ms += 60_000;
    match world.scheduler.next(world.now_ms) {
        Some(Decision::Refuse { nominated, victims, message, .. }) => {
            let mut names: Vec<String> = victims.into_iter().map(|victim| victim.name).collect();
            names.sort();
            (nominated, names, message)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_least_important_go_and_no_more_than_needed() {
    let mut world = World::new(&[node("n1"), node("n2")]);
    world.set_pod(&on(prioritized(asking("low", "2"), 1), "n1"));
    world.set_pod(&on(prioritized(asking("mid", "2"), 5), "n1"));
    world.set_pod(&on(prioritized(asking("high", "4"), 9), "n2"));
    let important = prioritized(asking("p", "2"), 10);
    let (node, victims, message) = preemption(&mut world, &important);
    assert_eq!((node.as_deref(), victims), (Some("n1"), vec!["low".to_owned()]));
    assert_eq!(message, "0/2 nodes are available: 2 Insufficient cpu.");
    // Its place is kept for it.
    world.delete_pod("low");
    world.set_pod(&asking("thief", "2"));
    let decided = world.decide();
    assert!(decided.contains(&("p".to_owned(), Ok("n1".to_owned()))), "{decided:?}");
    assert!(decided.iter().any(|(name, result)| name == "thief" && result.is_err()), "{decided:?}");
}

#[test]
fn a_pod_that_never_preempts_says_so() {
    let mut world = World::new(&[node("n1")]);
    world.set_pod(&on(asking("low", "4"), "n1"));
    let mut polite = prioritized(asking("p", "2"), 10);
    polite["spec"]["preemptionPolicy"] = "Never".into();
    let (node, victims, message) = preemption(&mut world, &polite);
    assert_eq!((node, victims.len()), (None, 0));
    assert_eq!(
        message,
        "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
    );
}

#[test]
fn a_budget_is_broken_only_if_there_is_no_other_way() {
    let mut world = World::new(&[node("n1"), node("n2")]);
    let mut guarded = on(asking("guarded", "4"), "n1");
    guarded["metadata"]["labels"] = json!({"app": "guarded"});
    world.set_pod(&guarded);
    world.set_pod(&on(prioritized(asking("more-important", "4"), 5), "n2"));
    let budget = json!({"metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "guarded"}}}, "status": {"disruptionsAllowed": 0}});
    world.set(Object::Selecting(Kind::Budget, serde_json::from_value(budget).unwrap()));
    let (node, victims, _) = preemption(&mut world, &prioritized(asking("p", "2"), 10));
    assert_eq!((node.as_deref(), victims), (Some("n2"), vec!["more-important".to_owned()]));
}

#[test]
fn who_refuses_the_pod_may_have_to_go() {
    let mut world = World::new(&[node("n1")]);
    let spec = json!({"affinity": {"podAntiAffinity": {REQUIRED: [term(HOST)]}}});
    world.set_pod(&on(pod("refusing", spec), "n1"));
    let (node, victims, _) = preemption(&mut world, &prioritized(pod("p", json!({})), 1));
    assert_eq!((node.as_deref(), victims), (Some("n1"), vec!["refusing".to_owned()]));
}

fn claim(world: &mut World, name: &str, spec: Value, phase: &str) {
    let claim = json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec, "status": {"phase": phase}});
    world.set(Object::Claim(serde_json::from_value(claim).unwrap()));
}

fn volume(world: &mut World, name: &str, node: &str) {
    let volume = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"}, "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"], "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": HOST, "operator": "In", "values": [node]}]}]}}}});
    world.set(Object::Volume(serde_json::from_value(volume).unwrap()));
}

fn with_claim(name: &str, claim: &str) -> Value {
    pod(name, json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}))
}

#[test]
fn a_pod_goes_where_its_volume_is() {
    let mut world = World::new(&[node("n1"), node("n2"), node("n3")]);
    volume(&mut world, "pv", "n2");
    claim(&mut world, "data", json!({"volumeName": "pv", "storageClassName": "local"}), "Bound");
    assert_eq!(world.place(&with_claim("p", "data")), Ok("n2".to_owned()));
    claim(&mut world, "late", json!({"storageClassName": "local"}), "Pending");
    let message = world.place(&with_claim("q", "late")).unwrap_err();
    let expected = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: \
        0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    assert_eq!(message, expected);
}

#[test]
fn a_pod_whose_claims_do_not_allow_it_is_tried_when_they_change() {
    let mut world = World::new(&[node("n1"), node("n2")]);
    volume(&mut world, "pv", "n2");
    let spec = |volume: &str| json!({"volumeName": volume, "storageClassName": "local"});
    claim(&mut world, "data", spec(""), "Pending");
    assert!(world.place(&with_claim("p", "data")).is_err());
    // Much happens that changes nothing for it.
    claim(&mut world, "data", spec(""), "Pending");
    claim(&mut world, "other", spec("else"), "Bound");
    volume(&mut world, "else", "n1");
    let before = world.place(&pod("before", json!({}))).unwrap();
    world.delete_pod("before");
    let mut more = node(&before);
    more["status"]["allocatable"]["cpu"] = "8".into();
    world.set_node(&more);
    assert_eq!(world.scheduler.next(world.now_ms).map(|_| "tried"), None);
    claim(&mut world, "data", spec("pv"), "Bound");
    assert_eq!(world.decide(), [("p".to_owned(), Ok("n2".to_owned()))]);
}

#[test]
fn a_pod_whose_volume_is_being_made_waits_for_that_alone() {
    let mut world = World::new(&[node("n1")]);
    let class = json!({"metadata": {"name": "made"}, "provisioner": "example.com/made", "volumeBindingMode": "WaitForFirstConsumer"});
    world.set(Object::StorageClass(serde_json::from_value(class).unwrap()));
    let spec = |volume: &str| json!({"storageClassName": "made", "volumeName": volume});
    claim(&mut world, "data", spec(""), "Pending");
    world.set_pod(&with_claim("p", "data"));
    let Some(Decision::Bind { target, claims, .. }) = world.scheduler.next(0) else { panic!("not placed") };
    assert!(matches!(claims.as_slice(), [ClaimAction::Provision { is_asked: false, .. }]), "{claims:?}");
    world.scheduler.bound(&target, &claims, Outcome::Waits, 0);
    assert!(world.scheduler.next(0).is_none(), "that it left the node again is no news");
    claim(&mut world, "data", spec(""), "Pending");
    assert!(world.scheduler.next(0).is_none(), "nor is the claim as it was");
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"storageClassName": "made"}});
    world.set(Object::Volume(serde_json::from_value(volume).unwrap()));
    claim(&mut world, "data", spec("pv"), "Bound");
    assert_eq!(world.decide(), [("p".to_owned(), Ok("n1".to_owned()))]);
}

#[test]
fn a_claim_that_waits_gets_a_volume_of_the_node() {
    let mut world = World::new(&[node("n1"), node("n2")]);
    let class = json!({"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"});
    world.set(Object::StorageClass(serde_json::from_value(class).unwrap()));
    let spec = json!({"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    claim(&mut world, "data", spec.clone(), "Pending");
    let message = world.place(&with_claim("p", "data")).unwrap_err();
    assert!(message.contains("2 node(s) didn't find available persistent volumes to bind"), "{message}");
    volume(&mut world, "pv", "n2");
    assert_eq!(world.decide(), [("p".to_owned(), Ok("n2".to_owned()))]);
    // The volume is promised.
    claim(&mut world, "more", spec, "Pending");
    assert!(world.place(&with_claim("q", "more")).is_err());
}

#[test]
fn only_one_pod_uses_a_claim_for_one_pod() {
    let mut world = World::new(&[node("n1"), node("n2")]);
    volume(&mut world, "pv", "n1");
    let spec = json!({"volumeName": "pv", "storageClassName": "local", "accessModes": ["ReadWriteOncePod"]});
    claim(&mut world, "data", spec, "Bound");
    assert_eq!(world.place(&with_claim("p", "data")), Ok("n1".to_owned()));
    let message = world.place(&with_claim("q", "data")).unwrap_err();
    assert!(message.contains("ReadWriteOncePod access mode already in-use by another pod"), "{message}");
    world.delete_pod("p");
    assert_eq!(world.decide(), [("q".to_owned(), Ok("n1".to_owned()))]);
}

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    Node(u8, u8, u8),
    DeleteNode(u8),
    Pod(u8, u8),
    Going(u8),
    DeletePod(u8),
    Decide,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..5u8, 0..3u8, 1..5u8).prop_map(|(node, zone, cpu)| Step::Node(node, zone, cpu)),
        1 => (0..5u8).prop_map(Step::DeleteNode),
        6 => (0..20u8, 0..6u8).prop_map(|(pod, kind)| Step::Pod(pod, kind)),
        1 => (0..20u8).prop_map(Step::Going),
        2 => (0..20u8).prop_map(Step::DeletePod),
        3 => Just(Step::Decide),
    ]
}

/// Pods of several kinds.
fn varied(name: &str, kind: u8) -> Value {
    let soft = json!([{"weight": 10, "podAffinityTerm": term(ZONE)}]);
    let spread = |action: &str| {
        json!([{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": {"app": "web"}}}])
    };
    let mut spec = match kind {
        0 => json!({}),
        1 => json!({"affinity": {"podAntiAffinity": {REQUIRED: [term(HOST)]}}}),
        2 => json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": soft}}}),
        3 => json!({"topologySpreadConstraints": spread("DoNotSchedule")}),
        4 => json!({"topologySpreadConstraints": spread("ScheduleAnyway"), "nodeSelector": {ZONE: "a"}}),
        _ => json!({"affinity": {"podAffinity": {REQUIRED: [term(ZONE)]}}}),
    };
    spec["containers"] = json!([{"image": "a", "resources": {"requests": {"cpu": "500m"}}}]);
    pod(name, spec)
}

/// What every kind of pod would be told by every node, and how they score.
fn opinions(cluster: &mut Cluster) -> BTreeMap<String, String> {
    let mut opinions = BTreeMap::new();
    for kind in 0..6 {
        let probe: wire::Pod = serde_json::from_value(varied("probe", kind)).unwrap();
        let change = cluster.set_pod(probe).unwrap();
        let class = cluster.pods[change.pod].class;
        if let Ok(view) = cluster.look(class) {
            let mut nodes = cluster.nodes.order.clone();
            nodes.sort_by_key(|node| cluster.node_name(*node).to_owned());
            let scores = cluster.scores(&view, &nodes);
            for (node, score) in nodes.iter().zip(scores) {
                let verdict = cluster.check(&view, *node);
                let usage = cluster.nodes.usage[*node as usize];
                opinions.insert(
                    format!("{kind} on {}", cluster.node_name(*node)),
                    format!("{verdict:?} {score} {usage:?}"),
                );
            }
        }
        cluster.delete_pod("default/probe");
    }
    opinions
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happened_the_state_is_that_of_the_objects(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::new(&[]);
        let (mut nodes, mut pods): (BTreeMap<String, Value>, BTreeMap<String, Value>) = Default::default();
        for step in steps {
            match step {
                Step::Node(id, zone, cpu) => {
                    let name = format!("n{id}");
                    let mut node = if zone == 2 { node(&name) } else { zoned(&name, ["a", "b"][zone as usize]) };
                    node["status"]["allocatable"]["cpu"] = cpu.to_string().into();
                    world.set_node(&node);
                    nodes.insert(name, node);
                }
                Step::DeleteNode(id) => {
                    let name = format!("n{id}");
                    world.scheduler.apply(Event::Delete(Kind::Node, String::new(), name.clone()), 0);
                    nodes.remove(&name);
                }
                Step::Pod(id, kind) => {
                    let name = format!("p{id}");
                    pods.entry(name.clone()).or_insert_with(|| {
                        let pod = varied(&name, kind);
                        world.set_pod(&pod);
                        pod
                    });
                }
                Step::Going(id) => {
                    if let Some(pod) = pods.get_mut(&format!("p{id}")) {
                        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                        world.set_pod(pod);
                    }
                }
                Step::DeletePod(id) => {
                    let name = format!("p{id}");
                    world.delete_pod(&name);
                    pods.remove(&name);
                }
                Step::Decide => {
                    for (name, result) in world.decide() {
                        if let Ok(node) = result && let Some(pod) = pods.get_mut(&name) {
                            pod["spec"]["nodeName"] = node.into();
                        }
                    }
                    // Only pods that were placed here run here, so nothing is overcommitted unless the node shrank.
                }
            }
        }
        let mut fresh = World::new(&[]);
        nodes.values().for_each(|node| fresh.set_node(node));
        pods.values().for_each(|pod| fresh.set_pod(pod));
        prop_assert_eq!(opinions(&mut world.scheduler.cluster), opinions(&mut fresh.scheduler.cluster));
    }

    #[test]
    fn no_node_is_given_more_than_it_has(cpus in proptest::collection::vec(1..6u32, 1..6), pods in proptest::collection::vec((0..6u8, 0..3i32), 1..60)) {
        let mut world = World::new(&[]);
        for (index, cpu) in cpus.iter().enumerate() {
            let mut node = zoned(&format!("n{index}"), ["a", "b"][index % 2]);
            node["status"]["allocatable"]["cpu"] = cpu.to_string().into();
            world.set_node(&node);
        }
        for (index, (kind, priority)) in pods.iter().enumerate() {
            world.set_pod(&prioritized(varied(&format!("p{index}"), *kind), *priority));
        }
        world.decide();
        for node in &world.scheduler.cluster.nodes.order {
            let usage = world.scheduler.cluster.nodes.usage[*node as usize];
            prop_assert!(usage.used_milli_cpu <= usage.milli_cpu && usage.used_pods <= usage.pods, "{:?}", usage);
        }
    }
}
