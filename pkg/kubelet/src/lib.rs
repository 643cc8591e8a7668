//! Runs the pods of one node.
//!
//! ```text
//! sources ──> pods ──> PodProvider: the local node ──> worker (one per pod) ──> plan ──> runtime, pod_network, host
//!                             │                                                          (containerd, bridge, volumes)
//!                             └──> changes ──> statuses ──> apiserver
//! node ──> the Node, its status and lease          server <── kubectl, through the apiserver
//! ```
//!
//! What to do for a pod is decided by one pure function, [`plan::plan_pod`]; everything else observes or obeys.

pub mod admission;
pub mod allocation;
mod beneath;
pub mod certificates;
mod cleanup;
pub mod config;
pub mod error;
mod events;
pub mod eviction;
pub mod flags;
pub mod hash;
mod health;
pub mod host;
pub mod image_access;
mod image_gc;
pub mod isolation;
pub mod local;
mod log_rotation;
pub mod node;
pub mod objects;
pub mod plan;
mod pod_logs;
pub mod pod_network;
mod pods;
pub mod probe;
pub mod provider;
pub mod providers;
mod run;
pub mod runtime;
mod serve;
pub mod server;
pub mod services;
mod shared;
pub mod simulated;
mod sources;
mod statuses;
mod volumes;
pub mod wake;
mod worker;

pub use cleanup::cleanup;
pub use config::Config;
pub use error::Error;
pub use events::Events;
pub use flags::Flags;
pub use run::{local, run};
