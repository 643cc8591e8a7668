//! Runs the pods of one node.

pub mod runtime;
pub mod server;
