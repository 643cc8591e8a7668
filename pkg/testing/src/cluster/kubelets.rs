//! The nodes: what is bound runs and is ready, what is deleted goes, and what runs to its end ends.
//!
//! A pod of a job succeeds at once, unless the annotation `sim/exit` names another exit code, or `sim/runs` says that it
//! runs until it is deleted.

use client::{AnyCache, Cache, Informers, Key};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub struct Kubelets {
    client: Client,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Kubelets {
    pub fn start(client: Client) -> Kubelets {
        let mut kubelets = Kubelets { client, running: None };
        kubelets.run();
        kubelets
    }

    fn run(&mut self) {
        let token = CancellationToken::new();
        let task = tokio::spawn(run(self.client.clone(), token.clone()));
        self.running = Some((token, task));
    }

    pub async fn stop(&mut self) {
        if let Some((token, task)) = self.running.take() {
            token.cancel();
            task.await.expect("the kubelets");
        }
    }

    pub async fn restart(&mut self) {
        self.stop().await;
        self.run();
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        if let Some((token, _)) = self.running.take() {
            token.cancel();
        }
    }
}

async fn run(client: Client, shutdown: CancellationToken) {
    let informers = Informers::new(client.clone(), shutdown.clone());
    let pods: Cache<Pod> = informers.cache();
    let mut changes = pods.changes();
    loop {
        changes.borrow_and_update();
        let todo: Vec<(Arc<Pod>, Step)> =
            pods.list().into_iter().filter_map(|pod| Some((pod.clone(), step(&pod)?))).collect();
        let is_idle = todo.is_empty();
        join_all(todo.iter().map(|(pod, step)| act(&client, pod, step))).await;
        // What was done comes back as a change; what failed is tried again when it does.
        let pause = async {
            if is_idle {
                let _ = changes.changed().await;
            } else {
                let seen = |(pod, step): &(Arc<Pod>, Step)| {
                    pods.get(&Key::of(pod.as_ref())).is_none_or(|now| self::step(&now).as_ref() != Some(step))
                };
                let patience = tokio::time::Instant::now() + std::time::Duration::from_secs(1);
                while !todo.iter().all(seen) {
                    if tokio::time::timeout_at(patience, changes.changed()).await.is_err() {
                        break;
                    }
                }
            }
        };
        tokio::select! {
            () = pause => {}
            () = shutdown.cancelled() => break,
        }
    }
    informers.join().await;
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Remove,
    Run,
    End(i32),
}

/// What a kubelet does next with a pod.
fn step(pod: &Pod) -> Option<Step> {
    let spec = pod.spec.as_ref()?;
    spec.node_name.as_ref()?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    if pod.metadata.deletion_timestamp.is_some() {
        // A finalizer holds it: it has ended, and is not deleted twice.
        let is_held = pod.metadata.deletion_grace_period_seconds == Some(0);
        return match phase {
            "Succeeded" | "Failed" => (!is_held).then_some(Step::Remove),
            _ if is_held || !pod.finalizers().is_empty() => Some(Step::End(137)),
            _ => Some(Step::Remove),
        };
    }
    let runs_on = spec.restart_policy.as_deref().unwrap_or("Always") == "Always"
        || pod.annotations().contains_key("sim/runs");
    match phase {
        "Pending" => Some(Step::Run),
        "Running" if !runs_on => {
            let code = pod.annotations().get("sim/exit").and_then(|code| code.parse().ok());
            Some(Step::End(code.unwrap_or(0)))
        }
        _ => None,
    }
}

async fn act(client: &Client, pod: &Pod, step: &Step) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    // Another pod of the same name is not meant; one that is gone needs nothing.
    match step {
        Step::Remove => {
            let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
            let now = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            };
            let _ = pods.delete(&name, &now).await;
        }
        Step::Run => {
            let status = status(pod, "Running", true, json!({"running": {"startedAt": now()}}));
            let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await;
        }
        Step::End(code) => {
            let phase = if *code == 0 { "Succeeded" } else { "Failed" };
            let state = json!({"terminated": {"exitCode": code, "finishedAt": now(), "startedAt": now()}});
            let status = status(pod, phase, false, state);
            let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await;
        }
    }
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn status(pod: &Pod, phase: &str, ready: bool, state: Value) -> Value {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let statuses: Vec<Value> = containers
        .map(|container| {
            json!({"name": container.name, "image": container.image, "imageID": "", "ready": ready,
                "restartCount": 0, "state": state})
        })
        .collect();
    let is = if ready { "True" } else { "False" };
    let condition = |ty: &str| json!({"type": ty, "status": is, "lastTransitionTime": now()});
    let ip = address(pod);
    json!({
        "metadata": {"uid": pod.uid()},
        "status": {
            "phase": phase, "startTime": now(), "containerStatuses": statuses, "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [condition("Ready"), condition("ContainersReady")],
        },
    })
}

/// The same each time for the same pod, and hardly another's.
fn address(pod: &Pod) -> String {
    let mut hasher = DefaultHasher::new();
    pod.uid().hash(&mut hasher);
    let [_, a, b, c, ..] = hasher.finish().to_be_bytes();
    format!("10.{a}.{b}.{c}")
}
