//! Requests of one priority level that want its seats: who gets one now, who waits, who is sent away.
//!
//! ```text
//! arrive ─ hash ─> deal a hand of queues ─> the shortest of them ──> the queue whose turn it is ──> a seat ─ finish
//!                                            └ full: refused             (virtual time)
//! ```
//!
//! *Fair queuing*: a queue's `start` says how many seat-seconds it has had, and the queue whose next request would be done
//! first by that has its turn. A queue that begins to have requests starts where the last one that was served did
//! (`progress`): it is owed nothing for before, and waits for nobody to catch up. How long a request will take is not known
//! when it begins: it is charged as much as those before it in its queue took, and the difference is made up for when it
//! ends. So whoever has asked for little is served before whoever has asked for much.
//!
//! *Shuffle sharding*: the requests of a flow go to the few queues of its hand, and hands are dealt by a hash with a key
//! of this process. Whoever floods fills their own hand; hardly anybody else's is made of the same queues.
//!
//! Seats are never taken away, so a quarter of them is kept for queues that have none ([`QueueSet::kept`]): a flow whose
//! requests do not end leaves seats to others.
//!
//! A queue without requests has no state. Pure: time is handed in, and whoever waits is a `W` that is handed back.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

/// How long a request is taken to last where nothing is known of its queue; in seconds.
const EXPECTED: f64 = 0.003;
/// How much of what a queue expects is what its last request took.
const LEARNT: f64 = 0.125;
/// What was wanted is half forgotten after this.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// No hand has more queues. Validation allows none that has: its hash would take more bits than there are.
const LARGEST_HAND: usize = 16;

/// How requests wait where there is no seat for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queuing {
    /// How many queues there are.
    pub queues: usize,
    /// How many of them the requests of one flow go to.
    pub hand_size: usize,
    /// How many requests wait in one of them.
    pub length_limit: usize,
}

/// The requests of one priority level.
#[derive(Debug)]
pub struct QueueSet<W> {
    /// `None` where nobody waits.
    queuing: Option<Queuing>,
    /// How many seats may be taken.
    limit: u32,
    /// Those that have requests.
    queues: HashMap<usize, Queue<W>, BuildHasherDefault<Spread>>,
    /// The start of the queue that was served last.
    progress: f64,
    executing: usize,
    waiting: usize,
    seats_taken: u64,
    seats_wanted: u64,
    /// How many requests have arrived, and how many have got a seat: the order of who is as good as another.
    arrivals: u64,
    turns: u64,
    demand: Demand,
}

/// The requests of the flows that were dealt one queue.
#[derive(Debug)]
struct Queue<W> {
    /// Seat-seconds that it has had, or could have had.
    start: f64,
    /// How long its requests take, in seconds.
    expected: f64,
    executing: usize,
    /// By order of arrival.
    waiting: BTreeMap<u64, Waiting<W>>,
    seats_wanted: u64,
    /// When it had its last turn.
    turn: u64,
}

#[derive(Debug)]
struct Waiting<W> {
    seats: u32,
    /// What `progress` was when it came.
    arrived: f64,
    waiter: W,
}

/// What becomes of a request that arrives.
#[derive(Debug)]
pub enum Arrival<W, R> {
    /// It has its seats.
    Seated(Seated),
    /// It waits for its turn, with what it is to wait with. Its arrival may have given others theirs, or itself.
    Queued(Ticket, R, Vec<(W, Seated)>),
    /// It is sent away.
    Refused(Refusal),
}

/// Why a request is sent away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// All queues of its hand are as long as they may be.
    QueueFull,
    /// There is no seat, and nobody waits at this level.
    ConcurrencyLimit,
    /// It has waited long enough.
    TimeOut,
    /// Its client has gone.
    Cancelled,
}

/// A request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    queue: usize,
    number: u64,
}

/// A request that has its seats.
#[derive(Debug)]
#[must_use = "seats that nobody gives back are lost"]
pub struct Seated {
    queue: Option<usize>,
    seats: u32,
    since: Instant,
    /// Seat-seconds that its queue has paid for it already.
    charged: f64,
}

/// Hashes the numbers of queues, which nobody can choose.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// How many seats are wanted at once.
#[derive(Debug, Default)]
struct Demand {
    /// The most since it was last looked at.
    most: f64,
    /// That, and what is left of what it was before.
    remembered: f64,
}

impl<W> QueueSet<W> {
    /// A level whose requests wait like this.
    pub fn new(queuing: Option<Queuing>, limit: u32) -> QueueSet<W> {
        QueueSet {
            queuing: queuing.map(Queuing::possible),
            limit,
            queues: HashMap::default(),
            progress: 0.0,
            executing: 0,
            waiting: 0,
            seats_taken: 0,
            seats_wanted: 0,
            arrivals: 0,
            turns: 0,
            demand: Demand::default(),
        }
    }

