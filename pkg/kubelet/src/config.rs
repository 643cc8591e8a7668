//! How a kubelet runs.

use crate::certificates::Certificates;
use crate::eviction::Thresholds;
use crate::host::{Dns, Paths};
use crate::image_access::ImageVerification;
use crate::node::Machine;
use crate::pod_network::PodNetwork;
use crate::provider::PodProvider;
use crate::runtime::Runtime;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Taint;
use kube::Client;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What runs the containers.
#[derive(Clone)]
pub enum RuntimeConfig {
    /// containerd, at this socket.
    Containerd {
        /// Where it listens.
        socket: PathBuf,
        /// What runs pods that name no RuntimeClass.
        pod_runtime: PodRuntime,
    },
    /// Whatever is given, such as a [`crate::simulated::Simulated`].
    Given(Arc<dyn Runtime>),
}

/// What runs pods that name no RuntimeClass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PodRuntime {
    /// runc, with a shim for each pod.
    #[default]
    Runc,
    /// Our own shim, one for the node: this program itself.
    Shim,
    /// The same, as a program of its own.
    ShimAt(PathBuf),
}

/// How the apiserver is reached.
#[derive(Clone)]
pub enum ApiConfig {
    /// Not at all: only static pods run.
    None,
    /// By a kubeconfig.
    Kubeconfig(PathBuf),
    /// By a client that exists.
    Client(Client),
}

/// Where the node's own API is served.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The certificate and key to show; made here if not given.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Who signs the certificates of those who ask.
    pub client_ca: Option<PathBuf>,
    /// Where certificates of its own are kept.
    pub cert_dir: PathBuf,
}

/// How pods get their addresses.
#[derive(Clone)]
pub enum NetworkConfig {
    /// The node's own bridge, or CNI where it is configured.
    Node(Box<network::Config>),
    /// Whatever is given, such as [`crate::pod_network::SimulatedNetwork`].
    Given(Arc<dyn PodNetwork>),
}

/// How a kubelet runs.
#[derive(Clone)]
pub struct Config {
    /// The node's name.
    pub node_name: String,
    /// Its host name.
    pub hostname: String,
    /// Its addresses; found out if empty.
    pub node_ips: Vec<IpAddr>,
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
    /// Taints that it is registered with.
    pub taints: Vec<Taint>,
    /// Whether it registers at all.
    pub register: bool,
    /// The apiserver.
    pub api: ApiConfig,
    /// Where changes are heard of, beside it.
    pub redis: Option<client::RedisConfig>,
    /// How the node comes by its client certificate, where it does itself.
    pub certificates: Option<Certificates>,
    /// The folder of static pods.
    pub manifests: Option<PathBuf>,
    /// What runs the pods instead of this machine.
    pub provider: Option<Arc<dyn PodProvider>>,
    /// The description of a SLURM site that runs the pods instead of this machine.
    pub slurm: Option<PathBuf>,
    /// The container runtime of this machine.
    pub runtime: RuntimeConfig,
    /// The network of pods.
    pub network: NetworkConfig,
    /// Ranges of pod addresses, where the apiserver does not give them.
    pub pod_cidrs: Vec<IpNet>,
    /// Where things are.
    pub paths: Paths,
    /// What need not survive a reboot.
    pub state_dir: PathBuf,
    /// Where names are looked up.
    pub dns: Dns,
    /// The cgroup above those of pods.
    pub cgroup_root: String,
    /// Pods at most.
    pub max_pods: u32,
    /// Processes of a pod at most; 0: no limit.
    pub pod_pids_limit: i64,
    /// Of which images it is verified that a pod may use them.
    pub image_verification: ImageVerification,
    /// Kernel parameters that pods may set beside the safe ones.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// The node's own API; none: it is not served.
    pub server: Option<ServerConfig>,
    /// A log file is rotated when it has this size.
    pub log_max_bytes: u64,
    /// Log files of a container at most.
    pub log_max_files: usize,
    /// Images are removed when the disk is fuller than this, in percent.
    pub image_gc_high_percent: u64,
    /// ... until it is less full than this.
    pub image_gc_low_percent: u64,
    /// What must be left of the node before pods have to go.
    pub eviction_hard: Thresholds,
    /// How long the node says that it is short of something after it has ceased to be.
    pub pressure_stays: Duration,
    /// Simulated: pods get nothing of this machine, and the node has what is said here.
    pub simulated: Option<Machine>,
}

impl Config {
    /// A kubelet with upstream's defaults.
    pub fn new(node_name: &str) -> Config {
        Config {
            node_name: node_name.to_owned(),
            hostname: node_name.to_owned(),
            node_ips: Vec::new(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            register: true,
            api: ApiConfig::None,
            redis: None,
            certificates: None,
            manifests: None,
            provider: None,
            slurm: None,
            runtime: RuntimeConfig::Containerd {
                socket: "/run/containerd/containerd.sock".into(),
                pod_runtime: PodRuntime::default(),
            },
            network: NetworkConfig::Node(Box::default()),
            pod_cidrs: Vec::new(),
            paths: Paths {
                root: "/var/lib/kubelet".into(),
                pod_logs: "/var/log/pods".into(),
                container_logs: "/var/log/containers".into(),
            },
            state_dir: "/run/kubelet/runtime".into(),
            dns: Dns {
                servers: Vec::new(),
                domain: "cluster.local".into(),
                resolv_conf: "/etc/resolv.conf".into(),
            },
            cgroup_root: String::new(),
            max_pods: 110,
            pod_pids_limit: 0,
            image_verification: ImageVerification::default(),
            allowed_unsafe_sysctls: Vec::new(),
            server: None,
            log_max_bytes: 10 << 20,
            log_max_files: 5,
            image_gc_high_percent: 85,
            image_gc_low_percent: 80,
            eviction_hard: Thresholds::default(),
            pressure_stays: Duration::from_secs(5 * 60),
            simulated: None,
        }
    }

    /// A node that only pretends: it runs the same decisions on a simulated runtime, and touches nothing of this
    /// machine.
    pub fn simulated(node_name: &str, client: Client, runtime: Arc<dyn Runtime>) -> Config {
        let machine = Machine {
            cpus: 8,
            memory_bytes: 32 << 30,
            memory_available_bytes: 30 << 30,
            disk_bytes: 100 << 30,
            disk_available_bytes: 90 << 30,
            inodes: 1 << 20,
            inodes_free: 1 << 19,
            pids: 1 << 22,
            os_image: "Simulated".into(),
            ..Machine::default()
        };
        Config {
            api: ApiConfig::Client(client),
            node_ips: vec![IpAddr::from([192, 0, 2, 1])],
            runtime: RuntimeConfig::Given(runtime),
            network: NetworkConfig::Given(Arc::new(crate::pod_network::SimulatedNetwork::default())),
            simulated: Some(machine),
            ..Config::new(node_name)
        }
    }
}
