//! Node lifecycle: nodes whose kubelet is silent become Unknown, conditions become taints, pods of lost nodes not ready.
//!
//! ```text
//! Lease, heartbeat ──> silent for too long? ──> conditions Unknown ──> taints NoSchedule, NoExecute
//! Nodes of a zone  ──> how many are lost?   ──> how fast NoExecute is given out
//! ```
//!
//! What NoExecute does to pods is [`crate::taint_eviction`]'s business.

pub mod plan;

#[cfg(test)]
mod tests;

use crate::pods;
use crate::runtime::{Context, Controller, Driver, Plan, Task};
use client::{Cache, Change, Key};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use parking_lot::Mutex;
use plan::{View, Zone, condition, is_excluded, no_execute, zone_of};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const LEASES: &str = "kube-node-lease";
const BY_NODE: &str = "node";
/// A node that never said anything gets so long to begin.
const STARTUP_GRACE: Duration = Duration::from_secs(60);

struct Lifecycle {
    nodes: Cache<Node>,
    pods: Cache<Pod>,
    heartbeats: Arc<Heartbeats>,
    grace: Duration,
}

/// When each node was last heard of, by our own clock: the nodes' clocks may differ.
#[derive(Default)]
struct Heartbeats(Mutex<HashMap<String, Heartbeat>>);

#[derive(Clone)]
struct Heartbeat {
    renewed: Option<MicroTime>,
    posted: Option<Time>,
    heard: Instant,
}

/// Makes it.
pub fn start(context: &Context) -> Task {
    let informers = &context.informers;
    let nodes: Cache<Node> = informers.cache();
    let pods = pods::cache(informers);
    let leases: Cache<Lease> = informers.cache();
    pods.index(BY_NODE, |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
    let heartbeats: Arc<Heartbeats> = Arc::default();
    let controller = Lifecycle {
        nodes: nodes.clone(),
        pods: pods.clone(),
        heartbeats: heartbeats.clone(),
        grace: context.config.node_monitor_grace_period,
    };
    let (of_nodes, of_leases) = (heartbeats.clone(), heartbeats);
    Driver::new(context, controller)
        .watches(&nodes, move |change| {
            of_nodes.saw_node(change);
            vec![change.key()]
        })
        .watches(&leases, move |change| {
            of_leases.saw_lease(change);
            Vec::new()
        })
        .reads(&pods)
        .task()
}

impl Heartbeats {
    fn saw_node(&self, change: &Change<Node>) {
        let name = change.key().name;
        let Some(node) = &change.new else {
            self.0.lock().remove(&name);
            return;
        };
        let posted = condition(node, "Ready").and_then(|ready| ready.last_heartbeat_time.clone());
        self.heard(name, |known| {
            let news = known.posted != posted;
            known.posted = posted;
            news
        });
    }

    fn saw_lease(&self, change: &Change<Lease>) {
        let Some(lease) = &change.new else { return };
        let key = change.key();
        if key.namespace != LEASES {
            return;
        }
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        self.heard(key.name, |known| {
            let news = known.renewed != renewed;
            known.renewed = renewed;
            news
        });
    }

    fn heard(&self, node: String, is_news: impl FnOnce(&mut Heartbeat) -> bool) {
        let mut all = self.0.lock();
        let fresh = || Heartbeat { renewed: None, posted: None, heard: Instant::now() };
        let known = all.entry(node).or_insert_with(fresh);
        if is_news(known) {
            known.heard = Instant::now();
        }
    }

    fn silent_for(&self, node: &str) -> Duration {
        self.0.lock().get(node).map_or(Duration::ZERO, |known| known.heard.elapsed())
    }
}

impl Controller for Lifecycle {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(node) = self.nodes.get(key) else { return Ok(None) };
        let has_status = condition(&node, "Ready").is_some();
        let mut zones: BTreeMap<String, Zone> = BTreeMap::new();
        for other in self.nodes.list() {
            let zone = zones.entry(zone_of(&other)).or_default();
            if !is_excluded(&other) {
                let ready = condition(&other, "Ready").is_some_and(|ready| ready.status == "True");
                *(if ready { &mut zone.ready } else { &mut zone.not_ready }) += 1;
            }
            zone.last_evicted = zone.last_evicted.max(no_execute(&other));
        }
        let all_lost = zones.values().all(Zone::is_lost);
        let zone = zones.remove(&zone_of(&node)).unwrap_or_default();
        Ok(Some(View {
            pods: self.pods.by(BY_NODE, &key.name),
            silent_for: self.heartbeats.silent_for(&key.name),
            grace: if has_status { self.grace } else { STARTUP_GRACE },
            node,
            zone,
            all_lost,
        }))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan::plan(view, now)
    }
}
