//! Functions that scale from zero: the controller that owns their pods, and in front of them the activator, the only way in.
//!
//! ```text
//! Functions, Pods ── informers ──> Fleet ── scale(observed, now) ──> pods made, pods deleted
//! a call ── may they? ──> Fleet ── route(pods) ──> a seat in a pod, or a place in the queue ──> forwarded, streamed
//! pod has an address ──> link: connect, give it the source ──> Ready: the first in the queue goes
//! ```
//!
//! [`scale`](scale::scale) and [`route`](scale::route) are pure; [`Fleet`](fleet::Fleet) is a plain synchronous structure,
//! locked for each event; the rest is a thin edge. Of several replicas one leads, by lease, and takes the calls: so what
//! is under way is known exactly, and draining is a decision, not a race.

mod access;
mod activator;
mod answer;
mod call;
mod config;
mod controller;
mod definition;
mod events;
mod exchange;
mod fleet;
mod invoker;
mod link;
mod logs;
mod metrics;
mod pod;
mod promised;
mod revisions;
mod run;
mod runtimes;
mod scale;
mod tls;
mod triggers;
pub mod workflow;

pub use config::{Config, Flags};
pub use metrics::Metrics;
pub use run::{Error, run};
