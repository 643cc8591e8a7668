//! The overlay between nodes: a VXLAN device whose neighbours and routes are written, never learned.
//!
//! ```text
//! Node objects ──> [Peer] ──┐
//! flannel.1 as it is ───────┴─ plan ──> [Action] ──> netlink
//! pod 10.244.1.7 ─ route 10.244.2.0/24 via 10.244.2.0 dev flannel.1 ─ neighbour ─ fdb ─ UDP 8472 to the node
//! ```
//!
//! Where pods have an IPv6 address besides, its routes lead through the same device, over IPv4 between the nodes.
//!
//! Device, VNI, port, addresses and annotations are flannel's, so that nodes that run flannel can be in the same
//! cluster.
//!
//! kubeproxy keeps it in step, not the kubelet: it watches the Node objects anyway, keeps what it saw on disk, so that
//! it can rebuild the overlay without an apiserver, and translates addresses to that of this device. A kubelet knows
//! only its own node. The MAC address of a node's device follows from its range, so nobody has to write to a Node
//! before others can reach it; where an annotation says otherwise (flannel's), the annotation counts.

mod kernel;
mod plan;

pub use kernel::{remove, sync};
pub use plan::{Action, Kernel, Local, Peer, Route, plan};

/// The device.
pub const DEVICE: &str = "flannel.1";
/// Its network identifier.
pub const VNI: u32 = 1;
/// The UDP port it sends to and listens on.
pub const PORT: u16 = 8472;
/// Bytes that it adds to each packet over IPv4.
pub const OVERHEAD: u32 = 50;

/// The annotation with the device's MAC address, as JSON.
pub const BACKEND_DATA: &str = "flannel.alpha.coreos.com/backend-data";
/// The annotation that says which kind of overlay it is.
pub const BACKEND_TYPE: &str = "flannel.alpha.coreos.com/backend-type";
/// The annotation with the address that others send to.
pub const PUBLIC_IP: &str = "flannel.alpha.coreos.com/public-ip";
/// The annotation that says that the node takes part.
pub const MANAGED: &str = "flannel.alpha.coreos.com/kube-subnet-manager";
