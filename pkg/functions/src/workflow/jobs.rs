//! Steps that are Jobs: made under a name that follows from run, step and attempt, so that one that was made before a crash is
//! found again; their result is what a pod said at its end.

use super::engine::Failure;
use super::store::belonging;
use api::kinds::minik8s::{WorkflowNode, WorkflowRun, WorkflowThread};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, PostParams, PropagationPolicy};
use kube::{Api, Client};
use serde_json::Value;
use std::time::Duration;

/// Says the result of a Job, whoever runs it.
pub const RESULT: &str = "minik8s.io/result";
/// Names the step that a Job is of.
pub const STEP: &str = "minik8s.io/workflow-step";
/// Names the attempt.
pub const ATTEMPT: &str = "minik8s.io/workflow-attempt";
/// Linux takes no longer text in an environment.
const MOST_INPUT: usize = 96 << 10;
/// A Job that cannot be made now is tried so often, with this pause.
const MOST_TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(200);
/// A Job's name is a label's value.
const LONGEST_NAME: usize = 63;

/// The name of an attempt's Job.
pub fn job_name(run: &WorkflowRun, thread: &WorkflowThread) -> String {
    let name = run.metadata.name.as_deref().unwrap_or_default();
    let ending = format!("-{}-{}", thread.step, thread.attempt);
    if name.len() + ending.len() <= LONGEST_NAME {
        return format!("{name}{ending}");
    }
    let hash = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    let hash: String = hash.as_ref()[..5].iter().map(|byte| format!("{byte:02x}")).collect();
    let start: String = name.chars().take(LONGEST_NAME - ending.len() - 11).collect();
    format!("{}-{hash}{ending}", start.trim_end_matches(['-', '.']))
}

/// The Job of an attempt.
pub fn job(
    run: &WorkflowRun,
    node: &WorkflowNode,
    thread: &WorkflowThread,
    input: &Value,
) -> Result<Job, Failure> {
    let text = input.to_string();
    if text.len() > MOST_INPUT {
        let message = format!("a Job is given at most {MOST_INPUT} bytes, and its input has {}", text.len());
        return Err(Failure::new("TooLarge", message));
    }
    let mut metadata = belonging(run, job_name(run, thread));
    let mine = [(STEP, thread.step), (ATTEMPT, thread.attempt)];
    metadata
        .labels
        .get_or_insert_default()
        .extend(mine.map(|(name, number)| (name.to_owned(), number.to_string())));
    let mut spec = node.job.clone().unwrap_or_default();
    let pod = spec.template.spec.get_or_insert_default();
    pod.restart_policy.get_or_insert_with(|| "Never".to_owned());
    let given = [
        ("WORKFLOW_INPUT", text),
        ("WORKFLOW_RUN", run.metadata.name.clone().unwrap_or_default()),
        ("WORKFLOW_NODE", thread.node.clone()),
        ("WORKFLOW_STEP", thread.step.to_string()),
        ("WORKFLOW_ATTEMPT", thread.attempt.to_string()),
    ];
    for container in pod.init_containers.iter_mut().flatten().chain(&mut pod.containers) {
        let env = container.env.get_or_insert_default();
        for (name, value) in &given {
            if env.iter().all(|variable| variable.name != *name) {
                env.push(EnvVar {
                    name: (*name).to_owned(),
                    value: Some(value.clone()),
                    ..EnvVar::default()
                });
            }
        }
    }
    Ok(Job { metadata, spec: Some(spec), status: None })
}

/// The name of the run that a Job belongs to, and does not only say so.
pub fn run_name(job: &Job) -> Option<String> {
    owner(job).map(|owner| owner.name.clone())
}

/// The identity of that run.
pub fn run_of(job: &Job) -> Option<String> {
    owner(job).map(|owner| owner.uid.clone())
}

fn owner(job: &Job) -> Option<&OwnerReference> {
    let mut owners = job.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "WorkflowRun" && owner.controller == Some(true))
}

/// Which step and attempt a Job is of.
pub fn of_step(job: &Job) -> Option<(i32, i32)> {
    let labels = job.metadata.labels.as_ref()?;
    Some((labels.get(STEP)?.parse().ok()?, labels.get(ATTEMPT)?.parse().ok()?))
}

/// Whether a Job has ended, and well.
pub fn ended(job: &Job) -> Option<bool> {
    let conditions = job.status.as_ref()?.conditions.iter().flatten();
    let is_true = |condition: &&k8s_openapi::api::batch::v1::JobCondition| condition.status == "True";
    conditions.filter(is_true).find_map(|condition| match condition.type_.as_str() {
        "Complete" => Some(true),
        "Failed" => Some(false),
        _ => None,
    })
}

