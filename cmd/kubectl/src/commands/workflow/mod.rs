//! `kubectl workflow`: runs of workflows, from their start to what is left of them.
//!
//! ```text
//! run ──> WorkflowRun ──follow──> list, describe, logs      approve, cancel, suspend, resume, redrive ──> WorkflowRun
//! validate, graph: files too, without a cluster
//! ```

mod describe;
mod follow;
mod graph;
mod logs;
mod validate;

pub use follow::after_apply;

use crate::connection::{ClusterFlags, Connection, is_not_found};
use anyhow::{Context, Result, bail};
use api::dialect::map_name;
use http::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// What is done with workflows.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Start a run.
    #[command(after_help = "Example:\n  kubectl workflow run sum --params '{\"x\":1,\"y\":2}' --watch")]
    Run(RunFlags),
    /// Show runs, the newest first.
    List {
        /// Only those of this workflow.
        workflow: Option<String>,
    },
    /// Show a run, with every step: what went in and came out, how often and how long.
    Describe(RunName),
    /// Show what the steps of a run have written.
    Logs(RunName),
    /// End a run now.
    Cancel(RunName),
    /// Begin no further step of a run; what is under way goes on.
    Suspend(RunName),
    /// Go on with a run that was suspended.
    Resume(RunName),
    /// Go on with a run where it failed or was cancelled. What had succeeded is not done again.
    Redrive(RunName),
    /// Give the answer that a run waits for.
    #[command(
        after_help = "Examples:\n  kubectl workflow approve order-x7k2p\n  kubectl workflow approve order-x7k2p --reject --reason 'too dear'"
    )]
    Approve(ApproveFlags),
    /// Check files without a cluster.
    #[command(after_help = "Example:\n  kubectl workflow validate -f flow.yaml")]
    Validate(validate::Flags),
    /// Draw the graph of a workflow, as text or as Mermaid.
    #[command(
        after_help = "Examples:\n  kubectl workflow graph sum\n  kubectl workflow graph -f flow.yaml --mermaid"
    )]
    Graph(graph::Flags),
}

/// What `run` is told.
#[derive(clap::Args)]
pub struct RunFlags {
    /// The workflow.
    name: String,
    /// The input of its first node, as JSON; the workflow's own unless it is given.
    #[arg(long)]
    params: Option<String>,
    /// The run's name; a second run of the same name is not started.
    #[arg(long)]
    run_name: Option<String>,
    /// Follow it to its end.
    #[arg(long, short)]
    watch: bool,
}

/// A run.
#[derive(clap::Args)]
pub struct RunName {
    /// The run, or a workflow, whose newest run is meant.
    run: String,
}

/// What `approve` is told.
#[derive(clap::Args)]
pub struct ApproveFlags {
    /// The run, or a workflow, whose newest run is meant.
    run: String,
    /// The node that waits, where there are several.
    #[arg(long)]
    node: Option<String>,
    /// Refuse, instead.
    #[arg(long, conflicts_with_all = ["value", "print_token"])]
    reject: bool,
    /// Why it is refused.
    #[arg(long, requires = "reject")]
    reason: Option<String>,
    /// JSON that goes with the approval.
    #[arg(long)]
    value: Option<String>,
    /// Show a path by which a program in the cluster may answer, once, without any other credential.
    #[arg(long)]
    print_token: bool,
}

