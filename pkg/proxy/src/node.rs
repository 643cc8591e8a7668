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

/// The other nodes, as far as they can be reached.
pub fn peers(name: &str, nodes: &[Arc<Node>]) -> Vec<Peer> {
    let others = nodes.iter().filter(|node| node.metadata.name.as_deref() != Some(name));
    let peers = others.filter_map(|node| {
        Peer::of_node(node.metadata.annotations.as_ref(), &internal_ips(node), &pod_ranges(node))
    });
    peers.collect()
}

/// Where the nodes that stay are reached, in order.
pub fn addresses(nodes: &[Arc<Node>]) -> Vec<IpAddr> {
    let staying = nodes.iter().filter(|node| !is_leaving(node));
    staying.flat_map(|node| internal_ips(node)).collect::<BTreeSet<IpAddr>>().into_iter().collect()
}

/// Whether addresses of a range are the node's own, or its pods'.
pub fn has_some_of(node: &Node, range: &IpNet) -> bool {
    let overlaps = |pods: &IpNet| pods.contains(range) || range.contains(pods);
    internal_ips(node).iter().any(|address| range.contains(address)) || pod_ranges(node).iter().any(overlaps)
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
        let found: Vec<String> = peers("a", &nodes).iter().map(|peer| peer.public_ip.to_string()).collect();
        assert_eq!(found, ["192.168.1.2"]);
        assert_eq!(This::find("nobody", &nodes).overlay(), None);
    }
}
