//! One look at a job: what its pods have come to, whether it is done, and which pods to add or take away.

use super::indexes::Indexes;
use super::policy::{Meaning, meaning, suffices};
use super::{conditions, has_finalizer, without_finalizer, worker};
use crate::pods::{self, nonzero};
use crate::runtime::{Note, Plan, Write};
use client::reference;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// So many pods are created or deleted, and so many ends noted, in one go.
const MOST: usize = 500;

pub struct Step<'a> {
    job: &'a Job,
    spec: JobSpec,
    pods: Vec<Arc<Pod>>,
    active: Vec<Arc<Pod>>,
    status: JobStatus,
    uncounted: UncountedTerminatedPods,
    /// All that has succeeded and failed, noted or not yet.
    succeeded: i32,
    failed: i32,
    completed_indexes: Indexes,
    failed_indexes: Indexes,
    now: Timestamp,
    plan: Plan,
}

fn count<T>(of: &[T]) -> i32 {
    i32::try_from(of.len()).unwrap_or(i32::MAX)
}

impl<'a> Step<'a> {
    pub fn new(job: &'a Job, pods: Vec<Arc<Pod>>, now: Timestamp) -> Step<'a> {
        let mut status = job.status.clone().unwrap_or_default();
        let uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
        let spec = job.spec.clone().unwrap_or_default();
        let completions = spec.completions.unwrap_or(0);
        let parse = |text: &Option<String>| Indexes::parse(text.as_deref().unwrap_or_default(), completions);
        Step {
            job,
            active: pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect(),
            pods,
            uncounted,
            succeeded: 0,
            failed: 0,
            completed_indexes: parse(&status.completed_indexes),
            failed_indexes: parse(&status.failed_indexes),
            status,
            spec,
            now,
            plan: Plan::default(),
        }
    }

    pub fn plan(mut self) -> Plan {
        self.count_those_let_go();
        let finished = self.note_ends();
        let is_suspended = self.spec.suspend == Some(true);
        if self.status.start_time.is_none() && !is_suspended {
            self.status.start_time = Some(Time(self.now));
        }
        let mut target = self.target();
        let mut active = count(&self.active);
        let mut ready = count(&self.active.iter().filter(|pod| pods::is_ready(pod)).collect::<Vec<_>>());
        let mut terminating =
            count(&self.pods.iter().filter(|pod| pods::is_terminating(pod)).collect::<Vec<_>>());
        if target.is_some() {
            let all = self.active.clone();
            self.delete(&all);
            (active, ready, terminating) = (0, 0, terminating + count(&all));
        } else if !pods::is_going(self.job) {
            let (added, deleted) = self.manage(is_suspended, terminating);
            active += added - count(&deleted);
            terminating += count(&deleted);
            ready -= count(&deleted.iter().filter(|pod| pods::is_ready(pod)).collect::<Vec<_>>());
            let is_complete = active == 0
                && match self.spec.completions {
                    None => self.succeeded > 0,
                    Some(completions) => self.succeeded >= completions,
                };
            if is_complete {
                let message = "Reached expected number of succeeded pods";
                target = Some(conditions::new("SuccessCriteriaMet", "CompletionsReached", message, self.now));
            } else {
                self.note_suspension(is_suspended);
            }
        }
        self.status.active = nonzero(active);
        self.status.ready = Some(ready.max(0));
        self.status.terminating = Some(terminating);
        self.finish(target, &finished, terminating)
    }

    fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    fn is_per_index(&self) -> bool {
        self.spec.backoff_limit_per_index.is_some()
    }

    /// Whether a pod that is going is replaced only when it has ended.
    fn waits_for_ends(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
            || self.spec.pod_failure_policy.is_some()
    }

    fn has_failed(&self, pod: &Pod) -> bool {
        match pods::phase(pod) {
            "Failed" => true,
            "Succeeded" => false,
            _ => pods::is_going(pod) && !self.waits_for_ends(),
        }
    }

    /// Ends whose pods have lost their finalizer are counted for good.
    fn count_those_let_go(&mut self) {
        let held: Vec<String> =
            self.pods.iter().filter(|pod| has_finalizer(pod)).filter_map(|pod| pod.uid()).collect();
        let let_go = |uids: &mut Option<Vec<String>>| {
            let uids = uids.get_or_insert_default();
            let before = count(uids);
            uids.retain(|uid| held.contains(uid));
            before - count(uids)
        };
        let succeeded = let_go(&mut self.uncounted.succeeded);
        let failed = let_go(&mut self.uncounted.failed);
        self.status.succeeded = nonzero(self.status.succeeded.unwrap_or(0) + succeeded);
        self.status.failed = nonzero(self.status.failed.unwrap_or(0) + failed);
    }

    /// Notes the ends of pods that still have their finalizer; these may go once that is written.
    fn note_ends(&mut self) -> Vec<Arc<Pod>> {
        let completions = self.spec.completions.unwrap_or(0);
        let mut finished = Vec::new();
        let held: Vec<Arc<Pod>> = self.pods.iter().filter(|pod| has_finalizer(pod)).cloned().collect();
        for pod in held {
            if finished.len() >= MOST {
                break;
            }
            let uid = pod.uid().unwrap_or_default();
            let index = worker::index(&pod);
            let is_valid = !self.is_indexed() || index.is_some_and(|index| index < completions);
            if pods::phase(&pod) == "Succeeded" {
                if let Some(index) = index.filter(|_| self.is_indexed() && is_valid) {
                    self.completed_indexes.0.insert(index);
                } else if !self.is_indexed() && !contains(&self.uncounted.succeeded, &uid) {
                    self.uncounted.succeeded.get_or_insert_default().push(uid);
                }
                finished.push(pod);
            } else if self.has_failed(&pod) {
                let meaning = meaning(&self.spec, &pod);
                let counts = meaning != Meaning::Ignored && is_valid;
                if counts && !contains(&self.uncounted.failed, &uid) {
                    self.uncounted.failed.get_or_insert_default().push(uid);
                }
                finished.push(pod);
            }
        }
        self.note_failed_indexes();
        self.succeeded = match self.is_indexed() {
            true => self.completed_indexes.count(),
            false => {
                self.status.succeeded.unwrap_or(0)
                    + count(self.uncounted.succeeded.as_deref().unwrap_or_default())
            }
        };
        self.failed =
            self.status.failed.unwrap_or(0) + count(self.uncounted.failed.as_deref().unwrap_or_default());
        // The last failure of an index is kept until its successor is there: it holds the count.
        let last = self.last_failures();
        let keeps = |pod: &Arc<Pod>| {
            let index = worker::index(pod);
            let is_last =
                index.is_some_and(|index| last.get(&index).is_some_and(|last| last.uid() == pod.uid()));
            let is_open = index.is_some_and(|index| {
                !self.failed_indexes.0.contains(&index) && !self.completed_indexes.0.contains(&index)
            });
            is_last && is_open && !self.has_successor(pod)
        };
        if self.is_per_index() {
            finished.retain(|pod| !self.has_failed(pod) || !keeps(pod));
        }
        finished
    }

    fn has_successor(&self, pod: &Pod) -> bool {
        let is_newer = |other: &&Arc<Pod>| {
            worker::index(other) == worker::index(pod)
                && other.uid() != pod.uid()
                && worker::failures_with(other, false).0 + worker::failures_with(other, false).1
                    > worker::failures_with(pod, false).0 + worker::failures_with(pod, false).1
        };
        self.pods.iter().any(|other| is_newer(&other))
    }

    /// Of each index, the failed pod that had the most failures before it.
    fn last_failures(&self) -> BTreeMap<i32, Arc<Pod>> {
        let mut last: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| self.has_failed(pod)) {
            let Some(index) = worker::index(pod) else { continue };
            let sum = |pod: &Pod| {
                let (counted, ignored) = worker::failures_with(pod, false);
                (counted + ignored, worker::ended(pod))
            };
            if last.get(&index).is_none_or(|other| sum(other) <= sum(pod)) {
                last.insert(index, pod.clone());
            }
        }
        last
    }

