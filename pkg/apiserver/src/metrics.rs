//! Counters for `/metrics`, in Prometheus' text form and under upstream's names where upstream has the metric.
//!
//! Counting is on the path of every request, so a counter is an array slot and an atomic, never a map look-up.

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const VERBS: [&str; 9] =
    ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "other"];
const CODES: [u16; 15] = [200, 201, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429, 500, 503];
const BUCKETS_SECONDS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// What was asked of one resource, by verb.
#[derive(Default)]
pub struct ResourceMetrics {
    verbs: [VerbMetrics; VERBS.len()],
}

#[derive(Default)]
struct VerbMetrics {
    codes: [AtomicU64; CODES.len() + 1],
    buckets: [AtomicU64; BUCKETS_SECONDS.len()],
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl ResourceMetrics {
    /// Counts one answered request. Watches count when they begin, and take no time.
    pub fn count(&self, verb: &str, code: u16, took: Duration) {
        let verb_index = VERBS.iter().position(|v| *v == verb).unwrap_or(VERBS.len() - 1);
        let metrics = &self.verbs[verb_index];
        let code_index = CODES.iter().position(|c| *c == code).unwrap_or(CODES.len());
        metrics.codes[code_index].fetch_add(1, Relaxed);
        if verb == "watch" {
            return;
        }
        metrics.count.fetch_add(1, Relaxed);
        metrics.nanoseconds.fetch_add(took.as_nanos() as u64, Relaxed);
        let seconds = took.as_secs_f64();
        if let Some(bucket) = BUCKETS_SECONDS.iter().position(|limit| seconds <= *limit) {
            metrics.buckets[bucket].fetch_add(1, Relaxed);
        }
    }

    /// Writes this resource's lines, those that have counted anything.
    pub fn render(
        &self,
        group: &str,
        version: &str,
        resource: &str,
        counts: &mut String,
        times: &mut String,
    ) {
        for (verb, metrics) in VERBS.iter().zip(&self.verbs) {
            let labels = format!(
                "group=\"{group}\",resource=\"{resource}\",verb=\"{}\",version=\"{version}\"",
                verb.to_uppercase()
            );
            for (index, counter) in metrics.codes.iter().enumerate() {
                let value = counter.load(Relaxed);
                if value > 0 {
                    let code = CODES.get(index).map_or_else(|| "other".to_owned(), u16::to_string);
                    let _ = writeln!(counts, "apiserver_request_total{{code=\"{code}\",{labels}}} {value}");
                }
            }
            let count = metrics.count.load(Relaxed);
            if count == 0 {
                continue;
            }
            let mut below = 0;
            for (limit, bucket) in BUCKETS_SECONDS.iter().zip(&metrics.buckets) {
                below += bucket.load(Relaxed);
                let _ = writeln!(
                    times,
                    "apiserver_request_duration_seconds_bucket{{{labels},le=\"{limit}\"}} {below}"
                );
            }
            let _ =
                writeln!(times, "apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} {count}");
            let sum = Duration::from_nanos(metrics.nanoseconds.load(Relaxed)).as_secs_f64();
            let _ = writeln!(times, "apiserver_request_duration_seconds_sum{{{labels}}} {sum}");
            let _ = writeln!(times, "apiserver_request_duration_seconds_count{{{labels}}} {count}");
        }
    }
}

/// What is going on now, and what was turned away.
#[derive(Default)]
pub struct ServerMetrics {
    /// Reads being answered.
    pub reads_in_flight: AtomicI64,
    /// Writes being answered.
    pub writes_in_flight: AtomicI64,
    /// Watches being served.
    pub watches: AtomicI64,
    /// Requests turned away because too many were in flight.
    pub rejected: AtomicU64,
    /// Connections open.
    pub connections: AtomicI64,
}

impl ServerMetrics {
    /// The server's own lines.
    pub fn render(&self, out: &mut String) {
        let mut gauge = |name: &str, labels: &str, help: &str, kind: &str, value: i64| {
            if !help.is_empty() {
                let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            }
            let _ = writeln!(out, "{name}{labels} {value}");
        };
        let name = "apiserver_current_inflight_requests";
        gauge(
            name,
            "{request_kind=\"readOnly\"}",
            "Requests being answered.",
            "gauge",
            self.reads_in_flight.load(Relaxed),
        );
        gauge(name, "{request_kind=\"mutating\"}", "", "", self.writes_in_flight.load(Relaxed));
        gauge(
            "apiserver_longrunning_requests",
            "{verb=\"WATCH\"}",
            "Watches being served.",
            "gauge",
            self.watches.load(Relaxed),
        );
        gauge(
            "apiserver_rejected_requests_total",
            "",
            "Requests turned away because too many were in flight.",
            "counter",
            self.rejected.load(Relaxed) as i64,
        );
        gauge("apiserver_open_connections", "", "Connections open.", "gauge", self.connections.load(Relaxed));
    }
}

/// This process's memory and time, as every Prometheus client library reports them.
pub fn render_process(out: &mut String) {
    let page = 4096;
    if let Ok(text) = std::fs::read_to_string("/proc/self/statm")
        && let Some(pages) = text.split(' ').nth(1).and_then(|field| field.parse::<u64>().ok())
    {
        let bytes = pages * page;
        let _ = writeln!(
            out,
            "# HELP process_resident_memory_bytes Resident memory size in bytes.\n# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes {bytes}"
        );
    }
    if let Ok(text) = std::fs::read_to_string("/proc/self/stat")
        && let Some((_, fields)) = text.rsplit_once(") ")
    {
        let ticks: u64 =
            fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        let seconds = ticks as f64 / 100.0;
        let _ = writeln!(
            out,
            "# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.\n# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total {seconds}"
        );
    }
}
