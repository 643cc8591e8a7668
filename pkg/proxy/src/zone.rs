//! The names of the cluster: which name means what, without any network.
//!
//! ```text
//! web.default.svc.cluster.local          A, AAAA   the service's addresses; a headless one's endpoints
//! _http._tcp.web.default.svc.…           SRV       port and name; one per endpoint of a headless service
//! db-0.db.default.svc.cluster.local      A, AAAA   a pod of a StatefulSet
//! 10-244-1-7.default.pod.cluster.local   A         the address in the name
//! 5.0.96.10.in-addr.arpa                 PTR       the service, or the pod of a headless one
//! shop.example.com, *.example.com        A, AAAA   the host of a DNS object or an Ingress: this node
//! ```
//!
//! Answers follow the specification of Kubernetes' DNS. A name outside of all this is somebody else's.

use crate::gateway::Reserved;
use crate::record::{Service, Slice};
use network::Protocol;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// How long answers are good for, in seconds: endpoints change.
pub const TTL_SECONDS: u32 = 30;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// An IPv4 address.
    A,
    /// An IPv6 address.
    Aaaa,
    /// Ports and names.
    Srv,
    /// The name of an address.
    Ptr,
    /// Text.
    Txt,
    /// Anything else, of which there is nothing.
    Other,
}

/// One record of an answer; names without the dot at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of which name.
    pub name: String,
    /// What.
    pub data: Data,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// An address of either family.
    Address(IpAddr),
    /// Another name.
    Cname(String),
    /// A port and its name.
    Srv(u16, String),
    /// The name of an address.
    Ptr(String),
    /// Text.
    Txt(String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The name exists; it may have nothing of what was asked. The second list is offered besides.
    Records(Vec<Record>, Vec<Record>),
    /// The name is ours, and does not exist.
    NoSuchName,
    /// Not ours.
    Elsewhere,
    /// Ours, but it leads to a name that is not; to be looked up there.
    Alias(String),
    /// Ours, and nothing is known yet.
    NotYet,
}

/// All names. Made anew from the objects as they are, which it shares; asked without locking anybody out.
#[derive(Debug, Default)]
pub struct Zone {
    domain: String,
    /// What services there are is known.
    known: bool,
    /// By namespace and name.
    services: Vec<Arc<Service>>,
    /// The addresses of services, in order: which of them has it.
    addresses: Vec<(IpAddr, u32)>,
    /// Those of them that are headless, with their endpoints.
    headless: Vec<(Arc<Service>, Endpoints)>,
    /// Their pods' names.
    pods: HashMap<IpAddr, String>,
    /// Names that lead to this node; `*.example.com` is every name right below.
    hosts: HashSet<String>,
    /// Names that are not among those of a wildcard.
    reserved: Reserved,
    node: Vec<IpAddr>,
}

/// Label to address, and where its ports are.
type Endpoints = BTreeMap<String, Vec<(IpAddr, Arc<Slice>)>>;

impl Zone {
    /// Of a cluster of which nothing is known yet.
    pub fn unknown(domain: &str) -> Zone {
        Zone { domain: normal(domain), ..Zone::default() }
    }

    /// The names of these services, which are in the order of their namespaces and names, and hosts. Slices are those of
    /// headless services; others may be among them.
    pub fn new(
        domain: &str,
        services: Vec<Arc<Service>>,
        slices: impl IntoIterator<Item = Arc<Slice>>,
        hosts: impl Iterator<Item = String>,
        reserved: Reserved,
        node: &[IpAddr],
    ) -> Zone {
        let of_service = |(n, service): (usize, &Arc<Service>)| {
            service.cluster_ips.iter().map(|address| (*address, n as u32)).collect::<Vec<_>>()
        };
        let mut addresses: Vec<(IpAddr, u32)> = services.iter().enumerate().flat_map(of_service).collect();
        addresses.sort_unstable();
        let headless = services.iter().filter(|service| service.is_headless());
        let headless = headless.map(|service| (service.clone(), Endpoints::new()));
        let mut zone = Zone {
            domain: normal(domain),
            known: true,
            headless: headless.collect(),
            services,
            addresses,
            hosts: hosts.map(|host| host.to_ascii_lowercase()).collect(),
            reserved,
            node: node.to_vec(),
            ..Zone::default()
        };
        for slice in slices {
            zone.add_slice(&slice);
        }
        zone
    }

    fn add_slice(&mut self, slice: &Arc<Slice>) {
        let name = slice.service.as_deref().unwrap_or_default();
        let Some(n) = self.find_headless(slice.namespace(), name) else { return };
        let fqdn = self.fqdn(&self.headless[n].0);
        // A service that publishes addresses that are not ready has them as ready in its slices.
        for place in slice.endpoints.iter().filter(|place| place.ready) {
            let label = place.hostname().map_or_else(|| dashed(place.address), str::to_owned);
            self.pods.entry(place.address).or_insert_with(|| format!("{label}.{fqdn}"));
            self.headless[n].1.entry(label).or_default().push((place.address, slice.clone()));
        }
    }

