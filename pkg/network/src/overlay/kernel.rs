//! The device as it is, and the changes carried out.

use super::plan::{Action, Kernel, Local, Peer, Route, plan};
use super::{DEVICE, OVERHEAD, PORT, VNI};
use crate::netlink::{Netlink, destination, failed, unless};
use crate::{Result, mtu_towards, sysctl};
use futures::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::link::{InfoData, InfoVxlan, LinkAttribute, LinkInfo};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol};
use rtnetlink::{LinkUnspec, LinkVxlan, RouteMessageBuilder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Brings the device into step with the nodes. Says how much had to be changed.
pub async fn sync(local: &Local, peers: &[Peer]) -> Result<usize> {
    let netlink = Netlink::open()?;
    let index = device(&netlink, local).await?;
    let kernel = look(&netlink, index).await?;
    let actions = plan(local, peers, &kernel);
    for action in &actions {
        carry_out(&netlink, index, action).await?;
    }
    Ok(actions.len())
}

/// Removes the device, and with it all that goes through it.
pub async fn remove() -> Result<()> {
    Netlink::open()?.delete_link(DEVICE).await
}

/// The device, made anew if it is another than it should be.
async fn device(netlink: &Netlink, local: &Local) -> Result<u32> {
    let mtu = mtu_towards(Some(IpAddr::V4(local.public_ip))).await?.saturating_sub(OVERHEAD);
    if let Some(link) = netlink.link(DEVICE).await? {
        if link.mac == local.mac() && local_of(netlink).await? == Some(local.public_ip) {
            if link.mtu != mtu {
                let message = LinkUnspec::new_with_index(link.index).mtu(mtu).build();
                netlink.set(message, "change the MTU of the overlay").await?;
            }
            netlink.up(link.index).await?;
            addresses(netlink, link.index, local).await?;
            return Ok(link.index);
        }
        netlink.delete_link(DEVICE).await?;
    }
    let message = LinkVxlan::new(DEVICE, VNI)
        .local(local.public_ip)
        .port(PORT)
        .learning(false)
        .address(local.mac().to_vec())
        .mtu(mtu)
        .up()
        .build();
    netlink.handle.link().add(message).execute().await.map_err(failed(format!("add {DEVICE}")))?;
    sysctl::set_if_present(&format!("ipv6/conf/{DEVICE}/accept_ra"), "0");
    sysctl::set("ipv4/ip_forward", "1");
    let index = netlink.index_of(DEVICE).await?.unwrap_or_default();
    addresses(netlink, index, local).await?;
    Ok(index)
}

async fn addresses(netlink: &Netlink, index: u32, local: &Local) -> Result<()> {
    let wanted: Vec<IpNet> = local.vteps().map(IpNet::from).collect();
    for other in netlink.addresses(index).await? {
        if !wanted.contains(&other) {
            netlink.delete_address(index, other).await?;
        }
    }
    for address in wanted {
        netlink.add_address(index, address).await?;
    }
    Ok(())
}

/// The address that the device sends from.
async fn local_of(netlink: &Netlink) -> Result<Option<Ipv4Addr>> {
    let mut links = netlink.handle.link().get().match_name(DEVICE).execute();
    let Some(link) = links.try_next().await.map_err(failed(format!("look at {DEVICE}")))? else {
        return Ok(None);
    };
    for attribute in link.attributes {
        let LinkAttribute::LinkInfo(infos) = attribute else { continue };
        for info in infos {
            let LinkInfo::Data(InfoData::Vxlan(data)) = info else { continue };
            let right = data.contains(&InfoVxlan::Id(VNI)) && data.contains(&InfoVxlan::Port(PORT));
            return Ok(data.iter().find_map(|info| match info {
                InfoVxlan::Local(address) if right => Some(*address),
                _ => None,
            }));
        }
    }
    Ok(None)
}

async fn look(netlink: &Netlink, index: u32) -> Result<Kernel> {
    let mut kernel = Kernel::default();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        for message in neighbours(netlink, family, index).await? {
            // What the kernel found out by itself comes and goes by itself.
            if message.header.state == NeighbourState::Permanent
                && let (Some(address), Some(mac)) = (address_in(&message), mac_in(&message))
            {
                kernel.neighbours.insert(address, mac);
            }
        }
        let routes = netlink.routes(family).await?;
        kernel.routes.extend(routes.iter().filter_map(|message| route_through(message, index)));
    }
    for message in neighbours(netlink, AddressFamily::Bridge, index).await? {
        if let (Some(IpAddr::V4(address)), Some(mac)) = (address_in(&message), mac_in(&message)) {
            kernel.fdb.insert((mac, address));
        }
    }
    Ok(kernel)
}

