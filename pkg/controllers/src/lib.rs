//! One module per controller, all of one shape: observe → plan → execute. See [`runtime`].
//!
//! ```text
//! CONTROLLERS ──those that --controllers names──> start(context) ──> Task ┐
//! LeaderElection ──> lead ──> Informers, Recorder ────────────────────────┴──> run until shutdown
//! ```
//!
//! A new controller is a module and a line in [`CONTROLLERS`].

mod autoscaler;
pub mod bootstrap_tokens;
pub mod certificates;
mod config;
mod cron_job;
mod daemon_set;
mod deployment;
pub mod discovery;
mod disruption;
pub mod endpoints;
mod flags;
pub mod garbage_collector;
mod hash;
mod history;
mod int_or_percent;
mod job;
mod manager;
mod metrics;
pub mod namespace;
pub mod node_ipam;
pub mod node_lifecycle;
pub mod pod_gc;
mod pods;
mod replica_set;
pub mod resource_quota;
pub mod runtime;
pub mod service_accounts;
mod service_cidrs;
mod stateful_set;
pub mod taint_eviction;
mod ttl_after_finished;
pub mod volumes;

pub use config::Config;
pub use flags::Flags;
pub use manager::{Error, run};
pub use metrics::Metrics;

use runtime::{Context, Task};

/// A controller, as `--controllers` knows it.
pub struct Entry {
    /// Upstream's name, such as `replicaset-controller`.
    pub name: &'static str,
    /// The shorter name that older versions had; empty where there is none.
    pub alias: &'static str,
    /// The service account in `kube-system` that it acts as.
    pub account: &'static str,
    /// Makes it.
    pub start: fn(&Context) -> Task,
}

/// One line per controller.
pub const CONTROLLERS: &[Entry] = &[
    entry("cronjob-controller", "cronjob", "cronjob-controller", cron_job::start),
    entry("daemonset-controller", "daemonset", "daemon-set-controller", daemon_set::start),
    entry("deployment-controller", "deployment", "deployment-controller", deployment::start),
    entry("disruption-controller", "disruption", "disruption-controller", disruption::start),
    entry(
        "horizontal-pod-autoscaler-controller",
        "horizontalpodautoscaling",
        "horizontal-pod-autoscaler",
        autoscaler::start,
    ),
    entry("job-controller", "job", "job-controller", job::start),
    entry("replicaset-controller", "replicaset", "replicaset-controller", replica_set::start),
    entry(
        "replicationcontroller-controller",
        "replicationcontroller",
        "replication-controller",
        replica_set::start_replication_controllers,
    ),
    entry("statefulset-controller", "statefulset", "statefulset-controller", stateful_set::start),
    entry(
        "ttl-after-finished-controller",
        "ttl-after-finished",
        "ttl-after-finished-controller",
        ttl_after_finished::start,
    ),
    // Of the cluster itself.
    entry("endpoints-controller", "endpoint", "endpoint-controller", endpoints::start_legacy),
    entry("endpointslice-controller", "endpointslice", "endpointslice-controller", endpoints::start_slices),
    entry(
        "endpointslice-mirroring-controller",
        "endpointslicemirroring",
        "endpointslicemirroring-controller",
        endpoints::start_mirroring,
    ),
    entry(
        "garbage-collector-controller",
        "garbagecollector",
        "generic-garbage-collector",
        garbage_collector::start,
    ),
    entry("namespace-controller", "namespace", "namespace-controller", namespace::start),
    entry("node-ipam-controller", "nodeipam", "node-controller", node_ipam::start),
    entry("node-lifecycle-controller", "nodelifecycle", "node-controller", node_lifecycle::start),
    entry("taint-eviction-controller", "", "node-controller", taint_eviction::start),
    entry("pod-garbage-collector-controller", "podgc", "pod-garbage-collector", pod_gc::start),
    entry(
        "serviceaccount-controller",
        "serviceaccount",
        "service-account-controller",
        service_accounts::start_accounts,
    ),
    entry("service-cidr-controller", "", "service-cidrs-controller", service_cidrs::start),
    entry(
        "root-ca-certificate-publisher-controller",
        "root-ca-cert-publisher",
        "root-ca-cert-publisher",
        service_accounts::start_root_ca,
    ),
    entry(
        "certificatesigningrequest-approving-controller",
        "csrapproving",
        "certificate-controller",
        certificates::start_approving,
    ),
    entry(
        "certificatesigningrequest-signing-controller",
        "csrsigning",
        "certificate-controller",
        certificates::start_signing,
    ),
    entry(
        "certificatesigningrequest-cleaner-controller",
        "csrcleaner",
        "certificate-controller",
        certificates::start_cleaning,
    ),
    entry(
        "bootstrap-signer-controller",
        "bootstrapsigner",
        "bootstrap-signer",
        bootstrap_tokens::start_signer,
    ),
    entry("resourcequota-controller", "resourcequota", "resourcequota-controller", resource_quota::start),
    entry(
        "persistentvolume-binder-controller",
        "persistentvolume-binder",
        "persistent-volume-binder",
        volumes::start_binder,
    ),
    entry(
        "persistentvolumeclaim-protection-controller",
        "pvc-protection",
        "pvc-protection-controller",
        volumes::start_claim_protection,
    ),
    entry(
        "persistentvolume-protection-controller",
        "pv-protection",
        "pv-protection-controller",
        volumes::start_volume_protection,
    ),
    entry(
        "ephemeral-volume-controller",
        "ephemeral-volume",
        "ephemeral-volume-controller",
        volumes::start_ephemeral,
    ),
    entry("token-cleaner-controller", "tokencleaner", "token-cleaner", bootstrap_tokens::start_cleaner),
];

const fn entry(
    name: &'static str,
    alias: &'static str,
    account: &'static str,
    start: fn(&Context) -> Task,
) -> Entry {
    Entry { name, alias, account, start }
}
