//! DaemonSets: one pod on every node that fits.
//!
//! ```text
//! nodes ──should_run──> a pod pinned to each by affinity ──> updated by deleting first, or by surging
//! ```

mod nodes;
#[cfg(test)]
mod tests;
mod update;

use crate::history::{self, Present};
use crate::pods::{self, nonzero};
use crate::runtime::{Context, Controller, Driver, Failure, Note, Plan, Task, Write, claim};
use client::{Cache, Key, reference};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use nodes::{Fit, fit, target_node};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

const HASH_LABEL: &str = "controller-revision-hash";
const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
const BURST: usize = 250;
const LONGEST_BACK_OFF: i64 = 900;

/// Keeps DaemonSets.
pub fn start(context: &Context) -> Task {
    let informers = &context.informers;
    let (sets, all_pods, nodes) =
        (informers.cache::<DaemonSet>(), pods::cache(informers), informers.cache::<Node>());
    let revisions = informers.cache::<ControllerRevision>();
    pods::index_by_controller(&all_pods);
    pods::index_by_controller(&revisions);
    let (owners, of_nodes) = (sets.clone(), sets.clone());
    let controller = DaemonSets {
        sets: sets.clone(),
        pods: all_pods.clone(),
        nodes: nodes.clone(),
        revisions: revisions.clone(),
        failures: Mutex::default(),
        clock: context.clock.clone(),
    };
    let selects = |set: &DaemonSet, pod: &Pod| {
        set.spec.as_ref().is_some_and(|spec| pods::selects(&pods::selector(&spec.selector), pod))
    };
    Driver::new(context, controller)
        .owns(&sets)
        .watches(&all_pods, move |change| pods::owners(change, &owners, selects))
        .watches(&nodes, move |change| match (&change.old, &change.new) {
            (Some(old), Some(new)) if nodes::is_same(old, new) => Vec::new(),
            _ => of_nodes.list().iter().map(|set| Key::of(set.as_ref())).collect(),
        })
        .reads(&revisions)
        .task()
}

struct DaemonSets {
    sets: Cache<DaemonSet>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    revisions: Cache<ControllerRevision>,
    /// Of each set and node: how often its pod failed, when last, and which pod that was.
    failures: Mutex<HashMap<(String, String), Failures>>,
    clock: crate::runtime::Clock,
}

#[derive(Clone)]
struct Failures {
    count: u32,
    last: Timestamp,
    pod: String,
}

/// A DaemonSet and what it may be about.
pub struct View {
    /// The set.
    pub set: Arc<DaemonSet>,
    /// Its pods, and those of its namespace that nobody controls.
    pub pods: Vec<Arc<Pod>>,
    /// All nodes.
    pub nodes: Vec<Arc<Node>>,
    /// Its revisions, and those that nobody controls.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// When a failed pod may be deleted, by node: a pod that always fails is not replaced at once.
    pub not_before: HashMap<String, Timestamp>,
}

impl Controller for DaemonSets {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(set) = self.sets.get(key) else { return Ok(None) };
        let pods = pods::claimable(&self.pods, set.as_ref());
        let not_before = self.count_failures(&set.uid().unwrap_or_default(), &pods);
        let revisions = pods::claimable(&self.revisions, set.as_ref());
        Ok(Some(View { set, pods, nodes: self.nodes.list(), revisions, not_before }))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan(view, now)
    }

    fn after_failure(
        &self,
        view: &View,
        plan: &Plan,
        failure: &Failure,
        _: Timestamp,
    ) -> impl IntoIterator<Item = Write> {
        if !history::is_collision(failure) {
            return plan.status.clone();
        }
        let mut set = view.set.as_ref().clone();
        history::count_collision(&mut set.status.get_or_insert_default().collision_count);
        Some(Write::update_status(&set))
    }
}

impl DaemonSets {
    fn count_failures(&self, set: &str, pods: &[Arc<Pod>]) -> HashMap<String, Timestamp> {
        let now = self.clock.now();
        let mut failures = self.failures.lock();
        failures.retain(|_, failed| {
            now.duration_since(failed.last) < SignedDuration::from_secs(2 * LONGEST_BACK_OFF)
        });
        let mut not_before = HashMap::new();
        let failed = pods.iter().filter(|pod| pods::phase(pod) == "Failed" && !pods::is_going(pod.as_ref()));
        for (node, pod) in failed.filter_map(|pod| Some((target_node(pod)?, pod.uid()?))) {
            let entry = failures.entry((set.to_owned(), node.clone())).or_insert_with(|| Failures {
                count: 0,
                last: now,
                pod: String::new(),
            });
            if entry.pod != pod {
                *entry = Failures { count: entry.count + 1, last: now, pod };
            }
            // The first is replaced at once.
            let wait =
                if entry.count <= 1 { 0 } else { 2i64.saturating_pow(entry.count - 2).min(LONGEST_BACK_OFF) };
            not_before.insert(node, entry.last + SignedDuration::from_secs(wait));
        }
        not_before
    }
}