    fn note_failed_indexes(&mut self) {
        let Some(limit) = self.spec.backoff_limit_per_index else { return };
        for (index, pod) in self.last_failures() {
            if self.completed_indexes.0.contains(&index) {
                continue;
            }
            let meaning = meaning(&self.spec, &pod);
            let counted = worker::failures_with(&pod, meaning != Meaning::Ignored).0;
            if meaning == Meaning::FailsIndex || counted > limit {
                self.failed_indexes.0.insert(index);
            }
        }
    }

    /// What the job has come to, if it has come to something; otherwise when to look again.
    fn target(&mut self) -> Option<JobCondition> {
        for ty in ["SuccessCriteriaMet", "FailureTarget"] {
            if let Some(condition) = conditions::is_true(&self.status, ty) {
                return Some(condition.clone());
            }
        }
        let fail =
            |reason: &str, message: &str| Some(conditions::new("FailureTarget", reason, message, self.now));
        let failed_pods = self.pods.iter().filter(|pod| self.has_failed(pod) && has_finalizer(pod));
        for pod in failed_pods {
            if let Meaning::FailsJob(why) = meaning(&self.spec, pod) {
                return fail("PodFailurePolicy", &why);
            }
        }
        let limit = self.spec.backoff_limit.unwrap_or(6);
        if self.failed > limit || self.restarted_too_often(limit) {
            return fail("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        if let (Some(seconds), Some(started), false) =
            (self.spec.active_deadline_seconds, &self.status.start_time, self.spec.suspend == Some(true))
        {
            let left = (started.0 + SignedDuration::from_secs(seconds)).duration_since(self.now);
            match Duration::try_from(left).ok().filter(|left| !left.is_zero()) {
                None => return fail("DeadlineExceeded", "Job was active longer than specified deadline"),
                Some(left) => self.plan.look_again_in(left),
            }
        }
        self.indexed_target()
    }

    fn indexed_target(&self) -> Option<JobCondition> {
        if !self.is_indexed() {
            return None;
        }
        let completions = self.spec.completions.unwrap_or(0);
        let failed = self.failed_indexes.count();
        let fail =
            |reason: &str, message: &str| Some(conditions::new("FailureTarget", reason, message, self.now));
        if self.is_per_index() {
            if self.spec.max_failed_indexes.is_some_and(|most| failed > most) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return fail("MaxFailedIndexesExceeded", message);
            }
            if failed > 0 && failed + self.completed_indexes.count() >= completions {
                return fail("FailedIndexes", "Job has failed indexes");
            }
        }
        let message = suffices(self.spec.success_policy.as_ref(), &self.completed_indexes, completions)?;
        Some(conditions::new("SuccessCriteriaMet", "SuccessPolicy", &message, self.now))
    }

    /// Containers that are restarted in their pods count as failures too.
    fn restarted_too_often(&self, limit: i32) -> bool {
        let policy = self.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        if policy != Some("OnFailure") {
            return false;
        }
        let running = self.pods.iter().filter(|pod| matches!(pods::phase(pod), "Running" | "Pending"));
        let statuses = running.filter_map(|pod| pod.status.as_ref()).flat_map(|status| {
            let init = status.init_container_statuses.iter().flatten();
            init.chain(status.container_statuses.iter().flatten())
        });
        let restarts: i32 = statuses.map(|container| container.restart_count).sum();
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    /// Creates or deletes pods; gives how many more there are, and which are deleted.
    fn manage(&mut self, is_suspended: bool, terminating: i32) -> (i32, Vec<Arc<Pod>>) {
        let active = count(&self.active);
        let parallelism = self.spec.parallelism.unwrap_or(1);
        let wanted = match self.spec.completions {
            _ if is_suspended => 0,
            None if self.succeeded > 0 => active,
            None => parallelism,
            Some(completions) => (completions - self.succeeded).min(parallelism).max(0),
        };
        let completions = self.spec.completions.filter(|_| self.is_indexed());
        let surplus = usize::try_from(active - wanted).unwrap_or(0);
        let surplus = surplus.max(worker::surplus(&self.active, completions)).min(MOST);
        if surplus > 0 {
            let mut order = worker::removal_order(&self.active, completions, self.now);
            order.truncate(surplus);
            self.delete(&order);
            return (0, order);
        }
        let held_back = if self.waits_for_ends() { terminating } else { 0 };
        let missing = usize::try_from(wanted - active - held_back).unwrap_or(0).min(MOST);
        if missing == 0 || is_suspended {
            return (0, Vec::new());
        }
        let writes = self.create(missing);
        let added = count(&writes);
        self.plan.writes.extend(writes);
        (added, Vec::new())
    }

    fn create(&mut self, missing: usize) -> Vec<Write> {
        if !self.is_per_index() {
            let succeeded: Vec<_> = self.pods.iter().filter(|pod| pods::phase(pod) == "Succeeded").collect();
            let failed: Vec<_> = self.pods.iter().filter(|pod| self.has_failed(pod)).collect();
            let (failures, last) = worker::failures_in_a_row(&succeeded, &failed);
            if let Some(wait) = worker::back_off(failures, last, self.now) {
                self.plan.look_again_in(wait);
                return Vec::new();
            }
        }
        if !self.is_indexed() {
            return (0..missing).map(|_| worker::create(self.job, None, None)).collect();
        }
        let busy = self.active.iter().chain(self.pods.iter().filter(|pod| {
            // One that is going is still there.
            self.waits_for_ends() && pods::is_terminating(pod)
        }));
        let busy = Indexes(busy.filter_map(|pod| worker::index(pod)).collect());
        let done = [&self.completed_indexes, &self.failed_indexes];
        let indexes = worker::pending(missing, self.spec.completions.unwrap_or(0), done, &busy);
        if !self.is_per_index() {
            return indexes.map(|index| worker::create(self.job, Some(index), None)).collect();
        }
        let last = self.last_failures();
        let mut writes = Vec::new();
        for index in indexes {
            let failures = last.get(&index).map(|pod| {
                let counts = meaning(&self.spec, pod) != Meaning::Ignored;
                (worker::failures_with(pod, counts), worker::ended(pod))
            });
            let (failures, ended) = failures.unwrap_or(((0, 0), None));
            match worker::back_off(failures.0 + failures.1, ended, self.now) {
                Some(wait) => self.plan.look_again_in(wait),
                None => writes.push(worker::create(self.job, Some(index), Some(failures))),
            }
        }
        writes
    }

    fn delete(&mut self, pods: &[Arc<Pod>]) {
        self.plan.writes.extend(pods.iter().map(|pod| pods::delete(pod, self.job)));
    }

    fn note_suspension(&mut self, is_suspended: bool) {
        let (now, regarding) = (self.now, reference(self.job));
        if is_suspended {
            if conditions::ensure(&mut self.status, "Suspended", true, "JobSuspended", "Job suspended", now) {
                self.plan.tell(Note::normal(regarding, "Suspended", "Job suspended"));
            }
        } else if conditions::ensure(&mut self.status, "Suspended", false, "JobResumed", "Job resumed", now) {
            self.plan.tell(Note::normal(regarding, "Resumed", "Job resumed"));
            self.status.start_time = Some(Time(now));
        }
    }

    /// The status, and then the finalizers of what it has noted. The job has ended when nothing is left to count.
    fn finish(mut self, target: Option<JobCondition>, finished: &[Arc<Pod>], terminating: i32) -> Plan {
        if let Some(target) = &target {
            self.conclude(target, finished, terminating);
        }
        let indexes = |indexes: &Indexes| Some(indexes.to_string()).filter(|text| !text.is_empty());
        if self.is_indexed() {
            self.status.completed_indexes = indexes(&self.completed_indexes);
            self.status.succeeded = nonzero(self.completed_indexes.count());
            self.status.failed_indexes =
                if self.is_per_index() { Some(self.failed_indexes.to_string()) } else { None };
        }
        for uids in [&mut self.uncounted.succeeded, &mut self.uncounted.failed] {
            *uids = uids.take().filter(|uids| !uids.is_empty());
        }
        self.status.uncounted_terminated_pods = Some(self.uncounted.clone());
        if self.status != normal(self.job.status.clone().unwrap_or_default(), &self.spec) {
            let mut job = self.job.clone();
            job.status = Some(self.status);
            self.plan.writes.push(Write::update_status(&job));
        }
        self.plan.writes.extend(finished.iter().map(|pod| without_finalizer(pod)));
        self.plan
    }

    fn conclude(&mut self, target: &JobCondition, finished: &[Arc<Pod>], terminating: i32) {
        let (reason, message) =
            (target.reason.clone().unwrap_or_default(), target.message.clone().unwrap_or_default());
        conditions::ensure(&mut self.status, &target.type_, true, &reason, &message, self.now);
        let all_counted = [&self.uncounted.succeeded, &self.uncounted.failed]
            .iter()
            .all(|uids| uids.as_ref().is_none_or(Vec::is_empty));
        let held = self.pods.iter().any(|pod| has_finalizer(pod));
        if !all_counted || held || !finished.is_empty() || terminating > 0 || self.status.active.is_some() {
            return;
        }
        let regarding = reference(self.job);
        if target.type_ == "SuccessCriteriaMet" {
            conditions::ensure(&mut self.status, "Complete", true, &reason, &message, self.now);
            self.status.completion_time = Some(Time(self.now));
            self.plan.tell(Note::normal(regarding, "Completed", "Job completed"));
        } else {
            conditions::ensure(&mut self.status, "Failed", true, &reason, &message, self.now);
            self.plan.tell(Note::warning(regarding, &reason, message));
        }
    }
}

fn contains(uids: &Option<Vec<String>>, uid: &String) -> bool {
    uids.as_ref().is_some_and(|uids| uids.contains(uid))
}

/// A status as this controller writes it, whoever wrote it.
fn normal(mut status: JobStatus, spec: &JobSpec) -> JobStatus {
    for count in [&mut status.active, &mut status.succeeded, &mut status.failed] {
        *count = count.and_then(nonzero);
    }
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    for uids in [&mut uncounted.succeeded, &mut uncounted.failed] {
        *uids = uids.take().filter(|uids| !uids.is_empty());
    }
    status.completed_indexes = status.completed_indexes.filter(|text| !text.is_empty());
    if spec.backoff_limit_per_index.is_none() {
        status.failed_indexes = None;
    }
    status
}
