//! Tables over the plan.

use super::plan::{View, Zone, plan};
use crate::runtime::Plan;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn node(ready: &str, taints: Value, more: Value) -> Arc<Node> {
    let mut conditions = vec![
        json!({"type": "Ready", "status": ready, "reason": "r", "lastTransitionTime": "2026-01-01T00:30:00Z"}),
    ];
    conditions.extend(more["conditions"].as_array().cloned().unwrap_or_default());
    let node = json!({
        "metadata": {"name": "n1", "uid": "u", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"taints": taints, "unschedulable": more["unschedulable"].as_bool()},
        "status": {"conditions": conditions},
    });
    Arc::new(serde_json::from_value(node).unwrap())
}

fn view(node: Arc<Node>) -> View {
    View {
        node,
        pods: vec![],
        silent_for: Duration::from_secs(10),
        grace: Duration::from_secs(50),
        zone: Zone { ready: 3, not_ready: 1, last_evicted: None },
        all_lost: false,
    }
}

/// The taints that a plan sets: `key:effect`.
fn tainted(plan: &Plan) -> Option<Vec<String>> {
    let write = plan.writes.iter().find(|write| write.target.kind == "Node")?;
    assert_eq!(write.body["metadata"], json!({"resourceVersion": "5", "uid": "u"}));
    let text = |value: &Value| value.as_str().unwrap().trim_start_matches("node.kubernetes.io/").to_owned();
    let taints = write.body["spec"]["taints"].as_array().unwrap().iter();
    Some(taints.map(|taint| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]))).collect())
}

fn taint(key: &str, effect: &str) -> Value {
    json!({"key": format!("node.kubernetes.io/{key}"), "effect": effect, "timeAdded": "2026-01-01T00:59:55Z"})
}

