//! One wheel of times for all runs: a run that waits for the clock is an entry here, and nothing else.

use client::Key;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use tokio::sync::Notify;

/// When to look at runs again.
#[derive(Default)]
pub struct Wheel {
    times: Mutex<(BTreeSet<(Timestamp, Key)>, HashMap<Key, Timestamp>)>,
    /// There is an earlier time than before.
    pub changed: Notify,
}

impl Wheel {
    /// Looks at a run then, and at no other time; never, if there is none.
    pub fn set(&self, key: &Key, at: Option<Timestamp>) {
        let mut times = self.times.lock();
        if let Some(before) = times.1.remove(key) {
            times.0.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            times.0.insert((at, key.clone()));
            times.1.insert(key.clone(), at);
            if times.0.first().is_some_and(|(_, first)| first == key) {
                self.changed.notify_one();
            }
        }
    }

    /// Those whose time has come, and when the next one's will.
    pub fn turn(&self, now: Timestamp) -> (Vec<Key>, Option<Timestamp>) {
        let mut times = self.times.lock();
        let mut due = Vec::new();
        while times.0.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = times.0.pop_first() else { break };
            times.1.remove(&key);
            due.push(key);
        }
        (due, times.0.first().map(|(at, _)| *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_time_has_come_is_told_once_the_earliest_first() {
        let wheel = Wheel::default();
        let (key, at) =
            (|name: &str| Key::new("a", name), |second| Timestamp::from_second(second).expect("a time"));
        for (name, second) in [("b", 20), ("a", 10), ("c", 30)] {
            wheel.set(&key(name), Some(at(second)));
        }
        wheel.set(&key("b"), Some(at(5)));
        wheel.set(&key("c"), None);
        assert_eq!(wheel.turn(at(4)), (vec![], Some(at(5))));
        assert_eq!(wheel.turn(at(10)), (vec![key("b"), key("a")], None));
        assert_eq!(wheel.turn(at(100)), (vec![], None));
    }
}