/// What to do about a DaemonSet.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    let set = view.set.as_ref();
    let Some(spec) = set.spec.as_ref().filter(|_| !pods::is_going(set)) else { return Plan::default() };
    let selector = pods::selector(&spec.selector);
    if selector.is_everything() {
        let mut plan = Plan::default();
        let why = "This daemon set is selecting all pods. A non-empty selector is required.";
        plan.tell(Note::warning(reference(set), "SelectingAll", why));
        return plan;
    }
    let claims = claim(set, &selector, view.pods.iter().cloned());
    let (revisions, adoptions) =
        history::claim(set, &view.revisions, |revision| pods::selects(&selector, revision));
    if !claims.writes.is_empty() || !adoptions.is_empty() {
        return Plan { writes: claims.writes.into_iter().chain(adoptions).collect(), ..Plan::default() };
    }
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let create = |number| {
        let hash = crate::hash::template_hash(&spec.template, collisions);
        history::new(set, &spec.template, number, &hash, HASH_LABEL)
    };
    let current = match history::present(&revisions, &spec.template, create) {
        Present::Latest(current) => current,
        Present::Write(write) => return Plan { writes: vec![*write], ..Plan::default() },
    };
    let hash = current.labels().get(HASH_LABEL).cloned().unwrap_or_default();
    let mut step = Step::new(view, claims.owned, hash, now);
    step.manage();
    if step.plan.writes.is_empty() {
        step.update();
    }
    let live = |revision: &ControllerRevision| {
        let hash = revision.labels().get(HASH_LABEL);
        revision.metadata.uid == current.metadata.uid
            || step.pods.values().flatten().any(|pod| pod.labels().get(HASH_LABEL) == hash)
    };
    let truncated = history::truncate(&revisions, live, spec.revision_history_limit);
    let status = step.status();
    let mut plan = step.plan;
    plan.writes.extend(truncated);
    plan.status = status;
    let all: Vec<&Arc<Pod>> = claims_of(&view.pods);
    if let Some(after) = pods::next_available(all, spec.min_ready_seconds.unwrap_or(0), now) {
        plan.look_again_in(after);
    }
    plan
}

fn claims_of(pods: &[Arc<Pod>]) -> Vec<&Arc<Pod>> {
    pods.iter().filter(|pod| crate::runtime::controller_of(pod.as_ref()).is_some()).collect()
}

/// One step towards a pod on every node.
struct Step<'a> {
    set: &'a DaemonSet,
    view: &'a View,
    /// The pods by the node that they are on or for.
    pods: BTreeMap<String, Vec<Arc<Pod>>>,
    fits: BTreeMap<String, Fit>,
    hash: String,
    min_ready: i32,
    now: Timestamp,
    plan: Plan,
}

impl<'a> Step<'a> {
    fn new(view: &'a View, owned: Vec<Arc<Pod>>, hash: String, now: Timestamp) -> Step<'a> {
        let mut pods: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in owned {
            if let Some(node) = target_node(&pod) {
                pods.entry(node).or_default().push(pod);
            }
        }
        for pods in pods.values_mut() {
            // Those that are on the node already come first, then the oldest.
            pods.sort_by_key(|pod| (pods::phase(pod) == "Pending", pod.creation_timestamp(), pod.name_any()));
        }
        let fits = view.nodes.iter().map(|node| (node.name_any(), fit(&view.set, node))).collect();
        let min_ready = view.set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
        Step { set: &view.set, view, pods, fits, hash, min_ready, now, plan: Plan::default() }
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.min_ready, self.now)
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        let generation = self.set.annotations().get(GENERATION_ANNOTATION);
        pod.labels().get(HASH_LABEL) == Some(&self.hash)
            || generation.is_some_and(|generation| pod.labels().get(GENERATION_LABEL) == Some(generation))
    }

    fn allows_surge(&self) -> bool {
        self.limits().0 > 0
    }

