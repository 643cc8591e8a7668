//! Addresses that this node answers for without a device of their own: the services'.
//!
//! A range is claimed by a route to the loopback, so that no packet for it ever leaves the node, and so that a node
//! without a default route can send to it: where it really goes is decided by the rules of pkg/proxy, after routing.

use crate::Result;
use crate::netlink::{Netlink, failed, unless};
use ipnet::IpNet;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::route::RouteMessage;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Keeps packets for a range on this node; they are sent from `source`.
pub async fn claim_range(range: IpNet, source: IpAddr) -> Result<()> {
    let netlink = Netlink::open()?;
    let index = netlink.index_of("lo").await?.unwrap_or(1);
    let Some(route) = route(range, Some(source), index) else { return Ok(()) };
    let claimed = netlink.handle.route().add(route).replace().execute().await;
    claimed.map_err(failed(format!("claim {range}")))
}

/// The reverse.
pub async fn release_range(range: IpNet) -> Result<()> {
    let netlink = Netlink::open()?;
    let index = netlink.index_of("lo").await?.unwrap_or(1);
    let Some(route) = route(range, None, index) else { return Ok(()) };
    let released = netlink.handle.route().del(route).execute().await;
    unless(released, libc::ESRCH).map_err(failed(format!("release {range}")))
}

/// Answers for one address.
pub async fn claim_address(address: IpAddr) -> Result<()> {
    let netlink = Netlink::open()?;
    let index = netlink.index_of("lo").await?.unwrap_or(1);
    netlink.add_address(index, IpNet::from(address)).await
}

/// The reverse.
pub async fn release_address(address: IpAddr) -> Result<()> {
    let netlink = Netlink::open()?;
    let index = netlink.index_of("lo").await?.unwrap_or(1);
    netlink.delete_address(index, IpNet::from(address)).await
}

/// The addresses of this node that others could know, by device; not those of pods' devices or loopbacks.
pub async fn node_addresses() -> Result<Vec<(String, IpAddr)>> {
    let netlink = Netlink::open()?;
    let mut found = Vec::new();
    for link in netlink.links().await? {
        if !link.loopback && link.up {
            let addresses = netlink.addresses(link.index).await?;
            found.extend(addresses.into_iter().map(|address| (link.name.clone(), address.addr())));
        }
    }
    Ok(found)
}

/// `None` if the two are not of one family.
fn route(range: IpNet, source: Option<IpAddr>, index: u32) -> Option<RouteMessage> {
    match range {
        IpNet::V4(range) => {
            let mut builder = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(range.network(), range.prefix_len())
                .output_interface(index);
            match source {
                Some(IpAddr::V4(source)) => builder = builder.pref_source(source),
                Some(IpAddr::V6(_)) => return None,
                None => {}
            }
            Some(builder.build())
        }
        IpNet::V6(range) => {
            let mut builder = RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(range.network(), range.prefix_len())
                .output_interface(index);
            match source {
                Some(IpAddr::V6(source)) => builder = builder.pref_source(source),
                Some(IpAddr::V4(_)) => return None,
                None => {}
            }
            Some(builder.build())
        }
    }
}
