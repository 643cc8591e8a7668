//! What workflows cost: `cargo run --release -p functions --example workflows` (`make bench` runs it).
//!
//! ```text
//! an apiserver on the embedded store, knative, and pods that are processes of this machine, all measured together
//! ```
//!
//! A pod here has no sandbox: what a chain takes from zero on a node is in the other table.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people"
)]
#![allow(dead_code, reason = "the tests' own harness, of which less is needed here")]

#[path = "../tests/functions/node.rs"]
mod node;
#[path = "../tests/functions/support.rs"]
mod support;

use api::kinds::minik8s::WorkflowRun;
use futures::{StreamExt, stream};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};
use support::Functions;

const ROOT: &str = "/apis/minik8s.io/v1/namespaces/default";
const ECHO: &str = "def main(params):\n    return params\n";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let of = |full: usize| if quick { full / 10 } else { full };
    let functions = Functions::start().await;
    println!("\nWorkflows: apiserver, knative and pods as processes, together on this machine\n");
    warm(&functions, of(100).max(10)).await;
    many(&functions, of(100).max(10)).await;
    chain(&functions, of(20).max(3)).await;
    waiting(&functions, of(10_000)).await;
}

async fn store(functions: &Functions, name: &str, spec: Value) {
    let workflow =
        json!({"apiVersion": "minik8s.io/v1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec});
    functions.server.http().post(&format!("{ROOT}/workflows"), &workflow).await.expect(201);
}

async fn start(functions: &Functions, workflow: &str, name: &str) {
    let run = json!({"apiVersion": "minik8s.io/v1", "kind": "WorkflowRun", "metadata": {"name": name},
        "spec": {"workflow": workflow, "params": {"x": 1}}});
    functions.server.http().post(&format!("{ROOT}/workflowruns"), &run).await.expect(201);
}

async fn ended(functions: &Functions, name: &str) -> WorkflowRun {
    let runs: Api<WorkflowRun> = Api::namespaced(functions.server.admin(), "default");
    loop {
        let run = runs.get(name).await.expect("a run");
        if run.status.has_ended() {
            assert_eq!(run.status.phase, "Succeeded", "{:?}", run.status.error);
            return run;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Tasks in a row, each of a function.
fn row(length: usize, function: impl Fn(usize) -> String) -> Value {
    let mut nodes = Map::new();
    for n in 0..length {
        let next = if n + 1 < length { format!("n{}", n + 1) } else { String::new() };
        nodes.insert(format!("n{n}"), json!({"type": "Task", "function": function(n), "next": next}));
    }
    json!({"startAt": "n0", "nodes": nodes})
}

fn took(run: &WorkflowRun) -> Duration {
    let (start, end) = (run.status.start_time.as_ref(), run.status.completion_time.as_ref());
    let (start, end) = (start.expect("begun").0, end.expect("ended").0);
    Duration::try_from(end.duration_since(start)).unwrap_or_default()
}

fn milliseconds(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let at = |share: f64| {
        let index = ((times.len() as f64 - 1.0) * share).round();
        times.get(index.max(0.0) as usize).map_or(0.0, Duration::as_secs_f64) * 1000.0
    };
    (at(0.5), at(0.99))
}

fn line(what: &str, figures: &str) {
    println!("  {what:<58} {figures}");
}

async fn warm(functions: &Functions, count: usize) {
    const STEPS: usize = 20;
    functions.register("echo", ECHO).await;
    store(functions, "warm", row(STEPS, |_| "echo".to_owned())).await;
    let caller = functions.caller().await;
    let mut direct = Vec::new();
    for _ in 0..count * STEPS {
        let began = Instant::now();
        assert_eq!(caller.call("echo", "{\"x\":1}").await.body, "{\"x\": 1}");
        direct.push(began.elapsed());
    }
    let mut steps = Vec::new();
    for n in 0..count {
        let name = format!("warm-{n}");
        start(functions, "warm", &name).await;
        steps.push(took(&ended(functions, &name).await) / STEPS as u32);
    }
    let ((direct, _), (step, worst)) = (milliseconds(direct), milliseconds(steps));
    line("a warm call at the activator", &format!("p50 {direct:.2} ms"));
    line("a warm step of a run, the call in it", &format!("p50 {step:.2} ms   p99 {worst:.2} ms"));
    line("what the engine adds to a warm step (goal 4 ms)", &format!("p50 {:.2} ms", step - direct));
}

async fn many(functions: &Functions, count: usize) {
    const STEPS: usize = 20;
    let began = Instant::now();
    let names: Vec<String> = (0..count).map(|n| format!("many-{n}")).collect();
    stream::iter(&names).for_each_concurrent(16, |name| start(functions, "warm", name)).await;
    for name in &names {
        ended(functions, name).await;
    }
    let rate = (count * STEPS) as f64 / began.elapsed().as_secs_f64();
    line(
        "steps per second, functions called in each (goal 400)",
        &format!("{rate:.0}/s   ({count} runs of {STEPS})"),
    );
}

async fn chain(functions: &Functions, count: usize) {
    for n in 0..5 {
        functions.register_with(&format!("cold{n}"), json!({"code": ECHO, "idleSeconds": 1})).await;
    }
    functions.patch("echo", json!({"idleSeconds": 1})).await;
    store(functions, "chain", row(5, |n| format!("cold{n}"))).await;
    let mut times = Vec::new();
    for n in 0..count {
        functions.runs(0).await;
        let name = format!("chain-{n}");
        start(functions, "chain", &name).await;
        times.push(took(&ended(functions, &name).await));
    }
    let (p50, p99) = milliseconds(times);
    line(
        "chain of five from zero (goal 600 ms, on a node)",
        &format!("p50 {p50:.0} ms   p99 {p99:.0} ms   ({count} times)"),
    );
}

async fn waiting(functions: &Functions, count: usize) {
    store(
        functions,
        "waits",
        json!({"startAt": "w", "limits": {"parallelRuns": 100_000}, "nodes": {"w": {"type": "Wait", "seconds": 86_400}}}),
    )
    .await;
    let before = memory();
    let began = Instant::now();
    let names: Vec<String> = (0..count).map(|n| format!("waits-{n}")).collect();
    stream::iter(&names).for_each_concurrent(32, |name| start(functions, "waits", name)).await;
    let runs: Api<WorkflowRun> = Api::namespaced(functions.server.admin(), "default");
    let waiting = ListParams::default().fields("spec.workflow=waits,status.phase=Running");
    while runs.list_metadata(&waiting).await.expect("a list").items.len() < count {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let took_all = began.elapsed().as_secs_f64();
    let (tasks, memory) = (tokio::runtime::Handle::current().metrics().num_alive_tasks(), memory() - before);
    line(
        &format!("{count} waiting runs"),
        &format!(
            "begun in {took_all:.1} s   {memory:.0} MB more, apiserver and knative   {tasks} tasks in all"
        ),
    );
    let mut steps = Vec::new();
    for n in 0..10 {
        let name = format!("beside-{n}");
        start(functions, "warm", &name).await;
        steps.push(took(&ended(functions, &name).await) / 20);
    }
    line("a warm step beside them", &format!("p50 {:.2} ms", milliseconds(steps).0));
}

/// What this process takes of the machine's memory, in MB.
fn memory() -> f64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Pss:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kilobytes.unwrap_or_default() * 1024.0 / 1e6
}
