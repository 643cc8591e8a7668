//! The status of the node, from what is known of it.

use super::{Machine, Settings};
use crate::eviction::{Signal, Thresholds};
use crate::host::Capacity;
use crate::provider::Described;
use crate::runtime::{Handlers, Image};
use api::Quantity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeFeatures,
    NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

/// A node lists no more images.
const MOST_IMAGES: usize = 50;
const MOST_NAMES: usize = 5;

/// What is known of the node now.
#[derive(Debug, Clone)]
pub struct Facts {
    /// How it presents itself.
    pub settings: Settings,
    /// How it is.
    pub now: Described,
}

/// What the node is short of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory.
    pub memory: bool,
    /// Disk, or files on it.
    pub disk: bool,
    /// Process numbers.
    pub pids: bool,
}

/// What a machine has, and what pods may use of it.
pub fn amounts(machine: &Machine, max_pods: u32, eviction: &Thresholds) -> (Capacity, Capacity) {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let binary = |bytes: u64| {
        let text = format!("{}Ki", bytes / 1024);
        text.parse::<Quantity>().unwrap_or_default()
    };
    let mut capacity = Capacity::from([
        ("cpu".to_owned(), Quantity::from_value(signed(machine.cpus))),
        ("memory".to_owned(), binary(machine.memory_bytes)),
        ("ephemeral-storage".to_owned(), binary(machine.disk_bytes)),
        ("pods".to_owned(), Quantity::from_value(i64::from(max_pods))),
    ]);
    for (size_kb, count) in &machine.huge_pages {
        let unit = if size_kb % 1024 == 0 { format!("{}Mi", size_kb / 1024) } else { format!("{size_kb}Ki") };
        let unit = if unit == "1024Mi" { "1Gi".to_owned() } else { unit };
        capacity.insert(format!("hugepages-{unit}"), binary(size_kb * count * 1024));
    }
    let mut allocatable = capacity.clone();
    let left = machine.memory_bytes.saturating_sub(eviction.least(Signal::Memory, machine.memory_bytes));
    allocatable.insert("memory".to_owned(), binary(left));
    let left = machine.disk_bytes.saturating_sub(eviction.least(Signal::Disk, machine.disk_bytes));
    allocatable.insert("ephemeral-storage".to_owned(), Quantity::from_value(signed(left)));
    (capacity, allocatable)
}

/// Works it out.
pub fn node_status(facts: &Facts, before: &NodeStatus, now: Timestamp) -> NodeStatus {
    let amounts = |amounts: &Capacity| {
        amounts.iter().map(|(name, amount)| (name.clone(), ApiQuantity(amount.to_string()))).collect()
    };
    let Facts { settings, now: described } = facts;
    let address = |type_: &str, address: &str| NodeAddress { type_: type_.into(), address: address.into() };
    let mut addresses: Vec<NodeAddress> =
        settings.addresses.iter().map(|ip| address("InternalIP", ip)).collect();
    addresses.push(address("Hostname", &settings.hostname));
    let machine = &described.machine;
    let port = i32::from(settings.port);
    NodeStatus {
        capacity: Some(amounts(&described.capacity)),
        allocatable: Some(amounts(&described.allocatable)),
        addresses: Some(addresses),
        conditions: Some(conditions(facts, before, now)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: (port > 0).then_some(DaemonEndpoint { port }),
        }),
        images: Some(images(&described.images)),
        node_info: Some(NodeSystemInfo {
            architecture: architecture().into(),
            boot_id: machine.boot_id.clone(),
            container_runtime_version: described.runtime.clone().unwrap_or_default(),
            kernel_version: machine.kernel.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: concat!("v1.35.0+minik8s-", env!("CARGO_PKG_VERSION")).into(),
            machine_id: machine.machine_id.clone(),
            operating_system: "linux".into(),
            os_image: machine.os_image.clone(),
            system_uuid: machine.system_uuid.clone(),
            swap: None,
        }),
        features: (!described.handlers.is_empty())
            .then_some(NodeFeatures { supplemental_groups_policy: Some(true) }),
        runtime_handlers: (!described.handlers.is_empty()).then(|| handlers(&described.handlers)),
        ..NodeStatus::default()
    }
}