    /// A request of a flow that wants seats. Who waits for them, and with what, is made only if it must.
    pub fn arrive<R>(
        &mut self,
        flow: u64,
        seats: u32,
        now: Instant,
        waiter: impl FnOnce() -> (W, R),
    ) -> Arrival<W, R> {
        self.arrivals += 1;
        self.demand.note(self.seats_taken + self.seats_wanted + u64::from(seats));
        let Some(queuing) = self.queuing else {
            return match self.fits(true, seats) {
                true => Arrival::Seated(self.seat(None, seats, now)),
                false => Arrival::Refused(Refusal::ConcurrencyLimit),
            };
        };
        let (index, progress) = (self.choose(queuing, flow), self.progress);
        let known = self.queues.get(&index);
        let (executing, length) = known.map_or((0, 0), |queue| (queue.executing, queue.waiting.len()));
        let fits = self.waiting == 0 && self.fits(executing == 0, seats);
        if !fits && length >= queuing.length_limit {
            return Arrival::Refused(Refusal::QueueFull);
        }
        let queue = self.queues.entry(index).or_insert_with(|| Queue::new(progress));
        if queue.waiting.is_empty() {
            queue.start = queue.start.max(progress);
        }
        if fits {
            return Arrival::Seated(self.seat(Some(index), seats, now));
        }
        let number = self.arrivals;
        let (waiter, waits) = waiter();
        queue.waiting.insert(number, Waiting { seats, arrived: progress, waiter });
        queue.seats_wanted += u64::from(seats);
        queue.catch_up();
        self.waiting += 1;
        self.seats_wanted += u64::from(seats);
        Arrival::Queued(Ticket { queue: index, number }, waits, self.give(now))
    }

    /// A request is done. Those come back that have got seats by that.
    pub fn finish(&mut self, seated: Seated, now: Instant) -> Vec<(W, Seated)> {
        self.executing -= 1;
        self.seats_taken -= u64::from(seated.seats);
        if let Some(queue) = seated.queue.and_then(|index| self.queues.get_mut(&index)) {
            queue.executing -= 1;
            let took = now.saturating_duration_since(seated.since).as_secs_f64();
            queue.start += took * f64::from(seated.seats) - seated.charged;
            queue.expected += (took - queue.expected) * LEARNT;
            queue.catch_up();
        }
        self.forget(seated.queue);
        self.give(now)
    }

    /// A request that waits does so no longer; `false` if it does not wait (it may just have got its seats).
    pub fn leave(&mut self, ticket: Ticket, now: Instant) -> (bool, Vec<(W, Seated)>) {
        if self.take(ticket).is_none() {
            return (false, Vec::new());
        }
        if let Some(queue) = self.queues.get_mut(&ticket.queue) {
            queue.catch_up();
        }
        self.forget(Some(ticket.queue));
        // It may have stood in the way of those who want fewer seats.
        (true, self.give(now))
    }

    /// From now on so many seats may be taken.
    pub fn set_limit(&mut self, limit: u32, now: Instant) -> Vec<(W, Seated)> {
        self.limit = limit;
        self.give(now)
    }

    /// From now on requests wait like this. Those that wait already stay where they are.
    pub fn set_queuing(&mut self, queuing: Option<Queuing>) {
        self.queuing = queuing.map(Queuing::possible);
    }

    /// How many seats may be taken.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether anybody waits.
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// How many seats were wanted at once lately, whether or not they were there.
    pub fn wanted(&mut self, since: Duration) -> f64 {
        self.demand.look(self.seats_taken + self.seats_wanted, since)
    }

    /// The seats that only queues take that have none.
    fn kept(&self) -> u64 {
        u64::from(self.limit / 4)
    }

    /// Whether there are seats for a queue that has none yet, or one that has. A request that wants more than there are
    /// gets them all, once nobody else has any.
    fn fits(&self, is_new: bool, seats: u32) -> bool {
        let kept = if is_new { 0 } else { self.kept() };
        let free = u64::from(self.limit).saturating_sub(self.seats_taken + kept);
        free > 0 && (u64::from(seats) <= free || self.executing == 0)
    }

    fn seat(&mut self, index: Option<usize>, seats: u32, since: Instant) -> Seated {
        self.executing += 1;
        self.seats_taken += u64::from(seats);
        self.turns += 1;
        let mut charged = 0.0;
        if let Some(queue) = index.and_then(|index| self.queues.get_mut(&index)) {
            self.progress = self.progress.max(queue.start);
            charged = queue.expected * f64::from(seats);
            queue.executing += 1;
            queue.turn = self.turns;
            queue.start += charged;
            queue.catch_up();
        }
        Seated { queue: index, seats, since, charged }
    }

