//! A node for functions' pods: a process for each, at an address of its own of the loopback.

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher::Config};
use kube::{Api, Client, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::oneshot;

const IMAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../images");
static NEXT: AtomicU16 = AtomicU16::new(1);

/// What the node has done.
#[derive(Default)]
pub struct Node {
    /// Processes started.
    pub started: AtomicUsize,
    /// Processes that run.
    pub running: AtomicUsize,
}

impl Node {
    /// Runs pods until the task is dropped.
    pub async fn run(self: Arc<Node>, client: Client) {
        let pods: Api<Pod> = Api::all(client.clone());
        let config = Config::default().labels("minik8s.io/function");
        let mut events = Box::pin(client::watcher(pods, config).default_backoff().applied_objects());
        let mut stops: HashMap<String, oneshot::Sender<()>> = HashMap::new();
        while let Ok(Some(pod)) = events.try_next().await {
            let name = pod.name_any();
            if pod.metadata.deletion_timestamp.is_some() {
                if let Some(stop) = stops.remove(&name) {
                    let _ = stop.send(());
                }
            } else if !stops.contains_key(&name)
                && pod.status.as_ref().is_none_or(|status| status.pod_ip.is_none())
            {
                let (stop, stopped) = oneshot::channel();
                stops.insert(name, stop);
                tokio::spawn(run_pod(self.clone(), client.clone(), pod, stopped));
            }
        }
    }
}

async fn run_pod(node: Arc<Node>, client: Client, pod: Pod, stopped: oneshot::Receiver<()>) {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    // What has no node is deleted without a grace period.
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(binding.to_string().into_bytes());
    let bound = client.request_text(request.expect("a request")).await;
    if bound.is_err() {
        // It was deleted before it ran.
        return;
    }
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let number = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let address = format!("127.77.{}.{}", number[0], number[1]);
    let folder = TempDir::new().expect("a folder");
    let mut child = command(&pod, &address, folder.path()).spawn().expect("the runtime starts");
    node.started.fetch_add(1, Ordering::Relaxed);
    node.running.fetch_add(1, Ordering::Relaxed);
    let running = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "containerStatuses": [
        status(&pod, json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}))]}});
    let write = async |status: serde_json::Value| {
        let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await;
    };
    write(running).await;
    let pid = Pid::from_raw(child.id().and_then(|id| i32::try_from(id).ok()).expect("it runs"));
    let is_stopped = tokio::select! {
        _ = child.wait() => false,
        _ = stopped => {
            let _ = kill(pid, Signal::SIGTERM);
            true
        }
    };
    let ended: ExitStatus = match tokio::time::timeout(std::time::Duration::from_secs(3), child.wait()).await
    {
        Ok(ended) => ended.expect("it has ended"),
        Err(_) => {
            let _ = kill(pid, Signal::SIGKILL);
            child.wait().await.expect("it has ended")
        }
    };
    node.running.fetch_sub(1, Ordering::Relaxed);
    if is_stopped {
        let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
        return;
    }
    // As a kernel that is out of memory would have it.
    let reason = if ended.signal() == Some(9) { "OOMKilled" } else { "Error" };
    let state = json!({"terminated": {"exitCode": ended.code().unwrap_or(137), "reason": reason}});
    write(json!({"status": {"phase": "Failed", "containerStatuses": [status(&pod, state)]}})).await;
}

fn status(pod: &Pod, state: serde_json::Value) -> serde_json::Value {
    let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
    json!({"name": "function", "image": image, "imageID": "", "ready": false, "restartCount": 0, "state": state})
}

fn command(pod: &Pod, address: &str, folder: &Path) -> Command {
    let container = &pod.spec.as_ref().expect("a spec").containers[0];
    let mut command = match container.image.as_deref() {
        Some("minik8s.io/nodejs:debian") => {
            let mut command = Command::new("/usr/bin/node");
            command.arg(format!("{IMAGES}/nodejs/runtime.js"));
            command
        }
        Some("server") => {
            let mut command = Command::new("/usr/bin/python3");
            command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/functions/server.py"));
            command
        }
        _ => {
            let program = format!(
                "import sys; sys.path.insert(0, {:?}); import minik8s_runtime",
                format!("{IMAGES}/python")
            );
            let mut command = Command::new("/usr/bin/python3");
            command.args(["-I", "-S", "-u", "-B", "-c", &program]);
            command
        }
    };
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    for variable in container.env.iter().flatten() {
        command.env(&variable.name, variable.value.clone().unwrap_or_default());
    }
    command.env("FUNCTION_ADDRESS", address).env("FUNCTION_FOLDER", folder.join("function"));
    command
}
