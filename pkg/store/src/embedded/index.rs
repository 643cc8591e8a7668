//! Which values there are and where they stand: every key's versions since the compaction revision.
//!
//! ```text
//! key ──> [version … version] latest        version = revision, created, place in a file (none: deleted)
//! ```
//!
//! A plain structure without locks, threads or I/O. Values themselves are in the files: the apiserver's
//! cache has every object in memory already.

use crate::Revision;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Names an open file for as long as the engine runs.
pub type FileId = u32;

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// In which file.
    pub file: FileId,
    /// How long the whole record is.
    pub len: u32,
    /// Where in the file.
    pub offset: u64,
}

/// What one commit made of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The revision of the commit.
    pub revision: Revision,
    /// The revision that first wrote a value here.
    pub created: Revision,
    /// Where the value stands; `None`: deleted.
    pub place: Option<Place>,
}

/// All keys.
#[derive(Debug, Default)]
pub struct Index {
    keys: BTreeMap<Arc<str>, Versions>,
    /// Keys whose earlier version ended at a revision, in order: what a compaction must look at.
    superseded: VecDeque<(Revision, Arc<str>)>,
    /// How many bytes of each file are still needed.
    live: HashMap<FileId, u64>,
}

/// The versions of one key; most keys have one only, which takes no allocation.
#[derive(Debug)]
struct Versions {
    older: Vec<Version>,
    latest: Version,
}

impl Index {
    /// The value now.
    pub fn latest(&self, key: &str) -> Option<Version> {
        self.keys.get(key).map(|versions| versions.latest).filter(|version| version.place.is_some())
    }

