//! What is counted of the requests of a schema, and how `/metrics` says it: under upstream's names.

use super::level::{Level, Schema};
use super::queue_set::Refusal;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const BUCKETS_SECONDS: [f64; 12] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];
const REASONS: [(Refusal, &str); 4] = [
    (Refusal::QueueFull, "queue-full"),
    (Refusal::ConcurrencyLimit, "concurrency-limit"),
    (Refusal::TimeOut, "time-out"),
    (Refusal::Cancelled, "cancelled"),
];

/// What is counted of the requests of a schema.
#[derive(Debug, Default)]
pub struct Counters {
    /// Those that got their seats at once.
    at_once: AtomicU64,
    executing: AtomicI64,
    seats: AtomicI64,
    waiting: AtomicI64,
    refused: [AtomicU64; REASONS.len()],
    /// How long those waited that got seats, and those that did not.
    waits: [Times; 2],
    executions: Times,
}

/// Durations by size.
#[derive(Debug, Default)]
struct Times {
    buckets: [AtomicU64; BUCKETS_SECONDS.len()],
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Counters {
    /// A request has its seats, and did not wait.
    pub fn dispatched(&self, seats: u32) {
        self.at_once.fetch_add(1, Relaxed);
        self.dispatched_late(seats);
    }

    /// A request has its seats, and did wait.
    pub fn dispatched_late(&self, seats: u32) {
        self.executing.fetch_add(1, Relaxed);
        self.seats.fetch_add(seats.into(), Relaxed);
    }

    /// A request is done.
    pub fn finished(&self, seats: u32, took: Duration) {
        self.executing.fetch_sub(1, Relaxed);
        self.seats.fetch_sub(seats.into(), Relaxed);
        self.executions.count(took);
    }

    /// More or fewer requests wait.
    pub fn queued(&self, more: i64) {
        self.waiting.fetch_add(more, Relaxed);
    }

    /// A request no longer waits.
    pub fn waited(&self, time: Duration, has_seats: bool) {
        self.waits[usize::from(!has_seats)].count(time);
    }

    /// A request was sent away.
    pub fn refused(&self, why: Refusal) {
        if let Some(index) = REASONS.iter().position(|(reason, _)| *reason == why) {
            self.refused[index].fetch_add(1, Relaxed);
        }
    }
}

impl Times {
    fn count(&self, time: Duration) {
        self.count.fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Relaxed);
        let seconds = time.as_secs_f64();
        if let Some(bucket) = BUCKETS_SECONDS.iter().position(|limit| seconds <= *limit) {
            self.buckets[bucket].fetch_add(1, Relaxed);
        }
    }

    /// Writes the lines of a histogram; so many more took no time at all.
    fn render(&self, out: &mut String, name: &str, labels: &str, at_once: u64) {
        let mut below = at_once;
        for (limit, bucket) in BUCKETS_SECONDS.iter().zip(&self.buckets) {
            below += bucket.load(Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{limit}\"}} {below}");
        }
        let count = at_once + self.count.load(Relaxed);
        let seconds = Duration::from_nanos(self.nanoseconds.load(Relaxed)).as_secs_f64();
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum{{{labels}}} {seconds}\n{name}_count{{{labels}}} {count}");
    }

    fn total(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

/// Writes the lines of all schemas and levels.
pub fn render(out: &mut String, schemas: &[Arc<Schema>], levels: &[Arc<Level>]) {
    let mut family = |name: &str, kind: &str, help: &str, lines: &mut dyn FnMut(&mut String, &str)| {
        let name = format!("apiserver_flowcontrol_{name}");
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        lines(out, &name);
    };
    let labels =
        |schema: &Schema| format!("flow_schema=\"{}\",priority_level=\"{}\"", schema.name, schema.level.name);
    let of_schemas = |out: &mut String, name: &str, value: fn(&Counters) -> i64| {
        for schema in schemas {
            let _ = writeln!(out, "{name}{{{}}} {}", labels(schema), value(&schema.counters));
        }
    };
    let of_levels = |out: &mut String, name: &str, value: fn(&Level) -> u32| {
        for level in levels {
            let _ = writeln!(out, "{name}{{priority_level=\"{}\"}} {}", level.name, value(level));
        }
    };
    family("rejected_requests_total", "counter", "Requests turned away, by reason.", &mut |out, name| {
        for (schema, (index, (_, reason))) in
            schemas.iter().flat_map(|schema| REASONS.iter().enumerate().map(move |reason| (schema, reason)))
        {
            let count = schema.counters.refused[index].load(Relaxed);
            if count > 0 {
                let _ = writeln!(out, "{name}{{{},reason=\"{reason}\"}} {count}", labels(schema));
            }
        }
    });
    let dispatched =
        |counters: &Counters| (counters.at_once.load(Relaxed) + counters.waits[0].total()) as i64;
    family("dispatched_requests_total", "counter", "Requests that got their seats.", &mut |out, name| {
        of_schemas(out, name, dispatched);
    });
    family("current_inqueue_requests", "gauge", "Requests that wait for seats.", &mut |out, name| {
        of_schemas(out, name, |counters| counters.waiting.load(Relaxed));
    });
    family("current_executing_requests", "gauge", "Requests that have seats.", &mut |out, name| {
        of_schemas(out, name, |counters| counters.executing.load(Relaxed));
    });
    family("current_executing_seats", "gauge", "Seats that are taken.", &mut |out, name| {
        of_schemas(out, name, |counters| counters.seats.load(Relaxed));
    });
    family("request_wait_duration_seconds", "histogram", "How long requests waited.", &mut |out, name| {
        for schema in schemas {
            let counters = &schema.counters;
            for (times, has_seats) in counters.waits.iter().zip([true, false]) {
                let at_once = if has_seats { counters.at_once.load(Relaxed) } else { 0 };
                if at_once + times.total() > 0 {
                    let labels = format!("execute=\"{has_seats}\",{}", labels(schema));
                    times.render(out, name, &labels, at_once);
                }
            }
        }
    });
    family("request_execution_seconds", "histogram", "How long requests had seats.", &mut |out, name| {
        for schema in schemas.iter().filter(|schema| schema.counters.executions.total() > 0) {
            schema.counters.executions.render(out, name, &labels(schema), 0);
        }
    });
    family("nominal_limit_seats", "gauge", "Seats that are a level's own.", &mut |out, name| {
        of_levels(out, name, |level| level.allotment().nominal);
    });
    family("lower_limit_seats", "gauge", "Seats that a level never lends.", &mut |out, name| {
        of_levels(out, name, |level| level.allotment().least);
    });
    family("upper_limit_seats", "gauge", "Seats that a level has at most.", &mut |out, name| {
        of_levels(out, name, |level| level.allotment().most);
    });
    family("current_limit_seats", "gauge", "Seats that a level has now.", &mut |out, name| {
        of_levels(out, name, Level::limit);
    });
}
