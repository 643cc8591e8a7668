//! Jobs: pods that run to their end, so often as is asked for.
//!
//! ```text
//! pod ends ──> its uid into status.uncountedTerminatedPods ──> its finalizer goes ──> counted, once
//! ```
//!
//! Every pod carries a finalizer until its end is counted, so that no end is lost and none counts twice, whatever is deleted
//! or restarted meanwhile.

mod conditions;
mod indexes;
mod policy;
mod step;
#[cfg(test)]
mod tests;
mod worker;

pub use conditions::finished;

use crate::pods;
use crate::runtime::{Context, Controller, Driver, Failure, Plan, Task, Verb, Write, claim, controller_of};
use client::{Cache, Key};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use step::Step;

pub const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// What removes a finalizer, in a patch.
const LET_GO: &str = "$deleteFromPrimitiveList/finalizers";

/// Keeps Jobs.
pub fn start(context: &Context) -> Task {
    let (jobs, all_pods) = (context.informers.cache::<Job>(), pods::cache(&context.informers));
    pods::index_by_controller(&all_pods);
    let owners = jobs.clone();
    let selects = |job: &Job, pod: &Pod| {
        let selector = job.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|selector| pods::selects(&pods::selector(selector), pod))
    };
    Driver::new(context, Jobs { jobs: jobs.clone(), pods: all_pods.clone() })
        .owns(&jobs)
        .watches(&all_pods, move |change| {
            let mut keys = pods::owners(change, &owners, selects);
            keys.extend(change.new.iter().filter_map(|pod| abandoned(pod)));
            keys
        })
        .task()
}

/// The job of a pod that has no owner any more, and still waits to be counted.
fn abandoned(pod: &Pod) -> Option<Key> {
    if controller_of(pod).is_some() || !has_finalizer(pod) {
        return None;
    }
    Some(Key::new(pod.namespace()?, pod.labels().get(NAME_LABEL)?))
}

fn has_finalizer(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

struct Jobs {
    jobs: Cache<Job>,
    pods: Cache<Pod>,
}

/// A Job and what it may be about.
pub struct View {
    /// The job; `None` if it is gone.
    pub job: Option<Arc<Job>>,
    /// Its pods, and those of its namespace that nobody controls; of a job that is gone, those that it left.
    pub pods: Vec<Arc<Pod>>,
}

impl Controller for Jobs {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let job = self.jobs.get(key);
        let pods = match &job {
            Some(job) => pods::claimable(&self.pods, job.as_ref()),
            None => {
                let left = |pod: &Arc<Pod>| {
                    let owner = controller_of(pod.as_ref());
                    has_finalizer(pod)
                        && owner.map_or(pod.labels().get(NAME_LABEL) == Some(&key.name), |owner| {
                            owner.kind == "Job" && owner.name == key.name
                        })
                };
                self.pods.in_namespace(&key.namespace).into_iter().filter(left).collect()
            }
        };
        Ok(Some(View { job, pods }))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan(view, now)
    }

    fn after_failure(
        &self,
        _: &View,
        plan: &Plan,
        failure: &Failure,
        _: Timestamp,
    ) -> impl IntoIterator<Item = Write> {
        // Ends that were found are noted, and their pods let go, even if no pod can be created: there may be no room for more,
        // and a namespace that is going waits for them.
        let write = &failure.write;
        let is_create = write.target.plural == "pods" && write.verb == Verb::Create;
        let noted = plan.writes.iter().filter(|write| !matches!(write.verb, Verb::Create | Verb::Delete));
        noted.filter(|_| is_create).cloned().collect::<Vec<Write>>()
    }
}

/// What to do about a Job.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    let Some(job) = &view.job else {
        let writes = view.pods.iter().map(|pod| without_finalizer(pod)).collect();
        return Plan { writes, ..Plan::default() };
    };
    let Some(spec) = &job.spec else { return Plan::default() };
    let managed = spec.managed_by.as_deref().is_none_or(|by| by == "kubernetes.io/job-controller");
    if !managed {
        return Plan::default();
    }
    if conditions::is_finished(job) {
        let of_job = |pod: &&Arc<Pod>| {
            crate::runtime::controlled_by(pod.as_ref(), &job.uid().unwrap_or_default()) && has_finalizer(pod)
        };
        let writes = view.pods.iter().filter(of_job).map(|pod| without_finalizer(pod)).collect();
        return Plan { writes, ..Plan::default() };
    }
    let Some(selector) = &spec.selector else { return Plan::default() };
    let mut claims = claim(job.as_ref(), &pods::selector(selector), view.pods.iter().cloned());
    if !claims.writes.is_empty() {
        let held: HashSet<&str> = view
            .pods
            .iter()
            .filter(|pod| has_finalizer(pod))
            .filter_map(|pod| pod.metadata.name.as_deref())
            .collect();
        for claim in &mut claims.writes {
            let is_adoption = claim.only_if.is_some();
            if is_adoption {
                claim.body["metadata"]["finalizers"] = json!([FINALIZER]);
            } else if held.contains(claim.target.key.name.as_str()) {
                // Nobody counts its end any more.
                claim.body["metadata"][LET_GO] = json!([FINALIZER]);
            }
        }
        return Plan { writes: claims.writes, ..Plan::default() };
    }
    Step::new(job, claims.owned, now).plan()
}

/// Lets a pod go that was counted, or that nobody counts any more.
fn without_finalizer(pod: &Pod) -> Write {
    let patch = json!({"metadata": {LET_GO: [FINALIZER]}});
    Write::strategic_patch(pod, patch).tolerating(404)
}
