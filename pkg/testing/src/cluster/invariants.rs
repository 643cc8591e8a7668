//! Looks at every change of every pod and of what owns pods, by itself, and remembers what should never have been.

use crate::eventually;
use client::{AnyCache, Cache, Change, Informers};
use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// A rule over all pods, by their names: what is wrong, if something is.
type Rule = Box<dyn FnMut(&BTreeMap<String, Arc<Pod>>, &Change<Pod>) -> Option<String> + Send>;

/// Watches pods at every revision until it is dropped.
pub struct Invariants {
    state: Arc<Mutex<State>>,
    /// The uids of owners that were deleted.
    gone: Arc<Mutex<BTreeSet<String>>>,
    stop: CancellationToken,
}

struct State {
    pods: BTreeMap<String, Arc<Pod>>,
    rules: Vec<Rule>,
    violations: Vec<String>,
    seen: usize,
}

impl Invariants {
    /// Watches as this client; when this returns it knows all pods.
    pub async fn watch(client: Client) -> Invariants {
        let stop = CancellationToken::new();
        let informers = Informers::new(client, stop.clone());
        let pods: Cache<Pod> = informers.cache();
        let state = State { pods: BTreeMap::new(), rules: Vec::new(), violations: Vec::new(), seen: 0 };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        pods.subscribe(move |change| shared.lock().expect("no panics").look(change));
        let gone = Arc::default();
        watch_owners::<ReplicaSet>(&informers, &gone);
        watch_owners::<Job>(&informers, &gone);
        watch_owners::<StatefulSet>(&informers, &gone);
        watch_owners::<DaemonSet>(&informers, &gone);
        pods.synced().await;
        assert!(pods.is_synced());
        Invariants { state, gone, stop }
    }

    /// Waits until no pod is left whose owner was deleted.
    pub async fn no_pod_outlives_its_owner(&self) {
        eventually("the pods of deleted owners go", || async {
            let gone = self.gone.lock().expect("no panics");
            let state = self.state.lock().expect("no panics");
            let is_orphan = |pod: &Arc<Pod>| {
                pod.owner_references()
                    .iter()
                    .any(|owner| owner.controller == Some(true) && gone.contains(&owner.uid))
            };
            (!state.pods.values().any(is_orphan)).then_some(())
        })
        .await;
    }

    /// Never more than so many pods with this label on one node that are neither finished nor going.
    pub fn never_more_on_a_node_than(&self, label: (&str, &str), most: usize) {
        let label = (label.0.to_owned(), label.1.to_owned());
        self.rule(move |pods, _| {
            let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
            for pod in pods.values().filter(|pod| has(pod, &label) && is_active(pod)) {
                if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
                    *by_node.entry(node).or_default() += 1;
                }
            }
            let over = by_node.into_iter().find(|(_, count)| *count > most);
            over.map(|(node, count)| format!("{count} pods with {label:?} on {node}, more than {most}"))
        });
    }

    /// Never more than so many pods with this label that are neither finished nor going.
    pub fn never_more_than(&self, label: (&str, &str), most: usize) {
        let label = (label.0.to_owned(), label.1.to_owned());
        self.rule(move |pods, _| {
            let active: Vec<&Arc<Pod>> =
                pods.values().filter(|pod| has(pod, &label) && is_active(pod)).collect();
            let names = || active.iter().map(|pod| pod.name_any()).collect::<Vec<_>>().join(", ");
            (active.len() > most)
                .then(|| format!("{} pods with {label:?}, more than {most}: {}", active.len(), names()))
        });
    }

    /// From now on never fewer than so many pods with this label that are ready and not going.
    pub fn never_fewer_ready_than(&self, label: (&str, &str), least: usize) {
        let label = (label.0.to_owned(), label.1.to_owned());
        self.rule(move |pods, _| {
            let ready =
                pods.values().filter(|pod| has(pod, &label) && is_active(pod) && is_ready(pod)).count();
            (ready < least).then(|| format!("{ready} ready pods with {label:?}, fewer than {least}"))
        });
    }

    /// No node ever has pods that ask for more CPUs than this.
    pub fn no_node_over(&self, cpus: i64) {
        self.rule(move |pods, _| {
            let mut by_node: BTreeMap<&str, i64> = BTreeMap::new();
            for pod in pods.values().filter(|pod| !is_finished(pod)) {
                let Some(spec) = &pod.spec else { continue };
                let Some(node) = &spec.node_name else { continue };
                *by_node.entry(node).or_default() += spec.containers.iter().map(cpu_millis).sum::<i64>();
            }
            let over = by_node.into_iter().find(|(_, millis)| *millis > cpus * 1000);
            over.map(|(node, millis)| format!("{millis}m of CPU on {node}"))
        });
    }

    /// An index that has succeeded is not begun again.
    pub fn no_completed_index_runs_twice(&self) {
        let mut done: BTreeSet<(String, String)> = BTreeSet::new();
        self.rule(move |_, change| {
            let pod = change.object();
            let job = pod.labels().get("batch.kubernetes.io/job-name")?.clone();
            let index = pod.annotations().get("batch.kubernetes.io/job-completion-index")?.clone();
            let is_new = change.old.is_none();
            let is_succeeded = phase(pod) == "Succeeded";
            let key = (job, index);
            if is_new && !is_succeeded && done.contains(&key) {
                return Some(format!("index {} of {} runs again", key.1, key.0));
            }
            if is_succeeded {
                done.insert(key);
            }
            None
        });
    }

    fn rule(
        &self,
        rule: impl FnMut(&BTreeMap<String, Arc<Pod>>, &Change<Pod>) -> Option<String> + Send + 'static,
    ) {
        self.state.lock().expect("no panics").rules.push(Box::new(rule));
    }

    /// Fails the test if anything was ever wrong.
    pub fn hold(&self) {
        let state = self.state.lock().expect("no panics");
        assert!(state.violations.is_empty(), "of {} changes: {:#?}", state.seen, state.violations);
        assert!(state.seen > 0, "nothing was seen");
    }
}

fn watch_owners<K>(informers: &Informers, gone: &Arc<Mutex<BTreeSet<String>>>)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync,
    K: 'static,
{
    let gone = gone.clone();
    informers.cache_pruned::<K>(|_| {}).subscribe(move |change| {
        let uid = |object: &Option<Arc<K>>| object.as_ref().and_then(|object| object.uid());
        let (old, new) = (uid(&change.old), uid(&change.new));
        if old != new {
            gone.lock().expect("no panics").extend(old);
        }
    });
}

impl Drop for Invariants {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl State {
    fn look(&mut self, change: &Change<Pod>) {
        let key = change.key().to_string();
        match &change.new {
            Some(pod) => drop(self.pods.insert(key, pod.clone())),
            None => drop(self.pods.remove(&key)),
        }
        self.seen += 1;
        let version = change.object().resource_version().unwrap_or_default();
        for rule in &mut self.rules {
            if let Some(violation) = rule(&self.pods, change) {
                self.violations.push(format!("at {version}: {violation}"));
            }
        }
    }
}

fn has(pod: &Pod, label: &(String, String)) -> bool {
    pod.labels().get(&label.0) == Some(&label.1)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn cpu_millis(container: &k8s_openapi::api::core::v1::Container) -> i64 {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let cpu = requests.and_then(|requests| requests.get("cpu"));
    cpu.and_then(|cpu| cpu.0.parse::<api::Quantity>().ok()).map_or(0, |cpu| cpu.milli_value())
}
