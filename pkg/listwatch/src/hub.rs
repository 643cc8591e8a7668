//! The hub: one feed of the store drives all caches.
//!
//! ```text
//! start:     list everything at now − 10,000 ──> replay the feed from there ──> live
//! register:  hold back changes ──> list the prefix ──> apply those that came after the list ──> live
//! again:     the same beside the old cache, which is told of changes for as long as somebody reads from it
//! compacted: list everything again; watchers are sent away and the window begins anew
//! ```

use crate::cache::Cache;
use crate::resource::ResourceConfig;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::{Change, Entry, Error, News, Range, Revision, Store};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// All keys that the API's objects are under.
const ROOT: &str = "/registry/";
/// How much of the past is replayed at start, so that watches from before can be resumed.
const HISTORY_REVISIONS: u64 = 10_000;
/// How often history may be compacted away from under us before that is an error.
const COMPACTION_RACES: usize = 4;
const PAGE_ENTRIES: usize = 1_000;
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// How long a feed may be silent before it is asked how far it is.
const FIRST_PATIENCE: Duration = Duration::from_millis(5);
const LAST_PATIENCE: Duration = Duration::from_millis(100);

/// The caches of all resources, and the task that feeds them. Dropping it ends the task and all watches.
///
/// # Expected flow
/// After a write, [`wait`](Hub::wait) for its revision before answering: whoever reads next sees it. For a read that
/// must not be stale, ask the store for its revision, wait for that, and read from the cache. The same before a watch
/// that is to begin at the present, or at a revision that somebody else was told.
pub struct Hub {
    shared: Arc<Shared>,
    feed: JoinHandle<()>,
}

struct Shared {
    store: Arc<dyn Store>,
    caches: RwLock<Caches>,
    progress: Arc<Progress>,
    /// Held while the set of caches changes or all are read again: these must not overlap.
    membership: Mutex<()>,
    /// Held by the one who asks the store for progress.
    asking: Mutex<()>,
}

/// Everybody who is told of changes.
#[derive(Default)]
struct Caches {
    by_prefix: BTreeMap<String, Arc<Cache>>,
    /// Those that are still being read from the store, and those that were replaced while somebody reads from them.
    beside: Vec<Weak<Cache>>,
}

impl Caches {
    fn join(&mut self, cache: &Arc<Cache>) {
        self.leave(cache);
        self.beside.push(Arc::downgrade(cache));
    }

    /// Takes a cache, and all that nobody has any more, from those beside.
    fn leave(&mut self, cache: &Arc<Cache>) {
        self.beside.retain(|other| other.strong_count() > 0 && other.as_ptr() != Arc::as_ptr(cache));
    }

    /// Makes a cache that is complete the one of its prefix.
    fn replace(&mut self, cache: &Arc<Cache>) {
        self.leave(cache);
        if let Some(old) = self.by_prefix.insert(cache.config().prefix.clone(), cache.clone()) {
            old.retire();
            self.join(&old);
        }
    }

    fn beside(&self) -> Vec<Arc<Cache>> {
        self.beside.iter().filter_map(Weak::upgrade).collect()
    }

    fn all(&self) -> Vec<Arc<Cache>> {
        self.by_prefix.values().cloned().chain(self.beside()).collect()
    }

    /// The cache whose prefix a key has. Prefixes end in `/` and none is the beginning of another.
    fn of(&self, key: &str) -> Option<&Arc<Cache>> {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let (prefix, cache) = self.by_prefix.range::<str, _>(upto).next_back()?;
        key.starts_with(prefix.as_str()).then_some(cache)
    }
}

/// How far all caches are.
pub(crate) struct Progress {
    applied: AtomicU64,
    signal: watch::Sender<Revision>,
}

impl Progress {
    fn new() -> Self {
        Progress { applied: AtomicU64::new(0), signal: watch::Sender::new(0) }
    }

    pub(crate) fn applied(&self) -> Revision {
        self.applied.load(Ordering::Acquire)
    }

