//! Jobs that have ended are deleted after the time that they ask for.

use crate::job::finished;
use crate::pods;
use crate::runtime::{Context, Controller, Driver, Plan, Task, Write};
use client::{Cache, Key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use std::sync::Arc;
use std::time::Duration;

/// Deletes Jobs.
pub fn start(context: &Context) -> Task {
    let jobs = context.informers.cache::<Job>();
    Driver::new(context, Ttl { jobs: jobs.clone() }).owns(&jobs).task()
}

struct Ttl {
    jobs: Cache<Job>,
}

impl Controller for Ttl {
    type View = Arc<Job>;

    async fn observe(&self, key: &Key) -> kube::Result<Option<Arc<Job>>> {
        Ok(self.jobs.get(key))
    }

    fn plan(&self, job: &Arc<Job>, now: Timestamp) -> Plan {
        plan(job, now)
    }
}

/// What to do about a Job.
pub fn plan(job: &Job, now: Timestamp) -> Plan {
    let ttl = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
    let (Some(ttl), Some(end), false) = (ttl, finished(job), pods::is_going(job)) else {
        return Plan::default();
    };
    let Some(ended) = &end.last_transition_time else { return Plan::default() };
    let left = (ended.0 + SignedDuration::from_secs(ttl.into())).duration_since(now);
    match Duration::try_from(left).ok().filter(|left| !left.is_zero()) {
        Some(left) => Plan::later(left),
        None => {
            let mut write = Write::delete(job).propagating("Foreground");
            // Whoever gave it more time meanwhile is heard.
            write.body["preconditions"]["resourceVersion"] = job.metadata.resource_version.clone().into();
            Plan { writes: vec![write], ..Plan::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_goes_when_its_time_is_over() {
        let job = |ttl: Option<i32>, ty: &str| -> Job {
            let job = json!({
                "metadata": {"name": "j", "namespace": "default", "uid": "u", "resourceVersion": "7"},
                "spec": {"ttlSecondsAfterFinished": ttl, "template": {}},
                "status": {"conditions": [{"type": ty, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            });
            serde_json::from_value(job).expect("a job")
        };
        let at = |second: &str| format!("2026-01-01T00:00:{second}Z").parse().expect("a time");
        assert_eq!(plan(&job(Some(10), "Complete"), at("04")), Plan::later(Duration::from_secs(6)));
        let gone = plan(&job(Some(10), "Failed"), at("10"));
        assert_eq!(
            gone.writes[0].body,
            json!({"preconditions": {"uid": "u", "resourceVersion": "7"}, "propagationPolicy": "Foreground"})
        );
        assert_eq!(plan(&job(None, "Complete"), at("59")), Plan::default());
        assert_eq!(plan(&job(Some(10), "Suspended"), at("59")), Plan::default());
    }
}
