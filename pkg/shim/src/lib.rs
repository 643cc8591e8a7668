//! A containerd runtime: one process for the containers of all pods of a node.
//!
//! ```text
//! containerd ── start ──> bootstrap ─┬─ plan: ours ──> the node's shim (service) ── script ──> keeper (one for each pod)
//!                                    └─ plan: not ──> containerd-shim-runc-v2                    └─> container
//! ```
//!
//! It owns what happens between "create this task" and the container's own program: namespaces, mounts, control groups,
//! users, filters. It never looks at images or networks, and never does half of what a specification says: [`plan`]
//! decides before anything is made, and what it does not know goes to runc.

mod assembly;
mod bootstrap;
mod capabilities;
mod cgroups;
mod container;
mod events;
mod io;
mod keeper;
mod oci;
pub mod plan;
mod process;
#[allow(dead_code, reason = "what only the keeper uses is in the same file")]
mod script;
mod seccomp;
mod service;
mod setup;
mod state;

pub use bootstrap::main;
