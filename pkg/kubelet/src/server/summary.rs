//! The forms in which usage is told. Pure.

use super::samples::Rate;
use super::stats::{Measured, NodeMeasured, PodMeasured};
use crate::runtime::Usage;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::fmt::Write;

/// The document of `/stats/summary`.
pub fn document(
    node_name: &str,
    node: &NodeMeasured,
    pods: &[PodMeasured],
    only_cpu_and_memory: bool,
) -> Value {
    let mut about_node = json!({
        "nodeName": node_name,
        "startTime": second(node.booted),
        "cpu": cpu(&node.usage, node.rate),
        "memory": memory(&node.usage),
    });
    about_node["memory"]["availableBytes"] =
        node.memory_total.saturating_sub(node.usage.working_set_bytes).into();
    if !only_cpu_and_memory && let Some(fs) = file_system("/", node.usage.at) {
        about_node["fs"] = fs;
    }
    json!({"node": about_node, "pods": pods.iter().map(pod).collect::<Vec<_>>()})
}

fn pod(measured: &PodMeasured) -> Value {
    let all = total(&measured.containers);
    let mut about = json!({
        "podRef": {"name": measured.pod.name, "namespace": measured.pod.namespace, "uid": measured.pod.uid},
        "startTime": measured.started.map(second),
        "containers": measured.containers.iter().map(container).collect::<Vec<_>>(),
    });
    if let Some((usage, rate)) = all {
        about["cpu"] = cpu(&usage, rate);
        about["memory"] = memory(&usage);
        about["process_stats"] = json!({"process_count": usage.pids});
    }
    about
}

fn container(measured: &Measured) -> Value {
    json!({
        "name": measured.name,
        "startTime": measured.started.map(second),
        "cpu": cpu(&measured.usage, measured.rate),
        "memory": memory(&measured.usage),
    })
}

/// Upstream's fields, and over how long the rate is the average, which whoever shows it wants to say.
fn cpu(usage: &Usage, rate: Option<Rate>) -> Value {
    let mut cpu = json!({"time": second(usage.at), "usageCoreNanoSeconds": usage.cpu_ns});
    if let Some(rate) = rate {
        cpu["usageNanoCores"] = rate.nano_cores.into();
        cpu["usageWindowMilliSeconds"] = (rate.window.as_millis() as u64).into();
    }
    cpu
}

fn memory(usage: &Usage) -> Value {
    json!({
        "time": second(usage.at),
        "usageBytes": usage.memory_bytes,
        "workingSetBytes": usage.working_set_bytes,
        "rssBytes": usage.rss_bytes,
    })
}

fn file_system(path: &str, now: Timestamp) -> Option<Value> {
    let stat = nix::sys::statvfs::statvfs(path).ok()?;
    let size = stat.fragment_size();
    Some(json!({
        "time": second(now),
        "availableBytes": stat.blocks_available() * size,
        "capacityBytes": stat.blocks() * size,
        "usedBytes": (stat.blocks() - stat.blocks_free()) * size,
        "inodesFree": stat.files_available(),
        "inodes": stat.files(),
        "inodesUsed": stat.files() - stat.files_free(),
    }))
}

/// Everything in a pod together; its rate if all have one.
fn total(containers: &[Measured]) -> Option<(Usage, Option<Rate>)> {
    let (first, rest) = containers.split_first()?;
    let (mut usage, mut rate) = (first.usage, first.rate);
    for other in rest {
        usage.at = usage.at.min(other.usage.at);
        usage.cpu_ns += other.usage.cpu_ns;
        usage.memory_bytes += other.usage.memory_bytes;
        usage.working_set_bytes += other.usage.working_set_bytes;
        usage.rss_bytes += other.usage.rss_bytes;
        usage.pids += other.usage.pids;
        rate = rate.zip(other.rate).map(|(one, two)| Rate {
            nano_cores: one.nano_cores + two.nano_cores,
            window: one.window.max(two.window),
        });
    }
    Some((usage, rate))
}

fn second(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The text of `/metrics/resource`.
pub fn resource_metrics(node: &NodeMeasured, pods: &[PodMeasured]) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, values: Vec<(String, f64, Option<Timestamp>)>| {
        let _ = write!(text, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}\n");
        for (labels, value, at) in values {
            let at = at.map(|at| format!(" {}", at.as_millisecond())).unwrap_or_default();
            let _ = writeln!(text, "{name}{labels} {value}{at}");
        }
    };
    let containers: Vec<(String, &Measured)> = pods
        .iter()
        .flat_map(|pod| {
            let labels = |name: &str| {
                format!("{{container={name:?},namespace={:?},pod={:?}}}", pod.pod.namespace, pod.pod.name)
            };
            pod.containers.iter().map(move |container| (labels(&container.name), container))
        })
        .collect();
    let totals: Vec<(String, Usage)> = pods
        .iter()
        .filter_map(|pod| {
            let (usage, _) = total(&pod.containers)?;
            Some((format!("{{namespace={:?},pod={:?}}}", pod.pod.namespace, pod.pod.name), usage))
        })
        .collect();
    let seconds = |usage: &Usage| usage.cpu_ns as f64 / 1e9;
    let of_containers = |value: &dyn Fn(&Usage) -> f64| {
        containers
            .iter()
            .map(|(labels, c)| (labels.clone(), value(&c.usage), Some(c.usage.at)))
            .collect::<Vec<_>>()
    };
    let of_pods = |value: &dyn Fn(&Usage) -> f64| {
        totals
            .iter()
            .map(|(labels, usage)| (labels.clone(), value(usage), Some(usage.at)))
            .collect::<Vec<_>>()
    };
    let memory = |usage: &Usage| usage.working_set_bytes as f64;
    family(
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the container in core-seconds",
        of_containers(&seconds),
    );
    family(
        "container_memory_working_set_bytes",
        "gauge",
        "Current working set of the container in bytes",
        of_containers(&memory),
    );
    let begun = containers
        .iter()
        .filter_map(|(labels, c)| Some((labels.clone(), c.started?.as_millisecond() as f64 / 1e3, None)));
    family(
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds",
        begun.collect(),
    );
    let at = Some(node.usage.at);
    family(
        "node_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the node in core-seconds",
        vec![(String::new(), seconds(&node.usage), at)],
    );
    family(
        "node_memory_working_set_bytes",
        "gauge",
        "Current working set of the node in bytes",
        vec![(String::new(), memory(&node.usage), at)],
    );
    family(
        "pod_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed by the pod in core-seconds",
        of_pods(&seconds),
    );
    family(
        "pod_memory_working_set_bytes",
        "gauge",
        "Current working set of the pod in bytes",
        of_pods(&memory),
    );
    family(
        "resource_scrape_error",
        "gauge",
        "1 if there was an error while getting container metrics, 0 otherwise",
        vec![(String::new(), 0.0, None)],
    );
    text
}
