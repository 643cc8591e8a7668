//! Whether pods are still looked after: by the loop over all of them, and by the worker of each.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Who has not moved for longer than this is stuck; upstream's is twice the time between two of its relists, and at
/// least this.
pub(crate) const LONGEST: Duration = Duration::from_secs(2 * 60);
/// The loop comes round at least this often, even when nothing happens.
pub(crate) const BEAT: Duration = Duration::from_secs(20);

/// Since when somebody has been busy with one thing; waiting for something to happen is not being busy.
#[derive(Debug, Default)]
pub(crate) struct Pulse(Mutex<Option<Instant>>);

impl Pulse {
    /// Something new is begun.
    pub fn begin(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// It is done, and nothing else is to be done now.
    pub fn rest(&self) {
        *self.0.lock() = None;
    }

    /// Whether it has taken too long.
    pub fn is_stuck(&self, now: Instant) -> bool {
        self.0.lock().is_some_and(|since| now.saturating_duration_since(since) > LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_busy_for_too_long_is_stuck() {
        let pulse = Pulse::default();
        let later = Instant::now() + LONGEST + Duration::from_secs(1);
        assert!(!pulse.is_stuck(later), "not begun");
        pulse.begin();
        assert!(!pulse.is_stuck(Instant::now()));
        assert!(pulse.is_stuck(later));
        pulse.rest();
        assert!(!pulse.is_stuck(later), "waits");
    }
}