fn handlers(handlers: &Handlers) -> Vec<NodeRuntimeHandler> {
    let described = handlers.iter().map(|(name, features)| NodeRuntimeHandler {
        name: Some(name.clone()),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(features.recursive_read_only_mounts),
            user_namespaces: Some(features.user_namespaces),
        }),
    });
    described.collect()
}

/// As Go names it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn images(images: &[Image]) -> Vec<ContainerImage> {
    let mut sorted: Vec<&Image> = images.iter().collect();
    sorted.sort_by_key(|image| (std::cmp::Reverse(image.size_bytes), image.id.clone()));
    let listed = sorted.into_iter().take(MOST_IMAGES).map(|image| {
        let names = image.digests.iter().chain(&image.tags).take(MOST_NAMES).cloned().collect();
        ContainerImage { names: Some(names), size_bytes: i64::try_from(image.size_bytes).ok() }
    });
    listed.collect()
}

fn conditions(facts: &Facts, before: &NodeStatus, now: Timestamp) -> Vec<NodeCondition> {
    let pressure = facts.now.pressure;
    let pressed = |type_, is: bool, bad: &'static str, good: &'static str, what: &str| {
        let (reason, message) = if is {
            (bad, format!("kubelet has {what} available").replace("has sufficient", "has insufficient"))
        } else {
            (good, format!("kubelet has {what} available"))
        };
        (type_, is, reason.to_owned(), message)
    };
    let (ready, reason, message) = readiness(facts);
    let disk = if pressure.disk {
        ("DiskPressure", true, "KubeletHasDiskPressure".to_owned(), "kubelet has disk pressure".to_owned())
    } else {
        (
            "DiskPressure",
            false,
            "KubeletHasNoDiskPressure".to_owned(),
            "kubelet has no disk pressure".to_owned(),
        )
    };
    let list = [
        pressed(
            "MemoryPressure",
            pressure.memory,
            "KubeletHasInsufficientMemory",
            "KubeletHasSufficientMemory",
            "sufficient memory",
        ),
        disk,
        pressed(
            "PIDPressure",
            pressure.pids,
            "KubeletHasInsufficientPID",
            "KubeletHasSufficientPID",
            "sufficient PID",
        ),
        ("Ready", ready, reason, message),
    ];
    list.into_iter()
        .map(|(type_, holds, reason, message)| {
            let status = if holds { "True" } else { "False" };
            let old = before.conditions.iter().flatten().find(|condition| condition.type_ == type_);
            let since =
                old.filter(|old| old.status == status).and_then(|old| old.last_transition_time.clone());
            NodeCondition {
                type_: type_.into(),
                status: status.into(),
                reason: Some(reason),
                message: Some(message),
                last_heartbeat_time: Some(Time(now)),
                last_transition_time: since.or(Some(Time(now))),
            }
        })
        .collect()
}

fn readiness(facts: &Facts) -> (bool, String, String) {
    let not = |message: String| (false, "KubeletNotReady".to_owned(), message);
    match (&facts.now.runtime, &facts.now.network) {
        (Err(why), _) => not(format!("container runtime is down: {why}")),
        (Ok(_), Err(why)) => not(format!(
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:{why}"
        )),
        (Ok(_), Ok(())) => (true, "KubeletReady".into(), "kubelet is posting ready status".into()),
    }
}

/// Whether one status says something else than another, times aside.
pub(super) fn differ(one: &NodeStatus, other: &NodeStatus) -> bool {
    let timeless = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
            condition.last_transition_time = None;
        }
        status
    };
    timeless(one) != timeless(other)
}

