//! What is counted: calls by how they ended, and how long starts take, by phase.

use crate::link::Times;
use client::Key;
use http::StatusCode;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The upper bounds of durations, in seconds.
const BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// What a start goes through.
pub const PHASES: [&str; 5] = ["create", "bind", "sandbox", "container", "import"];

/// Counts. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    calls: BTreeMap<(Key, u16), u64>,
    seconds: BTreeMap<Key, Histogram>,
    phases: [Histogram; PHASES.len()],
    starts: Histogram,
    totals: BTreeMap<Key, Totals>,
    counted: BTreeSet<Key>,
}

/// What a function's status says of its calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// How many were answered.
    pub calls: i64,
    /// How many of these failed.
    pub errors: i64,
    /// How long the last start took, if there was one.
    pub last_cold_start_milliseconds: Option<i64>,
}

#[derive(Debug, Default, Clone)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
}

impl Histogram {
    fn saw(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        (self.count, self.seconds) = (self.count + 1, self.seconds + seconds);
        for (bound, bucket) in BUCKETS.iter().zip(&mut self.buckets) {
            *bucket += u64::from(seconds <= *bound);
        }
    }

    fn write(&self, name: &str, labels: &str, page: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        for (bound, bucket) in BUCKETS.iter().zip(&self.buckets) {
            let _ = writeln!(page, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {bucket}");
        }
        let _ = writeln!(page, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(page, "{name}_sum{{{labels}}} {}", self.seconds);
        let _ = writeln!(page, "{name}_count{{{labels}}} {}", self.count);
    }
}

impl Metrics {
    /// A call was answered. Whether it is the first since [`Metrics::take_counted`].
    pub fn called(&self, function: &Key, status: StatusCode, took: Duration) -> bool {
        let mut counts = self.0.lock();
        *counts.calls.entry((function.clone(), status.as_u16())).or_default() += 1;
        counts.seconds.entry(function.clone()).or_default().saw(took);
        let totals = counts.totals.entry(function.clone()).or_default();
        totals.calls += 1;
        totals.errors += i64::from(status.is_client_error() || status.is_server_error());
        let is_first = counts.counted.is_empty();
        if !counts.counted.contains(function) {
            counts.counted.insert(function.clone());
        }
        is_first
    }

    /// The functions that were called since the last time.
    pub fn take_counted(&self) -> BTreeSet<Key> {
        std::mem::take(&mut self.0.lock().counted)
    }

    /// So many calls of a function were counted before.
    pub fn begin(&self, function: &Key, calls: i64, errors: i64) {
        let totals = Totals { calls, errors, last_cold_start_milliseconds: None };
        self.0.lock().totals.insert(function.clone(), totals);
    }

    /// What a function's status says of its calls.
    pub fn totals(&self, function: &Key) -> Totals {
        self.0.lock().totals.get(function).copied().unwrap_or_default()
    }

    /// A pod has started.
    pub fn started(&self, function: &Key, times: &Times) {
        let Some(phases) = phases(times) else { return };
        let mut counts = self.0.lock();
        counts.phases.iter_mut().zip(phases).for_each(|(phase, took)| phase.saw(took));
        let took: Duration = phases.iter().sum();
        counts.starts.saw(took);
        let totals = counts.totals.entry(function.clone()).or_default();
        totals.last_cold_start_milliseconds = Some(i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
    }

    /// A function is gone, and nobody asks for it any more.
    pub fn forget(&self, function: &Key) {
        let mut counts = self.0.lock();
        counts.calls.retain(|(key, _), _| key != function);
        counts.seconds.remove(function);
        counts.totals.remove(function);
        counts.counted.remove(function);
    }

    /// All of them, in Prometheus' text format.
    pub fn page(&self) -> String {
        let counts = self.0.lock();
        let mut page = String::new();
        let named = |key: &Key| format!("namespace=\"{}\",function=\"{}\"", key.namespace, key.name);
        page += "# TYPE function_calls_total counter\n";
        for ((key, code), calls) in &counts.calls {
            let _ = writeln!(page, "function_calls_total{{{},code=\"{code}\"}} {calls}", named(key));
        }
        page += "# TYPE function_call_duration_seconds histogram\n";
        for (key, seconds) in &counts.seconds {
            seconds.write("function_call_duration_seconds", &named(key), &mut page);
        }
        page += "# TYPE function_cold_start_seconds histogram\n";
        counts.starts.write("function_cold_start_seconds", "", &mut page);
        page += "# TYPE function_cold_start_phase_seconds histogram\n";
        for (phase, seconds) in PHASES.iter().zip(&counts.phases) {
            seconds.write("function_cold_start_phase_seconds", &format!("phase=\"{phase}\""), &mut page);
        }
        client::render_transport(&mut page);
        page
    }
}

/// How long each of [`PHASES`] took, of a pod that was started here.
pub fn phases(times: &Times) -> Option<[Duration; PHASES.len()]> {
    let Times { wanted, created, bound, addressed, connected, ready } = *times;
    let mut before = wanted?;
    // Watches may tell of a phase later than it was over.
    let mut next = |at: Option<Instant>| {
        let at = at.unwrap_or(before).max(before);
        let took = at - before;
        before = at;
        took
    };
    Some([next(created), next(bound), next(addressed), next(connected), next(ready)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_line_for_each_count() {
        let metrics = Metrics::default();
        let (key, now) = (Key::new("a", "f"), Instant::now());
        metrics.begin(&key, 4, 1);
        assert!(metrics.called(&key, StatusCode::OK, Duration::from_millis(20)));
        assert!(metrics.take_counted().contains(&key) && metrics.totals(&key).calls == 5);
        let after = |milliseconds| Some(now + Duration::from_millis(milliseconds));
        let times = Times {
            wanted: after(0),
            created: after(7),
            bound: after(5),
            addressed: after(40),
            connected: after(120),
            ready: after(124),
        };
        metrics.started(&key, &times);
        assert_eq!(metrics.totals(&key).last_cold_start_milliseconds, Some(124));
        let phases = phases(&times).expect("all of them").map(|phase| phase.as_millis());
        assert_eq!(phases, [7, 0, 33, 80, 4], "a binding heard of before the create was answered");
        let page = metrics.page();
        for line in [
            "function_calls_total{namespace=\"a\",function=\"f\",code=\"200\"} 1",
            "function_call_duration_seconds_bucket{namespace=\"a\",function=\"f\",le=\"0.025\"} 1",
            "function_cold_start_seconds_bucket{le=\"0.1\"} 0",
            "function_cold_start_phase_seconds_count{phase=\"sandbox\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
        }
        metrics.forget(&key);
        assert!(!metrics.page().contains("function=\"f\""));
    }
}