    /// Up to `scan` keys under a prefix after a bound, each with its value as of a revision, if it had one.
    pub fn at<'a>(
        &'a self,
        prefix: &'a str,
        after: Bound<&'a str>,
        revision: Revision,
        scan: usize,
    ) -> impl Iterator<Item = (&'a Arc<str>, Option<Version>)> {
        self.keys
            .range::<str, _>((after, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .take(scan)
            .map(move |(key, versions)| (key, versions.at(revision)))
    }

    /// Adds what a commit made of a key; revisions only grow.
    pub fn apply(&mut self, key: &str, version: Version) {
        if let Some(place) = version.place {
            *self.live.entry(place.file).or_default() += u64::from(place.len);
        }
        match self.keys.range_mut::<str, _>((Bound::Included(key), Bound::Included(key))).next() {
            Some((key, versions)) => {
                self.superseded.push_back((version.revision, key.clone()));
                versions.older.push(std::mem::replace(&mut versions.latest, version));
            }
            None => {
                let versions = Versions { older: Vec::new(), latest: version };
                self.keys.insert(key.into(), versions);
            }
        }
    }

    /// Forgets versions that nobody can ask for when history before `compacted` is gone. Looks at `budget`
    /// keys at most, and says whether there may be more.
    pub fn trim(&mut self, compacted: Revision, budget: usize) -> bool {
        for _ in 0..budget {
            match self.superseded.front() {
                Some((revision, _)) if *revision <= compacted => {}
                _ => return false,
            }
            let Some((_, key)) = self.superseded.pop_front() else { return false };
            let Some(versions) = self.keys.get_mut(&key) else { continue };
            let dropped = versions.trim(compacted);
            let gone = versions.older.is_empty()
                && versions.latest.place.is_none()
                && versions.latest.revision <= compacted;
            for place in dropped.into_iter().filter_map(|version| version.place) {
                release(&mut self.live, place);
            }
            if gone {
                self.keys.remove(&key);
            }
        }
        true
    }

    /// The same bytes now stand elsewhere.
    pub fn relocate(&mut self, key: &str, revision: Revision, to: Place) {
        let Some(versions) = self.keys.get_mut(key) else { return };
        let all = versions.older.iter_mut().chain([&mut versions.latest]);
        for version in all.filter(|version| version.revision == revision) {
            if let Some(from) = version.place.replace(to) {
                release(&mut self.live, from);
                *self.live.entry(to.file).or_default() += u64::from(to.len);
            }
        }
    }

    /// How many bytes of a file are still needed.
    pub fn live_bytes(&self, file: FileId) -> u64 {
        self.live.get(&file).copied().unwrap_or_default()
    }

    /// The file is no more.
    pub fn forget_file(&mut self, file: FileId) {
        self.live.remove(&file);
    }
}

impl Versions {
    fn at(&self, revision: Revision) -> Option<Version> {
        if self.latest.revision <= revision {
            return Some(self.latest).filter(|version| version.place.is_some());
        }
        let count = self.older.partition_point(|version| version.revision <= revision);
        count.checked_sub(1).map(|i| self.older[i]).filter(|version| version.place.is_some())
    }

    /// Drops all versions before the one that stood at `compacted`, and that one too if it was a deletion.
    fn trim(&mut self, compacted: Revision) -> Vec<Version> {
        let mut drop = self.older.partition_point(|version| version.revision <= compacted);
        if self.latest.revision > compacted && drop > 0 && self.older[drop - 1].place.is_some() {
            drop -= 1;
        }
        let dropped = self.older.drain(..drop).collect();
        self.older.shrink_to_fit();
        dropped
    }
}

fn release(live: &mut HashMap<FileId, u64>, place: Place) {
    if let Some(bytes) = live.get_mut(&place.file) {
        *bytes = bytes.saturating_sub(u64::from(place.len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(index: &mut Index, key: &str, revision: Revision) {
        let place = Some(Place { file: 1, len: 10, offset: revision });
        index.apply(key, Version { revision, created: revision, place });
    }

    fn delete(index: &mut Index, key: &str, revision: Revision) {
        index.apply(key, Version { revision, created: revision, place: None });
    }

    fn state(index: &Index, revision: Revision) -> Vec<(String, Revision)> {
        index
            .at("/", Bound::Unbounded, revision, usize::MAX)
            .filter_map(|(key, version)| Some((key.to_string(), version?.revision)))
            .collect()
    }

    #[test]
    fn history_is_readable_until_it_is_trimmed() {
        let mut index = Index::default();
        put(&mut index, "/a", 1);
        put(&mut index, "/b", 2);
        put(&mut index, "/a", 3);
        delete(&mut index, "/b", 4);
        put(&mut index, "/a", 5);
        let at = |index: &Index, revision| state(index, revision);
        assert_eq!(at(&index, 2), [("/a".into(), 1), ("/b".into(), 2)]);
        assert_eq!(at(&index, 3), [("/a".into(), 3), ("/b".into(), 2)]);
        assert_eq!(at(&index, 4), [("/a".into(), 3)]);
        assert_eq!(index.live_bytes(1), 40);

        assert!(!index.trim(3, usize::MAX));
        assert_eq!(at(&index, 3), [("/a".into(), 3), ("/b".into(), 2)]);
        assert_eq!(index.live_bytes(1), 30);

        assert!(!index.trim(4, usize::MAX));
        assert_eq!(at(&index, 4), [("/a".into(), 3)]);
        assert_eq!(index.live_bytes(1), 20);
        assert_eq!(index.latest("/b"), None);

        assert!(!index.trim(5, usize::MAX));
        assert_eq!(at(&index, 5), [("/a".into(), 5)]);
        assert_eq!((index.live_bytes(1), index.keys.len()), (10, 1));
    }

    #[test]
    fn a_key_that_comes_back_is_not_trimmed_away() {
        let mut index = Index::default();
        put(&mut index, "/a", 1);
        delete(&mut index, "/a", 2);
        put(&mut index, "/a", 3);
        assert!(!index.trim(2, usize::MAX));
        assert_eq!(state(&index, 2), []);
        assert_eq!(state(&index, 3), [("/a".into(), 3)]);
    }

    #[test]
    fn trimming_keeps_to_its_budget() {
        let mut index = Index::default();
        for revision in 1..=10 {
            put(&mut index, "/a", revision);
        }
        assert!(index.trim(10, 3));
        assert!(!index.trim(10, 100));
        assert_eq!(index.live_bytes(1), 10);
    }
}
