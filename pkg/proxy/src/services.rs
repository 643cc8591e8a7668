//! Services and their endpoints, as far as rules and names need them.
//!
//! ```text
//! Service + its EndpointSlices ── ports_of ──> [ServicePort { addresses, policies, endpoints }]
//! ```
//!
//! Everything that differs between clusters, versions and defaults ends here; what follows knows only [`ServicePort`].

use crate::record::{More, Place, Port, PortOfService, Service, Slice};
use ipnet::IpNet;
use network::Protocol;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// Which port of which service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortName {
    /// The service's namespace.
    pub namespace: String,
    /// The service's name.
    pub service: String,
    /// The port's name; empty if it has none.
    pub port: String,
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.service)?;
        if !self.port.is_empty() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

/// A port of a service, and everything that leads to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServicePort {
    /// Which.
    pub name: PortName,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number at the cluster's addresses.
    pub port: u16,
    /// Its number at the nodes' addresses.
    pub node_port: Option<u16>,
    /// The cluster's addresses.
    pub cluster_ips: Vec<IpAddr>,
    /// What few services have.
    pub more: More,
    /// Where it leads to.
    pub endpoints: Vec<Endpoint>,
}

/// One place that serves a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// It takes new connections.
    pub ready: bool,
    /// It still answers, though it may be on its way out.
    pub serving: bool,
    /// It is on its way out.
    pub terminating: bool,
    /// It is on this node.
    pub local: bool,
    /// Whether it is meant for clients of this node, and of this node's zone, if it has such hints.
    pub hints: (Option<bool>, Option<bool>),
}

/// What this node is, as far as endpoints care.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// The node's name.
    pub node: String,
    /// Its zone.
    pub zone: Option<String>,
}

/// The endpoints to use, once readiness, termination, policy and hints have been weighed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chosen<'a> {
    /// For traffic that may go anywhere.
    pub cluster: Vec<&'a Endpoint>,
    /// For traffic that stays on this node.
    pub local: Vec<&'a Endpoint>,
}

impl ServicePort {
    /// Of one family of addresses.
    pub fn choose(&self, ipv6: bool) -> Chosen<'_> {
        let all: Vec<&Endpoint> =
            self.endpoints.iter().filter(|endpoint| endpoint.address.is_ipv6() == ipv6).collect();
        let ready: Vec<&Endpoint> = all.iter().copied().filter(|endpoint| endpoint.ready).collect();
        let near = meant(&ready, |endpoint| endpoint.hints.0);
        let near = near.or_else(|| meant(&ready, |endpoint| endpoint.hints.1));
        let cluster = near.unwrap_or(ready);
        let local = all.iter().copied().filter(|endpoint| endpoint.local && endpoint.ready).collect();
        Chosen { cluster: or_draining(cluster, &all, false), local: or_draining(local, &all, true) }
    }
}

/// Addresses that no service may have besides those of the cluster: what is sent to them is others'. The API server
/// refuses them as well; whoever gets one past it, or was there before, still leads nobody's packets away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The nodes' own, and those of the API.
    pub addresses: BTreeSet<IpAddr>,
    /// The services'.
    pub ranges: Vec<IpNet>,
}

impl Taken {
    /// Leaves of a port's external addresses those that are free. The others come back.
    pub fn take_from(&self, port: &mut ServicePort) -> Vec<IpAddr> {
        let mut taken = Vec::new();
        let mut is_free = |address: &IpAddr| {
            let free = !self.addresses.contains(address)
                && !self.ranges.iter().any(|range| range.contains(address))
                && !address.is_loopback()
                && !address.is_unspecified();
            taken.extend((!free).then_some(*address));
            free
        };
        port.more.external_ips.retain(&mut is_free);
        port.more.load_balancer_ips.retain(&mut is_free);
        taken
    }
}

/// Those that are meant for clients here. Hints count only if every endpoint has them and they leave somebody.
fn meant<'a>(
    endpoints: &[&'a Endpoint],
    is_meant: impl Fn(&Endpoint) -> Option<bool>,
) -> Option<Vec<&'a Endpoint>> {
    let all_say = endpoints.iter().all(|endpoint| is_meant(endpoint).is_some());
    let meant: Vec<&Endpoint> =
        endpoints.iter().copied().filter(|endpoint| is_meant(endpoint) == Some(true)).collect();
    (all_say && !meant.is_empty()).then_some(meant)
}