/// Does it.
pub async fn run(cluster: &ClusterFlags, command: Command) -> Result<ExitCode> {
    match command {
        Command::Validate(flags) => return validate::run(cluster, &flags).await,
        Command::Graph(flags) => graph::run(cluster, &flags).await?,
        Command::Run(flags) => return start(cluster, flags).await,
        Command::List { workflow } => list(&Connection::open(cluster).await?, workflow.as_deref()).await?,
        Command::Describe(run) => describe::run(cluster, &run.run).await?,
        Command::Logs(run) => logs::run(cluster, &run.run).await?,
        Command::Approve(flags) => approve(cluster, flags).await?,
        Command::Cancel(run) => {
            change(cluster, &run.run, "cancelled", |run| refused_if_ended(run, json!({"cancel": true})))
                .await?;
        }
        Command::Suspend(run) => {
            change(cluster, &run.run, "suspended", |run| refused_if_ended(run, json!({"suspend": true})))
                .await?;
        }
        Command::Resume(run) => {
            change(cluster, &run.run, "resumed", |run| refused_if_ended(run, json!({"suspend": false})))
                .await?;
        }
        Command::Redrive(run) => change(cluster, &run.run, "redriven", redrive).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn start(cluster: &ClusterFlags, flags: RunFlags) -> Result<ExitCode> {
    let connection = Connection::open(cluster).await?;
    let workflow = map_name(&flags.name);
    let params = flags.params.as_deref().filter(|params| !params.trim().is_empty());
    let params: Value = params
        .map(serde_json::from_str)
        .transpose()
        .context("--params is not JSON: for example --params '{\"x\": 1}'")?
        .unwrap_or_default();
    if let Err(error) = connection.get(&path(&connection, "workflows", Some(&workflow))).await {
        if is_not_found(&error) {
            bail!(
                "there is no workflow {workflow:?}: kubectl apply -f FILE stores one, kubectl get workflows shows them"
            );
        }
        return Err(error);
    }
    let run = create(&connection, &workflow, &params, flags.run_name.as_deref()).await?;
    let name = name_of(&run).to_owned();
    println!("workflowrun.minik8s.io/{name} created");
    match flags.watch {
        true => follow::follow(&connection, &name).await,
        false => {
            println!("kubectl workflow describe {name} shows how it goes");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Makes a run.
async fn create(
    connection: &Connection,
    workflow: &str,
    params: &Value,
    name: Option<&str>,
) -> Result<Value> {
    let mut run = json!({
        "apiVersion": "minik8s.io/v1", "kind": "WorkflowRun",
        "metadata": {"labels": {"minik8s.io/workflow": workflow.chars().take(63).collect::<String>()}},
        "spec": {"workflow": workflow},
    });
    match name {
        Some(name) => run["metadata"]["name"] = name.into(),
        None => run["metadata"]["generateName"] = format!("{workflow}-").into(),
    }
    if !params.is_null() {
        run["spec"]["params"] = params.clone();
    }
    connection.send(Method::POST, &path(connection, "workflowruns", None), Some(&run)).await
}

async fn list(connection: &Connection, workflow: Option<&str>) -> Result<()> {
    let mut path = path(connection, "workflowruns", None);
    if let Some(workflow) = workflow {
        path += &format!("?fieldSelector=spec.workflow%3D{}", map_name(workflow));
    }
    let mut runs = items(connection.get(&path).await?);
    if runs.is_empty() {
        eprintln!("No runs found in {} namespace.", connection.namespace);
        return Ok(());
    }
    runs.sort_by_key(|run| std::cmp::Reverse(created(run)));
    let mut rows =
        vec![["NAME", "WORKFLOW", "STATUS", "NODE", "STEPS", "TOOK", "AGE"].map(str::to_owned).to_vec()];
    let now = jiff::Timestamp::now();
    for run in &runs {
        let status = &run["status"];
        let nodes: Vec<&str> =
            status["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        rows.push(vec![
            name_of(run).to_owned(),
            run["spec"]["workflow"].as_str().unwrap_or_default().to_owned(),
            phase(run).to_owned(),
            nodes.join(","),
            status["stepCount"].as_i64().unwrap_or(0).to_string(),
            took(status),
            api::printing::since(run["metadata"]["creationTimestamp"].as_str(), now),
        ]);
    }
    print!("{}", cli::table(&rows));
    Ok(())
}

/// Changes what people want of a run.
async fn change(
    cluster: &ClusterFlags,
    name: &str,
    done: &str,
    patch: impl Fn(&Value) -> Result<Value>,
) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let run = find(&connection, name).await?;
    let patch = json!({"spec": patch(&run)?}).to_string();
    let path = path(&connection, "workflowruns", Some(name_of(&run)));
    let kind = "application/merge-patch+json";
    connection.send_as(Method::PATCH, &path, kind, Some(patch), "application/json").await?;
    println!("workflowrun.minik8s.io/{} {done}", name_of(&run));
    Ok(())
}

fn refused_if_ended(run: &Value, patch: Value) -> Result<Value> {
    match has_ended(run) {
        true => bail!("run {:?} has ended: it is {}", name_of(run), phase(run)),
        false => Ok(patch),
    }
}

fn redrive(run: &Value) -> Result<Value> {
    match phase(run) {
        "Failed" | "Cancelled" => {
            let before = run["spec"]["redrive"].as_i64().unwrap_or(0);
            Ok(json!({"redrive": before + 1, "cancel": null}))
        }
        "Succeeded" => bail!("run {:?} has succeeded: kubectl workflow run starts another one", name_of(run)),
        phase => {
            bail!("run {:?} is {phase}: only what has failed or was cancelled is redriven", name_of(run))
        }
    }
}

async fn approve(cluster: &ClusterFlags, flags: ApproveFlags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let run = find(&connection, &flags.run).await?;
    let name = name_of(&run).to_owned();
    let mut body = json!({"approved": !flags.reject});
    if let Some(node) = &flags.node {
        body["node"] = map_name(node).into();
    }
    if let Some(reason) = &flags.reason {
        body["reason"] = reason.clone().into();
    }
    if let Some(value) = &flags.value {
        body["value"] =
            serde_json::from_str(value).context("--value is not JSON: for example --value '\"fine\"'")?;
    }
    if flags.print_token {
        body["token"] = true.into();
    }
    let path = format!("{}/approve", path(&connection, "workflowruns", Some(&name)));
    let answer = connection.send(Method::POST, &path, Some(&body)).await?;
    match (answer["path"].as_str(), flags.reject) {
        (Some(path), _) => println!("https://knative.kube-system.svc{path}"),
        (None, true) => println!("workflowrun.minik8s.io/{name} refused"),
        (None, false) => println!("workflowrun.minik8s.io/{name} approved"),
    }
    Ok(())
}

/// The run of this name, or the newest one of the workflow of this name.
async fn find(connection: &Connection, name: &str) -> Result<Value> {
    let name = map_name(name);
    match connection.get(&path(connection, "workflowruns", Some(&name))).await {
        Err(error) if is_not_found(&error) => {}
        found => return found,
    }
    let of = format!("{}?fieldSelector=spec.workflow%3D{name}", path(connection, "workflowruns", None));
    let newest = items(connection.get(&of).await?).into_iter().max_by_key(created);
    newest.with_context(|| {
        format!("there is no run {name:?}, nor one of a workflow of that name: kubectl workflow list")
    })
}

/// The steps of a run that have a record, by their number.
async fn steps(connection: &Connection, run: &Value) -> Result<Vec<Value>> {
    let label: String = name_of(run).chars().take(63).collect();
    let label = label.trim_end_matches(['-', '.']);
    let of = format!(
        "{}?labelSelector=minik8s.io%2Fworkflow-run%3D{label}",
        path(connection, "workflowsteps", None)
    );
    let uid = &run["metadata"]["uid"];
    let records = items(connection.get(&of).await?);
    let own = records.into_iter().filter(|step| step["metadata"]["ownerReferences"][0]["uid"] == *uid);
    let mut steps: Vec<Value> = own.map(|mut step| step["spec"].take()).collect();
    // The last ones may not have one yet.
    for step in run["status"]["steps"].as_array().into_iter().flatten() {
        if steps.iter().all(|own| own["number"] != step["number"]) {
            steps.push(step.clone());
        }
    }
    steps.sort_by_key(|step| step["number"].as_i64());
    Ok(steps)
}

fn path(connection: &Connection, plural: &str, name: Option<&str>) -> String {
    let path = format!("/apis/minik8s.io/v1/namespaces/{}/{plural}", connection.namespace);
    name.map_or(path.clone(), |name| format!("{path}/{name}"))
}

fn items(mut list: Value) -> Vec<Value> {
    match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

fn created(run: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // Of those of one second, that which began last.
    (text(&run["metadata"]["creationTimestamp"]), text(&run["status"]["startTime"]))
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn phase(run: &Value) -> &str {
    match run["status"]["phase"].as_str() {
        None | Some("") => "Pending",
        Some(phase) => phase,
    }
}

fn has_ended(run: &Value) -> bool {
    matches!(phase(run), "Succeeded" | "Failed" | "Cancelled")
}

/// How long something took that has a beginning and an end, so far.
fn took(of: &Value) -> String {
    let time = |field: &str| of[field].as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let Some(start) = time("startTime") else { return String::new() };
    let end = time("completionTime").unwrap_or_else(jiff::Timestamp::now);
    let milliseconds = end.duration_since(start).as_millis();
    match milliseconds {
        ..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{:.1} s", milliseconds as f64 / 1000.0),
        _ => api::printing::human_duration(i64::try_from(milliseconds / 1000).unwrap_or_default()),
    }
}
