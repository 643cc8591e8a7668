//! Node pod ranges: each node gets a part of the cluster's range, and no other node has it.
//!
//! What a node has stands in its `spec.podCIDR`; that is all the memory there is across restarts. While running, what was
//! offered to a node is kept for it until it is gone, so that an answer that got lost does not give a range out twice.

use crate::runtime::{Context, Controller, Driver, Note, Plan, Task, Write};
use client::{Cache, Key, reference};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    /// The first address, as a number.
    first: u128,
    prefix: u8,
    is_v4: bool,
}

impl Cidr {
    fn bits(&self) -> u8 {
        if self.is_v4 { 32 } else { 128 }
    }

    /// How many addresses, as a power of two.
    fn size_bits(&self) -> u8 {
        self.bits() - self.prefix
    }

    fn overlaps(&self, other: &Cidr) -> bool {
        let coarse = u32::from(self.size_bits().max(other.size_bits()));
        let block = |cidr: &Cidr| cidr.first.checked_shr(coarse).unwrap_or(0);
        self.is_v4 == other.is_v4 && block(self) == block(other)
    }

    /// The ranges of this prefix length in it, lowest first.
    fn parts(self, prefix: u8) -> impl Iterator<Item = Cidr> {
        let count_bits = u32::from(prefix.saturating_sub(self.prefix)).min(24);
        let step = 1u128.checked_shl(u32::from(self.bits() - prefix)).unwrap_or(0);
        let fits = prefix >= self.prefix;
        (0..if fits { 1u128 << count_bits } else { 0 }).map(move |index| Cidr {
            first: self.first + index * step,
            prefix,
            is_v4: self.is_v4,
        })
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a range: write 10.244.0.0/16");
        let (address, prefix) = text.trim().split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        let (number, is_v4) = match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)), true),
            IpAddr::V6(address) => (u128::from(address), false),
        };
        let cidr = Cidr { first: number, prefix, is_v4 };
        if prefix > cidr.bits() {
            return Err(wrong());
        }
        let host = u32::from(cidr.size_bits());
        let first = number.checked_shr(host).and_then(|network| network.checked_shl(host)).unwrap_or(0);
        Ok(Cidr { first, ..cidr })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address: IpAddr = match u32::try_from(self.first) {
            Ok(number) if self.is_v4 => Ipv4Addr::from(number).into(),
            _ => Ipv6Addr::from(self.first).into(),
        };
        write!(f, "{address}/{}", self.prefix)
    }
}

/// Where ranges come from: the cluster's range and the prefix length of a node's, for one or two families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pools(Vec<(Cidr, u8)>);

impl Pools {
    /// From `--cluster-cidr` and `--node-cidr-mask-size`.
    pub fn parse(cluster_cidr: &str, mask_size: Option<u8>) -> Result<Pools, String> {
        let pools = cluster_cidr.split(',').map(|text| {
            let range: Cidr = text.parse()?;
            let mask = mask_size.filter(|_| range.is_v4).unwrap_or(if range.is_v4 { 24 } else { 64 });
            if mask < range.prefix || mask > range.bits() {
                return Err(format!("a node's range of /{mask} is not a part of {range}"));
            }
            Ok((range, mask))
        });
        pools.collect::<Result<Vec<_>, String>>().map(Pools)
    }

    /// The lowest free range of each family; `None` if there is none.
    pub fn free(&self, taken: &BTreeSet<Cidr>) -> Option<Vec<Cidr>> {
        let free = |(range, mask): &(Cidr, u8)| {
            range.parts(*mask).find(|part| !taken.contains(part) && !taken.iter().any(|t| t.overlaps(part)))
        };
        self.0.iter().map(free).collect()
    }
}

/// A node without a range.
#[derive(Debug)]
pub struct View {
    /// The node.
    pub node: Arc<Node>,
    /// What it may have; `None` if nothing is left.
    pub offer: Option<Vec<Cidr>>,
}

/// What to do about it.
pub fn plan(view: &View) -> Plan {
    let mut plan = Plan::default();
    let node = view.node.as_ref();
    match &view.offer {
        Some(offer) => {
            let ranges: Vec<String> = offer.iter().map(Cidr::to_string).collect();
            let patch = json!({"spec": {"podCIDR": ranges[0], "podCIDRs": ranges}});
            plan.writes.push(Write::merge_patch(node, patch).tolerating(404));
        }
        None => {
            let name = node.metadata.name.clone().unwrap_or_default();
            let regarding = ObjectReference { resource_version: None, ..reference(node) };
            let message = format!("Node {name} status is now: CIDRNotAvailable");
            plan.tell(Note::normal(regarding, "CIDRNotAvailable", message));
        }
    }
    plan
}

struct Allocator {
    nodes: Cache<Node>,
    pools: Pools,
    offered: Mutex<BTreeMap<String, Vec<Cidr>>>,
}

