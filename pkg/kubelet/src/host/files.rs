//! Where things of pods are on the node's disk, and the links that others expect.

use crate::pod_logs;
use crate::runtime::{ContainerId, PodRef};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::fs::DirBuilder;
use std::io::Result;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// The folder of what there was to say of pods that have ended.
const LAST_STATUSES: &str = "last-statuses";

/// The permissions of folders with things that are not everybody's.
const PRIVATE: u32 = 0o750;

/// Where things are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The kubelet's own folder.
    pub root: PathBuf,
    /// Logs by pod: `/var/log/pods`.
    pub pod_logs: PathBuf,
    /// Links to logs by container: `/var/log/containers`.
    pub container_logs: PathBuf,
}

impl Paths {
    /// All of a pod but its logs.
    pub fn pod(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    /// A volume of a pod; `plugin` as upstream writes it, such as `kubernetes.io~empty-dir`.
    pub fn volume(&self, uid: &str, plugin: &str, name: &str) -> PathBuf {
        self.pod(uid).join("volumes").join(plugin).join(name)
    }

    /// Where a sub-path of a volume is mounted for a container, by the number of its mount; as upstream.
    pub fn sub_path(&self, uid: &str, volume: &str, container: &str, index: usize) -> PathBuf {
        self.pod(uid).join("volume-subpaths").join(volume).join(container).join(index.to_string())
    }

    /// The last words of a container.
    pub fn message_file(&self, uid: &str, container: &str, attempt: u32) -> PathBuf {
        self.pod(uid).join("containers").join(container).join(attempt.to_string())
    }

    /// What there was to say of a pod when its containers were removed.
    fn last_status(&self, uid: &str) -> PathBuf {
        self.root.join(LAST_STATUSES).join(uid)
    }

    /// The logs of a pod.
    pub fn logs(&self, pod: &PodRef) -> PathBuf {
        self.pod_logs.join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
    }

    /// The log of a container.
    pub fn log(&self, pod: &PodRef, container: &str, attempt: u32) -> PathBuf {
        self.logs(pod).join(container).join(format!("{attempt}.log"))
    }

    fn link(&self, pod: &PodRef, container: &str, id: &ContainerId) -> PathBuf {
        self.container_logs.join(format!("{}_{}_{container}-{}.log", pod.name, pod.namespace, id.0))
    }
}

/// The folders that a pod's things go into. There are Secrets among them: nobody else of the node's users comes in.
pub(super) fn make_pod_dirs(paths: &Paths, pod: &Pod) -> Result<()> {
    let pod = crate::worker::pod_ref(pod);
    let dir = paths.pod(&pod.uid);
    for dir in [&dir, &dir.join("volumes"), &dir.join("containers")] {
        make_private(dir)?;
    }
    Ok(())
}

/// Makes a folder that only its owner and its group get into, also where it has been another's.
pub(crate) fn make_private(dir: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(dir)?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(PRIVATE))
}

/// An empty file that anybody may write, for a container's last words; and the folder of its log.
pub(super) fn make_container_files(paths: &Paths, pod: &PodRef, name: &str, attempt: u32) -> Result<PathBuf> {
    let file = paths.message_file(&pod.uid, name, attempt);
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    if !file.exists() {
        std::fs::write(&file, b"")?;
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666))?;
    pod_logs::make_folder(&paths.log(pod, name, attempt))?;
    Ok(file)
}

pub(super) fn link_log(paths: &Paths, pod: &PodRef, name: &str, id: &ContainerId, log: &Path) {
    let link = paths.link(pod, name, id);
    let made = std::fs::create_dir_all(&paths.container_logs).and_then(|()| {
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(log, &link)
    });
    if let Err(error) = made {
        tracing::warn!(link = %link.display(), %error, "link a log");
    }
}

/// Where the link of a container leads.
pub(super) fn kept_log(paths: &Paths, pod: &PodRef, id: &str) -> Option<PathBuf> {
    let (prefix, suffix) = (format!("{}_{}_", pod.name, pod.namespace), format!("-{id}.log"));
    let entries = std::fs::read_dir(&paths.container_logs).ok()?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let link = names.filter(|name| name.starts_with(&prefix)).find(|name| name.ends_with(&suffix))?;
    let log = std::fs::read_link(paths.container_logs.join(link)).ok()?;
    // Others may write there, too: what is not a log of this pod is none.
    let own = log.strip_prefix(paths.logs(pod)).ok()?;
    let is_plain = own.components().all(|part| matches!(part, Component::Normal(_)));
    (is_plain && own.components().count() == 2).then_some(log)
}

