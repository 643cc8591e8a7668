//! What is kept of a Service and an EndpointSlice: only what rules and names are made of.
//!
//! A node knows every service and every slice of the cluster, and they say ten times more than anybody here reads. On
//! the wire and on disk the records are the API's own objects.

use client::Key;
use ipnet::IpNet;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{
    ClientIPConfig, LoadBalancerIngress, LoadBalancerStatus, Service as ApiService, ServicePort as ApiPort,
    ServiceSpec, ServiceStatus, SessionAffinityConfig,
};
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
/// The labels of services that another proxy looks after, or none.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
/// How long a client stays with its endpoint unless the service says otherwise.
const AFFINITY_SECONDS: i32 = 10_800;
/// The annotation with the time of the change that led to the slice's last one.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(from = "ApiService", into = "ApiService")]
pub struct Service {
    metadata: ObjectMeta,
    /// The cluster's addresses; none if it is headless.
    pub cluster_ips: Box<[IpAddr]>,
    /// Its ports.
    pub ports: Box<[PortOfService]>,
    /// The name that it stands for, if it is nothing but that.
    pub external_name: Option<Box<str>>,
    /// What few services have.
    pub more: Option<Box<More>>,
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOfService {
    /// Its name; empty if it has none.
    pub name: Box<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number at the cluster's addresses.
    pub port: u16,
    /// Its number at the nodes' addresses.
    pub node_port: Option<u16>,
}

/// What few services have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct More {
    /// Another proxy looks after it, or none.
    pub elsewhere: bool,
    /// Addresses that somebody else leads to a node.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of a load balancer.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Who may use the load balancer; everybody if empty.
    pub source_ranges: Vec<IpNet>,
    /// How long a client stays with its endpoint.
    pub affinity_seconds: Option<i32>,
    /// Clients inside the cluster are served by their own node only.
    pub internal_local: bool,
    /// Clients outside the cluster are served by the node they come to only, and keep their address.
    pub external_local: bool,
    /// Where load balancers ask whether this node has endpoints.
    pub health_check_port: Option<u16>,
}

/// A part of a service's endpoints.
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
    rare: Option<Box<Rare>>,
}

/// What few endpoints have.
#[derive(Clone, Debug, PartialEq)]
struct Rare {
    hostname: Option<Box<str>>,
    hints: Option<EndpointHints>,
}

impl Place {
    /// Its name within a headless service.
    pub fn hostname(&self) -> Option<&str> {
        self.rare.as_ref()?.hostname.as_deref()
    }

