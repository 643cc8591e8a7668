//! ReplicaSets and ReplicationControllers: so many pods of a template, at any time.
//!
//! ```text
//! claimed pods ──> active: too few → create, too many → delete the least useful ──> status
//! ```
//!
//! Both kinds are the same code over [`Replicated`].

mod kinds;
#[cfg(test)]
mod tests;

pub use kinds::{Replicated, Status};

use crate::pods;
use crate::runtime::{Context, Controller, Driver, Failure, Plan, Task, Write, claim, controller_of};
use client::{Cache, Key};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::HashMap;
use std::sync::Arc;

/// So many pods are created or deleted in one go.
const BURST: usize = 500;

/// Keeps ReplicaSets.
pub fn start(context: &Context) -> Task {
    drive::<ReplicaSet>(context)
}

/// Keeps ReplicationControllers.
pub fn start_replication_controllers(context: &Context) -> Task {
    drive::<ReplicationController>(context)
}

fn drive<K: Replicated>(context: &Context) -> Task {
    let (sets, all_pods) = (context.informers.cache::<K>(), pods::cache(&context.informers));
    pods::index_by_controller(&all_pods);
    pods::index_by_controller(&sets);
    let owners = sets.clone();
    Driver::new(context, Sets { sets: sets.clone(), pods: all_pods.clone() })
        .owns(&sets)
        .watches(&all_pods, move |change| {
            pods::owners(change, &owners, |set: &K, pod| pods::selects(&set.spec().selector, pod))
        })
        .task()
}

/// The controller of one of both kinds.
struct Sets<K> {
    sets: Cache<K>,
    pods: Cache<Pod>,
}

/// A set and what it may be about.
pub struct View<K> {
    /// The set.
    pub set: Arc<K>,
    /// Its pods, and those of its namespace that nobody controls.
    pub pods: Vec<Arc<Pod>>,
    /// The pods of sets with the same controller, by node: it is better to delete where there are many.
    pub related: HashMap<String, usize>,
}

impl<K: Replicated> Controller for Sets<K> {
    type View = View<K>;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View<K>>> {
        let Some(set) = self.sets.get(key) else { return Ok(None) };
        let pods = pods::claimable(&self.pods, set.as_ref());
        let mut view = View { set, pods, related: HashMap::new() };
        if view.pods.len() > view.set.spec().replicas {
            view.related = self.related(&view.set);
        }
        Ok(Some(view))
    }

    fn plan(&self, view: &View<K>, now: Timestamp) -> Plan {
        plan(view, now)
    }

    fn after_failure(
        &self,
        view: &View<K>,
        plan: &Plan,
        failure: &Failure,
        now: Timestamp,
    ) -> impl IntoIterator<Item = Write> {
        // A pod that could not be adopted is no failure of the set.
        let reason = match failure.write.verb {
            crate::runtime::Verb::Create => "FailedCreate",
            crate::runtime::Verb::Delete => "FailedDelete",
            _ => return None,
        };
        if failure.is_namespace_terminating() {
            return plan.status.clone();
        }
        let (active, terminating) = split(view);
        let failure = ReplicaSetCondition {
            type_: "ReplicaFailure".into(),
            status: "True".into(),
            reason: Some(reason.into()),
            message: Some(failure.message()),
            last_transition_time: Some(Time(now)),
        };
        status(view.set.as_ref(), &active, terminating, Some(failure), now)
    }
}

