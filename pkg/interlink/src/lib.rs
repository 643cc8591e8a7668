//! Pods that run behind the REST interface of interLink, on both of its sides.
//!
//! ```text
//! kubelet ──> node (PodProvider) ── HTTP ──> api ── HTTP ──> plugin ──> Site: container, slurm
//!                  │                          │                │
//!                  └── asking, gather, caller ┴── door, secure ┴── wire: all that is sent, in one file
//! ```
//!
//! Each of the three may be somebody else's program: nothing is known of the next one but what [`wire`] says.

pub mod api;
pub mod asking;
pub mod caller;
pub mod config;
mod door;
mod gather;
mod names;
pub mod node;
pub mod plugin;
pub mod secure;
mod start;
pub mod wire;

pub use names::PodName;
pub use start::{Flags, run};
