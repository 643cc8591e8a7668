//! What the tests of the store share: both engines, ready to use, and ways to look at them.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test program uses its part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../testing/src/etcd.rs"]
mod etcd;
#[path = "../../../testing/src/port.rs"]
mod port;

pub use etcd::EtcdServer;
pub use port::Port;
use std::sync::Arc;
use std::time::Duration;
use store::{Change, Embedded, Error, Etcd, Expect, Feed, News, Page, Range, Revision, Store, Write};
use tempfile::TempDir;

/// Longer than anything takes; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Something that a store can be opened on, again and again.
pub enum Engine {
    /// A directory.
    Embedded(TempDir),
    /// A server.
    Etcd(EtcdServer),
}

impl Engine {
    /// A new, empty embedded store.
    pub fn embedded() -> Self {
        Self::Embedded(tempfile::tempdir().unwrap())
    }

    /// A new, empty etcd.
    pub fn etcd() -> Self {
        Self::Etcd(EtcdServer::start())
    }

    /// Opens the store.
    pub async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Embedded(dir) => Arc::new(Embedded::open(&dir.path().join("store")).unwrap()),
            Self::Etcd(server) => Arc::new(Etcd::connect(&[server.url()], None).await.unwrap()),
        }
    }
}

/// Runs each promise on each engine.
macro_rules! contract {
    ($($promise:ident)*) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise($crate::support::Engine::embedded()).await;
            })*
        }
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise($crate::support::Engine::etcd()).await;
            })*
        }
    };
}
pub(crate) use contract;

/// A write.
pub fn put(key: &str, expect: Expect, value: &str) -> Write {
    Write { key: key.to_owned(), expect, value: Some(value.to_owned().into()) }
}

/// A deletion.
pub fn delete(key: &str, expect: Expect) -> Write {
    Write { key: key.to_owned(), expect, value: None }
}

/// Commits one write that must succeed.
pub async fn set(store: &dyn Store, key: &str, value: &str) -> Revision {
    store.commit(vec![put(key, Expect::Any, value)]).await.unwrap()
}

/// All values under a prefix, as `key=value`.
pub async fn list(store: &dyn Store, prefix: &str, revision: Option<Revision>) -> Vec<String> {
    let range = Range { prefix: prefix.to_owned(), revision, ..Range::default() };
    texts(&store.range(range).await.unwrap())
}

/// The entries of a page, as `key=value`.
pub fn texts(page: &Page) -> Vec<String> {
    let text = |entry: &store::Entry| format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value));
    page.entries.iter().map(text).collect()
}

/// The next news, or a failed test.
pub async fn next(feed: &mut dyn Feed) -> Result<News, Error> {
    tokio::time::timeout(PATIENCE, feed.next()).await.expect("the feed says nothing")
}

/// Changes until there is one of a revision at least. Checks order, and that no commit is split.
pub async fn changes_until(feed: &mut dyn Feed, revision: Revision) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    while all.last().is_none_or(|last| last.revision < revision) {
        if let News::Changes(some) = next(feed).await.unwrap() {
            let before = all.last().map_or(0, |last| last.revision);
            assert!(
                some.first().is_none_or(|first| first.revision > before),
                "a commit is split or repeated"
            );
            all.extend(some);
            assert!(all.is_sorted_by_key(|change| change.revision), "out of order");
        }
    }
    all
}