impl<K: Replicated> Sets<K> {
    fn related(&self, set: &K) -> HashMap<String, usize> {
        let sets = match controller_of(set) {
            Some(owner) => self.sets.by(pods::BY_CONTROLLER, &owner.uid),
            None => Vec::new(),
        };
        let uids = sets.iter().map(|set| set.meta().uid.clone()).chain([set.meta().uid.clone()]);
        let mut uids: Vec<String> = uids.flatten().collect();
        uids.sort();
        uids.dedup();
        let mut by_node = HashMap::new();
        for pod in uids.iter().flat_map(|uid| self.pods.by(pods::BY_CONTROLLER, uid)) {
            if pods::is_active(&pod) {
                *by_node.entry(node(&pod).to_owned()).or_default() += 1;
            }
        }
        by_node
    }
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// The pods that count, and how many are going.
fn split<K: Replicated>(view: &View<K>) -> (Vec<Arc<Pod>>, usize) {
    let selector = view.set.spec().selector;
    let active = view.pods.iter().filter(|pod| pods::is_active(pod)).cloned();
    let active = claim(view.set.as_ref(), &selector, active).owned;
    let uid = view.set.meta().uid.as_deref().unwrap_or_default();
    let terminating = view.pods.iter().filter(|pod| {
        pods::is_terminating(pod)
            && crate::runtime::controlled_by(pod.as_ref(), uid)
            && pods::selects(&selector, pod.as_ref())
    });
    (active, terminating.count())
}

/// What to do about a set.
pub fn plan<K: Replicated>(view: &View<K>, now: Timestamp) -> Plan {
    let (set, spec) = (view.set.as_ref(), view.set.spec());
    let candidates = view.pods.iter().filter(|pod| pods::is_active(pod)).cloned();
    let claims = claim(set, &spec.selector, candidates);
    let mut plan = Plan { writes: claims.writes, ..Plan::default() };
    if !plan.writes.is_empty() {
        // Who the pods belong to comes first; then they are counted.
        return plan;
    }
    let (mut active, terminating) = split(view);
    plan.status = status(set, &active, terminating, None, now);
    plan.look_again = pods::next_available(&active, spec.min_ready_seconds, now);
    if pods::is_going(set) {
        return plan;
    }
    if active.len() < spec.replicas {
        let pod = pods::from_template(spec.template, set);
        let missing = (spec.replicas - active.len()).min(BURST);
        plan.writes.extend((0..missing).map(|_| pods::create(&pod, set)));
    } else if active.len() > spec.replicas {
        let doubled = |pod: &Pod| view.related.get(node(pod)).copied().unwrap_or(0);
        active.sort_by_cached_key(|pod| pods::deletion_order(pod, doubled(pod), now));
        let surplus = (active.len() - spec.replicas).min(BURST);
        plan.writes.extend(active[..surplus].iter().map(|pod| pods::delete(pod, set)));
    }
    plan
}

/// The status, if it differs from that of the set.
fn status<K: Replicated>(
    set: &K,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<ReplicaSetCondition>,
    now: Timestamp,
) -> Option<Write> {
    let (spec, old) = (set.spec(), set.status());
    let labels = spec.template.metadata.as_ref().and_then(|meta| meta.labels.as_ref());
    let is_labeled = |pod: &Pod| {
        labels.into_iter().flatten().all(|(key, value)| {
            pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)) == Some(value)
        })
    };
    let count = |is: &dyn Fn(&Pod) -> bool| number(active.iter().filter(|pod| is(pod)).count());
    let mut conditions = old.conditions.clone();
    match failure {
        None => conditions.retain(|condition| condition.type_ != "ReplicaFailure"),
        // The first one stays, so that a failing set is not written at every try.
        Some(_) if conditions.iter().any(|condition| condition.type_ == "ReplicaFailure") => {}
        Some(failure) => conditions.push(failure),
    }
    let status = Status {
        replicas: number(active.len()),
        fully_labeled: count(&is_labeled),
        ready: count(&pods::is_ready),
        available: count(&|pod| pods::is_available(pod, spec.min_ready_seconds, now)),
        terminating: K::COUNTS_TERMINATING.then(|| number(terminating)),
        observed_generation: set.meta().generation.unwrap_or(0),
        conditions,
    };
    (status != old).then(|| Write::update_status(&set.with_status(status)))
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
