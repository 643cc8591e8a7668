//! The kubelet's API and the way to it through a real apiserver, with the clients that people use.
//!
//! The containers here are processes of this machine: what is tested is everything between a client and the runtime.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod clients;
#[path = "../containerd/node.rs"]
#[allow(dead_code, reason = "what the runtime's own tests need")]
mod containerd_node;
mod direct;
mod logs;
mod metrics;
mod node;
mod processes;
mod real;
