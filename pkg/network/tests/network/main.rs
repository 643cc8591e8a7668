//! Pods attached for real, each test on a host of its own.

mod bridge;
mod claims;
mod cni;
mod crash;
mod host;
mod overlay;

use crate::host::Host;
use network::{Attachment, Config, HostPort, Network, PodId, Protocol};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// A host with a network, and where it keeps its state.
struct Node {
    host: Host,
    network: Arc<Network>,
    dir: TempDir,
}

impl Node {
    fn new(range: &str) -> Node {
        Node::on(Host::new(), range)
    }

    fn on(host: Host, range: &str) -> Node {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // Mounts below it are the host's own.
        let network = Arc::new(Network::new(config(dir.path())).expect("the state"));
        let node = Node { host, network, dir };
        node.set_range(range);
        node
    }

    fn set_range(&self, range: &str) {
        let (network, range) = (self.network.clone(), range.parse().expect("a range"));
        self.host.block_on(move || async move { network.set_ranges(&[range]).await.expect("the bridge") });
    }

    fn attach(&self, pod: &PodId, ports: &[HostPort]) -> Attachment {
        self.try_attach(pod, ports).unwrap_or_else(|error| panic!("attach: {error:?}"))
    }

    fn try_attach(&self, pod: &PodId, ports: &[HostPort]) -> network::Result<Attachment> {
        let (network, pod, ports) = (self.network.clone(), pod.clone(), ports.to_vec());
        self.host.block_on(move || async move { network.attach(&pod, &ports).await })
    }

    fn detach(&self, pod: &PodId) {
        let (network, pod) = (self.network.clone(), pod.clone());
        self.host.block_on(move || async move { network.detach(&pod).await.expect("detach") });
    }

    fn heal(&self) -> bool {
        let network = self.network.clone();
        self.host.block_on(move || async move { network.heal().await.expect("healed") })
    }

    fn cleanup(&self) {
        let network = self.network.clone();
        self.host.block_on(move || async move { network.cleanup().await.expect("clean up") });
    }

    /// A thread in the pod.
    fn pod(&self, attachment: &Attachment) -> Host {
        self.host.inside(&attachment.netns)
    }

    /// Everything that a network can leave behind, as text.
    fn traces(&self) -> String {
        let netns = self.dir.path().join("netns");
        self.host.sh(&format!(
            "ip -o link | grep -v ': lo:' | cut -d: -f2 | cut -d@ -f1 | tr -d ' '; \
             ls {0} 2>/dev/null || true; grep {0} /proc/self/mounts || true; \
             iptables-save 2>/dev/null | grep -i minik8s || true",
            netns.display()
        ))
    }
}

fn config(dir: &Path) -> Config {
    Config::below(dir)
}

fn pod(name: &str) -> PodId {
    PodId { namespace: "default".to_owned(), name: name.to_owned(), uid: format!("uid-of-{name}") }
}

fn host_port(host_port: u16, container_port: u16) -> HostPort {
    HostPort { protocol: Protocol::Tcp, host_ip: None, host_port, container_port }
}
