//! EndpointSlices of services with a selector.
//!
//! ```text
//! Service ─┐
//! Pods ────┼─> plan ──> endpoints by family and ports ──> packing ──> writes
//! Nodes ───┘                         EndpointSlices there are ──┘
//! ```
//!
//! It touches only slices that carry its own name in `endpointslice.kubernetes.io/managed-by`.

use super::backends::{self, HEADLESS};
use super::packing::{Group, PortsKey, Shape, Writes, pack};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Who writes these slices, as their label says.
pub const MANAGED_BY: &str = "endpointslice-controller.k8s.io";
/// The label that names the writer of a slice.
pub const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
/// The label that names the service of a slice.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The annotations that turn on topology aware routing, the one that counts first.
const TOPOLOGY: [&str; 2] =
    ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];
const MOST_PER_SLICE: usize = 100;

/// What is known of one service.
#[derive(Debug)]
pub struct View {
    /// The service.
    pub service: Arc<Service>,
    /// The pods that it selects.
    pub pods: Vec<Arc<Pod>>,
    /// The nodes of those pods, as far as they exist, and their zones.
    pub zones: BTreeMap<String, Option<String>>,
    /// The slices of the service that we manage.
    pub slices: Vec<Arc<EndpointSlice>>,
}

/// What to write for a service; nothing for one whose endpoints are somebody else's.
pub fn plan(view: &View) -> Writes {
    let mut writes = Writes::default();
    if !backends::is_selected(&view.service) {
        return writes;
    }
    let families = families(&view.service);
    for family in &families {
        let of_family = |slice: &&Arc<EndpointSlice>| slice.address_type == *family;
        let existing: Vec<_> = view.slices.iter().filter(of_family).cloned().collect();
        let shape = Shape {
            template: template(&view.service, family),
            most_per_slice: MOST_PER_SLICE,
            keeps_one: true,
            owns_hints: true,
        };
        let packed = pack(&shape, &existing, &groups(view, family));
        writes.create.extend(packed.create);
        writes.update.extend(packed.update);
        writes.delete.extend(packed.delete);
    }
    let foreign = view.slices.iter().filter(|slice| !families.contains(&slice.address_type.as_str()));
    writes.delete.extend(foreign.cloned());
    writes
}

/// The address families of a service. Headless ones of an old server have none: then it may be either.
fn families(service: &Service) -> Vec<&'static str> {
    let spec = service.spec.as_ref();
    let named: Vec<&str> = spec
        .and_then(|spec| spec.ip_families.as_ref())
        .into_iter()
        .flatten()
        .filter_map(|family| match family.as_str() {
            "IPv4" => Some("IPv4"),
            "IPv6" => Some("IPv6"),
            _ => None,
        })
        .collect();
    let address = spec.and_then(|spec| spec.cluster_ip.as_deref()).and_then(|ip| ip.parse().ok());
    match address {
        _ if !named.is_empty() => named,
        Some(address) => vec![family_of(&address)],
        None => vec!["IPv4", "IPv6"],
    }
}

pub(super) fn family_of(address: &IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn groups(view: &View, family: &str) -> BTreeMap<PortsKey, Group> {
    let mut groups: BTreeMap<PortsKey, Group> = BTreeMap::new();
    for pod in view.pods.iter().filter(|pod| backends::can_serve(pod)) {
        let ports = ports(&view.service, pod);
        let group = groups.entry(PortsKey::of(&ports)).or_insert_with(|| Group { ports, ..Group::default() });
        group.endpoints.extend(endpoint(view, pod, family));
    }
    groups
}

fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(backends::port_number(pod, port)?),
                protocol: Some(backends::protocol(port.protocol.as_deref()).to_owned()),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect()
}

/// A pod as an endpoint. One on a node that is gone is left out: the pod will be, too.
fn endpoint(view: &View, pod: &Pod, family: &str) -> Option<Endpoint> {
    let not_ready_too = backends::publishes_not_ready(&view.service);
    let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty());
    let node = node_name.as_ref().and_then(|name| view.zones.get(name));
    if node.is_none() && !not_ready_too {
        return None;
    }
    let addresses: Vec<String> = backends::addresses(pod)
        .filter(|address| family_of(address) == family)
        .map(|address| address.to_string())
        .collect();
    let serving = backends::is_ready(pod);
    let terminating = backends::is_terminating(pod);
    let ready = not_ready_too || serving && !terminating;
    let zone = node.cloned().flatten();
    (!addresses.is_empty()).then(|| Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hints: distribution(&view.service)
            .filter(|_| ready)
            .and_then(|wish| hints(wish, node_name.as_ref(), zone.as_ref())),
        hostname: backends::hostname(pod, &view.service),
        node_name,
        target_ref: Some(backends::target(pod)),
        zone,
        ..Endpoint::default()
    })
}

/// How a service wants its traffic distributed. Topology aware routing, which we do not have, goes before that.
fn distribution(service: &Service) -> Option<&str> {
    let annotations = service.metadata.annotations.as_ref();
    let topology = annotations.and_then(|all| TOPOLOGY.iter().find_map(|name| all.get(*name)));
    let aware = topology.is_some_and(|mode| matches!(mode.as_str(), "Auto" | "auto"));
    service.spec.as_ref()?.traffic_distribution.as_deref().filter(|_| !aware)
}

/// Whose clients an endpoint is for: those of its own zone, and before them those of its own node.
fn hints(distribution: &str, node: Option<&String>, zone: Option<&String>) -> Option<EndpointHints> {
    let node = match distribution {
        "PreferSameNode" => node,
        "PreferClose" | "PreferSameZone" => None,
        _ => return None,
    };
    let for_nodes = node.map(|name| vec![ForNode { name: name.clone() }]);
    let for_zones = zone.map(|name| vec![ForZone { name: name.clone() }]);
    (node.is_some() || zone.is_some()).then_some(EndpointHints { for_nodes, for_zones })
}

fn template(service: &Service, family: &str) -> EndpointSlice {
    let name = service.metadata.name.clone().unwrap_or_default();
    let reserved = [SERVICE_NAME_LABEL, MANAGED_BY_LABEL, HEADLESS];
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.retain(|key, _| !reserved.contains(&key.as_str()));
    if backends::is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME_LABEL.to_owned(), name.clone());
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned());
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![owner("Service", &service.metadata)]),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        ..EndpointSlice::default()
    }
}

/// A reference to the core object that slices belong to.
pub(super) fn owner(kind: &str, metadata: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
