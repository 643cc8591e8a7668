//! What the Node objects say that rules, names and the overlay depend on.

use crate::services::Here;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use network::overlay::{Local, Peer};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The label with a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// This node, as its object says; everything unknown until it has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct This {
    /// Its name and zone.
    pub here: Here,
    /// Its own addresses.
    pub addresses: Vec<IpAddr>,
    /// Its pods' addresses.
    pub pod_ranges: Vec<IpNet>,
    /// It is the first of all by name, and speaks for all where all would say the same.
    pub first: bool,
    /// It is being deleted, or about to be taken away by whoever scales the cluster.
    pub leaving: bool,
}

/// The taint of a node that is about to be taken away.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

impl This {
    /// From the objects.
    pub fn find(name: &str, nodes: &[Arc<Node>]) -> This {
        let node = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
        let zone = node.and_then(|node| node.metadata.labels.as_ref()?.get(ZONE).cloned());
        This {
            here: Here { node: name.to_owned(), zone },
            addresses: node.map(|node| internal_ips(node)).unwrap_or_default(),
            pod_ranges: node.map(|node| pod_ranges(node)).unwrap_or_default(),
            first: nodes.iter().filter_map(|node| node.metadata.name.as_deref()).min() == Some(name),
            leaving: node.is_some_and(|node| is_leaving(node)),
        }
    }

    /// Its address of a family.
    pub fn address(&self, ipv6: bool) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv6() == ipv6)
    }

    /// Its pods' addresses of a family.
    pub fn pod_range(&self, ipv6: bool) -> Option<IpNet> {
        self.pod_ranges.iter().copied().find(|range| range.addr().is_ipv6() == ipv6)
    }

    /// Its part of the overlay.
    pub fn overlay(&self) -> Option<Local> {
        Local::of_node(&self.addresses, &self.pod_ranges)
    }
}

fn is_leaving(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    node.metadata.deletion_timestamp.is_some()
        || taints.map(|taint| &taint.key).any(|key| key == TO_BE_DELETED)
}

/// What a node's pods may have as addresses.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// The addresses of all pods; if none are named, any that are nobody else's.
    pub cluster: Vec<IpNet>,
    /// Addresses that are somebody else's: services'.
    pub foreign: Vec<IpNet>,
}

impl Bounds {
    /// Whether a range may be a node's, as far as it concerns nobody but that node.
    fn allow(&self, range: &IpNet) -> bool {
        let mut of_family = self.cluster.iter().filter(|all| all.addr().is_ipv6() == range.addr().is_ipv6());
        let is_inside = of_family.clone().any(|all| all.contains(range)) || of_family.next().is_none();
        is_inside && range.prefix_len() > 0 && !self.foreign.iter().any(|other| overlap(other, range))
    }
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

/// The other nodes, as far as they can be reached. Whoever may write a Node must not lead others' packets to it: a range
/// outside of the cluster's, with a node's own address in it, or that an older node has, is not routed.
pub fn peers(name: &str, nodes: &[Arc<Node>], bounds: &Bounds) -> Vec<Peer> {
    let mut nodes: Vec<&Node> = nodes.iter().map(AsRef::as_ref).collect();
    nodes.sort_by_key(|node| (&node.metadata.creation_timestamp, &node.metadata.name));
    let machines: Vec<IpAddr> = nodes.iter().flat_map(|node| internal_ips(node)).collect();
    let mut taken: Vec<IpNet> = Vec::new();
    let mut found = Vec::new();
    for node in nodes {
        let is_own = |range: &IpNet| {
            let free = !taken.iter().any(|other| overlap(other, range));
            bounds.allow(range) && free && !machines.iter().any(|machine| range.contains(machine))
        };
        let (ranges, others): (Vec<IpNet>, Vec<IpNet>) =
            pod_ranges(node).iter().partition(|range| is_own(range));
        if let Some(range) = others.first() {
            let node = node.metadata.name.as_deref();
            tracing::warn!(node, %range, "the node's podCIDR is outside of the cluster's or somebody else's: not routed");
        }
        taken.extend(&ranges);
        if node.metadata.name.as_deref() != Some(name) {
            found.extend(Peer::of_node(node.metadata.annotations.as_ref(), &internal_ips(node), &ranges));
        }
    }
    found
}

/// Where the nodes that stay are reached, in order.
pub fn addresses(nodes: &[Arc<Node>]) -> Vec<IpAddr> {
    let staying = nodes.iter().filter(|node| !is_leaving(node));
    staying.flat_map(|node| internal_ips(node)).collect::<BTreeSet<IpAddr>>().into_iter().collect()
}

/// Whether addresses of a range are the node's own, or its pods'.
pub fn has_some_of(node: &Node, range: &IpNet) -> bool {
    internal_ips(node).iter().any(|address| range.contains(address))
        || pod_ranges(node).iter().any(|pods| overlap(pods, range))
}

/// What a node is called, by others and by itself.
pub fn own_names(node: &Node) -> impl Iterator<Item = String> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let named = addresses.filter(|address| !address.type_.ends_with("IP")).map(|name| name.address.clone());
    node.metadata.name.clone().into_iter().chain(named)
}