    /// Pods where they are missing, none where they should not be, one where they are double.
    fn manage(&mut self) {
        let (mut create, mut delete) = (Vec::new(), Vec::new());
        let fits = self.fits.clone();
        for (node, fit) in &fits {
            let pods = self.pods.get(node).cloned().unwrap_or_default();
            match fit {
                Fit::Runs if pods.is_empty() => create.push(node.clone()),
                Fit::Runs | Fit::Stays => {
                    let running = self.without_ended(node, &pods, &mut delete);
                    let is_missing = *fit == Fit::Runs && running.is_empty() && self.allows_surge();
                    if is_missing && delete.iter().all(|gone: &Arc<Pod>| !pods.contains(gone)) {
                        create.push(node.clone());
                    }
                    self.without_doubles(&running, &mut delete);
                }
                Fit::Goes => delete.extend(pods.into_iter().filter(|pod| !pods::is_going(pod.as_ref()))),
            }
        }
        // Pods that wait for a node which is gone.
        let waits = |pod: &&Arc<Pod>| {
            pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()) && !pods::is_going(pod.as_ref())
        };
        let gone = self.pods.iter().filter(|(node, _)| !fits.contains_key(*node));
        delete.extend(gone.flat_map(|(_, pods)| pods.iter().filter(waits).cloned()));
        self.write(create, delete);
    }

    /// The pods that run or will; those that have ended are to be deleted.
    fn without_ended(&mut self, node: &str, pods: &[Arc<Pod>], delete: &mut Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
        let mut running = Vec::new();
        for pod in pods.iter().filter(|pod| !pods::is_going(pod.as_ref())) {
            let name = Key::of(pod.as_ref());
            match pods::phase(pod) {
                "Failed" => {
                    let not_before = self.view.not_before.get(node).copied().unwrap_or(self.now);
                    if let Some(wait) =
                        Duration::try_from(not_before.duration_since(self.now)).ok().and_then(nonzero)
                    {
                        self.plan.look_again_in(wait);
                        continue;
                    }
                    let message =
                        format!("Found failed daemon pod {name} on node {node}, will try to kill it");
                    self.plan.tell(Note::warning(reference(self.set), "FailedDaemonPod", message));
                    delete.push(pod.clone());
                }
                "Succeeded" => {
                    let message =
                        format!("Found succeeded daemon pod {name} on node {node}, will try to delete it");
                    self.plan.tell(Note::normal(reference(self.set), "SucceededDaemonPod", message));
                    delete.push(pod.clone());
                }
                _ => running.push(pod.clone()),
            }
        }
        running
    }

    /// More than one on a node: the oldest stays; with surge, the oldest of each version, until the new one is available.
    fn without_doubles(&self, running: &[Arc<Pod>], delete: &mut Vec<Arc<Pod>>) {
        if !self.allows_surge() {
            delete.extend(running.iter().skip(1).cloned());
            return;
        }
        let is_new = |pod: &&Arc<Pod>| pod.labels().get(HASH_LABEL) == Some(&self.hash);
        let (new, old): (Vec<_>, Vec<_>) = running.iter().partition(is_new);
        delete.extend(new.iter().skip(1).chain(old.iter().skip(1)).map(|pod| Arc::clone(pod)));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!pods::is_ready(old) || self.is_available(new))
        {
            delete.push(Arc::clone(old));
        }
    }

    /// Creates pods for these nodes, and deletes these pods.
    fn write(&mut self, create: Vec<String>, delete: Vec<Arc<Pod>>) {
        let create = create.iter().take(BURST).map(|node| {
            let pod = nodes::pod(self.set, node, &self.hash);
            pods::create(&pod, self.set)
        });
        let mut writes: Vec<Write> = create.collect();
        writes.extend(delete.iter().take(BURST).map(|pod| pods::delete(pod, self.set)));
        self.plan.writes.extend(writes);
    }

    /// The status, if it differs from that of the set.
    fn status(&self) -> Option<Write> {
        let old = self.set.status.clone().unwrap_or_default();
        let mut status = DaemonSetStatus {
            observed_generation: self.set.metadata.generation,
            collision_count: old.collision_count,
            conditions: old.conditions.clone(),
            ..DaemonSetStatus::default()
        };
        let (mut updated, mut available) = (0, 0);
        for (node, fit) in &self.fits {
            let first = self.pods.get(node).and_then(|pods| pods.first());
            match (fit, first) {
                (Fit::Runs, first) => {
                    status.desired_number_scheduled += 1;
                    let Some(pod) = first else { continue };
                    status.current_number_scheduled += 1;
                    status.number_ready += i32::from(pods::is_ready(pod));
                    available += i32::from(self.is_available(pod));
                    updated += i32::from(self.is_updated(pod));
                }
                (_, Some(_)) => status.number_misscheduled += 1,
                (_, None) => {}
            }
        }
        status.updated_number_scheduled = nonzero(updated);
        status.number_available = nonzero(available);
        status.number_unavailable = nonzero(status.desired_number_scheduled - available);
        let normal = DaemonSetStatus {
            updated_number_scheduled: old.updated_number_scheduled.and_then(nonzero),
            number_available: old.number_available.and_then(nonzero),
            number_unavailable: old.number_unavailable.and_then(nonzero),
            ..old
        };
        (status != normal).then(|| {
            let mut set = self.set.clone();
            set.status = Some(status);
            Write::update_status(&set)
        })
    }
}
