//! What is asked of the kernel over netlink, in this crate's words.
//!
//! Everything that makes something is content if it is there already, and everything that removes something if it is
//! not.

use crate::{Error, Result};
use futures::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressScope};
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteScope};
use rtnetlink::{Handle, LinkBridge, LinkBridgePort, LinkUnspec, LinkVeth, RouteMessageBuilder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;
use tokio::task::JoinHandle;

/// The group of devices that are about to be deleted: a number that nobody else has for anything.
const GOING: u32 = 0x6d6b_3873;

/// A device, as far as we care.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub mac: Vec<u8>,
    pub mtu: u32,
    pub controller: Option<u32>,
    pub loopback: bool,
    pub up: bool,
}

/// A connection to the kernel, about the network namespace of the thread that opened it.
pub struct Netlink {
    pub handle: Handle,
    driver: JoinHandle<()>,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Netlink {
    pub fn open() -> Result<Netlink> {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(Error::io("open a netlink socket"))?;
        Ok(Netlink { handle, driver: tokio::spawn(connection) })
    }

    /// The device with this name.
    pub async fn link(&self, name: &str) -> Result<Option<Link>> {
        let mut links = self.handle.link().get().match_name(name).execute();
        match links.try_next().await {
            Ok(link) => Ok(link.map(|link| describe(&link))),
            Err(error) if is(&error, libc::ENODEV) => Ok(None),
            Err(source) => Err(Error::Netlink { what: format!("look for device {name}"), source }),
        }
    }

    pub async fn index_of(&self, name: &str) -> Result<Option<u32>> {
        Ok(self.link(name).await?.map(|link| link.index))
    }

    /// All devices.
    pub async fn links(&self) -> Result<Vec<Link>> {
        let links: Vec<LinkMessage> =
            self.handle.link().get().execute().try_collect().await.map_err(failed("list devices"))?;
        Ok(links.iter().map(describe).collect())
    }

    pub async fn up(&self, index: u32) -> Result<()> {
        let message = LinkUnspec::new_with_index(index).up().build();
        self.set(message, "bring a device up").await
    }

    pub async fn set(&self, message: LinkMessage, what: &str) -> Result<()> {
        self.handle.link().set(message).execute().await.map_err(failed(what))
    }

    /// A bridge with a MAC address that does not change as devices come and go.
    pub async fn add_bridge(&self, name: &str, mac: [u8; 6], mtu: u32) -> Result<()> {
        let message = LinkBridge::new(name).address(mac.to_vec()).mtu(mtu).build();
        let made = self.handle.link().add(message).execute().await;
        unless(made, libc::EEXIST).map_err(failed(format!("add bridge {name}")))
    }

    /// A pair of devices: `name` here, `eth0` with `mac` in the namespace.
    pub async fn add_veth(&self, name: &str, netns: RawFd, mac: [u8; 6], mtu: u32) -> Result<()> {
        // Born over there, so that no device of ours is ever called eth0 here.
        let peer =
            LinkUnspec::new_with_name("eth0").address(mac.to_vec()).mtu(mtu).setns_by_fd(netns).build();
        let peer = InfoData::Veth(InfoVeth::Peer(peer));
        let message = LinkVeth::new(name, "eth0").mtu(mtu).set_info_data(peer).build();
        self.handle.link().add(message).execute().await.map_err(failed(format!("add veth {name}")))
    }

    /// Puts a device on a bridge and brings it up; packets may leave by where they came from.
    pub async fn enslave(&self, index: u32, bridge: u32) -> Result<()> {
        let message = LinkUnspec::new_with_index(index).controller(bridge).up().build();
        self.set(message, "put a device on the bridge").await?;
        let port = LinkBridgePort::new(index).hairpin(true).build();
        self.handle.link().set_port(port).execute().await.map_err(failed("allow hairpins on a device"))
    }

    pub async fn delete_link(&self, name: &str) -> Result<()> {
        let Some(index) = self.index_of(name).await? else { return Ok(()) };
        let gone = self.handle.link().del(index).execute().await;
        unless(gone, libc::ENODEV).map_err(failed(format!("delete device {name}")))
    }

    /// Deletes devices at once: for each deletion the kernel waits until no processor can see the device any more, which
    /// takes some 20 ms and holds up whoever else asks something of it, and it waits once for a group.
    pub async fn delete_links(&self, names: &[String]) -> Result<()> {
        if let [name] = names {
            return self.delete_link(name).await;
        }
        let mut found = false;
        for name in names {
            let Some(index) = self.index_of(name).await? else { continue };
            let mut message = LinkUnspec::new_with_index(index).build();
            message.attributes.push(LinkAttribute::Group(GOING));
            let marked = self.handle.link().set(message).execute().await;
            unless(marked, libc::ENODEV).map_err(failed(format!("mark device {name}")))?;
            found = true;
        }
        if !found {
            return Ok(());
        }
        let mut request = self.handle.link().del(0);
        request.message_mut().attributes.push(LinkAttribute::Group(GOING));
        unless(request.execute().await, libc::ENODEV).map_err(failed("delete devices"))
    }

    /// An address on a device. IPv6 addresses are usable at once: nobody else can have them.
    pub async fn add_address(&self, index: u32, address: IpNet) -> Result<()> {
        self.add_scoped(index, address, AddressScope::Universe).await
    }

    /// An address that this node answers at, and never sends from to others by itself.
    pub async fn add_own_address(&self, index: u32, address: IpNet) -> Result<()> {
        self.add_scoped(index, address, AddressScope::Host).await
    }

    async fn add_scoped(&self, index: u32, address: IpNet, scope: AddressScope) -> Result<()> {
        let mut request = self.handle.address().add(index, address.addr(), address.prefix_len());
        request.message_mut().header.scope = scope;
        if address.addr().is_ipv6() {
            request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        unless(request.execute().await, libc::EEXIST).map_err(failed(format!("add address {address}")))
    }

    /// The addresses of a device, without those that the kernel made by itself.
    pub async fn addresses(&self, index: u32) -> Result<Vec<IpNet>> {
        let request = self.handle.address().get().set_link_index_filter(index);
        let messages: Vec<_> = request.execute().try_collect().await.map_err(failed("list addresses"))?;
        let mut found = Vec::new();
        for message in messages {
            for attribute in &message.attributes {
                if let AddressAttribute::Address(address) = attribute
                    && let Ok(net) = IpNet::new(*address, message.header.prefix_len)
                    && !is_link_local(*address)
                {
                    found.push(net);
                }
            }
        }
        Ok(found)
    }

    pub async fn delete_address(&self, index: u32, address: IpNet) -> Result<()> {
        let request = self.handle.address().get().set_link_index_filter(index);
        let messages: Vec<_> = request.execute().try_collect().await.map_err(failed("list addresses"))?;
        for message in messages {
            let same = message.header.prefix_len == address.prefix_len()
                && message.attributes.contains(&AddressAttribute::Address(address.addr()));
            if same {
                let gone = self.handle.address().del(message).execute().await;
                unless(gone, libc::EADDRNOTAVAIL).map_err(failed(format!("delete address {address}")))?;
            }
        }
        Ok(())
    }

    /// A default route through a gateway that no prefix of the device covers.
    pub async fn add_default_route(&self, index: u32, gateway: IpAddr) -> Result<()> {
        let message = match gateway {
            IpAddr::V4(gateway) => RouteMessageBuilder::<Ipv4Addr>::new()
                .output_interface(index)
                .gateway(gateway)
                .onlink()
                .build(),
            IpAddr::V6(gateway) => RouteMessageBuilder::<Ipv6Addr>::new()
                .output_interface(index)
                .gateway(gateway)
                .onlink()
                .build(),
        };
        let made = self.handle.route().add(message).replace().execute().await;
        made.map_err(failed(format!("add the default route through {gateway}")))
    }

    /// The routes of the main table, of one family.
    pub async fn routes(&self, family: AddressFamily) -> Result<Vec<RouteMessage>> {
        let mut query = RouteMessage::default();
        query.header.address_family = family;
        self.handle.route().get(query).execute().try_collect().await.map_err(failed("list routes"))
    }
}

/// The MTU of the device that carries this node's own traffic: the one that has `address`, or else the one of the
/// default route, or else the smallest of those that are up.
pub async fn mtu_towards(address: Option<IpAddr>) -> Result<u32> {
    const ETHERNET: u32 = 1500;
    let netlink = Netlink::open()?;
    let links = netlink.links().await?;
    let outside: Vec<&Link> = links.iter().filter(|link| link.up && !link.loopback).collect();
    if let Some(address) = address {
        for link in &outside {
            if netlink.addresses(link.index).await?.iter().any(|net| net.addr() == address) {
                return Ok(link.mtu);
            }
        }
    }
    for route in netlink.routes(AddressFamily::Inet).await? {
        let main = route.header.table == libc::RT_TABLE_MAIN && route.header.scope == RouteScope::Universe;
        let oif = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        });
        let default = route.header.destination_prefix_length == 0;
        if let Some(link) = outside.iter().find(|link| main && default && Some(link.index) == oif) {
            return Ok(link.mtu);
        }
    }
    // Bridges and pods' devices of ours are made smaller than what carries them, so they must not count.
    let physical = outside.iter().filter(|link| link.controller.is_none() && !link.name.starts_with("veth"));
    Ok(physical.map(|link| link.mtu).filter(|mtu| *mtu >= 1280).max().unwrap_or(ETHERNET))
}

/// The address and prefix a route leads to.
pub fn destination(route: &RouteMessage) -> Option<IpNet> {
    let address = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(IpAddr::V4(*address)),
        RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    })?;
    IpNet::new(address, route.header.destination_prefix_length).ok()
}

/// Turns a netlink error into ours.
pub fn failed(what: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Error {
    let what = what.into();
    move |source| Error::Netlink { what, source }
}

/// Whether the kernel answered with this errno.
pub fn is(error: &rtnetlink::Error, errno: i32) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(message) if message.raw_code() == -errno)
}

/// Success, or an error that means that nothing had to be done.
pub fn unless(result: Result<(), rtnetlink::Error>, errno: i32) -> Result<(), rtnetlink::Error> {
    match result {
        Err(error) if is(&error, errno) => Ok(()),
        other => other,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn describe(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        loopback: message.header.flags.contains(LinkFlags::Loopback),
        up: message.header.flags.contains(LinkFlags::Up),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name.clone(),
            LinkAttribute::Address(mac) => link.mac = mac.clone(),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Controller(index) => link.controller = Some(*index),
            _ => {}
        }
    }
    link
}
