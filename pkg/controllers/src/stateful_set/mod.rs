//! StatefulSets: pods with names, storage and an order.
//!
//! ```text
//! web-0 → web-1 → web-2   created upwards, deleted and updated downwards, each when the one before is available
//! ```
//!
//! `podManagementPolicy: Parallel` does not wait, except while updating.

mod identity;
#[cfg(test)]
mod tests;

use crate::history::{self, Present};
use crate::pods::{self, nonzero};
use crate::runtime::{Context, Controller, Driver, Failure, Plan, Task, Write, claim};
use client::{Cache, Key};
use identity::{Claims, HASH_LABEL, REVISION_LABEL, created, deleted, ordinal, parent};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keeps StatefulSets.
pub fn start(context: &Context) -> Task {
    let informers = &context.informers;
    let (sets, all_pods) = (informers.cache::<StatefulSet>(), pods::cache(informers));
    let (revisions, claims) =
        (informers.cache::<ControllerRevision>(), informers.cache::<PersistentVolumeClaim>());
    pods::index_by_controller(&all_pods);
    pods::index_by_controller(&revisions);
    let owners = sets.clone();
    let controller = StatefulSets {
        sets: sets.clone(),
        pods: all_pods.clone(),
        revisions: revisions.clone(),
        claims: claims.clone(),
    };
    let selects = |set: &StatefulSet, pod: &Pod| {
        set.spec.as_ref().is_some_and(|spec| pods::selects(&pods::selector(&spec.selector), pod))
    };
    Driver::new(context, controller)
        .owns(&sets)
        .watches(&all_pods, move |change| pods::owners(change, &owners, selects))
        .reads(&revisions)
        .reads(&claims)
        .task()
}

struct StatefulSets {
    sets: Cache<StatefulSet>,
    pods: Cache<Pod>,
    revisions: Cache<ControllerRevision>,
    claims: Cache<PersistentVolumeClaim>,
}

/// A StatefulSet and what it may be about.
pub struct View {
    /// The set.
    pub set: Arc<StatefulSet>,
    /// Its pods, and those of its namespace that nobody controls.
    pub pods: Vec<Arc<Pod>>,
    /// Its revisions, and those that nobody controls.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The claims of its namespace that may be its own, by name.
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
}

impl Controller for StatefulSets {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(set) = self.sets.get(key) else { return Ok(None) };
        let templates = set.spec.iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
        let prefixes: Vec<String> =
            templates.map(|template| format!("{}-{}-", template.name_any(), key.name)).collect();
        let claims = if prefixes.is_empty() { Vec::new() } else { self.claims.in_namespace(&key.namespace) };
        let claims = claims.into_iter().map(|claim| (claim.name_any(), claim));
        let is_ours = |(name, _): &(String, _)| prefixes.iter().any(|prefix| name.starts_with(prefix));
        Ok(Some(View {
            pods: pods::claimable(&self.pods, set.as_ref()),
            revisions: pods::claimable(&self.revisions, set.as_ref()),
            claims: claims.filter(is_ours).collect(),
            set,
        }))
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

/// What to do about a StatefulSet.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    let set = view.set.as_ref();
    let Some(spec) = &set.spec else { return Plan::default() };
    let selector = pods::selector(&spec.selector);
    let name = set.name_any();
    let members = view.pods.iter().filter(|pod| parent(pod) == Some(&name)).cloned();
    let claims = claim(set, &selector, members);
    let (revisions, adoptions) =
        history::claim(set, &view.revisions, |revision| pods::selects(&selector, revision));
    if !claims.writes.is_empty() || !adoptions.is_empty() {
        return Plan { writes: claims.writes.into_iter().chain(adoptions).collect(), ..Plan::default() };
    }
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let create = |number| {
        let hash = crate::hash::json_hash(&spec.template, Some(collisions.unwrap_or(0)));
        history::new(set, &spec.template, number, &hash, HASH_LABEL)
    };
    let update = match history::present(&revisions, &spec.template, create) {
        Present::Latest(update) => update,
        Present::Write(_) if pods::is_going(set) => return Plan::default(),
        Present::Write(write) => return Plan { writes: vec![*write], ..Plan::default() },
    };
    let current_name = set.status.as_ref().and_then(|status| status.current_revision.as_ref());
    let current = revisions.iter().find(|revision| revision.metadata.name.as_ref() == current_name);
    let current = current.unwrap_or(&update).clone();
    let mut step = Step::new(view, claims.owned, current, update, now);
    if !pods::is_going(set) {
        step.reconcile();
    }
    let live = |revision: &ControllerRevision| {
        let name = revision.name_any();
        name == step.current.name_any()
            || name == step.update.name_any()
            || step.pods.iter().any(|pod| pod.labels().get(REVISION_LABEL) == Some(&name))
    };
    let mut writes = step.writes.clone();
    writes.extend(history::truncate(&revisions, live, spec.revision_history_limit));
    let look_again = pods::next_available(&step.pods, spec.min_ready_seconds.unwrap_or(0), now);
    Plan { writes, status: step.status(), events: Vec::new(), look_again }
}

