//! Workflows.
#![allow(dead_code)]
#![allow(unused_imports)]
mod conditions;
mod data;
mod engine;
mod failing;
mod keep;
pub use engine::{Event, Failure, Outcome, advance, due, running};
pub use keep::{fill, spill};
#[cfg(test)]
mod tests;
