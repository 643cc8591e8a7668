//! EndpointSlices of services without a selector, mirrored from the Endpoints that somebody writes by hand.

use super::packing::{Group, PortsKey, Shape, Writes, pack};
use super::slices::{MANAGED_BY_LABEL, SERVICE_NAME_LABEL, family_of, owner};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Who writes these slices, as their label says.
pub const MANAGED_BY: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const NOT_COPIED: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];
const MOST_PER_SUBSET: usize = 1000;

/// What is known of one service name.
#[derive(Debug)]
pub struct View {
    /// The service.
    pub service: Option<Arc<Service>>,
    /// The Endpoints of that name.
    pub endpoints: Option<Arc<Endpoints>>,
    /// The slices of that service that we manage.
    pub slices: Vec<Arc<EndpointSlice>>,
}

/// What to write for a service name.
pub fn plan(view: &View) -> Writes {
    let mut writes = Writes::default();
    let Some(endpoints) = mirrored(view) else {
        writes.delete = view.slices.clone();
        return writes;
    };
    for family in ["IPv4", "IPv6"] {
        let of_family = |slice: &&Arc<EndpointSlice>| slice.address_type == family;
        let existing: Vec<_> = view.slices.iter().filter(of_family).cloned().collect();
        let shape = Shape {
            template: template(endpoints, family),
            most_per_slice: MOST_PER_SUBSET,
            keeps_one: false,
            owns_hints: false,
        };
        let packed = pack(&shape, &existing, &groups(endpoints, family));
        writes.create.extend(packed.create);
        writes.update.extend(packed.update);
        writes.delete.extend(packed.delete);
    }
    writes
}

/// The Endpoints to mirror: of a service without a selector, and not marked otherwise.
fn mirrored(view: &View) -> Option<&Endpoints> {
    let endpoints = view.endpoints.as_deref()?;
    let service = view.service.as_ref()?;
    let labels = endpoints.metadata.labels.as_ref();
    let skipped = labels.and_then(|labels| labels.get(SKIP)).is_some_and(|value| value == "true");
    let elects = endpoints.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(LEADER));
    let selected = service.spec.as_ref().is_some_and(|spec| spec.selector.is_some());
    (!skipped && !elects && !selected).then_some(endpoints)
}

fn groups(endpoints: &Endpoints, family: &str) -> BTreeMap<PortsKey, Group> {
    let mut groups: BTreeMap<PortsKey, Group> = BTreeMap::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports = ports(subset);
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let unready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        let of_family: Vec<Endpoint> = ready
            .chain(unready)
            .take(MOST_PER_SUBSET)
            .filter_map(|(address, ready)| endpoint(address, ready, family))
            .collect();
        if !of_family.is_empty() {
            let group = groups.entry(PortsKey::of(&ports)).or_default();
            group.ports = ports;
            group.endpoints.extend(of_family);
        }
    }
    groups
}

fn ports(subset: &EndpointSubset) -> Vec<EndpointPort> {
    let ports = subset.ports.iter().flatten();
    ports
        .map(|port| EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(port.port),
            protocol: Some(super::backends::protocol(port.protocol.as_deref()).to_owned()),
            app_protocol: port.app_protocol.clone(),
        })
        .collect()
}

fn endpoint(address: &EndpointAddress, ready: bool, family: &str) -> Option<Endpoint> {
    let ip: IpAddr = address.ip.parse().ok()?;
    (family_of(&ip) == family).then(|| Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    })
}

fn template(endpoints: &Endpoints, family: &str) -> EndpointSlice {
    let name = endpoints.metadata.name.clone().unwrap_or_default();
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME_LABEL.to_owned(), name.clone());
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: endpoints.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owner("Endpoints", &endpoints.metadata)]),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        ..EndpointSlice::default()
    }
}
