//! Workflows: durable runs over functions and jobs.
//!
//! ```text
//! event ──> advance(status, event, now) ──> the next status ──one compare-and-swap──> WorkflowRun
//!                                                │                                       └──> WorkflowSteps
//!           running(status), due(status) ────────┴──> what is to be under way, and when to look again
//! ```
//!
//! The engine is a pure function: a run's status is all it knows, and what has to be done outside follows from the status
//! alone, after a crash as before. [`Runner`] is the thin edge: informers, one wheel of times for all runs, and the writes.

mod access;
mod calls;
mod conditions;
mod data;
mod engine;
mod failing;
mod jobs;
mod keep;
mod routes;
mod runner;
mod schedules;
mod store;
mod tally;
mod wheel;

pub use engine::{Event, Failure, Outcome, advance};
pub(crate) use routes::{Leading, routes};
pub(crate) use runner::{Runner, RunnerParts};
pub use runner::{Tap, Transition};
pub use tally::Tally;

#[cfg(test)]
mod tests;
