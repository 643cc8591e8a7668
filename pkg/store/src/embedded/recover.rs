//! Opening a directory: the newest whole snapshot, and the log replayed on top of it.
//!
//! ```text
//! snapshot-0a ─> state at 0a ─> wal-08 (skips 08..0a) ─> wal-10 ─> wal-17 (torn tail is cut) ─> the present
//! ```
//!
//! Revisions must follow each other without a gap from the snapshot to the end of the log: a missing file or
//! a damaged record is an error. Only the end of the last segment may be torn, by the crash of a write that
//! was never answered.

use super::files::{self, DataFile, LOG_MAGIC, Listing, SNAPSHOT_MAGIC};
use super::index::{FileId, Place, Version};
use super::state::State;
use crate::record::{
    self, COMPACT, DELETE, Damage, END, FILE_HEADER, ReadError, Scanner, damaged, io_error, is_torn_tail,
};
use crate::{Revision, snapshot};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The state that a directory holds.
pub fn recover(dir: &Path) -> Result<State, ReadError> {
    let listing = Listing::read(dir).map_err(|source| io_error(dir, source))?;
    let (mut state, used) = newest_snapshot(&listing)?;
    let snapshot_revision = state.revision;
    let (covered, log) = split_covered(&listing.segments, snapshot_revision);
    for (i, (first, path)) in log.iter().enumerate() {
        let id = state.name_file();
        let replay = Replay::new(&mut state, id, path, *first, snapshot_revision)?;
        let segment = if i + 1 == log.len() { replay.last_segment() } else { replay.segment() }?;
        state.segments.push_back(segment);
    }
    if state.segments.is_empty() {
        let (id, first) = (state.name_file(), state.revision + 1);
        let segment = files::create_segment(dir, id, first).map_err(|source| io_error(dir, source))?;
        state.segments.push_back(segment);
    }
    let compacted = state.compacted;
    while state.index.trim(compacted, usize::MAX) {}
    let older = listing.snapshots.iter().filter(|(revision, _)| used && *revision < snapshot_revision);
    for (_, path) in covered.iter().chain(older) {
        fs::remove_file(path).map_err(|source| io_error(path, source))?;
    }
    Ok(state)
}

/// The newest snapshot that is whole, and whether there is one. An older one serves if the log reaches back
/// to it, which the replay finds out.
fn newest_snapshot(listing: &Listing) -> Result<(State, bool), ReadError> {
    let mut newest_error = None;
    for (revision, path) in listing.snapshots.iter().rev() {
        match load_snapshot(path, *revision) {
            Ok(state) => return Ok((state, true)),
            Err(error) => {
                tracing::error!(%error, "snapshot cannot be used");
                newest_error.get_or_insert(error);
            }
        }
    }
    match newest_error {
        // Without any snapshot the log must begin at the beginning; if it does, nothing is lost.
        Some(error) if listing.segments.first().is_none_or(|(first, _)| *first > 1) => Err(error),
        _ => Ok((State::empty(), false)),
    }
}

fn load_snapshot(path: &Path, revision: Revision) -> Result<State, ReadError> {
    let mut state = State::empty();
    let id = state.name_file();
    let file = File::open(path).map_err(|source| io_error(path, source))?;
    let found = snapshot::read(&file, path, SNAPSHOT_MAGIC, |offset, record| {
        let place = Some(Place { file: id, len: record.len() as u32, offset });
        state.index.apply(record.key, Version { revision: record.revision, created: record.created, place });
    })?;
    if found != revision {
        return Err(damaged(path, 0, format!("it is the snapshot of revision {found}")));
    }
    let size = file.metadata().map_err(|source| io_error(path, source))?.len();
    (state.revision, state.compacted) = (revision, revision);
    state.snapshots.push(DataFile::new(id, revision, size, file, path.to_owned()));
    Ok(state)
}

type Segments = [(Revision, PathBuf)];

/// The segments that end before the snapshot does, and the others.
fn split_covered(segments: &Segments, snapshot: Revision) -> (&Segments, &Segments) {
    let begun = segments.partition_point(|(first, _)| *first <= snapshot + 1);
    segments.split_at(begun.saturating_sub(1))
}

/// One segment being replayed.
struct Replay<'a> {
    state: &'a mut State,
    segment: DataFile,
    path: &'a Path,
    /// Commits up to here are in the snapshot already.
    snapshot: Revision,
    /// How long the file is.
    len: u64,
    /// The writes of a commit that is not complete yet.
    commit: Vec<(String, Version)>,
}

