//! A bounded ring of events that any number of watchers read at their own pace.
//!
//! ```text
//!   edge                cursor of a watcher        end
//!    │ 17 │ 18 │ 21 │ 22 │ 30 │ 31 │ 32 │ 40 │      ^ publish
//!      └ trimmed as the window moves
//! ```
//! Numbers are [`Event::seq`]s: a view's ring has gaps where events were none of its own.

use crate::event::Event;
use crate::resource::Window;
use crate::watcher::Ended;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::Revision;
use tokio::sync::watch;

/// See the module's documentation.
pub(crate) struct Ring {
    inner: RwLock<Inner>,
    signal: watch::Sender<()>,
    joined: Mutex<VecDeque<Joined>>,
}

struct Inner {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// No event before this one is here any more.
    edge: u64,
    /// Whether nothing will be published any more, and why.
    ended: Option<Ended>,
}

/// The lines of events `from..=to`, made for one watcher and good for all who are at the same place.
struct Joined {
    from: u64,
    to: u64,
    bytes: Bytes,
}

/// How many spans are remembered: watchers that are woken together drift apart by a batch or two.
const JOINED_SPANS: usize = 4;

/// What a watcher finds at its cursor.
pub(crate) enum Read {
    /// Events, at least one.
    Events(Vec<Arc<Event>>),
    /// Nothing yet.
    Empty,
    /// Nothing, ever again.
    Ended(Ended),
}

/// What a watcher has not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It has read everything.
    Nothing,
    /// This event is the first it has not read.
    From(u64),
    /// The first event it has not read is gone.
    Lost,
}

