//! The three controllers on the runtime: which changes concern which service, and what each looks at.

use super::backends::selects;
use super::packing::Writes;
use super::slices::{MANAGED_BY_LABEL, SERVICE_NAME_LABEL};
use super::{legacy, mirroring, slices};
use crate::pods;
use crate::runtime::{Context, Controller, Driver, Plan, Task, Write};
use client::{Cache, Change, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::BTreeMap;
use std::sync::Arc;

const ZONE: &str = "topology.kubernetes.io/zone";
const BY_NODE: &str = "node";
const BY_SERVICE: &str = "service and manager";

struct Slices {
    services: Cache<Service>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    slices: Cache<EndpointSlice>,
}

/// EndpointSlices of services with a selector.
pub fn start_slices(context: &Context) -> Task {
    let informers = &context.informers;
    let (services, pods) = (informers.cache(), pods::cache(informers));
    let (nodes, slices) = (informers.cache(), informers.cache());
    pods.index(BY_NODE, node_of);
    slices.index(BY_SERVICE, service_and_manager);
    let controller = Slices {
        services: services.clone(),
        pods: pods.clone(),
        nodes: nodes.clone(),
        slices: slices.clone(),
    };
    let (of_pods, of_nodes, pods_of_nodes) = (services.clone(), services.clone(), pods.clone());
    Driver::new(context, controller)
        .owns(&services)
        .watches(&pods, move |change| services_of(&of_pods, change))
        .watches(&nodes, move |change| {
            let pods = changed_node(change).map(|name| pods_of_nodes.by(BY_NODE, &name)).unwrap_or_default();
            let change = |pod| Change { old: None, new: Some(pod) };
            pods.into_iter().flat_map(|pod| services_of(&of_nodes, &change(pod))).collect()
        })
        .watches(&slices, |change| of_manager(change, slices::MANAGED_BY))
        .task()
}

impl Controller for Slices {
    type View = slices::View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<slices::View>> {
        let Some(service) = self.services.get(key) else { return Ok(None) };
        let pods = selected(&self.pods, &service);
        let mut zones = BTreeMap::new();
        for name in pods.iter().flat_map(|pod| node_of(pod)) {
            if let Some(node) = self.nodes.get(&Key::cluster(&name)) {
                let zone = zone(&node).filter(|zone| !zone.is_empty()).map(str::to_owned);
                zones.insert(name, zone);
            }
        }
        let slices = self.slices.by(BY_SERVICE, &index(key, slices::MANAGED_BY));
        Ok(Some(slices::View { service, pods, zones, slices }))
    }

    fn plan(&self, view: &slices::View, _now: Timestamp) -> Plan {
        slices::plan(view).into()
    }
}

struct Legacy {
    services: Cache<Service>,
    pods: Cache<Pod>,
    endpoints: Cache<Endpoints>,
}

/// Endpoints of services with a selector.
pub fn start_legacy(context: &Context) -> Task {
    let informers = &context.informers;
    let (services, pods, endpoints) = (informers.cache(), pods::cache(informers), informers.cache());
    let controller = Legacy { services: services.clone(), pods: pods.clone(), endpoints: endpoints.clone() };
    let of_pods = services.clone();
    Driver::new(context, controller)
        .owns(&services)
        .watches(&endpoints, |change| if concerns_us(change) { vec![change.key()] } else { vec![] })
        .watches(&pods, move |change| services_of(&of_pods, change))
        .task()
}

/// Endpoints that somebody else made for a service that there is not yet, or never will be, are left alone.
fn concerns_us(change: &Change<Endpoints>) -> bool {
    change.new.as_ref().is_none_or(|endpoints| legacy::is_ours(endpoints))
}

impl Controller for Legacy {
    type View = legacy::View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<legacy::View>> {
        let service = self.services.get(key);
        let pods = service.as_ref().map(|service| selected(&self.pods, service)).unwrap_or_default();
        Ok(Some(legacy::View { service, pods, endpoints: self.endpoints.get(key) }))
    }

    fn plan(&self, view: &legacy::View, _now: Timestamp) -> Plan {
        let write = legacy::plan(view).and_then(|action| match action {
            legacy::Action::Create(endpoints) => Some(Write::create(endpoints.as_ref())),
            legacy::Action::Update(endpoints) => Some(Write::update(endpoints.as_ref())),
            legacy::Action::Delete => view.endpoints.as_deref().map(Write::delete),
        });
        Plan { writes: write.into_iter().collect(), ..Plan::default() }
    }
}

struct Mirroring {
    services: Cache<Service>,
    endpoints: Cache<Endpoints>,
    slices: Cache<EndpointSlice>,
}

/// EndpointSlices mirrored from Endpoints.
pub fn start_mirroring(context: &Context) -> Task {
    let informers = &context.informers;
    let (services, endpoints, slices) = (informers.cache(), informers.cache(), informers.cache());
    slices.index(BY_SERVICE, service_and_manager);
    let controller =
        Mirroring { services: services.clone(), endpoints: endpoints.clone(), slices: slices.clone() };
    Driver::new(context, controller)
        .owns(&services)
        .owns(&endpoints)
        .watches(&slices, |change| of_manager(change, mirroring::MANAGED_BY))
        .task()
}

impl Controller for Mirroring {
    type View = mirroring::View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<mirroring::View>> {
        let slices = self.slices.by(BY_SERVICE, &index(key, mirroring::MANAGED_BY));
        let (service, endpoints) = (self.services.get(key), self.endpoints.get(key));
        Ok(Some(mirroring::View { service, endpoints, slices }))
    }

    fn plan(&self, view: &mirroring::View, _now: Timestamp) -> Plan {
        mirroring::plan(view).into()
    }
}

impl From<Writes> for Plan {
    fn from(all: Writes) -> Plan {
        let mut writes: Vec<Write> = all.create.iter().map(Write::create).collect();
        writes.extend(all.update.iter().map(Write::update));
        writes.extend(all.delete.iter().map(|slice| Write::delete(slice.as_ref())));
        Plan { writes, ..Plan::default() }
    }
}

fn selected(pods: &Cache<Pod>, service: &Service) -> Vec<Arc<Pod>> {
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    let mut pods = pods.in_namespace(namespace);
    pods.retain(|pod| selects(service, pod));
    pods
}

/// The services that select a pod, or did before it changed.
fn services_of(services: &Cache<Service>, change: &Change<Pod>) -> Vec<Key> {
    let namespace = change.key().namespace;
    let selecting = |service: &Arc<Service>| {
        [&change.old, &change.new].into_iter().flatten().any(|pod| selects(service, pod))
    };
    let services = services.in_namespace(&namespace);
    services.iter().filter(|service| selecting(service)).map(|service| Key::of(service.as_ref())).collect()
}

/// The node, if it came, went or moved to another zone: nothing else about it matters.
fn changed_node(change: &Change<Node>) -> Option<String> {
    let moved = match (&change.old, &change.new) {
        (Some(old), Some(new)) => zone(old) != zone(new),
        _ => true,
    };
    moved.then(|| change.key().name)
}

fn zone(node: &Node) -> Option<&str> {
    node.metadata.labels.as_ref()?.get(ZONE).map(String::as_str)
}

fn node_of(pod: &Pod) -> Vec<String> {
    pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()
}

fn label<'a>(slice: &'a EndpointSlice, name: &str) -> Option<&'a str> {
    slice.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn of_manager(change: &Change<EndpointSlice>, manager: &str) -> Vec<Key> {
    let slice = change.object();
    let service =
        label(slice, SERVICE_NAME_LABEL).filter(|_| label(slice, MANAGED_BY_LABEL) == Some(manager));
    service.map(|service| Key::new(change.key().namespace, service)).into_iter().collect()
}

fn service_and_manager(slice: &EndpointSlice) -> Vec<String> {
    let (Some(service), Some(manager)) = (label(slice, SERVICE_NAME_LABEL), label(slice, MANAGED_BY_LABEL))
    else {
        return Vec::new();
    };
    let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
    vec![index(&Key::new(namespace, service), manager)]
}

fn index(service: &Key, manager: &str) -> String {
    format!("{service} {manager}")
}
