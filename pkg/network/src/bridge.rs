//! The built-in network: a bridge, and for each pod a pair of devices with an address.
//!
//! ```text
//! pod: eth0 10.244.1.7/32, default via 10.244.1.1 ── veth1a2b… ── minik8s0 10.244.1.1/24 ── the node's routes
//! ```
//!
//! A pod's address is a /32, so that all that it sends goes through the node's own routing and packet filter, also to
//! a neighbour on the same bridge: services work without br_netfilter. MAC addresses are made from the addresses, so
//! that no neighbour entry is ever stale when an address is used again.

use crate::netlink::{Link, Netlink, mtu_towards};
use crate::records::{By, Record, gateway};
use crate::{Config, Error, Result, firewall, namespace, overlay, sysctl};
use ipnet::IpNet;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

/// Makes the bridge, with the gateways of the ranges, and what goes with it. `kept` are addresses still in use.
pub async fn prepare(config: &Config, ranges: &[IpNet], kept: &[IpAddr]) -> Result<()> {
    let netlink = Netlink::open()?;
    let mtu = pod_mtu(config).await?;
    let mac = mac_of(ranges.first().map_or(IpAddr::from([10, 88, 0, 1]), |range| gateway(*range)));
    netlink.add_bridge(&config.bridge, mac, mtu).await?;
    let bridge = find(&netlink, &config.bridge).await?;
    netlink.up(bridge.index).await?;
    let wanted: Vec<IpNet> = ranges
        .iter()
        .map(|range| IpNet::new(gateway(*range), range.prefix_len()).expect("the range's own length"))
        .collect();
    let present = netlink.addresses(bridge.index).await?;
    for address in &wanted {
        netlink.add_address(bridge.index, *address).await?;
    }
    for old in present.iter().filter(|old| !wanted.contains(old)) {
        // The node had another range before; its pods of then still need their gateway.
        if !kept.iter().any(|address| old.contains(address)) {
            netlink.delete_address(bridge.index, *old).await?;
        }
    }
    settings(&config.bridge, ranges);
    for range in ranges {
        let iptables = firewall::for_family(config, range.addr().is_ipv6());
        iptables.prepare(&config.bridge, overlay::DEVICE, *range).await?;
    }
    Ok(())
}

