//! The recent past in memory, and the feeds that read it: what both engines have in common.
//!
//! ```text
//! engine ──publish──> [batch][batch][batch] ──take──> feed ──> News
//!                      └── start         └── end       │ behind the start?
//!                                                      └──> History (the log, or etcd), then back
//! ```
//!
//! The window is bounded: a feed that is too slow costs nothing but its place; it catches up from the
//! engine's [`History`]. A feed under whose prefix nothing happens is moved along without being woken.
//!
//! This module never talks to a disk or a network.

use crate::{Change, Error, Feed, News, Revision, unavailable};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// How much the window keeps, of keys and values.
const WINDOW_BYTES: usize = 4 << 20;
/// How many changes it keeps at most, however small.
const WINDOW_CHANGES: usize = 16 << 10;
/// A feed stops collecting when it has this many changes; the batch that crosses it is still taken whole.
pub const NEWS_CHANGES: usize = 1024;

/// Where a feed reads what the window has forgotten.
#[async_trait]
pub trait History: Send {
    /// Some changes under the prefix after a revision, and the revision up to which these are all. That
    /// revision is always later than `after`, or this is an error.
    async fn read(&mut self, prefix: &str, after: Revision) -> Result<(Vec<Change>, Revision), Error>;
    /// The window has the rest; what was held for reading can go.
    fn rest(&mut self);
}

/// The recent past.
pub struct Window {
    inner: Mutex<Inner>,
    /// The same as `Inner::end`, for those who wait for it.
    end: watch::Sender<Revision>,
}

struct Inner {
    /// Changes after this revision are all in `batches`.
    start: Revision,
    /// Up to here.
    end: Revision,
    batches: VecDeque<Batch>,
    bytes: usize,
    changes: usize,
    feeds: HashMap<u64, Place>,
    next_feed: u64,
    /// Feeds that were asked for progress say so from this revision on.
    progress_goal: Revision,
    /// Why nothing more can come at the moment.
    down: Option<String>,
}

/// What was published at once; commits are never split over two.
struct Batch {
    last: Revision,
    bytes: usize,
    changes: Vec<Change>,
}

/// Where a feed stands.
struct Place {
    prefix: String,
    /// It has all changes up to here.
    after: Revision,
    progress_due: bool,
    wake: Arc<Notify>,
}

/// What a feed finds.
enum Taken {
    News(News),
    /// The window has forgotten what comes after this revision.
    Behind(Revision),
    Nothing,
    Down(String),
}

impl Window {
    /// Empty, at a revision.
    pub fn new(revision: Revision) -> Self {
        Self {
            inner: Mutex::new(Inner {
                start: revision,
                end: revision,
                batches: VecDeque::new(),
                bytes: 0,
                changes: 0,
                feeds: HashMap::new(),
                next_feed: 0,
                progress_goal: 0,
                down: None,
            }),
            end: watch::Sender::new(revision),
        }
    }

    /// Waits until the window knows everything up to a revision.
    pub async fn reaches(&self, revision: Revision) {
        // It fails only without a sender, and we are the sender.
        let _ = self.end.subscribe().wait_for(|end| *end >= revision).await;
    }

    /// Adds whole commits, in order; `last` is the revision of the last. It wakes the feeds that care.
    pub fn publish(&self, changes: Vec<Change>, last: Revision) {
        let mut inner = self.inner.lock();
        let (before, goal) = (inner.end, inner.progress_goal);
        if last <= before {
            return;
        }
        for place in inner.feeds.values_mut() {
            if place.after < before || changes.iter().any(|change| place.wants(change)) {
                place.wake.notify_one();
            } else {
                place.after = place.after.max(last);
                if place.progress_due && place.after >= goal {
                    place.wake.notify_one();
                }
            }
        }
        let bytes = size_of::<Batch>() + changes.iter().map(size).sum::<usize>();
        inner.end = last;
        inner.bytes += bytes;
        inner.changes += changes.len();
        inner.batches.push_back(Batch { last, bytes, changes });
        while inner.bytes > WINDOW_BYTES || inner.changes > WINDOW_CHANGES {
            let Some(oldest) = inner.batches.pop_front() else { break };
            inner.bytes -= oldest.bytes;
            inner.changes -= oldest.changes.len();
            inner.start = oldest.last;
        }
        self.end.send_replace(last);
    }

