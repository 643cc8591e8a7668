//! What the controllers did, counted, in Prometheus' text format.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    counts: Arc<Mutex<BTreeMap<&'static str, Counts>>>,
    /// Events that were not sent, by the recorder of the moment.
    dropped: Arc<Mutex<Arc<AtomicU64>>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    plans: u64,
    writes: u64,
    failures: u64,
    panics: u64,
}

impl Metrics {
    /// A controller made a plan with so many writes.
    pub fn planned(&self, controller: &'static str, writes: usize) {
        let mut counts = self.counts.lock();
        let counts = counts.entry(controller).or_default();
        counts.plans += 1;
        counts.writes += writes as u64;
    }

    /// A write of a controller failed.
    pub fn failed(&self, controller: &'static str) {
        self.counts.lock().entry(controller).or_default().failures += 1;
    }

    /// A controller panicked over an object.
    pub fn panicked(&self, controller: &'static str) {
        self.counts.lock().entry(controller).or_default().panics += 1;
    }

    /// This counts events that were not sent.
    pub fn counts_events(&self, dropped: Arc<AtomicU64>) {
        *self.dropped.lock() = dropped;
    }

    /// How many writes were planned by all controllers.
    pub fn writes(&self) -> u64 {
        self.counts.lock().values().map(|counts| counts.writes).sum()
    }

    /// The page of `/metrics`.
    pub fn page(&self) -> String {
        type Count = fn(&Counts) -> u64;
        let families: [(&str, &str, Count); 4] = [
            ("controller_plans_total", "Plans made", |counts| counts.plans),
            ("controller_writes_total", "Writes planned", |counts| counts.writes),
            ("controller_failures_total", "Plans of which a write failed", |counts| counts.failures),
            ("controller_panics_total", "Panics, each over one object", |counts| counts.panics),
        ];
        let mut page = String::new();
        for (name, help, count) in families {
            let _ = writeln!(page, "# HELP {name} {help}.\n# TYPE {name} counter");
            for (controller, counts) in self.counts.lock().iter() {
                let _ = writeln!(page, "{name}{{controller=\"{controller}\"}} {}", count(counts));
            }
        }
        let (name, dropped) =
            ("controller_events_dropped_total", self.dropped.lock().load(Ordering::Relaxed));
        let _ = writeln!(page, "# HELP {name} Events not sent.\n# TYPE {name} counter\n{name} {dropped}");
        client::render_transport(&mut page);
        page
    }
}
