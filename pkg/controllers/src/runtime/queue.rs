//! Keys that wait for a worker: client-go's workqueue.
//!
//! ```text
//! add ──> dirty ──> ready ──take──> processing ──done──> ready again, if it became dirty meanwhile
//! ```
//!
//! A key is in the queue once, however often it is added, and with one worker at a time. What it holds is bounded by how many
//! objects there are. Delays and failures are kept per key.

use client::Key;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const FIRST_DELAY: Duration = Duration::from_millis(5);
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// A queue of keys.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Key>,
    dirty: HashSet<Key>,
    processing: HashSet<Key>,
    delayed: HashMap<Key, Instant>,
    due: BTreeSet<(Instant, Key)>,
    failures: HashMap<Key, u32>,
}

impl Queue {
    /// The key is to be looked at.
    pub fn add(&self, key: Key) {
        self.state.lock().add(key);
        self.changed.notify_one();
    }

    /// The key is to be looked at later; the earlier time counts.
    pub fn add_after(&self, key: Key, after: Duration) {
        self.state.lock().delay(key, Instant::now() + after);
        self.changed.notify_one();
    }

    /// The key is to be looked at after a while that doubles with every failure.
    pub fn add_failed(&self, key: Key) {
        let mut state = self.state.lock();
        let failures = state.failures.entry(key.clone()).or_insert(0);
        let delay = back_off(*failures);
        *failures += 1;
        state.delay(key, Instant::now() + delay);
        drop(state);
        self.changed.notify_one();
    }

    /// The key did well: its next failure is its first.
    pub fn forget_failures(&self, key: &Key) {
        self.state.lock().failures.remove(key);
    }

    /// How often the key has failed in a row.
    pub fn failures(&self, key: &Key) -> u32 {
        self.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// The next key, which nobody else gets before it is [done](Queue::done).
    pub async fn take(&self) -> Key {
        loop {
            let next_due = {
                let mut state = self.state.lock();
                state.promote(Instant::now());
                if let Some(key) = state.take() {
                    if !state.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return key;
                }
                state.due.first().map(|(at, _)| *at)
            };
            match next_due {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.changed.notified() => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    /// The worker is done with it. What was delayed before is forgotten: the plan said anew when to look again.
    pub fn done(&self, key: &Key) {
        self.state.lock().done(key);
        self.changed.notify_one();
    }

    /// How many keys wait or are worked on.
    pub fn len(&self) -> usize {
        let state = self.state.lock();
        state.dirty.len() + state.processing.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn back_off(failures: u32) -> Duration {
    FIRST_DELAY.saturating_mul(2u32.saturating_pow(failures)).min(LONGEST_DELAY)
}

impl State {
    fn add(&mut self, key: Key) {
        if !self.dirty.insert(key.clone()) || self.processing.contains(&key) {
            return;
        }
        self.ready.push_back(key);
    }

    fn take(&mut self) -> Option<Key> {
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key.clone());
        self.undelay(&key);
        Some(key)
    }

    fn done(&mut self, key: &Key) {
        self.processing.remove(key);
        if self.dirty.contains(key) {
            self.ready.push_back(key.clone());
        }
    }

    fn delay(&mut self, key: Key, at: Instant) {
        if self.delayed.get(&key).is_some_and(|earlier| *earlier <= at) {
            return;
        }
        self.undelay(&key);
        self.due.insert((at, key.clone()));
        self.delayed.insert(key, at);
    }

    fn undelay(&mut self, key: &Key) {
        if let Some(at) = self.delayed.remove(key) {
            self.due.remove(&(at, key.clone()));
        }
    }

    fn promote(&mut self, now: Instant) {
        while let Some((at, key)) = self.due.first().cloned() {
            if at > now {
                return;
            }
            self.undelay(&key);
            self.add(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("default", name)
    }

    #[test]
    fn a_key_is_with_one_worker_at_a_time() {
        let mut state = State::default();
        state.add(key("a"));
        state.add(key("a"));
        assert_eq!(state.take(), Some(key("a")));
        assert_eq!(state.take(), None);
        state.add(key("a"));
        assert_eq!(state.take(), None, "it is being worked on");
        state.done(&key("a"));
        assert_eq!(state.take(), Some(key("a")));
        state.done(&key("a"));
        assert_eq!(state.take(), None);
    }

    #[test]
    fn the_earlier_delay_counts_and_a_look_makes_it_moot() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let mut state = State::default();
        state.delay(key("a"), after(9));
        state.delay(key("a"), after(5));
        state.delay(key("a"), after(7));
        state.promote(after(4));
        assert_eq!(state.take(), None);
        state.promote(after(5));
        assert_eq!(state.take(), Some(key("a")));
        state.done(&key("a"));
        state.delay(key("a"), after(9));
        state.add(key("a"));
        assert_eq!(state.take(), Some(key("a")));
        state.done(&key("a"));
        state.promote(after(10));
        assert_eq!(state.take(), None);
    }

    #[test]
    fn failures_wait_longer_each_time() {
        assert_eq!(back_off(0), Duration::from_millis(5));
        assert_eq!(back_off(3), Duration::from_millis(40));
        assert_eq!(back_off(60), LONGEST_DELAY);
    }
}
