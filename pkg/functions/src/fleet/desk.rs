//! One function: its queue and its pods.

use super::{Action, Counts, Granted, Outcome, Place, Refusal};
use crate::definition::Definition;
use crate::link::Link;
use crate::scale::{Observed, Peak, Phase, Replica, route, scale};
use client::Key;
use http::StatusCode;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A start is taken to last this long until one has.
const UNKNOWN_COLD_START: Duration = Duration::from_millis(300);
/// How much the latest counts in what is known of how long things take.
const WEIGHT: f64 = 0.2;
/// After a pod that failed the next one waits, longer each time, where nobody calls.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// One of a function's pods.
pub struct Slot {
    /// The way to it.
    pub link: Arc<Link>,
    /// Whether it takes calls.
    pub phase: Phase,
    in_flight: usize,
    since: Instant,
    added: Instant,
}

struct Waiter {
    answer: oneshot::Sender<Result<Granted, Refusal>>,
    since: Instant,
}

/// One function.
pub struct Desk {
    /// As it is.
    pub definition: Arc<Definition>,
    /// When something may have to be done although nothing happens.
    pub look_again: Option<Instant>,
    slots: Vec<Slot>,
    waiting: VecDeque<Waiter>,
    last: usize,
    service_time: Option<Duration>,
    cold_start: Duration,
    peak: Peak,
    failures: u32,
    not_before: Option<Instant>,
}

impl Desk {
    /// Without pods.
    pub fn new(definition: Arc<Definition>, now: Instant) -> Desk {
        Desk {
            peak: Peak::new(definition.bounds().idle, now),
            definition,
            look_again: None,
            slots: Vec::new(),
            waiting: VecDeque::new(),
            last: 0,
            service_time: None,
            cold_start: UNKNOWN_COLD_START,
            failures: 0,
            not_before: None,
        }
    }

    /// It is another than before: pods of another revision take no more calls.
    pub fn define(&mut self, definition: Arc<Definition>, now: Instant, actions: &mut Vec<Action>) {
        if definition.revision != self.definition.revision {
            self.slots.iter_mut().for_each(|slot| slot.phase = Phase::Draining);
            self.remove_drained(false, actions);
            (self.failures, self.not_before, self.service_time) = (0, None, None);
        }
        if definition.bounds().idle != self.definition.bounds().idle {
            self.peak = Peak::new(definition.bounds().idle, now);
        }
        self.definition = definition;
    }

    /// A pod for a call, or a place in the queue.
    pub fn call(&mut self, now: Instant) -> Result<Place, Refusal> {
        self.waiting.retain(|waiter| !waiter.answer.is_closed());
        if self.waiting.is_empty()
            && let Some(link) = self.seat(now)
        {
            return Ok(Place::Granted(Granted { link, is_cold: false }));
        }
        let most = self.definition.queue_length();
        if self.waiting.len() >= most {
            let message = format!("{most} calls of function {:?} wait already", self.definition.key.name);
            return Err(Refusal::for_now(StatusCode::TOO_MANY_REQUESTS, "QueueFull", message));
        }
        let (answer, receiver) = oneshot::channel();
        self.waiting.push_back(Waiter { answer, since: now });
        Ok(Place::Waiting(receiver))
    }

    /// The next pod that takes a call, which is then taken.
    fn seat(&mut self, now: Instant) -> Option<Arc<Link>> {
        let at = route(&self.replicas(), self.definition.bounds().concurrency, self.last)?;
        self.last = at;
        let slot = &mut self.slots[at];
        if slot.in_flight == 0 {
            slot.since = now;
        }
        slot.in_flight += 1;
        let link = slot.link.clone();
        let calls = self.calls();
        self.peak.saw(calls, now);
        Some(link)
    }

    /// A place in each pod that takes calls.
    pub fn everywhere(&mut self, now: Instant) -> Vec<Granted> {
        let ready = self.slots.iter_mut().filter(|slot| slot.phase == Phase::Ready);
        let granted = ready.map(|slot| {
            (slot.in_flight, slot.since) = (slot.in_flight + 1, now);
            Granted { link: slot.link.clone(), is_cold: false }
        });
        granted.collect()
    }

    /// Gives pods to those who wait, as far as there are any.
    fn hand_out(&mut self, now: Instant) {
        self.waiting.retain(|waiter| !waiter.answer.is_closed());
        while !self.waiting.is_empty()
            && let Some(link) = self.seat(now)
            && let Some(waiter) = self.waiting.pop_front()
        {
            let is_cold = link.times.lock().ready.is_some_and(|ready| ready >= waiter.since);
            let pod = link.pod.clone();
            if waiter.answer.send(Ok(Granted { link, is_cold })).is_err() {
                // Nobody waits there any more.
                self.free(&pod, None, now);
            }
        }
    }

    /// A call has ended.
    pub fn ended(&mut self, pod: &Key, outcome: Outcome, now: Instant, actions: &mut Vec<Action>) {
        match outcome {
            Outcome::Answered(took) => {
                self.service_time = Some(blend(self.service_time, took));
                self.free(pod, Some(took), now);
            }
            Outcome::NotSent => self.free(pod, None, now),
            Outcome::Lost => {
                self.free(pod, None, now);
                if let Some(slot) = self.slots.iter_mut().find(|slot| slot.link.pod == *pod) {
                    slot.phase = Phase::Draining;
                }
            }
        }
        if outcome != Outcome::Lost && self.slot(pod).is_some_and(|slot| slot.phase == Phase::Draining) {
            self.remove_drained(false, actions);
        } else if outcome == Outcome::Lost {
            self.remove_drained(true, actions);
        }
        self.hand_out(now);
    }

