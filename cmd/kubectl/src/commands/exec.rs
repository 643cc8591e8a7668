//! `kubectl exec` and `kubectl attach`.

use crate::connection::{ClusterFlags, Connection};
use crate::pods;
use crate::select::name_of;
use crate::session;
use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use serde_json::Value;
use std::process::ExitCode;

/// What `exec` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl exec web -- date\n  kubectl exec -it deployment/web -c main -- sh"
)]
pub struct Flags {
    /// The pod, or kind/name of what has pods.
    pod: String,
    /// As upstream's older form: words without -- before them.
    #[arg(hide = true)]
    rest: Vec<String>,
    /// Behind --: the command and what it is told.
    #[arg(last = true)]
    command: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// What `attach` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl attach -it web")]
pub struct AttachFlags {
    /// The pod, or kind/name of what has pods.
    pod: String,
    #[command(flatten)]
    common: Common,
}

/// What both are told.
#[derive(clap::Args, Clone)]
pub struct Common {
    /// The container.
    #[arg(long, short)]
    pub container: Option<String>,
    #[command(flatten)]
    pub talk: Talk,
    /// How long to wait until the pod runs.
    #[arg(long, default_value = "1m", value_parser = crate::duration::parse)]
    pub pod_running_timeout: std::time::Duration,
}

impl Common {
    /// The container that is meant.
    fn container_of(&self, pod: &Value) -> Result<String> {
        match &self.container {
            Some(container) => Ok(container.clone()),
            None => pods::default_container(pod, self.talk.quiet),
        }
    }
}

/// How to talk to a container.
#[derive(clap::Args, Clone, Copy)]
pub struct Talk {
    /// Pass standard input on.
    #[arg(long, short = 'i')]
    pub stdin: bool,
    /// Standard input is a terminal, there too.
    #[arg(long, short)]
    pub tty: bool,
    /// Say nothing oneself.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Runs a command in a container, and ends as it ends.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<ExitCode> {
    if !flags.rest.is_empty() {
        bail!("exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead");
    }
    if flags.command.is_empty() {
        bail!("you must specify at least one command for the container");
    }
    let connection = Connection::open(cluster).await?;
    let common = &flags.common;
    let pod = pods::running(&connection, &flags.pod, common.pod_running_timeout).await?;
    refuse_ended(&pod, "exec into")?;
    let container = common.container_of(&pod)?;
    let Talk { stdin, tty, quiet } = common.talk;
    let tty = session::can_use_terminal(tty, stdin, quiet);
    let status = execute(&connection, name_of(&pod), &container, &flags.command, stdin, tty).await?;
    session::exit_code(status)
}

async fn execute(
    connection: &Connection,
    pod: &str,
    container: &str,
    command: &[String],
    stdin: bool,
    tty: bool,
) -> Result<Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Status>> {
    let params = params(container, stdin, tty);
    let process = api(connection).exec(pod, command.iter().map(String::as_str), &params).await;
    let process = process.map_err(|error| connection.not_upgraded(error))?;
    session::run(process, tty).await
}

/// The pods of the namespace.
pub fn api(connection: &Connection) -> Api<Pod> {
    Api::namespaced(connection.client.clone(), &connection.namespace)
}

/// What the server is told about streams.
pub fn params(container: &str, stdin: bool, tty: bool) -> AttachParams {
    AttachParams {
        container: Some(container.to_owned()),
        stdin,
        stdout: true,
        // A terminal has one way out.
        stderr: !tty,
        tty,
        max_stdin_buf_size: Some(session::BLOCK),
        max_stdout_buf_size: Some(session::BLOCK),
        max_stderr_buf_size: Some(session::BLOCK),
    }
}

fn refuse_ended(pod: &Value, what: &str) -> Result<()> {
    match pod["status"]["phase"].as_str() {
        Some(phase @ ("Succeeded" | "Failed")) => {
            bail!("cannot {what} a container in a completed pod; current phase is {phase}")
        }
        _ => Ok(()),
    }
}

/// Attaches to a container's main process.
pub async fn attach(cluster: &ClusterFlags, flags: AttachFlags) -> Result<ExitCode> {
    let connection = Connection::open(cluster).await?;
    let common = &flags.common;
    let pod = pods::running(&connection, &flags.pod, common.pod_running_timeout).await?;
    attach_to(&connection, &pod, &common.container_of(&pod)?, common.talk).await
}

/// Attaches to a container that was just started; one that has ended by now has left a log.
pub async fn attach_or_follow(
    connection: &Connection,
    pod: &Value,
    container: &str,
    talk: Talk,
) -> Result<()> {
    let Err(error) = attach_to(connection, pod, container, talk).await else { return Ok(()) };
    let name = name_of(pod);
    eprintln!("warning: couldn't attach to pod/{name}, falling back to streaming logs: {error:#}");
    super::logs::follow(connection, name, container).await
}

/// Attaches to a container of a pod that runs.
async fn attach_to(connection: &Connection, pod: &Value, container: &str, talk: Talk) -> Result<ExitCode> {
    refuse_ended(pod, "attach to")?;
    let all = ["containers", "initContainers", "ephemeralContainers"];
    let spec = all
        .iter()
        .filter_map(|field| pod["spec"][field].as_array())
        .flatten()
        .find(|own| own["name"] == container)
        .with_context(|| format!("container {container} not found in pod {}", name_of(pod)))?;
    let has_tty = spec["tty"] == true;
    if talk.tty && !has_tty && !talk.quiet {
        eprintln!("error: Unable to use a TTY - container {container} did not allocate one");
    }
    let stdin = talk.stdin && spec["stdin"] == true;
    let local = session::can_use_terminal(talk.tty && has_tty, stdin, talk.quiet);
    if talk.stdin && has_tty && !talk.quiet {
        eprintln!("If you don't see a command prompt, try pressing enter.");
    }
    let params = AttachParams { stderr: !has_tty, tty: has_tty, ..params(container, stdin, local) };
    let process = api(connection).attach(name_of(pod), &params).await;
    let status = session::run(process.map_err(|error| connection.not_upgraded(error))?, local).await?;
    if talk.stdin && local && !talk.quiet && pod["spec"]["restartPolicy"] == "Always" {
        let name = name_of(pod);
        eprintln!(
            "Session ended, resume using 'kubectl attach {name} -c {container} -i -t' command when the pod is running"
        );
    }
    // Somebody who was attached to says nothing of an end that it did not see.
    status.map_or(Ok(ExitCode::SUCCESS), |status| session::exit_code(Some(status)))
}
