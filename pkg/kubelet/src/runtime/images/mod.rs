//! Images: named manifests in containerd, their contents in its content store, their layers as snapshots.
//!
//! ```text
//! registry ── pull ──┐                                        ┌── snapshots (layers, by chain id)
//! archive ── import ─┴─> content (manifest, config, layers) ──┴── names: tag, digest, id
//! ```
//!
//! An image has three names in containerd, as those that containerd's own Kubernetes plugin makes: with its tag, with its
//! digest, and the digest of its configuration, which is its id. Labels on the contents keep what belongs to an image
//! that has a name from being collected; a lease does while it is being made.

mod content;
mod hosts;
mod import;
mod manifest;
mod pull;
mod reference;
mod store;

pub use import::{import, look};
pub(crate) use manifest::ImageConfig;
pub(crate) use pull::Pulls;
pub use reference::{normalize, repository};
pub(crate) use store::Images;
