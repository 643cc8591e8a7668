//! Following a run to its end: the graph drawn anew in place on a terminal, a line for each step elsewhere.

use super::{Connection, create, graph, has_ended, name_of, path, phase, took, validate};
use anyhow::{Result, bail};
use futures::TryStreamExt;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A run that nobody has begun after this is not waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is shown of a run that goes on.
struct Screen {
    is_terminal: bool,
    /// So many lines stand there from before.
    drawn: usize,
    told: HashSet<i64>,
    waits: HashSet<i64>,
}

/// Follows a run to its end. How that was is the program's own end.
pub async fn follow(connection: &Connection, name: &str) -> Result<ExitCode> {
    let mut screen = Screen {
        is_terminal: std::io::stdout().is_terminal(),
        drawn: 0,
        told: HashSet::new(),
        waits: HashSet::new(),
    };
    let began = Instant::now();
    let mut run = connection.get(&path(connection, "workflowruns", Some(name))).await?;
    loop {
        screen.show(&run)?;
        if has_ended(&run) {
            return ended(connection, &run).await;
        }
        let version = run["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let from = format!(
            "{}?watch=true&fieldSelector=metadata.name%3D{name}&timeoutSeconds=5&resourceVersion={version}",
            path(connection, "workflowruns", None)
        );
        // A watch that ends is no news: the run is looked at again.
        if let Ok(events) = connection.watch(&from, "application/json").await {
            let mut events = std::pin::pin!(events);
            while let Ok(Some(mut event)) = events.try_next().await {
                let seen = event["object"].take();
                if event["type"] == "DELETED" {
                    bail!("run {name:?} was deleted");
                }
                if name_of(&seen) == name {
                    screen.show(&seen)?;
                    if has_ended(&seen) {
                        break;
                    }
                }
            }
        }
        run = connection.get(&path(connection, "workflowruns", Some(name))).await?;
        if phase(&run) == "Pending" && began.elapsed() > PATIENCE {
            bail!(
                "run {name:?} has not begun: other runs of its workflow may be before it (limits.parallelRuns), or knative does not run: kubectl -n kube-system get pods"
            );
        }
    }
}

impl Screen {
    fn show(&mut self, run: &Value) -> Result<()> {
        if self.is_terminal {
            let graph = &run["status"]["graph"];
            if graph.is_object() {
                let text = graph::text(graph, |node| format!("{} ", sign(run, node)));
                let mut out = String::new();
                if self.drawn > 0 {
                    let _ = write!(out, "\x1b[{}A\x1b[J", self.drawn);
                }
                out += &text;
                self.drawn = text.lines().count();
                std::io::stdout().write_all(out.as_bytes())?;
                std::io::stdout().flush()?;
            }
            return Ok(());
        }
        for step in run["status"]["steps"].as_array().into_iter().flatten() {
            if self.told.insert(step["number"].as_i64().unwrap_or_default()) {
                println!("{}", line(step));
            }
        }
        for thread in run["status"]["threads"].as_array().into_iter().flatten() {
            let step = thread["step"].as_i64().unwrap_or_default();
            if thread["state"] == "Approving" && self.waits.insert(step) {
                println!(
                    "?  {} waits for an answer: kubectl workflow approve {}",
                    thread["node"].as_str().unwrap_or_default(),
                    name_of(run)
                );
            }
        }
        Ok(())
    }
}

/// What has become of a node so far.
fn sign(run: &Value, node: &str) -> char {
    let mut threads = run["status"]["threads"].as_array().into_iter().flatten();
    if let Some(thread) = threads.find(|thread| thread["node"] == node) {
        return match thread["state"].as_str() {
            Some("Failed") => '✗',
            Some("Approving") => '?',
            Some("Stopped") => '-',
            _ => '▶',
        };
    }
    let steps = run["status"]["steps"].as_array().into_iter().flatten();
    match steps.filter(|step| step["node"] == node).filter_map(|step| step["phase"].as_str()).next_back() {
        Some("Succeeded") => '✓',
        Some("Cancelled") => '-',
        Some(_) => '✗',
        None => ' ',
    }
}

fn line(step: &Value) -> String {
    let text = |field: &str| step[field].as_str().unwrap_or_default();
    let sign = match text("phase") {
        "Succeeded" => "✓",
        "Cancelled" => "-",
        _ => "✗",
    };
    let branch = if text("branch").is_empty() { String::new() } else { format!("[{}]", text("branch")) };
    let temperature = match step["isCold"].as_bool() {
        Some(true) => ", cold",
        _ => "",
    };
    let mut line = format!("{sign}  {}{branch} ({}{temperature})", text("node"), took(step));
    match (text("chose"), text("error")) {
        ("", "") if step["output"].is_null() => {}
        ("", "") => {
            let _ = write!(line, " {}", clipped(&step["output"].to_string()));
        }
        (chose, "") => {
            let _ = write!(line, " → {chose}");
        }
        (_, error) => {
            let _ = write!(line, " {}: {}", text("reason"), error.lines().next().unwrap_or_default());
        }
    }
    cli::plain(&line).into_owned()
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

async fn ended(connection: &Connection, run: &Value) -> Result<ExitCode> {
    let status = &run["status"];
    let name = name_of(run);
    if phase(run) == "Succeeded" {
        let output = match status["outputRef"].as_str() {
            None => status["output"].clone(),
            Some(value) => {
                connection.get(&path(connection, "workflowvalues", Some(value))).await?["spec"]["value"]
                    .clone()
            }
        };
        println!("workflowrun.minik8s.io/{name} succeeded in {}\n{output}", took(status));
        return Ok(ExitCode::SUCCESS);
    }
    let why = status["error"].as_str().unwrap_or_default();
    let verb = if phase(run) == "Failed" { "failed" } else { "was cancelled" };
    eprintln!("workflowrun.minik8s.io/{name} {verb}: {}", cli::plain(why));
    eprintln!(
        "kubectl workflow describe {name} shows every step; kubectl workflow redrive {name} goes on from there"
    );
    Ok(ExitCode::FAILURE)
}

/// What is done with a workflow of the seed's form that was applied: one run, if it is new or another than before.
pub async fn after_apply(connection: &Connection, workflow: &Value, verb: &str) -> Result<ExitCode> {
    let name = name_of(workflow);
    if verb == "unchanged" {
        println!("nothing was run, as nothing has changed: kubectl workflow run {name} --watch runs it");
        return Ok(ExitCode::SUCCESS);
    }
    validate::warn_of_missing(connection, workflow).await?;
    let run = create(connection, name, &Value::Null, None).await?;
    println!("workflowrun.minik8s.io/{} created", name_of(&run));
    follow(connection, name_of(&run)).await
}