#[test]
fn conditions_become_taints() {
    let own = json!({"key": "mine", "effect": "NoSchedule"});
    let pressure = json!({"conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "DiskPressure", "status": "Unknown"}]});
    let both = |key: &str| json!([taint(key, "NoSchedule"), taint(key, "NoExecute")]);
    let cases = [
        ("fine", node("True", json!([]), json!({})), None),
        ("own taints stay", node("True", json!([own]), json!({})), None),
        (
            "not ready",
            node("False", json!([]), json!({})),
            Some(vec!["not-ready:NoSchedule", "not-ready:NoExecute"]),
        ),
        (
            "unreachable",
            node("Unknown", json!([own]), json!({})),
            Some(vec!["mine:NoSchedule", "unreachable:NoSchedule", "unreachable:NoExecute"]),
        ),
        (
            "from one to the other",
            node("Unknown", both("not-ready"), json!({})),
            Some(vec!["unreachable:NoSchedule", "unreachable:NoExecute"]),
        ),
        ("it is so", node("Unknown", both("unreachable"), json!({})), None),
        ("back", node("True", both("unreachable"), json!({})), Some(vec![])),
        ("pressure", node("True", json!([]), pressure), Some(vec!["memory-pressure:NoSchedule"])),
        (
            "cordoned",
            node("True", json!([]), json!({"unschedulable": true})),
            Some(vec!["unschedulable:NoSchedule"]),
        ),
        ("uncordoned", node("True", json!([taint("unschedulable", "NoSchedule")]), json!({})), Some(vec![])),
    ];
    for (name, node, expected) in cases {
        let expected = expected.map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(tainted(&plan(&view(node), now())), expected, "{name}");
    }
}

#[test]
fn a_silent_node_becomes_unknown() {
    let mut silent = view(node("True", json!([]), json!({})));
    silent.silent_for = Duration::from_secs(51);
    let plan = plan(&silent, now());
    assert_eq!(plan.events[0].message, "Node n1 status is now: NodeNotReady");
    assert_eq!(plan.writes.len(), 1);
    let conditions = &plan.writes[0].body["status"]["conditions"];
    assert_eq!(plan.writes[0].target.subresource, "status");
    let ready = json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.", "lastTransitionTime": "2026-01-01T01:00:00Z"});
    assert_eq!(conditions[0], ready);
    let memory = json!({"type": "MemoryPressure", "status": "Unknown", "reason": "NodeStatusNeverUpdated",
        "message": "Kubelet never posted node status.", "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T01:00:00Z"});
    assert_eq!(conditions[1], memory);
    assert_eq!(conditions.as_array().unwrap().len(), 4);
}

#[test]
fn a_node_that_talks_is_looked_at_when_its_grace_ends() {
    let plan = plan(&view(node("True", json!([]), json!({}))), now());
    assert!(plan.is_quiet());
    assert_eq!(plan.look_again, Some(Duration::from_millis(40_001)));
}

#[test]
fn evictions_are_slow_and_stop_where_most_is_lost() {
    let ago = |seconds: i64| Some(now() - jiff::SignedDuration::from_secs(seconds));
    let zone = |ready, not_ready, last_evicted| Zone { ready, not_ready, last_evicted };
    let cases = [
        ("the first", zone(3, 1, None), false, true, None),
        ("the next, soon after", zone(3, 2, ago(4)), false, false, Some(6)),
        ("the next, later", zone(3, 2, ago(10)), false, true, None),
        ("most of a small zone is lost", zone(2, 8, None), false, false, Some(5)),
        ("most of a large zone is lost", zone(20, 80, ago(30)), false, false, Some(70)),
        ("a whole zone of several", zone(0, 8, None), false, true, None),
        ("everything", zone(0, 8, None), true, false, Some(5)),
    ];
    for (name, zone, all_lost, evicts, again) in cases {
        let mut view = view(node("Unknown", json!([]), json!({})));
        (view.zone, view.all_lost, view.silent_for) = (zone, all_lost, Duration::from_secs(99));
        let plan = plan(&view, now());
        let taints = tainted(&plan).unwrap();
        assert_eq!(taints.contains(&"unreachable:NoExecute".to_owned()), evicts, "{name}");
        assert!(taints.contains(&"unreachable:NoSchedule".to_owned()), "{name}");
        assert_eq!(plan.look_again, again.map(Duration::from_secs), "{name}");
    }
}

#[test]
fn everything_lost_takes_evictions_back() {
    let both = json!([taint("unreachable", "NoSchedule"), taint("unreachable", "NoExecute")]);
    let mut view = view(node("Unknown", both, json!({})));
    view.all_lost = true;
    assert_eq!(tainted(&plan(&view, now())), Some(vec!["unreachable:NoSchedule".to_owned()]));
}

#[test]
fn pods_of_a_lost_node_are_not_ready() {
    let pod = |ready: &str, since: &str| -> Arc<Pod> {
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
        let pod = json!({"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "status": {"conditions": [condition]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    let cases = [
        ("ready before", "Unknown", pod("True", "2026-01-01T00:10:00Z"), 1),
        ("not ready", "Unknown", pod("False", "2026-01-01T00:10:00Z"), 0),
        ("ready since, says its kubelet", "Unknown", pod("True", "2026-01-01T00:40:00Z"), 0),
        ("the node says that it is not ready", "False", pod("True", "2026-01-01T00:10:00Z"), 0),
        ("the node is fine", "True", pod("True", "2026-01-01T00:10:00Z"), 0),
    ];
    for (name, ready, pod, patches) in cases {
        let mut view = view(node(ready, json!([]), json!({})));
        view.pods = vec![pod];
        let plan = plan(&view, now());
        let pods: Vec<_> = plan.writes.iter().filter(|write| write.target.kind == "Pod").collect();
        assert_eq!(pods.len(), patches, "{name}");
        if let Some(patch) = pods.first() {
            assert_eq!(patch.target.path(), "/api/v1/namespaces/default/pods/p/status");
            assert_eq!(patch.body["status"]["conditions"][0]["status"], "False");
        }
    }
}
