//! The pods that the API server was given, a file each, written whole: what was acknowledged is known after a crash.
//!
//! Values of Secrets and ConfigMaps are never among what is kept.

use crate::names::{PodName, is_part};
use crate::wire::{self, PodState};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use pki::file::{Mode, write};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A pod that was given to the plugin, or was about to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptPod {
    /// Its uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The plugin's name of its job.
    pub job: String,
    /// The plugin has taken it.
    pub is_accepted: bool,
    /// As much of it as a request for its status needs.
    pub brief: Value,
}

impl KeptPod {
    /// About to be given.
    pub fn new(name: &PodName, pod: &Pod) -> KeptPod {
        let PodName { namespace, name, uid } = name.clone();
        KeptPod { uid, namespace, name, job: String::new(), is_accepted: false, brief: wire::brief(pod) }
    }

    /// Whether a status is of this pod. The first generation names no uid.
    pub fn is(&self, state: &PodState) -> bool {
        match state.uid.is_empty() {
            false => state.uid == self.uid,
            true => {
                state.name == self.name && (state.namespace.is_empty() || state.namespace == self.namespace)
            }
        }
    }
}

/// All of them.
pub(crate) struct Kept {
    folder: PathBuf,
    pods: Mutex<BTreeMap<String, Arc<KeptPod>>>,
}

impl Kept {
    /// Those of a folder, which is made if it is not there.
    pub fn open(root: &Path) -> Result<Kept> {
        let folder = root.join("pods");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let mut pods = BTreeMap::new();
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match serde_json::from_slice::<KeptPod>(&std::fs::read(&path)?) {
                Ok(pod) if is_part(&pod.uid) => drop(pods.insert(pod.uid.clone(), Arc::new(pod))),
                Ok(_) => tracing::error!(file = %path.display(), "this file names no pod"),
                Err(error) => {
                    tracing::error!(file = %path.display(), %error, "this file cannot be read, its pod is forgotten")
                }
            }
        }
        Ok(Kept { folder, pods: Mutex::new(pods) })
    }

    /// Keeps a pod; it is on disk when this returns.
    pub fn put(&self, pod: &KeptPod) -> std::result::Result<(), pki::Error> {
        let text = serde_json::to_vec(pod).unwrap_or_default();
        write(&self.file(&pod.uid), &text, Mode::Secret)?;
        self.pods.lock().insert(pod.uid.clone(), Arc::new(pod.clone()));
        Ok(())
    }

    /// One of them.
    pub fn get(&self, uid: &str) -> Option<KeptPod> {
        self.pods.lock().get(uid).map(|pod| (**pod).clone())
    }

    /// Nothing more is known of it.
    pub fn remove(&self, uid: &str) {
        if self.pods.lock().remove(uid).is_none() {
            return;
        }
        match std::fs::remove_file(self.file(uid)) {
            Err(error) if error.kind() != ErrorKind::NotFound => tracing::warn!(%error, "forget a pod"),
            _ => {}
        }
    }

    /// All that the plugin has.
    pub fn all(&self) -> Vec<Arc<KeptPod>> {
        self.pods.lock().values().filter(|pod| pod.is_accepted).cloned().collect()
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.pods.lock().len()
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.folder.join(format!("{uid}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn pods_are_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}})).unwrap();
        let name = PodName::of(&pod).unwrap();
        let kept = Kept::open(dir.path()).unwrap();
        let accepted = KeptPod { is_accepted: true, job: "7".into(), ..KeptPod::new(&name, &pod) };
        kept.put(&accepted).unwrap();
        std::fs::write(dir.path().join("pods/broken.json"), "{").unwrap();
        let again = Kept::open(dir.path()).unwrap();
        assert_eq!(again.get("u"), Some(accepted));
        assert_eq!(again.count(), 1);
        let mode = std::fs::metadata(dir.path().join("pods/u.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        again.remove("u");
        again.remove("../../x");
        assert_eq!(Kept::open(dir.path()).unwrap().count(), 0);
    }
}
