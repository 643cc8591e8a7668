//! Persistent volumes: binding claims to volumes that are there, claims of ephemeral volumes, and holding on to what is
//! in use.
//!
//! ```text
//! PersistentVolumeClaim ──binding──> PersistentVolume     (both know each other, then both are Bound)
//! Pod ──ephemeral──> PersistentVolumeClaim                (of a volume that lives as long as the pod)
//! protection: a finalizer on each, taken off when nobody uses it
//! ```

pub mod binding;
mod controllers;
pub mod ephemeral;
pub mod protection;

pub use controllers::{start_binder, start_claim_protection, start_ephemeral, start_volume_protection};

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

/// The claims that a pod uses.
pub fn claims(pod: &Pod) -> Vec<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name.clone()),
            (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
            (None, None) => None,
        })
        .collect()
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
