//! `kubectl debug`: a container of one's own in a pod that runs.

use super::exec::{Common, attach_or_follow};
use crate::connection::{ClusterFlags, Connection};
use crate::pods;
use crate::select::name_of;
use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// What `debug` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl debug -it web --image=busybox --target=main -- sh")]
pub struct Flags {
    /// The pod, or kind/name of what has pods.
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
    /// Pass standard input on.
    #[arg(long, short = 'i')]
    stdin: bool,
    /// Standard input is a terminal, there too.
    #[arg(long, short)]
    tty: bool,
    /// Attach to it; so with -i.
    #[arg(long)]
    attach: bool,
    /// Say nothing oneself.
    #[arg(long, short)]
    quiet: bool,
    /// general, baseline, restricted, …: accepted as upstream's; nothing is added.
    #[arg(long, hide = true)]
    profile: Option<String>,
}

/// Adds the container, and attaches to it.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<ExitCode> {
    if flags.pod.starts_with("node/") || flags.pod.starts_with("nodes/") {
        bail!("debugging nodes is not supported: run a privileged pod on the node instead");
    }
    let connection = Connection::open(cluster).await?;
    let found = pods::of_word(&connection, &flags.pod).await?;
    let pod = found.first().with_context(|| format!("{} has no pods", flags.pod))?;
    let name = match &flags.container {
        Some(name) => name.clone(),
        None => {
            let name = free_name(pod);
            if !flags.quiet {
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
    if !(flags.attach || flags.stdin) {
        return Ok(ExitCode::SUCCESS);
    }
    let pod = started(&connection, &path, &name).await?;
    let common = Common {
        container: Some(name),
        stdin: flags.stdin,
        tty: flags.tty,
        quiet: flags.quiet,
        pod_running_timeout: Duration::ZERO,
    };
    attach_or_follow(&connection, &pod, &common).await?;
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
        "name": name, "image": flags.image, "stdin": flags.stdin, "tty": flags.tty,
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