    /// Whom it is meant for, if it says so.
    pub fn hints(&self) -> Option<&EndpointHints> {
        self.rare.as_ref()?.hints.as_ref()
    }
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
    let hints = endpoint.hints.filter(any);
    let hostname = endpoint.hostname.map(String::into_boxed_str);
    let has_rare = hostname.is_some() || hints.is_some();
    Some(Place {
        address: endpoint.addresses.first()?.parse().ok()?,
        ready,
        serving: conditions.serving.unwrap_or(ready),
        terminating: conditions.terminating.unwrap_or(false),
        node: endpoint.node_name.map(String::into_boxed_str),
        rare: has_rare.then(|| Box::new(Rare { hostname, hints })),
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
            hints: place.hints().cloned(),
            hostname: place.hostname().map(Into::into),
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

impl Service {
    /// Its namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether it is reached at its endpoints' addresses only.
    pub fn is_headless(&self) -> bool {
        self.cluster_ips.is_empty() && self.external_name.is_none()
    }
}

impl k8s_openapi::Resource for Service {
    const API_VERSION: &'static str = ApiService::API_VERSION;
    const GROUP: &'static str = ApiService::GROUP;
    const KIND: &'static str = ApiService::KIND;
    const VERSION: &'static str = ApiService::VERSION;
    const URL_PATH_SEGMENT: &'static str = ApiService::URL_PATH_SEGMENT;
    type Scope = NamespaceResourceScope;
}

impl k8s_openapi::Metadata for Service {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl From<ApiService> for Service {
    fn from(service: ApiService) -> Service {
        let ObjectMeta { name, namespace, resource_version, uid, labels, .. } = service.metadata;
        let metadata = ObjectMeta { name, namespace, resource_version, uid, ..ObjectMeta::default() };
        let mut spec = service.spec.unwrap_or_default();
        let external = spec.type_.as_deref() == Some("ExternalName");
        let mut cluster_ips: Vec<IpAddr> = Vec::new();
        for ip in spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip).filter_map(|ip| ip.parse().ok()) {
            if !external && !cluster_ips.contains(&ip) {
                cluster_ips.push(ip);
            }
        }
        let ports = spec.ports.take().into_iter().flatten().filter_map(|port| {
            Some(PortOfService {
                name: port.name.unwrap_or_default().into(),
                protocol: port.protocol.as_deref().unwrap_or("TCP").parse().ok()?,
                port: u16::try_from(port.port).ok()?,
                node_port: port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0),
            })
        });
        let ports = ports.collect();
        let external_name = spec.external_name.take().filter(|_| external);
        let mut more = more(&spec, service.status);
        let says_so = |label: &str| labels.as_ref().is_some_and(|labels| labels.contains_key(label));
        more.elsewhere = says_so(PROXY_NAME) || says_so(HEADLESS);
        Service {
            metadata,
            cluster_ips: cluster_ips.into(),
            ports,
            external_name: external_name.map(|name| name.trim_end_matches('.').into()),
            more: (more != More::default()).then(|| Box::new(more)),
        }
    }
}

fn more(spec: &ServiceSpec, status: Option<ServiceStatus>) -> More {
    let affinity = spec.session_affinity.as_deref() == Some("ClientIP");
    let timeout = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let timeout = timeout.and_then(|config| config.timeout_seconds).unwrap_or(AFFINITY_SECONDS);
    let is_local = |policy: &Option<String>| policy.as_deref() == Some("Local");
    let ingress = status.and_then(|status| status.load_balancer).and_then(|balancer| balancer.ingress);
    let ingress = ingress.unwrap_or_default();
    // `Proxy` means that the balancer wants to see the traffic itself.
    let through = ingress.iter().filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
    let ranges = spec.load_balancer_source_ranges.iter().flatten();
    let ranges = ranges.filter_map(|text| text.trim().parse::<IpNet>().ok());
    let asked = spec.type_.as_deref() == Some("LoadBalancer") && is_local(&spec.external_traffic_policy);
    let health_check_port = spec.health_check_node_port.filter(|_| asked);
    More {
        elsewhere: false,
        external_ips: spec.external_ips.iter().flatten().filter_map(|text| text.parse().ok()).collect(),
        load_balancer_ips: through.filter_map(|ingress| ingress.ip.as_deref()?.parse().ok()).collect(),
        source_ranges: ranges.map(|range| range.trunc()).collect(),
        affinity_seconds: affinity.then_some(timeout),
        internal_local: is_local(&spec.internal_traffic_policy),
        external_local: is_local(&spec.external_traffic_policy),
        health_check_port: health_check_port
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0),
    }
}

impl From<Service> for ApiService {
    fn from(service: Service) -> ApiService {
        let more = service.more.map(|more| *more).unwrap_or_default();
        let text = |addresses: &[IpAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        let local = |local: bool| local.then(|| "Local".to_owned());
        let kind = match (&service.external_name, more.health_check_port) {
            (Some(_), _) => "ExternalName",
            (None, Some(_)) => "LoadBalancer",
            (None, None) => "ClusterIP",
        };
        let port = |port: PortOfService| ApiPort {
            name: Some(port.name.into()),
            port: port.port.into(),
            protocol: Some(port.protocol.lower().to_ascii_uppercase()),
            node_port: port.node_port.map(Into::into),
            ..ApiPort::default()
        };
        let affinity = more.affinity_seconds.map(|seconds| SessionAffinityConfig {
            client_ip: Some(ClientIPConfig { timeout_seconds: Some(seconds) }),
        });
        let spec = ServiceSpec {
            type_: Some(kind.to_owned()),
            cluster_ips: Some(text(&service.cluster_ips)),
            ports: Some(service.ports.into_iter().map(port).collect()),
            external_name: service.external_name.map(Into::into),
            external_ips: Some(text(&more.external_ips)),
            load_balancer_source_ranges: Some(more.source_ranges.iter().map(ToString::to_string).collect()),
            session_affinity: affinity.as_ref().map(|_| "ClientIP".to_owned()),
            session_affinity_config: affinity,
            internal_traffic_policy: local(more.internal_local),
            external_traffic_policy: local(more.external_local),
            health_check_node_port: more.health_check_port.map(Into::into),
            ..ServiceSpec::default()
        };
        let ingress = |ip: String| LoadBalancerIngress { ip: Some(ip), ..LoadBalancerIngress::default() };
        let balancers: Vec<_> = text(&more.load_balancer_ips).into_iter().map(ingress).collect();
        let balancer = LoadBalancerStatus { ingress: Some(balancers) };
        let elsewhere = || BTreeMap::from([(PROXY_NAME.to_owned(), "another".to_owned())]);
        ApiService {
            metadata: ObjectMeta { labels: more.elsewhere.then(elsewhere), ..service.metadata },
            spec: Some(spec),
            status: Some(ServiceStatus { load_balancer: Some(balancer), ..ServiceStatus::default() }),
        }
    }
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
        assert!(first.ready && first.serving && !first.terminating && first.hints().is_some());
        assert!(!second.ready && !second.serving && second.terminating && second.hints().is_none());
        let text = serde_json::to_string(&slice).unwrap();
        assert!(!text.contains("targetRef") && !text.contains("uid"), "{text}");
        assert_eq!(serde_json::from_str::<Slice>(&text).unwrap(), slice);
    }