/// Makes a Job, unless it is there.
pub async fn ensure(client: &Client, job: &Job) -> Result<(), Failure> {
    let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let mut tries = 0;
    loop {
        let said = match jobs.create(&PostParams::default(), job).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                match jobs.get_opt(name).await {
                    Ok(Some(present)) if run_of(&present) == run_of(job) => return Ok(()),
                    Ok(present) => {
                        // Of a run of the same name that was before, and goes with it.
                        if present.is_some() {
                            delete(client, namespace, name).await;
                        }
                        format!("there is another one called {name:?}")
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                return Err(Failure::new(
                    "JobRefused",
                    format!("the Job cannot be made: {}", status.message),
                ));
            }
            Err(error) => error.to_string(),
        };
        tries += 1;
        if tries >= MOST_TRIES {
            return Err(Failure::new("Unavailable", format!("the Job cannot be made: {said}")));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What came of a Job that has ended: its annotation, or what a pod of it said at its end (JSON, or a text).
pub async fn result(client: &Client, job: &Job, is_good: bool) -> Result<Value, Failure> {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(said) = job.metadata.annotations.as_ref().and_then(|own| own.get(RESULT)).filter(|_| is_good)
    {
        return Ok(value_of(said));
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    let pods = pods.list(&of_job).await.map(|list| list.items).unwrap_or_default();
    let phase = if is_good { "Succeeded" } else { "Failed" };
    let mut ended: Vec<&Pod> = pods
        .iter()
        .filter(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase))
        .collect();
    ended.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    let said = ended.last().and_then(|pod| {
        let states = pod.status.as_ref()?.container_statuses.iter().flatten();
        let mut messages =
            states.filter_map(|container| container.state.as_ref()?.terminated.as_ref()?.message.clone());
        messages.find(|message| !message.trim().is_empty())
    });
    if is_good {
        return Ok(said.map_or(Value::Null, |said| value_of(&said)));
    }
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let why = conditions
        .filter(|condition| condition.type_ == "Failed")
        .find_map(|condition| condition.message.clone());
    let said = said.map_or_else(String::new, |said| format!(": {}", said.trim()));
    Err(Failure::new("JobFailed", format!("Job {name:?} failed: {}{said}", why.unwrap_or_default())))
}

/// Deletes a Job whose result nobody waits for any more.
pub async fn delete(client: &Client, namespace: &str, name: &str) {
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let parameters =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    if let Err(error) = jobs.delete(name, &parameters).await {
        tracing::debug!(%error, job = name, "a job was not deleted");
    }
}

fn value_of(said: &str) -> Value {
    let said = said.trim();
    serde_json::from_str(said).unwrap_or_else(|_| said.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(name: &str) -> WorkflowRun {
        serde_json::from_value(json!({"apiVersion": "minik8s.io/v1", "kind": "WorkflowRun",
            "metadata": {"name": name, "namespace": "a", "uid": "u"}, "spec": {"workflow": "w"}}))
        .expect("a run")
    }

    #[test]
    fn a_job_follows_from_run_step_and_attempt() {
        let thread = WorkflowThread { node: "n".into(), step: 3, attempt: 2, ..WorkflowThread::default() };
        let node: WorkflowNode =
            serde_json::from_value(json!({"type": "Task", "job": {"template": {"spec": {"containers": [
            {"name": "c", "image": "i", "env": [{"name": "WORKFLOW_RUN", "value": "own"}]}]}}}}))
            .expect("a node");
        let job = job(&run("w-abc"), &node, &thread, &json!({"x": 1})).expect("a job");
        assert_eq!(job.metadata.name.as_deref(), Some("w-abc-3-2"));
        assert_eq!(of_step(&job), Some((3, 2)));
        let pod = job.spec.expect("a spec").template.spec.expect("a pod");
        assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
        let env = pod.containers[0].env.as_ref().expect("env");
        let value = |name: &str| {
            env.iter().find(|variable| variable.name == name).and_then(|own| own.value.as_deref())
        };
        assert_eq!((value("WORKFLOW_RUN"), value("WORKFLOW_INPUT")), (Some("own"), Some("{\"x\":1}")));
        let long = job_name(&run(&"x".repeat(100)), &thread);
        assert!(long.len() <= 63 && long.ends_with("-3-2"), "{long}");
        assert_ne!(long, job_name(&run(&"x".repeat(101)), &thread));
    }
}
