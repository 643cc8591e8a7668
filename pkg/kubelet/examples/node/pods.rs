//! A kubelet, whoever's it is, and an apiserver: what becomes of pods that are made, killed and deleted there.

use crate::{FOREVER, NAME};
use bench::process::Program;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Node, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use testing::{PATIENCE, TestServer};

/// A kubelet, and an apiserver.
pub struct BenchNode {
    pub kubelet: Program,
    server: TestServer,
}

impl BenchNode {
    /// Starts the kubelet, which writes this log, and waits until its node is ready.
    pub async fn start(server: TestServer, kubelet: Command, log: &Path) -> BenchNode {
        let kubelet = Program::start(kubelet).expect("the kubelet starts");
        let nodes: Api<Node> = Api::all(server.admin());
        let ready = async || {
            let conditions = nodes.get_opt(NAME).await.ok()??.status?.conditions?;
            conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True").then_some(())
        };
        let began = Instant::now();
        while ready().await.is_none() {
            // Its log goes with everything else.
            let said = || std::fs::read_to_string(log).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "the node is not ready: {}", said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        BenchNode { kubelet, server }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.server.admin(), "default")
    }

    /// Makes pods at once and waits until all are ready.
    pub async fn start_pods(&self, names: &[String]) -> f64 {
        let pods = self.pods();
        let mut changes = client::watcher(pods.clone(), watcher::Config::default()).default_backoff().boxed();
        // The watch stands before anything is made.
        while !matches!(changes.try_next().await.expect("a watch"), Some(watcher::Event::InitDone)) {}
        let began = Instant::now();
        let made = join_all(names.iter().map(|name| {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"nodeName": NAME, "automountServiceAccountToken": false, "containers": [{
                    "name": "c", "image": "busybox", "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", FOREVER],
                }]},
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let pods = pods.clone();
            async move {
                while let Err(error) = pods.create(&PostParams::default(), &pod).await {
                    // Its service account is made a moment after the namespace.
                    assert!(error.to_string().contains("serviceaccount"), "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }));
        let mut waited: BTreeSet<&String> = names.iter().collect();
        let ready = async {
            while !waited.is_empty() {
                let Some(change) = changes.try_next().await.expect("a watch") else { break };
                let (watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) = change else { continue };
                if is_ready(&pod) {
                    waited.remove(&pod.metadata.name.unwrap_or_default());
                }
            }
        };
        tokio::join!(made, ready);
        began.elapsed().as_secs_f64()
    }

    /// Kills a pod's process and waits until the API says so.
    pub async fn exit(&self, name: &str) -> f64 {
        let pods = self.pods();
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut changes = client::watcher(pods.clone(), only).default_backoff().boxed();
        while !matches!(changes.try_next().await.expect("a watch"), Some(watcher::Event::InitDone)) {}
        let id = status(&pods.get(name).await.expect("the pod")).container_id.clone().unwrap_or_default();
        let id = id.trim_start_matches("containerd://").to_owned();
        let pid = container_pid(&id).expect("its process");
        let began = Instant::now();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
            .expect("killed");
        while let Some(change) = changes.try_next().await.expect("a watch") {
            let watcher::Event::Apply(pod) = change else { continue };
            let ended = |state: &Option<ContainerState>| {
                state.as_ref().is_some_and(|state| state.terminated.is_some())
            };
            let status = status(&pod);
            if ended(&status.state) || ended(&status.last_state) {
                break;
            }
        }
        began.elapsed().as_secs_f64()
    }

    /// Deletes pods at once and waits until all are gone.
    pub async fn delete_pods(&self, names: &[String]) -> f64 {
        let pods = self.pods();
        let mut changes = client::watcher(pods.clone(), watcher::Config::default()).default_backoff().boxed();
        while !matches!(changes.try_next().await.expect("a watch"), Some(watcher::Event::InitDone)) {}
        let began = Instant::now();
        let deleted = join_all(names.iter().map(|name| {
            let pods = pods.clone();
            async move { pods.delete(name, &DeleteParams::default()).await.expect("deleted") }
        }));
        let mut waited: BTreeSet<&String> = names.iter().collect();
        let gone = async {
            while !waited.is_empty() {
                let change = changes.try_next().await.expect("a watch");
                if let Some(watcher::Event::Delete(pod)) = change {
                    waited.remove(&pod.metadata.name.unwrap_or_default());
                }
            }
        };
        tokio::join!(deleted, gone);
        began.elapsed().as_secs_f64()
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn status(pod: &Pod) -> ContainerStatus {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
    statuses.and_then(|statuses| statuses.into_iter().next()).unwrap_or_default()
}

/// The first process in the control group of a container.
fn container_pid(id: &str) -> Option<i32> {
    let found = std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        groups.contains(id).then_some(pid)
    });
    found.min()
}
