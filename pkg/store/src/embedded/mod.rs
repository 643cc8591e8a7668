//! The embedded engine: a log with snapshots in one directory. The log is the change feed.
//!
//! ```text
//! commit ─> queue ─> writer thread: check, append, one fdatasync for all that waited
//!                        └─> index (key -> where its versions stand) ─> get, range: pread
//!                        └─> window ─> feeds (behind it: the log itself)
//! compact ─> writer ─> maintainer thread: trim index, write snapshot, remove segments
//! ```
//!
//! # Guarantees
//! - An answered commit is on disk, and visible to every read and feed that comes after.
//! - A crash loses at most commits that were not answered, each as a whole.
//! - Damage to what was durable is an error that names file and offset, never a silent loss.
//! - A full disk refuses writes and nothing else; when there is room again, writes go on.
//! - After a failed fsync nobody knows what is on disk: writes are refused until the store is opened anew.
//!
//! # Caveats
//! Of a log that ends in a damaged record nobody can tell whether the last write was torn by a crash or
//! damaged later: it is taken for torn.

mod files;
mod history;
mod index;
mod maintainer;
mod recover;
mod state;
mod writer;

use crate::window::WindowFeed;
use crate::{
    Entry, Error, Feed, Page, Range, Revision, Store, Write, check_writes, record::ReadError, unavailable,
};
use async_trait::async_trait;
use history::LogHistory;
use state::{Found, Shared};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};
use writer::{Refusal, Request};

pub(crate) use files::{Kind, SNAPSHOT_MAGIC, path as file_path};

/// How many commits may wait for the writer before callers wait to hand theirs in.
const QUEUE: usize = 1024;
/// How many keys a read or the maintainer looks at before it lets the writer in.
const KEYS_PER_LOCK: usize = 2048;
/// The most that the keys and values of one commit may take together.
const COMMIT_BYTES_MAX: usize = 8 << 20;

/// How big things may get. The default suits everybody but tests.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// A segment of the log that has grown to this is followed by another.
    pub segment_bytes: u64,
    /// A snapshot is written when it sets free more than it takes, and more than this.
    pub garbage_bytes_min: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_bytes: 16 << 20, garbage_bytes_min: 8 << 20 }
    }
}

/// The embedded engine.
pub struct Embedded {
    shared: Arc<Shared>,
    /// Taken away when the engine is dropped, which ends the writer.
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
    maintainer: Option<JoinHandle<()>>,
    /// Held for as long as the engine lives.
    lock: File,
}

impl Embedded {
    /// Opens the store in a directory; makes it if it is not there.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Self::open_with(dir, Options::default())
    }

    /// Opens it with other sizes.
    pub fn open_with(dir: &Path, options: Options) -> Result<Self, Error> {
        let opening = || format!("open the store in {}", dir.display());
        std::fs::create_dir_all(dir).map_err(|e| unavailable(opening(), e))?;
        let lock = files::lock(dir).map_err(|e| unavailable(opening(), e))?;
        let state = recover::recover(dir).map_err(|e| unavailable(opening(), e))?;
        let shared = Arc::new(Shared::new(dir, options, state));
        let (requests, queue) = mpsc::channel(QUEUE);
        let writer = spawn("store-writer", {
            let shared = shared.clone();
            move || writer::run(&shared, queue)
        })
        .map_err(|e| unavailable(opening(), e))?;
        let maintainer = spawn("store-maintain", {
            let shared = shared.clone();
            move || maintainer::run(&shared)
        })
        .map_err(|e| unavailable(opening(), e))?;
        let requests = Some(requests);
        Ok(Self { shared, requests, writer: Some(writer), maintainer: Some(maintainer), lock })
    }

    /// How many bytes the log and the snapshot take.
    pub fn disk_bytes(&self) -> u64 {
        self.shared.state.read().files().map(|file| file.size).sum()
    }

    async fn ask<T>(
        &self,
        doing: &str,
        request: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> Request,
    ) -> Result<T, Error> {
        let stopped = || unavailable(doing, "the store's writer has stopped");
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or_else(stopped)?;
        requests.send(request(reply)).await.map_err(|_| stopped())?;
        match answer.await.map_err(|_| stopped())? {
            Ok(answer) => Ok(answer),
            Err(Refusal::Error(error)) => Err(error),
            Err(Refusal::Conflict { key, current: None }) => Err(Error::Conflict { key, current: None }),
            Err(Refusal::Conflict { key, current: Some(found) }) => {
                let current = blocking(doing, move || found.read()).await?;
                Err(Error::Conflict { key, current: Some(current) })
            }
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.requests = None;
        self.shared.stop_maintainer();
        for thread in [self.writer.take(), self.maintainer.take()].into_iter().flatten() {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
        self.shared.window.set_down(Some("the store is closed".to_owned()));
        // By word, not just by closing: a process that is being started elsewhere may have the file open too
        // for a moment. Should it fail, closing does it.
        let _ = self.lock.unlock();
    }
}

#[async_trait]
impl Store for Embedded {
    async fn commit(&self, writes: Vec<Write>) -> Result<Revision, Error> {
        check_writes(&writes)?;
        let size: usize =
            writes.iter().map(|w| w.key.len() + w.value.as_ref().map_or(0, bytes::Bytes::len)).sum();
        if size > COMMIT_BYTES_MAX {
            return Err(unavailable("commit", format!("{size} bytes; at most {COMMIT_BYTES_MAX} fit")));
        }
        if let Some(long) = writes.iter().find(|w| w.key.len() > usize::from(u16::MAX)) {
            return Err(unavailable("commit", format!("a key of {} bytes", long.key.len())));
        }
        self.ask("commit", |reply| Request::Commit { writes, reply }).await
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        let Some(found) = self.shared.state.read().latest(key) else { return Ok(None) };
        blocking("read a value", move || found.read()).await.map(Some)
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        loop {
            match self.shared.collect(&range) {
                Ok((found, revision, remaining)) => {
                    let entries =
                        blocking("read values", move || found.into_iter().map(Found::read).collect()).await?;
                    return Ok(Page { entries, revision, remaining });
                }
                // The present was compacted while it was read: there is a later one.
                Err(Error::Compacted { .. }) if range.revision.is_none() => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn revision(&self) -> Result<Revision, Error> {
        Ok(self.shared.state.read().revision)
    }

    async fn changes(&self, prefix: &str, after: Revision) -> Result<Box<dyn Feed>, Error> {
        self.shared.state.read().check(after)?;
        let history = LogHistory::new(self.shared.clone());
        Ok(Box::new(WindowFeed::open(self.shared.window.clone(), prefix, after, history)))
    }

    async fn request_progress(&self) -> Result<(), Error> {
        let revision = self.shared.state.read().revision;
        self.shared.window.request_progress(revision);
        Ok(())
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.ask("compact", |reply| Request::Compact { revision, reply }).await
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// Reads from disk where that stops nobody else.
async fn blocking<T: Send + 'static>(
    doing: &str,
    read: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(read).await {
        Ok(result) => result.map_err(|error| unavailable(doing, error)),
        Err(error) => Err(unavailable(doing, error)),
    }
}

#[cfg(test)]
mod tests;
