//! How fast an autoscaler may follow its metrics: stabilization and rates.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscalerBehavior};
use std::time::Duration;

/// What was recommended and done, as long as it matters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    recommendations: Vec<(Timestamp, i32)>,
    /// When, and how many more (or fewer).
    changes: Vec<(Timestamp, i32)>,
}

/// Nothing is remembered longer: no window and no period may be.
const LONGEST: SignedDuration = SignedDuration::from_secs(3600);

/// What an autoscaler may do.
pub struct Limits<'a> {
    pub least: i32,
    pub most: i32,
    pub behavior: Option<&'a HorizontalPodAutoscalerBehavior>,
    pub downscale_stabilization: Duration,
}

impl History {
    /// The first recommendation is what there is, so that a new controller does not scale down at once.
    pub fn begin(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    /// A change was made.
    pub fn scaled(&mut self, from: i32, to: i32, now: Timestamp) {
        self.changes.push((now, to - from));
    }

    /// A change that was to be made now was not: it must not hold the next one back.
    pub fn not_scaled(&mut self, now: Timestamp) {
        self.changes.retain(|(at, _)| *at != now);
    }

    fn recommend(&mut self, replicas: i32, now: Timestamp) {
        let is_recent = |at: &Timestamp| now.duration_since(*at) <= LONGEST;
        self.recommendations.retain(|(at, _)| is_recent(at));
        self.changes.retain(|(at, _)| is_recent(at));
        self.recommendations.push((now, replicas));
    }

    fn since(&self, seconds: i32, now: Timestamp) -> impl Iterator<Item = i32> {
        let cutoff = now - SignedDuration::from_secs(seconds.into());
        self.recommendations.iter().filter(move |(at, _)| *at > cutoff).map(|(_, replicas)| *replicas)
    }

    /// How many were added and taken away within a period.
    fn changed(&self, seconds: i32, now: Timestamp) -> (i32, i32) {
        let cutoff = now - SignedDuration::from_secs(seconds.into());
        let recent = self.changes.iter().filter(|(at, _)| *at > cutoff).map(|(_, change)| *change);
        recent.fold((0, 0), |(up, down), change| (up + change.max(0), down + (-change).max(0)))
    }
}

/// The recommendation, held back by those of the recent past; and why, if it is another.
pub fn stabilize(
    history: &mut History,
    current: i32,
    proposed: i32,
    limits: &Limits<'_>,
    now: Timestamp,
) -> (i32, Option<(&'static str, &'static str)>) {
    let up = limits.behavior.and_then(|behavior| behavior.scale_up.as_ref());
    let down = limits.behavior.and_then(|behavior| behavior.scale_down.as_ref());
    let window = |rules: Option<&HPAScalingRules>| rules.and_then(|rules| rules.stabilization_window_seconds);
    let default_down = i32::try_from(limits.downscale_stabilization.as_secs()).unwrap_or(i32::MAX);
    let lowest = history.since(window(up).unwrap_or(0), now).fold(proposed, i32::min);
    let highest = history.since(window(down).unwrap_or(default_down), now).fold(proposed, i32::max);
    history.recommend(proposed, now);
    let stabilized = current.max(lowest).min(highest);
    let why = if proposed >= current {
        (
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        )
    } else {
        (
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        )
    };
    (stabilized, (stabilized != proposed).then_some(why))
}

/// The recommendation within what the rates and the bounds allow, and why.
pub fn limit(
    history: &History,
    current: i32,
    wanted: i32,
    limits: &Limits<'_>,
    now: Timestamp,
) -> (i32, &'static str, &'static str) {
    if wanted > current {
        let allowed = match limits.behavior.and_then(|behavior| behavior.scale_up.as_ref()) {
            Some(rules) => rate(history, current, rules, 1, now).max(current),
            None => (2 * current).max(4),
        };
        let (most, reason, message) = if allowed < limits.most {
            (
                allowed,
                "ScaleUpLimit",
                "the desired replica count is increasing faster than the maximum scale rate",
            )
        } else {
            (
                limits.most,
                "TooManyReplicas",
                "the desired replica count is more than the maximum replica count",
            )
        };
        if wanted > most {
            return (most, reason, message);
        }
    } else if wanted < current {
        let allowed = match limits.behavior.and_then(|behavior| behavior.scale_down.as_ref()) {
            Some(rules) => rate(history, current, rules, -1, now).min(current),
            None => i32::MIN,
        };
        let (least, reason, message) = if allowed > limits.least {
            (
                allowed,
                "ScaleDownLimit",
                "the desired replica count is decreasing faster than the maximum scale rate",
            )
        } else {
            (
                limits.least,
                "TooFewReplicas",
                "the desired replica count is less than the minimum replica count",
            )
        };
        if wanted < least {
            return (least, reason, message);
        }
    }
    (wanted, "DesiredWithinRange", "the desired count is within the acceptable range")
}

/// How far the policies let it go, up (1) or down (-1): so far from where it was when the period began, as upstream has it.
/// What was added within the period may thus be taken away again with what the policy allows on top.
fn rate(history: &History, current: i32, rules: &HPAScalingRules, direction: i32, now: Timestamp) -> i32 {
    let select = rules.select_policy.as_deref().unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let proposals = rules.policies.iter().flatten().map(|policy| {
        let (up, down) = history.changed(policy.period_seconds, now);
        let start = current - up + down;
        match (policy.type_.as_str(), direction) {
            ("Percent", 1) => (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
            ("Percent", _) => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            _ => start + direction * policy.value,
        }
    });
    // The greatest change is the highest number going up, and the lowest going down.
    let takes_highest = (select == "Min") != (direction == 1);
    let chosen = if takes_highest { proposals.max() } else { proposals.min() };
    chosen.unwrap_or(if direction == 1 { i32::MAX } else { i32::MIN })
}