/// Better somebody who is leaving than nobody.
fn or_draining<'a>(chosen: Vec<&'a Endpoint>, all: &[&'a Endpoint], local_only: bool) -> Vec<&'a Endpoint> {
    if !chosen.is_empty() {
        return chosen;
    }
    let draining = all.iter().copied().filter(|endpoint| endpoint.serving && endpoint.terminating);
    draining.filter(|endpoint| endpoint.local || !local_only).collect()
}

/// The ports of a service that a proxy looks after, with their endpoints.
pub fn ports_of<'a>(
    service: &Service,
    slices: impl Iterator<Item = &'a Slice> + Clone,
    here: &Here,
) -> Vec<ServicePort> {
    let more = service.more.as_deref().cloned().unwrap_or_default();
    if service.cluster_ips.is_empty() || more.elsewhere {
        return Vec::new();
    }
    let ports = service.ports.iter().map(|port| ServicePort {
        name: PortName {
            namespace: service.namespace().to_owned(),
            service: service.name().to_owned(),
            port: port.name.to_string(),
        },
        protocol: port.protocol,
        port: port.port,
        node_port: port.node_port,
        cluster_ips: service.cluster_ips.to_vec(),
        more: more.clone(),
        endpoints: endpoints_of(port, slices.clone(), here),
    });
    ports.collect()
}

fn endpoints_of<'a>(
    port: &PortOfService,
    slices: impl Iterator<Item = &'a Slice>,
    here: &Here,
) -> Vec<Endpoint> {
    let mut found: Vec<Endpoint> = Vec::new();
    for slice in slices {
        let same = |served: &&Port| served.name == port.name && served.protocol == port.protocol;
        let served = slice.ports.iter().find(same);
        let Some(served) = served else { continue };
        for place in &slice.endpoints {
            found.push(read(place, served.number, here));
        }
    }
    // The same place may be in two slices while it moves between them: the better news counts.
    found.sort_by(|a, b| {
        (a.address, a.port, !a.ready, !a.serving).cmp(&(b.address, b.port, !b.ready, !b.serving))
    });
    found.dedup_by(|a, b| (a.address, a.port) == (b.address, b.port));
    found
}

