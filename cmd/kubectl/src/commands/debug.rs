//! `kubectl debug`: a container of one's own in a pod that runs, or on a node.

use super::exec::{Talk, attach_or_follow};
use crate::connection::{ClusterFlags, Connection};
use crate::pods;
use crate::select::name_of;
use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// How long a pod on a node has to start.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// What `debug` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl debug -it web --image=busybox --target=main -- sh\n  kubectl debug -it node/m1 --image=busybox -- chroot /host"
)]
pub struct Flags {
    /// The pod, kind/name of what has pods, or node/name.
    pod: String,
    /// Behind --: the command and what it is told.
    #[arg(last = true)]
    words: Vec<String>,
    /// The image.
    #[arg(long)]
    image: String,
    /// The container's name; made up unless told.
    #[arg(long, short)]
    container: Option<String>,
    /// The container whose processes it should see.
    #[arg(long)]
    target: Option<String>,
    /// KEY=VALUE.
    #[arg(long)]
    env: Vec<String>,
    /// Always, IfNotPresent or Never.
    #[arg(long)]
    image_pull_policy: Option<String>,
    #[command(flatten)]
    talk: Talk,
    /// Attach to it; so with -i.
    #[arg(long)]
    attach: bool,
    /// general, baseline, restricted, …: accepted as upstream's; nothing is added.
    #[arg(long, hide = true)]
    profile: Option<String>,
}

/// Adds the container, and attaches to it.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<ExitCode> {
    let connection = Connection::open(cluster).await?;
    let is_attached = flags.attach || flags.talk.stdin;
    if let Some((_, node)) =
        flags.pod.split_once('/').filter(|(kind, _)| matches!(*kind, "node" | "nodes" | "no"))
    {
        return on_node(&connection, &flags, node, is_attached).await;
    }
    let found = pods::of_word(&connection, &flags.pod).await?;
    let pod = found.first().with_context(|| format!("{} has no pods", flags.pod))?;
    let name = match &flags.container {
        Some(name) => name.clone(),
        None => {
            let name = free_name(pod);
            if !flags.talk.quiet {
                eprintln!("Defaulting debug container name to {name}.");
            }
            name
        }
    };
    let patch = json!({"spec": {"ephemeralContainers": [container(&flags, &name)?]}}).to_string();
    let path = pods::path(&connection, name_of(pod));
    let kind = "application/strategic-merge-patch+json";
    connection
        .send_as(Method::PATCH, &format!("{path}/ephemeralcontainers"), kind, Some(patch), "application/json")
        .await?;
    if !is_attached {
        return Ok(ExitCode::SUCCESS);
    }
    let pod = started(&connection, &path, &name).await?;
    attach_or_follow(&connection, &pod, &name, flags.talk).await?;
    Ok(ExitCode::SUCCESS)
}

/// A pod on the node that sees all of it, its files below /host. It stays until somebody deletes it.
async fn on_node(connection: &Connection, flags: &Flags, node: &str, is_attached: bool) -> Result<ExitCode> {
    connection.get(&format!("/api/v1/nodes/{node}")).await?;
    let mut container = container(flags, "debugger")?;
    container["volumeMounts"] = json!([{"name": "host-root", "mountPath": "/host"}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": format!("node-debugger-{node}-"), "namespace": connection.namespace,
            "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"},
        },
        "spec": {
            "nodeName": node, "hostNetwork": true, "hostPID": true, "hostIPC": true, "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}], "containers": [container],
            "volumes": [{"name": "host-root", "hostPath": {"path": "/"}}],
        },
    });
    let made = connection
        .send(Method::POST, &pods::resource().path(Some(&connection.namespace)), Some(&pod))
        .await?;
    let name = name_of(&made);
    if !flags.talk.quiet {
        eprintln!("Creating debugging pod {name} with container debugger on node {node}.");
    }
    if is_attached {
        let pod = pods::running(connection, name, STARTS_WITHIN).await?;
        attach_or_follow(connection, &pod, "debugger", flags.talk).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `debugger-1`, or the next that the pod does not have.
fn free_name(pod: &Value) -> String {
    let taken = pods::containers(pod);
    let mut number = 1;
    while taken.contains(&format!("debugger-{number}").as_str()) {
        number += 1;
    }
    format!("debugger-{number}")
}

fn container(flags: &Flags, name: &str) -> Result<Value> {
    let mut container = json!({
        "name": name, "image": flags.image, "stdin": flags.talk.stdin, "tty": flags.talk.tty,
        "terminationMessagePolicy": "File",
    });
    if !flags.words.is_empty() {
        container["command"] = json!(flags.words);
    }
    for (field, value) in
        [("targetContainerName", &flags.target), ("imagePullPolicy", &flags.image_pull_policy)]
    {
        if let Some(value) = value {
            container[field] = value.clone().into();
        }
    }
    pods::set_env(&mut container, &flags.env)?;
    Ok(container)
}

/// The pod once its new container has been started.
async fn started(connection: &Connection, path: &str, name: &str) -> Result<Value> {
    loop {
        let pod = connection.get(path).await?;
        let statuses = pod["status"]["ephemeralContainerStatuses"].as_array();
        let own = statuses.into_iter().flatten().find(|status| status["name"] == name);
        let state = own.map(|status| status["state"].clone()).unwrap_or_default();
        if state.get("running").or(state.get("terminated")).is_some() {
            return Ok(pod);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
