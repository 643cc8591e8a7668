//! Addresses and ports that services are given: each is a key in the store, written in the same commit as the service.
//!
//! Because the key of an address may only be created where it does not exist, no address is ever given twice: not by
//! two requests at once, not by two apiservers, not after a crash. Whoever comes second tries another.
//!
//! ```text
//! commit { services/default/web (absent), ipaddresses/10.96.3.7 (absent), nodeports/30080 (absent) }
//! ```

mod families;
mod ranges;

pub use ranges::ServiceRanges;

use crate::config::Config;
use crate::error::{ApiError, Result};
use crate::server::Server;
use crate::storage::parse;
use api::field::Reason;
use api::{FieldError, Kind, Value, object};
use bytes::Bytes;
use ipnet::IpNet;
use memchr::memmem::Finder;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use store::{Expect, Write};

/// An address is taken by the IPAddress that says so.
const ADDRESSES: &str = "/registry/networking.k8s.io/ipaddresses/";
const PORTS: &str = "/minik8s/nodeports/";

/// Gives a service the addresses and ports it needs, and says which keys that takes and gives back. Other kinds need
/// nothing.
pub fn allocate(server: &Server, kind: &Kind, new: &mut Value, old: Option<&Value>) -> Result<Vec<Write>> {
    if !is_service(kind) {
        return Ok(Vec::new());
    }
    let held = old.map(Claims::of).unwrap_or_default();
    let asked = Claims::of(new);
    set_addresses(server, kind, new, old)?;
    set_node_ports(new, |taken| free_port(server, taken))?;
    check_range(server, kind, new, &asked, &held)?;
    let wanted = Claims::of(new);
    let take = |key: String| taking(key, new);
    let give = |key: String| Write { key, expect: Expect::Any, value: None };
    let mut writes: Vec<Write> = wanted.keys().difference(&held.keys()).cloned().map(take).collect();
    writes.extend(held.keys().difference(&wanted.keys()).cloned().map(give));
    Ok(writes)
}

/// Takes what a key stands for, for a service.
fn taking(key: String, service: &Value) -> Write {
    let value = match key.strip_prefix(ADDRESSES) {
        Some(address) => object::stored(&ip_address(address, service)).into(),
        None => Bytes::from(format!("{}/{}", object::namespace(service), object::name(service))),
    };
    Write { key, expect: Expect::Absent, value: Some(value) }
}

/// What says that a service has an address, as upstream's allocator writes it.
fn ip_address(address: &str, service: &Value) -> Value {
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    json!({
        "kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
        "metadata": {
            "name": address, "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": object::meta(service, "creationTimestamp"),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family,
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {
            "resource": "services", "namespace": object::namespace(service), "name": object::name(service),
        }},
    })
}

