//! Backups, the same for both engines: one file, made while the store runs, restored into either.
//!
//! ```text
//! any store ──backup──> file (all entries at one revision) ──restore_embedded──> new directory
//!                                                          ──restore_etcd──────> etcd without our keys
//! ```
//!
//! # Revisions after a restore
//! The old store may have gone on after the backup was made, and its clients may have seen revisions that
//! the backup knows nothing of. If the restored store gave those out again, a client would take a new object
//! for one that it knows. So the restored store begins [`REVISION_GAP`] after the backup: more than any
//! cluster commits between a backup and its restore (a year of 30 commits a second without a pause).
//! Whoever follows changes from an old revision is told that it is compacted, and reads everything anew.

use crate::embedded::{Kind, SNAPSHOT_MAGIC, file_path};
use crate::record::{ReadError, Record, io_error};
use crate::{Entry, Error, Etcd, Range, Revision, Store, snapshot, unavailable};
use bytes::Bytes;
use std::fs::{self, File};
use std::path::Path;
use tokio::sync::mpsc;

/// A restored store begins this long after the revision of the backup.
pub const REVISION_GAP: Revision = 1_000_000_000;

const BACKUP_MAGIC: &[u8; 8] = b"mk8sbak1";
/// How many entries are read from the store at once.
const PAGE_ENTRIES: usize = 500;
/// How many entries wait to be written to etcd.
const RESTORE_QUEUE: usize = 100;

/// What a backup file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The revision that it is the state of.
    pub revision: Revision,
    /// How many entries it has.
    pub entries: u64,
}

/// Writes all entries as of now to a file, which must not exist; writers are not disturbed.
pub async fn backup(store: &dyn Store, to: &Path) -> Result<Summary, Error> {
    let doing = || format!("write the backup {}", to.display());
    if to.exists() {
        return Err(unavailable(doing(), "the file exists"));
    }
    let revision = store.revision().await?;
    let mut writer =
        snapshot::Writer::create(to, BACKUP_MAGIC, revision).map_err(|e| unavailable(doing(), e))?;
    let (mut after, mut entries) = (None, 0);
    loop {
        let range = Range { after, limit: PAGE_ENTRIES, revision: Some(revision), ..Range::default() };
        let page = store.range(range).await?;
        entries += page.entries.len() as u64;
        after = page.entries.last().map(|entry| entry.key.clone());
        writer = blocking(move || {
            for entry in &page.entries {
                writer.put(&entry.key, &entry.value, entry.modified, entry.created)?;
            }
            Ok(writer)
        })
        .await
        .map_err(|e| unavailable(doing(), e))?;
        if page.remaining == 0 {
            break;
        }
    }
    blocking(move || writer.finish()).await.map_err(|e| unavailable(doing(), e))?;
    Ok(Summary { revision, entries })
}

/// Checks a whole backup file, and says what is in it.
pub fn verify(file: &Path) -> Result<Summary, Error> {
    read(file, |_| {}).map_err(|e| unavailable(format!("check the backup {}", file.display()), e))
}

/// Makes a store of a backup in a directory that does not exist or is empty. Opens it with [`crate::Embedded`].
pub fn restore_embedded(file: &Path, dir: &Path) -> Result<Summary, Error> {
    let doing = || format!("restore {} into {}", file.display(), dir.display());
    let summary = verify(file)?;
    fs::create_dir_all(dir).map_err(|e| unavailable(doing(), e))?;
    if fs::read_dir(dir).map_err(|e| unavailable(doing(), e))?.next().is_some() {
        return Err(unavailable(doing(), "the directory is not empty"));
    }
    let base = summary.revision + REVISION_GAP;
    let path = file_path(dir, Kind::Snapshot, base);
    // Until it is finished the file has another name: an interrupted restore leaves an empty store at most.
    let mut writer =
        snapshot::Writer::create(&path, SNAPSHOT_MAGIC, base).map_err(|e| unavailable(doing(), e))?;
    let mut failed = None;
    read(file, |record| {
        if failed.is_none() {
            failed = writer.put(record.key, record.value, record.revision, record.created).err();
        }
    })
    .map_err(|e| unavailable(doing(), e))?;
    if let Some(error) = failed {
        return Err(unavailable(doing(), error));
    }
    writer.finish().map_err(|e| unavailable(doing(), e))?;
    Ok(summary)
}

/// Puts a backup into an etcd that has none of our keys. Other programs must connect to it only afterwards.
/// If this fails half-way, connecting to that etcd is refused until its keys are removed.
///
/// The values' revisions become new ones, since etcd assigns them itself.
pub async fn restore_etcd(file: &Path, etcd: &Etcd) -> Result<Summary, Error> {
    let checked = file.to_owned();
    let summary = blocking(move || Ok(verify(&checked))).await.map_err(|e| unavailable("restore", e))??;
    let mut restore = etcd.begin_restore().await?;
    let (sender, mut entries) = mpsc::channel(RESTORE_QUEUE);
    let reader = tokio::task::spawn_blocking({
        let file = file.to_owned();
        move || send_entries(&file, &sender)
    });
    while let Some(entry) = entries.recv().await {
        restore.put(entry).await?;
    }
    let doing = || format!("read the backup {}", file.display());
    reader.await.map_err(|e| unavailable(doing(), e))?.map_err(|e| unavailable(doing(), e))?;
    restore.finish(summary.revision + REVISION_GAP).await?;
    Ok(summary)
}

fn send_entries(file: &Path, to: &mpsc::Sender<Entry>) -> Result<Summary, ReadError> {
    read(file, |record| {
        let entry = Entry {
            key: record.key.to_owned(),
            value: Bytes::copy_from_slice(record.value),
            modified: record.revision,
            created: record.created,
        };
        // If nobody takes them any more the restore has failed, and says why itself.
        let _ = to.blocking_send(entry);
    })
}

fn read(path: &Path, mut visit: impl FnMut(Record<'_>)) -> Result<Summary, ReadError> {
    let file = File::open(path).map_err(|source| io_error(path, source))?;
    let mut entries = 0;
    let revision = snapshot::read(&file, path, BACKUP_MAGIC, |_, record| {
        entries += 1;
        visit(record);
    })?;
    Ok(Summary { revision, entries })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}
