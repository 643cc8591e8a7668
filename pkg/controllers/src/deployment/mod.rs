//! Deployments: a ReplicaSet per version of the template, and how the pods move from one to the next.
//!
//! ```text
//! Deployment ──hash of its template──> new ReplicaSet ↑
//!                                      old ReplicaSets ↓   never above maxSurge, never below maxUnavailable
//! ```
//!
//! Decisions are upstream's, with one difference: a ReplicaSet counts for as many pods as it still has, not only for as
//! many as it should have, so that the limits hold for pods at every moment.

mod conditions;
mod revision;
mod rollout;
mod scale;
#[cfg(test)]
mod tests;

use crate::pods;
use crate::runtime::{Context, Controller, Driver, Failure, Note, Plan, Task, Verb, Write, claim, owner_key};
use client::{Cache, Key, reference};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use rollout::Rollout;
use std::sync::Arc;

/// Keeps Deployments.
pub fn start(context: &Context) -> Task {
    let informers = &context.informers;
    let (deployments, sets, all_pods) =
        (informers.cache::<Deployment>(), informers.cache::<ReplicaSet>(), pods::cache(informers));
    pods::index_by_controller(&all_pods);
    pods::index_by_controller(&sets);
    let (owners, of_pods) = (deployments.clone(), sets.clone());
    let controller =
        Deployments { deployments: deployments.clone(), sets: sets.clone(), pods: all_pods.clone() };
    Driver::new(context, controller)
        .owns(&deployments)
        .watches(&sets, move |change| {
            pods::owners(change, &owners, |deployment: &Deployment, set| {
                deployment
                    .spec
                    .as_ref()
                    .is_some_and(|spec| pods::selects(&pods::selector(&spec.selector), set))
            })
        })
        .watches(&all_pods, move |change| {
            // Only what waits for old pods to be gone cares for pods.
            if change.new.is_some() {
                return Vec::new();
            }
            let set = owner_key::<ReplicaSet>(change.object().as_ref()).and_then(|key| of_pods.get(&key));
            set.and_then(|set| owner_key::<Deployment>(set.as_ref())).into_iter().collect()
        })
        .task()
}

struct Deployments {
    deployments: Cache<Deployment>,
    sets: Cache<ReplicaSet>,
    pods: Cache<Pod>,
}

/// A Deployment and what it may be about.
pub struct View {
    /// The Deployment.
    pub deployment: Arc<Deployment>,
    /// Its ReplicaSets, and those of its namespace that nobody controls.
    pub sets: Vec<Arc<ReplicaSet>>,
    /// The uids of ReplicaSets that have pods which have not ended, going ones included.
    pub with_pods: Vec<String>,
}

impl Controller for Deployments {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(deployment) = self.deployments.get(key) else { return Ok(None) };
        let sets = pods::claimable(&self.sets, deployment.as_ref());
        let has_pods = |uid: &String| {
            let pods = self.pods.by(pods::BY_CONTROLLER, uid);
            pods.iter().any(|pod| !pods::is_finished(pod))
        };
        let with_pods = sets.iter().filter_map(|set| set.uid()).filter(has_pods).collect();
        Ok(Some(View { deployment, sets, with_pods }))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan(view, now)
    }

    fn after_failure(
        &self,
        view: &View,
        _plan: &Plan,
        failure: &Failure,
        now: Timestamp,
    ) -> impl IntoIterator<Item = Write> {
        let is_new_set = failure.write.verb == Verb::Create && failure.write.target.plural == "replicasets";
        (is_new_set && !failure.is_namespace_terminating())
            .then(|| revision::not_created(view, failure, now))
            .flatten()
    }
}

/// What to do about a Deployment.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    let deployment = view.deployment.as_ref();
    let Some(spec) = &deployment.spec else { return Plan::default() };
    let selector = pods::selector(&spec.selector);
    if selector.is_everything() {
        return selecting_all(deployment);
    }
    let claims = claim(deployment, &selector, view.sets.iter().cloned());
    if !claims.writes.is_empty() {
        return Plan { writes: claims.writes, ..Plan::default() };
    }
    let mut rollout = Rollout::new(deployment, &claims.owned, &view.with_pods, now);
    if pods::is_going(deployment) {
        return rollout.status_only();
    }
    rollout.note_pause();
    if spec.paused == Some(true) {
        return rollout.scale_and_report();
    }
    if let Some(revision) = revision::rollback_to(deployment) {
        return rollout.roll_back(revision);
    }
    if rollout.was_scaled() {
        return rollout.scale_and_report();
    }
    match rollout.is_rolling() {
        true => rollout.roll(),
        false => rollout.recreate(),
    }
}

fn selecting_all(deployment: &Deployment) -> Plan {
    let mut plan = Plan::default();
    let why = "This deployment is selecting all pods. A non-empty selector is required.";
    plan.tell(Note::warning(reference(deployment), "SelectingAll", why));
    let observed = deployment.status.as_ref().and_then(|status| status.observed_generation);
    if observed < deployment.metadata.generation {
        let mut copy = deployment.clone();
        copy.status.get_or_insert_default().observed_generation = deployment.metadata.generation;
        plan.status = Some(Write::update_status(&copy));
    }
    plan
}
