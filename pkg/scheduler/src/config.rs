//! What a scheduler is told when it starts, and its flags, under upstream's names.

use crate::metrics::Metrics;
use crate::place::Profile;
use clap::{Parser, ValueEnum};
use client::{LeaderConfig, LeaderFlags, RedisConfig, RedisFlags};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;

/// The scheduler of pods that name none.
pub(crate) const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// The scheduler that takes nodes in turn, whatever is on them.
const ROUND_ROBIN_SCHEDULER: &str = "round-robin-scheduler";

/// What the lease is called, as upstream's.
const LEASE: &str = "kube-scheduler";

/// How to run the scheduler.
#[derive(Debug, Clone)]
pub struct Config {
    /// How to reach the apiserver; the pod's own credentials where there is none.
    pub kubeconfig: Option<PathBuf>,
    /// Where changes are heard of, beside the apiserver.
    pub redis: Option<RedisConfig>,
    /// Which pods are placed, by their `spec.schedulerName`, and how.
    pub profiles: HashMap<String, Profile>,
    /// Which share of the nodes is looked at for each pod, in percent; zero lets their number decide.
    pub percentage_of_nodes_to_score: usize,
    /// How many bindings are under way at once.
    pub bindings_at_once: usize,
    /// Of several replicas only one works: which.
    pub leader: LeaderConfig,
    /// The name of this host, in the lease and in events.
    pub host: String,
    /// Counts what happens.
    pub metrics: Metrics,
}

impl Default for Config {
    fn default() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Config {
            kubeconfig: None,
            redis: None,
            profiles: profiles(Profile::Default),
            percentage_of_nodes_to_score: 0,
            bindings_at_once: 64,
            leader: LeaderConfig::of(LEASE),
            host: host.trim().to_owned(),
            metrics: Metrics::default(),
        }
    }
}

fn profiles(default: Profile) -> HashMap<String, Profile> {
    [(DEFAULT_SCHEDULER.to_owned(), default), (ROUND_ROBIN_SCHEDULER.to_owned(), Profile::RoundRobin)].into()
}

/// How pods of the default scheduler are placed.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProfileName {
    /// Upstream's filters and scores; equals in turn.
    Default,
    /// Upstream's filters, then nodes in turn.
    RoundRobin,
}

/// Decides which node each pod runs on.
#[derive(Parser)]
#[command(
    name = "scheduler",
    version,
    after_help = "Example:\n  scheduler --kubeconfig /etc/kubernetes/scheduler.conf\n\n\
    Pods with the label node: X run on node X, those with resourcePolicy: on where most memory is free.\n\
    Pods with schedulerName: round-robin-scheduler take nodes in turn."
)]
pub struct Flags {
    /// How to reach the apiserver; inside a pod it is not needed.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// How pods of default-scheduler are placed.
    #[arg(long, value_enum, default_value = "default")]
    profile: ProfileName,
    /// Which share of the nodes is looked at for each pod, in percent; 0 lets their number decide.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    percentage_of_nodes_to_score: u8,
    #[command(flatten)]
    leader: LeaderFlags,
    #[command(flatten)]
    redis: RedisFlags,
    /// Where health and metrics are served.
    #[arg(long, default_value = "127.0.0.1")]
    pub bind_address: IpAddr,
    /// On which port, over plain HTTP; 0 takes a free one.
    #[arg(long, default_value_t = 10259)]
    pub health_port: u16,
}

impl From<Flags> for Config {
    fn from(flags: Flags) -> Config {
        let default = Config::default();
        Config {
            kubeconfig: flags.kubeconfig,
            redis: flags.redis.config(),
            profiles: profiles(match flags.profile {
                ProfileName::Default => Profile::Default,
                ProfileName::RoundRobin => Profile::RoundRobin,
            }),
            percentage_of_nodes_to_score: flags.percentage_of_nodes_to_score.into(),
            leader: flags.leader.config(LEASE),
            ..default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn flags_have_upstreams_names() {
        let flags = [
            "scheduler",
            "--leader-elect=false",
            "--leader-elect-lease-duration=30s",
            "--profile=round-robin",
        ];
        let config = Config::from(Flags::try_parse_from(flags).unwrap());
        assert!(!config.leader.elects);
        assert_eq!(config.leader.lease_duration, Duration::from_secs(30));
        assert_eq!(config.profiles[DEFAULT_SCHEDULER], Profile::RoundRobin);
        assert!(Flags::try_parse_from(["scheduler", "--leader-elect-retry-period=soon"]).is_err());
    }
}
