//! Taint eviction: pods on a node with a NoExecute taint that they do not tolerate, or not for that long, are deleted.

use crate::pods;
use crate::runtime::{Context, Controller, Driver, Note, Plan, Task, Write};
use api::taints::tolerates;
use client::{Cache, Change, Key, reference};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const BY_NODE: &str = "node";

/// A pod on a node with NoExecute taints.
#[derive(Debug)]
pub struct View {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The NoExecute taints of its node.
    pub taints: Vec<Taint>,
    /// How long the pod has been seen with them.
    pub for_so_long: Duration,
    /// Whether the pod was to be deleted, and this is over.
    pub reprieved: bool,
}

/// What to do about the pod.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let pod = view.pod.as_ref();
    if view.reprieved {
        plan.tell(event(pod, "Cancelling deletion of Pod"));
    }
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    match tolerated_for(&view.taints, tolerations.collect::<Vec<_>>().as_slice()) {
        None => {}
        Some(limit) if limit > view.for_so_long => plan.look_again = Some(limit - view.for_so_long),
        Some(_) => {
            plan.tell(event(pod, "Marking for deletion Pod"));
            plan.writes.extend(disruption(pod, now));
            plan.writes.push(Write::delete(pod));
        }
    }
    plan
}

fn event(pod: &Pod, what: &str) -> Note {
    let regarding = ObjectReference { resource_version: None, ..reference(pod) };
    Note::normal(regarding, "TaintManagerEviction", format!("{what} {}", Key::of(pod)))
}

/// Marks the pod as one that was not at fault, unless it is marked.
fn disruption(pod: &Pod, now: Timestamp) -> Option<Write> {
    crate::pod_gc::disruption_target(
        pod,
        "DeletionByTaintManager",
        "Taint manager: deleting due to NoExecute taint",
        Time(now),
    )
}

/// For how long the taints are tolerated; `None` for ever.
fn tolerated_for(taints: &[Taint], tolerations: &[&Toleration]) -> Option<Duration> {
    let mut shortest = None;
    for taint in taints {
        let matching: Vec<_> =
            tolerations.iter().filter(|toleration| tolerates(**toleration, taint)).collect();
        if matching.is_empty() {
            return Some(Duration::ZERO);
        }
        for seconds in matching.iter().filter_map(|toleration| toleration.toleration_seconds) {
            let limit = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            shortest = Some(shortest.map_or(limit, |shorter: Duration| shorter.min(limit)));
        }
    }
    shortest
}

struct Evictor {
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    /// Since when pods have been on a node with NoExecute taints, by uid.
    since: Mutex<HashMap<String, Instant>>,
}

/// Makes it.
pub fn start(context: &Context) -> Task {
    let (pods, nodes): (_, Cache<Node>) = (pods::cache(&context.informers), context.informers.cache());
    pods.index(BY_NODE, |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
    let evictor = Evictor { pods: pods.clone(), nodes: nodes.clone(), since: Mutex::default() };
    let of_node = pods.clone();
    Driver::new(context, evictor)
        .owns(&pods)
        .watches(&nodes, move |change| {
            let pods = if changed(change) { of_node.by(BY_NODE, &change.key().name) } else { Vec::new() };
            pods.iter().map(|pod| Key::of(pod.as_ref())).collect()
        })
        .task()
}

fn changed(change: &Change<Node>) -> bool {
    let taints = |node: &Option<Arc<Node>>| node.as_deref().map(no_execute).unwrap_or_default();
    taints(&change.old) != taints(&change.new)
}

fn no_execute(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

impl Controller for Evictor {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(pod) = self.pods.get(key) else { return Ok(None) };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let node = node.and_then(|name| self.nodes.get(&Key::cluster(name)));
        let taints = node.as_deref().map(no_execute).unwrap_or_default();
        let going = pod.metadata.deletion_timestamp.is_some();
        let mut since = self.since.lock();
        if taints.is_empty() || going {
            let waited = since.remove(&uid).is_some() && !going;
            let tolerant = tolerated_always(&pod);
            let view = View { pod, taints, for_so_long: Duration::ZERO, reprieved: true };
            return Ok((waited && !tolerant).then_some(view));
        }
        if since.len() > self.pods.len() {
            // Some were deleted while they waited.
            let known: std::collections::HashSet<_> =
                self.pods.list().iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
            since.retain(|uid, _| known.contains(uid));
        }
        let for_so_long = since.entry(uid).or_insert_with(Instant::now).elapsed();
        Ok(Some(View { pod, taints, for_so_long, reprieved: false }))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan(view, now)
    }
}

/// Whether a pod stays whatever the taints are.
fn tolerated_always(pod: &Pod) -> bool {
    let mut tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations.any(|toleration| {
        toleration.operator.as_deref() == Some("Exists")
            && toleration.key.as_deref().unwrap_or_default().is_empty()
            && toleration.toleration_seconds.is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn view(taints: Value, tolerations: Value, seconds: u64) -> View {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"containers": [], "tolerations": tolerations},
        });
        View {
            pod: Arc::new(serde_json::from_value(pod).unwrap()),
            taints: serde_json::from_value(taints).unwrap(),
            for_so_long: Duration::from_secs(seconds),
            reprieved: false,
        }
    }

    #[test]
    fn tolerations_decide_when() {
        let a = json!({"key": "a", "value": "1", "effect": "NoExecute"});
        let b = json!({"key": "b", "effect": "NoExecute"});
        let for_a = |seconds: Value| json!({"key": "a", "operator": "Equal", "value": "1", "effect": "NoExecute", "tolerationSeconds": seconds});
        let any = |seconds: Value| json!({"operator": "Exists", "tolerationSeconds": seconds});
        let null = Value::Null;
        // (name, taints, tolerations, seconds so far, deleted, looked at again in)
        let cases = [
            ("no taint", json!([]), json!([]), 9, false, None),
            ("not tolerated", json!([a]), json!([]), 0, true, None),
            ("tolerated", json!([a]), json!([for_a(null.clone())]), 9, false, None),
            (
                "another value",
                json!([{"key": "a", "value": "2", "effect": "NoExecute"}]),
                json!([for_a(null.clone())]),
                0,
                true,
                None,
            ),
            ("for a while", json!([a]), json!([for_a(json!(300))]), 100, false, Some(200)),
            ("no longer", json!([a]), json!([for_a(json!(300))]), 300, true, None),
            ("one of two", json!([a, b]), json!([for_a(null.clone())]), 0, true, None),
            ("the shortest", json!([a, b]), json!([for_a(json!(60)), any(json!(30))]), 10, false, Some(20)),
            ("everything", json!([a, b]), json!([any(null)]), 10, false, None),
            ("at once", json!([a]), json!([any(json!(0))]), 0, true, None),
        ];
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        for (name, taints, tolerations, seconds, deleted, again) in cases {
            let plan = plan(&view(taints, tolerations, seconds), now);
            assert_eq!(plan.writes.len(), if deleted { 2 } else { 0 }, "{name}");
            assert_eq!(plan.look_again, again.map(Duration::from_secs), "{name}");
            if deleted {
                assert_eq!(plan.events[0].message, "Marking for deletion Pod default/p", "{name}");
                let condition = &plan.writes[0].body["status"]["conditions"][0];
                assert_eq!(condition["type"], "DisruptionTarget");
                assert_eq!(condition["reason"], "DeletionByTaintManager");
            }
        }
    }
}
