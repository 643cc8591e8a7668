//! One watch: a place in a ring.

use crate::cache::{Cache, Start};
use crate::event::{Event, EventType};
use crate::object::{Object, TAIL};
use crate::ring::{Limit, Read, Ring, Unread};
use crate::scope::Scope;
use bytes::Bytes;
use std::sync::Arc;
use store::Revision;
use tokio::sync::watch;

/// Tells the events of a scope, in order, each once.
///
/// # Expected flow
/// Call [`Watcher::next`] or [`Watcher::next_bytes`] in a loop; both can be cancelled. Send a bookmark with
/// [`Watcher::revision`] now and then. While sending blocks, watch [`Watcher::fallen_behind`] too, and give up the
/// connection when it completes: its client can then still resume.
pub struct Watcher {
    cache: Arc<Cache>,
    /// What is watched, unless it is everything.
    scope: Option<Arc<Scope>>,
    ring: Arc<Ring>,
    signal: watch::Receiver<()>,
    initial: Option<Initial>,
    /// The sequence number of the next event to read.
    cursor: u64,
    /// Everything up to here has been told.
    revision: Revision,
    /// How far from the end of the window it was when it began; without limit once it has caught up.
    headroom: u64,
}

/// The present objects, before the changes.
pub(crate) struct Initial {
    pub(crate) objects: std::vec::IntoIter<Arc<Object>>,
    /// Whether the end of them is to be told.
    pub(crate) mark: bool,
    /// A large object's place within its line, of which something is still to be told.
    pub(crate) within: Option<Within>,
}

/// What of a line is to be told next: a large object is not copied into it.
pub(crate) enum Within {
    Object(Bytes),
    Tail,
}

/// What a watcher tells next.
#[derive(Debug, Clone)]
pub enum Batch {
    /// Events, at least one.
    Events(Vec<Arc<Event>>),
    /// That was the present state, as of this revision.
    InitialEventsEnd(Revision),
}

/// What a watcher tells next, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Lines of events. Of the present state it may also be a part of a line, after which the rest of it comes.
    Events(Bytes),
    /// That was the present state, as of this revision.
    InitialEventsEnd(Revision),
}

/// Why a watch is over. Its client can watch again from where it was, or is told that this is too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// It was too far behind.
    #[error("the watcher was too slow")]
    Slow,
    /// The cache had to be read from the store again.
    #[error("the cache was reset")]
    Reset,
    /// The resource was removed.
    #[error("the resource is not served any more")]
    Closed,
}

const BATCH: Limit = Limit { events: 512, bytes: usize::MAX };
/// Enough for a few TLS records; more only makes many slow watchers cost more memory.
const CHUNK: Limit = Limit { events: 512, bytes: 64 << 10 };
/// Objects of more bytes are not copied for each watcher.
const LARGE: usize = 16 << 10;

impl Watcher {
    /// The next events, as many as there are (up to some hundreds); waits for them.
    pub async fn next(&mut self) -> Result<Batch, Ended> {
        if let Some(initial) = &mut self.initial {
            let objects: Vec<Arc<Object>> = initial.objects.by_ref().take(BATCH.events).collect();
            if !objects.is_empty() {
                let added = |object| Arc::new(Event::new(0, EventType::Added, object, None));
                return Ok(Batch::Events(objects.into_iter().map(added).collect()));
            }
            if let Some(revision) = self.end_initial() {
                return Ok(Batch::InitialEventsEnd(revision));
            }
        }
        self.read(BATCH).await.map(Batch::Events)
    }

    /// [`Watcher::next`] as lines of JSON. One event alone is not copied, and watchers of one scope that are at the
    /// same place share the bytes.
    pub async fn next_bytes(&mut self) -> Result<Chunk, Ended> {
        if let Some(initial) = &mut self.initial {
            let mut lines = Vec::new();
            match initial.within.take() {
                Some(Within::Object(json)) => {
                    initial.within = Some(Within::Tail);
                    return Ok(Chunk::Events(json));
                }
                Some(Within::Tail) => lines.extend_from_slice(TAIL),
                None => {}
            }
            while lines.len() < CHUNK.bytes
                && let Some(object) = initial.objects.next()
            {
                if object.as_json().len() > LARGE {
                    lines.extend_from_slice(EventType::Added.head());
                    initial.within = Some(Within::Object(object.json()));
                    break;
                }
                object.write_line(&mut lines, EventType::Added);
            }
            if !lines.is_empty() {
                return Ok(Chunk::Events(Bytes::from(lines)));
            }
            if let Some(revision) = self.end_initial() {
                return Ok(Chunk::InitialEventsEnd(revision));
            }
        }
        let events = self.read(CHUNK).await?;
        Ok(Chunk::Events(self.ring.join(&events)))
    }

    /// How far this watch is: everything up to this revision has been told, so a bookmark may say so. `None` while
    /// the present state is still being told.
    pub fn revision(&mut self) -> Option<Revision> {
        let is_told =
            |initial: &Initial| !initial.mark && initial.objects.len() == 0 && initial.within.is_none();
        if !self.initial.as_ref().is_none_or(is_told) {
            return None;
        }
        // In this order: whatever the hub has applied is in the ring already.
        let applied = self.cache.progress.applied();
        if applied > self.revision && self.ring.is_read(self.cursor) {
            self.revision = applied;
        }
        Some(self.revision)
    }

    /// Completes when events that have not been read are about to leave the window.
    pub async fn fallen_behind(&self) {
        let mut signal = self.signal.clone();
        while !self.is_slow() {
            // The ring holds the sender, and the watcher the ring: this does not fail.
            if signal.changed().await.is_err() {
                return;
            }
        }
    }

    pub(crate) fn new(cache: Arc<Cache>, scope: Option<Arc<Scope>>, ring: Arc<Ring>, start: Start) -> Self {
        let Start { revision, cursor, initial } = start;
        let (signal, headroom) = (ring.subscribe(), cache.reach.distance(cursor));
        Watcher { cache, scope, ring, signal, initial, cursor, revision, headroom }
    }

    async fn read(&mut self, limit: Limit) -> Result<Vec<Arc<Event>>, Ended> {
        loop {
            // Before reading, so that what is published after the reading wakes us.
            self.signal.borrow_and_update();
            if self.is_slow() {
                return Err(Ended::Slow);
            }
            match self.ring.read(self.cursor, limit) {
                Read::Events(events) => {
                    if let Some(last) = events.last() {
                        self.cursor = last.seq + 1;
                        self.revision = last.revision;
                    }
                    return Ok(events);
                }
                Read::Ended(why) => return Err(why),
                Read::Empty => self.headroom = u64::MAX,
            }
            if self.signal.changed().await.is_err() {
                return Err(Ended::Closed);
            }
        }
    }

    /// Ends the present state; tells whether to say so.
    fn end_initial(&mut self) -> Option<Revision> {
        self.initial.take().filter(|initial| initial.mark).map(|_| self.revision)
    }

    /// Whether less than a quarter of the window is left before it loses an event, or less than half of what it had
    /// when it began.
    fn is_slow(&self) -> bool {
        let reach = &self.cache.reach;
        match self.ring.unread(self.cursor) {
            Unread::Nothing => false,
            Unread::From(seq) => reach.distance(seq) < (reach.capacity() / 4).min(self.headroom / 2),
            Unread::Lost => true,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(scope) = &self.scope {
            self.cache.unsubscribe(scope, &self.ring);
        }
    }
}