/// Takes addresses again that services have and nobody knows of: somebody has removed what said so.
pub async fn take_again(server: &Server) -> Result<()> {
    let addresses = server.registry.built_in("networking.k8s.io", "ipaddresses");
    for service in server.registry.built_in("", "services").objects(None) {
        let service = parse(service.as_json())?;
        for address in Claims::of(&service).addresses {
            if addresses.cache.get("", &address.to_string()).is_some() {
                continue;
            }
            match server.store.commit(vec![taking(format!("{ADDRESSES}{address}"), &service)]).await {
                Ok(_) | Err(store::Error::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// The keys that go when a service goes.
pub fn release(kind: &Kind, object: &Value) -> Vec<Write> {
    if !is_service(kind) {
        return Vec::new();
    }
    Claims::of(object).keys().into_iter().map(|key| Write { key, expect: Expect::Any, value: None }).collect()
}

/// The first address of the first range: the API server's own service.
pub fn first_address(ranges: &ServiceRanges) -> IpAddr {
    address_at(ranges.first, 1)
}

fn is_service(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "services"
}

/// What a service holds.
#[derive(Default)]
struct Claims {
    addresses: HashSet<IpAddr>,
    ports: HashSet<(String, u16)>,
}

impl Claims {
    fn of(service: &Value) -> Claims {
        let spec = &service["spec"];
        let addresses = spec["clusterIPs"]
            .as_array()
            .into_iter()
            .flatten()
            .chain(spec.get("clusterIP"))
            .filter_map(|ip| ip.as_str()?.parse().ok())
            .collect();
        let mut ports: HashSet<(String, u16)> = spec["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|port| {
                let number = u16::try_from(port.get("nodePort")?.as_u64()?).ok().filter(|n| *n > 0)?;
                Some((port["protocol"].as_str().unwrap_or("TCP").to_owned(), number))
            })
            .collect();
        let health =
            spec["healthCheckNodePort"].as_u64().and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
        ports.extend(health.map(|port| ("TCP".to_owned(), port)));
        Claims { addresses, ports }
    }

    fn keys(&self) -> HashSet<String> {
        let addresses = self.addresses.iter().map(|ip| format!("{ADDRESSES}{ip}"));
        let ports = self.ports.iter().map(|(protocol, port)| format!("{PORTS}{protocol}/{port}"));
        addresses.chain(ports).collect()
    }
}

fn set_addresses(server: &Server, kind: &Kind, new: &mut Value, old: Option<&Value>) -> Result<()> {
    let name = object::name(new).to_owned();
    let spec = object::object_mut(new, "spec");
    if spec.get("type").is_some_and(|spec_type| spec_type == "ExternalName") {
        for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(name);
        }
        return Ok(());
    }
    let given = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut addresses: Vec<String> = spec
        .get("clusterIPs")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(|ip| ip.as_str().map(str::to_owned)).collect())
        .unwrap_or_default();
    if addresses.is_empty() {
        // An update that leaves the address out keeps the one it has.
        let had = || old.and_then(|old| old["spec"]["clusterIP"].as_str()).unwrap_or_default().to_owned();
        let first = if given.is_empty() { had() } else { given };
        addresses.extend(Some(first).filter(|first| !first.is_empty()));
    } else if !given.is_empty() && given != addresses[0] {
        let error = FieldError {
            reason: Reason::Invalid,
            path: "spec.clusterIPs[0]".into(),
            value: Some(addresses[0].as_str().into()),
            detail: "first value must match `clusterIP`".into(),
        };
        return Err(ApiError::invalid(kind, &name, &[error]));
    }
    set_lists(spec, &addresses);
    let ranges = &server.config.service_cluster_ip_range;
    families::settle(spec, old, ranges).map_err(|errors| ApiError::invalid(kind, &name, &errors))?;
    if addresses.first().is_some_and(|first| first == "None") {
        return Ok(());
    }
    let list = |name: &str| spec.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    addresses.truncate(list("clusterIPs").len());
    for family in list("ipFamilies").iter().skip(addresses.len()) {
        let mut ranges = ranges_of(server, family.as_str().unwrap_or_default()).into_iter();
        let free = ranges.find_map(|range| free_address(server, range));
        let full = || ApiError::internal("failed to allocate a serviceIP: range is full");
        addresses.push(free.ok_or_else(full)?.to_string());
    }
    set_lists(spec, &addresses);
    Ok(())
}

fn set_lists(spec: &mut serde_json::Map<String, Value>, addresses: &[String]) {
    if let Some(first) = addresses.first() {
        spec.insert("clusterIP".into(), first.as_str().into());
        spec.insert("clusterIPs".into(), json!(addresses));
    }
}

/// Gives a port of the nodes to every port that needs one, and one at which load balancers ask for its health. What it
/// had before is there already. Ports with the same number, of other protocols, get the same.
fn set_node_ports(new: &mut Value, free: impl Fn(&HashSet<u16>) -> Option<u16>) -> Result<()> {
    let mut taken: HashSet<u16> = Claims::of(new).ports.into_iter().map(|(_, port)| port).collect();
    let mut next = || -> Result<u16> {
        let full = || ApiError::internal("failed to allocate a nodePort: range is full");
        let port = free(&taken).ok_or_else(full)?;
        taken.insert(port);
        Ok(port)
    };
    let number = |value: Option<&Value>| value.and_then(Value::as_u64).filter(|number| *number > 0);
    let spec = object::object_mut(new, "spec");
    let text = |name: &str| spec.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_balancer = text("type") == "LoadBalancer";
    let is_local = text("externalTrafficPolicy") == "Local";
    let allocates = spec.get("allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true);
    if text("type") == "NodePort" || is_balancer && allocates {
        let mut ports: Vec<&mut Value> =
            spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().collect();
        let given =
            ports.iter().filter_map(|port| Some((port["port"].as_u64()?, number(port.get("nodePort"))?)));
        let mut given: HashMap<u64, u64> = given.collect();
        for port in ports.iter_mut().filter(|port| port.is_object() && number(port.get("nodePort")).is_none())
        {
            let node_port = match port["port"].as_u64().and_then(|port| given.get(&port)) {
                Some(node_port) => *node_port,
                None => next()?.into(),
            };
            port["nodePort"] = node_port.into();
            given.extend(port["port"].as_u64().map(|port| (port, node_port)));
        }
    }
    if is_balancer && is_local && number(spec.get("healthCheckNodePort")).is_none() {
        spec.insert("healthCheckNodePort".into(), next()?.into());
    }
    Ok(())
}

/// Where addresses of a family come from: what the server was started with, and then ServiceCIDRs, but for those that
/// are not ready or on their way out.
fn ranges_of(server: &Server, family: &str) -> Vec<IpNet> {
    let own = server.config.service_cluster_ip_range.of(family);
    let more = server.registry.built_in("networking.k8s.io", "servicecidrs").objects(None);
    let more = more.into_iter().filter_map(|cidr| serde_json::from_slice::<Value>(cidr.as_json()).ok());
    let more = more.filter(is_given_from).flat_map(|cidr| {
        let ranges = cidr["spec"]["cidrs"].as_array().into_iter().flatten();
        let ranges = ranges.filter_map(|range| range.as_str()?.parse::<IpNet>().ok());
        ranges.filter(|range| ranges::family_of(range.addr()) == family).collect::<Vec<_>>()
    });
    let mut all: Vec<IpNet> = own.into_iter().collect();
    for range in more {
        if !all.contains(&range) {
            all.push(range);
        }
    }
    all
}

fn is_given_from(cidr: &Value) -> bool {
    object::condition_is(cidr, "Ready", "True") && object::meta(cidr, "deletionTimestamp").is_none()
}

/// Every address and node port that is asked for must lie in its range, unless the service has it already.
fn check_range(server: &Server, kind: &Kind, new: &Value, asked: &Claims, held: &Claims) -> Result<()> {
    let Config { service_cluster_ip_range: own, service_node_port_range: node_ports, .. } = &server.config;
    let mut errors = Vec::new();
    for ip in asked.addresses.difference(&held.addresses) {
        let range = own.of(ranges::family_of(*ip)).unwrap_or(own.first);
        if ranges_of(server, ranges::family_of(*ip)).iter().any(|range| range.contains(ip)) {
            continue;
        }
        errors.push(FieldError {
            reason: Reason::Invalid,
            path: "spec.clusterIPs".into(),
            value: Some(json!([ip.to_string()])),
            detail: format!("failed to allocate IP {ip}: the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}"),
        });
    }
    for (_, port) in asked.ports.difference(&held.ports).filter(|(_, port)| !node_ports.contains(port)) {
        errors.push(FieldError {
            reason: Reason::Invalid,
            path: "spec.ports[0].nodePort".into(),
            value: Some((*port).into()),
            detail: format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                node_ports.start(),
                node_ports.end()
            ),
        });
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(kind, object::name(new), &errors)) }
}

/// Whether the user asked for what the key stands for, rather than having it chosen.
pub fn asked_for(given: &Value, key: &str) -> bool {
    Claims::of(given).keys().contains(key)
}

/// What somebody is told who asked for an address or port that is taken.
pub fn taken(kind: &Kind, object: &Value, key: &str) -> ApiError {
    let (path, value, detail) = match key.strip_prefix(ADDRESSES) {
        Some(ip) => (
            "spec.clusterIPs",
            json!([ip]),
            format!("failed to allocate IP {ip}: provided IP is already allocated"),
        ),
        None => {
            let port = key.rsplit('/').next().unwrap_or_default();
            (
                "spec.ports[0].nodePort",
                json!(port.parse::<u16>().unwrap_or_default()),
                "provided port is already allocated".to_owned(),
            )
        }
    };
    let error = FieldError { reason: Reason::Invalid, path: path.into(), value: Some(value), detail };
    ApiError::invalid(kind, object::name(object), &[error])
}

/// An address that nobody in the caches has. Addresses people choose themselves are usually low ones, so the upper part
/// of the range is used first.
fn free_address(server: &Server, range: IpNet) -> Option<IpAddr> {
    let addresses = server.registry.built_in("networking.k8s.io", "ipaddresses");
    let services = server.registry.built_in("", "services").objects(None);
    // Somebody may have removed what says that an address is taken, so the services themselves are looked at too: for the
    // one that is to be given only, and as bytes, since there may be very many.
    let has_it = |name: &str| {
        let finder = Finder::new(name);
        services.iter().any(|service| finder.find(service.as_json()).is_some())
    };
    let is_free = |ip: &IpAddr| {
        let name = ip.to_string();
        addresses.cache.get("", &name).is_none() && !has_it(&format!("\"{name}\""))
    };
    let size = match range {
        IpNet::V4(net) => (1u128 << (32 - net.prefix_len())).saturating_sub(2),
        IpNet::V6(net) => (1u128 << (128 - net.prefix_len()).min(64)).saturating_sub(1),
    };
    let reserved = (size / 16).clamp(16, 256).min(size.saturating_sub(1));
    let upper = size - reserved;
    let start = random() % upper.max(1);
    let in_upper = (0..upper).map(|step| reserved + (start + step) % upper + 1);
    let in_lower = 2..=reserved;
    in_upper.chain(in_lower).take(size as usize).map(|offset| address_at(range, offset)).find(is_free)
}

fn free_port(server: &Server, taken: &HashSet<u16>) -> Option<u16> {
    let mut used = taken.clone();
    for service in server.registry.built_in("", "services").objects(None) {
        used.extend(node_ports_in(service.as_json()));
    }
    let range = &server.config.service_node_port_range;
    let count = u128::from(range.end().saturating_sub(*range.start())) + 1;
    let start = random() % count;
    (0..count).map(|step| range.start() + ((start + step) % count) as u16).find(|port| !used.contains(port))
}

/// The node ports in a service as it is stored, and health check node ports; found without decoding it.
fn node_ports_in(service: &[u8]) -> impl Iterator<Item = u16> {
    const NAME_ENDS: &[u8] = b"odePort\":";
    memchr::memmem::find_iter(service, NAME_ENDS).filter_map(|at| {
        let mut digits = service[at + NAME_ENDS.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.try_fold(0u16, |port, digit| port.checked_mul(10)?.checked_add(u16::from(digit - b'0')))
    })
}

fn address_at(range: IpNet, offset: u128) -> IpAddr {
    match range.network() {
        IpAddr::V4(base) => Ipv4Addr::from(u32::from(base).wrapping_add(offset as u32)).into(),
        IpAddr::V6(base) => Ipv6Addr::from(u128::from(base).wrapping_add(offset)).into(),
    }
}

fn random() -> u128 {
    uuid::Uuid::new_v4().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports_of(spec: Value) -> Value {
        let mut service = json!({"spec": spec});
        let free = |taken: &HashSet<u16>| (30000..30004).find(|port| !taken.contains(port));
        match set_node_ports(&mut service, free) {
            Ok(()) => service["spec"].take(),
            Err(error) => json!(format!("{error:?}")),
        }
    }

    #[test]
    fn node_ports_are_given_where_they_are_missing() {
        let port = |number: u16, protocol: &str, node_port: u16| json!({"port": number, "protocol": protocol, "nodePort": node_port});
        let missing = |number: u16, protocol: &str| json!({"port": number, "protocol": protocol});
        let check = |spec_type: &str, ports: Value, expected: Value| {
            let found = ports_of(json!({"type": spec_type, "ports": ports}));
            assert_eq!(found["ports"], expected, "{spec_type} {ports}");
        };
        check("ClusterIP", json!([missing(80, "TCP")]), json!([missing(80, "TCP")]));
        check(
            "NodePort",
            json!([port(80, "TCP", 30000), missing(81, "TCP")]),
            json!([port(80, "TCP", 30000), port(81, "TCP", 30001)]),
        );
        check(
            "LoadBalancer",
            json!([missing(53, "UDP"), missing(80, "TCP"), missing(53, "TCP")]),
            json!([port(53, "UDP", 30000), port(80, "TCP", 30001), port(53, "TCP", 30000)]),
        );
        check(
            "NodePort",
            json!([missing(53, "UDP"), port(53, "TCP", 30003)]),
            json!([port(53, "UDP", 30003), port(53, "TCP", 30003)]),
        );
        let many: Vec<Value> = (1..=5).map(|number| missing(number, "TCP")).collect();
        let full = ports_of(json!({"type": "NodePort", "ports": many}));
        assert!(full.as_str().is_some_and(|said| said.contains("range is full")), "{full}");
    }

    #[test]
    fn node_ports_are_found_without_decoding() {
        let service = json!({
            "metadata": {"annotations": {"last": "{\"nodePort\":1}"}},
            "spec": {"ports": [{"nodePort": 30080, "port": 80}, {"port": 2}, {"nodePort": 31000}],
                "healthCheckNodePort": 32000},
        });
        let stored = object::stored(&service);
        let mut found: Vec<u16> = node_ports_in(stored.as_ref()).collect();
        found.sort_unstable();
        assert_eq!(found, [30080, 31000, 32000]);
    }

    #[test]
    fn load_balancers_are_told_where_to_ask() {
        let check = |spec_type: &str, policy: &str, expected: Value| {
            let ports = json!([{"port": 80, "nodePort": 30000}]);
            let found = ports_of(json!({"type": spec_type, "externalTrafficPolicy": policy, "ports": ports}));
            assert_eq!(found["healthCheckNodePort"], expected, "{spec_type} {policy}");
        };
        check("LoadBalancer", "Local", json!(30001));
        check("LoadBalancer", "Cluster", Value::Null);
        check("NodePort", "Local", Value::Null);
        let given =
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000});
        assert_eq!(ports_of(given.clone()), given);
    }
}
