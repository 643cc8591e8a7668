//! The volumes of pods: made before containers start, kept up to date while they run, removed after them.
//!
//! ```text
//! hostPath ─────────────> the node's own path
//! emptyDir ─────────────> a folder, or a tmpfs
//! configMap, secret,
//! projected, downward ──> payload (files and modes) ──> AtomicDir: ..data -> ..<time>, links beside it
//! claim ── PV ──────────> hostPath or local
//! ```
//!
//! Mounting again what is mounted is how volumes are brought up to date.

mod atomic;
mod claim;
mod host_path;
mod ownership;
mod payload;
mod sub_path;
mod token;
mod tree;

pub(crate) use sub_path::prepare as prepare_sub_path;
pub(crate) use tree::{remove_tree, share, unshare};

use crate::host::Host;
use crate::wake::Wake;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod, Volume};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EMPTY_DIR: &str = "kubernetes.io~empty-dir";

/// Why a volume is not there.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct MountError {
    message: String,
}

impl MountError {
    /// About a pod as a whole.
    pub fn pod(message: String) -> MountError {
        MountError { message }
    }

    fn volume(name: &str, message: impl std::fmt::Display) -> MountError {
        MountError { message: format!("MountVolume.SetUp failed for volume \"{name}\" : {message}") }
    }
}

/// Volumes that are not where their kind alone says: the claims of pods, by uid and name.
#[derive(Default)]
pub struct Volumes {
    claims: Mutex<BTreeMap<(String, String), (PathBuf, bool)>>,
}

impl Volumes {
    /// Mounts all volumes of a pod; says when one of them has to be brought up to date.
    pub(crate) async fn mount(
        &self,
        host: &Host,
        pod: &Arc<Pod>,
        wake: &Arc<Wake>,
    ) -> Result<Option<Timestamp>, MountError> {
        let mut refresh_at: Option<Timestamp> = None;
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let due = self
                .mount_one(host, pod, volume, wake)
                .await
                .map_err(|message| MountError::volume(&volume.name, message))?;
            refresh_at = match (refresh_at, due) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        Ok(refresh_at)
    }

    async fn mount_one(
        &self,
        host: &Host,
        pod: &Arc<Pod>,
        volume: &Volume,
        wake: &Arc<Wake>,
    ) -> Result<Option<Timestamp>, String> {
        let uid = uid(pod);
        if let Some(source) = &volume.host_path {
            host_path::check(Path::new(&source.path), source.type_.as_deref().unwrap_or_default())?;
            return Ok(None);
        }
        if let Some(source) = &volume.empty_dir {
            let dir = host.paths.volume(uid, EMPTY_DIR, &volume.name);
            let ready = host.paths.pod(uid).join("plugins").join(EMPTY_DIR).join(&volume.name).join("ready");
            empty_dir(&dir, source, pod, &ready).map_err(|error| error.to_string())?;
            return Ok(None);
        }
        if let Some(source) = claim::name(pod, volume) {
            let found = claim::resolve(host, pod, &source).await?;
            let key = (uid.to_owned(), volume.name.clone());
            let is_new = !self.claims.lock().contains_key(&key);
            if let claim::Found { path, read_only: false, is_local: true } = &found
                && is_new
            {
                let (path, pod) = (path.clone(), pod.clone());
                let given = tokio::task::spawn_blocking(move || ownership::apply(&path, &pod, false)).await;
                given.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
            }
            let found = (found.path, found.read_only);
            self.claims.lock().insert(key, found);
            return Ok(None);
        }
        let Some(kind) = payload::plugin(volume) else {
            return Err("this kind of volume is not supported".into());
        };
        let dir = host.paths.volume(uid, kind, &volume.name);
        let payload = match payload::of(host, pod, volume, wake, &dir).await {
            Ok(payload) => payload,
            // What is there already serves while the apiserver is away.
            Err(payload::Missing::Away(why)) if atomic::is_written(&dir) => {
                tracing::debug!(volume = volume.name, why, "keep a volume as it is");
                return Ok(None);
            }
            Err(payload::Missing::Away(why) | payload::Missing::Absent(why)) => return Err(why),
        };
        if payload.in_memory {
            tree::mount_tmpfs(&dir, 0o755, None).map_err(|error| error.to_string())?;
        }
        let due = payload.refresh_at;
        let pod = pod.clone();
        let write = move || {
            atomic::write(&dir, &payload.files, Timestamp::now())?;
            ownership::apply(&dir, &pod, true)
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) => Ok(due),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Where a volume of a pod is on the node, and whether it may not be written to.
    pub(crate) fn path(&self, host: &Host, pod: &Pod, name: &str) -> Result<(PathBuf, bool), String> {
        let volume = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).find(|v| v.name == name);
        let volume = volume.ok_or_else(|| format!("the pod has no volume \"{name}\""))?;
        let uid = uid(pod);
        if let Some(source) = &volume.host_path {
            return Ok((source.path.clone().into(), false));
        }
        if volume.empty_dir.is_some() {
            return Ok((host.paths.volume(uid, EMPTY_DIR, name), false));
        }
        if claim::name(pod, volume).is_some() {
            let claims = self.claims.lock();
            let found = claims.get(&(uid.to_owned(), name.to_owned())).cloned();
            return found.ok_or_else(|| format!("volume \"{name}\" is not mounted"));
        }
        let kind = payload::plugin(volume).ok_or_else(|| format!("volume \"{name}\" is not supported"))?;
        Ok((host.paths.volume(uid, kind, name), true))
    }

    /// Nothing is remembered of a pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.claims.lock().retain(|(of, _), _| of != uid);
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Makes an emptyDir, once: whatever containers make of it later is theirs. `ready` is the file that says that it is made.
fn empty_dir(dir: &Path, source: &EmptyDirVolumeSource, pod: &Pod, ready: &Path) -> std::io::Result<()> {
    let is_memory = source.medium.as_deref() == Some("Memory");
    if ready.exists() && dir.exists() && (!is_memory || tree::is_mounted(dir)?) {
        return Ok(());
    }
    std::fs::create_dir_all(dir)?;
    if is_memory {
        let size: Option<api::Quantity> = source.size_limit.as_ref().and_then(|size| size.0.parse().ok());
        tree::mount_tmpfs(dir, 0o777, size.map(|size| size.value()).filter(|size| *size > 0))?;
    }
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777))?;
    ownership::apply(dir, pod, false)?;
    ready.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::write(ready, "")
}