/// A route of the main table through a device, but for those that the kernel makes for the device's own addresses.
fn route_through(route: &RouteMessage, index: u32) -> Option<Route> {
    let here = route.attributes.contains(&RouteAttribute::Oif(index));
    if !here || route.header.table != libc::RT_TABLE_MAIN || route.header.protocol == RouteProtocol::Kernel {
        return None;
    }
    let via = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => Some(IpAddr::V4(*gateway)),
        RouteAttribute::Gateway(RouteAddress::Inet6(gateway)) => Some(IpAddr::V6(*gateway)),
        _ => None,
    });
    Some(Route { to: destination(route)?, via })
}

async fn neighbours(netlink: &Netlink, family: AddressFamily, index: u32) -> Result<Vec<NeighbourMessage>> {
    let request = netlink.handle.neighbours().get().set_address_family(family);
    let all: Vec<NeighbourMessage> =
        request.execute().try_collect().await.map_err(failed("list neighbours"))?;
    Ok(all.into_iter().filter(|message| message.header.ifindex == index).collect())
}

fn mac_in(message: &NeighbourMessage) -> Option<[u8; 6]> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(mac) => mac.as_slice().try_into().ok(),
        _ => None,
    })
}

fn address_in(message: &NeighbourMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(IpAddr::V4(*address)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
        // In forwarding entries the family is that of the bridge, so the bytes are not understood.
        NeighbourAttribute::Destination(NeighbourAddress::Other(bytes)) => {
            <[u8; 4]>::try_from(bytes.as_slice()).ok().map(IpAddr::from)
        }
        _ => None,
    })
}

async fn carry_out(netlink: &Netlink, index: u32, action: &Action) -> Result<()> {
    let what = format!("{DEVICE}: {action:?}");
    let table = netlink.handle.neighbours();
    match action {
        Action::SetNeighbour(address, mac) => {
            let request = table.add(index, *address).link_layer_address(mac);
            request.replace().execute().await.map_err(failed(what))
        }
        Action::DeleteNeighbour(address) => {
            let message = table.add(index, *address).message_mut().clone();
            unless(table.del(message).execute().await, libc::ENOENT).map_err(failed(what))
        }
        Action::AddFdb(mac, to) => {
            let request =
                table.add_bridge(index, mac).flags(NeighbourFlags::Own).destination(IpAddr::V4(*to));
            request.replace().execute().await.map_err(failed(what))
        }
        Action::DeleteFdb(mac, to) => {
            let mut request =
                table.add_bridge(index, mac).flags(NeighbourFlags::Own).destination(IpAddr::V4(*to));
            let message = request.message_mut().clone();
            unless(table.del(message).execute().await, libc::ENOENT).map_err(failed(what))
        }
        Action::SetRoute(route) => {
            let message = message_of(route, index);
            netlink.handle.route().add(message).replace().execute().await.map_err(failed(what))
        }
        Action::DeleteRoute(route) => {
            let message = message_of(&Route { via: None, ..*route }, index);
            unless(netlink.handle.route().del(message).execute().await, libc::ESRCH).map_err(failed(what))
        }
    }
}

fn message_of(route: &Route, index: u32) -> RouteMessage {
    match (route.to, route.via) {
        (IpNet::V4(to), via) => {
            let builder = RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(to.network(), to.prefix_len())
                .output_interface(index);
            match via {
                Some(IpAddr::V4(via)) => builder.onlink().gateway(via).build(),
                _ => builder.build(),
            }
        }
        (IpNet::V6(to), via) => {
            let builder = RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(to.network(), to.prefix_len())
                .output_interface(index);
            match via {
                Some(IpAddr::V6(via)) => builder.onlink().gateway(via).build(),
                _ => builder.build(),
            }
        }
    }
}