/// All addresses of a node, whoever reaches it there.
pub fn all_ips(node: &Node) -> impl Iterator<Item = IpAddr> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    addresses.filter_map(|address| address.address.parse().ok())
}

fn internal_ips(node: &Node) -> Vec<IpAddr> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    internal.filter_map(|address| address.address.parse().ok()).collect()
}

fn pod_ranges(node: &Node) -> Vec<IpNet> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let mut ranges: Vec<IpNet> = Vec::new();
    for text in spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr) {
        if let Ok(range) = text.parse::<IpNet>()
            && !ranges.contains(&range.trunc())
        {
            ranges.push(range.trunc());
        }
    }
    ranges
}

/// Whether this node has an IPv6 address that is not only its own.
pub fn has_ipv6() -> bool {
    let table = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    // The fourth column is the scope; 00 is global.
    table.lines().any(|line| line.split_whitespace().nth(3) == Some("00"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_without_a_range_is_nobodys_peer() {
        let node = |name: &str, spec: serde_json::Value, ip: &str| -> Arc<Node> {
            let status = json!({"addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": ip}]});
            Arc::new(
                serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec, "status": status}))
                    .unwrap(),
            )
        };
        let nodes = [
            node(
                "a",
                json!({"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24", "fd00::/64"]}),
                "192.168.1.1",
            ),
            node("b", json!({"podCIDR": "10.244.1.0/24"}), "192.168.1.2"),
            node("c", json!({}), "192.168.1.3"),
        ];
        let this = This::find("a", &nodes);
        assert_eq!(this.pod_ranges.len(), 2);
        assert_eq!(this.overlay().map(|local| local.range.to_string()).as_deref(), Some("10.244.0.0/24"));
        let bounds = Bounds::default();
        let found: Vec<String> =
            peers("a", &nodes, &bounds).iter().map(|peer| peer.public_ip.to_string()).collect();
        assert_eq!(found, ["192.168.1.2"]);
        assert_eq!(This::find("nobody", &nodes).overlay(), None);
    }

    #[test]
    fn packets_of_others_are_led_to_no_node() {
        let node = |name: &str, created: u32, range: &str| -> Arc<Node> {
            let metadata =
                json!({"name": name, "creationTimestamp": format!("2026-01-0{created}T00:00:00Z")});
            let status =
                json!({"addresses": [{"type": "InternalIP", "address": format!("192.168.1.{created}")}]});
            let node = json!({"metadata": metadata, "spec": {"podCIDR": range}, "status": status});
            Arc::new(serde_json::from_value(node).unwrap())
        };
        let nodes =
            [node("b", 2, "10.244.1.0/24"), node("a", 1, "10.244.0.0/24"), node("c", 3, "10.244.2.0/24")];
        let check = |cluster: &[&str], range: &str, expected: bool| {
            let ranges = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
            let bounds =
                Bounds { cluster: ranges(cluster), foreign: ranges(&["10.96.0.0/12", "172.16.5.0/24"]) };
            let late = node("d", 4, range);
            let found = peers("a", &[&nodes[..], &[late]].concat(), &bounds);
            let is_there = |address: &str| found.iter().any(|peer| peer.public_ip.to_string() == address);
            assert!(is_there("192.168.1.2") && is_there("192.168.1.3"), "{range}: the others are");
            assert_eq!(is_there("192.168.1.4"), expected, "{cluster:?} {range}");
        };
        let pods = &["10.244.0.0/16", "fd00::/56"][..];
        check(pods, "10.244.3.0/24", true);
        check(&[], "10.7.3.0/24", true);
        check(pods, "10.7.3.0/24", false);
        check(pods, "10.244.0.0/15", false);
        for cluster in [pods, &[], &["0.0.0.0/0"]] {
            // Another node's, a part of it, this node's own, services', the machines' own, everything.
            for range in [
                "10.244.1.0/24",
                "10.244.1.128/25",
                "10.244.0.0/24",
                "10.100.0.0/24",
                "192.168.1.0/30",
                "172.16.5.0/25",
                "0.0.0.0/0",
                "8.0.0.0/5",
            ] {
                check(cluster, range, false);
            }
        }
    }
}
