//! What must change in the kernel so that it has exactly the neighbours and routes that the nodes need.

use super::{BACKEND_DATA, BACKEND_TYPE, MANAGED, PUBLIC_IP};
use crate::bridge::mac_of;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// A MAC address.
pub type Mac = [u8; 6];

/// Another node, as others reach it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// The node's own address.
    pub public_ip: Ipv4Addr,
    /// The MAC address of its device.
    pub mac: Mac,
    /// Its pods.
    pub range: Ipv4Net,
    /// Its pods' other addresses, where pods have two.
    pub range_v6: Option<Ipv6Net>,
}

/// This node's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// The node's own address; what is sent to others is sent from it.
    pub public_ip: Ipv4Addr,
    /// Its pods.
    pub range: Ipv4Net,
    /// Its pods' other addresses, where pods have two.
    pub range_v6: Option<Ipv6Net>,
}

/// A route through the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Where to.
    pub to: IpNet,
    /// Through whom; none if it is somebody else's idea of a route.
    pub via: Option<IpAddr>,
}

/// The device as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Neighbours: address to MAC.
    pub neighbours: BTreeMap<IpAddr, Mac>,
    /// Forwarding: MAC to the node's address.
    pub fdb: BTreeSet<(Mac, Ipv4Addr)>,
    /// Routes that leave through it.
    pub routes: BTreeSet<Route>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A neighbour that is missing, or has another MAC.
    SetNeighbour(IpAddr, Mac),
    /// A neighbour nobody needs.
    DeleteNeighbour(IpAddr),
    /// A way to a MAC.
    AddFdb(Mac, Ipv4Addr),
    /// A way that leads to the wrong node, or to none.
    DeleteFdb(Mac, Ipv4Addr),
    /// A route that is missing, or goes elsewhere.
    SetRoute(Route),
    /// A route nobody needs.
    DeleteRoute(Route),
}

/// What to do, in this order: a route never leads to a neighbour that is not there yet, and neighbours go after their
/// routes.
pub fn plan(local: &Local, peers: &[Peer], kernel: &Kernel) -> Vec<Action> {
    let peers: Vec<&Peer> = peers.iter().filter(|peer| usable(local, peer)).collect();
    let peers = with_macs_of_their_own(local, peers);
    let ranges =
        || peers.iter().flat_map(|peer| ranges(peer.range, peer.range_v6).map(|range| (range, peer.mac)));
    let neighbours: BTreeMap<IpAddr, Mac> = ranges().map(|(range, mac)| (range.network(), mac)).collect();
    let fdb: BTreeSet<(Mac, Ipv4Addr)> = peers.iter().map(|peer| (peer.mac, peer.public_ip)).collect();
    let routes: BTreeSet<Route> = ranges().map(|(to, _)| Route { to, via: Some(to.network()) }).collect();

    let mut actions = Vec::new();
    let kept: BTreeSet<IpNet> = routes.iter().map(|route| route.to).collect();
    for route in kernel.routes.difference(&routes) {
        // A wrong route to a range that stays is replaced, below, without a moment in which there is none.
        if !kept.contains(&route.to) {
            actions.push(Action::DeleteRoute(*route));
        }
    }
    // One MAC has one way: the old one goes first, since the kernel would otherwise send to both.
    for (mac, to) in kernel.fdb.difference(&fdb) {
        actions.push(Action::DeleteFdb(*mac, *to));
    }
    for (mac, to) in fdb.difference(&kernel.fdb) {
        actions.push(Action::AddFdb(*mac, *to));
    }
    for (address, mac) in &neighbours {
        if kernel.neighbours.get(address) != Some(mac) {
            actions.push(Action::SetNeighbour(*address, *mac));
        }
    }
    for route in routes.difference(&kernel.routes) {
        actions.push(Action::SetRoute(*route));
    }
    for address in kernel.neighbours.keys().filter(|address| !neighbours.contains_key(address)) {
        actions.push(Action::DeleteNeighbour(*address));
    }
    actions
}

/// Two nodes never share a range for long: the controller sees to that. While they do, the local one wins.
fn usable(local: &Local, peer: &Peer) -> bool {
    let overlap = |one: IpNet, other: IpNet| one.contains(&other.network()) || other.contains(&one.network());
    let taken = ranges(peer.range, peer.range_v6).any(|range| local.ranges().any(|own| overlap(range, own)));
    peer.public_ip != local.public_ip && !taken
}

/// What is sent to one MAC goes to every node that has it. One that follows from a range is that node's; another is the
/// first one's that says so.
fn with_macs_of_their_own<'a>(local: &Local, peers: Vec<&'a Peer>) -> Vec<&'a Peer> {
    let follows = |peer: &Peer| mac_of(IpAddr::V4(peer.range.network()));
    let mut taken: BTreeSet<Mac> = peers.iter().map(|peer| follows(peer)).chain([local.mac()]).collect();
    peers.into_iter().filter(|peer| peer.mac == follows(peer) || taken.insert(peer.mac)).collect()
}

