//! Services to packet filter rules, DNS objects and ingresses to nginx, names to addresses: what makes a node reach
//! what runs elsewhere.
//!
//! ```text
//! Objects (watched, and kept on disk) ──┬── services, slices ──> rules ──> Syncer ──> iptables-restore
//!                                       ├── services, slices, hosts ──> Zone ──> name server
//!                                       ├── DNS objects, ingresses ──> gateway ──> nginx, /etc/hosts
//!                                       └── nodes ──> network::overlay
//! ```
//!
//! What a packet or a question meets is made by pure functions ([`rules::render`], [`zone::Zone`],
//! [`gateway::render`]). Nobody else's rules, devices or files are touched, and all of it works on while the control
//! plane is dead.

mod conntrack;
mod flags;
pub mod gateway;
mod hosts;
pub mod iptables;
mod metrics;
mod nameserver;
mod node;
mod objects;
pub mod record;
mod removals;
pub mod rules;
mod run;
pub mod services;
pub mod syncer;
mod upstream;
mod web;
pub mod zone;

pub use flags::{Config, Flags, FlagsError};
pub use metrics::Status;
pub use run::{Error, cleanup, run};
