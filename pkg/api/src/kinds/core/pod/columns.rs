//! A pod in one line.

use crate::kind::{Column, column, wide};
use crate::object;
use crate::printing::{NONE, age_column, at, human_duration, int, items, name_column, or_none, text};
use jiff::Timestamp;
use serde_json::Value;

pub(super) fn columns() -> Vec<Column> {
    vec![
        name_column(),
        column("Ready", "string", |pod, now| summarize(pod, now).ready.into()),
        column("Status", "string", |pod, now| summarize(pod, now).status.into()),
        column("Restarts", "string", |pod, now| summarize(pod, now).restarts.into()),
        age_column(),
        wide("IP", "string", |pod, _| {
            let ip = items(pod, "status.podIPs").first().map(|ip| text(ip, "ip")).unwrap_or_default();
            or_none(ip).into()
        }),
        wide("Node", "string", |pod, _| or_none(text(pod, "spec.nodeName")).into()),
        wide("Nominated Node", "string", |pod, _| or_none(text(pod, "status.nominatedNodeName")).into()),
        wide("Readiness Gates", "string", |pod, _| readiness_gates(pod).into()),
    ]
}

struct Summary {
    ready: String,
    status: String,
    restarts: String,
}

/// What has been counted on the way through the containers.
#[derive(Default)]
struct Count {
    ready: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Count {
    fn add_restarts(&mut self, status: &Value) {
        self.restarts += int(status, "restartCount");
        let finished = text(status, "lastState.terminated.finishedAt").parse().ok();
        self.last_restart = self.last_restart.max(finished);
    }
}

fn summarize(pod: &Value, now: Timestamp) -> Summary {
    let init_containers = items(pod, "spec.initContainers");
    let sidecars = init_containers.iter().filter(|container| is_sidecar(container)).count();
    let total = items(pod, "spec.containers").len() + sidecars;
    let mut status = match text(pod, "status.reason") {
        "" => text(pod, "status.phase").to_owned(),
        reason => reason.to_owned(),
    };
    let gated = |condition: &&Value| {
        text(condition, "type") == "PodScheduled" && text(condition, "reason") == "SchedulingGated"
    };
    if items(pod, "status.conditions").iter().any(|condition| gated(&condition)) {
        status = "SchedulingGated".into();
    }
    let (init_status, mut count, sidecar_count) = init_phase(pod);
    let initializing = init_status.is_some();
    status = init_status.unwrap_or(status);
    if !initializing || object::condition_is(pod, "Initialized", "True") {
        let ready = count.ready;
        count = Count { ready, ..sidecar_count };
        status = main_phase(pod, status, &mut count);
    }
    let deleted = object::meta(pod, "deletionTimestamp").is_some();
    if deleted && text(pod, "status.reason") == "NodeLost" {
        status = "Unknown".into();
    } else if deleted && !matches!(text(pod, "status.phase"), "Succeeded" | "Failed") {
        status = "Terminating".into();
    }
    let restarts = match count.last_restart {
        Some(time) if count.restarts != 0 => {
            format!("{} ({} ago)", count.restarts, human_duration(now.duration_since(time).as_secs()))
        }
        _ => count.restarts.to_string(),
    };
    Summary { ready: format!("{}/{total}", count.ready), status, restarts }
}

/// What holds the pod up before its own containers run, if anything; all restarts, and those of sidecars.
fn init_phase(pod: &Value) -> (Option<String>, Count, Count) {
    let containers = items(pod, "spec.initContainers");
    let (mut all, mut of_sidecars) = (Count::default(), Count::default());
    for (index, status) in items(pod, "status.initContainerStatuses").iter().enumerate() {
        let name = text(status, "name");
        let sidecar =
            containers.iter().any(|container| text(container, "name") == name && is_sidecar(container));
        all.add_restarts(status);
        if sidecar {
            of_sidecars.add_restarts(status);
        }
        let terminated = at(status, "state.terminated");
        if terminated.is_some_and(|terminated| int(terminated, "exitCode") == 0) {
            continue;
        }
        if sidecar && at(status, "started") == Some(&Value::Bool(true)) {
            all.ready += usize::from(is_ready(status));
            continue;
        }
        let waiting = text(status, "state.waiting.reason");
        let reason = match terminated {
            Some(terminated) => ended(terminated),
            None if !matches!(waiting, "" | "PodInitializing") => waiting.to_owned(),
            None => format!("{index}/{}", containers.len()),
        };
        return (Some(format!("Init:{reason}")), all, of_sidecars);
    }
    (None, all, of_sidecars)
}

/// The status of a pod whose own containers run, or did.
fn main_phase(pod: &Value, mut status: String, count: &mut Count) -> String {
    let (mut running, mut failure) = (false, None);
    for container in items(pod, "status.containerStatuses").iter().rev() {
        count.add_restarts(container);
        let waiting = text(container, "state.waiting.reason");
        if !waiting.is_empty() {
            status = waiting.to_owned();
        } else if let Some(terminated) = at(container, "state.terminated") {
            status = ended(terminated);
            if int(terminated, "exitCode") != 0 {
                failure = Some(status.clone());
            }
        } else if is_ready(container) && at(container, "state.running").is_some() {
            running = true;
            count.ready += 1;
        }
    }
    if status != "Completed" {
        return status;
    }
    match failure {
        _ if running && object::condition_is(pod, "Ready", "True") => "Running".into(),
        Some(failure) => failure,
        None if running => "NotReady".into(),
        None => status,
    }
}

fn ended(terminated: &Value) -> String {
    match (text(terminated, "reason"), int(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", int(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

fn is_ready(status: &Value) -> bool {
    at(status, "ready").and_then(Value::as_bool) == Some(true)
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "spec.readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let open =
        gates.iter().filter(|gate| object::condition_is(pod, text(gate, "conditionType"), "True")).count();
    format!("{open}/{}", gates.len())
}
