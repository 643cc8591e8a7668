//! CronJobs: a Job at every time of a schedule.
//!
//! ```text
//! last time ──schedule──> due? ──> Job named after the minute ──> history, oldest deleted
//! ```
//!
//! The name of a Job is made of its time, so that a time is never started twice.

#[cfg(test)]
mod tests;
mod times;

use crate::job::finished;
use crate::pods;
use crate::runtime::{Context, Controller, Driver, Note, Plan, Task, Write, owner_key, owner_reference};
use api::kinds::batch::times::{Due, Times};
use client::{Cache, Key, reference};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Keeps CronJobs.
pub fn start(context: &Context) -> Task {
    let (cron_jobs, jobs) = (context.informers.cache::<CronJob>(), context.informers.cache::<Job>());
    pods::index_by_controller(&jobs);
    Driver::new(context, CronJobs { cron_jobs: cron_jobs.clone(), jobs: jobs.clone() })
        .owns(&cron_jobs)
        .watches(&jobs, |change| owner_key::<CronJob>(change.object().as_ref()).into_iter().collect())
        .task()
}

struct CronJobs {
    cron_jobs: Cache<CronJob>,
    jobs: Cache<Job>,
}

/// A CronJob and its Jobs.
pub struct View {
    /// The CronJob.
    pub cron_job: Arc<CronJob>,
    /// Its Jobs.
    pub jobs: Vec<Arc<Job>>,
    /// Its time zone, or why there is none.
    pub zone: Result<TimeZone, String>,
}

impl Controller for CronJobs {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(cron_job) = self.cron_jobs.get(key) else { return Ok(None) };
        let jobs = self.jobs.by(pods::BY_CONTROLLER, &cron_job.uid().unwrap_or_default());
        let zone = match cron_job.spec.as_ref().and_then(|spec| spec.time_zone.as_deref()) {
            Some(name) => times::zone(name),
            None => Ok(TimeZone::UTC),
        };
        Ok(Some(View { cron_job, jobs, zone }))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan(view, now)
    }
}

/// What to do about a CronJob.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    let cron_job = view.cron_job.as_ref();
    let Some(spec) = &cron_job.spec else { return Plan::default() };
    let mut plan = Plan::default();
    let mut status = cron_job.status.clone().unwrap_or_default();
    note_ends(view, &mut status, &mut plan);
    plan.writes.extend(clean_up(cron_job, spec, &view.jobs));
    if !pods::is_going(cron_job) && spec.suspend != Some(true) {
        schedule(view, spec, &mut status, &mut plan, now);
    }
    if status != normal(cron_job.status.clone().unwrap_or_default()) {
        let mut copy = cron_job.clone();
        copy.status = Some(status);
        plan.status = Some(Write::update_status(&copy));
    }
    plan
}

fn normal(mut status: CronJobStatus) -> CronJobStatus {
    status.active = status.active.filter(|active| !active.is_empty());
    status
}

/// The Jobs that run are active; of one that is no longer, people are told.
fn note_ends(view: &View, status: &mut CronJobStatus, plan: &mut Plan) {
    let cron_job = view.cron_job.as_ref();
    for old in status.active.iter().flatten() {
        let job = view.jobs.iter().find(|job| job.uid() == old.uid);
        let name = old.name.clone().unwrap_or_default();
        match job.map(|job| finished(job)) {
            Some(None) => {}
            Some(Some(condition)) => {
                let message = format!("Saw completed job: {name}, condition: {}", condition.type_);
                plan.tell(Note::normal(reference(cron_job), "SawCompletedJob", message));
            }
            None => {
                let message = format!("Active job went missing: {name}");
                plan.tell(Note::normal(reference(cron_job), "MissingJob", message));
            }
        }
    }
    let running = view.jobs.iter().filter(|job| finished(job).is_none());
    let active: Vec<ObjectReference> = running.map(|job| reference_of(job)).collect();
    // The resourceVersion of a Job changes while it runs: it stays as it was noted.
    let known = status.active.clone().unwrap_or_default();
    let kept = |new: ObjectReference| known.iter().find(|old| old.uid == new.uid).cloned().unwrap_or(new);
    status.active =
        Some(active.into_iter().map(kept).collect::<Vec<_>>()).filter(|active| !active.is_empty());
    let succeeded = view.jobs.iter().filter(|job| finished(job).is_some_and(|end| end.type_ == "Complete"));
    let last =
        succeeded.filter_map(|job| job.status.as_ref()?.completion_time.clone()).max_by_key(|time| time.0);
    if last.as_ref().map(|time| time.0) > status.last_successful_time.as_ref().map(|time| time.0) {
        status.last_successful_time = last;
    }
}