/// How much to read at once. Events of one revision are never split.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl Ring {
    pub(crate) fn new() -> Self {
        let inner = Inner { events: VecDeque::new(), bytes: 0, edge: 0, ended: None };
        Ring { inner: RwLock::new(inner), signal: watch::Sender::new(()), joined: Mutex::default() }
    }

    /// Told whenever there is something new to read.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.signal.subscribe()
    }

    /// Appends events, all at once, and wakes the watchers.
    pub(crate) fn publish(&self, events: Vec<Arc<Event>>) {
        let mut inner = self.inner.write();
        inner.bytes += events.iter().map(|event| event.object.cost()).sum::<usize>();
        inner.events.extend(events);
        drop(inner);
        self.signal.send_replace(());
    }

    /// Puts older events before those that are here.
    pub(crate) fn prepend(&self, events: Vec<Arc<Event>>) {
        let mut inner = self.inner.write();
        for event in events.into_iter().rev() {
            inner.bytes += event.object.cost();
            inner.events.push_front(event);
        }
    }

    /// Forgets the oldest events beyond the window, but never all. Returns the last one forgotten.
    pub(crate) fn trim_to(&self, window: Window) -> Option<Arc<Event>> {
        let mut inner = self.inner.write();
        let mut last = None;
        while inner.events.len() > 1 && (inner.events.len() > window.events || inner.bytes > window.bytes) {
            last = inner.pop();
        }
        last
    }

    /// Forgets all events up to a revision. Returns the last one forgotten.
    pub(crate) fn trim_until(&self, revision: Revision) -> Option<Arc<Event>> {
        let mut inner = self.inner.write();
        let mut last = None;
        while inner.events.front().is_some_and(|event| event.revision <= revision) {
            last = inner.pop();
        }
        if last.is_some() {
            inner.events.shrink_to_fit();
            self.joined.lock().clear();
        }
        last
    }

    /// Forgets events before a sequence number.
    pub(crate) fn trim_before(&self, seq: u64) {
        if self.inner.read().events.front().is_none_or(|event| event.seq >= seq) {
            return;
        }
        let mut inner = self.inner.write();
        while inner.events.front().is_some_and(|event| event.seq < seq) {
            inner.pop();
        }
    }

    /// Lets watchers read what is here, and then end.
    pub(crate) fn end(&self, why: Ended) {
        self.inner.write().ended.get_or_insert(why);
        self.signal.send_replace(());
    }

    /// The first event after a revision.
    pub(crate) fn first_after(&self, revision: Revision) -> Option<u64> {
        let inner = self.inner.read();
        let index = inner.events.partition_point(|event| event.revision <= revision);
        inner.events.get(index).map(|event| event.seq)
    }

    /// The events after one revision and up to another.
    pub(crate) fn between(&self, after: Revision, until: Revision) -> Vec<Arc<Event>> {
        let inner = self.inner.read();
        let from = inner.events.partition_point(|event| event.revision <= after);
        let to = inner.events.partition_point(|event| event.revision <= until);
        inner.events.range(from..to.max(from)).cloned().collect()
    }

    /// What there is at a cursor, without reading it.
    pub(crate) fn unread(&self, cursor: u64) -> Unread {
        let inner = self.inner.read();
        if cursor < inner.edge {
            return Unread::Lost;
        }
        // Almost all watchers have read everything almost always.
        if inner.events.back().is_none_or(|last| last.seq < cursor) {
            return Unread::Nothing;
        }
        inner.events.get(inner.index(cursor)).map_or(Unread::Nothing, |event| Unread::From(event.seq))
    }

    /// Whether everything has been read at a cursor, and more can come.
    pub(crate) fn is_read(&self, cursor: u64) -> bool {
        let inner = self.inner.read();
        inner.ended.is_none()
            && cursor >= inner.edge
            && inner.events.back().is_none_or(|last| last.seq < cursor)
    }

    /// What there is to read at a cursor.
    pub(crate) fn read(&self, cursor: u64, limit: Limit) -> Read {
        let inner = self.inner.read();
        if cursor < inner.edge {
            return Read::Ended(Ended::Slow);
        }
        let from = inner.index(cursor);
        let (mut events, mut bytes) = (Vec::new(), 0);
        for event in inner.events.range(from..) {
            bytes += event.object.as_json().len();
            let full = events.len() >= limit.events || bytes > limit.bytes;
            let same_revision =
                events.last().is_some_and(|last: &Arc<Event>| last.revision == event.revision);
            if full && !events.is_empty() && !same_revision {
                break;
            }
            events.push(event.clone());
        }
        match inner.ended {
            _ if !events.is_empty() => Read::Events(events),
            Some(why) => Read::Ended(why),
            None => Read::Empty,
        }
    }

    /// The lines of consecutive events of this ring as one piece: not copied for one event, and copied once for all
    /// watchers that ask for the same events at about the same time.
    pub(crate) fn join(&self, events: &[Arc<Event>]) -> Bytes {
        let (from, to) = match events {
            [] => return Bytes::new(),
            [only] => return only.line(),
            [first, .., last] => (first.seq, last.seq),
        };
        let shared = self.signal.receiver_count() > 1;
        if shared
            && let Some(joined) =
                self.joined.lock().iter().find(|joined| (joined.from, joined.to) == (from, to))
        {
            return joined.bytes.clone();
        }
        let mut out = Vec::with_capacity(events.iter().map(|event| event.object.cost()).sum());
        for event in events {
            event.object.write_line(&mut out, event.kind);
        }
        let bytes = Bytes::from(out);
        if shared {
            let mut spans = self.joined.lock();
            spans.truncate(JOINED_SPANS - 1);
            spans.push_front(Joined { from, to, bytes: bytes.clone() });
        }
        bytes
    }

    /// How many events are here, and how large they are.
    pub(crate) fn size(&self) -> (usize, usize) {
        let inner = self.inner.read();
        (inner.events.len(), inner.bytes)
    }
}

impl Inner {
    fn pop(&mut self) -> Option<Arc<Event>> {
        let event = self.events.pop_front()?;
        self.bytes -= event.object.cost();
        self.edge = event.seq + 1;
        Some(event)
    }

    fn index(&self, cursor: u64) -> usize {
        self.events.partition_point(|event| event.seq < cursor)
    }
}

/// How far the window reaches, for watchers to see how close they are to falling out of it.
#[derive(Default)]
pub(crate) struct Reach {
    /// The next event's sequence number.
    end: AtomicU64,
    /// How many events the window holds when it is full.
    capacity: AtomicU64,
}

impl Reach {
    /// Takes the measure of a resource's main ring.
    pub(crate) fn update(&self, end: u64, ring: &Ring, window: Window) {
        let (events, bytes) = ring.size();
        let by_size = (window.bytes as u128 * events as u128).checked_div(bytes as u128);
        let capacity = by_size.map_or(window.events as u64, |most| most.min(window.events as u128) as u64);
        self.end.store(end, Ordering::Relaxed);
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    /// How many events can still come before this one is forgotten.
    pub(crate) fn distance(&self, seq: u64) -> u64 {
        (seq + self.capacity()).saturating_sub(self.end.load(Ordering::Relaxed))
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }
}
