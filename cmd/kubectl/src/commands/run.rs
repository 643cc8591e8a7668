//! `kubectl run`: one pod.

use super::exec::{Talk, attach_or_follow};
use super::expose::{pairs, services};
use crate::change::{ChangeFlags, DryRun, create};
use crate::connection::{ClusterFlags, Connection};
use crate::pods;
use crate::select::name_of;
use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// What `run` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl run web --image=nginx --port=80\n  kubectl run -it --rm try --image=busybox --restart=Never -- sh"
)]
pub struct Flags {
    /// The pod's name.
    name: String,
    /// The image.
    #[arg(long)]
    image: String,
    /// The same as behind --.
    #[arg(hide = true)]
    more: Vec<String>,
    /// Behind --: arguments of the image's command, or with --command the command.
    #[arg(last = true)]
    words: Vec<String>,
    /// What stands behind -- is the command.
    #[arg(long)]
    command: bool,
    /// KEY=VALUE.
    #[arg(long)]
    env: Vec<String>,
    /// Labels: a=b,c=d.
    #[arg(long, short)]
    labels: Option<String>,
    /// Annotations: a=b.
    #[arg(long)]
    annotations: Vec<String>,
    /// A port that it listens on.
    #[arg(long)]
    port: Option<u16>,
    /// Also make a service for that port.
    #[arg(long)]
    expose: bool,
    /// Always, OnFailure or Never.
    #[arg(long, default_value = "Always")]
    restart: String,
    /// Always, IfNotPresent or Never.
    #[arg(long)]
    image_pull_policy: Option<String>,
    /// May do everything that the node may.
    #[arg(long)]
    privileged: bool,
    #[command(flatten)]
    talk: Talk,
    /// Attach to it; so with -i.
    #[arg(long)]
    attach: bool,
    /// Leave its standard input open when the first client goes.
    #[arg(long)]
    leave_stdin_open: bool,
    /// Delete it when it has ended.
    #[arg(long)]
    rm: bool,
    /// JSON that is merged into the pod.
    #[arg(long)]
    overrides: Option<String>,
    /// How long to wait until it runs.
    #[arg(long, default_value = "1m", value_parser = crate::duration::parse)]
    pod_running_timeout: Duration,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Runs a pod.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<ExitCode> {
    let attached = flags.attach || flags.talk.stdin || flags.talk.tty;
    if flags.rm && !attached {
        bail!("--rm should only be used for attached containers");
    }
    if attached && flags.change.dry_run != DryRun::None {
        bail!(
            "--dry-run=client|server can't be used with attached containers options (--attach, --stdin, or --tty)"
        );
    }
    if flags.talk.tty && !flags.talk.stdin {
        bail!("-i/--stdin is required for containers with -t/--tty=true");
    }
    if flags.expose && flags.port.is_none() {
        bail!("--port must be set when exposing a service");
    }
    let connection = match flags.change.dry_run {
        DryRun::Client => Connection::open_or_offline(cluster).await?,
        _ => Connection::open(cluster).await?,
    };
    let mut pod = pod(&flags)?;
    pod["metadata"]["namespace"] = connection.namespace.clone().into();
    let shown = if attached {
        ChangeFlags { output: Some("name".into()), ..flags.change.clone() }
    } else {
        flags.change.clone()
    };
    let made = match attached {
        // Whoever talks to it sees that it is there.
        true => {
            let path = format!(
                "{}{}",
                pods::resource().path(Some(&connection.namespace)),
                shown.query("kubectl-run")
            );
            connection.send(Method::POST, &path, Some(&pod)).await?
        }
        false => create(&connection, &shown, "kubectl-run", (&pods::resource(), &pod), "created").await?,
    };
    let is_policy_open = flags.image_pull_policy.is_none() && pods::is_always_pulled(&flags.image);
    if is_policy_open && flags.change.dry_run == DryRun::None && std::io::stderr().is_terminal() {
        eprintln!("Note: {}", pods::ALWAYS_PULLED);
    }
    if flags.expose {
        if flags.change.output.as_deref() == Some("yaml") {
            println!("---");
        }
        let service = service(&flags, &pod);
        create(&connection, &flags.change, "kubectl-run", (&services(), &service), "created").await?;
    }
    if !attached {
        return Ok(ExitCode::SUCCESS);
    }
    let ended = talk(&connection, &flags, name_of(&made)).await;
    if flags.rm {
        let path = pods::path(&connection, name_of(&made));
        connection.send(Method::DELETE, &path, None).await?;
        if !flags.talk.quiet {
            println!("pod \"{}\" deleted", name_of(&made));
        }
    }
    ended
}

/// The pod that flags describe.
fn pod(flags: &Flags) -> Result<Value> {
    let labels = match &flags.labels {
        Some(labels) => pairs(labels)?,
        None => pairs(&format!("run={}", flags.name))?,
    };
    let mut container = json!({"name": flags.name, "image": flags.image, "resources": {}});
    let words: Vec<&String> = flags.more.iter().chain(&flags.words).collect();
    if !words.is_empty() {
        container[if flags.command { "command" } else { "args" }] = json!(words);
    }
    pods::set_env(&mut container, &flags.env)?;
    if let Some(port) = flags.port {
        container["ports"] = json!([{"containerPort": port}]);
    }
    if let Some(policy) = &flags.image_pull_policy {
        container["imagePullPolicy"] = policy.clone().into();
    }
    if flags.privileged {
        container["securityContext"] = json!({"privileged": true});
    }
    if flags.talk.stdin {
        container["stdin"] = true.into();
        if !flags.leave_stdin_open {
            container["stdinOnce"] = true.into();
        }
    }
    if flags.talk.tty {
        container["tty"] = true.into();
    }
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": flags.name, "labels": labels},
        "spec": {"containers": [container], "restartPolicy": restart(&flags.restart)?, "dnsPolicy": "ClusterFirst"},
    });
    if !flags.annotations.is_empty() {
        pod["metadata"]["annotations"] = pairs(&flags.annotations.join(","))?.into();
    }
    if let Some(overrides) = &flags.overrides {
        let overrides: Value = serde_json::from_str(overrides).context("--overrides is not JSON")?;
        super::patch::merge(&mut pod, &overrides);
    }
    Ok(pod)
}