/// The ranges of a node; the first address of each is that of its device.
fn ranges(range: Ipv4Net, range_v6: Option<Ipv6Net>) -> impl Iterator<Item = IpNet> {
    [IpNet::V4(range)].into_iter().chain(range_v6.map(IpNet::V6))
}

impl Local {
    /// A node as its object describes it: the first address and the first range of each family. `None` until it has both
    /// an address and a range.
    pub fn of_node(internal_ips: &[IpAddr], pod_ranges: &[IpNet]) -> Option<Local> {
        let public_ip = internal_ips.iter().find_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        })?;
        let range = pod_ranges.iter().find_map(|range| match range {
            IpNet::V4(range) => Some(range.trunc()),
            IpNet::V6(_) => None,
        })?;
        let range_v6 = pod_ranges.iter().find_map(|range| match range {
            IpNet::V6(range) => Some(range.trunc()),
            IpNet::V4(_) => None,
        });
        Some(Local { public_ip, range, range_v6 })
    }

    /// Its pods' ranges.
    fn ranges(&self) -> impl Iterator<Item = IpNet> + use<> {
        ranges(self.range, self.range_v6)
    }

    /// The device's addresses.
    pub fn vteps(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.ranges().map(|range| range.network())
    }

    /// The device's MAC address.
    pub fn mac(&self) -> Mac {
        mac_of(IpAddr::V4(self.range.network()))
    }

    /// What the Node says about it, for nodes that run flannel.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        let mac: Vec<String> = self.mac().iter().map(|byte| format!("{byte:02x}")).collect();
        let data = format!("{{\"VNI\":{},\"VtepMAC\":\"{}\"}}", super::VNI, mac.join(":"));
        [
            (BACKEND_DATA, data),
            (BACKEND_TYPE, "vxlan".to_owned()),
            (MANAGED, "true".to_owned()),
            (PUBLIC_IP, self.public_ip.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

impl Peer {
    /// A node as its object describes it. `None` until it has both an address and a range.
    pub fn of_node(
        annotations: Option<&BTreeMap<String, String>>,
        internal_ips: &[IpAddr],
        pod_ranges: &[IpNet],
    ) -> Option<Peer> {
        let annotation = |name: &str| annotations.and_then(|annotations| annotations.get(name));
        let Local { public_ip, range, range_v6 } = Local::of_node(internal_ips, pod_ranges)?;
        let public_ip = annotation(PUBLIC_IP).and_then(|text| text.parse().ok()).unwrap_or(public_ip);
        let mac = annotation(BACKEND_DATA).and_then(|text| mac_in(text));
        Some(Peer {
            public_ip,
            mac: mac.unwrap_or_else(|| mac_of(IpAddr::V4(range.network()))),
            range,
            range_v6,
        })
    }
}

fn mac_in(backend_data: &str) -> Option<Mac> {
    let data: serde_json::Value = serde_json::from_str(backend_data).ok()?;
    let parts: Option<Vec<u8>> =
        data["VtepMAC"].as_str()?.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    parts?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn peer(n: u8) -> Peer {
        let ranges = [IpNet::new([10, 244, n, 0].into(), 24).unwrap()];
        let addresses = [[192, 168, 1, n].into()];
        let node = Local::of_node(&addresses, &ranges).unwrap();
        Peer::of_node(Some(&node.annotations()), &addresses, &ranges).unwrap()
    }

    /// Every other node's pods have two addresses.
    fn with_two(peer: Peer) -> Peer {
        let n = peer.range.network().octets()[2];
        let range_v6 = n.is_multiple_of(2).then(|| format!("fd00:10:244:{n:x}::/64").parse().unwrap());
        Peer { range_v6, ..peer }
    }

    fn local() -> Local {
        let ranges = ["10.244.100.0/24", "fd00:10:244:64::/64"].map(|range| range.parse().unwrap());
        Local::of_node(&[[192, 168, 1, 100].into()], &ranges).unwrap()
    }

    /// What the kernel would make of it.
    fn carry_out(mut kernel: Kernel, actions: &[Action]) -> Kernel {
        for action in actions {
            match action {
                Action::SetNeighbour(address, mac) => {
                    kernel.neighbours.insert(*address, *mac);
                }
                Action::DeleteNeighbour(address) => assert!(kernel.neighbours.remove(address).is_some()),
                Action::AddFdb(mac, to) => assert!(kernel.fdb.insert((*mac, *to))),
                Action::DeleteFdb(mac, to) => assert!(kernel.fdb.remove(&(*mac, *to))),
                Action::SetRoute(route) => {
                    kernel.routes.retain(|other| other.to != route.to);
                    let via = route.via.expect("our routes have a gateway");
                    assert!(kernel.neighbours.contains_key(&via), "no neighbour yet for {route:?}");
                    kernel.routes.insert(*route);
                }
                Action::DeleteRoute(route) => assert!(kernel.routes.remove(route)),
            }
        }
        kernel
    }

    #[test]
    fn a_first_peer_and_its_new_address() {
        let actions = plan(&local(), &[peer(1)], &Kernel::default());
        let vtep: IpAddr = [10, 244, 1, 0].into();
        let mac = [0x0a, 0x58, 10, 244, 1, 0];
        let route = Route { to: "10.244.1.0/24".parse().unwrap(), via: Some(vtep) };
        assert_eq!(
            actions,
            [
                Action::AddFdb(mac, [192, 168, 1, 1].into()),
                Action::SetNeighbour(vtep, mac),
                Action::SetRoute(route)
            ]
        );
        let kernel = carry_out(Kernel::default(), &actions);
        let moved = Peer { public_ip: [192, 168, 1, 77].into(), ..peer(1) };
        assert_eq!(
            plan(&local(), &[moved], &kernel),
            [Action::DeleteFdb(mac, [192, 168, 1, 1].into()), Action::AddFdb(mac, [192, 168, 1, 77].into())]
        );
        assert_eq!(
            plan(&local(), &[], &kernel),
            [
                Action::DeleteRoute(route),
                Action::DeleteFdb(mac, [192, 168, 1, 1].into()),
                Action::DeleteNeighbour(vtep)
            ]
        );
    }

    #[test]
    fn the_local_range_is_never_sent_away() {
        let itself = Peer { public_ip: local().public_ip, ..peer(3) };
        let thief = Peer { range: local().range, ..peer(4) };
        let other = Peer { range_v6: local().range_v6, ..peer(5) };
        assert_eq!(plan(&local(), &[itself, thief, other], &Kernel::default()), []);
    }

    #[test]
    fn nobody_gets_a_copy_of_what_is_sent_to_another() {
        let fdb = |peers: &[Peer]| -> Vec<Ipv4Addr> {
            let ways =
                plan(&local(), peers, &Kernel::default()).into_iter().filter_map(|action| match action {
                    Action::AddFdb(_, to) => Some(to),
                    _ => None,
                });
            ways.collect()
        };
        let [one, two] = [peer(1), peer(2)];
        let like = |mac: Mac| Peer { mac, ..peer(3) };
        // An older one, too.
        assert_eq!(fdb(&[like(two.mac), one.clone(), two.clone()]), [one.public_ip, two.public_ip]);
        assert_eq!(fdb(&[like(local().mac())]), [] as [Ipv4Addr; 0]);
        let flannel = Peer { mac: [2; 6], ..one.clone() };
        assert_eq!(fdb(&[flannel.clone(), like([2; 6])]), [one.public_ip]);
        assert_eq!(fdb(&[flannel, like([4; 6])]).len(), 2);
    }

    #[test]
    fn what_a_node_says() {
        let address: [IpAddr; 1] = [[192, 168, 1, 9].into()];
        let range: [IpNet; 1] = ["10.244.9.0/24".parse().unwrap()];
        let bare = Peer::of_node(None, &address, &range).unwrap();
        assert_eq!(bare, peer(9));
        assert_eq!(Peer::of_node(None, &[], &range), None);
        assert_eq!(Peer::of_node(None, &address, &[]), None);
        let flannel = BTreeMap::from([
            (BACKEND_DATA.to_owned(), r#"{"VNI":1,"VtepMAC":"aa:bb:cc:dd:ee:ff"}"#.to_owned()),
            (PUBLIC_IP.to_owned(), "172.16.0.1".to_owned()),
        ]);
        let peer = Peer::of_node(Some(&flannel), &address, &range).unwrap();
        assert_eq!(
            (peer.mac, peer.public_ip),
            ([0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff], [172, 16, 0, 1].into())
        );
    }

    proptest! {
        /// From any state to any other, and then there is nothing more to do.
        #[test]
        fn every_state_is_reached(
            before in proptest::collection::btree_set(0u8..40, 0..20),
            after in proptest::collection::btree_set(0u8..40, 0..20),
            moved in 0u8..40,
        ) {
            let before: Vec<Peer> = before.into_iter().map(peer).collect();
            let mut after: Vec<Peer> = after.into_iter().map(peer).map(with_two).collect();
            for peer in after.iter_mut().filter(|peer| peer.range.network().octets()[2] == moved) {
                peer.public_ip = [192, 168, 2, moved].into();
                peer.mac = [2, 2, 2, 2, 2, moved];
            }
            let kernel = carry_out(Kernel::default(), &plan(&local(), &before, &Kernel::default()));
            let kernel = carry_out(kernel.clone(), &plan(&local(), &after, &kernel));
            prop_assert_eq!(plan(&local(), &after, &kernel), vec![]);
            let two = after.iter().filter(|peer| peer.range_v6.is_some()).count();
            prop_assert_eq!(kernel.routes.len(), after.len() + two);
            prop_assert_eq!(kernel.fdb.len(), after.len());
        }
    }
}
