//! resource.k8s.io/v1: devices that drivers offer, and claims of pods on them.
//!
//! Kept and served for the scheduler, controllers and drivers that allocate them; expressions in CEL are not compiled.

pub mod device_class;
mod devices;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_slice;
