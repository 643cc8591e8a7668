//! The network of one node: the bridge, addresses and overlay that pods talk over.
//!
//! ```text
//! Network::attach(pod) ──> record on disk ──> namespace ──> veth ──> bridge ──> hostPort rules
//! Network::detach(pod) <── the same, backwards: the record goes last, so that nothing is ever forgotten
//! overlay::sync(nodes) ──> flannel.1, its neighbours and its routes to the pods of other nodes
//! ```
//!
//! [`Network`] gives a pod a network namespace with an address. Where a CNI configuration exists the plugins it
//! names do that; otherwise the bridge that is built in. A pod that has been attached is detached by whatever
//! attached it, also if the configuration has changed since.
//!
//! Everything may be called again: after an error, after a crash, by a process that has just been started. What was
//! half done is finished, or undone, from the record.
//!
//! This crate knows nothing of services, and decides nothing about which pods exist.

mod bridge;
pub mod claims;
mod cni;
mod firewall;
pub mod iptables;
mod namespace;
mod netlink;
mod network;
pub mod overlay;
mod records;
mod sysctl;
mod tracking;

pub use netlink::mtu_towards;
pub use network::{Network, NotReady};
pub use tracking::Tracking;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;

/// Where things are on this node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The built-in bridge.
    pub bridge: String,
    /// Records of what has been attached; must survive restarts.
    pub state_dir: PathBuf,
    /// Where network namespaces are mounted.
    pub netns_dir: PathBuf,
    /// Where CNI configurations are looked for.
    pub cni_conf_dir: PathBuf,
    /// Where CNI plugins are looked for, the first first.
    pub cni_bin_dirs: Vec<PathBuf>,
    /// The bytes a packet of a pod may have. `None`: what fits into the overlay over the node's own network.
    pub mtu: Option<u32>,
    /// The program that edits single rules, and its twin for IPv6.
    pub iptables: String,
    /// See `iptables`.
    pub ip6tables: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            bridge: "minik8s0".to_owned(),
            state_dir: "/var/lib/minik8s/network".into(),
            netns_dir: "/run/netns".into(),
            cni_conf_dir: "/etc/cni/net.d".into(),
            cni_bin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            mtu: None,
            iptables: "iptables".to_owned(),
            ip6tables: "ip6tables".to_owned(),
        }
    }
}

impl Config {
    /// The same, with everything that it writes below one directory. Kernel state is still this network namespace's.
    pub fn below(dir: &std::path::Path) -> Config {
        Config {
            state_dir: dir.join("network"),
            netns_dir: dir.join("netns"),
            cni_conf_dir: dir.join("cni"),
            ..Config::default()
        }
    }
}

/// Which pod. The uid alone tells pods apart; the names are for plugins and for people.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A transport protocol, as the API writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP.
    #[serde(rename = "UDP")]
    Udp,
    /// SCTP.
    #[serde(rename = "SCTP")]
    Sctp,
}

impl Protocol {
    /// As iptables and CNI write it.
    pub fn lower(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }
}

impl std::str::FromStr for Protocol {
    type Err = String;

    /// From the API's `TCP`, `UDP` or `SCTP`.
    fn from_str(text: &str) -> Result<Protocol, String> {
        match text {
            "TCP" => Ok(Protocol::Tcp),
            "UDP" => Ok(Protocol::Udp),
            "SCTP" => Ok(Protocol::Sctp),
            other => Err(format!("{other} is not a protocol: use TCP, UDP or SCTP")),
        }
    }
}

/// A port of the node that leads to a port of the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostPort {
    /// Of both ports.
    pub protocol: Protocol,
    /// The node's address; all of them if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<IpAddr>,
    /// The node's port.
    pub host_port: u16,
    /// The pod's port.
    pub container_port: u16,
}

/// A pod's place in the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Whose.
    pub pod: PodId,
    /// The network namespace its containers join.
    pub netns: PathBuf,
    /// Its addresses, the first one being `status.podIP`. Empty in a listing if attaching was never finished.
    pub addresses: Vec<IpAddr>,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is neither a pod range nor a CNI configuration yet.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// Every address of the range is taken.
    #[error("no addresses available in range {0}")]
    Exhausted(IpNet),
    /// The kernel refused.
    #[error("{what}")]
    Netlink {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        source: rtnetlink::Error,
    },
    /// A file, a mount or a namespace.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The packet filter.
    #[error(transparent)]
    Firewall(#[from] iptables::IptablesError),
    /// The CNI configuration cannot be used.
    #[error("CNI configuration {path}: {message}")]
    CniConfig {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A CNI plugin failed.
    #[error("plugin type=\"{plugin}\" failed ({command}): {message}")]
    CniPlugin {
        /// Which plugin.
        plugin: String,
        /// ADD, DEL or CHECK.
        command: &'static str,
        /// What it said.
        message: String,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}

/// What this crate answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;