pub(super) fn remove_log(paths: &Paths, pod: &PodRef, name: &str, attempt: u32, id: &ContainerId) {
    let log = paths.log(pod, name, attempt);
    let _ = std::fs::remove_file(paths.link(pod, name, id));
    // Rotated ones are `0.log.20261116-120000` and `….gz`.
    let prefix = format!("{attempt}.log");
    if let Ok(folder) = pod_logs::folder(&log) {
        let names = folder.names(Path::new("")).unwrap_or_default();
        for name in names.iter().filter(|name| name.to_string_lossy().starts_with(&prefix)) {
            let _ = folder.remove(name);
        }
    }
    let _ = std::fs::remove_file(paths.message_file(&pod.uid, name, attempt));
}

/// Writes down what there is to say of a pod, so that not even a power failure makes it unsaid.
pub(super) fn keep_status(paths: &Paths, uid: &str, status: &PodStatus) -> Result<()> {
    std::fs::create_dir_all(paths.root.join(LAST_STATUSES))?;
    let text = serde_json::to_vec(status)?;
    pki::file::write(&paths.last_status(uid), &text, pki::file::Mode::Secret).map_err(std::io::Error::other)
}

/// What was written down of a pod.
pub(super) fn kept_status(paths: &Paths, uid: &str) -> Option<PodStatus> {
    serde_json::from_slice(&std::fs::read(paths.last_status(uid)).ok()?).ok()
}

/// Removes the logs of a pod, and what was written down of it.
pub(super) fn forget(paths: &Paths, pod: &PodRef) {
    let _ = std::fs::remove_file(paths.last_status(&pod.uid));
    let _ = std::fs::remove_dir_all(paths.logs(pod));
    remove_dangling_links(paths);
}

/// Removes all of pods that are not known. It is asked of each when its things have been found.
pub(super) fn sweep(paths: &Paths, is_known: impl Fn(&str) -> bool) {
    for entry in std::fs::read_dir(paths.root.join("pods")).into_iter().flatten().flatten() {
        let uid = entry.file_name().to_string_lossy().into_owned();
        if !is_known(&uid)
            && let Err(error) = crate::volumes::remove_tree(&entry.path())
        {
            tracing::warn!(uid, %error, "remove what a pod left");
        }
    }
    for entry in std::fs::read_dir(&paths.pod_logs).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let uid = name.rsplit('_').next().unwrap_or_default();
        if name.matches('_').count() >= 2 && !is_known(uid) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    // What a crash left beside one is nobody's either.
    for entry in std::fs::read_dir(paths.root.join(LAST_STATUSES)).into_iter().flatten().flatten() {
        if !is_known(last_status_of(&entry.file_name().to_string_lossy())) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    remove_dangling_links(paths);
}

/// Whose last status a file is, or is to become.
fn last_status_of(file: &str) -> &str {
    file.split('.').next().unwrap_or(file)
}

/// Links whose log is gone.
fn remove_dangling_links(paths: &Paths) {
    for entry in std::fs::read_dir(&paths.container_logs).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = std::fs::read_link(&path).is_ok_and(|target| target.starts_with(&paths.pod_logs));
        if ours && !path.exists() {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_of_a_pod_last_is_kept_as_long_as_the_pod() {
        let dir = tempfile::tempdir().expect("a folder");
        let (root, logs) = (dir.path().join("root"), dir.path().join("logs"));
        let paths = Paths { root, pod_logs: logs.clone(), container_logs: logs };
        let status = PodStatus { phase: Some("Failed".into()), ..PodStatus::default() };
        assert_eq!(kept_status(&paths, "a"), None);
        for uid in ["a", "b"] {
            keep_status(&paths, uid, &PodStatus::default()).expect("written");
            keep_status(&paths, uid, &status).expect("written again");
        }
        sweep(&paths, |uid| uid == "a");
        assert_eq!((kept_status(&paths, "a"), kept_status(&paths, "b")), (Some(status), None));
        forget(&paths, &PodRef { namespace: "n".into(), name: "p".into(), uid: "a".into() });
        assert_eq!(kept_status(&paths, "a"), None);
    }
}
