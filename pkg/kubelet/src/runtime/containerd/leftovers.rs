//! What is left of containers that are not there: somebody was stopped between making a part of one and the whole.

use super::super::Error;
use super::Engine;
use super::connection::Lenient;
use super::container::SNAPSHOT_LABEL;
use super::record::{KIND_LABEL, timestamp};
use crate::runtime::SandboxId;
use containerd_client::services::v1 as api;
use containerd_client::services::v1::snapshots::ListSnapshotsRequest;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// What is younger may belong to a container that is being made at this moment.
const SETTLED: Duration = Duration::from_secs(60);
/// Ours are named by a hash.
const LONG: usize = 64;

impl Engine {
    /// Removes roots, streams, folders and notes that are of no container or sandbox, while others are being made.
    pub(super) async fn remove_leftovers(&self) -> Result<(), Error> {
        let containers = self.containers(format!("labels.\"{KIND_LABEL}\"")).await?;
        self.remove_orphaned_roots(&containers, SETTLED).await;
        let known: HashSet<&str> = containers.iter().map(|container| container.id.as_str()).collect();
        let (root, state) = (&self.config.root_dir, &self.config.state_dir);
        for folder in [root.join("containers"), state.join("io"), state.join("sandboxes")] {
            for id in settled(&folder, SystemTime::now()).iter().filter(|id| !known.contains(id.as_str())) {
                if self.container(id).await?.is_none() {
                    tracing::info!(id, folder = %folder.display(), "remove what is left of a container");
                    self.close_log(id).await?;
                    self.unshare(&SandboxId(id.clone())).await?;
                    self.forget_start(id)?;
                }
            }
        }
        Ok(())
    }

    /// Removes roots that no container names, if they are older than this.
    pub(super) async fn remove_orphaned_roots(&self, containers: &[api::Container], age: Duration) {
        let mut client = self.connection.snapshots();
        let known: HashSet<&str> = containers.iter().map(|container| container.id.as_str()).collect();
        let request = ListSnapshotsRequest {
            snapshotter: self.config.snapshotter.clone(),
            filters: vec![format!("labels.\"{SNAPSHOT_LABEL}\"")],
        };
        let Ok(Some(mut found)) = client.list(request).await.if_found() else { return };
        let oldest = Timestamp::now() - SignedDuration::try_from(age).unwrap_or_default();
        let mut orphans = Vec::new();
        while let Ok(Some(page)) = found.message().await {
            let old = page.info.into_iter().filter(|info| {
                info.created_at.as_ref().is_none_or(|at| timestamp(at.seconds, at.nanos) <= oldest)
            });
            let names = old.map(|info| info.name);
            orphans.extend(names.filter(|name| !known.contains(name.as_str()) && name.len() == LONG));
        }
        for orphan in orphans {
            // One that is being made at this moment has its container by now, or is made again.
            if matches!(self.container(&orphan).await, Ok(None))
                && let Err(error) = self.remove_root(&orphan).await
            {
                tracing::debug!(%error, "an orphaned root stays");
            }
        }
    }
}

/// What of ours has been in a folder for a while.
fn settled(folder: &Path, now: SystemTime) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let old = entries.filter(|entry| {
        let changed = entry.metadata().and_then(|found| found.modified());
        changed.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > SETTLED))
    });
    old.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.len() == LONG).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_and_has_settled_is_left_over() {
        let dir = tempfile::tempdir().expect("a folder");
        let id = "a".repeat(LONG);
        std::fs::create_dir(dir.path().join(&id)).expect("a folder");
        std::fs::create_dir(dir.path().join("another")).expect("a folder");
        assert!(settled(dir.path(), SystemTime::now()).is_empty());
        assert_eq!(settled(dir.path(), SystemTime::now() + SETTLED * 2), [id]);
        assert!(settled(&dir.path().join("none"), SystemTime::now()).is_empty());
    }
}
