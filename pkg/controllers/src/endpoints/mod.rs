//! Who answers for a service: EndpointSlices, the older Endpoints, and slices mirrored from Endpoints.
//!
//! ```text
//! Service + Pods ──> slices    ──> EndpointSlice   (many, 100 endpoints each)
//!                ──> legacy    ──> Endpoints       (one, 1000 addresses at most)
//! Endpoints      ──> mirroring ──> EndpointSlice   (services without a selector)
//! ```

pub mod backends;
mod controllers;
pub mod legacy;
pub mod mirroring;
pub mod packing;
pub mod slices;

pub use controllers::{start_legacy, start_mirroring, start_slices};

#[cfg(test)]
mod tests;
