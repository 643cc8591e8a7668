//! Runs the pods of one node.

pub mod hash;
pub mod plan;
pub mod runtime;
