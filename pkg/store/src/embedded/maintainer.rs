//! The thread that gives space back: after a compaction it trims the index, and when enough of the files is
//! garbage it writes the state at the compaction revision to a snapshot and removes what that replaces.
//!
//! ```text
//! before  snapshot-05  wal-06  wal-0c  wal-14          compacted at 11
//! after                        wal-0c  wal-14  snapshot-11      (wal-0c holds 12 and 13 still)
//! ```
//!
//! Only this thread takes versions out of the index or moves them, so that what it has seen stays while it
//! works. It holds the lock for a few keys at a time: neither readers nor the writer notice it.
//! If it fails, say because the disk is full, nothing is changed and the next compaction tries again.

use super::KEYS_PER_LOCK;
use super::files::{self, DataFile, Kind, SNAPSHOT_MAGIC};
use super::index::{FileId, Place};
use super::state::Shared;
use crate::record::{RECORD_HEADER, ReadError};
use crate::{Revision, snapshot};
use std::fs;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

/// Works until it is told to stop.
pub fn run(shared: &Shared) {
    while shared.await_compaction() {
        let compacted = shared.state.read().compacted;
        while shared.state.write().index.trim(compacted, KEYS_PER_LOCK) {}
        if !worthwhile(shared, compacted) {
            continue;
        }
        match checkpoint(shared, compacted) {
            Ok(()) => tracing::info!(revision = compacted, "wrote a snapshot of the store"),
            Err(Failure::Stopped) => {}
            Err(error) => tracing::warn!(%error, "cannot write a snapshot of the store"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the store is being closed")]
    Stopped,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("write the snapshot")]
    Write(#[from] io::Error),
}

/// Where a value stands in the new snapshot.
struct Moved {
    key: Arc<str>,
    revision: Revision,
    place: Place,
}

/// Whether a snapshot would set free more than it takes.
fn worthwhile(shared: &Shared, compacted: Revision) -> bool {
    let state = shared.state.read();
    let replaced = replaced_segments(state.segments.iter().map(|segment| segment.revision), compacted);
    let replaced = state.snapshots.iter().chain(state.segments.iter().take(replaced));
    let (size, live) = replaced
        .fold((0, 0), |(size, live), file| (size + file.size, live + state.index.live_bytes(file.id)));
    let garbage: u64 = size - size.min(live);
    garbage > live && garbage > shared.options.garbage_bytes_min
}

/// How many of the segments, given the first revision of each, hold nothing after a revision. The last one
/// never counts: it is written to.
fn replaced_segments(firsts: impl Iterator<Item = Revision>, compacted: Revision) -> usize {
    firsts.skip(1).take_while(|next_first| *next_first <= compacted + 1).count()
}

fn checkpoint(shared: &Shared, compacted: Revision) -> Result<(), Failure> {
    let path = files::path(&shared.dir, Kind::Snapshot, compacted);
    let id = shared.state.write().name_file();
    let mut writer = snapshot::Writer::create(&path, SNAPSHOT_MAGIC, compacted)?;
    let moved = write_state(shared, compacted, id, &mut writer)?;
    let (file, size) = writer.finish()?;
    shared.state.write().snapshots.push(DataFile::new(id, compacted, size, file, path));
    for some in moved.chunks(KEYS_PER_LOCK) {
        let mut state = shared.state.write();
        some.iter().for_each(|moved| state.index.relocate(&moved.key, moved.revision, moved.place));
    }
    for file in forget_replaced(shared, id, compacted) {
        // Should this fail, the next start removes it.
        fs::remove_file(&file.open.path)?;
    }
    Ok(())
}

/// Writes every value as of a revision; answers where each stands now.
fn write_state(
    shared: &Shared,
    revision: Revision,
    file: FileId,
    writer: &mut snapshot::Writer,
) -> Result<Vec<Moved>, Failure> {
    let mut all = Vec::new();
    let mut cursor: Option<Arc<str>> = None;
    loop {
        if shared.stopping() {
            return Err(Failure::Stopped);
        }
        let after = cursor.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let (found, last) = shared.state.read().values("", after, revision, KEYS_PER_LOCK);
        for value in found {
            let (key, entry) = (value.key.clone(), value.read()?);
            let offset = writer.put(&entry.key, &entry.value, entry.modified, entry.created)?;
            let len = (RECORD_HEADER + entry.key.len() + entry.value.len()) as u32;
            all.push(Moved { key, revision: entry.modified, place: Place { file, len, offset } });
        }
        match last {
            Some(last) => cursor = Some(last),
            None => return Ok(all),
        }
    }
}

/// Takes the files that the new snapshot replaces out of the state. Whoever still reads them has them open.
fn forget_replaced(shared: &Shared, snapshot: FileId, compacted: Revision) -> Vec<DataFile> {
    let mut state = shared.state.write();
    let count = replaced_segments(state.segments.iter().map(|segment| segment.revision), compacted);
    let mut removed: Vec<_> = state.segments.drain(..count).collect();
    removed.extend(state.snapshots.extract_if(.., |file| file.id != snapshot));
    removed.iter().for_each(|file| state.index.forget_file(file.id));
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_replaced_when_the_next_begins_at_or_before_what_follows() {
        let check = |firsts: &[Revision], compacted, expect| {
            assert_eq!(
                replaced_segments(firsts.iter().copied(), compacted),
                expect,
                "{firsts:?} {compacted}"
            );
        };
        check(&[1], 100, 0);
        check(&[1, 10], 8, 0);
        check(&[1, 10], 9, 1);
        check(&[1, 10, 20], 18, 1);
        check(&[1, 10, 20], 50, 2);
    }
}
