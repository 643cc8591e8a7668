//! What a controller-manager is told when it starts.

use crate::Metrics;
use crate::runtime::Clock;
use client::{LeaderConfig, RedisConfig};
use std::path::PathBuf;
use std::time::Duration;

/// What the lease is called, as upstream's.
pub(crate) const LEASE: &str = "kube-controller-manager";

/// How to run the controllers.
#[derive(Debug, Clone)]
pub struct Config {
    /// How to reach the apiserver; the pod's own credentials where there is none.
    pub kubeconfig: Option<PathBuf>,
    /// Where changes are heard of, beside the apiserver.
    pub redis: Option<RedisConfig>,
    /// Which controllers run: `*`, `name`, `-name`.
    pub controllers: Vec<String>,
    /// Each controller acts as its own service account.
    pub use_service_account_credentials: bool,
    /// Of several replicas only one works: which.
    pub leader: LeaderConfig,
    /// The name of this host, in the lease and in events.
    pub host: String,
    /// The pods' range, from which nodes get theirs; nodes get none where it is empty.
    pub cluster_cidr: Option<String>,
    /// How large a node's range is.
    pub node_cidr_mask_size: Option<u8>,
    /// Whether nodes get ranges at all.
    pub allocate_node_cidrs: bool,
    /// The CA that signs certificates.
    pub cluster_signing_cert_file: Option<PathBuf>,
    /// Its key.
    pub cluster_signing_key_file: Option<PathBuf>,
    /// How long certificates are good for.
    pub cluster_signing_duration: Duration,
    /// The CA that pods are told to believe.
    pub root_ca_file: Option<PathBuf>,
    /// The key that service-account tokens are signed with, for token secrets.
    pub service_account_private_key_file: Option<PathBuf>,
    /// After so long without a word from its kubelet a node is unreachable.
    pub node_monitor_grace_period: Duration,
    /// How often nodes are looked at.
    pub node_monitor_period: Duration,
    /// How many finished pods may be there before the oldest are deleted.
    pub terminated_pod_gc_threshold: usize,
    /// How often a HorizontalPodAutoscaler looks at its metrics.
    pub hpa_sync_period: Duration,
    /// For so long after a pod starts its CPU use says nothing.
    pub hpa_cpu_initialization_period: Duration,
    /// For so long after a pod starts its first readiness says nothing.
    pub hpa_initial_readiness_delay: Duration,
    /// For so long a HorizontalPodAutoscaler remembers higher recommendations before it scales down.
    pub hpa_downscale_stabilization: Duration,
    /// Differences smaller than this share are none.
    pub hpa_tolerance: f64,
    /// What time it is.
    pub clock: Clock,
    /// Counts what happens.
    pub metrics: Metrics,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            kubeconfig: None,
            redis: None,
            controllers: vec!["*".into()],
            use_service_account_credentials: true,
            leader: LeaderConfig::of(LEASE),
            host: host_name(),
            cluster_cidr: None,
            node_cidr_mask_size: None,
            allocate_node_cidrs: false,
            cluster_signing_cert_file: None,
            cluster_signing_key_file: None,
            cluster_signing_duration: Duration::from_secs(365 * 24 * 3600),
            root_ca_file: None,
            service_account_private_key_file: None,
            node_monitor_grace_period: Duration::from_secs(50),
            node_monitor_period: Duration::from_secs(5),
            terminated_pod_gc_threshold: 12_500,
            hpa_sync_period: Duration::from_secs(15),
            hpa_cpu_initialization_period: Duration::from_secs(300),
            hpa_initial_readiness_delay: Duration::from_secs(30),
            hpa_downscale_stabilization: Duration::from_secs(300),
            hpa_tolerance: 0.1,
            clock: Clock::default(),
            metrics: Metrics::default(),
        }
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
