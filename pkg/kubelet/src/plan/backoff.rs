//! How long a container that ended waits until it is started again: the first time not at all, then twice as long
//! each time, until it has run well for a while.

use super::after;
use jiff::Timestamp;

/// The first wait.
pub const CRASH_FIRST_S: i64 = 10;
/// The first wait of static pods: they are what the cluster itself stands on.
pub const STATIC_FIRST_S: i64 = 1;
/// The longest wait.
pub const LONGEST_S: i64 = 300;
/// Having run this long, a crash is the first again.
const FORGET_S: i64 = 600;

/// What is remembered of past crashes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackOff {
    /// The wait, and since when it counts.
    last: Option<(i64, Timestamp)>,
}

impl BackOff {
    /// Until when something that ended then has to wait, if it has to.
    pub fn until(&self, ended: Timestamp) -> Option<Timestamp> {
        let (delay_s, since) = self.last?;
        (after(since, FORGET_S) >= ended).then(|| after(ended, delay_s))
    }

    /// The wait in seconds.
    pub fn delay_s(&self) -> i64 {
        self.last.map_or(0, |(delay, _)| delay)
    }

    /// What to remember when it is started again.
    pub fn next(&self, ended: Timestamp, now: Timestamp, first_s: i64) -> BackOff {
        let delay_s = match self.last {
            Some((delay, since)) if after(since, FORGET_S) >= ended => (delay * 2).min(LONGEST_S),
            _ => first_s,
        };
        BackOff { last: Some((delay_s, now)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn waits_double_up_to_five_minutes_and_are_forgotten() {
        let mut backoff = BackOff::default();
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            now = backoff.until(at(now)).map_or(now, |until| until.as_second());
            let ended = now;
            backoff = backoff.next(at(ended), at(now), CRASH_FIRST_S);
            waits.push(backoff.delay_s());
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(backoff.until(at(now + FORGET_S + 1)), None, "it ran well for ten minutes");
        assert_eq!(backoff.next(at(now + 601), at(now + 601), CRASH_FIRST_S).delay_s(), 10);
    }

    #[test]
    fn the_first_restart_does_not_wait() {
        assert_eq!(BackOff::default().until(at(5)), None);
    }
}
