//! Runs that nobody starts: by the clock. And those that nobody needs any more: what is kept of them has an age and a count.

use super::runner::{Runner, workflow_of};
use super::store::label_value;
use api::kinds::batch::times::{self, Times};
use api::kinds::minik8s::workflow_step::RUN_LABEL;
use api::kinds::minik8s::{Workflow, WorkflowRun, WorkflowRunSpec};
use client::Key;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The label by which runs name their workflow.
pub const WORKFLOW_LABEL: &str = "minik8s.io/workflow";
/// So often the clock is looked at, and what is kept.
const LOOK: Duration = Duration::from_secs(1);
const SWEEP: u32 = 30;
/// Where the system's time zones are.
const ZONES: &str = "/usr/share/zoneinfo";

/// Starts and forgets runs until shutdown.
pub async fn keep(runner: &Arc<Runner>) {
    // What was due before somebody looked is not made up for.
    let mut since = Timestamp::now();
    let mut turn = 0_u32;
    loop {
        tokio::time::sleep(LOOK).await;
        let now = Timestamp::now();
        for workflow in runner.parts.workflows.list() {
            if !workflow.spec.schedule.is_empty()
                && let Some(time) = due(&workflow, since, now)
            {
                start(runner, &workflow, time).await;
            }
        }
        since = now;
        if turn.is_multiple_of(SWEEP) {
            sweep(runner, now).await;
        }
        turn = turn.wrapping_add(1);
    }
}

/// The last time of a workflow's schedule since a moment.
fn due(workflow: &Workflow, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let zone = match workflow.spec.time_zone.as_str() {
        "" => TimeZone::UTC,
        name => times::zone(name, std::fs::read(Path::new(ZONES).join(name)).ok().as_deref()).ok()?,
    };
    Times::new(&workflow.spec.schedule, zone).ok()?.due(since, None, now).time
}

/// Starts a run whose name follows from its time, so that it is started once.
async fn start(runner: &Arc<Runner>, workflow: &Workflow, time: Timestamp) {
    let key = Key::of(workflow);
    let run = new_run(&key, Some(format!("{}-{}", key.name, time.as_second())), serde_json::Value::Null);
    let runs = runner.store.runs(&key.namespace);
    match runs.create(&PostParams::default(), &run).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        Err(error) => tracing::warn!(%error, workflow = %key, "a run was not started by its schedule"),
    }
}

/// A run that is to be, of this name or of one that the server makes up.
pub fn new_run(workflow: &Key, name: Option<String>, params: serde_json::Value) -> WorkflowRun {
    WorkflowRun {
        metadata: ObjectMeta {
            namespace: Some(workflow.namespace.clone()),
            generate_name: name.is_none().then(|| format!("{}-", workflow.name)),
            name,
            labels: Some([(WORKFLOW_LABEL.to_owned(), label_value(&workflow.name))].into()),
            ..ObjectMeta::default()
        },
        spec: WorkflowRunSpec { workflow: workflow.name.clone(), params, ..WorkflowRunSpec::default() },
        ..WorkflowRun::default()
    }
}

/// Deletes runs that have ended and are older, or more, than their workflow keeps; and what belongs to runs that are gone.
async fn sweep(runner: &Arc<Runner>, now: Timestamp) {
    let mut by_workflow: BTreeMap<Key, Vec<Arc<WorkflowRun>>> = BTreeMap::new();
    for run in runner.parts.runs.list() {
        if run.status.has_ended() {
            by_workflow.entry(workflow_of(&run)).or_default().push(run);
        }
    }
    let mut goes = Vec::new();
    for (workflow, mut runs) in by_workflow {
        let known = runner.parts.workflows.get(&workflow).map(|workflow| workflow.spec.retention.clone());
        let time = |run: &WorkflowRun| run.status.completion_time.as_ref().map_or(now, |time| time.0);
        runs.sort_by_key(|run| std::cmp::Reverse(time(run)));
        let of_run = |run: &WorkflowRun| run.status.graph.as_ref().map(|graph| graph.retention.clone());
        for (index, run) in runs.iter().enumerate() {
            let Some(retention) = known.clone().or_else(|| of_run(run)) else { continue };
            let is_old = time(run) + SignedDuration::from_secs(retention.seconds) < now;
            if is_old || index >= usize::try_from(retention.runs).unwrap_or_default() {
                goes.push(Key::of(run.as_ref()));
            }
        }
    }
    let mut gone: HashMap<String, Vec<String>> = HashMap::new();
    for key in goes {
        match runner.store.runs(&key.namespace).delete(&key.name, &DeleteParams::default()).await {
            Ok(_) => gone.entry(key.namespace).or_default().push(label_value(&key.name)),
            Err(error) => tracing::debug!(%error, run = %key, "a run was not deleted"),
        }
    }
    // The garbage collector would find them too, one by one.
    for (namespace, names) in gone {
        for names in names.chunks(50) {
            let of =
                kube::api::ListParams::default().labels(&format!("{RUN_LABEL} in ({})", names.join(",")));
            let client = &runner.parts.client;
            let steps: Api<api::kinds::minik8s::WorkflowStep> = Api::namespaced(client.clone(), &namespace);
            let values: Api<api::kinds::minik8s::WorkflowValue> = Api::namespaced(client.clone(), &namespace);
            let _ = steps.delete_collection(&DeleteParams::default(), &of).await;
            let _ = values.delete_collection(&DeleteParams::default(), &of).await;
        }
    }
}
