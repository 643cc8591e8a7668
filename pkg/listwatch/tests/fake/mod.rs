//! A store in memory whose feed does as it is told.

use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Change, Entry, Error, Feed, News, Page, Range, Revision, Store, Write};
use tokio::sync::watch;

/// The store.
#[derive(Default)]
pub struct Fake {
    inner: Arc<Inner>,
}

struct Inner {
    log: Mutex<Log>,
    signal: watch::Sender<()>,
}

#[derive(Default)]
struct Log {
    changes: Vec<Change>,
    revision: Revision,
    compacted: Revision,
    /// Feeds of an older generation break off.
    generation: u64,
    paused: bool,
    progress_asked: u64,
    /// How many openings of a feed are still to fail.
    refusals: usize,
}

impl Default for Inner {
    fn default() -> Self {
        Inner { log: Mutex::default(), signal: watch::Sender::new(()) }
    }
}

impl Fake {
    /// Makes feeds say nothing, or go on.
    pub fn pause(&self, paused: bool) {
        self.inner.log.lock().paused = paused;
        self.inner.signal.send_replace(());
    }

    /// Makes all feeds break off, and the next few openings fail.
    pub fn break_feeds(&self, refusals: usize) {
        let mut log = self.inner.log.lock();
        log.generation += 1;
        log.refusals = refusals;
        drop(log);
        self.inner.signal.send_replace(());
    }
}

impl Log {
    fn state(&self, revision: Revision) -> BTreeMap<&str, Entry> {
        let mut state: BTreeMap<&str, Entry> = BTreeMap::new();
        for change in self.changes.iter().take_while(|change| change.revision <= revision) {
            match &change.value {
                Some(value) => {
                    let (key, value) = (change.key.clone(), value.clone());
                    let (modified, created) = (change.revision, change.created);
                    state.insert(&change.key, Entry { key, value, modified, created });
                }
                None => {
                    state.remove(&*change.key);
                }
            }
        }
        state
    }

    fn check(&self, asked: Revision) -> Result<(), Error> {
        match asked {
            _ if asked < self.compacted => Err(Error::Compacted { asked, oldest: self.compacted }),
            _ if asked > self.revision => Err(Error::Future { asked, current: self.revision }),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Fake {
    async fn commit(&self, writes: Vec<Write>) -> Result<Revision, Error> {
        let mut log = self.inner.log.lock();
        let revision = log.revision + 1;
        let mut changes = Vec::new();
        for write in writes {
            let current = log.state(log.revision).remove(&*write.key);
            if !write.expect.holds(current.as_ref().map(|current| current.modified)) {
                return Err(Error::Conflict { key: write.key, current });
            }
            let created = current.filter(|_| write.value.is_some()).map_or(revision, |c| c.created);
            changes.push(Change { key: write.key, value: write.value, revision, created });
        }
        log.revision = revision;
        log.changes.extend(changes);
        drop(log);
        self.inner.signal.send_replace(());
        Ok(revision)
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        let log = self.inner.log.lock();
        Ok(log.state(log.revision).remove(key))
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        let log = self.inner.log.lock();
        let revision = range.revision.unwrap_or(log.revision);
        log.check(revision)?;
        let state = log.state(revision);
        let after = range.after.unwrap_or_default();
        let found = state.into_values().filter(|e| e.key.starts_with(&range.prefix) && e.key > after);
        let mut entries: Vec<Entry> = found.collect();
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        let remaining = entries.len().saturating_sub(limit) as u64;
        entries.truncate(limit);
        Ok(Page { entries, revision, remaining })
    }

    async fn revision(&self) -> Result<Revision, Error> {
        Ok(self.inner.log.lock().revision)
    }

    async fn changes(&self, prefix: &str, after: Revision) -> Result<Box<dyn Feed>, Error> {
        let mut log = self.inner.log.lock();
        if log.refusals > 0 {
            log.refusals -= 1;
            return Err(broken());
        }
        log.check(after)?;
        let (generation, progress_asked) = (log.generation, log.progress_asked);
        let signal = self.inner.signal.subscribe();
        let (inner, prefix) = (self.inner.clone(), prefix.to_owned());
        Ok(Box::new(FakeFeed { inner, signal, prefix, after, generation, progress_asked }))
    }

    async fn request_progress(&self) -> Result<(), Error> {
        self.inner.log.lock().progress_asked += 1;
        self.inner.signal.send_replace(());
        Ok(())
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        let mut log = self.inner.log.lock();
        log.compacted = log.compacted.max(revision);
        Ok(())
    }
}

struct FakeFeed {
    inner: Arc<Inner>,
    signal: watch::Receiver<()>,
    prefix: String,
    after: Revision,
    generation: u64,
    progress_asked: u64,
}

#[async_trait]
impl Feed for FakeFeed {
    async fn next(&mut self) -> Result<News, Error> {
        loop {
            self.signal.borrow_and_update();
            if let Some(news) = self.news()? {
                return Ok(news);
            }
            self.signal.changed().await.expect("the feed holds the sender");
        }
    }
}

impl FakeFeed {
    fn news(&mut self) -> Result<Option<News>, Error> {
        let log = self.inner.log.lock();
        if log.generation != self.generation {
            return Err(broken());
        }
        if log.paused {
            return Ok(None);
        }
        let news = log.changes.iter().filter(|c| c.revision > self.after && c.key.starts_with(&self.prefix));
        let changes: Vec<Change> = news.cloned().collect();
        if let Some(last) = changes.last() {
            self.after = last.revision;
            return Ok(Some(News::Changes(changes)));
        }
        if log.progress_asked > self.progress_asked {
            self.progress_asked = log.progress_asked;
            self.after = log.revision;
            return Ok(Some(News::Progress(log.revision)));
        }
        Ok(None)
    }
}

fn broken() -> Error {
    Error::Unavailable { doing: "follow".into(), source: "broken off by the test".into() }
}
