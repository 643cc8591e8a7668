//! What time it is, as far as plans are told. Tests may move it.

use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The wall clock, off by what it was moved. Clones move together.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    offset_ms: Arc<AtomicI64>,
}

impl Clock {
    /// What time it is.
    pub fn now(&self) -> Timestamp {
        let offset = SignedDuration::from_millis(self.offset_ms.load(Ordering::Relaxed));
        let now = Timestamp::now();
        now.checked_add(offset).unwrap_or(now)
    }

    /// Moves it, forward or back.
    pub fn step(&self, by: SignedDuration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(0);
        self.offset_ms.fetch_add(by, Ordering::Relaxed);
    }
}