    #[test]
    fn so_does_what_is_kept_of_a_service() {
        let check = |value: serde_json::Value| -> Service {
            let service: Service = serde_json::from_value(value).unwrap();
            let text = serde_json::to_string(&service).unwrap();
            assert_eq!(serde_json::from_str::<Service>(&text).unwrap(), service, "{text}");
            service
        };
        let plain = check(json!({"metadata": {"namespace": "default", "name": "web", "labels": {"a": "b"}},
            "spec": {"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5", "fd00::5"], "selector": {"app": "web"},
                "sessionAffinity": "None", "type": "ClusterIP", "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 80, "targetPort": "http"}, {"port": 53, "protocol": "UDP", "nodePort": 30053}]},
            "status": {"loadBalancer": {}}}));
        assert_eq!((plain.cluster_ips.len(), plain.ports.len(), &plain.more), (2, 2, &None));
        let much = check(
            json!({"metadata": {"namespace": "default", "name": "web", "labels": {PROXY_NAME: "x"}},
            "spec": {"clusterIP": "10.96.0.5", "type": "LoadBalancer", "externalTrafficPolicy": "Local",
                "internalTrafficPolicy": "Local", "healthCheckNodePort": 31000, "externalIPs": ["192.0.2.1"],
                "loadBalancerSourceRanges": [" 192.0.2.0/24"], "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}, {"ip": "192.0.2.8", "ipMode": "Proxy"}]}}}),
        );
        let more = much.more.unwrap();
        assert_eq!((more.health_check_port, more.affinity_seconds), (Some(31000), Some(60)));
        assert_eq!((more.load_balancer_ips.len(), more.source_ranges.len()), (1, 1));
        assert!(more.elsewhere && more.internal_local && more.external_local);
        let labelled = json!({"metadata": {"labels": {HEADLESS: ""}}, "spec": {"clusterIP": "10.96.0.5"}});
        assert!(check(labelled).more.unwrap().elsewhere);
        let headless = json!({"metadata": {}, "spec": {"clusterIP": "None", "clusterIPs": ["None"]}});
        assert!(check(headless).cluster_ips.is_empty());
        let far = json!({"metadata": {}, "spec": {"type": "ExternalName", "externalName": "example.org."}});
        assert_eq!(check(far).external_name.as_deref(), Some("example.org"));
    }
}
