//! Addresses that this node answers for without a device of their own: the services'.
//!
//! A range is claimed by a route to the loopback, so that no packet for it ever leaves the node, and so that a node
//! without a default route can send to it: where it really goes is decided by the rules of pkg/proxy, after routing.

use crate::netlink::{Netlink, destination, failed, unless};
use crate::{Result, sysctl};
use ipnet::IpNet;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// By this the kernel, and whoever looks at its routes, knows which are ours: a number that nobody else has.
const OURS: RouteProtocol = RouteProtocol::Other(109);

/// Keeps packets for a range on this node; they are sent from `source`.
pub async fn claim_range(range: IpNet, source: IpAddr) -> Result<()> {
    let netlink = Netlink::open()?;
    let index = netlink.index_of("lo").await?.unwrap_or(1);
    let Some(route) = route(range, source, index) else { return Ok(()) };
    let claimed = netlink.handle.route().add(route).replace().execute().await;
    claimed.map_err(failed(format!("claim {range}")))
}

/// Gives back all ranges but these, whoever claimed them when, and the addresses in them.
pub async fn release_others(kept: &[IpNet]) -> Result<()> {
    let netlink = Netlink::open()?;
    let mut released = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        for route in netlink.routes(family).await? {
            let Some(range) = destination(&route) else { continue };
            if route.header.protocol == OURS && !kept.contains(&range) {
                let gone = netlink.handle.route().del(route).execute().await;
                unless(gone, libc::ESRCH).map_err(failed(format!("release {range}")))?;
                released.push(range);
            }
        }
    }
    let index = netlink.index_of("lo").await?.unwrap_or(1);
    for address in netlink.addresses(index).await? {
        let is_in = |ranges: &[IpNet]| ranges.iter().any(|range| range.contains(&address));
        if is_in(&released) && !is_in(kept) {
            netlink.delete_address(index, address).await?;
        }
    }
    Ok(())
}

/// Answers for one address. The node itself is known to others by another: translated packets must not take on this one.
pub async fn claim_address(address: IpAddr) -> Result<()> {
    let netlink = Netlink::open()?;
    let index = netlink.index_of("lo").await?.unwrap_or(1);
    netlink.add_own_address(index, IpNet::from(address)).await
}

/// The reverse.
pub async fn release_address(address: IpAddr) -> Result<()> {
    let netlink = Netlink::open()?;
    let index = netlink.index_of("lo").await?.unwrap_or(1);
    netlink.delete_address(index, IpNet::from(address)).await
}

/// Lets packets be forwarded, and, if asked for, lets what is sent to 127.0.0.1 be led elsewhere. Who opens that must
/// keep others away from 127.0.0.0/8.
pub fn allow_forwarding(from_localhost: bool) {
    sysctl::set("ipv4/ip_forward", "1");
    if from_localhost {
        sysctl::set("ipv4/conf/all/route_localnet", "1");
    }
}

/// `None` if the two are not of one family.
fn route(range: IpNet, source: IpAddr, index: u32) -> Option<RouteMessage> {
    match (range, source) {
        (IpNet::V4(range), IpAddr::V4(source)) => Some(
            RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(range.network(), range.prefix_len())
                .output_interface(index)
                .pref_source(source)
                .protocol(OURS)
                .build(),
        ),
        (IpNet::V6(range), IpAddr::V6(source)) => Some(
            RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(range.network(), range.prefix_len())
                .output_interface(index)
                .pref_source(source)
                .protocol(OURS)
                .build(),
        ),
        _ => None,
    }
}
