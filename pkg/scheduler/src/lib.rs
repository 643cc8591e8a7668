//! Which node a pod runs on.
//!
//! ```text
//! watches ──> wire ──> Scheduler { Cluster, Queue } ──> Decision ──> bindings, conditions, evictions, events
//!                            └── place(pod) ── filter ──> score ──> a node, or why none ── preempt ──> who must go
//! ```
//!
//! [`Cluster`] and [`Scheduler`] are plain synchronous structures: events in, decisions out. [`run`] is the thin edge that
//! connects them to an apiserver.

mod answers;
mod cluster;
mod config;
mod execute;
mod filter;
mod metrics;
mod place;
mod preempt;
mod queue;
mod reasons;
mod requests;
mod rules;
mod run;
mod scheduler;
mod score;
mod slab;
mod terms;
mod volumes;
mod watch;
pub mod wire;

pub use cluster::{Cluster, NodeChange, NodeId, PodChange, PodId};
pub use config::{Config, Flags};
pub use metrics::Metrics;
pub use place::{Profile, Refusal, Search};
pub use preempt::{Preemption, Victim};
pub use queue::Waiting;
pub use run::{Error, run, run_with};
pub use scheduler::{Decision, Event, Kind, Object, Outcome, Scheduler, Target};
pub use volumes::ClaimAction;
