//! `metrics.k8s.io`: what nodes and pods use, asked of their kubelets when somebody wants to know.
//!
//! Answers are remembered for a few seconds, so that many who ask at once cost each kubelet one question. A node that
//! does not answer is left out, as metrics-server leaves it out.

use super::{connect, forward, location};
use crate::answer::{self, Answer};
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::verbs::list;
use api::{Value, object};
use futures::StreamExt;
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use listwatch::Page;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an answer is good for.
const FRESH: Duration = Duration::from_secs(5);
/// A kubelet that takes longer does not answer. It needs one second if nobody has asked it for a while.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Kubelets that are asked at once.
const AT_ONCE: usize = 32;
const LARGEST_SUMMARY: usize = 16 * 1024 * 1024;
/// Upstream's kubelet does not say over how long it measured; this is what it does.
const USUAL_WINDOW_MS: u64 = 10_000;

type Remembered = Arc<tokio::sync::Mutex<Option<(Instant, Arc<Value>)>>>;

/// What kubelets answered last, by node. Whoever comes while one is being asked waits for its answer.
#[derive(Default)]
pub struct Usages(Mutex<HashMap<String, Remembered>>);

impl Usages {
    /// What a node's kubelet says now, or said a moment ago.
    async fn of(&self, server: &Arc<Server>, node: &str) -> Option<Arc<Value>> {
        let place = self.0.lock().entry(node.to_owned()).or_default().clone();
        let mut remembered = place.lock().await;
        if let Some((at, summary)) = &*remembered
            && at.elapsed() < FRESH
        {
            return Some(summary.clone());
        }
        let asked = tokio::time::timeout(TIMEOUT, ask(server, node)).await;
        let summary = match asked.map_err(|_| ApiError::internal("timeout")).and_then(|answer| answer) {
            Ok(summary) => Arc::new(summary),
            Err(error) => {
                tracing::debug!(node, error = error.message, "no usage");
                return None;
            }
        };
        *remembered = Some((Instant::now(), summary.clone()));
        Some(summary)
    }

    /// Forgets nodes that are not there any more.
    fn keep(&self, is_known: impl Fn(&str) -> bool) {
        self.0.lock().retain(|node, _| is_known(node));
    }
}

async fn ask(server: &Arc<Server>, node: &str) -> Result<Value> {
    let place = location::node(server, node)?;
    let request = forward::get("/stats/summary?only_cpu_and_memory=true")?;
    let answer = connect::send(server, &place, request)
        .await
        .map_err(|error| ApiError::internal(error.to_string()))?;
    let code = answer.status();
    let body = Limited::new(answer.into_body(), LARGEST_SUMMARY).collect().await;
    let body = body.map_err(|error| ApiError::internal(error.to_string()))?.to_bytes();
    if !code.is_success() {
        return Err(ApiError::internal(format!("{code}: {}", String::from_utf8_lossy(&body))));
    }
    serde_json::from_slice(&body).map_err(|error| ApiError::internal(error.to_string()))
}

/// Answers get and list.
pub async fn handle(server: &Arc<Server>, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let (kind, target) = (&*resource.kind, call.target);
    server.catch_up().await?;
    let measured = server.registry.built_in("", &kind.plural);
    let listed = match call.info.verb {
        "get" => measured.cache.get(target.namespace, &target.name).into_iter().collect(),
        "list" => measured.cache.list(&list::scope(&measured.kind, call)?, Page::default())?.objects,
        verb => return Err(ApiError::method_not_allowed(kind, verb)),
    };
    let objects: Vec<Value> =
        listed.iter().filter_map(|object| serde_json::from_slice(object.as_json()).ok()).collect();
    let used = of_objects(server, &objects, kind.namespaced()).await;
    if call.info.verb == "list" {
        return list::shaped(kind, call, used, json!({}));
    }
    let one = used.into_iter().next().ok_or_else(|| ApiError::not_found(kind, &target.name))?;
    answer::shaped(resource, call, StatusCode::OK, one)
}

async fn of_objects(server: &Arc<Server>, objects: &[Value], are_pods: bool) -> Vec<Value> {
    let node_of = |object: &Value| {
        if are_pods { location::node_name(object).to_owned() } else { object::name(object).to_owned() }
    };
    let nodes: BTreeSet<String> = objects.iter().map(node_of).filter(|node| !node.is_empty()).collect();
    let asked = futures::stream::iter(nodes).map(|node| async move {
        let summary = server.usages.of(server, &node).await;
        (node, summary)
    });
    let summaries: HashMap<String, Option<Arc<Value>>> = asked.buffer_unordered(AT_ONCE).collect().await;
    server.usages.keep(|node| server.lookup("", "nodes", "", node).is_some());
    let used = objects.iter().filter_map(|object| {
        let summary = summaries.get(&node_of(object))?.as_ref()?;
        if are_pods { pod_metrics(object, summary) } else { node_metrics(object, summary) }
    });
    used.collect()
}