    fn find_headless(&self, namespace: &str, name: &str) -> Option<usize> {
        self.headless.binary_search_by(|(service, _)| order(service, namespace, name)).ok()
    }

    fn find(&self, namespace: &str, name: &str) -> Option<&Service> {
        let found = self.services.binary_search_by(|service| order(service, namespace, name)).ok();
        found.map(|n| self.services[n].as_ref())
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        let first = self.services.partition_point(|service| service.namespace() < namespace);
        self.services.get(first).is_some_and(|service| service.namespace() == namespace)
    }

    fn fqdn(&self, service: &Service) -> String {
        format!("{}.{}.svc.{}", service.name(), service.namespace(), self.domain)
    }

    /// What a name means. It may be written in capitals, with or without the dot at its end.
    pub fn answer(&self, name: &str, kind: Type) -> Answer {
        let asked = name.trim_end_matches('.');
        let name = asked.to_ascii_lowercase();
        if self.is_host(&name) {
            return found(of_type(&name, self.node.iter(), kind));
        }
        if let Some(address) = reversed(&name) {
            return self.pointer(&name, address, kind);
        }
        let Some(rest) = name.strip_suffix(&self.domain) else { return Answer::Elsewhere };
        let Some(rest) = rest.strip_suffix('.').or(rest.is_empty().then_some("")) else {
            return Answer::Elsewhere;
        };
        if !self.known {
            return Answer::NotYet;
        }
        let mut labels: Vec<&str> = rest.split('.').filter(|label| !label.is_empty()).collect();
        labels.reverse();
        match labels.as_slice() {
            [] => found(Vec::new()),
            ["dns-version"] => {
                let version = Record { name: name.clone(), data: Data::Txt("1.1.0".to_owned()) };
                found(if kind == Type::Txt { vec![version] } else { Vec::new() })
            }
            ["svc"] | ["pod"] => found(Vec::new()),
            ["svc", namespace] | ["pod", namespace] if self.has_namespace(namespace) => found(Vec::new()),
            ["pod", _, label] => match undashed(label) {
                Some(address) => found(of_type(&name, [address].iter(), kind)),
                None => Answer::NoSuchName,
            },
            ["svc", namespace, service, inner @ ..] => match self.find(namespace, service) {
                Some(service) => self.service(service, &name, inner, kind),
                None => Answer::NoSuchName,
            },
            _ => Answer::NoSuchName,
        }
    }

    fn is_host(&self, name: &str) -> bool {
        let wildcard = |(_, domain): (&str, &str)| self.hosts.contains(&format!("*.{domain}"));
        self.hosts.contains(name) || name.split_once('.').is_some_and(wildcard) && !self.reserved.holds(name)
    }

    fn service(&self, service: &Service, name: &str, inner: &[&str], kind: Type) -> Answer {
        if let Some(external) = &service.external_name {
            return match inner.is_empty() {
                true => Answer::Alias(external.to_string()),
                false => Answer::NoSuchName,
            };
        }
        let endpoints = self.find_headless(service.namespace(), service.name()).map(|n| &self.headless[n].1);
        let endpoints = endpoints.filter(|endpoints| !endpoints.is_empty());
        let fqdn = self.fqdn(service);
        match inner {
            [] if kind == Type::Srv => ports(service, endpoints, name, &fqdn, |_, _| true),
            [] => {
                let places = endpoints.iter().flat_map(|endpoints| endpoints.values().flatten());
                let places = places.map(|(address, _)| address);
                match service.cluster_ips.is_empty() && endpoints.is_none() {
                    // A headless service without anybody: the name is there only with its endpoints.
                    true => Answer::NoSuchName,
                    false => found(of_type(name, service.cluster_ips.iter().chain(places), kind)),
                }
            }
            [protocol, port] if protocol.starts_with('_') && port.starts_with('_') => {
                let matches = |name: &str, of: Protocol| name == &port[1..] && of.lower() == &protocol[1..];
                match ports(service, endpoints, name, &fqdn, matches) {
                    Answer::Records(records, _) if records.is_empty() => Answer::NoSuchName,
                    Answer::Records(_, _) if kind != Type::Srv => found(Vec::new()),
                    answer => answer,
                }
            }
            [label] => match endpoints.and_then(|endpoints| endpoints.get(*label)) {
                Some(places) => found(of_type(name, places.iter().map(|(address, _)| address), kind)),
                None => Answer::NoSuchName,
            },
            _ => Answer::NoSuchName,
        }
    }

