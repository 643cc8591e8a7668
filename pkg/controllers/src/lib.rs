//! One module per controller, all of one shape: observe → plan → execute. See [`runtime`].
//!
//! ```text
//! CONTROLLERS ──those that --controllers names──> start(context) ──> Task ┐
//! LeaderElection ──> lead ──> Informers, Recorder ────────────────────────┴──> run until shutdown
//! ```
//!
//! A new controller is a module and a line in [`CONTROLLERS`].

mod autoscaler;
mod config;
mod cron_job;
mod daemon_set;
mod deployment;
mod disruption;
mod flags;
mod hash;
mod history;
mod int_or_percent;
mod job;
mod manager;
mod metrics;
mod pods;
mod replica_set;
pub mod runtime;
mod stateful_set;
mod ttl_after_finished;

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
];

const fn entry(
    name: &'static str,
    alias: &'static str,
    account: &'static str,
    start: fn(&Context) -> Task,
) -> Entry {
    Entry { name, alias, account, start }
}
