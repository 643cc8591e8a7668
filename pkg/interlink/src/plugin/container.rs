//! The container plugin: our own local node on the containerd of this machine.
//!
//! It has a namespace, a bridge and folders of its own: what a kubelet on the same machine runs is not touched.

use super::localize::localize;
use super::provided::{Adapt, Adapted, ProvidedSite};
use crate::api::Error;
use crate::wire::RetrievedPod;
use ipnet::IpNet;
use kubelet::config::{NetworkConfig, RuntimeConfig};
use kubelet::eviction::Thresholds;
use kubelet::runtime::containerd::{self, Containerd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// containerd's namespace of these pods.
const NAMESPACE: &str = "interlink";
const BRIDGE: &str = "interlink0";

/// What the plugin is told beside InterLinkConfig.yaml.
#[derive(Debug, Clone)]
pub struct ContainerOptions {
    /// Where containerd listens.
    pub socket: PathBuf,
    /// The range of pods' addresses.
    pub pod_cidr: IpNet,
    /// Pods at most.
    pub max_pods: u32,
    /// What need not survive a reboot.
    pub state_dir: PathBuf,
    /// The cgroup above those of pods.
    pub cgroup_root: String,
    /// What must be left of the machine.
    pub eviction_hard: Thresholds,
}

struct Localizes;

impl Adapt for Localizes {
    fn adapt(&self, given: RetrievedPod, folder: &Path) -> Result<Adapted, String> {
        let (pod, folders, files) = localize(&given, folder)?;
        Ok(Adapted { pod, folders, files, given: None })
    }
}

/// A kubelet's configuration without a cluster, in folders of its own.
fn kubelet_config(root: &Path, options: &ContainerOptions) -> Result<kubelet::Config, Error> {
    let mut config = kubelet::Config::new(NAMESPACE);
    config.paths.root = root.join("node");
    config.paths.pod_logs = root.join("logs");
    config.paths.container_logs = root.join("container-logs");
    config.state_dir = options.state_dir.join("runtime");
    config.max_pods = options.max_pods;
    config.cgroup_root.clone_from(&options.cgroup_root);
    config.eviction_hard = options.eviction_hard.clone();
    config.pod_cidrs = vec![options.pod_cidr];
    if let NetworkConfig::Node(network) = &mut config.network {
        network.bridge = BRIDGE.to_owned();
        network.state_dir = root.join("network");
        network.netns_dir = options.state_dir.join("netns");
        // Of the machine's own cluster, if it has one.
        network.cni_conf_dir = root.join("cni");
    }
    let runtime = Containerd::new(containerd::Config {
        socket: options.socket.clone(),
        namespace: NAMESPACE.to_owned(),
        root_dir: root.join("runtime"),
        state_dir: config.state_dir.clone(),
        ..containerd::Config::default()
    });
    let runtime = runtime.map_err(|error| Error::Site(kubelet::Error::Runtime(error).into()))?;
    config.runtime = RuntimeConfig::Given(Arc::new(runtime));
    Ok(config)
}

/// The site, and what has to run beside it.
pub async fn start(
    data_root: &Path,
    options: &ContainerOptions,
    shutdown: &CancellationToken,
) -> Result<(Arc<ProvidedSite>, JoinSet<()>), Error> {
    let root = data_root.join("container");
    let config = kubelet_config(&root, options)?;
    of_config(config, &root, shutdown).await
}

/// On any local node.
async fn of_config(
    config: kubelet::Config,
    root: &Path,
    shutdown: &CancellationToken,
) -> Result<(Arc<ProvidedSite>, JoinSet<()>), Error> {
    let (provider, mut tasks) =
        kubelet::local(&config, shutdown).await.map_err(|error| Error::Site(error.into()))?;
    let site = ProvidedSite::new(provider, Box::new(Localizes), root)
        .map_err(|error| Error::Keep { path: root.display().to_string(), source: error.into() })?;
    tasks.spawn(site.clone().run(shutdown.clone()));
    Ok((site, tasks))
}

/// On a simulated runtime, which touches nothing of this machine: for tests.
pub async fn simulated(
    data_root: &Path,
    runtime: Arc<dyn kubelet::runtime::Runtime>,
    shutdown: &CancellationToken,
) -> Result<(Arc<ProvidedSite>, JoinSet<()>), Error> {
    let mut config = kubelet::Config::new(NAMESPACE);
    config.paths.root = data_root.join("node");
    config.paths.pod_logs = data_root.join("logs");
    config.runtime = RuntimeConfig::Given(runtime);
    config.network = NetworkConfig::Given(Arc::new(kubelet::pod_network::SimulatedNetwork::default()));
    config.max_pods = 10_000;
    config.simulated = Some(kubelet::node::Machine {
        cpus: 64,
        memory_bytes: 256 << 30,
        memory_available_bytes: 256 << 30,
        disk_bytes: 1 << 40,
        disk_available_bytes: 1 << 40,
        inodes: 1 << 20,
        inodes_free: 1 << 20,
        pids: 1 << 22,
        ..kubelet::node::Machine::default()
    });
    of_config(config, data_root, shutdown).await
}
