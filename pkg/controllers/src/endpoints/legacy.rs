//! Endpoints, the older form of EndpointSlices, for those who still read it.
//!
//! One object of the service's name holds all of them, at most a thousand.

use super::backends::{self, HEADLESS};
use super::slices::family_of;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const MANAGED_BY_LABEL: &str = "endpoints.kubernetes.io/managed-by";
const MANAGED_BY: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// Components that once elected a leader by Endpoints have some without a service.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const MOST_ADDRESSES: usize = 1000;

/// What is known of one service name.
#[derive(Debug)]
pub struct View {
    /// The service, if there is one.
    pub service: Option<Arc<Service>>,
    /// The pods that it selects.
    pub pods: Vec<Arc<Pod>>,
    /// The Endpoints of that name.
    pub endpoints: Option<Arc<Endpoints>>,
}

/// What to do.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Create this one.
    Create(Box<Endpoints>),
    /// Write this over the one there is.
    Update(Box<Endpoints>),
    /// Delete the one there is.
    Delete,
}

/// Whether this controller has made them.
pub fn is_ours(endpoints: &Endpoints) -> bool {
    let label = endpoints.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY_LABEL));
    label.is_some_and(|by| by == MANAGED_BY)
}

/// What to do for a service name, if anything.
pub fn plan(view: &View) -> Option<Action> {
    let Some(service) = &view.service else {
        let leftover = view.endpoints.as_ref()?;
        let elects = leftover.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(LEADER));
        return (!elects).then_some(Action::Delete);
    };
    if !backends::is_selected(service) {
        return None;
    }
    let mut subsets = subsets(service, &view.pods);
    let over_capacity = truncate(&mut subsets);
    let labels = labels(service);
    let Some(current) = &view.endpoints else {
        let metadata = ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: over_capacity.then(|| BTreeMap::from([truncated()])),
            ..ObjectMeta::default()
        };
        return Some(Action::Create(Box::new(Endpoints { metadata, subsets: Some(subsets) })));
    };
    let mut next = Endpoints::clone(current);
    next.subsets = Some(subsets);
    next.metadata.labels = Some(labels);
    let mut annotations = current.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(OVER_CAPACITY);
    if over_capacity {
        annotations.extend([truncated()]);
    }
    let unchanged = same(current.subsets.as_deref(), next.subsets.as_deref())
        && current.metadata.labels == next.metadata.labels
        && current.metadata.annotations.clone().unwrap_or_default() == annotations;
    next.metadata.annotations = Some(annotations);
    (!unchanged).then(|| Action::Update(Box::new(next)))
}

fn truncated() -> (String, String) {
    (OVER_CAPACITY.to_owned(), "truncated".to_owned())
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if backends::is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned());
    labels
}

type PortKey = (String, String, i32, Option<String>);

/// Addresses by the set of ports that they have, ready and not.
fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let not_ready_too = backends::publishes_not_ready(service);
    let mut by_ports: BTreeMap<BTreeSet<PortKey>, [Vec<EndpointAddress>; 2]> = BTreeMap::new();
    for pod in pods {
        if !backends::can_serve(pod) || backends::is_terminating(pod) && !not_ready_too {
            continue;
        }
        let Some(address) = address(service, pod) else { continue };
        let Some(ports) = ports(service, pod) else { continue };
        let unready = !(not_ready_too || backends::is_ready(pod));
        by_ports.entry(ports).or_default()[usize::from(unready)].push(address);
    }
    by_ports
        .into_iter()
        .map(|(ports, addresses)| {
            let [ready, unready] = addresses.map(|mut list| {
                list.sort_by(|a, b| (&a.ip, uid(a)).cmp(&(&b.ip, uid(b))));
                (!list.is_empty()).then_some(list)
            });
            let ports: Vec<EndpointPort> = ports.into_iter().map(port).collect();
            EndpointSubset {
                addresses: ready,
                not_ready_addresses: unready,
                ports: (!ports.is_empty()).then_some(ports),
            }
        })
        .collect()
}

fn uid(address: &EndpointAddress) -> Option<&str> {
    address.target_ref.as_ref().and_then(|target| target.uid.as_deref())
}

fn port((name, protocol, port, app_protocol): PortKey) -> EndpointPort {
    EndpointPort { name: (!name.is_empty()).then_some(name), port, protocol: Some(protocol), app_protocol }
}

/// The ports of a service on a pod; `None` where the pod has none of them and the service has some.
fn ports(service: &Service, pod: &Pod) -> Option<BTreeSet<PortKey>> {
    let ports = service.spec.as_ref()?.ports.as_deref().unwrap_or_default();
    if ports.is_empty() {
        return backends::is_headless(service).then(BTreeSet::new);
    }
    let found: BTreeSet<PortKey> = ports
        .iter()
        .filter_map(|port| {
            let name = port.name.clone().unwrap_or_default();
            let protocol = backends::protocol(port.protocol.as_deref()).to_owned();
            Some((name, protocol, backends::port_number(pod, port)?, port.app_protocol.clone()))
        })
        .collect();
    (!found.is_empty()).then_some(found)
}

/// The pod's address of the service's first family.
fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let families = service.spec.as_ref()?.ip_families.as_ref();
    let family = families.and_then(|families| families.first());
    let mut addresses = backends::addresses(pod);
    let ip = match family {
        Some(family) => addresses.find(|address| family_of(address) == family)?,
        None => addresses.next()?,
    };
    Some(EndpointAddress {
        ip: ip.to_string(),
        hostname: backends::hostname(pod, service),
        node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        target_ref: Some(backends::target(pod)),
    })
}

/// Cuts down to what one object can hold: unready addresses go first, and each subset gives its share.
fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|subset| count(&subset.addresses)).sum();
    let unready: usize = subsets.iter().map(|subset| count(&subset.not_ready_addresses)).sum();
    if ready + unready <= MOST_ADDRESSES {
        return false;
    }
    let (cut_ready, total) = if ready > MOST_ADDRESSES { (true, ready) } else { (false, unready) };
    let most = if cut_ready { MOST_ADDRESSES } else { MOST_ADDRESSES - ready };
    let mut left = most;
    for subset in subsets {
        if cut_ready {
            subset.not_ready_addresses = None;
        }
        let list = if cut_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let share = (count(list) * most).div_ceil(total).min(left);
        left -= share.min(count(list));
        if let Some(addresses) = list {
            addresses.truncate(share);
        }
        list.take_if(|list| list.is_empty());
    }
    true
}

/// Equal in all but what changes with each version of a pod, and in the order of subsets.
fn same(a: Option<&[EndpointSubset]>, b: Option<&[EndpointSubset]>) -> bool {
    let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
    a.len() == b.len() && b.iter().all(|subset| a.iter().any(|other| other == subset))
}
