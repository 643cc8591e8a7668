//! The door to the network of pods: the node's own ([`network::Network`]), or a simulation.

use crate::runtime::PodRef;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A pod's place in the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attached {
    /// The network namespace that its containers join.
    pub namespace: Option<PathBuf>,
    /// Its addresses, best first.
    pub addresses: Vec<String>,
}

/// Why a pod could not be attached.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NetworkError(pub String);

/// Gives pods their place in the network. Each call may be made again.
#[async_trait]
pub trait PodNetwork: Send + Sync + 'static {
    /// Whether pods can be attached; if not, why.
    fn ready(&self) -> Result<(), String>;
    /// The ranges of pod addresses of this node are known.
    async fn set_ranges(&self, ranges: &[ipnet::IpNet]) -> Result<(), NetworkError>;
    /// Gives a pod its namespace and addresses.
    async fn attach(&self, pod: &PodRef, spec: &Pod) -> Result<Attached, NetworkError>;
    /// Takes them back.
    async fn detach(&self, pod: &PodRef) -> Result<(), NetworkError>;
    /// Puts back what others have removed that all pods need.
    async fn heal(&self) -> Result<(), NetworkError> {
        Ok(())
    }
    /// Every pod that is attached.
    fn attached(&self) -> Vec<PodRef>;
}

/// How often it is looked whether rules are still there.
const HEAL_EVERY: Duration = Duration::from_secs(30);

/// Looks after a network until shutdown.
pub async fn keep(network: Arc<dyn PodNetwork>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(HEAL_EVERY) => {}
        }
        if let Err(error) = network.heal().await {
            tracing::warn!(%error, "the rules of the pods' network cannot be looked after");
        }
    }
}

/// Addresses that lead nowhere, for simulated nodes.
#[derive(Debug, Default)]
pub struct SimulatedNetwork {
    given: AtomicU32,
}

#[async_trait]
impl PodNetwork for SimulatedNetwork {
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    async fn set_ranges(&self, _ranges: &[ipnet::IpNet]) -> Result<(), NetworkError> {
        Ok(())
    }

    async fn attach(&self, _pod: &PodRef, _spec: &Pod) -> Result<Attached, NetworkError> {
        let number = self.given.fetch_add(1, Ordering::Relaxed) + 1;
        let [_, a, b, c] = number.to_be_bytes();
        Ok(Attached { namespace: None, addresses: vec![format!("10.{a}.{b}.{c}")] })
    }

    async fn detach(&self, _pod: &PodRef) -> Result<(), NetworkError> {
        Ok(())
    }

    fn attached(&self) -> Vec<PodRef> {
        Vec::new()
    }
}

/// The node's own network: the built-in bridge, or CNI.
pub struct NodeNetwork {
    network: network::Network,
}

impl NodeNetwork {
    /// On a network that is open.
    pub fn new(network: network::Network) -> NodeNetwork {
        NodeNetwork { network }
    }
}

fn failed(error: &network::Error) -> NetworkError {
    NetworkError(crate::error::chain(error))
}

fn id(pod: &PodRef) -> network::PodId {
    network::PodId { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}

fn host_ports(pod: &Pod) -> Vec<network::HostPort> {
    let containers = crate::plan::containers_of(pod);
    let ports = containers.iter().flat_map(|(_, container)| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(network::HostPort {
                protocol: port.protocol.as_deref().unwrap_or("TCP").parse().ok()?,
                host_ip: port.host_ip.as_ref().and_then(|ip| ip.parse().ok()),
                host_port: u16::try_from(port.host_port?).ok().filter(|port| *port > 0)?,
                container_port: u16::try_from(port.container_port).ok()?,
            })
        })
        .collect()
}

#[async_trait]
impl PodNetwork for NodeNetwork {
    fn ready(&self) -> Result<(), String> {
        self.network.status().map_err(|why| why.to_string())
    }

    async fn set_ranges(&self, ranges: &[ipnet::IpNet]) -> Result<(), NetworkError> {
        self.network.set_ranges(ranges).await.map_err(|error| failed(&error))
    }

    async fn heal(&self) -> Result<(), NetworkError> {
        if self.network.heal().await.map_err(|error| failed(&error))? {
            tracing::info!("rules of the pods' network were missing: they are back");
        }
        Ok(())
    }

    async fn attach(&self, pod: &PodRef, spec: &Pod) -> Result<Attached, NetworkError> {
        let attached =
            self.network.attach(&id(pod), &host_ports(spec)).await.map_err(|error| failed(&error))?;
        Ok(Attached {
            namespace: Some(attached.netns),
            addresses: attached.addresses.iter().map(ToString::to_string).collect(),
        })
    }

    async fn detach(&self, pod: &PodRef) -> Result<(), NetworkError> {
        self.network.detach(&id(pod)).await.map_err(|error| failed(&error))
    }

    fn attached(&self) -> Vec<PodRef> {
        let list = self.network.list().unwrap_or_default().into_iter();
        list.map(|a| PodRef { namespace: a.pod.namespace, name: a.pod.name, uid: a.pod.uid }).collect()
    }
}
