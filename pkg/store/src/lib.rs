//! An ordered, revisioned key-value store with a change feed. It knows bytes, not kinds.
//!
//! ```text
//! commit(writes) ──fsync──> revision ──> changes(after) ──> every change once, in order
//! ```
//!
//! One trait, [`Store`], and two engines: embedded (a log in a directory; the default) and etcd. Both pass
//! the same contract tests.
//!
//! Guarantees, of both engines:
//! - a commit takes effect wholly or not at all, and only if all its expectations hold;
//! - a commit that was answered is durable;
//! - revisions only grow; all writes of one commit share one;
//! - the feed gives every change after a revision exactly once and in order, or says [`Error::Compacted`].
//!
//! Rules for callers, checked by both engines:
//! - keys begin with one of [`KEYSPACES`], since an etcd may have other tenants, and a backup takes only these;
//! - a commit has at most [`MAX_WRITES`] writes, and no key twice;
//! - deleting what is not there is no change: a commit of nothing else answers the present revision.

pub mod backup;
pub mod embedded;
pub mod etcd;
mod record;
mod snapshot;
mod window;

use async_trait::async_trait;
use bytes::Bytes;

pub use embedded::Embedded;
pub use etcd::{Etcd, Tls};

/// Where callers may put keys.
pub const KEYSPACES: [&str; 2] = ["/minik8s/", "/registry/"];

/// The most writes that one commit may have (etcd's default limit of operations in a transaction).
pub const MAX_WRITES: usize = 128;

/// A point in the store's history. 0 is before everything.
pub type Revision = u64;

/// What a write expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Anything or nothing.
    Any,
    /// No value.
    Absent,
    /// The value written by that revision.
    Revision(Revision),
    /// The same, and it stays: this write has no value and changes nothing.
    Unchanged(Revision),
}

impl Expect {
    /// Whether it holds where a value of that revision stands, or none.
    pub fn holds(self, standing: Option<Revision>) -> bool {
        match self {
            Expect::Any => true,
            Expect::Absent => standing.is_none(),
            Expect::Revision(revision) | Expect::Unchanged(revision) => standing == Some(revision),
        }
    }
}

/// One write of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Where.
    pub key: String,
    /// On what condition.
    pub expect: Expect,
    /// What; `None` deletes.
    pub value: Option<Bytes>,
}

impl Write {
    /// Whether it is no more than its condition.
    fn only_expects(&self) -> bool {
        matches!(self.expect, Expect::Unchanged(_))
    }
}

/// A value and its history's ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where.
    pub key: String,
    /// What.
    pub value: Bytes,
    /// The revision that wrote this value.
    pub modified: Revision,
    /// The revision that first wrote a value here (since it was last deleted).
    pub created: Revision,
}

/// Part of the keyspace, at some revision.
#[derive(Debug, Clone, Default)]
pub struct Range {
    /// Keys that start with this.
    pub prefix: String,
    /// Only keys after this one (for the next page).
    pub after: Option<String>,
    /// At most this many; 0 is no limit.
    pub limit: usize,
    /// As of this revision; `None` is now.
    pub revision: Option<Revision>,
}

/// What a range read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In the order of their keys.
    pub entries: Vec<Entry>,
    /// The revision that this is the state of.
    pub revision: Revision,
    /// How many more keys there are beyond the limit.
    pub remaining: u64,
}

/// One change, as the feed tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub key: String,
    /// The new value; `None`: deleted.
    pub value: Option<Bytes>,
    /// The revision of the commit.
    pub revision: Revision,
    /// The revision that first wrote a value here; of a deletion, the same as `revision`.
    pub created: Revision,
}

/// What the feed says next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Changes in order; changes of one commit are never split.
    Changes(Vec<Change>),
    /// Nothing more up to this revision.
    Progress(Revision),
}

/// Why the store did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An expectation did not hold: nothing was written.
    #[error("conflict on {key}")]
    Conflict {
        /// The first write whose expectation failed.
        key: String,
        /// What stands there.
        current: Option<Entry>,
    },
    /// That part of history is gone.
    #[error("revision {asked} has been compacted; the oldest is {oldest}")]
    Compacted {
        /// The revision asked for.
        asked: Revision,
        /// The oldest that can still be read, where it is known.
        oldest: Revision,
    },
    /// The revision lies in the future.
    #[error("revision {asked} is later than the present one, {current}")]
    Future {
        /// The revision asked for.
        asked: Revision,
        /// The present revision.
        current: Revision,
    },
    /// The engine cannot serve now; what was asked may or may not have happened.
    #[error("{doing}")]
    Unavailable {
        /// What was being done.
        doing: String,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A feed of changes, from one revision on.
#[async_trait]
pub trait Feed: Send {
    /// The next news; waits for it. After an error the feed is over: open another after the last revision seen.
    async fn next(&mut self) -> Result<News, Error>;
}

/// The store.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes all or nothing, and answers when it is durable.
    async fn commit(&self, writes: Vec<Write>) -> Result<Revision, Error>;
    /// The value of a key now.
    async fn get(&self, key: &str) -> Result<Option<Entry>, Error>;
    /// A page of keys in order.
    async fn range(&self, range: Range) -> Result<Page, Error>;
    /// The present revision: at least that of every commit answered, by anybody, before this was asked.
    async fn revision(&self) -> Result<Revision, Error>;
    /// The changes under a prefix after a revision.
    async fn changes(&self, prefix: &str, after: Revision) -> Result<Box<dyn Feed>, Error>;
    /// Asks feeds to say how far they are, even if nothing changed under their prefix.
    async fn request_progress(&self) -> Result<(), Error>;
    /// Forgets history before a revision: reads and feeds from before it answer [`Error::Compacted`].
    async fn compact(&self, revision: Revision) -> Result<(), Error>;
}

/// Whether the rules for callers hold.
pub(crate) fn check_writes(writes: &[Write]) -> Result<(), Error> {
    if writes.len() > MAX_WRITES {
        return Err(unavailable("commit", format!("{} writes; at most {MAX_WRITES} fit", writes.len())));
    }
    for (i, write) in writes.iter().enumerate() {
        if !KEYSPACES.iter().any(|keyspace| write.key.starts_with(keyspace)) {
            return Err(unavailable("commit", format!("key {:?} is outside {KEYSPACES:?}", write.key)));
        }
        if write.only_expects() && write.value.is_some() {
            return Err(unavailable("commit", format!("key {:?} is written and stays", write.key)));
        }
        // A commit has a handful of writes: comparing all of them is cheaper than a set.
        if writes[..i].iter().any(|earlier| earlier.key == write.key) {
            return Err(unavailable("commit", format!("key {:?} is written twice", write.key)));
        }
    }
    Ok(())
}

/// The error for "cannot serve now".
pub(crate) fn unavailable(
    doing: impl Into<String>,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::Unavailable { doing: doing.into(), source: source.into() }
}
