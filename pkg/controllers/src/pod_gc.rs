//! Pod garbage collection: pods that nobody else will remove.
//!
//! Those on a node that is gone, those being deleted that never had a node, those on a node that an administrator gave
//! up, and the oldest of the finished where there are too many.

use crate::pods;
use crate::runtime::{Context, Controller, Driver, Plan, Task, Write};
use client::{Cache, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const BY_NODE: &str = "node";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// A node that is not there may only not be known yet.
const QUARANTINE: Duration = Duration::from_secs(40);
const MOST_MISSING: usize = 1000;
/// Stands for all finished pods.
const FINISHED: &str = "finished pods";

/// What a look is about.
#[derive(Debug)]
pub enum View {
    /// One pod.
    Pod(Arc<Pod>, Place),
    /// The finished pods, and how many there may be.
    Finished(Vec<Arc<Pod>>, usize),
}

/// Where a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On no node.
    Nowhere,
    /// On a node that does its work, or may do it again.
    Node,
    /// On a node that is not ready, and is said to be out of service.
    OutOfService,
    /// On a node that has not been there for so long.
    Missing(Duration),
    /// On a node that does not exist, as the server says.
    Gone,
}

/// What to do.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    match view {
        View::Finished(pods, most) => Plan { writes: over_threshold(pods, *most), ..Plan::default() },
        View::Pod(pod, place) => {
            let going = pod.metadata.deletion_timestamp.is_some();
            match place {
                Place::Missing(so_long) if *so_long < QUARANTINE => Plan::later(QUARANTINE - *so_long),
                Place::Gone => {
                    let condition = condition("DeletionByPodGC", "PodGC: node no longer exists", Time(now));
                    Plan { writes: fail_and_delete(pod, Some(condition)), ..Plan::default() }
                }
                Place::OutOfService | Place::Nowhere if going => {
                    Plan { writes: fail_and_delete(pod, None), ..Plan::default() }
                }
                _ => Plan::default(),
            }
        }
    }
}

/// A status patch that says a pod was deleted through no fault of its own; `None` if it says so.
pub fn disruption_target(pod: &Pod, reason: &str, message: &str, now: Time) -> Option<Write> {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let told = conditions.any(|found| {
        found.type_ == "DisruptionTarget" && found.status == "True" && found.reason.as_deref() == Some(reason)
    });
    let patch = json!({"status": {"conditions": [condition(reason, message, now)]}});
    (!told).then(|| Write::strategic_patch(pod, patch).on("status").tolerating(404))
}

fn condition(reason: &str, message: &str, now: Time) -> Value {
    json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    })
}

/// Nobody will report what became of the pod, so it failed.
fn fail_and_delete(pod: &Pod, condition: Option<Value>) -> Vec<Write> {
    let mut writes = Vec::new();
    if !is_finished(pod) {
        let conditions: Vec<Value> = condition.into_iter().collect();
        let patch = json!({"status": {"phase": "Failed", "conditions": conditions}});
        writes.push(Write::strategic_patch(pod, patch).on("status").tolerating(404));
    }
    let mut delete = Write::delete(pod);
    delete.body["gracePeriodSeconds"] = json!(0);
    writes.push(delete);
    writes
}

