//! The pods that wait to be placed.
//!
//! ```text
//! add ──> active ──pop──> (a decision) ──refused──> unschedulable ──an event that can help──┐
//!           ^                  └──failed──> backoff <────────────────────────────────────────┘
//!           └────────── time, or nobody else to try ──┘
//! ```
//!
//! It knows no clock: times are given, in milliseconds.

use crate::cluster::PodId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

const FIRST_BACKOFF_MS: u64 = 1_000;
const LONGEST_BACKOFF_MS: u64 = 10_000;
/// After this long a refused pod is tried again, in case an event was missed.
const LONGEST_WAIT_MS: u64 = 5 * 60 * 1_000;

/// Pods that wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The most important first, then the longest waiting.
    active: BinaryHeap<(i32, Reverse<u64>, PodId)>,
    /// The soonest first.
    backoff: BinaryHeap<Reverse<(u64, u64, PodId)>>,
    items: HashMap<PodId, Item>,
    /// Those of the items that wait for an event.
    unschedulable: HashSet<PodId>,
    tickets: u64,
    next_flush_ms: u64,
}

#[derive(Debug)]
struct Item {
    priority: i32,
    /// Entries of the heaps with another ticket are old.
    ticket: u64,
    place: Place,
    attempts: u32,
    tried_ms: u64,
    plugins: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Active,
    /// Whether it may be taken early, when nobody else waits.
    Backoff(bool),
    Unschedulable,
    InFlight,
}

/// How many pods wait where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// To be tried now.
    pub active: usize,
    /// To be tried soon.
    pub backoff: usize,
    /// Until something changes.
    pub unschedulable: usize,
}

impl Queue {
    /// A pod to be tried now. One that waits already moves to the front if it changed.
    pub(crate) fn add(&mut self, pod: PodId, priority: i32) {
        let item = self.items.entry(pod).or_insert(Item {
            priority,
            ticket: 0,
            place: Place::InFlight,
            attempts: 0,
            tried_ms: 0,
            plugins: 0,
        });
        item.priority = priority;
        self.activate(pod);
    }

    pub(crate) fn remove(&mut self, pod: PodId) {
        self.items.remove(&pod);
        self.unschedulable.remove(&pod);
    }

    pub(crate) fn holds(&self, pod: PodId) -> bool {
        self.items.contains_key(&pod)
    }

    /// The next pod to try.
    pub(crate) fn pop(&mut self, now_ms: u64) -> Option<PodId> {
        self.wake_up(now_ms);
        while let Some((_, Reverse(ticket), pod)) = self.active.pop() {
            if self.is_current(pod, ticket) {
                return Some(self.take(pod, now_ms));
            }
        }
        // Nobody else waits: those that only wait to be fair to others need not.
        while let Some(Reverse((_, ticket, pod))) = self.backoff.peek().copied() {
            if self.is_current(pod, ticket) {
                if self.items[&pod].place != Place::Backoff(true) {
                    return None;
                }
                self.backoff.pop();
                return Some(self.take(pod, now_ms));
            }
            self.backoff.pop();
        }
        None
    }

    /// A decision was made against the pod: it waits for an event that these filters care for.
    pub(crate) fn refused(&mut self, pod: PodId, plugins: u32) {
        if let Some(item) = self.items.get_mut(&pod) {
            item.place = Place::Unschedulable;
            item.plugins = plugins;
            self.unschedulable.insert(pod);
        }
    }

    /// The pod could not be bound: it is tried again later, whatever happens.
    pub(crate) fn failed(&mut self, pod: PodId) {
        self.back_off(pod, false);
    }

    /// Tries those again for which something may have changed: `helps` gets the pod and the filters that refused it.
    pub(crate) fn wake(&mut self, now_ms: u64, mut helps: impl FnMut(PodId, u32) -> bool) {
        for pod in self.unschedulable_if(|pod, item| helps(pod, item.plugins)) {
            let item = &self.items[&pod];
            if item.tried_ms + item.backoff_ms() <= now_ms {
                self.activate(pod);
            } else {
                self.back_off(pod, true);
            }
        }
    }

