//! What a program counts of how it hears of changes. Of the whole process, as memory is: it has one connection to Redis.

use super::place::Missing;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const BUCKETS_SECONDS: [f64; 8] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];

pub(super) static METRICS: Metrics = Metrics::new();

pub(super) struct Metrics {
    pub messages: AtomicU64,
    pub gaps: AtomicU64,
    pub catch_ups: AtomicU64,
    pub dropped: AtomicU64,
    pub lists: AtomicU64,
    pub connects: AtomicU64,
    pub over_http: AtomicI64,
    pub over_redis: AtomicI64,
    buckets: [AtomicU64; BUCKETS_SECONDS.len()],
    lag_count: AtomicU64,
    lag_milliseconds: AtomicU64,
}

impl Metrics {
    const fn new() -> Metrics {
        Metrics {
            messages: AtomicU64::new(0),
            gaps: AtomicU64::new(0),
            catch_ups: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            connects: AtomicU64::new(0),
            over_http: AtomicI64::new(0),
            over_redis: AtomicI64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS_SECONDS.len()],
            lag_count: AtomicU64::new(0),
            lag_milliseconds: AtomicU64::new(0),
        }
    }

    pub fn missed(&self, missing: Missing) {
        if missing == Missing::Gap {
            self.gaps.fetch_add(1, Relaxed);
        }
    }

    /// A message came so long after it was sent, by two machines' clocks.
    pub fn came(&self, lag: Duration) {
        self.messages.fetch_add(1, Relaxed);
        self.lag_count.fetch_add(1, Relaxed);
        self.lag_milliseconds.fetch_add(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Relaxed);
        let seconds = lag.as_secs_f64();
        if let Some(bucket) = BUCKETS_SECONDS.iter().position(|limit| seconds <= *limit) {
            self.buckets[bucket].fetch_add(1, Relaxed);
        }
    }
}

/// Writes the lines of `/metrics` about how this program hears of changes.
pub fn render_transport(out: &mut String) {
    let metrics = &METRICS;
    let name = "minik8s_informers";
    let (http, redis) = (metrics.over_http.load(Relaxed), metrics.over_redis.load(Relaxed));
    let _ = writeln!(out, "# HELP {name} Informers, by how they hear of changes.\n# TYPE {name} gauge");
    let _ = writeln!(out, "{name}{{transport=\"http\"}} {http}\n{name}{{transport=\"redis\"}} {redis}");
    let mut line = |name: &str, help: &str, value: &AtomicU64| {
        let value = value.load(Relaxed);
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
    };
    line("minik8s_redis_messages_total", "Messages heard.", &metrics.messages);
    line("minik8s_redis_gaps_total", "Times that messages were missing.", &metrics.gaps);
    line(
        "minik8s_informer_catch_ups_total",
        "Times that an informer went from Redis to the API.",
        &metrics.catch_ups,
    );
    line("minik8s_informer_lists_total", "Lists begun.", &metrics.lists);
    line(
        "minik8s_redis_messages_dropped_total",
        "Messages dropped because an informer was slow.",
        &metrics.dropped,
    );
    line("minik8s_redis_connections_total", "Connections to Redis made.", &metrics.connects);
    let name = "minik8s_redis_message_lag_seconds";
    let _ = writeln!(out, "# HELP {name} From the publisher's clock to this one's.\n# TYPE {name} histogram");
    let mut below = 0;
    for (limit, bucket) in BUCKETS_SECONDS.iter().zip(&metrics.buckets) {
        below += bucket.load(Relaxed);
        let _ = writeln!(out, "{name}_bucket{{le=\"{limit}\"}} {below}");
    }
    let count = metrics.lag_count.load(Relaxed);
    let sum = Duration::from_millis(metrics.lag_milliseconds.load(Relaxed)).as_secs_f64();
    let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
}
