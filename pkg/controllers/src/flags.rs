//! The controller-manager's flags, under upstream's names.

use crate::Config;
use crate::config::LEASE;
use clap::{ArgAction, Parser};
use client::{LeaderFlags, duration};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Runs the controllers: what keeps a cluster as it was asked to be.
#[derive(Parser)]
#[command(
    name = "controller-manager",
    version,
    after_help = "Example:\n  controller-manager --kubeconfig /etc/kubernetes/controller-manager.conf"
)]
pub struct Flags {
    /// How to reach the apiserver; inside a pod it is not needed.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Which controllers run: '*' for all that are on by default, 'foo' to switch one on, '-foo' off.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Let each controller act as its own service account.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    use_service_account_credentials: bool,
    #[command(flatten)]
    leader: LeaderFlags,
    #[command(flatten)]
    redis: client::RedisFlags,
    /// The pods' range, from which nodes get theirs.
    #[arg(long)]
    cluster_cidr: Option<String>,
    /// How large a node's range is: 24 for IPv4 where it is not given.
    #[arg(long)]
    node_cidr_mask_size: Option<u8>,
    /// Give each node a range out of --cluster-cidr.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    allocate_node_cidrs: bool,
    /// The CA that signs certificates.
    #[arg(long, requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// How long certificates are good for.
    #[arg(long, default_value = "8760h", value_parser = duration)]
    cluster_signing_duration: Duration,
    /// The CA that pods are told to believe.
    #[arg(long)]
    root_ca_file: Option<PathBuf>,
    /// The key that service-account tokens are signed with.
    #[arg(long)]
    service_account_private_key_file: Option<PathBuf>,
    /// After so long without a word from its kubelet a node is unreachable.
    #[arg(long, default_value = "50s", value_parser = duration)]
    node_monitor_grace_period: Duration,
    /// How often nodes are looked at.
    #[arg(long, default_value = "5s", value_parser = duration)]
    node_monitor_period: Duration,
    /// How many finished pods may be there before the oldest are deleted.
    #[arg(long, default_value_t = 12_500)]
    terminated_pod_gc_threshold: usize,
    /// How often a HorizontalPodAutoscaler looks at its metrics.
    #[arg(long, default_value = "15s", value_parser = duration)]
    horizontal_pod_autoscaler_sync_period: Duration,
    /// For so long after a pod starts its CPU use says nothing.
    #[arg(long, default_value = "5m", value_parser = duration)]
    horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// For so long after a pod starts its first readiness says nothing.
    #[arg(long, default_value = "30s", value_parser = duration)]
    horizontal_pod_autoscaler_initial_readiness_delay: Duration,
    /// For so long higher recommendations are remembered before scaling down.
    #[arg(long, default_value = "5m", value_parser = duration)]
    horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// Differences smaller than this share are none.
    #[arg(long, default_value_t = 0.1)]
    horizontal_pod_autoscaler_tolerance: f64,
    /// Where health and metrics are served.
    #[arg(long, default_value = "127.0.0.1")]
    pub bind_address: IpAddr,
    /// On which port, over plain HTTP; 0 takes a free one.
    #[arg(long, default_value_t = 10257)]
    pub health_port: u16,
}

impl From<Flags> for Config {
    fn from(flags: Flags) -> Config {
        let default = Config::default();
        Config {
            kubeconfig: flags.kubeconfig,
            redis: flags.redis.config(),
            controllers: flags.controllers,
            use_service_account_credentials: flags.use_service_account_credentials,
            leader: flags.leader.config(LEASE),
            cluster_cidr: flags.cluster_cidr,
            node_cidr_mask_size: flags.node_cidr_mask_size,
            allocate_node_cidrs: flags.allocate_node_cidrs,
            cluster_signing_cert_file: flags.cluster_signing_cert_file,
            cluster_signing_key_file: flags.cluster_signing_key_file,
            cluster_signing_duration: flags.cluster_signing_duration,
            root_ca_file: flags.root_ca_file,
            service_account_private_key_file: flags.service_account_private_key_file,
            node_monitor_grace_period: flags.node_monitor_grace_period,
            node_monitor_period: flags.node_monitor_period,
            terminated_pod_gc_threshold: flags.terminated_pod_gc_threshold,
            hpa_sync_period: flags.horizontal_pod_autoscaler_sync_period,
            hpa_cpu_initialization_period: flags.horizontal_pod_autoscaler_cpu_initialization_period,
            hpa_initial_readiness_delay: flags.horizontal_pod_autoscaler_initial_readiness_delay,
            hpa_downscale_stabilization: flags.horizontal_pod_autoscaler_downscale_stabilization,
            hpa_tolerance: flags.horizontal_pod_autoscaler_tolerance,
            ..default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_upstreams() {
        let flags = Flags::try_parse_from([
            "controller-manager",
            "--kubeconfig=/k",
            "--controllers=*,-job-controller",
            "--leader-elect=false",
            "--leader-elect-lease-duration=1m30s",
            "--use-service-account-credentials=true",
        ]);
        let config = Config::from(flags.expect("good flags"));
        assert_eq!(config.controllers, ["*", "-job-controller"]);
        assert_eq!(config.leader.lease_duration, Duration::from_secs(90));
        assert!(!config.leader.elects && config.use_service_account_credentials);
    }
}
