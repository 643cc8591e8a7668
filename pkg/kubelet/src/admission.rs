//! Whether a pod may run on this node: what the scheduler promised is checked once more where it matters.

use crate::eviction::is_critical;
use crate::node::Pressure;
use api::kinds::pod_spec::requests::pod_requests;
use api::kinds::pod_spec::requests::qos_class;
use api::taints::{TaintParts, tolerates};
use api::{Quantity, names, node_selector};
use k8s_openapi::api::core::v1::{Node, Pod};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The taint of a node that is short of memory.
const MEMORY_PRESSURE: TaintParts<'_> =
    TaintParts { key: "node.kubernetes.io/memory-pressure", value: "", effect: "NoSchedule" };

/// Why not, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Such as `OutOfcpu`.
    pub reason: String,
    /// For people.
    pub message: String,
}

fn reject(reason: impl Into<String>, message: impl Into<String>) -> Result<(), Rejection> {
    Err(Rejection { reason: reason.into(), message: message.into() })
}

/// Decides, beside the pods that are here.
pub fn admit(
    pod: &Pod,
    others: &[Arc<Pod>],
    node: Option<&Node>,
    pressure: Pressure,
) -> Result<(), Rejection> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    pressed(pod, pressure)?;
    if let Some(os) = &spec.os
        && os.name != "linux"
    {
        return reject("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
    }
    let others: Vec<&Pod> =
        others.iter().map(|other| &**other).filter(|other| uses_node(other, pod)).collect();
    let Some(node) = node else { return Ok(()) };
    affinity(pod, node)?;
    ports(pod, &others)?;
    resources(pod, &others, node)
}

/// A node that is short of something takes only what it cannot do without; one short of memory also what has asked for
/// its share.
fn pressed(pod: &Pod, pressure: Pressure) -> Result<(), Rejection> {
    let mut conditions = Vec::new();
    for (name, holds) in
        [("MemoryPressure", pressure.memory), ("DiskPressure", pressure.disk), ("PIDPressure", pressure.pids)]
    {
        conditions.extend(holds.then_some(name));
    }
    if conditions.is_empty() || is_critical(pod) {
        return Ok(());
    }
    let spec = pod.spec.as_ref().and_then(|spec| serde_json::to_value(spec).ok()).unwrap_or_default();
    let mut tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    let is_tolerated = tolerations.any(|toleration| tolerates(toleration, MEMORY_PRESSURE));
    if conditions == ["MemoryPressure"] && (qos_class(&spec) != "BestEffort" || is_tolerated) {
        return Ok(());
    }
    reject("Evicted", format!("The node had condition: [{}]. ", conditions.join(" ")))
}

fn uses_node(other: &Pod, pod: &Pod) -> bool {
    let phase = other.status.as_ref().and_then(|status| status.phase.as_deref());
    other.metadata.uid != pod.metadata.uid && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn affinity(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let fits = required.is_none_or(|required| node_selector::selects(required, name, &labels));
    if selected && fits {
        return Ok(());
    }
    reject("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
}

/// Host ports in use: protocol, address, port.
fn host_ports(pod: &Pod) -> Vec<(String, String, i32)> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let sidecars =
        spec.init_containers.iter().flatten().filter(|container| crate::plan::is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|port| *port > 0)?;
            let ip = port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0".into());
            Some((port.protocol.clone().unwrap_or("TCP".into()), ip, number))
        })
        .collect()
}

fn ports(pod: &Pod, others: &[&Pod]) -> Result<(), Rejection> {
    let wanted = host_ports(pod);
    let taken: Vec<(String, String, i32)> = others.iter().flat_map(|other| host_ports(other)).collect();
    let any = |ip: &str| ip == "0.0.0.0";
    let clash = wanted.iter().any(|(protocol, ip, port)| {
        taken.iter().any(|(other_protocol, other_ip, other_port)| {
            protocol == other_protocol && port == other_port && (ip == other_ip || any(ip) || any(other_ip))
        })
    });
    if clash {
        return reject(
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        );
    }
    Ok(())
}

fn requests(pod: &Pod) -> BTreeMap<String, Quantity> {
    let spec = pod.spec.as_ref().and_then(|spec| serde_json::to_value(spec).ok()).unwrap_or_default();
    pod_requests(&spec)
}

