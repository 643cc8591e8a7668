//! What pods and everything that makes pods share: the pod's spec, its defaults and its rules.
//!
//! ```text
//! Pod ───────────────┐
//! Deployment, Job, … ┴─> PodTemplateSpec ─> PodSpec ─> containers, volumes, affinity, …
//! ```
//!
//! Nothing here looks beyond the one object: whether a secret exists or a node fits is for others to find out.

mod defaults;
mod validate;

pub use defaults::{
    default_claim_spec, default_pod_spec, default_template, default_volume_source, round_resources,
};
pub use validate::{Options, validate_pod_spec, validate_template};
