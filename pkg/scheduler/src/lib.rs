//! Which node a pod runs on.

mod cluster;
mod filter;
mod place;
mod preempt;
mod reasons;
mod requests;
mod rules;
mod score;
mod slab;
mod terms;
mod volumes;
pub mod wire;

pub use cluster::{Cluster, NodeChange, NodeId, PodChange, PodId};
pub use place::{Profile, Refusal, Search};
pub use preempt::{Preemption, Victim};
pub use volumes::ClaimAction;