    fn free(&mut self, pod: &Key, _took: Option<Duration>, now: Instant) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.link.pod == *pod) {
            slot.in_flight = slot.in_flight.saturating_sub(1);
            slot.since = now;
        }
    }

    /// A pod takes calls.
    pub fn ready(&mut self, pod: &Key, now: Instant) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.link.pod == *pod) else { return };
        if slot.phase != Phase::Starting {
            return;
        }
        (slot.phase, slot.since) = (Phase::Ready, now);
        if slot.link.times.lock().wanted.is_some() {
            self.cold_start = blend(Some(self.cold_start), now.saturating_duration_since(slot.added));
        }
        (self.failures, self.not_before) = (0, None);
        self.hand_out(now);
    }

    /// A pod that was to take calls never will.
    pub fn start_failed(&mut self, now: Instant) {
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST_PAUSE);
        self.failures += 1;
        self.not_before = Some(now + pause);
    }

    /// A pod takes no more calls, by itself or somebody else's doing. Whether that is news.
    pub fn left(&mut self, pod: &Key, has_ended: bool) -> bool {
        let Some(at) = self.slots.iter().position(|slot| slot.link.pod == *pod) else { return false };
        if has_ended {
            let slot = self.slots.remove(at);
            slot.link.close();
            return true;
        }
        std::mem::replace(&mut self.slots[at].phase, Phase::Draining) != Phase::Draining
    }

    /// Forgets a pod.
    pub fn take(&mut self, pod: &Key) -> Option<Slot> {
        let at = self.slots.iter().position(|slot| slot.link.pod == *pod)?;
        let slot = self.slots.remove(at);
        slot.link.close();
        Some(slot)
    }

    /// A pod that is to be, or was found.
    pub fn add(&mut self, link: Arc<Link>, now: Instant) {
        self.slots.push(Slot { link, phase: Phase::Starting, in_flight: 0, since: now, added: now });
    }

    /// Whether it has this pod of a function.
    pub fn has(&self, function: &Key, pod: &Key) -> bool {
        self.definition.key == *function && self.slot(pod).is_some()
    }

    /// The pod of this name.
    pub fn slot(&self, pod: &Key) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.link.pod == *pod)
    }

    /// The ways to pods that start.
    pub fn starting(&self) -> impl Iterator<Item = Arc<Link>> {
        self.slots.iter().filter(|slot| slot.phase == Phase::Starting).map(|slot| slot.link.clone())
    }

    /// Whether any pod takes calls.
    pub fn has_ready(&self) -> bool {
        self.slots.iter().any(|slot| slot.phase == Phase::Ready)
    }

    /// Tells all who wait that they wait in vain.
    pub fn refuse_all(&mut self, refusal: &Refusal) {
        for waiter in self.waiting.drain(..) {
            let _ = waiter.answer.send(Err(refusal.clone()));
        }
        // Who calls next is not to wait for what was put off while nobody called.
        self.not_before = self.not_before.filter(|_| self.definition.bounds().min > 0);
    }

    /// All pods go.
    pub fn remove_all(&mut self, actions: &mut Vec<Action>) {
        for slot in self.slots.drain(..) {
            actions.push(Action::Delete { pod: slot.link.pod.clone(), at_once: false });
        }
    }

    /// How many pods there are.
    pub fn counts(&self) -> Counts {
        let live = self.slots.iter().filter(|slot| slot.phase != Phase::Draining).count();
        let ready = self.slots.iter().filter(|slot| slot.phase == Phase::Ready).count();
        Counts { replicas: live, ready }
    }

    /// Whether there is nothing to remember.
    pub fn is_idle(&self) -> bool {
        self.slots.is_empty() && self.waiting.is_empty() && self.definition.bounds().min == 0
    }

    /// Lets pods go that are not needed. How many more there should be.
    pub fn plan(&mut self, now: Instant, actions: &mut Vec<Action>) -> usize {
        self.waiting.retain(|waiter| !waiter.answer.is_closed());
        let calls = self.calls();
        let observed = Observed {
            bounds: self.definition.bounds(),
            waiting: self.waiting.len(),
            replicas: self.replicas(),
            service_time: self.service_time,
            cold_start: self.cold_start,
            peak: self.peak.most(calls, now),
            not_before: self.not_before.filter(|_| self.waiting.is_empty()),
        };
        let plan = scale(&observed, now);
        for at in plan.remove {
            self.slots[at].phase = Phase::Draining;
        }
        self.remove_drained(false, actions);
        let turns = self.slots.iter().any(|slot| slot.phase != Phase::Draining).then(|| self.peak.turns_at());
        self.look_again = plan.look_again.into_iter().chain(turns).min();
        plan.create
    }

    /// Deletes the pods that take no more calls and have none. What comes of a pod is then nobody's business.
    fn remove_drained(&mut self, at_once: bool, actions: &mut Vec<Action>) {
        let is_done = |slot: &mut Slot| slot.phase == Phase::Draining && slot.in_flight == 0;
        for slot in self.slots.extract_if(.., is_done) {
            slot.link.close();
            actions.push(Action::Delete { pod: slot.link.pod.clone(), at_once });
            actions.push(Action::Report(self.definition.key.clone()));
        }
    }

    fn calls(&self) -> usize {
        self.waiting.len() + self.slots.iter().map(|slot| slot.in_flight).sum::<usize>()
    }

    fn replicas(&self) -> Vec<Replica> {
        let replica =
            |slot: &Slot| Replica { phase: slot.phase, in_flight: slot.in_flight, since: slot.since };
        self.slots.iter().map(replica).collect()
    }
}

fn blend(known: Option<Duration>, latest: Duration) -> Duration {
    known.map_or(latest, |known| known.mul_f64(1.0 - WEIGHT) + latest.mul_f64(WEIGHT))
}
