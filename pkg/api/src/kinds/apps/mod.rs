//! apps/v1: what keeps pods running.
//!
//! ```text
//! Deployment ──> ReplicaSet ──> pods
//! StatefulSet, DaemonSet ──> ControllerRevisions and pods
//! ```

pub mod controller_revision;
pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;
pub(crate) mod workload;