    fn pointer(&self, name: &str, address: IpAddr, kind: Type) -> Answer {
        let service = self.addresses.binary_search_by_key(&address, |(address, _)| *address).ok();
        let service = service.map(|n| self.fqdn(&self.services[self.addresses[n].1 as usize]));
        match service.or_else(|| self.pods.get(&address).cloned()) {
            Some(target) if kind == Type::Ptr => {
                found(vec![Record { name: name.to_owned(), data: Data::Ptr(target) }])
            }
            Some(_) => found(Vec::new()),
            None => Answer::Elsewhere,
        }
    }

    /// The domain of the cluster.
    pub fn domain(&self) -> &str {
        &self.domain
    }
}

fn normal(domain: &str) -> String {
    domain.trim_matches('.').to_ascii_lowercase()
}

fn order(service: &Service, namespace: &str, name: &str) -> Ordering {
    (service.namespace(), service.name()).cmp(&(namespace, name))
}

fn found(records: Vec<Record>) -> Answer {
    Answer::Records(records, Vec::new())
}

/// The ports that match, each with its target, whose addresses come along.
fn ports(
    service: &Service,
    endpoints: Option<&Endpoints>,
    name: &str,
    fqdn: &str,
    matches: impl Fn(&str, Protocol) -> bool,
) -> Answer {
    let (mut records, mut besides) = (Vec::new(), Vec::new());
    let mut add = |port: u16, target: String, addresses: &mut dyn Iterator<Item = IpAddr>| {
        besides
            .extend(addresses.map(|address| Record { name: target.clone(), data: Data::Address(address) }));
        records.push(Record { name: name.to_owned(), data: Data::Srv(port, target) });
    };
    if endpoints.is_none() {
        for port in service.ports.iter().filter(|port| matches(&port.name, port.protocol)) {
            add(port.port, fqdn.to_owned(), &mut service.cluster_ips.iter().copied());
        }
    }
    for (label, places) in endpoints.into_iter().flatten() {
        for (address, slice) in places {
            for port in slice.ports.iter().filter(|port| matches(&port.name, port.protocol)) {
                add(port.number, format!("{label}.{fqdn}"), &mut std::iter::once(*address));
            }
        }
    }
    besides.dedup();
    Answer::Records(records, besides)
}

fn of_type<'a>(name: &str, addresses: impl Iterator<Item = &'a IpAddr>, kind: Type) -> Vec<Record> {
    let wanted = |address: &&IpAddr| match kind {
        Type::A => address.is_ipv4(),
        Type::Aaaa => address.is_ipv6(),
        _ => false,
    };
    let record = |address: &IpAddr| Record { name: name.to_owned(), data: Data::Address(*address) };
    addresses.filter(wanted).map(record).collect()
}

/// `10.244.1.7` as a label.
fn dashed(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "-")
}

fn undashed(label: &str) -> Option<IpAddr> {
    let v4 = label.replace('-', ".").parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    v4.or_else(|| label.replace('-', ":").parse::<Ipv6Addr>().ok().map(IpAddr::V6))
}