/// Whether the rules that pods of these ranges need are there.
pub async fn is_intact(config: &Config, ranges: &[IpNet]) -> Result<bool> {
    for range in ranges {
        let iptables = firewall::for_family(config, range.addr().is_ipv6());
        if !iptables.is_prepared(&config.bridge, overlay::DEVICE, *range).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn settings(bridge: &str, ranges: &[IpNet]) {
    sysctl::set("ipv4/ip_forward", "1");
    // Host ports are reached through 127.0.0.1 too.
    sysctl::set(&format!("ipv4/conf/{bridge}/route_localnet"), "1");
    sysctl::set(&format!("ipv4/conf/{bridge}/send_redirects"), "0");
    sysctl::set("ipv4/conf/all/send_redirects", "0");
    // Answers within the bridge, if pods of an older range talk directly.
    sysctl::set_if_present("bridge/bridge-nf-call-iptables", "1");
    if ranges.iter().any(|range| range.addr().is_ipv6()) {
        sysctl::keep_listening_to_routers();
        sysctl::set("ipv6/conf/all/forwarding", "1");
        sysctl::set_if_present("bridge/bridge-nf-call-ip6tables", "1");
    }
}

/// Makes, or completes, what the record says.
pub async fn attach(config: &Config, ranges: &[IpNet], record: &Record) -> Result<()> {
    let By::Bridge { veth, addresses } = &record.by else { return Ok(()) };
    namespace::create(&record.netns).await?;
    let netlink = Netlink::open()?;
    let bridge = match netlink.link(&config.bridge).await? {
        Some(bridge) => bridge,
        None => {
            prepare(config, ranges, addresses).await?;
            find(&netlink, &config.bridge).await?
        }
    };
    let complete = namespace::inside(&record.netns, || async {
        Ok(Netlink::open()?.link("eth0").await?.is_some_and(|link| link.up))
    });
    let here = netlink.link(veth).await?;
    if !complete.await? || here.is_none() {
        netlink.delete_link(veth).await?;
        let first = addresses.first().copied().unwrap_or(IpAddr::from([0, 0, 0, 0]));
        let file =
            File::open(&record.netns).map_err(Error::io(format!("open {}", record.netns.display())))?;
        netlink.add_veth(veth, file.as_raw_fd(), mac_of(first), bridge.mtu).await?;
    }
    let here = find(&netlink, veth).await?;
    netlink.enslave(here.index, bridge.index).await?;
    let addresses_inside = addresses.clone();
    let gateways: Vec<IpAddr> =
        addresses.iter().filter_map(|address| gateway_for(*address, ranges)).collect();
    namespace::inside(&record.netns, move || inside(addresses_inside, gateways)).await?;
    open_ports(config, record).await
}

/// Leads host ports to the pod.
pub async fn open_ports(config: &Config, record: &Record) -> Result<()> {
    let By::Bridge { addresses, .. } = &record.by else { return Ok(()) };
    for address in addresses {
        let iptables = firewall::for_family(config, address.is_ipv6());
        iptables.open_ports(&record.pod, *address, &record.host_ports).await?;
    }
    Ok(())
}

/// The reverse.
pub async fn close_ports(config: &Config, record: &Record) -> Result<()> {
    let By::Bridge { addresses, .. } = &record.by else { return Ok(()) };
    for address in addresses.iter().filter(|_| !record.host_ports.is_empty()) {
        let iptables = firewall::for_family(config, address.is_ipv6());
        iptables.close_ports(&record.pod, *address, &record.host_ports).await?;
    }
    Ok(())
}

/// What is done in the pod's namespace. The device comes up last: up means complete.
async fn inside(addresses: Vec<IpAddr>, gateways: Vec<IpAddr>) -> Result<()> {
    let netlink = Netlink::open()?;
    let eth0 = find(&netlink, "eth0").await?;
    // The gateway is the only way, whatever a router in between suggests.
    sysctl::set_if_present("ipv4/conf/all/accept_redirects", "0");
    sysctl::set_if_present("ipv4/conf/eth0/accept_redirects", "0");
    if addresses.iter().any(IpAddr::is_ipv6) {
        sysctl::set_if_present("ipv6/conf/eth0/accept_ra", "0");
        sysctl::set_if_present("ipv6/conf/eth0/disable_ipv6", "0");
    }
    for address in addresses {
        netlink.add_address(eth0.index, IpNet::from(address)).await?;
    }
    netlink.up(eth0.index).await?;
    for gateway in gateways {
        netlink.add_default_route(eth0.index, gateway).await?;
    }
    Ok(())
}

/// Devices that are to go, collected while others go.
#[derive(Default)]
pub struct Removals {
    waiting: Mutex<Vec<String>>,
    turn: tokio::sync::Mutex<()>,
}

impl Removals {
    /// Removes a device, together with all that wait by then.
    async fn remove(&self, name: &str) -> Result<()> {
        let waiting = || self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting().push(name.to_owned());
        let turn = self.turn.lock().await;
        let names = std::mem::take(&mut *waiting());
        let is_among = names.iter().any(|other| other == name);
        // The kernel does not return before they are gone: nobody else should have to wait for that thread.
        namespace::apart(move || async move { Netlink::open()?.delete_links(&names).await }).await?;
        drop(turn);
        // Whoever had the turn before has removed it, or could not.
        if is_among { Ok(()) } else { Netlink::open()?.delete_link(name).await }
    }
}

/// Removes what the record says, so far as it is there.
pub async fn detach(config: &Config, record: &Record, removals: &Removals) -> Result<()> {
    let By::Bridge { veth, .. } = &record.by else { return Ok(()) };
    close_ports(config, record).await?;
    // The namespace may live on in a process; its device must not, since its address will be another pod's.
    removals.remove(veth).await?;
    namespace::remove(&record.netns)
}

/// Removes what all pods shared.
pub async fn cleanup(config: &Config) -> Result<()> {
    Netlink::open()?.delete_link(&config.bridge).await?;
    for ipv6 in [false, true] {
        firewall::for_family(config, ipv6).cleanup().await?;
    }
    Ok(())
}

/// The device of a pod on the node's side; at most 15 bytes, and the same for the same pod.
pub fn veth_name(uid: &str) -> String {
    // FNV-1a: all that is needed is that two pods of one node differ.
    let hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("veth{:011x}", hash >> 20)
}

async fn pod_mtu(config: &Config) -> Result<u32> {
    match config.mtu {
        Some(mtu) => Ok(mtu),
        None => Ok(mtu_towards(None).await?.saturating_sub(overlay::OVERHEAD)),
    }
}

async fn find(netlink: &Netlink, name: &str) -> Result<Link> {
    let missing = || Error::Io {
        what: format!("look for device {name}"),
        source: std::io::Error::from(std::io::ErrorKind::NotFound),
    };
    netlink.link(name).await?.ok_or_else(missing)
}

/// The gateway of the range that an address is of; of a range that the node had before, the first of the same size.
fn gateway_for(address: IpAddr, ranges: &[IpNet]) -> Option<IpAddr> {
    let same_family = |range: &&IpNet| range.addr().is_ipv6() == address.is_ipv6();
    let range = ranges.iter().find(|range| range.contains(&address));
    if let Some(range) = range {
        return Some(gateway(*range));
    }
    let length = ranges.iter().find(same_family)?.prefix_len();
    Some(gateway(IpNet::new(address, length).ok()?.trunc()))
}

/// A MAC address of our own making: locally administered, then the address.
pub fn mac_of(address: IpAddr) -> [u8; 6] {
    let tail = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let octets = address.octets();
            [octets[12], octets[13], octets[14], octets[15]]
        }
    };
    [0x0a, 0x58, tail[0], tail[1], tail[2], tail[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_fit_the_kernel_and_differ() {
        let names: std::collections::BTreeSet<String> =
            (0..10_000).map(|n| veth_name(&format!("6f1c1a52-0000-4000-8000-{n:012}"))).collect();
        assert_eq!(names.len(), 10_000);
        assert!(names.iter().all(|name| name.len() == 15));
    }

    #[test]
    fn the_gateway_of_a_former_range() {
        let ranges: Vec<IpNet> = vec!["10.244.1.0/24".parse().unwrap()];
        let check = |address: &str, expected: &str| {
            let expected: IpAddr = expected.parse().unwrap();
            assert_eq!(gateway_for(address.parse().unwrap(), &ranges), Some(expected));
        };
        check("10.244.1.9", "10.244.1.1");
        check("10.244.7.9", "10.244.7.1");
        assert_eq!(gateway_for("fd00::1".parse().unwrap(), &ranges), None);
    }
}
