//! What pods and everything that makes pods share: the pod's spec, its defaults and its rules.
//!
//! ```text
//! Pod ───────────────┐
//! Deployment, Job, … ┴─> PodTemplateSpec ─> PodSpec ─> containers, volumes, affinity, …
//! ```
//!
//! Nothing here looks beyond the one object: whether a secret exists or a node fits is for others to find out.

mod claims;
mod containers;
mod defaults;
mod env;
mod handlers;
pub mod requests;
pub mod resources;
mod scheduling;
mod security;
mod validate;
mod volumes;

pub use claims::{validate_access_modes, validate_claim_spec};
pub use defaults::{
    default_claim_spec, default_own_pod_spec, default_pod_spec, default_template, default_volume_source,
    keep_service_account_names_alike, round_resources,
};
pub(crate) use defaults::{fill, list_mut};
pub use handlers::validate_port_or_name;
pub use scheduling::{validate_node_selector, validate_tolerations};
pub use validate::{Options, validate_pod_annotations, validate_pod_spec, validate_template};
pub use volumes::validate_csi_driver_name;
pub(crate) use volumes::validate_volume_source;
