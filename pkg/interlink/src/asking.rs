//! When which pods' statuses are asked for. Pure.
//!
//! ```text
//! all at once, every 5 s ── answered for one at most ──> one of the others alone ── answered ──> each alone, from now on
//!        └── some are missing ──> each of those alone, now and then: three times unknown is gone
//! ```
//!
//! Some plugins answer only for the first pod of a request. Those are asked for one at a time: the one that was asked for
//! longest ago first, at most ten a second, one under way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often a pod's status is asked for.
pub const EVERY: Duration = Duration::from_secs(5);
/// Between requests for one pod.
const GAP: Duration = Duration::from_millis(100);
/// How often a pod that is missing from the answers is asked for alone.
const MISSING_EVERY: Duration = Duration::from_secs(30);
/// How often a plugin that answers only for the first is asked for all again: it may be another one now.
const HOPE_EVERY: Duration = Duration::from_secs(600);
/// A pod that is unknown so often, alone, is gone.
const MISSES: u32 = 3;

/// What became of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Nobody answered.
    Away,
    /// An answer, but none with statuses.
    Odd,
    /// Statuses of these pods.
    States(BTreeSet<String>),
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask for these pods.
    Ask(Vec<String>),
    /// Look again then.
    At(Instant),
    /// Nothing, until something is told.
    Rest,
}

#[derive(Default)]
struct Entry {
    asked: Option<Instant>,
    alone: Option<Instant>,
    is_missing: bool,
    misses: u32,
}

/// Which pods there are, and what is known of whoever answers.
#[derive(Default)]
pub struct Asking {
    pods: BTreeMap<String, Entry>,
    /// Whoever answers does so only for the first, as found then.
    first_only: Option<Instant>,
    /// The last request for several was answered for one at most.
    is_odd: bool,
    round: Option<Instant>,
    last: Option<Instant>,
    /// Requests for one rest until then.
    pause: Option<Instant>,
    is_under_way: bool,
}

impl Asking {
    /// A pod's status is wanted.
    pub fn want(&mut self, uid: &str) {
        self.pods.entry(uid.to_owned()).or_default();
    }

    /// It is not wanted any more.
    pub fn forget(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    /// Whether whoever answers is known to do so only for the first pod.
    pub fn is_first_only(&self) -> bool {
        self.first_only.is_some()
    }

    /// Whether a pod has been unknown so often that it is gone.
    pub fn is_gone(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|entry| entry.misses >= MISSES)
    }

    /// What to do now. What it says to ask for is under way from then on.
    pub fn next(&mut self, now: Instant) -> Next {
        if self.is_under_way || self.pods.is_empty() {
            return Next::Rest;
        }
        if self.first_only.is_some_and(|since| now >= since + HOPE_EVERY) || self.pods.len() == 1 {
            self.first_only = None;
        }
        let next = match self.first_only {
            Some(_) => self.next_alone(now),
            None => self.next_round(now),
        };
        if let Next::Ask(pods) = &next {
            self.is_under_way = true;
            self.last = Some(now);
            for uid in pods {
                if let Some(entry) = self.pods.get_mut(uid) {
                    entry.asked = Some(now);
                }
            }
        }
        next
    }

    fn next_alone(&self, now: Instant) -> Next {
        let due = |entry: &Entry| entry.asked.map_or(now, |at| at + EVERY);
        let Some((uid, entry)) = self.pods.iter().min_by_key(|(_, entry)| entry.asked) else {
            return Next::Rest;
        };
        let at = due(entry).max(self.free(now));
        if at <= now { Next::Ask(vec![uid.clone()]) } else { Next::At(at) }
    }

    fn next_round(&mut self, now: Instant) -> Next {
        let round = self.round.map_or(now, |at| at + EVERY);
        if round <= now {
            self.round = Some(now);
            return Next::Ask(self.pods.keys().cloned().collect());
        }
        let missing =
            self.pods.iter().filter(|(_, entry)| entry.is_missing).min_by_key(|(_, entry)| entry.alone);
        let Some((uid, entry)) = missing else { return Next::At(round) };
        let at = entry.alone.map_or(now, |at| at + MISSING_EVERY).max(self.free(now));
        if at > now {
            return Next::At(at.min(round));
        }
        let uid = uid.clone();
        if let Some(entry) = self.pods.get_mut(&uid) {
            entry.alone = Some(now);
        }
        Next::Ask(vec![uid])
    }

    /// When the next request for one pod may be made.
    fn free(&self, now: Instant) -> Instant {
        let gap = self.last.map_or(now, |at| at + GAP);
        gap.max(self.pause.unwrap_or(now))
    }