/// The address in a name below in-addr.arpa or ip6.arpa.
fn reversed(name: &str) -> Option<IpAddr> {
    if let Some(labels) = name.strip_suffix(".in-addr.arpa") {
        let octets: Option<Vec<u8>> = labels.split('.').rev().map(|label| label.parse().ok()).collect();
        return <[u8; 4]>::try_from(octets?).ok().map(IpAddr::from);
    }
    let labels = name.strip_suffix(".ip6.arpa")?;
    let nibbles: Option<Vec<u128>> = labels
        .split('.')
        .rev()
        .map(|label| u128::from_str_radix(label, 16).ok().filter(|nibble| *nibble < 16))
        .collect();
    let nibbles = nibbles.filter(|nibbles| nibbles.len() == 32)?;
    Some(IpAddr::V6(nibbles.iter().fold(0, |bits, nibble| bits << 4 | nibble).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn zone() -> Zone {
        let service = |value: Value| -> Arc<Service> { Arc::new(serde_json::from_value(value).unwrap()) };
        let mut services = vec![
            service(json!({"metadata": {"namespace": "default", "name": "web"}, "spec": {
                "clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5", "fd00:96::5"],
                "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]}})),
            service(json!({"metadata": {"namespace": "default", "name": "db"}, "spec": {"clusterIP": "None",
                "ports": [{"name": "sql", "port": 5432}]}})),
            service(
                json!({"metadata": {"namespace": "default", "name": "empty"}, "spec": {"clusterIP": "None"}}),
            ),
            service(json!({"metadata": {"namespace": "default", "name": "far"}, "spec": {
                "type": "ExternalName", "externalName": "example.org."}})),
        ];
        let slice: Slice = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "labels": {"kubernetes.io/service-name": "db"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.1.7"], "hostname": "db-0"}, {"addresses": ["10.244.2.7"]},
                {"addresses": ["10.244.3.7"], "conditions": {"ready": false}, "hostname": "db-2"}],
            "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]}))
        .unwrap();
        let node = ["192.168.1.1".parse().unwrap()];
        let hosts = ["shop.example.com".to_owned(), "*.apps.example.com".to_owned()];
        services.sort_by_key(|service| service.name().to_owned());
        let reserved = Reserved::new("cluster.local.", ["n1.apps.example.com".to_owned()].into_iter());
        Zone::new("cluster.local.", services, [Arc::new(slice)], hosts.into_iter(), reserved, &node)
    }

    fn check(name: &str, kind: Type, expected: &str) {
        let text = |record: &Record| match &record.data {
            Data::Address(address) => address.to_string(),
            Data::Cname(name) | Data::Ptr(name) | Data::Txt(name) => name.clone(),
            Data::Srv(port, name) => format!("{port} {name}"),
        };
        let answer = match zone().answer(name, kind) {
            Answer::Records(records, _) => records.iter().map(text).collect::<Vec<_>>().join(", "),
            Answer::NoSuchName => "no such name".to_owned(),
            Answer::Elsewhere => "elsewhere".to_owned(),
            Answer::Alias(name) => format!("alias {name}"),
            Answer::NotYet => "not yet".to_owned(),
        };
        assert_eq!(answer, expected, "{name} {kind:?}");
    }

    #[test]
    fn services_have_names() {
        check("web.default.svc.cluster.local.", Type::A, "10.96.0.5");
        check("WEB.default.svc.Cluster.Local", Type::A, "10.96.0.5");
        check("web.default.svc.cluster.local", Type::Aaaa, "fd00:96::5");
        check("web.default.svc.cluster.local", Type::Other, "");
        check("_http._tcp.web.default.svc.cluster.local", Type::Srv, "80 web.default.svc.cluster.local");
        check("_dns._udp.web.default.svc.cluster.local", Type::Srv, "53 web.default.svc.cluster.local");
        check("_dns._tcp.web.default.svc.cluster.local", Type::Srv, "no such name");
        check("nosuch.default.svc.cluster.local", Type::A, "no such name");
        check("web.nowhere.svc.cluster.local", Type::A, "no such name");
        check("far.default.svc.cluster.local", Type::A, "alias example.org");
    }

    #[test]
    fn headless_services_are_their_endpoints() {
        check("db.default.svc.cluster.local", Type::A, "10.244.2.7, 10.244.1.7");
        check("db-0.db.default.svc.cluster.local", Type::A, "10.244.1.7");
        check("10-244-2-7.db.default.svc.cluster.local", Type::A, "10.244.2.7");
        check("db-2.db.default.svc.cluster.local", Type::A, "no such name");
        check(
            "_sql._tcp.db.default.svc.cluster.local",
            Type::Srv,
            "5432 10-244-2-7.db.default.svc.cluster.local, 5432 db-0.db.default.svc.cluster.local",
        );
        check("empty.default.svc.cluster.local", Type::A, "no such name");
    }

    #[test]
    fn addresses_have_names_too() {
        check("5.0.96.10.in-addr.arpa.", Type::Ptr, "web.default.svc.cluster.local");
        check("7.1.244.10.in-addr.arpa", Type::Ptr, "db-0.db.default.svc.cluster.local");
        check("1.1.168.192.in-addr.arpa", Type::Ptr, "elsewhere");
        let nibbles = "5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.0.d.f.ip6.arpa";
        check(nibbles, Type::Ptr, "web.default.svc.cluster.local");
    }

    #[test]
    fn everything_else() {
        check("10-244-9-9.default.pod.cluster.local", Type::A, "10.244.9.9");
        check("10-244-9-9.no-services-here.pod.cluster.local", Type::A, "10.244.9.9");
        check("shop.example.com", Type::A, "192.168.1.1");
        check("shop.example.com", Type::Aaaa, "");
        check("Any.apps.example.com", Type::A, "192.168.1.1");
        check("n1.apps.example.com", Type::A, "elsewhere");
        check("deep.any.apps.example.com", Type::A, "elsewhere");
        check("apps.example.com", Type::A, "elsewhere");
        check("example.com", Type::A, "elsewhere");
        check("notcluster.local", Type::A, "elsewhere");
        check("dns-version.cluster.local", Type::Txt, "1.1.0");
        check("svc.cluster.local", Type::A, "");
    }

    #[test]
    fn what_is_not_known_yet_is_not_denied() {
        let zone = Zone::unknown("Cluster.local.");
        for name in ["web.default.svc.cluster.local", "cluster.local"] {
            assert_eq!(zone.answer(name, Type::A), Answer::NotYet, "{name}");
        }
        assert_eq!(zone.answer("example.com", Type::A), Answer::Elsewhere);
    }
}