    /// Forgets everything: from now on the window begins, empty, at a later revision.
    pub fn restart(&self, revision: Revision) {
        let mut inner = self.inner.lock();
        inner.batches.clear();
        (inner.bytes, inner.changes) = (0, 0);
        (inner.start, inner.end) = (revision, revision);
        self.end.send_replace(revision);
        inner.feeds.values().for_each(|place| place.wake.notify_one());
    }

    /// Every feed shall say how far it is once it is at `goal`.
    pub fn request_progress(&self, goal: Revision) {
        let mut inner = self.inner.lock();
        inner.progress_goal = inner.progress_goal.max(goal);
        for place in inner.feeds.values_mut() {
            place.progress_due = true;
            place.wake.notify_one();
        }
    }

    /// Feeds that have read everything now end with this reason, until the window is up again.
    pub fn set_down(&self, reason: Option<String>) {
        let mut inner = self.inner.lock();
        inner.down = reason;
        inner.feeds.values().for_each(|place| place.wake.notify_one());
    }

    fn take(&self, feed: u64) -> Taken {
        let mut inner = self.inner.lock();
        let Inner { start, batches, feeds, progress_goal, down, .. } = &mut *inner;
        let Some(place) = feeds.get_mut(&feed) else { return Taken::Nothing };
        if place.after < *start {
            return Taken::Behind(place.after);
        }
        let mut found = Vec::new();
        let mut after = place.after;
        for batch in batches.range(batches.partition_point(|batch| batch.last <= place.after)..) {
            found.extend(batch.changes.iter().filter(|change| place.wants(change)).cloned());
            after = batch.last;
            if found.len() >= NEWS_CHANGES {
                break;
            }
        }
        place.after = after;
        if !found.is_empty() {
            return Taken::News(News::Changes(found));
        }
        if place.progress_due && place.after >= *progress_goal {
            place.progress_due = false;
            return Taken::News(News::Progress(place.after));
        }
        match down {
            Some(reason) => Taken::Down(reason.clone()),
            None => Taken::Nothing,
        }
    }

    fn advance(&self, feed: u64, revision: Revision) {
        if let Some(place) = self.inner.lock().feeds.get_mut(&feed) {
            place.after = place.after.max(revision);
        }
    }
}

impl Place {
    fn wants(&self, change: &Change) -> bool {
        change.revision > self.after && change.key.starts_with(&self.prefix)
    }
}

/// A feed: history first where it must, then the window.
pub struct WindowFeed<H> {
    window: Arc<Window>,
    id: u64,
    prefix: String,
    wake: Arc<Notify>,
    history: H,
}

impl<H: History> WindowFeed<H> {
    /// The changes under `prefix` after a revision.
    pub fn open(window: Arc<Window>, prefix: &str, after: Revision, history: H) -> Self {
        let wake = Arc::new(Notify::new());
        let prefix = prefix.to_owned();
        let place = Place { prefix: prefix.clone(), after, progress_due: false, wake: wake.clone() };
        let id = {
            let mut inner = window.inner.lock();
            inner.next_feed += 1;
            let id = inner.next_feed;
            inner.feeds.insert(id, place);
            id
        };
        Self { window, id, prefix, wake, history }
    }
}

#[async_trait]
impl<H: History> Feed for WindowFeed<H> {
    async fn next(&mut self) -> Result<News, Error> {
        loop {
            match self.window.take(self.id) {
                Taken::News(news) => {
                    self.history.rest();
                    return Ok(news);
                }
                Taken::Behind(after) => {
                    // Whoever drops this future here loses nothing: the place moves only afterwards.
                    let (changes, upto) = self.history.read(&self.prefix, after).await?;
                    self.window.advance(self.id, upto);
                    if !changes.is_empty() {
                        return Ok(News::Changes(changes));
                    }
                }
                Taken::Nothing => {
                    self.history.rest();
                    self.wake.notified().await;
                }
                Taken::Down(reason) => return Err(unavailable("follow changes", reason)),
            }
        }
    }
}

impl<H> Drop for WindowFeed<H> {
    fn drop(&mut self) {
        self.window.inner.lock().feeds.remove(&self.id);
    }
}

fn size(change: &Change) -> usize {
    size_of::<Change>() + change.key.len() + change.value.as_ref().map_or(0, |value| value.len())
}