fn reference_of(job: &Job) -> ObjectReference {
    reference(job)
}

fn schedule(view: &View, spec: &CronJobSpec, status: &mut CronJobStatus, plan: &mut Plan, now: Timestamp) {
    let cron_job = view.cron_job.as_ref();
    let warn = |reason: &str, message: String| Note::warning(reference(cron_job), reason, message);
    let zone = match &view.zone {
        Ok(zone) => zone.clone(),
        Err(why) => {
            let name = spec.time_zone.as_deref().unwrap_or_default();
            return plan.tell(warn("UnknownTimeZone", format!("invalid timeZone: {name:?}: {why}")));
        }
    };
    let times = match Times::new(&spec.schedule, zone) {
        Ok(times) => times,
        Err(why) => {
            let message = format!("unparseable schedule: {:?} : {why}", spec.schedule);
            return plan.tell(warn("UnparseableSchedule", message));
        }
    };
    let created = cron_job.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let last = status.last_schedule_time.as_ref().map(|time| time.0);
    let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    let Due { time, missed_too_many } = times.due(last.unwrap_or(created), deadline, now);
    if missed_too_many {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.tell(warn("TooManyMissedTimes", message.into()));
    }
    if let Some(next) = times.after(now) {
        let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default();
        plan.look_again_in(wait + Duration::from_millis(100));
    }
    let Some(time) = time else { return };
    if deadline.is_some_and(|deadline| time + deadline < now) {
        let message = format!("Missed scheduled time to start a job: {time}");
        return plan.tell(warn("MissSchedule", message));
    }
    let job = new_job(cron_job, spec, time, &times);
    let is_started = view.jobs.iter().any(|other| other.metadata.name == job.metadata.name);
    if is_started {
        // Started by a plan whose status did not get through.
        status.last_schedule_time = Some(Time(time));
    }
    if is_started || last == Some(time) {
        return;
    }
    let active: Vec<&Arc<Job>> = view.jobs.iter().filter(|job| finished(job).is_none()).collect();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            return plan.tell(Note::normal(reference(cron_job), "JobAlreadyActive", message));
        }
        Some("Replace") => plan.writes.extend(active.iter().map(|job| delete(job, cron_job))),
        _ => {}
    }
    let done = Note::normal(reference(cron_job), "SuccessfulCreate", "Created job {name}");
    let failed = warn("FailedCreate", "Error creating job: {error}".into());
    plan.writes.push(Write::create(&job).tolerating(409).told(done, failed));
    status.last_schedule_time = Some(Time(time));
}

fn new_job(cron_job: &CronJob, spec: &CronJobSpec, time: Timestamp, times: &Times) -> Job {
    let template = spec.job_template.clone();
    let meta = template.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.into(), times.written(time));
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", cron_job.name_any(), time.as_second() / 60)),
            namespace: cron_job.namespace(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![owner_reference(cron_job)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

fn delete(job: &Job, cron_job: &CronJob) -> Write {
    Write::delete(job).propagating("Background").told(
        Note::normal(reference(cron_job), "SuccessfulDelete", "Deleted job {name}"),
        Note::warning(reference(cron_job), "FailedDelete", "Deleted job: {error}"),
    )
}

/// Deletes the oldest Jobs beyond what the history keeps of each kind.
fn clean_up(cron_job: &CronJob, spec: &CronJobSpec, jobs: &[Arc<Job>]) -> Vec<Write> {
    let limits = [
        ("Complete", spec.successful_jobs_history_limit.unwrap_or(3)),
        ("Failed", spec.failed_jobs_history_limit.unwrap_or(1)),
    ];
    let mut writes = Vec::new();
    for (ty, limit) in limits {
        let ended = |job: &&Arc<Job>| {
            finished(job).is_some_and(|end| end.type_ == ty) && !pods::is_going(job.as_ref())
        };
        let mut ended: Vec<&Arc<Job>> = jobs.iter().filter(ended).collect();
        ended.sort_by_key(|job| {
            let started =
                job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
            (started, job.name_any())
        });
        let surplus = ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        writes.extend(ended[..surplus].iter().map(|job| delete(job, cron_job)));
    }
    writes
}