    fn advance(&self, revision: Revision) {
        if self.applied.fetch_max(revision, Ordering::Release) < revision {
            self.signal.send_replace(revision);
        }
    }
}

impl Hub {
    /// Reads the resources from the store, replays the recent past, and follows the feed from then on. Completes
    /// when the caches are as recent as the store was when it was called.
    pub async fn start(store: Arc<dyn Store>, resources: Vec<ResourceConfig>) -> Result<Hub, Error> {
        let progress = Arc::new(Progress::new());
        let caches = resources
            .into_iter()
            .map(|config| (config.prefix.clone(), Arc::new(Cache::new(config, progress.clone()))));
        let caches = RwLock::new(Caches { by_prefix: caches.collect(), beside: Vec::new() });
        let (membership, asking) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { store, caches, progress, membership, asking });
        let now = shared.store.revision().await?;
        shared.load_past(now).await?;
        let feed = tokio::spawn(shared.clone().follow());
        let hub = Hub { shared, feed };
        hub.wait(now).await;
        Ok(hub)
    }

    /// Adds a resource. The cache is complete when this returns; its window begins then. If there was one of its
    /// prefix it takes that one's place: the watches there end, and who still reads from it is not told lies.
    pub async fn register(&self, config: ResourceConfig) -> Result<Arc<Cache>, Error> {
        let _alone = self.shared.membership.lock().await;
        let prefix = config.prefix.clone();
        let cache = Arc::new(Cache::new(config, self.shared.progress.clone()));
        loop {
            let position = {
                // While this is locked the feed stands still: all changes after the position are held back.
                let mut caches = self.shared.caches.write();
                cache.hold();
                caches.join(&cache);
                self.shared.progress.applied()
            };
            let (entries, revision) = self.shared.list(&prefix, None).await?;
            if revision >= position && cache.load(&entries, revision) {
                break;
            }
            tokio::time::sleep(FIRST_RETRY).await;
        }
        self.shared.caches.write().replace(&cache);
        Ok(cache)
    }

    /// Removes a resource. Its watches end.
    pub fn remove(&self, prefix: &str) {
        let removed = self.shared.caches.write().by_prefix.remove(prefix);
        if let Some(cache) = removed {
            cache.close();
        }
    }

    /// The cache of a prefix.
    pub fn cache(&self, prefix: &str) -> Option<Arc<Cache>> {
        self.shared.caches.read().by_prefix.get(prefix).filter(|cache| cache.is_live()).cloned()
    }

    /// The revision up to which all caches have applied everything.
    pub fn revision(&self) -> Revision {
        self.shared.progress.applied()
    }

    /// Completes when all caches have applied everything up to a revision. If that takes long because nothing that
    /// concerns them has happened, the store is asked to say so. Put your own time limit on it.
    pub async fn wait(&self, revision: Revision) {
        if self.revision() >= revision {
            return;
        }
        let mut signal = self.shared.progress.signal.subscribe();
        let mut patience = FIRST_PATIENCE;
        while *signal.borrow_and_update() < revision {
            if tokio::time::timeout(patience, signal.changed()).await.is_err() {
                self.shared.request_progress().await;
                patience = (patience * 2).min(LAST_PATIENCE);
            }
        }
    }

    /// Ends the task and all watches.
    pub async fn stop(mut self) {
        self.feed.abort();
        // The only outcome of an aborted task is that it was.
        let _ = (&mut self.feed).await;
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.feed.abort();
        let caches = std::mem::take(&mut *self.shared.caches.write());
        caches.all().iter().for_each(|cache| cache.close());
    }
}

impl Shared {
    /// Reads all resources as they were a while before `now`, or as early as compaction allows.
    async fn load_past(&self, now: Revision) -> Result<(), Error> {
        let mut base = now.saturating_sub(HISTORY_REVISIONS).max(1).min(now);
        for _ in 0..COMPACTION_RACES {
            match self.load_all(base).await {
                Err(Error::Compacted { oldest, .. }) => {
                    let now = self.store.revision().await?;
                    base = if oldest > base { oldest.min(now) } else { now };
                }
                outcome => return outcome,
            }
        }
        self.load_all(base).await
    }

