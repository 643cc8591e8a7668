//! A schedule in a time zone.

use super::cron_job;
use super::schedule::Schedule;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Who missed more than this many times is told so, and not counted further.
const TOO_MANY: usize = 100;

/// The times of a schedule.
pub struct Times {
    schedule: Schedule,
    zone: TimeZone,
}

/// What is due.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// The latest time that has passed.
    pub time: Option<Timestamp>,
    /// Whether there were too many to count.
    pub missed_too_many: bool,
}

/// A time zone by its name: from the system's file, which may be newer than this program; where there is none, as in an
/// image of nothing but this program, what is compiled in.
///
/// # Errors
///
/// Nobody knows it.
pub fn zone(name: &str, file: Option<&[u8]>) -> Result<TimeZone, String> {
    let compiled_in = cron_job::time_zone(name).ok_or_else(|| format!("unknown time zone {name}"))?;
    let zone = file.and_then(|bytes| TimeZone::tzif(name, bytes).ok());
    zone.map_or_else(|| TimeZone::tzif(name, compiled_in).map_err(|error| error.to_string()), Ok)
}

impl Times {
    /// A schedule in a zone; one that names its own zone is refused, as the API refuses it.
    ///
    /// # Errors
    ///
    /// It is no schedule.
    pub fn new(schedule: &str, zone: TimeZone) -> Result<Times, String> {
        let schedule = Schedule::parse(schedule).map_err(|error| error.to_string())?;
        Ok(Times { schedule, zone })
    }

    /// The first time after a moment.
    pub fn after(&self, moment: Timestamp) -> Option<Timestamp> {
        let mut civil = self.zone.to_datetime(moment);
        loop {
            civil = self.schedule.next_after(civil)?;
            let time = self.zone.to_ambiguous_zoned(civil).compatible().ok()?.timestamp();
            // When clocks go back, an hour comes twice.
            if time > moment {
                return Some(time);
            }
        }
    }

    /// The latest time that passed since the last one, and not longer ago than the deadline.
    pub fn due(&self, last: Timestamp, deadline: Option<SignedDuration>, now: Timestamp) -> Due {
        let earliest = deadline.and_then(|deadline| now.checked_sub(deadline).ok());
        let mut from = earliest.map_or(last, |earliest| earliest.max(last));
        let (mut due, mut count) = (None, 0);
        while let Some(time) = self.after(from).filter(|time| *time <= now) {
            (due, from, count) = (Some(time), time, count + 1);
            if count > TOO_MANY {
                // Close to now, at most one is missed: the rest is of no interest.
                let near = now - SignedDuration::from_secs(7 * 24 * 3600);
                from = from.max(near);
                if count > 100_000 {
                    break;
                }
            }
        }
        Due { time: due, missed_too_many: count > TOO_MANY && deadline.is_none() }
    }

    /// A time as it is written into annotations.
    pub fn written(&self, time: Timestamp) -> String {
        let zoned = time.to_zoned(self.zone.clone());
        if zoned.offset().is_zero() {
            return time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        }
        zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }
}
