//! What is counted of runs and steps, in Prometheus' text format.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// The upper bounds of durations, in seconds.
const BUCKETS: [f64; 9] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0, 10.0];

/// Counts. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    runs: BTreeMap<(String, String, String), u64>,
    steps: BTreeMap<(String, String), u64>,
    transitions: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
    conflicts: u64,
}

impl Tally {
    /// A run has ended.
    pub fn run_ended(&self, namespace: &str, workflow: &str, phase: &str) {
        let key = (namespace.to_owned(), workflow.to_owned(), phase.to_owned());
        *self.0.lock().runs.entry(key).or_default() += 1;
    }

    /// A step has ended.
    pub fn step_ended(&self, node_type: &str, phase: &str) {
        *self.0.lock().steps.entry((node_type.to_owned(), phase.to_owned())).or_default() += 1;
    }

    /// A transition was written, in so long.
    pub fn committed(&self, took: Duration) {
        let mut counts = self.0.lock();
        let seconds = took.as_secs_f64();
        (counts.count, counts.seconds) = (counts.count + 1, counts.seconds + seconds);
        for (bound, bucket) in BUCKETS.iter().zip(&mut counts.transitions) {
            *bucket += u64::from(seconds <= *bound);
        }
    }

    /// Somebody else had written the run meanwhile.
    pub fn conflicted(&self) {
        self.0.lock().conflicts += 1;
    }

    /// All of them.
    pub fn page(&self) -> String {
        let counts = self.0.lock();
        let mut page = String::from("# TYPE workflow_runs_total counter\n");
        for ((namespace, workflow, phase), count) in &counts.runs {
            let _ = writeln!(
                page,
                "workflow_runs_total{{namespace=\"{namespace}\",workflow=\"{workflow}\",phase=\"{phase}\"}} {count}"
            );
        }
        page += "# TYPE workflow_steps_total counter\n";
        for ((node_type, phase), count) in &counts.steps {
            let _ = writeln!(page, "workflow_steps_total{{type=\"{node_type}\",phase=\"{phase}\"}} {count}");
        }
        page += "# TYPE workflow_transition_duration_seconds histogram\n";
        let name = "workflow_transition_duration_seconds";
        for (bound, bucket) in BUCKETS.iter().zip(&counts.transitions) {
            let _ = writeln!(page, "{name}_bucket{{le=\"{bound}\"}} {bucket}");
        }
        let _ = writeln!(page, "{name}_bucket{{le=\"+Inf\"}} {}", counts.count);
        let _ = writeln!(page, "{name}_sum {}\n{name}_count {}", counts.seconds, counts.count);
        let _ = writeln!(
            page,
            "# TYPE workflow_conflicts_total counter\nworkflow_conflicts_total {}",
            counts.conflicts
        );
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_line_for_each_count() {
        let tally = Tally::default();
        tally.run_ended("a", "w", "Failed");
        tally.step_ended("Task", "Succeeded");
        tally.committed(Duration::from_millis(2));
        let page = tally.page();
        for line in [
            "workflow_runs_total{namespace=\"a\",workflow=\"w\",phase=\"Failed\"} 1",
            "workflow_steps_total{type=\"Task\",phase=\"Succeeded\"} 1",
            "workflow_transition_duration_seconds_bucket{le=\"0.0025\"} 1",
            "workflow_transition_duration_seconds_bucket{le=\"0.001\"} 0",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
        }
    }
}
