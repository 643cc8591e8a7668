//! The pods of a watched folder: one file, one pod.
//!
//! A file that cannot be read as a pod keeps the pod that it was before, and says so once.

use super::{Told, manifest};
use crate::error::Error;
use crate::events::Events;
use client::EventType;
use k8s_openapi::api::core::v1::Pod;
use notify::event::AccessKind;
use notify::{EventKind, RecursiveMode, Watcher};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

/// An editor writes a file in several steps; the folder is read when nothing has happened for this long.
const SETTLED: Duration = Duration::from_millis(100);
/// A folder that went away is looked for again after this long.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST_FILE: u64 = 3 << 20;

/// The folder, and what was read from it.
pub(crate) struct Folder {
    /// Which.
    pub path: PathBuf,
    /// The node's name.
    pub node: String,
    /// Where complaints go.
    pub events: Events,
    read: BTreeMap<PathBuf, Known>,
}

struct Known {
    text: String,
    pod: Option<Arc<Pod>>,
}

impl Folder {
    /// Not read yet; made if it does not exist.
    pub fn new(path: PathBuf, node: String, events: Events) -> Result<Folder, Error> {
        std::fs::create_dir_all(&path).map_err(|source| Error::File {
            doing: "make the folder of manifests",
            path: path.clone(),
            source,
        })?;
        Ok(Folder { path, node, events, read: BTreeMap::new() })
    }

    /// Follows the folder until the token is cancelled.
    pub async fn run(mut self, tell: mpsc::Sender<Told>, shutdown: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let mut watcher = None;
        loop {
            if watcher.is_none() {
                watcher = watch(&self.path, changed.clone());
            }
            if tell.send(Told::Files(self.scan())).await.is_err() {
                return;
            }
            let pause = async {
                match watcher {
                    Some(_) => std::future::pending().await,
                    None => tokio::time::sleep(AGAIN).await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = pause => {}
                () = changed.notified() => {
                    while tokio::time::timeout(SETTLED, changed.notified()).await.is_ok() {}
                    if !self.path.is_dir() {
                        watcher = None;
                    }
                }
            }
        }
    }

    /// All pods of the folder, as far as they can be read.
    fn scan(&mut self) -> Vec<Arc<Pod>> {
        let mut now = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            let is_file =
                std::fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() < LONGEST_FILE);
            if let (true, Ok(text)) = (is_file, std::fs::read_to_string(&path)) {
                let before = self.read.remove(&path);
                now.insert(path.clone(), self.take(&path, text, before));
            }
        }
        self.read = now;
        let mut pods: Vec<Arc<Pod>> = self.read.values().filter_map(|known| known.pod.clone()).collect();
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        pods
    }

    fn take(&self, path: &Path, text: String, before: Option<Known>) -> Known {
        if let Some(known) = &before
            && known.text == text
        {
            return Known { text, pod: known.pod.clone() };
        }
        match manifest::parse(&text, path, &self.node) {
            Ok(mut pod) => {
                let seen = jiff::Timestamp::now().to_string();
                pod.metadata.annotations.get_or_insert_default().insert(manifest::SEEN.into(), seen);
                Known { text, pod: Some(Arc::new(pod)) }
            }
            Err(why) => {
                let message = format!("static pod manifest {}: {why}", path.display());
                tracing::error!("{message}");
                self.events.node(&self.node, EventType::Warning, "FailedValidation", message);
                Known { text, pod: before.and_then(|known| known.pod) }
            }
        }
    }
}

fn watch(path: &Path, changed: Arc<Notify>) -> Option<notify::RecommendedWatcher> {
    // Reading the folder opens its files: nothing has changed by that.
    let is_read = |event: &notify::Event| matches!(event.kind, EventKind::Access(AccessKind::Open(_)));
    let told = move |event: notify::Result<notify::Event>| {
        if !event.as_ref().is_ok_and(is_read) {
            changed.notify_one();
        }
    };
    let watching = notify::recommended_watcher(told).and_then(|mut watcher| {
        watcher.watch(path, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    match watching {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "watch the folder of manifests");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_file_keeps_the_pod_that_it_was() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut folder = Folder::new(dir.path().into(), "n1".into(), Events::default()).expect("a folder");
        let write = |text: &str| std::fs::write(dir.path().join("web.yaml"), text).expect("written");
        let good =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: c, image: a}]\n";
        write(good);
        std::fs::write(dir.path().join(".swap"), good).expect("written");
        let first = folder.scan();
        assert_eq!(first.len(), 1);
        write("kind: [");
        assert_eq!(folder.scan(), first);
        assert_eq!(folder.scan(), first, "also the second time");
        write(&good.replace("image: a", "image: b"));
        assert_ne!(folder.scan()[0].metadata.uid, first[0].metadata.uid);
        std::fs::remove_file(dir.path().join("web.yaml")).expect("removed");
        assert!(folder.scan().is_empty());
    }
}
