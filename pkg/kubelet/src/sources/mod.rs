//! Where pods come from: the apiserver, and a folder of this node.

pub(crate) mod api;
pub(crate) mod files;
pub(crate) mod manifest;
pub(crate) mod mirror;

use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

/// What a source tells.
#[derive(Debug)]
pub(crate) enum Told {
    /// These are all pods that the apiserver has for this node.
    Listed(Vec<Arc<Pod>>),
    /// A pod is new or has changed.
    Applied(Arc<Pod>),
    /// A pod is gone.
    Deleted(Arc<Pod>),
    /// These are all pods of the folder.
    Files(Vec<Arc<Pod>>),
}
