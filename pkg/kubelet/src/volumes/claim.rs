//! Persistent volumes: a claim leads to a volume that is a path of this node.

use super::host_path;
use crate::host::Host;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use kube::{Api, Client};
use std::path::{Path, PathBuf};

/// A claim of a pod.
pub(super) struct Source {
    name: String,
    read_only: bool,
}

/// The claim that a volume is, if it is one.
pub(super) fn name(pod: &Pod, volume: &Volume) -> Option<Source> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(Source { name: source.claim_name.clone(), read_only: source.read_only == Some(true) });
    }
    // A claim of the pod's own is made by a controller, under this name.
    volume.ephemeral.as_ref()?;
    let name = format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name);
    Some(Source { name, read_only: false })
}

/// The volume of a claim.
pub(super) struct Found {
    /// Where it is on this node.
    pub path: PathBuf,
    /// It may not be written to.
    pub read_only: bool,
    /// It is a disk for pods; otherwise a path of the node's own.
    pub is_local: bool,
}

/// The volume that a claim leads to.
pub(super) async fn resolve(host: &Host, pod: &Pod, source: &Source) -> Result<Found, String> {
    let client: Client = host.client.clone().ok_or("this kubelet has no apiserver")?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let claim = claims.get(&source.name).await.map_err(|error| format!("fetch the claim: {error}"))?;
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let volume =
        claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty());
    let (Some("Bound"), Some(volume)) = (phase, volume) else {
        return Err(format!("PVC {namespace}/{} is not bound", source.name));
    };
    let volumes: Api<PersistentVolume> = Api::all(client);
    let volume = volumes.get(&volume).await.map_err(|error| format!("fetch the volume: {error}"))?;
    let spec = volume.spec.unwrap_or_default();
    let read_only = source.read_only
        || spec.access_modes.as_ref().is_some_and(|modes| modes.iter().all(|mode| mode == "ReadOnlyMany"));
    if let Some(path) = &spec.host_path {
        host_path::check(Path::new(&path.path), path.type_.as_deref().unwrap_or_default())?;
        return Ok(Found { path: path.path.clone().into(), read_only, is_local: false });
    }
    if let Some(local) = &spec.local {
        if !Path::new(&local.path).exists() {
            return Err(format!("path \"{}\" does not exist", local.path));
        }
        return Ok(Found { path: local.path.clone().into(), read_only, is_local: true });
    }
    Err("this kind of persistent volume is not supported".into())
}
