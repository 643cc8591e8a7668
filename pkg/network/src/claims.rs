//! Addresses that this node answers for without a device of their own: the services'.
//!
//! A range is claimed by a route to the loopback, so that no packet for it ever leaves the node, and so that a node
//! without a default route can send to it: where it really goes is decided by the rules of pkg/proxy, after routing.

use crate::netlink::{Netlink, failed, unless};
use crate::{Result, sysctl};
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
