//! From single answers to a verdict: so many successes or failures in a row.

use super::Kind;
use k8s_openapi::api::core::v1::Probe;

/// Counts the answers of one probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    failure_threshold: i32,
    success_threshold: i32,
    last: Option<bool>,
    in_a_row: i32,
}

impl Count {
    /// Nothing has been asked.
    pub fn new(probe: &Probe) -> Count {
        Count {
            failure_threshold: probe.failure_threshold.unwrap_or(3).max(1),
            success_threshold: probe.success_threshold.unwrap_or(1).max(1),
            last: None,
            in_a_row: 0,
        }
    }

    /// Counts an answer; the verdict, if there is one now.
    pub fn answer(&mut self, success: bool) -> Option<bool> {
        if self.last == Some(success) {
            self.in_a_row = self.in_a_row.saturating_add(1);
        } else {
            self.last = Some(success);
            self.in_a_row = 1;
        }
        let needed = if success { self.success_threshold } else { self.failure_threshold };
        (self.in_a_row >= needed).then_some(success)
    }

    /// Whether a verdict ends the probe: a container that has started is not asked again, one that failed is killed.
    pub fn is_last(kind: Kind, verdict: bool) -> bool {
        match kind {
            Kind::Startup => true,
            Kind::Liveness => !verdict,
            Kind::Readiness => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_need_enough_answers_in_a_row() {
        let probe = Probe { failure_threshold: Some(2), success_threshold: Some(3), ..Probe::default() };
        let mut count = Count::new(&probe);
        let answers = [true, true, true, false, true, false, false, true];
        let verdicts: Vec<Option<bool>> = answers.into_iter().map(|answer| count.answer(answer)).collect();
        assert_eq!(
            verdicts,
            [None, None, Some(true), None, None, None, Some(false), None],
            "one failure among successes changes nothing"
        );
    }
}