/// One step towards what is wanted.
struct Step<'a> {
    set: &'a StatefulSet,
    claims: Claims<'a>,
    pods: Vec<Arc<Pod>>,
    current: Arc<ControllerRevision>,
    update: Arc<ControllerRevision>,
    min_ready: i32,
    now: Timestamp,
    writes: Vec<Write>,
    /// Pods of the current revision that are deleted to be updated.
    outdated: i32,
}

impl<'a> Step<'a> {
    fn new(
        view: &'a View,
        mut pods: Vec<Arc<Pod>>,
        current: Arc<ControllerRevision>,
        update: Arc<ControllerRevision>,
        now: Timestamp,
    ) -> Step<'a> {
        pods.sort_by_key(|pod| ordinal(pod));
        let spec = view.set.spec.as_ref();
        Step {
            set: &view.set,
            claims: Claims { set: &view.set, known: &view.claims },
            pods,
            current,
            update,
            min_ready: spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0),
            now,
            writes: Vec::new(),
            outdated: 0,
        }
    }

    fn wanted(&self) -> i32 {
        self.set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn start(&self) -> i32 {
        let ordinals = self.set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref());
        ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0)
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        !pods::is_available(pod, self.min_ready, self.now) || pods::is_going(pod)
    }

    fn reconcile(&mut self) {
        let spec = self.set.spec.as_ref();
        let ordered = spec.and_then(|spec| spec.pod_management_policy.as_deref()) != Some("Parallel");
        let (first, end) = (self.start(), self.start() + self.wanted());
        let pods = self.pods.clone();
        let find = |wanted: i32| pods.iter().find(|pod| ordinal(pod) == Some(wanted));
        for number in first..end {
            if self.replica(number, find(number), ordered) && ordered {
                return;
            }
        }
        let mut condemned: Vec<&Arc<Pod>> = pods
            .iter()
            .filter(|pod| ordinal(pod).is_some_and(|number| number < first || number >= end))
            .collect();
        for pod in &condemned {
            self.writes.extend(self.claims.keep_owned(pod, true));
        }
        condemned.reverse();
        let in_range = (first..end).filter_map(find);
        let unhealthy: Option<String> = in_range
            .chain(condemned.iter().rev().copied())
            .find(|pod| self.is_unavailable(pod))
            .and_then(|pod| pod.uid());
        for pod in condemned {
            if self.condemn(pod, unhealthy.as_deref(), ordered) && ordered {
                return;
            }
        }
        // In order means that everything is as it should be by now; in parallel it may be under way.
        if self.writes.is_empty() && (first..end).all(|number| find(number).is_some()) {
            self.roll(&find, first, end);
        }
    }

    /// Brings one replica about. True if those after it have to wait.
    fn replica(&mut self, number: i32, pod: Option<&Arc<Pod>>, ordered: bool) -> bool {
        let Some(pod) = pod else {
            let pod = self.new_pod(number);
            self.writes.extend(self.claims.missing(&pod));
            self.writes.push(created(&pod, self.set));
            return true;
        };
        if pods::is_finished(pod) {
            if !pods::is_going(pod.as_ref()) {
                self.writes.push(deleted(pod, self.set));
            }
            return true;
        }
        if pods::phase(pod) == "Pending" {
            self.writes.extend(self.claims.missing(pod));
        }
        if ordered && self.is_unavailable(pod) {
            return true;
        }
        self.writes.extend(self.claims.keep_owned(pod, false));
        self.writes.extend(identity::corrected(pod, self.set));
        false
    }

    /// Takes away one replica that is too many. True if those after it have to wait.
    fn condemn(&mut self, pod: &Arc<Pod>, unhealthy: Option<&str>, ordered: bool) -> bool {
        if pods::is_going(pod.as_ref()) {
            return true;
        }
        let is_first_unhealthy = pod.uid().as_deref() == unhealthy;
        if ordered && self.is_unavailable(pod) && !is_first_unhealthy {
            return true;
        }
        self.writes.push(deleted(pod, self.set));
        true
    }

    /// Deletes the last pod that is of an old revision, when all after it are available.
    fn roll<'b>(&mut self, find: &impl Fn(i32) -> Option<&'b Arc<Pod>>, first: i32, end: i32) {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return;
        }
        let update = self.update.name_any();
        for number in (first + self.partition().unwrap_or(0)..end).rev() {
            let Some(pod) = find(number) else { return };
            if pod.labels().get(REVISION_LABEL) != Some(&update) && !pods::is_going(pod.as_ref()) {
                self.writes.push(deleted(pod, self.set));
                self.outdated +=
                    i32::from(pod.labels().get(REVISION_LABEL) == Some(&self.current.name_any()));
                return;
            }
            if self.is_unavailable(pod) {
                return;
            }
        }
    }

    fn partition(&self) -> Option<i32> {
        let strategy = self.set.spec.as_ref()?.update_strategy.as_ref()?;
        Some(strategy.rolling_update.as_ref()?.partition.unwrap_or(0))
    }

    /// A pod of the revision that this ordinal is to have.
    fn new_pod(&self, number: i32) -> Pod {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let is_rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete");
        let currents = self.set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or(0);
        let is_current = match self.partition() {
            Some(partition) => number < self.start() + partition,
            None => is_rolling && number < self.start() + currents,
        };
        let revision = if is_current { &self.current } else { &self.update };
        let fallback = || self.set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
        let template: PodTemplateSpec = history::template(revision).unwrap_or_else(fallback);
        identity::pod(self.set, &template, number, &revision.name_any())
    }

    /// The status, if it differs from that of the set.
    fn status(&self) -> Option<Write> {
        let (current, update) = (self.current.name_any(), self.update.name_any());
        let count = |is: &dyn Fn(&Pod) -> bool| {
            i32::try_from(self.pods.iter().filter(|pod| is(pod)).count()).unwrap_or(i32::MAX)
        };
        let of = |revision: &String| {
            count(&|pod| pod.labels().get(REVISION_LABEL) == Some(revision) && !pods::is_going(pod))
        };
        let ready = count(&|pod| pods::phase(pod) == "Running" && pods::is_ready(pod));
        let available =
            count(&|pod| pods::phase(pod) == "Running" && pods::is_available(pod, self.min_ready, self.now));
        let replicas = count(&|pod| !pods::phase(pod).is_empty());
        let old = self.set.status.clone().unwrap_or_default();
        let mut status = StatefulSetStatus {
            observed_generation: self.set.metadata.generation,
            replicas,
            ready_replicas: nonzero(ready),
            available_replicas: Some(available),
            current_replicas: nonzero(of(&current) - self.outdated),
            updated_replicas: nonzero(of(&update)),
            current_revision: Some(current),
            update_revision: Some(update.clone()),
            collision_count: Some(old.collision_count.unwrap_or(0)),
            conditions: old.conditions.clone(),
        };
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let is_rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete");
        let all = [status.updated_replicas.unwrap_or(0), ready, replicas];
        if is_rolling && all.iter().all(|count| *count == self.wanted()) {
            status.current_replicas = status.updated_replicas;
            status.current_revision = Some(update);
        }
        let differs = status != normal(old);
        differs.then(|| {
            let mut set = self.set.clone();
            set.status = Some(status);
            Write::update_status(&set)
        })
    }
}

/// A status as this controller writes it, whoever wrote it.
fn normal(mut status: StatefulSetStatus) -> StatefulSetStatus {
    for count in [&mut status.ready_replicas, &mut status.current_replicas, &mut status.updated_replicas] {
        *count = count.and_then(nonzero);
    }
    status.available_replicas = Some(status.available_replicas.unwrap_or(0));
    status
}
