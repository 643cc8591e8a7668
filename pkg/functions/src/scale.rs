//! How many pods a function should have, and which of them takes a call. Pure: time is given.
//!
//! ```text
//! calls waiting, pods, how long a call takes, how long a start takes ──scale──> so many more, these go, look again then
//! pods, whose turn it was ──route──> whose turn it is
//! ```

use std::time::Duration;
use tokio::time::Instant;

/// A call is taken to last this long until one has.
const UNKNOWN_SERVICE_TIME: Duration = Duration::from_millis(100);
/// More pods than this do not start at once for one function: they would only slow each other.
const MOST_STARTING: usize = 8;

/// Whether a pod takes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not yet.
    Starting,
    /// It does.
    Ready,
    /// No more: it goes when the last call has ended.
    Draining,
}

/// A pod, as far as scaling looks at it.
#[derive(Debug, Clone, Copy)]
pub struct Replica {
    /// Whether it takes calls.
    pub phase: Phase,
    /// How many are under way.
    pub in_flight: usize,
    /// Since when it has not changed between idle and busy, or has not ended a call.
    pub since: Instant,
}

/// What a function allows.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Calls at a time in one pod.
    pub concurrency: usize,
    /// Pods that stay.
    pub min: usize,
    /// Pods at most.
    pub max: usize,
    /// After so long without a call a pod goes.
    pub idle: Duration,
}

/// A function at one moment.
#[derive(Debug, Clone)]
pub struct Observed {
    /// What it allows.
    pub bounds: Bounds,
    /// Calls without a pod.
    pub waiting: usize,
    /// Its pods.
    pub replicas: Vec<Replica>,
    /// How long a call took of late.
    pub service_time: Option<Duration>,
    /// How long a start took of late.
    pub cold_start: Duration,
    /// The most calls at a time within the last `idle`.
    pub peak: usize,
    /// Pods have failed, and are not tried again before this.
    pub not_before: Option<Instant>,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// So many pods more.
    pub create: usize,
    /// These go, by their place in [`Observed::replicas`]. None of them is busy.
    pub remove: Vec<usize>,
    /// When to look again if nothing happens before.
    pub look_again: Option<Instant>,
}

/// Decides how many pods there should be.
///
/// Another one starts only if the queue, at the time that calls take, outlasts a start; and never more than there are
/// calls for. One that was idle for long goes, and so do those that were not needed at any moment of that time.
pub fn scale(observed: &Observed, now: Instant) -> Scale {
    let Observed { bounds, replicas, .. } = observed;
    let live = replicas.iter().filter(|replica| replica.phase != Phase::Draining).count();
    let starting = replicas.iter().filter(|replica| replica.phase == Phase::Starting).count();
    let mut look_again = Vec::new();
    let by_queue = wanted_by_queue(observed, live, now, &mut look_again);
    let wanted = by_queue.max(bounds.min).min(bounds.max);
    let mut create = wanted.saturating_sub(live).min(MOST_STARTING.saturating_sub(starting));
    if let Some(not_before) = observed.not_before.filter(|not_before| create > 0 && *not_before > now) {
        look_again.push(not_before);
        create = 0;
    }
    let remove = match create {
        0 => superfluous(observed, live, by_queue, now, &mut look_again),
        _ => Vec::new(),
    };
    Scale { create, remove, look_again: look_again.into_iter().min() }
}

/// How many pods the queue is worth.
fn wanted_by_queue(observed: &Observed, live: usize, now: Instant, look_again: &mut Vec<Instant>) -> usize {
    let Observed { bounds, replicas, waiting, .. } = observed;
    if *waiting == 0 {
        return 0;
    }
    let concurrency = bounds.concurrency.max(1);
    let busy = || replicas.iter().filter(|replica| replica.phase == Phase::Ready && replica.in_flight > 0);
    let longest = busy().map(|replica| now.saturating_duration_since(replica.since)).max();
    let known = observed.service_time.unwrap_or(UNKNOWN_SERVICE_TIME);
    let service_time = known.max(longest.unwrap_or_default());
    let in_flight: usize = busy().map(|replica| replica.in_flight).sum();
    // As many as there are calls for, if each took for ever.
    let most = (in_flight + waiting).div_ceil(concurrency);
    let cold_start = observed.cold_start.max(Duration::from_millis(1));
    let work = service_time.as_secs_f64() * count(*waiting) / count(concurrency);
    let helpful = (work / cold_start.as_secs_f64()).ceil().min(count(most));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and `most`")]
    let helpful = (helpful as usize).clamp(1, most.max(1));
    if helpful <= live && live < most {
        // When calls will have taken so long that one more helps.
        let long = cold_start.mul_f64(count(concurrency) * count(live.max(1)) / count(*waiting));
        look_again.extend(busy().map(|replica| replica.since + long + Duration::from_millis(1)).max());
    }
    helpful
}

#[expect(clippy::cast_precision_loss, reason = "numbers of pods and calls")]
fn count(number: usize) -> f64 {
    number as f64
}

/// Which pods are not needed, those that were idle longest first.
fn superfluous(
    observed: &Observed,
    live: usize,
    by_queue: usize,
    now: Instant,
    look_again: &mut Vec<Instant>,
) -> Vec<usize> {
    let Observed { bounds, replicas, .. } = observed;
    let is_idle = |replica: &Replica| replica.phase == Phase::Ready && replica.in_flight == 0;
    let mut idle: Vec<usize> = (0..replicas.len()).filter(|at| is_idle(&replicas[*at])).collect();
    idle.sort_by_key(|at| replicas[*at].since);
    let needed = observed.peak.div_ceil(bounds.concurrency.max(1)).max(by_queue);
    let mut left = live;
    let mut remove = Vec::new();
    for at in idle {
        let expires = replicas[at].since + bounds.idle;
        if left <= bounds.min {
            break;
        }
        if expires <= now || left > needed.max(1) {
            remove.push(at);
            left -= 1;
        } else {
            look_again.push(expires);
        }
    }
    remove
}

/// Whose turn it is, after the one at `last`: a pod that takes one more call.
pub fn route(replicas: &[Replica], concurrency: usize, last: usize) -> Option<usize> {
    let count = replicas.len();
    (1..=count).map(|step| (last + step) % count).find(|at| {
        let replica = &replicas[*at];
        replica.phase == Phase::Ready && replica.in_flight < concurrency
    })
}

/// The most calls at a time within a window that goes with time.
#[derive(Debug, Clone)]
pub struct Peak {
    half: Duration,
    began: Instant,
    current: usize,
    before: usize,
}

impl Peak {
    /// None yet.
    pub fn new(window: Duration, now: Instant) -> Peak {
        Peak { half: window / 2, began: now, current: 0, before: 0 }
    }

    /// So many calls are there now.
    pub fn saw(&mut self, calls: usize, now: Instant) {
        self.turn(now);
        self.current = self.current.max(calls);
    }

    /// The most within the window.
    pub fn most(&mut self, calls_now: usize, now: Instant) -> usize {
        self.turn(now);
        self.current = self.current.max(calls_now);
        self.current.max(self.before)
    }

    /// When it may change by itself.
    pub fn turns_at(&self) -> Instant {
        self.began + self.half
    }

    fn turn(&mut self, now: Instant) {
        let halves = now.saturating_duration_since(self.began).as_millis() / self.half.as_millis().max(1);
        if halves > 0 {
            self.before = if halves == 1 { self.current } else { 0 };
            (self.current, self.began) = (0, now);
        }
    }
}

#[cfg(test)]
#[path = "scale/tests.rs"]
mod tests;
