//! knative's flags, and what they come to.

use crate::metrics::Metrics;
use crate::tls::Files;
use crate::workflow::{Tally, Tap};
use clap::Parser;
use client::{LeaderConfig, LeaderFlags, RedisConfig, RedisFlags};
use std::net::IpAddr;
use std::path::PathBuf;

/// The lease by which one of several leads.
const LEASE: &str = "knative";

/// Runs functions: makes their pods when they are called, and is the only way to them.
#[derive(Parser)]
#[command(
    name = "knative",
    version,
    after_help = "Example:\n  knative --kubeconfig /etc/kubernetes/knative.conf \\\n    --tls-cert-file /etc/kubernetes/pki/knative.crt --tls-private-key-file /etc/kubernetes/pki/knative.key"
)]
pub struct Flags {
    /// How to reach the apiserver; inside a pod it is not needed.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    leader: LeaderFlags,
    #[command(flatten)]
    redis: RedisFlags,
    /// The certificate to show to callers.
    #[arg(long)]
    tls_cert_file: PathBuf,
    /// Its key. Pods know us by what follows from it.
    #[arg(long)]
    tls_private_key_file: PathBuf,
    /// The authority of the certificate by which the API server hands on who asks.
    #[arg(long)]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Where calls are taken.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// On which port, over HTTPS; 0 takes a free one.
    #[arg(long, default_value_t = 10270)]
    pub secure_port: u16,
    /// The address at which pods reach this machine, to tell that they listen.
    #[arg(long)]
    advertise_address: IpAddr,
    /// On which port they tell; 0 takes a free one.
    #[arg(long, default_value_t = 10271)]
    pub ready_port: u16,
    /// Where health and metrics are served.
    #[arg(long, default_value = "127.0.0.1")]
    pub health_address: IpAddr,
    /// On which port, over plain HTTP; 0 takes a free one.
    #[arg(long, default_value_t = 10272)]
    pub health_port: u16,
    /// How many pods the functions of a namespace may have.
    #[arg(long, default_value_t = 100)]
    max_pods_per_namespace: usize,
}

/// What running functions takes.
#[derive(Clone)]
pub struct Config {
    /// How to reach the apiserver.
    pub kubeconfig: Option<PathBuf>,
    /// Where changes are heard of, beside the apiserver.
    pub redis: Option<RedisConfig>,
    /// Which of several leads.
    pub leader: LeaderConfig,
    /// What is shown to callers.
    pub files: Files,
    /// Where pods reach this machine.
    pub advertise_address: IpAddr,
    /// How many pods the functions of a namespace may have.
    pub max_pods_per_namespace: usize,
    /// What is counted.
    pub metrics: Metrics,
    /// What is counted of workflows.
    pub workflows: Tally,
    /// Who hears of what happens to runs.
    pub tap: Option<Tap>,
}

impl From<Flags> for Config {
    fn from(flags: Flags) -> Config {
        Config {
            kubeconfig: flags.kubeconfig,
            redis: flags.redis.config(),
            leader: flags.leader.config(LEASE),
            files: Files {
                certificate: flags.tls_cert_file,
                key: flags.tls_private_key_file,
                front_proxy: flags.requestheader_client_ca_file,
            },
            advertise_address: flags.advertise_address,
            max_pods_per_namespace: flags.max_pods_per_namespace,
            metrics: Metrics::default(),
            workflows: Tally::default(),
            tap: None,
        }
    }
}
