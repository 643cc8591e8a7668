//! What the scheduler counts, under upstream's names.

use crate::queue::Waiting;
use parking_lot::Mutex;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of an attempt's duration, in seconds.
const BUCKETS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// Counts of one scheduler. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    /// `scheduled`, `unschedulable`, `error`.
    attempts: [Attempts; 3],
    preemption_attempts: u64,
    victims: u64,
    waiting: Waiting,
    is_leading: bool,
    /// Events that were not sent.
    dropped: Arc<AtomicU64>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Attempts {
    count: u64,
    seconds: f64,
    buckets: [u64; BUCKETS.len()],
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    Scheduled,
    Unschedulable,
    Error,
}

const RESULTS: [&str; 3] = ["scheduled", "unschedulable", "error"];

impl Metrics {
    pub(crate) fn attempt(&self, attempt: Attempt, took: Duration) {
        let mut counts = self.counts.lock();
        let attempts = &mut counts.attempts[attempt as usize];
        let seconds = took.as_secs_f64();
        attempts.count += 1;
        attempts.seconds += seconds;
        for (bound, bucket) in BUCKETS.iter().zip(&mut attempts.buckets) {
            *bucket += u64::from(seconds <= *bound);
        }
    }

    pub(crate) fn preemption(&self, victims: usize) {
        let mut counts = self.counts.lock();
        counts.preemption_attempts += 1;
        counts.victims += victims as u64;
    }

    pub(crate) fn waiting(&self, waiting: Waiting) {
        self.counts.lock().waiting = waiting;
    }

    pub(crate) fn leading(&self, is_leading: bool) {
        self.counts.lock().is_leading = is_leading;
    }

    pub(crate) fn counts_events(&self, dropped: Arc<AtomicU64>) {
        self.counts.lock().dropped = dropped;
    }

    /// How many events could not be sent.
    pub fn events_dropped(&self) -> u64 {
        self.counts.lock().dropped.load(Ordering::Relaxed)
    }

    /// How many pods were placed.
    pub fn scheduled(&self) -> u64 {
        self.counts.lock().attempts[Attempt::Scheduled as usize].count
    }

    /// Whether this replica leads.
    pub fn is_leading(&self) -> bool {
        self.counts.lock().is_leading
    }

    /// All of it in Prometheus' text format.
    pub fn page(&self) -> String {
        let counts = self.counts.lock();
        let mut page = String::from("# TYPE scheduler_schedule_attempts_total counter\n");
        for (result, attempts) in RESULTS.iter().zip(&counts.attempts) {
            let count = attempts.count;
            let labels = format!("profile=\"default-scheduler\",result=\"{result}\"");
            let _ = writeln!(page, "scheduler_schedule_attempts_total{{{labels}}} {count}");
        }
        page += "# TYPE scheduler_scheduling_attempt_duration_seconds histogram\n";
        for (result, attempts) in RESULTS.iter().zip(&counts.attempts) {
            let name = "scheduler_scheduling_attempt_duration_seconds";
            let labels = format!("profile=\"default-scheduler\",result=\"{result}\"");
            for (bound, bucket) in BUCKETS.iter().zip(&attempts.buckets) {
                let _ = writeln!(page, "{name}_bucket{{{labels},le=\"{bound}\"}} {bucket}");
            }
            let Attempts { count, seconds, .. } = attempts;
            let _ = writeln!(page, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ = writeln!(page, "{name}_sum{{{labels}}} {seconds}\n{name}_count{{{labels}}} {count}");
        }
        let Waiting { active, backoff, unschedulable } = counts.waiting;
        page += "# TYPE scheduler_pending_pods gauge\n";
        for (queue, count) in [("active", active), ("backoff", backoff), ("unschedulable", unschedulable)] {
            let _ = writeln!(page, "scheduler_pending_pods{{queue=\"{queue}\"}} {count}");
        }
        let (attempts, victims) = (counts.preemption_attempts, counts.victims);
        let _ = writeln!(
            page,
            "# TYPE scheduler_preemption_attempts_total counter\nscheduler_preemption_attempts_total {attempts}\n\
             # TYPE scheduler_preemption_victims_total counter\nscheduler_preemption_victims_total {victims}\n\
             # TYPE leader_election_master_status gauge\nleader_election_master_status{{name=\"kube-scheduler\"}} {}",
            u8::from(counts.is_leading)
        );
        let dropped = counts.dropped.load(Ordering::Relaxed);
        let _ = writeln!(
            page,
            "# TYPE scheduler_events_dropped_total counter\nscheduler_events_dropped_total {dropped}"
        );
        client::render_transport(&mut page);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_upstreams_names() {
        let metrics = Metrics::default();
        metrics.attempt(Attempt::Scheduled, Duration::from_millis(3));
        let page = metrics.page();
        let line =
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1\n";
        assert!(page.contains(line), "{page}");
        assert!(page.contains("result=\"scheduled\",le=\"0.002\"} 0\n"), "{page}");
        assert!(page.contains("result=\"scheduled\",le=\"0.004\"} 1\n"), "{page}");
    }
}