    /// The queue of the hand of a flow in which the least is waiting; each in turn where that is the same.
    fn choose(&self, queuing: Queuing, flow: u64) -> usize {
        let mut hand = [0; LARGEST_HAND];
        let hand = deal(flow, queuing.queues, &mut hand[..queuing.hand_size]);
        let first = (self.arrivals % hand.len() as u64) as usize;
        let rotated = hand[first..].iter().chain(&hand[..first]).copied();
        if self.waiting == 0 {
            return hand[first];
        }
        let wanted = |index: &usize| self.queues.get(index).map_or(0, |queue| queue.seats_wanted);
        rotated.min_by_key(wanted).unwrap_or_default()
    }

    /// Gives seats to those whose turn it is, as long as there are any.
    fn give(&mut self, now: Instant) -> Vec<(W, Seated)> {
        let mut given = Vec::new();
        while let Some((ticket, seats)) = self.next() {
            let Some(first) = self.take(ticket) else { break };
            given.push((first.waiter, self.seat(Some(ticket.queue), seats, now)));
        }
        given
    }

    /// The first of the queue that would be done first with it; of those that are as good, of the one whose last turn is
    /// the longest ago. If it wants more seats than are free, all wait for them with it; but not for those that are kept.
    fn next(&self) -> Option<(Ticket, u32)> {
        if self.waiting == 0 {
            return None;
        }
        let only_kept = self.seats_taken + self.kept() >= u64::from(self.limit);
        let firsts = self.queues.iter().filter_map(|(index, queue)| {
            let (number, first) = queue.first()?;
            let is_new = queue.executing == 0;
            let fits = self.fits(is_new, first.seats);
            let rank = (queue.start + EXPECTED * f64::from(first.seats), queue.turn, number);
            let ticket = Ticket { queue: *index, number };
            (!only_kept || (is_new && fits)).then_some((rank, ticket, first.seats, fits))
        });
        let (_, ticket, seats, fits) = firsts
            .min_by(|(a, ..), (b, ..)| a.0.total_cmp(&b.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))))?;
        fits.then_some((ticket, seats))
    }

    /// Takes a request out of its queue.
    fn take(&mut self, ticket: Ticket) -> Option<Waiting<W>> {
        let queue = self.queues.get_mut(&ticket.queue)?;
        let taken = queue.waiting.remove(&ticket.number)?;
        queue.seats_wanted -= u64::from(taken.seats);
        self.waiting -= 1;
        self.seats_wanted -= u64::from(taken.seats);
        Some(taken)
    }

    /// A queue without requests has no state.
    fn forget(&mut self, index: Option<usize>) {
        let Some(index) = index else { return };
        if self.queues.get(&index).is_some_and(|queue| queue.executing == 0 && queue.waiting.is_empty()) {
            self.queues.remove(&index);
        }
        if self.queues.is_empty() {
            self.progress = 0.0;
        }
    }
}

impl<W> Queue<W> {
    fn new(start: f64) -> Queue<W> {
        Queue { start, expected: EXPECTED, executing: 0, waiting: BTreeMap::new(), seats_wanted: 0, turn: 0 }
    }

    fn first(&self) -> Option<(u64, &Waiting<W>)> {
        self.waiting.first_key_value().map(|(number, first)| (*number, first))
    }

    /// Nobody is served before they came: what a queue did not use while it had nothing to do, it cannot use later.
    fn catch_up(&mut self) {
        if let Some(arrived) = self.first().map(|(_, first)| first.arrived) {
            self.start = self.start.max(arrived);
        }
    }
}

impl Queuing {
    /// Validated objects are so already.
    fn possible(self) -> Queuing {
        let queues = self.queues.max(1);
        Queuing { queues, hand_size: self.hand_size.clamp(1, queues.min(LARGEST_HAND)), ..self }
    }
}

impl Seated {
    /// How many seats it has.
    pub fn seats(&self) -> u32 {
        self.seats
    }
}

impl Demand {
    fn note(&mut self, seats: u64) {
        self.most = self.most.max(seats as f64);
    }

    /// What was wanted; time has passed since the last look.
    fn look(&mut self, now: u64, since: Duration) -> f64 {
        let left = 0.5_f64.powf(since.as_secs_f64() / HALF_LIFE.as_secs_f64());
        self.remembered = self.most.max(self.remembered * left);
        self.most = now as f64;
        self.remembered
    }
}

/// Deals different cards of a deck, by a hash; as many as the hand holds.
fn deal(mut hash: u64, deck: usize, hand: &mut [usize]) -> &[usize] {
    let mut sorted = [0; LARGEST_HAND];
    for (count, dealt) in hand.iter_mut().enumerate() {
        let left = (deck - count) as u64;
        let mut card = (hash % left) as usize;
        hash /= left;
        // The card of that number among those that are left.
        let mut place = 0;
        while place < count && sorted[place] <= card {
            card += 1;
            place += 1;
        }
        sorted.copy_within(place..count, place + 1);
        sorted[place] = card;
        *dealt = card;
    }
    hand
}

#[cfg(test)]
mod tests;