/// Whether a condition of the kubelet's own is another in the API.
pub(super) fn conditions_differ(in_api: &NodeStatus, own: &NodeStatus) -> bool {
    let of = |status: &NodeStatus, type_: &str| {
        let mut all = status.conditions.iter().flatten();
        all.find(|condition| condition.type_ == type_).map(|condition| condition.status.clone())
    };
    own.conditions.iter().flatten().any(|own| of(in_api, &own.type_).as_ref() != Some(&own.status))
}

/// The patch that makes it so. Addresses that are gone go.
pub(super) fn patch(status: &NodeStatus) -> Value {
    let mut status = serde_json::to_value(status).unwrap_or_default();
    if let Some(addresses) = status.get_mut("addresses").and_then(Value::as_array_mut) {
        addresses.insert(0, json!({"$patch": "replace"}));
    }
    json!({"status": status})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let settings = Settings {
            name: "n1".into(),
            addresses: vec!["192.0.2.1".into()],
            hostname: "n1".into(),
            labels: Default::default(),
            taints: vec![],
            port: 10250,
            pod_cidrs: vec![],
        };
        let machine = Machine {
            cpus: 2,
            memory_bytes: 1 << 30,
            memory_available_bytes: 1 << 29,
            disk_bytes: 1000,
            disk_available_bytes: 500,
            ..Machine::default()
        };
        let (capacity, allocatable) = amounts(&machine, 110, &Thresholds::default());
        let now = Described {
            labels: Default::default(),
            machine,
            capacity,
            allocatable,
            pressure: Pressure::default(),
            runtime: Ok("containerd://1.6.20".into()),
            network: Ok(()),
            handlers: [(String::new(), crate::runtime::HandlerFeatures::default())].into(),
            images: vec![],
        };
        Facts { settings, now }
    }

    fn said(facts: &Facts, type_: &str) -> (String, String, String) {
        let now = Timestamp::from_second(9).expect("a time");
        let status = node_status(facts, &NodeStatus::default(), now);
        let found = status.conditions.into_iter().flatten().find(|c| c.type_ == type_).expect("a condition");
        (found.status, found.reason.unwrap_or_default(), found.message.unwrap_or_default())
    }

    #[test]
    fn conditions_follow_the_machine() {
        let mut facts = facts();
        assert_eq!(said(&facts, "Ready").1, "KubeletReady");
        assert_eq!(said(&facts, "MemoryPressure").1, "KubeletHasSufficientMemory");
        facts.now.pressure = Pressure { memory: true, disk: true, pids: false };
        assert_eq!(
            said(&facts, "MemoryPressure"),
            (
                "True".into(),
                "KubeletHasInsufficientMemory".into(),
                "kubelet has insufficient memory available".into()
            )
        );
        assert_eq!(said(&facts, "DiskPressure").0, "True");
        facts.now.network = Err("no range".into());
        let (status, reason, message) = said(&facts, "Ready");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "KubeletNotReady"));
        assert!(message.ends_with("message:no range"), "{message}");
    }

    #[test]
    fn what_the_runtime_can_do_is_told() {
        let status = node_status(&facts(), &NodeStatus::default(), Timestamp::UNIX_EPOCH);
        let said = json!({"features": status.features, "handlers": status.runtime_handlers});
        let features = json!({"recursiveReadOnlyMounts": false, "userNamespaces": false});
        let expected = json!([{"name": "", "features": features}]);
        assert_eq!(said, json!({"features": {"supplementalGroupsPolicy": true}, "handlers": expected}));
    }

    #[test]
    fn heartbeats_alone_are_not_news() {
        let facts = facts();
        let at = |second| Timestamp::from_second(second).expect("a time");
        let one = node_status(&facts, &NodeStatus::default(), at(1));
        let two = node_status(&facts, &one, at(2));
        assert!(!differ(&one, &two));
        let since = |status: &NodeStatus| {
            status.conditions.clone().expect("conditions")[3].last_transition_time.clone()
        };
        assert_eq!(since(&one), since(&two));
    }
}
