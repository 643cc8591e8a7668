//! What the publisher counts.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const BUCKETS_SECONDS: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 4.0];

/// Counters of the publisher.
#[derive(Default)]
pub struct PublisherMetrics {
    /// Whether this server publishes.
    pub leads: AtomicBool,
    /// Messages that Redis has taken.
    pub published: AtomicU64,
    /// Times that changes of a resource went untold, because Redis was slower than they came.
    pub dropped: AtomicU64,
    /// How often publishing began anew.
    pub epochs: AtomicU64,
    buckets: [AtomicU64; BUCKETS_SECONDS.len()],
    lag_count: AtomicU64,
    lag_nanoseconds: AtomicU64,
}

impl PublisherMetrics {
    /// Redis took a message so long after the change was there.
    pub fn took(&self, lag: Duration) {
        self.published.fetch_add(1, Relaxed);
        self.lag_count.fetch_add(1, Relaxed);
        self.lag_nanoseconds.fetch_add(u64::try_from(lag.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        let seconds = lag.as_secs_f64();
        if let Some(bucket) = BUCKETS_SECONDS.iter().position(|limit| seconds <= *limit) {
            self.buckets[bucket].fetch_add(1, Relaxed);
        }
    }

    /// The lines of `/metrics`.
    pub fn render(&self, out: &mut String) {
        let mut line = |name: &str, kind: &str, help: &str, value: u64| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        };
        line(
            "minik8s_redis_publisher_leads",
            "gauge",
            "Whether this server publishes.",
            u64::from(self.leads.load(Relaxed)),
        );
        line(
            "minik8s_redis_published_total",
            "counter",
            "Messages that Redis has taken.",
            self.published.load(Relaxed),
        );
        line(
            "minik8s_redis_dropped_total",
            "counter",
            "Times that changes went untold because Redis was slow.",
            self.dropped.load(Relaxed),
        );
        line(
            "minik8s_redis_epochs_total",
            "counter",
            "How often publishing began anew.",
            self.epochs.load(Relaxed),
        );
        let name = "minik8s_redis_publish_lag_seconds";
        let _ = writeln!(
            out,
            "# HELP {name} From a change to Redis' word that it has it.\n# TYPE {name} histogram"
        );
        let mut below = 0;
        for (limit, bucket) in BUCKETS_SECONDS.iter().zip(&self.buckets) {
            below += bucket.load(Relaxed);
            let _ = writeln!(out, "{name}_bucket{{le=\"{limit}\"}} {below}");
        }
        let (count, sum) = (self.lag_count.load(Relaxed), self.lag_nanoseconds.load(Relaxed));
        let sum = Duration::from_nanos(sum).as_secs_f64();
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
    }
}
