//! A service's pods, seen as endpoints: which pods, at which ports and addresses, in which condition.

use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::net::IpAddr;

/// The label of slices and Endpoints whose service has no address of its own.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// Whether the pods of a service are for controllers to find: it has a selector and is not another name of a host.
pub fn is_selected(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    spec.selector.is_some() && spec.type_.as_deref() != Some("ExternalName")
}

/// Whether a service selects a pod by its labels. A service selects only in its own namespace.
pub fn selects(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    service.metadata.namespace == pod.metadata.namespace
        && selector.is_some_and(|selector| {
            let labels = pod.metadata.labels.as_ref();
            selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        })
}

/// Whether a service has no address of its own.
pub fn is_headless(service: &Service) -> bool {
    let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    matches!(ip, None | Some("" | "None"))
}

/// Whether unready pods are to be published as if they were ready.
pub fn publishes_not_ready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses).unwrap_or(false)
}

/// Whether a pod can be an endpoint: it has not ended, and has an address.
pub fn can_serve(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    !ended && addresses(pod).next().is_some()
}

/// Whether the pod is being deleted.
pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether the pod's condition `Ready` is true.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The pod's addresses, the first one first.
pub fn addresses(pod: &Pod) -> impl Iterator<Item = IpAddr> {
    let status = pod.status.as_ref();
    let several = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    // Where only the old field is set, it counts.
    let single = status.and_then(|status| status.pod_ip.as_deref()).filter(|_| several.is_empty());
    several.iter().map(|ip| ip.ip.as_str()).chain(single).filter_map(|ip| ip.parse().ok())
}

/// The pod's host name, where the service is the one that gives its pods names.
pub fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.as_ref().filter(|name| !name.is_empty())?;
    (spec.subdomain == service.metadata.name && pod.metadata.namespace == service.metadata.namespace)
        .then(|| hostname.clone())
}

/// A reference to the pod, as endpoints carry it.
pub fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The number behind a service's port on this pod; `None` where the pod has no port of that name.
pub fn port_number(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let protocol = protocol(port.protocol.as_deref());
    spec.containers.iter().chain(sidecars).find_map(|container| named_port(container, name, protocol))
}

/// The protocol, or the one that is meant where none is given.
pub fn protocol(protocol: Option<&str>) -> &str {
    protocol.unwrap_or("TCP")
}

fn named_port(container: &Container, name: &str, wanted: &str) -> Option<i32> {
    let mut ports = container.ports.iter().flatten();
    let found = ports
        .find(|port| port.name.as_deref() == Some(name) && protocol(port.protocol.as_deref()) == wanted)?;
    Some(found.container_port)
}