fn restart(word: &str) -> Result<&str> {
    match word {
        "Always" | "OnFailure" | "Never" => Ok(word),
        _ => bail!("invalid restart policy: {word}"),
    }
}

fn service(flags: &Flags, pod: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": flags.name, "namespace": pod["metadata"]["namespace"]},
        "spec": {
            "ports": [{"port": flags.port, "targetPort": flags.port, "protocol": "TCP"}],
            "selector": pod["metadata"]["labels"],
        },
    })
}

/// Attaches when it runs; shows the log of one that was faster.
async fn talk(connection: &Connection, flags: &Flags, name: &str) -> Result<ExitCode> {
    let running = pods::running(connection, name, flags.pod_running_timeout).await?;
    if running["status"]["phase"] == "Running" {
        attach_or_follow(connection, &running, &flags.name, flags.talk).await?;
    } else {
        super::logs::follow(connection, name, &flags.name).await?;
    }
    if flags.restart == "Always" {
        return Ok(ExitCode::SUCCESS);
    }
    let code = exit_code(connection, name).await?;
    if code != 0 {
        eprintln!("pod {}/{name} terminated (Error)", connection.namespace);
    }
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// How a pod that runs once ended.
async fn exit_code(connection: &Connection, name: &str) -> Result<i64> {
    loop {
        let pod = connection.get(&pods::path(connection, name)).await?;
        let state = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        match pod["status"]["phase"].as_str() {
            Some("Succeeded") => return Ok(0),
            Some("Failed") => return Ok(state["exitCode"].as_i64().unwrap_or(1)),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
