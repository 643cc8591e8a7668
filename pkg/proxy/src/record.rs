//! What is kept of an EndpointSlice: only what rules and names are made of.
//!
//! A node knows every slice of the cluster, and a slice says ten times more about an endpoint than anybody here reads.

use client::Key;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{
    Endpoint as ApiEndpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use network::Protocol;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The label by which a slice names its service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The annotation with the time of the change that led to the slice's last one.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// A part of a service's endpoints. On the wire and on disk it is an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(from = "EndpointSlice", into = "EndpointSlice")]
pub struct Slice {
    metadata: ObjectMeta,
    /// The service's name, in the slice's namespace.
    pub service: Option<Box<str>>,
    /// When what it tells of happened, in milliseconds since 1970, if it says so.
    pub happened_ms: Option<i64>,
    /// Ports of every endpoint.
    pub ports: Box<[Port]>,
    /// The endpoints.
    pub endpoints: Box<[Place]>,
}

/// A port of the endpoints of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name; empty if it has none.
    pub name: Box<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Its address.
    pub address: IpAddr,
    /// It takes new connections.
    pub ready: bool,
    /// It still answers, though it may be on its way out.
    pub serving: bool,
    /// It is on its way out.
    pub terminating: bool,
    /// Where it is.
    pub node: Option<Box<str>>,
    /// Its name within a headless service.
    pub hostname: Option<Box<str>>,
    /// Whom it is meant for, if it says so.
    pub hints: Option<Box<EndpointHints>>,
}

impl Slice {
    /// The service that it is of.
    pub fn service_key(&self) -> Option<Key> {
        Some(Key::new(self.namespace(), self.service.as_deref()?))
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }
}

