//! The engine's directory and the files in it.
//!
//! ```text
//! lock   wal-0000000000000001.log   wal-00000000000004d2.log   snapshot-00000000000004c0.db
//!             └ first revision in it                                      └ the state at this revision
//! ```
//!
//! Names sort as their revisions do. Files are found, named, created and removed here; what their records
//! mean is decided elsewhere.

use super::index::{FileId, Place};
use crate::record::{self, FILE_HEADER, ReadError, Record, damaged, io_error, sync_dir};
use crate::snapshot::UNFINISHED;
use crate::{Entry, Revision};
use bytes::Bytes;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The first bytes of a log segment.
pub const LOG_MAGIC: &[u8; 8] = b"mk8slog1";
/// The first bytes of a snapshot.
pub const SNAPSHOT_MAGIC: &[u8; 8] = b"mk8ssnp1";

/// Every so many bytes of a segment a mark is kept, so that feeds need not read it from its beginning.
const MARK_BYTES: u64 = 64 << 10;

/// How long somebody else may have the directory before we give up.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// What kind of file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Part of the log.
    Segment,
    /// The state at a revision.
    Snapshot,
}

/// An open file of the engine.
#[derive(Debug)]
pub struct DataFile {
    /// Its name within the engine.
    pub id: FileId,
    /// Of a segment, the first revision in it; of a snapshot, its revision.
    pub revision: Revision,
    /// How much of it counts: what lies behind is not published yet.
    pub size: u64,
    /// The file itself; readers keep it open after it was removed.
    pub open: Arc<OpenFile>,
    /// Where some of its commits begin.
    marks: Vec<(Revision, u64)>,
}

/// A file and its name.
#[derive(Debug)]
pub struct OpenFile {
    /// The file.
    pub file: File,
    /// Where it is.
    pub path: PathBuf,
}

impl DataFile {
    /// A file of which `size` bytes count.
    pub fn new(id: FileId, revision: Revision, size: u64, file: File, path: PathBuf) -> Self {
        Self { id, revision, size, open: Arc::new(OpenFile { file, path }), marks: Vec::new() }
    }

    /// Remembers that the commit of a revision begins at an offset, if the last mark is far enough away.
    pub fn mark(&mut self, revision: Revision, offset: u64) {
        let last = self.marks.last().map_or(FILE_HEADER as u64, |(_, offset)| *offset);
        if offset >= last + MARK_BYTES {
            self.marks.push((revision, offset));
        }
    }

    /// Where to begin reading so as to find everything after a revision.
    pub fn offset_after(&self, revision: Revision) -> u64 {
        let count = self.marks.partition_point(|(marked, _)| *marked <= revision + 1);
        count.checked_sub(1).map_or(FILE_HEADER as u64, |i| self.marks[i].1)
    }
}

impl OpenFile {
    /// The entry that stands at a place.
    pub fn read(&self, key: &str, place: Place) -> Result<Entry, ReadError> {
        let mut bytes = vec![0; place.len as usize];
        self.file.read_exact_at(&mut bytes, place.offset).map_err(|source| io_error(&self.path, source))?;
        let bytes = Bytes::from(bytes);
        match record::decode(&bytes) {
            Ok(Record { key: found, revision, created, value, .. }) if found == key => {
                Ok(Entry { key: key.to_owned(), value: bytes.slice_ref(value), modified: revision, created })
            }
            _ => Err(damaged(&self.path, place.offset, format!("no valid record of {key} is there"))),
        }
    }
}

/// What a directory holds, in order of revision.
#[derive(Debug, Default)]
pub struct Listing {
    /// Log segments and the first revision in each.
    pub segments: Vec<(Revision, PathBuf)>,
    /// Snapshots and their revisions.
    pub snapshots: Vec<(Revision, PathBuf)>,
}

impl Listing {
    /// Looks into a directory; removes what was left unfinished there.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut listing = Self::default();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.ends_with(UNFINISHED) {
                fs::remove_file(&path)?;
            } else if let Some(revision) = parse(name, "wal-", ".log") {
                listing.segments.push((revision, path));
            } else if let Some(revision) = parse(name, "snapshot-", ".db") {
                listing.snapshots.push((revision, path));
            }
        }
        listing.segments.sort();
        listing.snapshots.sort();
        Ok(listing)
    }
}

/// The path of a file.
pub fn path(dir: &Path, kind: Kind, revision: Revision) -> PathBuf {
    match kind {
        Kind::Segment => dir.join(format!("wal-{revision:016x}.log")),
        Kind::Snapshot => dir.join(format!("snapshot-{revision:016x}.db")),
    }
}

/// Makes a segment; when this returns it is durable, and empty.
pub fn create_segment(dir: &Path, id: FileId, first: Revision) -> io::Result<DataFile> {
    let path = path(dir, Kind::Segment, first);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    let made = file
        .write_all_at(&record::encode_file_header(LOG_MAGIC, first), 0)
        .and_then(|()| file.sync_all())
        .and_then(|()| sync_dir(dir));
    if let Err(error) = made {
        // Left behind it would look like the newest segment; without a header it is taken for an empty one.
        let _ = fs::remove_file(&path);
        return Err(error);
    }
    Ok(DataFile::new(id, first, FILE_HEADER as u64, file, path))
}

/// Takes the directory for this process. Whoever had it may be about to end; and a process that somebody starts holds
/// a copy of our own lock until it becomes another program: so it is tried for a while.
pub fn lock(dir: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(dir.join("lock"))?;
    let patience = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::Error(error)) => return Err(error),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < patience => thread::sleep(LOCK_PAUSE),
            Err(fs::TryLockError::WouldBlock) => {
                let why = "another process has this store open";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
            }
        }
    }
}

fn parse(name: &str, prefix: &str, suffix: &str) -> Option<Revision> {
    let hex = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    (hex.len() == 16).then(|| Revision::from_str_radix(hex, 16).ok())?
}
