//! What to do about one node. One kind of write at a time: each changes the node's version.

use crate::runtime::{Note, Plan, Write};
use client::reference;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, ObjectReference, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Condition, status and the taint that follows from it.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// Nodes of a zone are evicted one after the other, so far apart.
const BETWEEN_EVICTIONS: Duration = Duration::from_secs(10);
/// The same where most of a large zone is lost. Of a small one, none is evicted.
const BETWEEN_EVICTIONS_DISRUPTED: Duration = Duration::from_secs(100);
const LARGE_ZONE: usize = 50;
/// Where other nodes decide what becomes of this one, it is looked at so often.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What is known of a node.
#[derive(Debug)]
pub struct View {
    /// The node.
    pub node: Arc<Node>,
    /// The pods on it.
    pub pods: Vec<Arc<Pod>>,
    /// How long nothing was heard of it.
    pub silent_for: Duration,
    /// How long that is fine.
    pub grace: Duration,
    /// The state of its zone.
    pub zone: Zone,
    /// Whether no zone has a ready node: then it is rather we who are cut off.
    pub all_lost: bool,
}

/// How a zone does.
#[derive(Debug, Default, Clone)]
pub struct Zone {
    /// Nodes that are ready.
    pub ready: usize,
    /// Nodes that are not.
    pub not_ready: usize,
    /// When a node of it was last given a NoExecute taint by us.
    pub last_evicted: Option<Timestamp>,
}

impl Zone {
    /// Whether it has nodes and none is ready.
    pub fn is_lost(&self) -> bool {
        self.ready == 0 && self.not_ready > 0
    }

    fn is_disrupted(&self) -> bool {
        self.not_ready > 2 && self.not_ready * 100 >= (self.ready + self.not_ready) * 55
    }

    /// How long one eviction is after another; `None` for never.
    fn between_evictions(&self) -> Option<Duration> {
        if self.is_lost() || !self.is_disrupted() {
            Some(BETWEEN_EVICTIONS)
        } else {
            (self.ready + self.not_ready > LARGE_ZONE).then_some(BETWEEN_EVICTIONS_DISRUPTED)
        }
    }
}

/// A condition of a node.
pub fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// The region and zone of a node.
pub fn zone_of(node: &Node) -> String {
    let label = |name: &str| {
        node.metadata.labels.as_ref().and_then(|labels| labels.get(name)).map_or("", String::as_str)
    };
    format!("{}:{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
}

/// Whether a node does not count when zones are judged.
pub fn is_excluded(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key("node.kubernetes.io/exclude-disruption"))
}

/// When we gave a node its NoExecute taint, if it has one.
pub fn no_execute(node: &Node) -> Option<Timestamp> {
    let taints = taints(node).iter();
    taints
        .filter(|taint| is_no_execute(taint))
        .filter_map(|taint| taint.time_added.as_ref())
        .map(|time| time.0)
        .max()
}

/// Decides.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if view.silent_for > view.grace {
        if let Some(silent) = with_unknown_conditions(&view.node, now) {
            if condition(&view.node, "Ready").is_some_and(|ready| ready.status == "True") {
                plan.tell(not_ready_event(&view.node));
            }
            plan.writes.push(Write::update_status(&silent));
            return plan;
        }
    } else {
        let left = view.grace - view.silent_for + Duration::from_millis(1);
        plan.look_again_in(left);
    }
    plan.writes = pods_not_ready(view, now);
    let (wanted, wait) = wanted_taints(view, now);
    if let Some(wait) = wait {
        plan.look_again_in(wait);
    }
    if !same(&wanted, taints(&view.node)) {
        let patch = json!({
            "metadata": {"resourceVersion": view.node.metadata.resource_version},
            "spec": {"taints": wanted},
        });
        plan.writes.push(Write::merge_patch(view.node.as_ref(), patch));
    }
    plan
}

fn not_ready_event(node: &Node) -> Note {
    let name = node.metadata.name.clone().unwrap_or_default();
    let message = format!("Node {name} status is now: NodeNotReady");
    // Upstream refers to nodes so, and kubectl looks for that.
    let regarding = ObjectReference { resource_version: None, ..reference(node) };
    Note::normal(regarding, "NodeNotReady", message)
}