    /// Reads all resources as of one revision.
    async fn load_all(&self, revision: Revision) -> Result<(), Error> {
        let caches = self.caches.read().all();
        for cache in caches {
            // Revision 0 is before everything: there is nothing to read.
            let entries = match revision {
                0 => Vec::new(),
                revision => self.list(&cache.config().prefix, Some(revision)).await?.0,
            };
            cache.hold();
            cache.load(&entries, revision);
        }
        self.progress.advance(revision);
        Ok(())
    }

    /// Everything under a prefix, as of one revision.
    async fn list(&self, prefix: &str, revision: Option<Revision>) -> Result<(Vec<Entry>, Revision), Error> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut at = revision;
        loop {
            let after = entries.last().map(|entry| entry.key.clone());
            let range = Range { prefix: prefix.into(), after, limit: PAGE_ENTRIES, revision: at };
            let page = self.store.range(range).await?;
            let revision = *at.get_or_insert(page.revision);
            let done = page.remaining == 0 || page.entries.is_empty();
            entries.extend(page.entries);
            if done {
                return Ok((entries, revision));
            }
        }
    }

    /// Follows the feed, for ever.
    async fn follow(self: Arc<Self>) {
        let mut delay = FIRST_RETRY;
        loop {
            let before = self.progress.applied();
            let error = self.follow_once().await;
            if self.progress.applied() > before {
                delay = FIRST_RETRY;
            }
            tracing::warn!(%error, revision = self.progress.applied(), "the change feed broke off");
            if matches!(error, Error::Compacted { .. })
                && let Err(error) = self.load_anew().await
            {
                tracing::warn!(%error, "could not read the caches again");
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(LAST_RETRY);
        }
    }

    /// Follows the feed until it breaks off.
    async fn follow_once(&self) -> Error {
        let mut feed = match self.store.changes(ROOT, self.progress.applied()).await {
            Ok(feed) => feed,
            Err(error) => return error,
        };
        loop {
            match feed.next().await {
                Ok(News::Changes(changes)) => self.apply(changes),
                Ok(News::Progress(revision)) => {
                    let _still = self.caches.read();
                    self.progress.advance(revision);
                }
                Err(error) => return error,
            }
        }
    }

    fn apply(&self, changes: Vec<Change>) {
        let Some(revision) = changes.last().map(|last| last.revision) else { return };
        let caches = self.caches.read();
        let beside = caches.beside();
        let mut batches: Vec<(&Arc<Cache>, Vec<Change>)> = Vec::new();
        let mut tell = |cache, change| match batches.iter_mut().find(|(known, _)| Arc::ptr_eq(known, cache)) {
            Some((_, batch)) => batch.push(change),
            None => batches.push((cache, vec![change])),
        };
        for change in changes {
            for other in beside.iter().filter(|other| change.key.starts_with(&other.config().prefix)) {
                tell(other, change.clone());
            }
            if let Some(cache) = caches.of(&change.key) {
                tell(cache, change);
            }
        }
        for (cache, batch) in batches {
            cache.apply(&batch, revision);
        }
        self.progress.advance(revision);
    }

    /// After a gap in the feed: reads everything as it is now.
    async fn load_anew(&self) -> Result<(), Error> {
        let _alone = self.membership.lock().await;
        let mut position = self.store.revision().await?;
        let caches = self.caches.read().all();
        for cache in caches {
            let (entries, revision) = self.list(&cache.config().prefix, None).await?;
            cache.load(&entries, revision);
            position = position.min(revision);
        }
        self.progress.advance(position);
        Ok(())
    }

    async fn request_progress(&self) {
        let Ok(_alone) = self.asking.try_lock() else { return };
        if let Err(error) = self.store.request_progress().await {
            tracing::debug!(%error, "could not ask the store for its progress");
        }
    }
}
