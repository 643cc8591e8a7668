//! `/stats/summary`, `/metrics/resource` and `/metrics`: what pods and the node use.

use super::answer::{self, Answer, Refusal};
use super::samples::{Key, Rate, SHORTEST};
use super::{Server, pods, summary};
use crate::runtime::{PodRef, Usage};
use futures::StreamExt;
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods that are asked about at once.
const AT_ONCE: usize = 8;

/// What a container uses now.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub name: String,
    pub started: Option<Timestamp>,
    pub usage: Usage,
    pub rate: Option<Rate>,
}

/// What a pod's containers use now.
#[derive(Debug, Clone)]
pub(super) struct PodMeasured {
    pub pod: PodRef,
    pub started: Option<Timestamp>,
    pub containers: Vec<Measured>,
}

/// What the node uses now.
#[derive(Debug, Clone)]
pub(super) struct NodeMeasured {
    pub usage: Usage,
    pub rate: Option<Rate>,
    pub memory_total: u64,
    pub booted: Timestamp,
}

/// `/stats/summary`
pub async fn summary(server: &Arc<Server>, only_cpu_and_memory: bool) -> Result<Answer, Refusal> {
    let (mut node, mut pods) = measure(server).await?;
    // The first question in a while is answered with a rate too, for a second's wait.
    let is_first =
        node.rate.is_none() || pods.iter().any(|pod| pod.containers.iter().any(|c| c.rate.is_none()));
    if is_first {
        tokio::time::sleep(SHORTEST).await;
        (node, pods) = measure(server).await?;
    }
    Ok(answer::json(&summary::document(&server.node_name, &node, &pods, only_cpu_and_memory)))
}

/// `/metrics/resource`
pub async fn resource_metrics(server: &Arc<Server>) -> Result<Answer, Refusal> {
    let (node, pods) = measure(server).await?;
    Ok(answer::metrics(summary::resource_metrics(&node, &pods)))
}

/// `/metrics`
pub async fn metrics(server: &Arc<Server>) -> Result<Answer, Refusal> {
    let running = server.provider.running().await.map_err(|error| pods::failed(&error))?;
    let alive: usize = running.iter().map(|(_, containers)| containers.len()).sum();
    let running = running.len();
    let known = server.provider.list();
    let has_ended =
        |status: &&ContainerStatus| status.state.as_ref().is_some_and(|state| state.terminated.is_some());
    let ended = known.iter().flat_map(|pod| pods::statuses(pod)).filter(has_ended).count();
    let mut text = format!(
        "# HELP kubelet_node_name [ALPHA] The node's name. The count is always 1.\n# TYPE kubelet_node_name gauge\n\
         kubelet_node_name{{node={:?}}} 1\n\
         # HELP kubelet_desired_pods [ALPHA] The number of pods the kubelet is being instructed to run.\n# TYPE kubelet_desired_pods gauge\n\
         kubelet_desired_pods {}\n\
         # HELP kubelet_running_pods [BETA] Number of pods that have a running pod sandbox\n# TYPE kubelet_running_pods gauge\n\
         kubelet_running_pods {running}\n\
         # HELP kubelet_running_containers [BETA] Number of containers currently running\n# TYPE kubelet_running_containers gauge\n\
         kubelet_running_containers{{container_state=\"running\"}} {alive}\n\
         kubelet_running_containers{{container_state=\"exited\"}} {ended}\n",
        server.node_name,
        known.len(),
    );
    client::render_transport(&mut text);
    text.push_str(&process_metrics().unwrap_or_default());
    Ok(answer::metrics(text))
}

/// What the kubelet itself uses.
fn process_metrics() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?
        .trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .ok()?;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may hold anything; what is counted comes after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(format!(
        "# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.\n# TYPE process_cpu_seconds_total counter\n\
         process_cpu_seconds_total {}\n\
         # HELP process_resident_memory_bytes Resident memory size in bytes.\n# TYPE process_resident_memory_bytes gauge\n\
         process_resident_memory_bytes {}\n",
        ticks / ticks_per_second() as f64,
        resident * 1024,
    ))
}

async fn measure(server: &Arc<Server>) -> Result<(NodeMeasured, Vec<PodMeasured>), Refusal> {
    let node = node(server).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let known = server.provider.list();
    let measured = futures::stream::iter(known)
        .map(|pod| async move { measure_pod(server, &pod).await })
        .buffered(AT_ONCE);
    Ok((node, measured.filter_map(|pod| async { pod }).collect().await))
}

/// `None` for a pod of which nothing runs.
async fn measure_pod(server: &Server, pod: &Pod) -> Option<PodMeasured> {
    let reference = pods::reference(pod);
    let usage = server.provider.usage(&reference).await.ok().filter(|usage| !usage.is_empty())?;
    let started = started(pod);
    let measured = usage.into_iter().map(|(name, usage)| Measured {
        rate: server.samples.rate(Key::Container(reference.uid.clone(), name.clone()), &usage),
        started: started.get(&name).copied(),
        name,
        usage,
    });
    let containers = measured.collect();
    let begun = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    Some(PodMeasured { pod: reference, started: begun, containers })
}

fn started(pod: &Pod) -> BTreeMap<String, Timestamp> {
    let running = pods::statuses(pod).filter_map(|status| {
        let since = status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?.0;
        Some((status.name.clone(), since))
    });
    running.collect()
}

fn ticks_per_second() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|ticks| u64::try_from(ticks).ok())
        .unwrap_or(100)
}

fn node(server: &Server) -> std::io::Result<NodeMeasured> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let mut measured = node_usage(&stat, &memory, ticks_per_second(), Timestamp::now());
    measured.rate = server.samples.rate(Key::Node, &measured.usage);
    Ok(measured)
}

/// What the whole machine uses, of the kernel's own files.
fn node_usage(stat: &str, memory: &str, ticks_per_second: u64, now: Timestamp) -> NodeMeasured {
    let line = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let numbers: Vec<u64> =
        line("cpu ").split_whitespace().filter_map(|number| number.parse().ok()).collect();
    // user, nice, system, (idle, iowait), irq, softirq, steal.
    let busy: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|index| numbers.get(*index)).sum();
    let bytes = |name: &str| {
        let text = memory.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        text.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() * 1024
    };
    let total = bytes("MemTotal:");
    let booted = line("btime ").trim().parse().ok().and_then(|second| Timestamp::from_second(second).ok());
    NodeMeasured {
        usage: Usage {
            at: now,
            cpu_ns: busy * (1_000_000_000 / ticks_per_second.max(1)),
            memory_bytes: total.saturating_sub(bytes("MemFree:")),
            working_set_bytes: total.saturating_sub(bytes("MemAvailable:")),
            rss_bytes: bytes("AnonPages:"),
            pids: 0,
        },
        rate: None,
        memory_total: total,
        booted: booted.unwrap_or(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_measured_by_the_kernels_files() {
        let stat = "cpu  100 10 50 9999 5 3 2 1 0 0\ncpu0 1 2 3\nbtime 1700000000\n";
        let memory = "MemTotal:  1000 kB\nMemFree:  300 kB\nMemAvailable:  600 kB\nAnonPages: 200 kB\n";
        let node = node_usage(stat, memory, 100, Timestamp::UNIX_EPOCH);
        assert_eq!(node.usage.cpu_ns, 1_660_000_000);
        assert_eq!(node.usage.working_set_bytes, 400 * 1024);
        assert_eq!(node.usage.memory_bytes, 700 * 1024);
        assert_eq!(node.usage.rss_bytes, 200 * 1024);
        assert_eq!(node.booted.as_second(), 1_700_000_000);
    }
}