/// The node with what its kubelet reports unknown; `None` if it is so already.
fn with_unknown_conditions(node: &Node, now: Timestamp) -> Option<Node> {
    if condition(node, "Ready").is_some_and(|ready| ready.status == "Unknown") {
        return None;
    }
    let mut next = node.clone();
    let conditions = next.status.get_or_insert_default().conditions.get_or_insert_default();
    for kind in REPORTED {
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            Some(known) if known.status == "Unknown" => {}
            Some(known) => {
                known.status = "Unknown".to_owned();
                known.reason = Some("NodeStatusUnknown".to_owned());
                known.message = Some("Kubelet stopped posting node status.".to_owned());
                known.last_transition_time = Some(Time(now));
            }
            None => conditions.push(NodeCondition {
                type_: kind.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(Time(now)),
            }),
        }
    }
    Some(next)
}

/// Pods that were ready when the node was last heard of. Of a node that is heard of, whatever it says of itself, its kubelet
/// knows best which of its pods serve; so with what became ready later.
fn pods_not_ready(view: &View, now: Timestamp) -> Vec<Write> {
    let Some(unknown) = condition(&view.node, "Ready").filter(|ready| ready.status == "Unknown") else {
        return Vec::new();
    };
    let lost = unknown.last_transition_time.as_ref();
    let stale = |pod: &&Arc<Pod>| {
        let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| {
            condition.type_ == "Ready"
                && condition.status == "True"
                && condition.last_transition_time.as_ref() <= lost
        })
    };
    let pods = view.pods.iter().filter(stale);
    pods.map(|pod| {
        let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": Time(now)});
        let done = Note::warning(reference(pod.as_ref()), "NodeNotReady", "Node is not ready");
        let failed = Note { message: "Node is not ready".to_owned(), ..done.clone() };
        let mut write = Write::strategic_patch(pod.as_ref(), json!({"status": {"conditions": [condition]}}))
            .on("status")
            .tolerating(404)
            .told(done, failed);
        write.failed = None;
        write
    })
    .collect()
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn is_no_execute(taint: &Taint) -> bool {
    taint.effect == "NoExecute" && (taint.key == NOT_READY || taint.key == UNREACHABLE)
}

fn is_ours(taint: &Taint) -> bool {
    let known = taint.key == UNSCHEDULABLE || TAINTS.iter().any(|(_, _, key)| *key == taint.key);
    is_no_execute(taint) || taint.effect == "NoSchedule" && known
}

/// The taints that the node should have, and how long until it may have another.
fn wanted_taints(view: &View, now: Timestamp) -> (Vec<Taint>, Option<Duration>) {
    let node = &view.node;
    let mut wanted: Vec<Taint> = taints(node).iter().filter(|taint| !is_ours(taint)).cloned().collect();
    let mut add = |key: &str, effect: &str| {
        let same = |taint: &&Taint| taint.key == key && taint.effect == effect;
        let known = taints(node).iter().find(same).cloned();
        wanted.push(known.unwrap_or_else(|| Taint {
            key: key.to_owned(),
            effect: effect.to_owned(),
            time_added: Some(Time(now)),
            value: None,
        }));
    };
    for (kind, status, key) in TAINTS {
        if condition(node, kind).is_some_and(|condition| condition.status == status) {
            add(key, "NoSchedule");
        }
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false) {
        add(UNSCHEDULABLE, "NoSchedule");
    }
    let evicting = match condition(node, "Ready").map(|ready| ready.status.as_str()) {
        Some("False") => NOT_READY,
        Some("Unknown") => UNREACHABLE,
        _ => return (wanted, None),
    };
    if view.all_lost {
        return (wanted, Some(LOOK_AGAIN));
    }
    let wait = eviction_delay(view, now);
    match wait {
        Some(Duration::ZERO) => add(evicting, "NoExecute"),
        Some(wait) => return (wanted, Some(wait)),
        None => return (wanted, Some(LOOK_AGAIN)),
    }
    (wanted, None)
}

/// How long until the node may be given NoExecute; `None` if not for now.
fn eviction_delay(view: &View, now: Timestamp) -> Option<Duration> {
    // One taint for another is no new eviction.
    if taints(&view.node).iter().any(is_no_execute) {
        return Some(Duration::ZERO);
    }
    let between = view.zone.between_evictions()?;
    let since = view.zone.last_evicted.map(|last| now.duration_since(last).unsigned_abs());
    Some(since.map_or(Duration::ZERO, |since| between.saturating_sub(since)))
}

fn same(a: &[Taint], b: &[Taint]) -> bool {
    a.len() == b.len() && a.iter().all(|taint| b.contains(taint))
}
