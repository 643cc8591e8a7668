//! What the engine's threads share, and how the present is read from it.
//!
//! The writer adds to it, the maintainer takes away from it, readers look. No lock is held while a disk is
//! waited for.

use super::files::{DataFile, OpenFile};
use super::index::{FileId, Index, Place, Version};
use super::{KEYS_PER_LOCK, Options};
use crate::record::ReadError;
use crate::window::Window;
use crate::{Entry, Error, Range, Revision};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::VecDeque;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything the threads share.
pub struct Shared {
    /// Where the files are.
    pub dir: PathBuf,
    /// How big things may get.
    pub options: Options,
    /// What is published.
    pub state: RwLock<State>,
    /// The recent past, for feeds.
    pub window: Arc<Window>,
    errand: Mutex<Errand>,
    errand_given: Condvar,
}

/// What is published: durable, and visible to all.
pub struct State {
    /// Which values there are.
    pub index: Index,
    /// The present.
    pub revision: Revision,
    /// History before this is forgotten.
    pub compacted: Revision,
    /// The state that the log builds on, if not on nothing; two while one replaces the other.
    pub snapshots: Vec<DataFile>,
    /// The log, in order; the last one is written to.
    pub segments: VecDeque<DataFile>,
    /// The next name for a file.
    pub next_file: FileId,
}

/// A value that is not read yet.
pub struct Found {
    /// Of this key.
    pub key: Arc<str>,
    place: Place,
    file: Arc<OpenFile>,
}

/// What the maintainer shall do next.
#[derive(Default)]
struct Errand {
    compacted: bool,
    stop: bool,
}

impl Shared {
    /// Around a recovered state.
    pub fn new(dir: &Path, options: Options, state: State) -> Self {
        let window = Arc::new(Window::new(state.revision));
        let (errand, errand_given) = Default::default();
        Self { dir: dir.to_owned(), options, state: RwLock::new(state), window, errand, errand_given }
    }

    /// A page of values as of its revision, and how many more there are. Lets the writer in between.
    pub fn collect(&self, range: &Range) -> Result<(Vec<Found>, Revision, u64), Error> {
        let revision = match range.revision {
            Some(revision) => revision,
            None => self.state.read().revision,
        };
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        let (mut found, mut remaining) = (Vec::new(), 0);
        let mut cursor: Option<Arc<str>> = None;
        loop {
            let state = self.state.read();
            state.check(revision)?;
            let after = match (&cursor, &range.after) {
                (Some(cursor), _) => Bound::Excluded(&**cursor),
                (None, Some(after)) if *after >= range.prefix => Bound::Excluded(after.as_str()),
                _ => Bound::Included(range.prefix.as_str()),
            };
            let (some, last) = state.values(&range.prefix, after, revision, KEYS_PER_LOCK);
            drop(state);
            let room = limit - found.len();
            remaining += some.len().saturating_sub(room) as u64;
            found.extend(some.into_iter().take(room));
            match last {
                Some(last) => cursor = Some(last),
                None => return Ok((found, revision, remaining)),
            }
        }
    }

    /// Waits until there was a compaction; false when it is time to stop.
    pub fn await_compaction(&self) -> bool {
        let mut errand = self.errand.lock();
        while !errand.stop && !errand.compacted {
            self.errand_given.wait(&mut errand);
        }
        errand.compacted = false;
        !errand.stop
    }

    /// Tells the maintainer that there was a compaction.
    pub fn compaction_done(&self) {
        self.errand.lock().compacted = true;
        self.errand_given.notify_one();
    }

    /// Tells the maintainer to stop.
    pub fn stop_maintainer(&self) {
        self.errand.lock().stop = true;
        self.errand_given.notify_one();
    }

    /// Whether the maintainer shall stop.
    pub fn stopping(&self) -> bool {
        self.errand.lock().stop
    }
}

impl State {
    /// Nothing, at revision 0.
    pub fn empty() -> Self {
        Self {
            index: Index::default(),
            revision: 0,
            compacted: 0,
            snapshots: Vec::new(),
            segments: VecDeque::new(),
            next_file: 0,
        }
    }

    /// Whether history is known from a revision on.
    pub fn check(&self, asked: Revision) -> Result<(), Error> {
        match asked {
            _ if asked < self.compacted => Err(Error::Compacted { asked, oldest: self.compacted }),
            _ if asked > self.revision => Err(Error::Future { asked, current: self.revision }),
            _ => Ok(()),
        }
    }

    /// The value of a key now.
    pub fn latest(&self, key: &str) -> Option<Found> {
        let version = self.index.latest(key)?;
        self.found(&key.into(), version)
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = &DataFile> {
        self.snapshots.iter().chain(&self.segments)
    }

    /// A new name for a file.
    pub fn name_file(&mut self) -> FileId {
        self.next_file += 1;
        self.next_file
    }

    /// The values of up to `scan` keys as of a revision, and the last key looked at, if any.
    pub fn values(
        &self,
        prefix: &str,
        after: Bound<&str>,
        revision: Revision,
        scan: usize,
    ) -> (Vec<Found>, Option<Arc<str>>) {
        let mut last = None;
        let keys = self.index.at(prefix, after, revision, scan).inspect(|(key, _)| last = Some(*key));
        let values = keys.filter_map(|(key, version)| self.found(key, version?)).collect();
        (values, last.cloned())
    }

    /// `None` if it was deleted.
    fn found(&self, key: &Arc<str>, version: Version) -> Option<Found> {
        let place = version.place?;
        let snapshot = self.snapshots.iter().find(|file| file.id == place.file);
        let segment = || self.segments.iter().rev().find(|file| file.id == place.file);
        let file = snapshot.or_else(segment).expect("a file stays for as long as a place in it is known");
        Some(Found { key: key.clone(), place, file: file.open.clone() })
    }
}

impl Found {
    /// Reads it.
    pub fn read(self) -> Result<Entry, ReadError> {
        self.file.read(&self.key, self.place)
    }
}