impl<'a> Replay<'a> {
    fn new(
        state: &'a mut State,
        id: FileId,
        path: &'a Path,
        first: Revision,
        snapshot: Revision,
    ) -> Result<Self, ReadError> {
        if first > state.revision + 1 {
            let what = format!("the log between revision {} and {first} is missing", state.revision);
            return Err(damaged(path, 0, what));
        }
        let file = File::options().read(true).write(true).open(path).map_err(|e| io_error(path, e))?;
        let len = file.metadata().map_err(|e| io_error(path, e))?.len();
        let segment = DataFile::new(id, first, FILE_HEADER as u64, file, path.to_owned());
        Ok(Self { state, segment, path, snapshot, len, commit: Vec::new() })
    }

    /// A segment that others follow: it must be whole.
    fn segment(mut self) -> Result<DataFile, ReadError> {
        self.header()?;
        self.records()?;
        if self.segment.size < self.len {
            return Err(damaged(self.path, self.segment.size, "a commit without its end"));
        }
        Ok(self.segment)
    }

    /// The last segment: its end may be torn.
    fn last_segment(mut self) -> Result<DataFile, ReadError> {
        let io = |source: io::Error| io_error(self.path, source);
        if self.len < FILE_HEADER as u64 {
            // The crash came while it was made: nothing was ever written to it.
            let header = record::encode_file_header(LOG_MAGIC, self.segment.revision);
            self.segment.open.file.write_all_at(&header, 0).map_err(io)?;
            self.len = FILE_HEADER as u64;
        }
        self.header()?;
        match self.records() {
            Err(ReadError::Damaged(Damage { offset, what, .. })) => {
                let mut tail = vec![0; self.len.saturating_sub(offset) as usize];
                self.segment.open.file.read_exact_at(&mut tail, offset).map_err(io)?;
                if !is_torn_tail(&tail, offset) {
                    return Err(damaged(self.path, offset, what));
                }
            }
            other => other?,
        }
        if self.segment.size < self.len {
            let (path, torn) = (self.path.display(), self.len - self.segment.size);
            tracing::warn!(%path, torn, "cutting off the unfinished last write");
            self.segment.open.file.set_len(self.segment.size).map_err(io)?;
        }
        // What was read may be in the page cache only; nobody may see it before it is on disk.
        self.segment.open.file.sync_all().map_err(io)?;
        Ok(self.segment)
    }

    fn header(&self) -> Result<(), ReadError> {
        let found = record::read_file_header(&self.segment.open.file, self.path, LOG_MAGIC)?;
        match found == self.segment.revision {
            true => Ok(()),
            false => Err(damaged(self.path, 0, format!("it is the segment of revision {found}"))),
        }
    }

    /// Applies the commits of the file; `segment.size` is where the last whole one ends.
    fn records(&mut self) -> Result<(), ReadError> {
        let open = self.segment.open.clone();
        let mut scanner = Scanner::new(&open.file, self.path, self.segment.size, self.len);
        // The segment may begin before the snapshot: commits up to there are passed over.
        let mut revision = self.segment.revision - 1;
        while let Some((offset, record)) = scanner.next()? {
            let end = offset + record.len() as u64;
            if record.flags & COMPACT != 0 {
                self.state.compacted = self.state.compacted.max(record.revision);
                self.segment.size = end;
                continue;
            }
            if record.revision != revision + 1 {
                let what = format!("revision {} where {} should be", record.revision, revision + 1);
                return Err(damaged(self.path, offset, what));
            }
            let len = record.len() as u32;
            let place = (record.flags & DELETE == 0).then_some(Place { file: self.segment.id, len, offset });
            let version = Version { revision: record.revision, created: record.created, place };
            self.commit.push((record.key.to_owned(), version));
            if record.flags & END != 0 {
                revision += 1;
                self.complete(revision, end);
            }
        }
        Ok(())
    }

    fn complete(&mut self, revision: Revision, end: u64) {
        self.segment.mark(revision, self.segment.size);
        self.segment.size = end;
        let commit = self.commit.drain(..);
        if revision > self.snapshot {
            commit.for_each(|(key, version)| self.state.index.apply(&key, version));
            self.state.revision = revision;
        }
    }
}
