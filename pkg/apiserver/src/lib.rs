//! The HTTP surface: routes, identity, admission, patches, watches.
//!
//! ```text
//! connections ─ tls ─> handler ─ request, identity ─> verbs/* ─ write ─ admission ─> storage ─> store
//!                         │                              └──── answer <──── registry (caches) <── listwatch
//!                         ├─ flowcontrol: a seat, a place in a queue, or 429
//!                         ├─> health, meta_paths (discovery, openapi), reviews, subresources/*
//!                         ├─> nodes/* ──> kubelets, pods: logs, exec, proxy, metrics.k8s.io
//!                         └─> apiservices/* ──> servers of other groups
//! ```
//!
//! Inside, an object is JSON, checked against its kind's schema. What is read is what the caches hold: bytes that
//! were encoded once. What is written goes through [`write`], whatever verb brought it.
//!
//! It never talks to other components, they talk to it; only what clients want of a node, a pod or another
//! server is passed on (`nodes`, `apiservices`).

mod account_tokens;
pub mod admission;
mod aggregated_roles;
pub mod answer;
mod apiservices;
pub mod auth;
pub mod backup;
mod body;
mod bootstrap;
mod budget;
mod client_tls;
mod compaction;
mod component_statuses;
pub mod config;
mod connections;
pub mod context;
mod conversion;
mod crds;
mod deadline;
pub mod decode;
pub mod deletion;
pub mod discovery;
pub mod encoding;
mod encryption;
pub mod error;
pub mod flags;
mod flowcontrol;
pub mod handler;
mod health;
mod identity;
mod meta_paths;
mod metrics;
mod names;
pub mod negotiate;
mod nodes;
pub mod openapi;
mod peers;
mod publish;
mod quota;
pub mod registry;
pub mod request;
mod reseal;
mod reviews;
pub mod scope;
pub mod server;
mod services;
pub mod storage;
mod subresources;
mod time;
mod tls;
mod type_checking;
mod verbs;
pub mod write;

pub use config::{Config, EtcdConfig};
pub use flags::Flags;
pub use server::{Server, StartError, run};
pub use services::ServiceRanges;