    /// When there is something to do without an event.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        let backoff = self.backoff.peek().map(|Reverse((due, _, _))| *due);
        let flush = (!self.items.is_empty()).then_some(self.next_flush_ms);
        [backoff, flush].into_iter().flatten().min()
    }

    pub(crate) fn has_unschedulable(&self) -> bool {
        !self.unschedulable.is_empty()
    }

    pub(crate) fn waiting(&self) -> Waiting {
        let mut waiting = Waiting::default();
        for item in self.items.values() {
            match item.place {
                Place::Active => waiting.active += 1,
                Place::Backoff(_) => waiting.backoff += 1,
                Place::Unschedulable => waiting.unschedulable += 1,
                Place::InFlight => {}
            }
        }
        waiting
    }

    fn take(&mut self, pod: PodId, now_ms: u64) -> PodId {
        let item = self.items.get_mut(&pod).expect("current entries have items");
        item.place = Place::InFlight;
        item.attempts += 1;
        item.tried_ms = now_ms;
        pod
    }

    fn is_current(&self, pod: PodId, ticket: u64) -> bool {
        self.items.get(&pod).is_some_and(|item| {
            item.ticket == ticket && matches!(item.place, Place::Active | Place::Backoff(_))
        })
    }

    fn activate(&mut self, pod: PodId) {
        self.tickets += 1;
        let Some(item) = self.items.get_mut(&pod) else { return };
        item.ticket = self.tickets;
        item.place = Place::Active;
        self.unschedulable.remove(&pod);
        self.active.push((item.priority, Reverse(self.tickets), pod));
    }

    fn back_off(&mut self, pod: PodId, may_be_early: bool) {
        self.tickets += 1;
        let Some(item) = self.items.get_mut(&pod) else { return };
        item.ticket = self.tickets;
        item.place = Place::Backoff(may_be_early);
        self.unschedulable.remove(&pod);
        self.backoff.push(Reverse((item.tried_ms + item.backoff_ms(), self.tickets, pod)));
    }

    fn wake_up(&mut self, now_ms: u64) {
        while let Some(Reverse((due, ticket, pod))) = self.backoff.peek().copied() {
            if due > now_ms {
                break;
            }
            self.backoff.pop();
            if self.is_current(pod, ticket) {
                self.activate(pod);
            }
        }
        if now_ms >= self.next_flush_ms {
            self.next_flush_ms = now_ms + LONGEST_WAIT_MS / 10;
            let old = self.unschedulable_if(|_, item| item.tried_ms + LONGEST_WAIT_MS <= now_ms);
            old.into_iter().for_each(|pod| self.activate(pod));
        }
    }

    /// Those that wait for an event and of which this is so; who came first is first.
    fn unschedulable_if(&self, mut is: impl FnMut(PodId, &Item) -> bool) -> Vec<PodId> {
        let waiting = self.unschedulable.iter().copied();
        let mut found: Vec<PodId> = waiting.filter(|pod| is(*pod, &self.items[pod])).collect();
        found.sort_unstable_by_key(|pod| self.items[pod].ticket);
        found
    }
}

impl Item {
    fn backoff_ms(&self) -> u64 {
        let doublings = self.attempts.saturating_sub(1).min(10);
        (FIRST_BACKOFF_MS << doublings).min(LONGEST_BACKOFF_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_important_come_first_and_then_the_early() {
        let mut queue = Queue::default();
        for (pod, priority) in [(1, 0), (2, 10), (3, 0), (4, 10)] {
            queue.add(pod, priority);
        }
        let order: Vec<PodId> = std::iter::from_fn(|| queue.pop(0)).collect();
        assert_eq!(order, [2, 4, 1, 3]);
    }

    #[test]
    fn a_refused_pod_waits_for_an_event_that_helps() {
        let mut queue = Queue::default();
        queue.add(1, 0);
        assert_eq!(queue.pop(0), Some(1));
        queue.refused(1, 4);
        assert_eq!(queue.pop(20_000), None);
        queue.wake(20_000, |_, plugins| plugins & 2 != 0);
        assert_eq!(queue.pop(20_000), None);
        queue.wake(20_000, |_, plugins| plugins & 4 != 0);
        assert_eq!(queue.pop(20_000), Some(1));
    }

    #[test]
    fn a_refused_pod_is_tried_again_in_the_end() {
        let mut queue = Queue::default();
        queue.add(1, 0);
        queue.pop(0);
        queue.refused(1, 4);
        assert_eq!(queue.pop(LONGEST_WAIT_MS - 1), None);
        assert_eq!(queue.pop(LONGEST_WAIT_MS * 2), Some(1));
    }

    #[test]
    fn a_failure_backs_off_longer_each_time() {
        let mut queue = Queue::default();
        queue.add(1, 0);
        let mut now = 0;
        for wait in [1_000, 2_000, 4_000, 8_000, 10_000, 10_000] {
            assert_eq!(queue.pop(now), Some(1));
            queue.failed(1);
            assert_eq!(queue.pop(now + wait - 1), None, "waits {wait}");
            now += wait;
        }
    }

    #[test]
    fn whoever_waits_out_of_fairness_is_tried_when_nobody_else_waits() {
        let mut queue = Queue::default();
        queue.add(1, 0);
        queue.pop(0);
        queue.refused(1, 1);
        queue.wake(10, |_, _| true);
        assert_eq!(queue.waiting(), Waiting { backoff: 1, ..Waiting::default() });
        queue.add(2, 0);
        assert_eq!(queue.pop(10), Some(2));
        assert_eq!(queue.pop(10), Some(1));
    }

    #[test]
    fn a_removed_pod_is_not_tried() {
        let mut queue = Queue::default();
        queue.add(1, 0);
        queue.remove(1);
        assert_eq!(queue.pop(0), None);
        queue.add(1, 0);
        assert_eq!(queue.pop(0), Some(1));
        assert_eq!(queue.pop(0), None);
    }
}
