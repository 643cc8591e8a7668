//! What all parts of a kubelet share.

use crate::events::Events;
use crate::host::Host;
use crate::local::Outbox;
use crate::node::Pressure;
use crate::plan::{ADDRESSES, NodeFacts};
use crate::pod_network::PodNetwork;
use crate::runtime::Runtime;
use crate::worker::pod_ref;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::RwLock;
use std::sync::Arc;
use tokio::sync::Notify;

/// The doors, and what is known of the node.
pub(crate) struct Shared {
    /// Runs containers.
    pub runtime: Arc<dyn Runtime>,
    /// Gives pods their addresses.
    pub network: Arc<dyn PodNetwork>,
    /// Tells what happens.
    pub events: Events,
    /// Takes what has changed.
    pub outbox: Arc<Outbox>,
    /// What plans need to know of the node.
    pub facts: RwLock<NodeFacts>,
    /// What the node is short of.
    pub pressure: RwLock<Pressure>,
    /// Told when pods that wait for room may find some.
    pub room: Notify,
    /// What the node gives to pods; a simulated one gives nothing.
    pub host: Option<Host>,
}

impl Shared {
    /// The address of a pod that runs.
    pub async fn pod_address(&self, pod: &Pod) -> Option<String> {
        if pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true) {
            return self.facts.read().addresses.first().cloned();
        }
        let view = self.runtime.pod(&pod_ref(pod)).await.ok()?;
        let sandbox = view.sandboxes.iter().find(|sandbox| sandbox.pid.is_some())?;
        let list = sandbox.spec.annotations.get(ADDRESSES)?;
        list.split(',').next().filter(|ip| !ip.is_empty()).map(Into::into)
    }
}