/// Those that were evicted go first, then the oldest.
fn over_threshold(pods: &[Arc<Pod>], most: usize) -> Vec<Write> {
    let mut pods: Vec<&Arc<Pod>> = pods.iter().collect();
    let evicted =
        |pod: &Pod| pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some("Evicted");
    pods.sort_by_cached_key(|pod| {
        (!evicted(pod), pod.metadata.creation_timestamp.clone(), Key::of(pod.as_ref()))
    });
    let excess = pods.len().saturating_sub(most);
    pods.into_iter().take(excess).flat_map(|pod| fail_and_delete(pod, None)).collect()
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

struct Collector {
    client: Client,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    threshold: usize,
    /// Since when nodes that pods are on have not been there.
    missing: Mutex<HashMap<String, Instant>>,
}

/// Makes it.
pub fn start(context: &Context) -> Task {
    let (pods, nodes): (_, Cache<Node>) = (pods::cache(&context.informers), context.informers.cache());
    pods.index(BY_NODE, |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
    let threshold = context.config.terminated_pod_gc_threshold;
    let controller = Collector {
        client: context.client.clone(),
        pods: pods.clone(),
        nodes: nodes.clone(),
        threshold,
        missing: Mutex::default(),
    };
    let of_node = pods.clone();
    Driver::new(context, controller)
        .watches(&pods, |change| {
            let Some(pod) = &change.new else { return Vec::new() };
            let finished = is_finished(pod) && !change.old.as_ref().is_some_and(|old| is_finished(old));
            let mut keys = vec![change.key()];
            keys.extend(finished.then(|| Key::cluster(FINISHED)));
            keys
        })
        .watches(&nodes, move |change| {
            let pods = of_node.by(BY_NODE, &change.key().name);
            let going = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_some() || change.new.is_none();
            pods.iter().filter(going).map(|pod| Key::of(pod.as_ref())).collect()
        })
        .task()
}

impl Controller for Collector {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        if *key == Key::cluster(FINISHED) {
            let finished = || self.pods.list().into_iter().filter(|pod| is_finished(pod));
            let over = self.threshold > 0 && finished().count() > self.threshold;
            return Ok(over.then(|| View::Finished(finished().collect(), self.threshold)));
        }
        let Some(pod) = self.pods.get(key) else { return Ok(None) };
        let place = self.place(&pod).await?;
        Ok(Some(View::Pod(pod, place)))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan(view, now)
    }
}

impl Collector {
    async fn place(&self, pod: &Pod) -> kube::Result<Place> {
        let Some(name) = node_name(pod) else { return Ok(Place::Nowhere) };
        if let Some(node) = self.nodes.get(&Key::cluster(name)) {
            self.missing.lock().remove(name);
            let out = !is_ready(&node) && has_taint(&node, OUT_OF_SERVICE);
            return Ok(if out { Place::OutOfService } else { Place::Node });
        }
        let so_long = {
            let mut missing = self.missing.lock();
            // Nodes whose pods are gone too are not looked at again.
            if missing.len() >= MOST_MISSING && !missing.contains_key(name) {
                missing.clear();
            }
            missing.entry(name.to_owned()).or_insert_with(Instant::now).elapsed()
        };
        if so_long < QUARANTINE {
            return Ok(Place::Missing(so_long));
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        Ok(if nodes.get_metadata_opt(name).await?.is_some() { Place::Node } else { Place::Gone })
    }
}

fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, phase: &str, more: Value) -> Arc<Pod> {
        let mut metadata = json!({"name": name, "namespace": "default", "uid": name});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let pod = json!({"metadata": metadata, "status": {"phase": phase}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn pods_go_that_nobody_else_removes() {
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let minute = Duration::from_secs(60);
        // (name, pod, place, writes, looked at again in)
        let cases = [
            ("as it should be", pod("p", "Running", json!({})), Place::Node, 0, None),
            ("ends by itself", pod("p", "Running", going.clone()), Place::Node, 0, None),
            ("waits for a node", pod("p", "Pending", json!({})), Place::Nowhere, 0, None),
            ("never had a node", pod("p", "Pending", going.clone()), Place::Nowhere, 2, None),
            ("given up", pod("p", "Running", going), Place::OutOfService, 2, None),
            ("stays there", pod("p", "Running", json!({})), Place::OutOfService, 0, None),
            ("missing", pod("p", "Running", json!({})), Place::Missing(minute / 2), 0, Some(10)),
            ("gone", pod("p", "Running", json!({})), Place::Gone, 2, None),
            ("gone, had finished", pod("p", "Failed", json!({})), Place::Gone, 1, None),
        ];
        for (name, pod, place, writes, again) in cases {
            let plan = plan(&View::Pod(pod, place), now());
            assert_eq!(plan.writes.len(), writes, "{name}");
            assert_eq!(plan.look_again, again.map(Duration::from_secs), "{name}");
            if place == Place::Gone && writes == 2 {
                let condition = &plan.writes[0].body["status"]["conditions"][0];
                assert_eq!(condition["message"], "PodGC: node no longer exists");
                assert_eq!(plan.writes[0].body["status"]["phase"], "Failed");
                assert_eq!(plan.writes[1].body["gracePeriodSeconds"], 0);
            }
        }
    }

    #[test]
    fn of_too_many_finished_the_oldest_go() {
        let created = |at: &str| json!({"creationTimestamp": format!("2026-01-01T00:00:{at}Z")});
        let mut evicted = Pod::clone(&pod("evicted", "Failed", created("09")));
        evicted.status.as_mut().unwrap().reason = Some("Evicted".into());
        let pods = vec![
            pod("new", "Failed", created("03")),
            pod("old", "Succeeded", created("01")),
            pod("older", "Succeeded", created("00")),
            Arc::new(evicted),
        ];
        let names = |most: usize| -> Vec<String> {
            let plan = plan(&View::Finished(pods.clone(), most), now());
            plan.writes.iter().map(|write| write.target.key.name.clone()).collect()
        };
        assert_eq!(names(2), ["evicted", "older"]);
        assert!(names(4).is_empty());
    }
}