fn node_metrics(node: &Value, summary: &Value) -> Option<Value> {
    let used = &summary["node"];
    let mut metrics = blank("NodeMetrics", node, &used["cpu"])?;
    metrics["usage"] = usage(used)?;
    Some(metrics)
}

/// `None` unless the pod runs and every container of it has been measured: half a pod would mislead an autoscaler.
fn pod_metrics(pod: &Value, summary: &Value) -> Option<Value> {
    if pod["status"]["phase"] != "Running" {
        return None;
    }
    let (namespace, name) = (object::namespace(pod), object::name(pod));
    let is_it = |used: &&Value| used["podRef"]["namespace"] == namespace && used["podRef"]["name"] == name;
    let used = summary["pods"].as_array()?.iter().find(is_it)?;
    let containers = used["containers"].as_array().filter(|containers| !containers.is_empty())?;
    // The oldest measurement is that of the whole.
    let first = containers.iter().min_by_key(|container| container["cpu"]["time"].as_str())?;
    let mut metrics = blank("PodMetrics", pod, &first["cpu"])?;
    metrics["metadata"]["namespace"] = namespace.into();
    let of_container = |used: &Value| Some(json!({"name": used["name"], "usage": usage(used)?}));
    metrics["containers"] = containers.iter().map(of_container).collect::<Option<Vec<_>>>()?.into();
    Some(metrics)
}

fn blank(kind: &str, of: &Value, cpu: &Value) -> Option<Value> {
    let time: Timestamp = cpu["time"].as_str()?.parse().ok()?;
    let window = cpu["usageWindowMilliSeconds"].as_u64().unwrap_or(USUAL_WINDOW_MS);
    let mut metrics = json!({
        "kind": kind, "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": object::name(of), "creationTimestamp": crate::time::rfc3339(Timestamp::now())},
        "timestamp": crate::time::rfc3339(time),
        "window": seconds(window),
    });
    if let Some(labels) = of["metadata"].get("labels") {
        metrics["metadata"]["labels"] = labels.clone();
    }
    Some(metrics)
}

/// A Go duration, such as `10.5s`.
fn seconds(milliseconds: u64) -> String {
    let (whole, rest) = (milliseconds / 1000, milliseconds % 1000);
    match rest {
        0 => format!("{whole}s"),
        rest => format!("{whole}.{}s", format!("{rest:03}").trim_end_matches('0')),
    }
}

fn usage(used: &Value) -> Option<Value> {
    let cpu = used["cpu"]["usageNanoCores"].as_u64()?;
    let memory = used["memory"]["workingSetBytes"].as_u64()?;
    Some(json!({"cpu": cores(cpu), "memory": bytes(memory)}))
}

/// A quantity in its shortest form, `250m` rather than `250000000n`.
fn cores(mut nano: u64) -> String {
    for suffix in ["n", "u", "m"] {
        if !nano.is_multiple_of(1000) {
            return format!("{nano}{suffix}");
        }
        nano /= 1000;
    }
    nano.to_string()
}

fn bytes(bytes: u64) -> String {
    if bytes.is_multiple_of(1024) && bytes > 0 { format!("{}Ki", bytes / 1024) } else { bytes.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_and_windows_are_as_metrics_server_writes_them() {
        assert_eq!(
            [cores(0), cores(1234), cores(250_000_000), cores(2_000_000_000)],
            ["0", "1234n", "250m", "2"]
        );
        assert_eq!([bytes(0), bytes(1024), bytes(1025)], ["0", "1Ki", "1025"]);
        assert_eq!([seconds(10_000), seconds(1_050), seconds(999)], ["10s", "1.05s", "0.999s"]);
    }

    #[test]
    fn a_pod_is_shown_when_all_of_it_was_measured() {
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}}, "status": {"phase": "Running"}});
        let container =
            |name: &str, cpu: Value| json!({"name": name, "cpu": cpu, "memory": {"workingSetBytes": 2048}});
        let good =
            json!({"time": "2024-01-01T00:00:10Z", "usageNanoCores": 5, "usageWindowMilliSeconds": 1500});
        let without_rate = json!({"time": "2024-01-01T00:00:10Z"});
        let summary = |containers: Vec<Value>| json!({"pods": [{"podRef": {"name": "p", "namespace": "ns"}, "containers": containers}]});
        let found = pod_metrics(&pod, &summary(vec![container("c", good.clone())])).unwrap();
        assert_eq!(found["timestamp"], "2024-01-01T00:00:10Z");
        assert_eq!(found["window"], "1.5s");
        assert_eq!(found["metadata"]["labels"]["a"], "b");
        assert_eq!(found["containers"], json!([{"name": "c", "usage": {"cpu": "5n", "memory": "2Ki"}}]));
        assert_eq!(
            pod_metrics(&pod, &summary(vec![container("c", good), container("d", without_rate)])),
            None
        );
        assert_eq!(pod_metrics(&pod, &json!({"pods": []})), None);
    }
}
