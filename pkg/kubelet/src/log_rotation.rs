//! Log files that have grown too long are moved aside, packed, and in the end removed.
//!
//! ```text
//! 0.log ──> 0.log.20261116-120000 ──> 0.log.20261116-120000.gz ──> gone
//! ```

use crate::local::PodTable;
use crate::shared::Shared;
use crate::worker::pod_ref;
use jiff::Timestamp;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the sizes are looked at, as upstream.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How much of a container's log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// A file has at most about this.
    pub bytes: u64,
    /// Files at most, the present one among them.
    pub files: usize,
}

/// Rotates logs until the token is cancelled.
pub(crate) async fn run(
    shared: Arc<Shared>,
    table: Arc<PodTable>,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let rotate = async {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            for pod in table.pods() {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                if phase == Some("Running") {
                    rotate_pod(&shared, &pod_ref(&pod), limits).await;
                }
            }
        }
    };
    tokio::select! {
        () = rotate => {}
        () = shutdown.cancelled() => {}
    }
}

async fn rotate_pod(shared: &Shared, pod: &crate::runtime::PodRef, limits: Limits) {
    let Some(host) = &shared.host else { return };
    if !has_long_log(&host.paths.logs(pod), limits.bytes) {
        return;
    }
    let Ok(view) = shared.runtime.pod(pod).await else { return };
    for container in view.containers.iter().filter(|container| crate::plan::is_running(container)) {
        let log = container.log_path.clone();
        let is_long = std::fs::metadata(&log).is_ok_and(|found| found.len() > limits.bytes);
        if !is_long {
            continue;
        }
        let rotated = log.clone();
        let moved = tokio::task::spawn_blocking(move || rotate(&rotated, limits, Timestamp::now())).await;
        if let Ok(Err(error)) = moved {
            tracing::warn!(log = %log.display(), %error, "rotate a log");
        }
        if let Err(error) = shared.runtime.reopen_log(&container.id).await {
            tracing::warn!(log = %log.display(), %error, "open a log again");
        }
    }
}

/// A look at the folders alone, so that the runtime is asked only when there is something to do.
fn has_long_log(dir: &Path, bytes: u64) -> bool {
    let folders = std::fs::read_dir(dir).into_iter().flatten().flatten();
    folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten()).any(|file| {
        let is_log = file.path().extension().is_some_and(|extension| extension == "log");
        is_log && file.metadata().is_ok_and(|found| found.len() > bytes)
    })
}

/// Moves a log aside, packs those moved before, and removes the oldest.
fn rotate(log: &Path, limits: Limits, now: Timestamp) -> Result<()> {
    let older = rotated(log)?;
    // The present one and the one that is moved now take two places.
    let kept = limits.files.saturating_sub(2);
    let surplus = older.len().saturating_sub(kept);
    for (index, path) in older.iter().enumerate() {
        if index < surplus {
            std::fs::remove_file(path)?;
        } else if path.extension().is_none_or(|extension| extension != "gz") {
            pack(path)?;
        }
    }
    let stamp = now.strftime("%Y%m%d-%H%M%S").to_string();
    std::fs::rename(log, PathBuf::from(format!("{}.{stamp}", log.display())))
}

/// What was moved aside, the oldest first.
fn rotated(log: &Path) -> Result<Vec<PathBuf>> {
    let Some((dir, name)) = log.parent().zip(log.file_name()) else { return Ok(Vec::new()) };
    let prefix = format!("{}.", name.to_string_lossy());
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    // What a crash left half packed is packed again.
    for half in found.iter().filter(|path| path.extension().is_some_and(|extension| extension == "tmp")) {
        std::fs::remove_file(half)?;
    }
    found.retain(|path| path.exists());
    Ok(found)
}

/// The file that a log was before its last rotation: those before it are packed.
pub(crate) fn before_rotation(log: &Path) -> Option<PathBuf> {
    let prefix = format!("{}.", log.file_name()?.to_string_lossy());
    let entries = std::fs::read_dir(log.parent()?).ok()?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let plain = names.filter(|name| name.strip_prefix(&prefix).is_some_and(|stamp| !stamp.contains('.')));
    Some(log.with_file_name(plain.max()?))
}

fn pack(path: &Path) -> Result<()> {
    let half = PathBuf::from(format!("{}.tmp", path.display()));
    let mut encoder =
        flate2::write::GzEncoder::new(std::fs::File::create(&half)?, flate2::Compression::default());
    std::io::copy(&mut std::fs::File::open(path)?, &mut encoder)?;
    encoder.finish()?;
    std::fs::rename(&half, PathBuf::from(format!("{}.gz", path.display())))?;
    std::fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_logs_are_packed_and_then_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let log = dir.path().join("0.log");
        let limits = Limits { bytes: 1, files: 3 };
        for second in 0..5 {
            std::fs::write(&log, format!("line {second}\n")).expect("written");
            rotate(&log, limits, Timestamp::from_second(second).expect("a time")).expect("rotated");
        }
        std::fs::write(&log, "now\n").expect("written");
        let mut names: Vec<String> = std::fs::read_dir(dir.path())
            .expect("a folder")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["0.log", "0.log.19700101-000003.gz", "0.log.19700101-000004"]);
    }
}