fn resources(pod: &Pod, others: &[&Pod], node: &Node) -> Result<(), Rejection> {
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.clone()).unwrap_or_default();
    let able = |name: &str| allocatable.get(name).and_then(|amount| amount.0.parse::<Quantity>().ok());
    let lacks = |name: &str, wanted: i64, used: i64, capacity: i64| {
        reject(
            format!("OutOf{name}"),
            format!(
                "Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {capacity}"
            ),
        )
    };
    if let Some(most) = able("pods") {
        let used = i64::try_from(others.len()).unwrap_or(i64::MAX);
        if used + 1 > most.value() {
            return lacks("pods", 1, used, most.value());
        }
    }
    let used: Vec<BTreeMap<String, Quantity>> = others.iter().map(|other| requests(other)).collect();
    for (name, wanted) in requests(pod).into_iter().filter(|(_, wanted)| !wanted.is_zero()) {
        let capacity = able(&name).unwrap_or_default();
        let value = |amount: &Quantity| if name == "cpu" { amount.milli_value() } else { amount.value() };
        let in_use: i64 = used.iter().filter_map(|requests| requests.get(&name)).map(value).sum();
        if value(&wanted) + in_use > value(&capacity) {
            return lacks(&name, value(&wanted), in_use, value(&capacity));
        }
    }
    Ok(())
}

/// Labels given on the command line are checked as the API would.
pub fn is_label(key: &str, value: &str) -> bool {
    names::is_qualified_name(key).is_empty() && names::is_label_value(value).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, spec: Value) -> Arc<Pod> {
        let mut spec = spec;
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "c"}]);
        }
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec}))
                .expect("a pod"),
        )
    }

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n1", "labels": {"disk": "ssd", "cores": "8"}},
            "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "3"}},
        }))
        .expect("a node")
    }

    fn asks(cpu: &str) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]})
    }

    #[track_caller]
    fn check(spec: Value, others: &[Arc<Pod>], expected: Option<(&str, &str)>) {
        let result = admit(&pod("new", spec), others, Some(&node()), Pressure::default());
        let found = result.as_ref().err().map(|r| (r.reason.as_str(), r.message.as_str()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_node_under_pressure_takes_less() {
        let memory = Pressure { memory: true, ..Pressure::default() };
        let disk = Pressure { disk: true, ..Pressure::default() };
        let critical = json!({"priority": 2_000_000_000});
        let tolerant =
            json!({"tolerations": [{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]});
        for (spec, pressure, refused) in [
            (json!({}), Pressure::default(), None),
            (json!({}), memory, Some("The node had condition: [MemoryPressure]. ")),
            (asks("100m"), memory, None),
            (tolerant, memory, None),
            (critical.clone(), memory, None),
            (asks("100m"), disk, Some("The node had condition: [DiskPressure]. ")),
            (critical, disk, None),
        ] {
            let found = admit(&pod("new", spec), &[], None, pressure).err();
            assert_eq!(found.as_ref().map(|rejection| rejection.message.as_str()), refused);
        }
    }

    #[test]
    fn resources_ports_and_affinity() {
        check(asks("600m"), &[], None);
        check(
            asks("600m"),
            &[pod("a", asks("500m"))],
            Some((
                "OutOfcpu",
                "Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000",
            )),
        );
        let full = [pod("a", json!({})), pod("b", json!({})), pod("c", json!({}))];
        let message = "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3";
        check(json!({}), &full, Some(("OutOfpods", message)));
        let port = json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080}]}]});
        let message =
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        check(port.clone(), &[pod("a", port)], Some(("NodePorts", message)));
        let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        check(json!({"nodeSelector": {"disk": "hdd"}}), &[], Some(("NodeAffinity", message)));
        check(json!({"nodeSelector": {"disk": "ssd"}}), &[], None);
        let needs = |operator: &str, value: &str| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "cores", "operator": operator, "values": [value]}]}]}}}})
        };
        check(needs("Gt", "4"), &[], None);
        check(needs("Lt", "4"), &[], Some(("NodeAffinity", message)));
    }

    #[test]
    fn pods_that_are_over_take_nothing() {
        let mut over = (*pod("a", asks("1"))).clone();
        over.status = serde_json::from_value(json!({"phase": "Succeeded"})).expect("a status");
        check(asks("1"), &[Arc::new(over)], None);
    }
}
