//! Log files that have grown too long are moved aside, packed, and in the end removed.
//!
//! ```text
//! 0.log ──> 0.log.20261116-120000 ──> 0.log.20261116-120000.gz ──> gone
//! ```

use crate::beneath::Root;
use crate::local::PodTable;
use crate::pod_logs;
use crate::shared::Shared;
use crate::worker::pod_ref;
use jiff::Timestamp;
use std::ffi::OsStr;
use std::io::Result;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the sizes are looked at, as upstream.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What is being packed is called so at the end.
const HALF: &str = ".tmp";

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
    let Some(name) = log.file_name().and_then(OsStr::to_str) else { return Ok(()) };
    let folder = pod_logs::folder(log)?;
    let older = rotated(&folder, name)?;
    // The present one and the one that is moved now take two places.
    let kept = limits.files.saturating_sub(2);
    let surplus = older.len().saturating_sub(kept);
    for (index, other) in older.iter().enumerate() {
        if index < surplus {
            folder.remove(other.as_ref())?;
        } else if !other.ends_with(".gz") {
            pack(&folder, other)?;
        }
    }
    let stamp = now.strftime("%Y%m%d-%H%M%S").to_string();
    folder.rename(name.as_ref(), format!("{name}.{stamp}").as_ref())
}

/// What was moved aside, the oldest first.
fn rotated(folder: &Root, name: &str) -> Result<Vec<String>> {
    let prefix = format!("{name}.");
    let names = folder.names(Path::new(""))?.into_iter().filter_map(|name| name.into_string().ok());
    let mut found: Vec<String> = names.filter(|other| other.starts_with(&prefix)).collect();
    found.sort();
    // What a crash left half packed is packed again.
    for half in found.iter().filter(|other| other.ends_with(HALF)) {
        folder.remove(half.as_ref())?;
    }
    found.retain(|other| !other.ends_with(HALF));
    Ok(found)
}

/// The name of the file that a log was before its last rotation: those before it are packed.
pub(crate) fn before_rotation(folder: &Root, name: &str) -> Option<String> {
    let prefix = format!("{name}.");
    let names = folder.names(Path::new("")).ok()?.into_iter().filter_map(|name| name.into_string().ok());
    names.filter(|name| name.strip_prefix(&prefix).is_some_and(|stamp| !stamp.contains('.'))).max()
}

fn pack(folder: &Root, name: &str) -> Result<()> {
    let half = format!("{name}{HALF}");
    let packed = folder.create_new(half.as_ref(), 0o640)?;
    let mut encoder = flate2::write::GzEncoder::new(packed, flate2::Compression::default());
    std::io::copy(&mut folder.read(name.as_ref())?, &mut encoder)?;
    encoder.finish()?;
    folder.rename(half.as_ref(), format!("{name}.gz").as_ref())?;
    folder.remove(name.as_ref())
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

    #[test]
    fn what_is_not_ours_is_neither_packed_nor_written_to() {
        let dir = tempfile::tempdir().expect("a folder");
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "secret").expect("written");
        for link in ["0.log.19700101-000001", "1.log.19700101-000001.tmp"] {
            std::os::unix::fs::symlink(&secret, dir.path().join(link)).expect("a link");
        }
        for name in ["0.log", "1.log", "1.log.19700101-000001"] {
            std::fs::write(dir.path().join(name), "line").expect("written");
        }
        let limits = Limits { bytes: 1, files: 5 };
        let rotate = |name: &str| rotate(&dir.path().join(name), limits, Timestamp::UNIX_EPOCH);
        assert!(rotate("0.log").is_err());
        rotate("1.log").expect("what a crash seems to have left is removed");
        assert_eq!(std::fs::read_to_string(&secret).expect("there"), "secret");
        assert!(!dir.path().join("0.log.19700101-000001.gz").exists());
    }
}