/// Makes it. Without `--allocate-node-cidrs` or a range it does nothing.
pub fn start(context: &Context) -> Task {
    let config = &context.config;
    let pools = match config.cluster_cidr.as_deref().filter(|_| config.allocate_node_cidrs) {
        Some(cidr) => Pools::parse(cidr, config.node_cidr_mask_size),
        None => return Box::pin(async {}),
    };
    let pools = match pools {
        Ok(pools) => pools,
        Err(error) => {
            tracing::error!(error, "nodes get no ranges: see --cluster-cidr and --node-cidr-mask-size");
            return Box::pin(async {});
        }
    };
    let nodes: Cache<Node> = context.informers.cache();
    let allocator = Allocator { nodes: nodes.clone(), pools, offered: Mutex::default() };
    let others = nodes.clone();
    Driver::new(context, allocator)
        .watches(&nodes, move |change| match &change.new {
            Some(_) => vec![change.key()],
            // A range is free again: those who have none may get it.
            None => {
                let without = others.list().into_iter().filter(|node| ranges(node).is_empty());
                without.map(|node| Key::of(node.as_ref())).chain([change.key()]).collect()
            }
        })
        .workers(1)
        .task()
}

fn ranges(node: &Node) -> Vec<Cidr> {
    let spec = node.spec.as_ref();
    let several = spec.and_then(|spec| spec.pod_cidrs.as_deref()).unwrap_or_default();
    let single = spec.and_then(|spec| spec.pod_cidr.as_ref());
    several.iter().chain(single).filter_map(|text| text.parse().ok()).collect()
}

impl Controller for Allocator {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let mut offered = self.offered.lock();
        let Some(node) = self.nodes.get(key) else {
            offered.remove(&key.name);
            return Ok(None);
        };
        if !ranges(&node).is_empty() {
            offered.remove(&key.name);
            return Ok(None);
        }
        let offer = match offered.get(&key.name) {
            Some(offer) => Some(offer.clone()),
            None => {
                let mut taken: BTreeSet<Cidr> =
                    self.nodes.list().iter().flat_map(|node| ranges(node)).collect();
                taken.extend(offered.values().flatten());
                self.pools.free(&taken)
            }
        };
        if let Some(offer) = &offer {
            offered.insert(key.name.clone(), offer.clone());
        }
        Ok(Some(View { node, offer }))
    }

    fn plan(&self, view: &View, _now: Timestamp) -> Plan {
        plan(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(ranges: &[&str]) -> BTreeSet<Cidr> {
        ranges.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_lowest_free_range_is_given() {
        let cases = [
            ("10.244.0.0/16", None, vec![], Some("10.244.0.0/24")),
            ("10.244.0.0/16", None, vec!["10.244.0.0/24", "10.244.2.0/24"], Some("10.244.1.0/24")),
            ("10.244.0.0/16", Some(26), vec!["10.244.0.0/26"], Some("10.244.0.64/26")),
            ("10.244.0.0/16", None, vec!["10.244.0.0/23"], Some("10.244.2.0/24")),
            ("10.244.0.0/16", None, vec!["10.244.1.128/25"], Some("10.244.0.0/24")),
            ("10.0.0.0/23", None, vec!["10.0.0.0/24", "10.0.1.0/24"], None),
            ("10.0.0.0/24", None, vec![], Some("10.0.0.0/24")),
            ("10.0.0.0/24,fd00::/56", None, vec!["fd00::/64"], Some("10.0.0.0/24,fd00:0:0:1::/64")),
        ];
        for (cluster, mask, used, expected) in cases {
            let free = Pools::parse(cluster, mask).unwrap().free(&taken(&used));
            let text = free.map(|free| free.iter().map(Cidr::to_string).collect::<Vec<_>>().join(","));
            assert_eq!(text.as_deref(), expected, "{cluster} {mask:?} {used:?}");
        }
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused() {
        for (cluster, mask) in [
            ("10.0.0.0", None),
            ("10.0.0.0/33", None),
            ("10.0.0.0/25", None),
            ("x/8", None),
            ("10.0.0.0/8", Some(40)),
        ] {
            assert!(Pools::parse(cluster, mask).is_err(), "{cluster} {mask:?}");
        }
    }

    proptest! {
        #[test]
        fn no_two_nodes_overlap(mask in 20u8..28, used in proptest::collection::vec((0u32..0x10000, 17u8..30), 0..20)) {
            let pools = Pools::parse("10.1.0.0/16", Some(mask)).unwrap();
            let mut taken: BTreeSet<Cidr> = used
                .into_iter()
                .map(|(host, prefix)| format!("{}/{prefix}", Ipv4Addr::from(0x0a01_0000 + host)).parse().unwrap())
                .collect();
            for _ in 0..10 {
                let Some(free) = pools.free(&taken) else { break };
                for range in free {
                    prop_assert!(!taken.iter().any(|other| other.overlaps(&range)));
                    prop_assert!(range.to_string().parse() == Ok(range));
                    taken.insert(range);
                }
            }
        }
    }

    #[test]
    fn a_node_is_told_its_range_or_that_there_is_none() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1", "uid": "u"}})).unwrap();
        let node = Arc::new(node);
        let given = plan(&View { node: node.clone(), offer: Some(vec!["10.1.2.0/24".parse().unwrap()]) });
        assert_eq!(
            given.writes[0].body["spec"],
            json!({"podCIDR": "10.1.2.0/24", "podCIDRs": ["10.1.2.0/24"]})
        );
        let none = plan(&View { node, offer: None });
        assert_eq!(none.events[0].message, "Node n1 status is now: CIDRNotAvailable");
    }
}