fn read(place: &Place, port: u16, here: &Here) -> Endpoint {
    let hints = place.hints();
    let nodes = hints.and_then(|hints| hints.for_nodes.as_ref()).filter(|nodes| !nodes.is_empty());
    let zones = hints.and_then(|hints| hints.for_zones.as_ref()).filter(|zones| !zones.is_empty());
    let for_node = nodes.map(|nodes| nodes.iter().any(|node| node.name == here.node));
    let for_zone = zones.map(|zones| zones.iter().any(|zone| Some(&zone.name) == here.zone.as_ref()));
    Endpoint {
        address: place.address,
        port,
        ready: place.ready,
        serving: place.serving,
        terminating: place.terminating,
        local: place.node.as_deref() == Some(here.node.as_str()),
        hints: (for_node, for_zone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ports(service: Value, slices: &[Value]) -> Vec<ServicePort> {
        let service: Service = serde_json::from_value(service).unwrap();
        let slices: Vec<Slice> =
            slices.iter().map(|slice| serde_json::from_value(slice.clone()).unwrap()).collect();
        let here = Here { node: "n1".into(), zone: Some("z1".into()) };
        ports_of(&service, slices.iter(), &here)
    }

    fn service(spec: Value) -> Value {
        json!({"metadata": {"namespace": "default", "name": "web"}, "spec": spec})
    }

    fn slice(endpoints: Value) -> Value {
        json!({"metadata": {}, "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]})
    }

    #[test]
    fn only_services_with_an_address_are_proxied() {
        let port = json!([{"port": 80, "name": "http"}]);
        let count = |spec: Value| ports(service(spec), &[]).len();
        assert_eq!(count(json!({"clusterIP": "10.96.0.5", "ports": port})), 1);
        assert_eq!(count(json!({"clusterIP": "None", "ports": port})), 0);
        assert_eq!(count(json!({"type": "ExternalName", "externalName": "example.org", "ports": port})), 0);
    }

    #[test]
    fn endpoints_are_matched_by_name_and_protocol() {
        let spec = json!({"clusterIP": "10.96.0.5", "ports": [
            {"port": 80, "name": "http"}, {"port": 53, "name": "dns", "protocol": "UDP"}, {"port": 1, "name": "none"}]});
        let endpoints = json!([{"addresses": ["10.1.1.1"], "nodeName": "n1"}, {"addresses": ["10.1.1.2"], "conditions": {"ready": false}}]);
        let found = ports(service(spec), &[slice(endpoints.clone()), slice(endpoints)]);
        let summary: Vec<(u16, usize, usize)> = found
            .iter()
            .map(|port| (port.port, port.endpoints.len(), port.choose(false).cluster.len()))
            .collect();
        assert_eq!(summary, [(80, 2, 1), (53, 2, 1), (1, 0, 0)]);
        assert_eq!(found[0].endpoints[0].port, 8080);
        assert!(found[0].endpoints[0].local && !found[0].endpoints[1].local);
    }

    #[test]
    fn who_is_leaving_serves_only_if_nobody_else_does() {
        let leaving = json!({"ready": false, "serving": true, "terminating": true});
        let check = |endpoints: Value, expected: &[&str]| {
            let spec = json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80, "name": "http"}]});
            let found = ports(service(spec), &[slice(endpoints)]);
            let chosen: Vec<String> =
                found[0].choose(false).cluster.iter().map(|endpoint| endpoint.address.to_string()).collect();
            assert_eq!(chosen, expected);
        };
        let gone = json!({"ready": false, "serving": false, "terminating": true});
        check(
            json!([{"addresses": ["10.1.1.1"]}, {"addresses": ["10.1.1.2"], "conditions": leaving}]),
            &["10.1.1.1"],
        );
        check(
            json!([{"addresses": ["10.1.1.1"], "conditions": gone}, {"addresses": ["10.1.1.2"], "conditions": leaving}]),
            &["10.1.1.2"],
        );
    }

    #[test]
    fn hints_count_if_all_have_them() {
        let near = json!({"forZones": [{"name": "z1"}]});
        let far = json!({"forZones": [{"name": "z2"}]});
        let check = |endpoints: Value, expected: usize| {
            let spec = json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80, "name": "http"}]});
            let found = ports(service(spec), &[slice(endpoints)]);
            assert_eq!(found[0].choose(false).cluster.len(), expected);
        };
        check(
            json!([{"addresses": ["10.1.1.1"], "hints": near}, {"addresses": ["10.1.1.2"], "hints": far}]),
            1,
        );
        check(json!([{"addresses": ["10.1.1.1"], "hints": near}, {"addresses": ["10.1.1.2"]}]), 2);
        check(
            json!([{"addresses": ["10.1.1.1"], "hints": far}, {"addresses": ["10.1.1.2"], "hints": far}]),
            2,
        );
        // Before anybody far away comes who is in the same zone.
        let near = json!({"forNodes": [{"name": "n1"}], "forZones": [{"name": "z1"}]});
        let nearby = json!({"forNodes": [{"name": "n2"}], "forZones": [{"name": "z1"}]});
        let far = json!({"forNodes": [{"name": "n3"}], "forZones": [{"name": "z2"}]});
        let three = |first: &Value| {
            json!([{"addresses": ["10.1.1.1"], "hints": first}, {"addresses": ["10.1.1.2"], "hints": nearby},
                {"addresses": ["10.1.1.3"], "hints": far}])
        };
        check(three(&near), 1);
        check(three(&nearby), 2);
    }

    #[test]
    fn nobody_elses_address_is_led_to_a_service() {
        let spec = json!({"clusterIP": "10.96.0.5", "type": "LoadBalancer", "ports": [{"port": 443, "name": "http"}],
            "externalIPs": ["192.168.1.1", "192.0.2.1", "10.96.0.1", "fd00::1", "0.0.0.0"]});
        let points =
            json!([{"ip": "192.168.1.1"}, {"ip": "192.0.2.2"}, {"ip": "10.100.0.1"}, {"ip": "127.0.0.1"}]);
        let mut service = service(spec);
        service["status"] = json!({"loadBalancer": {"ingress": points}});
        let mut port = ports(service, &[]).remove(0);
        let taken = Taken {
            addresses: ["192.168.1.1", "fd00::1"].map(|address| address.parse().unwrap()).into(),
            ranges: vec!["10.96.0.0/12".parse().unwrap()],
        };
        let refused = taken.take_from(&mut port);
        let texts = |all: &[IpAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(texts(&port.more.external_ips), "192.0.2.1");
        assert_eq!(texts(&port.more.load_balancer_ips), "192.0.2.2");
        assert_eq!(texts(&refused), "192.168.1.1 10.96.0.1 fd00::1 0.0.0.0 192.168.1.1 10.100.0.1 127.0.0.1");
        assert_eq!(port.cluster_ips.len(), 1, "its own stays");
    }
}