    /// What became of what was asked.
    pub fn answered(&mut self, asked: &[String], outcome: &Outcome, now: Instant) {
        self.is_under_way = false;
        let is_alone = asked.len() == 1;
        let known = match outcome {
            Outcome::Away => {
                self.pause = Some(now + EVERY);
                return;
            }
            Outcome::Odd if is_alone => {
                self.pause = Some(now + if self.is_first_only() { GAP } else { EVERY });
                return;
            }
            Outcome::Odd => BTreeSet::new(),
            Outcome::States(known) => known.clone(),
        };
        if !is_alone {
            self.is_odd = asked.iter().filter(|uid| known.contains(*uid)).count() <= 1;
        }
        for uid in asked {
            let Some(entry) = self.pods.get_mut(uid) else { continue };
            let is_known = known.contains(uid);
            if is_known && is_alone && entry.is_missing && self.is_odd {
                self.first_only = Some(now);
            }
            if is_known {
                (entry.is_missing, entry.misses, entry.alone) = (false, 0, None);
            } else {
                entry.is_missing = true;
                entry.misses += u32::from(is_alone);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sim {
        asking: Asking,
        now: Instant,
        start: Instant,
        requests: Vec<(Duration, usize)>,
    }

    impl Sim {
        fn new(pods: usize) -> Sim {
            let mut asking = Asking::default();
            (0..pods).for_each(|number| asking.want(&format!("p{number:04}")));
            let now = Instant::now();
            Sim { asking, now, start: now, requests: Vec::new() }
        }

        /// Runs for some seconds against somebody who answers so.
        fn run(&mut self, seconds: u64, answer: impl Fn(&[String]) -> Outcome) {
            let end = self.now + Duration::from_secs(seconds);
            while self.now < end {
                match self.asking.next(self.now) {
                    Next::Ask(pods) => {
                        self.requests.push((self.now - self.start, pods.len()));
                        let outcome = answer(&pods);
                        self.asking.answered(&pods, &outcome, self.now);
                    }
                    Next::At(at) => self.now = at.max(self.now + Duration::from_millis(1)),
                    Next::Rest => return,
                }
            }
        }
    }

    fn all(pods: &[String]) -> Outcome {
        Outcome::States(pods.iter().cloned().collect())
    }

    fn first(pods: &[String]) -> Outcome {
        Outcome::States(pods.iter().take(1).cloned().collect())
    }

    #[test]
    fn one_request_every_five_seconds_serves_all_pods() {
        for pods in [1, 10, 1000] {
            let mut sim = Sim::new(pods);
            sim.run(60, all);
            assert_eq!(sim.requests.len(), 12, "{pods}");
        }
        let mut none = Sim::new(0);
        none.run(60, all);
        assert!(none.requests.is_empty());
    }

    #[test]
    fn who_answers_only_for_the_first_is_asked_for_each() {
        let mut sim = Sim::new(30);
        sim.run(60, first);
        assert!(sim.asking.is_first_only());
        let each = sim.requests.iter().filter(|(_, count)| *count == 1).count();
        // Every pod every five seconds, but not more than ten a second.
        assert!((300..=360).contains(&each), "{each}");
        let mut crowd = Sim::new(1000);
        crowd.run(60, first);
        assert!(crowd.requests.len() <= 602, "{}", crowd.requests.len());
        // The same for who says nothing but 500 to more than one.
        let mut odd = Sim::new(3);
        odd.run(20, |pods| if pods.len() == 1 { all(pods) } else { Outcome::Odd });
        assert!(odd.asking.is_first_only());
    }

    #[test]
    fn one_odd_answer_changes_nothing() {
        let mut sim = Sim::new(5);
        sim.run(5, |_| Outcome::Odd);
        sim.requests.clear();
        sim.run(20, all);
        assert!(!sim.asking.is_first_only());
        sim.run(20, |_| Outcome::Away);
        assert!(!(0..5).any(|number| sim.asking.is_gone(&format!("p{number:04}"))));
        let mut dead = Sim::new(5);
        dead.run(60, |_| Outcome::Odd);
        assert!(dead.requests.len() <= 36, "{}", dead.requests.len());
    }

    #[test]
    fn a_pod_that_nobody_knows_is_gone_after_a_while() {
        let mut sim = Sim::new(5);
        let lost =
            |pods: &[String]| Outcome::States(pods.iter().filter(|uid| *uid != "p0003").cloned().collect());
        sim.run(40, lost);
        assert!(!sim.asking.is_gone("p0003"));
        sim.run(60, lost);
        assert!(sim.asking.is_gone("p0003"));
        assert!(!sim.asking.is_gone("p0001"));
        assert!(!sim.asking.is_first_only());
    }
}