impl k8s_openapi::Resource for Slice {
    const API_VERSION: &'static str = EndpointSlice::API_VERSION;
    const GROUP: &'static str = EndpointSlice::GROUP;
    const KIND: &'static str = EndpointSlice::KIND;
    const VERSION: &'static str = EndpointSlice::VERSION;
    const URL_PATH_SEGMENT: &'static str = EndpointSlice::URL_PATH_SEGMENT;
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for Slice {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl From<EndpointSlice> for Slice {
    fn from(slice: EndpointSlice) -> Slice {
        let ObjectMeta { name, namespace, resource_version, labels, annotations, .. } = slice.metadata;
        let service = labels.and_then(|mut labels| labels.remove(SERVICE_NAME));
        let happened = annotations.and_then(|mut annotations| annotations.remove(TRIGGER_TIME));
        let happened = happened.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let ports = slice.ports.into_iter().flatten().filter_map(|port| {
            Some(Port {
                name: port.name.unwrap_or_default().into(),
                protocol: port.protocol.as_deref().unwrap_or("TCP").parse().ok()?,
                number: u16::try_from(port.port?).ok()?,
            })
        });
        Slice {
            metadata: ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() },
            service: service.map(String::into_boxed_str),
            happened_ms: happened.map(|time| time.as_millisecond()),
            ports: ports.collect(),
            endpoints: slice.endpoints.into_iter().filter_map(place).collect(),
        }
    }
}

/// The addresses of an endpoint are all the same place: the first one counts.
fn place(endpoint: ApiEndpoint) -> Option<Place> {
    let conditions = endpoint.conditions.unwrap_or_default();
    let ready = conditions.ready.unwrap_or(true);
    let any = |hints: &EndpointHints| {
        hints.for_zones.as_ref().is_some_and(|zones| !zones.is_empty())
            || hints.for_nodes.as_ref().is_some_and(|nodes| !nodes.is_empty())
    };
    Some(Place {
        address: endpoint.addresses.first()?.parse().ok()?,
        ready,
        serving: conditions.serving.unwrap_or(ready),
        terminating: conditions.terminating.unwrap_or(false),
        node: endpoint.node_name.map(String::into_boxed_str),
        hostname: endpoint.hostname.map(String::into_boxed_str),
        hints: endpoint.hints.filter(any).map(Box::new),
    })
}

impl From<Slice> for EndpointSlice {
    fn from(slice: Slice) -> EndpointSlice {
        let time = |ms: i64| Some(jiff::Timestamp::from_millisecond(ms).ok()?.to_string());
        let map = |name: &str, value: String| BTreeMap::from([(name.to_owned(), value)]);
        let ipv6 = slice.endpoints.iter().any(|place| place.address.is_ipv6());
        let port = |port: Port| EndpointPort {
            name: Some(port.name.into()),
            port: Some(port.number.into()),
            protocol: Some(port.protocol.lower().to_ascii_uppercase()),
            ..EndpointPort::default()
        };
        let endpoint = |place: Place| ApiEndpoint {
            addresses: vec![place.address.to_string()],
            conditions: Some(EndpointConditions {
                ready: Some(place.ready),
                serving: Some(place.serving),
                terminating: Some(place.terminating),
            }),
            hints: place.hints.map(|hints| *hints),
            hostname: place.hostname.map(Into::into),
            node_name: place.node.map(Into::into),
            ..ApiEndpoint::default()
        };
        EndpointSlice {
            metadata: ObjectMeta {
                labels: slice.service.map(|service| map(SERVICE_NAME, service.into())),
                annotations: slice.happened_ms.and_then(time).map(|time| map(TRIGGER_TIME, time)),
                ..slice.metadata
            },
            address_type: if ipv6 { "IPv6" } else { "IPv4" }.to_owned(),
            endpoints: slice.endpoints.into_iter().map(endpoint).collect(),
            ports: Some(slice.ports.into_iter().map(port).collect()),
        }
    }
}

/// Takes away what nobody here reads of a service.
pub fn prune_service(service: &mut Service) {
    let ObjectMeta { name, namespace, resource_version, labels, .. } = std::mem::take(&mut service.metadata);
    let labels = labels.filter(|labels| labels.contains_key(crate::services::PROXY_NAME));
    service.metadata = ObjectMeta { name, namespace, resource_version, labels, ..ObjectMeta::default() };
    if let Some(spec) = &mut service.spec {
        spec.selector = None;
        spec.ip_families = None;
        spec.ip_family_policy = None;
        for port in spec.ports.iter_mut().flatten() {
            port.target_port = None;
            port.app_protocol = None;
        }
    }
    let balancer = service.status.take().and_then(|status| status.load_balancer);
    let balancer = balancer.filter(|balancer| balancer.ingress.is_some());
    service.status = balancer.map(|balancer| k8s_openapi::api::core::v1::ServiceStatus {
        load_balancer: Some(balancer),
        ..Default::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_kept_survives_the_disk() {
        let slice: Slice = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "web-x", "resourceVersion": "7", "uid": "u",
            "labels": {SERVICE_NAME: "web", "other": "label"},
            "annotations": {TRIGGER_TIME: "2026-01-02T03:04:05Z"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}, {"port": 53, "protocol": "UDP"}],
        "endpoints": [
            {"addresses": ["10.1.1.1"], "nodeName": "n1", "hostname": "web-0",
             "hints": {"forZones": [{"name": "z1"}]}, "targetRef": {"kind": "Pod", "name": "web-0"}},
            {"addresses": ["10.1.1.2"], "conditions": {"ready": false, "terminating": true}, "hints": {}},
            {"addresses": ["nonsense"]},
        ]}))
        .unwrap();
        assert_eq!(slice.service_key(), Some(Key::new("default", "web")));
        assert_eq!(slice.happened_ms, Some(1_767_323_045_000));
        assert_eq!((slice.endpoints.len(), slice.ports.len()), (2, 2));
        let [first, second] = &*slice.endpoints else { panic!("two") };
        assert!(first.ready && first.serving && !first.terminating && first.hints.is_some());
        assert!(!second.ready && !second.serving && second.terminating && second.hints.is_none());
        let text = serde_json::to_string(&slice).unwrap();
        assert!(!text.contains("targetRef") && !text.contains("uid"), "{text}");
        assert_eq!(serde_json::from_str::<Slice>(&text).unwrap(), slice);
    }

    #[test]
    fn a_pruned_service_is_proxied_the_same() {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": "web", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"clusterIP": "10.96.0.5", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}))
        .unwrap();
        let mut pruned = service.clone();
        prune_service(&mut pruned);
        let ports = |service: &Service| {
            crate::services::ports_of(service, std::iter::empty(), &crate::services::Here::default())
        };
        assert_eq!(ports(&pruned), ports(&service));
        assert_eq!(pruned.metadata.labels, None);
    }
}
