//! A priority level at work: its queues behind a lock, and requests that wait for others to finish.
//!
//! A [`Seat`] is given back when it is dropped, and a [`Place`] in a queue given up: however a request ends (answered, out
//! of time, its client gone), nothing of it stays behind. Who is given a seat while they go away drops it with the rest.

use super::counters::Counters;
use super::queue_set::{Arrival, QueueSet, Queuing, Refusal, Seated, Ticket};
use super::rules::{Distinguisher, Rules};
use super::shares::{Allotment, Wish};
use http::header::HeaderValue;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// A FlowSchema with the level that its requests go to.
#[derive(Debug)]
pub struct Schema {
    pub name: String,
    pub rules: Rules,
    pub distinguisher: Distinguisher,
    pub level: Arc<Level>,
    pub counters: Arc<Counters>,
    /// Of the FlowSchema and of the level, as answers say them.
    pub uids: [HeaderValue; 2],
}

/// A priority level.
#[derive(Debug)]
pub struct Level {
    pub name: String,
    /// Whether its requests wait for nothing.
    pub is_exempt: bool,
    state: Mutex<State>,
    /// How many of its requests are worked on, where it is exempt.
    executing: AtomicU32,
    /// Told when a request did not get its seat at once.
    contended: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    set: QueueSet<Waiter>,
    allotment: Allotment,
    most_of_one: u32,
    looked_at: Instant,
}

/// How a level is laid out at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    pub queuing: Option<Queuing>,
    pub allotment: Allotment,
}

/// A request that is worked on.
#[derive(Debug)]
pub struct Seat {
    pub schema: Arc<Schema>,
    seated: Option<Seated>,
    since: Instant,
}

/// A request's place in a queue.
#[derive(Debug)]
pub struct Place {
    schema: Arc<Schema>,
    ticket: Ticket,
    seat: oneshot::Receiver<Seat>,
    since: Instant,
    has_ended: bool,
}

/// Who waits in a queue.
#[derive(Debug)]
struct Waiter {
    schema: Arc<Schema>,
    tell: oneshot::Sender<Seat>,
    since: Instant,
}

/// What comes of asking for a seat.
#[derive(Debug)]
pub enum Asked {
    Seat(Seat),
    Wait(Place),
    Refused(Arc<Schema>),
}

impl Level {
    pub fn new(name: &str, is_exempt: bool, contended: Arc<Notify>, now: Instant) -> Level {
        let state = State {
            set: QueueSet::new(None, 0),
            allotment: Allotment::default(),
            most_of_one: 1,
            looked_at: now,
        };
        Level {
            name: name.to_owned(),
            is_exempt,
            state: Mutex::new(state),
            executing: AtomicU32::new(0),
            contended,
        }
    }

    /// Lays it out anew. Its limit is what is divided next.
    pub fn lay_out(&self, layout: Layout) {
        let mut state = self.state.lock();
        state.set.set_queuing(layout.queuing);
        state.allotment = layout.allotment;
        state.most_of_one = layout.allotment.most_of_one(layout.queuing.map(|queuing| queuing.hand_size));
    }

    /// Nobody comes any more. Those who wait must get their turn.
    pub fn retire(&self, now: Instant) {
        let limit = self.limit();
        self.set_limit(limit.max(1), now);
    }

    pub fn set_limit(&self, limit: u32, now: Instant) {
        let given = self.state.lock().set.set_limit(limit, now);
        deliver(given, now);
    }

    pub fn limit(&self) -> u32 {
        self.state.lock().set.limit()
    }

    pub fn allotment(&self) -> Allotment {
        self.state.lock().allotment
    }

    pub fn has_waiting(&self) -> bool {
        self.state.lock().set.has_waiting()
    }

    /// What it wants of all seats.
    pub fn wish(&self, now: Instant) -> Wish {
        let mut state = self.state.lock();
        let allotment = state.allotment;
        if self.is_exempt {
            // Its own part is kept free for it; beyond that it asks nobody.
            let allotment = Allotment { most: allotment.nominal, ..allotment };
            return Wish { allotment, wanted: self.executing.load(Relaxed).into() };
        }
        let since = now.saturating_duration_since(state.looked_at);
        state.looked_at = now;
        Wish { allotment, wanted: state.set.wanted(since) }
    }
}

impl Schema {
    /// Asks for seats for a request of one of its flows.
    pub fn ask(self: Arc<Schema>, flow: u64, seats: u32) -> Asked {
        let now = Instant::now();
        if self.level.is_exempt {
            self.level.executing.fetch_add(1, Relaxed);
            self.counters.dispatched(1);
            return Asked::Seat(Seat { schema: self, seated: None, since: now });
        }
        let waiter = || {
            let (tell, told) = oneshot::channel();
            self.counters.queued(1);
            (Waiter { schema: self.clone(), tell, since: now }, told)
        };
        let mut state = self.level.state.lock();
        let seats = seats.min(state.most_of_one);
        let arrival = state.set.arrive(flow, seats, now, waiter);
        drop(state);
        match arrival {
            Arrival::Seated(seated) => {
                self.counters.dispatched(seats);
                Asked::Seat(Seat { schema: self, seated: Some(seated), since: now })
            }
            Arrival::Queued(ticket, seat, given) => {
                self.level.contended.notify_one();
                deliver(given, now);
                Asked::Wait(Place { schema: self, ticket, seat, since: now, has_ended: false })
            }
            Arrival::Refused(why) => {
                self.level.contended.notify_one();
                self.counters.refused(why);
                Asked::Refused(self)
            }
        }
    }
}

/// Gives those their seats whose turn it is. Not under the lock of the level: who has gone meanwhile gives theirs back.
fn deliver(given: Vec<(Waiter, Seated)>, now: Instant) {
    for (waiter, seated) in given {
        let counters = &waiter.schema.counters;
        counters.queued(-1);
        counters.waited(now.saturating_duration_since(waiter.since), true);
        counters.dispatched_late(seated.seats());
        let _ = waiter.tell.send(Seat { schema: waiter.schema, seated: Some(seated), since: now });
    }
}

impl Place {
    /// Waits for the seat, no longer than this; the schema of a request that has waited in vain.
    pub async fn wait(mut self, longest: Duration) -> Result<Seat, Arc<Schema>> {
        if let Ok(Ok(seat)) = tokio::time::timeout(longest, &mut self.seat).await {
            self.has_ended = true;
            return Ok(seat);
        }
        if self.leave(Refusal::TimeOut) {
            return Err(self.schema.clone());
        }
        // It has its seat, just now.
        (&mut self.seat).await.map_err(|_| self.schema.clone())
    }

    /// Gives the place up; `false` if it is that no longer.
    fn leave(&mut self, why: Refusal) -> bool {
        self.has_ended = true;
        let now = Instant::now();
        let (has_left, given) = self.schema.level.state.lock().set.leave(self.ticket, now);
        if has_left {
            self.schema.counters.queued(-1);
            self.schema.counters.waited(now.saturating_duration_since(self.since), false);
            self.schema.counters.refused(why);
        }
        deliver(given, now);
        has_left
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.has_ended {
            self.leave(Refusal::Cancelled);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let now = Instant::now();
        let (level, counters) = (&self.schema.level, &self.schema.counters);
        let took = now.saturating_duration_since(self.since);
        match self.seated.take() {
            Some(seated) => {
                counters.finished(seated.seats(), took);
                let given = level.state.lock().set.finish(seated, now);
                deliver(given, now);
            }
            None => {
                counters.finished(1, took);
                level.executing.fetch_sub(1, Relaxed);
            }
        }
    }
}
