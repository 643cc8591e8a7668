//! How the proxy is doing, for `/healthz` and `/metrics`.

use crate::node::This;
use parking_lot::Mutex;
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
    synced_at: Option<f64>,
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

impl Status {
    /// Rules are in step.
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
        figures.failing_since = None;
        figures.synced_at = Some(jiff::Timestamp::now().as_millisecond() as f64 / 1000.0);
    }

    /// A node that is on its way out should get no new connections.
    pub fn node(&self, this: &This) {
        self.0.lock().leaving = this.leaving;
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

    /// Why this node should get no connections from outside: the page of `/healthz`.
    pub fn eligible(&self) -> Result<(), String> {
        self.healthy()?;
        match self.0.lock().leaving {
            true => Err("this node is on its way out".to_owned()),
            false => Ok(()),
        }
    }

    /// Why it is not healthy, if it is not: the page of `/livez`.
    pub fn healthy(&self) -> Result<(), String> {
        match self.0.lock().failing_since.map(|since| since.elapsed()) {
            Some(elapsed) if elapsed > UNHEALTHY_AFTER => {
                Err(format!("rules have been out of step for {} s", elapsed.as_secs()))
            }
            _ => Ok(()),
        }
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
        let _ = writeln!(out, "# TYPE {name} gauge\n{name} {}", figures.synced_at.unwrap_or_default());
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
        assert_eq!(status.healthy(), Ok(()));
    }
}
