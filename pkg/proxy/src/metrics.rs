//! How the proxy is doing, for `/healthz`, `/livez` and `/metrics`.

use crate::node::This;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rules that are not in step for so long are reported.
const UNHEALTHY_AFTER: Duration = Duration::from_secs(120);
const BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 5.0, 15.0];

/// What is known of how it is doing. Clones share it.
#[derive(Clone, Default)]
pub struct Status(Arc<Mutex<Figures>>);

#[derive(Default)]
struct Figures {
    sync: Histogram,
    full_sync: Histogram,
    programming: Histogram,
    rules: usize,
    services: usize,
    failures: u64,
    reload_failures: u64,
    failing_since: Option<Instant>,
    synced_at: Option<Timestamp>,
    leaving: bool,
}

#[derive(Default)]
struct Histogram {
    counts: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        for (count, _) in self.counts.iter_mut().zip(BUCKETS).filter(|(_, bound)| seconds <= *bound) {
            *count += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        for (count, bound) in self.counts.iter().zip(BUCKETS) {
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(out, "{name}_sum {}\n{name}_count {}", self.sum, self.count);
    }
}

impl Figures {
    /// Whether it is healthy, and what upstream's says of itself: what is in step is so now.
    fn health(&self) -> (bool, Value) {
        let failing = self.failing_since.map(|since| since.elapsed());
        let is_healthy = failing.is_none_or(|elapsed| elapsed <= UNHEALTHY_AFTER);
        let now = Timestamp::now();
        let updated = if is_healthy { Some(now) } else { self.synced_at };
        let text = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
        (is_healthy, json!({"lastUpdated": text(updated), "currentTime": text(Some(now))}))
    }
}

impl Status {
    /// Rules of one family of addresses were brought into step.
    pub fn synced(&self, took: Duration, whole: bool, rules: usize, services: usize, since: Option<Instant>) {
        let mut figures = self.0.lock();
        figures.sync.observe(took);
        if whole {
            figures.full_sync.observe(took);
        }
        if let Some(since) = since {
            figures.programming.observe(since.elapsed());
        }
        figures.rules = rules;
        figures.services = services;
        figures.synced_at = Some(Timestamp::now());
    }

    /// A node that is on its way out should get no new connections.
    pub fn node(&self, this: &This) {
        self.0.lock().leaving = this.leaving;
    }

    /// All rules are in step.
    pub fn is_in_step(&self) {
        self.0.lock().failing_since = None;
    }

    /// Rules could not be brought into step.
    pub fn failed(&self) {
        let mut figures = self.0.lock();
        figures.failures += 1;
        figures.failing_since.get_or_insert_with(Instant::now);
    }

    /// nginx did not take a configuration.
    pub fn reload_failed(&self) {
        self.0.lock().reload_failures += 1;
    }

    /// The page of `/healthz`, and whether all is well: rules are in step, and this node should get connections from
    /// outside.
    pub fn healthz(&self) -> (bool, String) {
        let figures = self.0.lock();
        let (is_healthy, mut page) = figures.health();
        page["nodeEligible"] = (!figures.leaving).into();
        (is_healthy && !figures.leaving, page.to_string())
    }

    /// The page of `/livez`, and whether all is well: rules are in step.
    pub fn livez(&self) -> (bool, String) {
        let (is_healthy, page) = self.0.lock().health();
        (is_healthy, page.to_string())
    }

    /// The page of `/metrics`.
    pub fn metrics(&self) -> String {
        let figures = self.0.lock();
        let mut out = String::new();
        let histograms = [
            (
                &figures.sync,
                "kubeproxy_sync_proxy_rules_duration_seconds",
                "SyncProxyRules latency in seconds",
            ),
            (
                &figures.full_sync,
                "kubeproxy_sync_full_proxy_rules_duration_seconds",
                "Latency of writing all rules",
            ),
            (
                &figures.programming,
                "kubeproxy_network_programming_duration_seconds",
                "From an endpoint's change to the rule being in the kernel",
            ),
        ];
        for (histogram, name, help) in histograms {
            histogram.write(&mut out, name, help);
        }
        let gauges = [
            ("kubeproxy_sync_proxy_rules_iptables_total", "gauge", figures.rules as u64),
            ("kubeproxy_services", "gauge", figures.services as u64),
            ("kubeproxy_sync_proxy_rules_iptables_restore_failures_total", "counter", figures.failures),
            ("kubeproxy_nginx_reload_failures_total", "counter", figures.reload_failures),
        ];
        for (name, kind, value) in gauges {
            let _ = writeln!(out, "# TYPE {name} {kind}\n{name} {value}");
        }
        let name = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";
        let synced_at = figures.synced_at.map_or(0.0, |time| time.as_millisecond() as f64 / 1000.0);
        let _ = writeln!(out, "# TYPE {name} gauge\n{name} {synced_at}");
        client::render_transport(&mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_all_that_is_not_longer() {
        let status = Status::default();
        status.synced(Duration::from_millis(3), true, 7, 2, None);
        status.synced(Duration::from_millis(300), false, 7, 2, None);
        let page = status.metrics();
        for line in [
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"0.002\"} 0",
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"0.004\"} 1",
            "kubeproxy_sync_proxy_rules_duration_seconds_bucket{le=\"+Inf\"} 2",
            "kubeproxy_sync_full_proxy_rules_duration_seconds_count 1",
            "kubeproxy_sync_proxy_rules_iptables_total 7",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert!(status.livez().0);
    }

    #[test]
    fn a_node_that_leaves_is_well_but_takes_nobody() {
        let status = Status::default();
        let is_well = |page: (bool, String)| (page.0, page.1.contains("\"nodeEligible\":true"));
        assert_eq!(is_well(status.healthz()), (true, true));
        status.node(&This { leaving: true, ..This::default() });
        assert_eq!(is_well(status.healthz()), (false, false));
        assert!(status.livez().0);
    }
}
