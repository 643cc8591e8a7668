//! How fast CPU time is used: the last sample of everything that is measured, kept from one question to the next.
//!
//! Nothing is measured while nobody asks. Who asks for the first time in a while gets a rate over one second, which
//! two samples are taken for; who asks regularly gets the rate since their last question.

use crate::runtime::Usage;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// Between two samples that a rate is made of, at least.
pub const SHORTEST: Duration = Duration::from_secs(1);
/// A rate over more than this says little of the present.
const LONGEST: Duration = Duration::from_secs(120);
/// What is measured at once: more than a node has pods.
const MOST: usize = 16 * 1024;

/// What is measured: a container by its pod's uid and its name, or the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// The node as a whole.
    Node,
    /// A container.
    Container(String, String),
}

/// CPU time used per second, and the time that this is the average of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds of CPU time per second.
    pub nano_cores: u64,
    /// Over so long.
    pub window: Duration,
}

#[derive(Clone, Copy)]
struct Sample {
    at: Timestamp,
    cpu_ns: u64,
    /// The rate that was found then, for those who ask again at once.
    rate: Option<Rate>,
}

/// The last samples.
#[derive(Default)]
pub struct Samples(Mutex<HashMap<Key, Sample>>);

impl Samples {
    /// The rate since the last sample; `None` if there is none that can be used. The sample is remembered.
    pub fn rate(&self, key: Key, usage: &Usage) -> Option<Rate> {
        let mut samples = self.0.lock();
        if samples.len() >= MOST {
            samples.retain(|_, sample| age(sample.at, usage.at).is_some_and(|age| age <= LONGEST));
        }
        let before = samples.get(&key).copied();
        let since = before.and_then(|before| age(before.at, usage.at));
        if let (Some(before), Some(since)) = (before, since)
            && since < SHORTEST
            && before.cpu_ns <= usage.cpu_ns
        {
            return before.rate;
        }
        let rate = before.zip(since).and_then(|(before, since)| rate(before.cpu_ns, usage.cpu_ns, since));
        if samples.len() < MOST || before.is_some() {
            samples.insert(key, Sample { at: usage.at, cpu_ns: usage.cpu_ns, rate });
        }
        rate
    }
}

fn age(before: Timestamp, now: Timestamp) -> Option<Duration> {
    Duration::try_from(now.duration_since(before)).ok()
}

/// `None` where the time went backwards, the container is another one, or too much time has passed.
fn rate(before_ns: u64, now_ns: u64, since: Duration) -> Option<Rate> {
    let used = now_ns.checked_sub(before_ns)?;
    if since < SHORTEST || since > LONGEST {
        return None;
    }
    let nano_cores = u128::from(used) * 1_000_000_000 / since.as_nanos();
    Some(Rate { nano_cores: u64::try_from(nano_cores).unwrap_or(u64::MAX), window: since })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_takes_two_samples_that_belong_together() {
        let samples = Samples::default();
        let check = |at_ms: i64, cpu_ms: u64, expected: Option<(u64, u64)>| {
            let at = Timestamp::from_millisecond(1_700_000_000_000 + at_ms).unwrap();
            let usage = Usage { at, cpu_ns: cpu_ms * 1_000_000, ..Usage::default() };
            let rate = samples.rate(Key::Node, &usage);
            let found = rate.map(|rate| (rate.nano_cores / 1_000_000, rate.window.as_millis() as u64));
            assert_eq!(found, expected, "at {at_ms}");
        };
        check(0, 100, None);
        check(500, 150, None);
        check(2_000, 1_100, Some((500, 2_000)));
        check(2_500, 1_600, Some((500, 2_000)));
        check(12_000, 3_100, Some((200, 10_000)));
        check(13_000, 50, None);
        check(23_000, 60, Some((1, 10_000)));
        check(500_000, 500, None);
    }
}
