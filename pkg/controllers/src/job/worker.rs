//! The pods of a job: making them, their indexes, when they ended, how often they failed.

use super::FINALIZER;
use super::indexes::Indexes;
use crate::pods;
use crate::runtime::Write;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const FIRST_BACK_OFF: i64 = 10;
const LONGEST_BACK_OFF: i64 = 600;

/// The index of a pod.
pub fn index(pod: &Pod) -> Option<i32> {
    pod.annotations().get(INDEX)?.parse().ok()
}

/// How often the index of a pod had failed when the pod was made: counted, and ignored.
fn failures(pod: &Pod) -> (i32, i32) {
    let number =
        |annotation: &str| pod.annotations().get(annotation).and_then(|n| n.parse().ok()).unwrap_or(0);
    (number(FAILURES), number(IGNORED_FAILURES))
}

/// How often the index of a failed pod has failed, this time included if it counts.
pub fn failures_with(pod: &Pod, counts: bool) -> (i32, i32) {
    let (counted, ignored) = failures(pod);
    if counts { (counted + 1, ignored) } else { (counted, ignored + 1) }
}

/// Creates a pod, for an index where the job has them, and after so many failures of it.
pub fn create(job: &Job, index: Option<i32>, failures: Option<(i32, i32)>) -> Write {
    let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut pod = pods::from_template(&template, job);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.into());
    }
    if let Some(index) = index {
        give_index(&mut pod, &job.name_any(), index);
    }
    if let Some((counted, ignored)) = failures {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(FAILURES.into(), counted.to_string());
        if ignored > 0 {
            annotations.insert(IGNORED_FAILURES.into(), ignored.to_string());
        }
    }
    pods::create(&pod, job)
}

fn give_index(pod: &mut Pod, job: &str, index: i32) {
    pod.metadata.annotations.get_or_insert_default().insert(INDEX.into(), index.to_string());
    pod.metadata.labels.get_or_insert_default().insert(INDEX.into(), index.to_string());
    pod.metadata.generate_name = Some(pods::name_prefix(&format!("{job}-{index}")));
    let Some(spec) = &mut pod.spec else { return };
    spec.hostname = Some(format!("{job}-{index}"));
    let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
    for container in containers {
        let env = container.env.get_or_insert_default();
        if !env.iter().any(|variable| variable.name == "JOB_COMPLETION_INDEX") {
            env.push(EnvVar {
                name: "JOB_COMPLETION_INDEX".into(),
                value_from: Some(EnvVarSource {
                    field_ref: Some(ObjectFieldSelector {
                        field_path: format!("metadata.annotations['{INDEX}']"),
                        api_version: None,
                    }),
                    ..EnvVarSource::default()
                }),
                ..EnvVar::default()
            });
        }
    }
}

/// When a pod ended, as far as it says.
pub fn ended(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let times: Option<Vec<Timestamp>> = containers
        .iter()
        .map(|container| Some(container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0))
        .collect();
    let unready = pods::condition(pod, "Ready").filter(|ready| ready.status == "False");
    let deleted = || {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        Some(pod.metadata.deletion_timestamp.as_ref()?.0 - SignedDuration::from_secs(grace))
    };
    times
        .and_then(|times| times.into_iter().max())
        .or_else(|| unready.and_then(|ready| Some(ready.last_transition_time.as_ref()?.0)))
        .or_else(deleted)
        .or_else(|| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// How long to wait after so many failures, the last of which was then.
pub fn back_off(failures: i32, last: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let doublings = u32::try_from(failures - 1).ok()?;
    let wait = FIRST_BACK_OFF.saturating_mul(2i64.saturating_pow(doublings)).min(LONGEST_BACK_OFF);
    let left = (last? + SignedDuration::from_secs(wait)).duration_since(now);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

/// Failures since the last success: how many, and when the last was.
pub fn failures_in_a_row(succeeded: &[&Arc<Pod>], failed: &[&Arc<Pod>]) -> (i32, Option<Timestamp>) {
    let last_success = succeeded.iter().filter_map(|pod| ended(pod)).max();
    let after = failed.iter().filter_map(|pod| ended(pod));
    let after: Vec<Timestamp> = after.filter(|at| last_success.is_none_or(|success| *at > success)).collect();
    (i32::try_from(after.len()).unwrap_or(i32::MAX), after.into_iter().max())
}

/// The first indexes that nobody works on, and that are not done.
pub fn pending(
    count: usize,
    completions: i32,
    done: [&Indexes; 2],
    busy: &Indexes,
) -> impl Iterator<Item = i32> {
    let is_free =
        move |index: &i32| !done.iter().any(|done| done.0.contains(index)) && !busy.0.contains(index);
    (0..completions).filter(is_free).take(count).collect::<Vec<_>>().into_iter()
}

/// Which active pods go first when there are too many: those of doubled or surplus indexes, then as for any owner.
pub fn removal_order(active: &[Arc<Pod>], completions: Option<i32>, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut pods = active.to_vec();
    pods.sort_by_cached_key(|pod| pods::deletion_order(pod, 0, now));
    if let Some(completions) = completions {
        // Of an index, the one that would be deleted last is the one to keep.
        let mut keep = std::collections::HashMap::new();
        for (position, pod) in pods.iter().enumerate() {
            keep.insert(index(pod), position);
        }
        let is_surplus = |position: usize, pod: &Pod| {
            index(pod).is_none_or(|index| index >= completions) || keep.get(&index(pod)) != Some(&position)
        };
        let (mut surplus, rest): (Vec<_>, Vec<_>) =
            pods.into_iter().enumerate().partition(|(position, pod)| is_surplus(*position, pod));
        surplus.extend(rest);
        return surplus.into_iter().map(|(_, pod)| pod).collect();
    }
    pods
}

/// How many active pods are surplus because of their index.
pub fn surplus(active: &[Arc<Pod>], completions: Option<i32>) -> usize {
    let Some(completions) = completions else { return 0 };
    let valid: std::collections::BTreeSet<i32> =
        active.iter().filter_map(|pod| index(pod)).filter(|index| *index < completions).collect();
    active.len() - valid.len()
}
