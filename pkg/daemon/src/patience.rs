//! How long the other side of a connection has kept us waiting, and when that is too long.
//!
//! ```text
//! opened ── headers ──> request ── answer: given, taken, given … ──> idle ── headers ──> request …
//!    └─────── limit ───────┘          └── limit ──┘                   └─ limit
//! ```
//!
//! A decision only: it is told what happens and when, and says when to look again.

use crate::limits::ConnectionLimits;
use crate::watched::KeptUntilTaken;
use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Whoever takes less than this of an answer in a second is too slow, after some time.
const SLOWEST: f64 = 16.0 * 1024.0;

/// What a connection's other side keeps us waiting for.
#[derive(Debug)]
pub struct Patience {
    /// When nothing was asked any more: at first, when it was opened.
    idle_since: Instant,
    /// Since when parts of a request have been coming.
    heard_since: Option<Instant>,
    has_asked: bool,
    is_http2: bool,
    /// Answers that are being made or taken.
    answers: HashMap<u64, Answered>,
    next_answer: u64,
    /// What the socket does not take.
    socket: Option<Unread>,
    /// Nobody waits for a moment: whoever changes something that does must tell.
    pub is_resting: bool,
}

/// What is to happen to a connection.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Verdict {
    /// Everything is as it should be, until then.
    LookAgain(Instant),
    /// We are the ones who work.
    Rest,
    /// Nobody asks anything: it may end in peace.
    Idle,
    /// It ends at once.
    Overdue(&'static str),
}

/// What was given and not yet taken.
#[derive(Debug, Clone, Copy)]
struct Unread {
    since: Instant,
}

/// An answer from its request on.
#[derive(Debug)]
struct Answered {
    /// Pieces that were given and not taken.
    held: usize,
    unread: Unread,
    /// How far its client was behind when it had taken everything.
    lag: Duration,
    begun: Begun,
    is_over: bool,
}

/// What is known of an answer when it begins.
#[derive(Default)]
pub struct Begun {
    /// Whether it is known how long it is.
    pub has_length: bool,
    /// Whether people look at it as it comes.
    pub is_for_people: bool,
    /// What is kept until it is taken.
    pub _kept: Option<KeptUntilTaken>,
}

impl fmt::Debug for Begun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "has_length: {}, is_for_people: {}", self.has_length, self.is_for_people)
    }
}

impl Unread {
    fn take(&mut self, bytes: usize, now: Instant) {
        self.since = (self.since + Duration::from_secs_f64(bytes as f64 / SLOWEST)).min(now);
    }
}

impl Patience {
    /// With a connection that is new.
    pub fn new(now: Instant) -> Patience {
        Patience {
            idle_since: now,
            heard_since: None,
            has_asked: false,
            is_http2: false,
            answers: HashMap::new(),
            next_answer: 0,
            socket: None,
            is_resting: false,
        }
    }

    /// Bytes came.
    pub fn heard(&mut self, now: Instant) {
        if self.answers.is_empty() {
            self.heard_since.get_or_insert(now);
        }
    }

    /// A request is there. Returns the number of its answer.
    pub fn asked(&mut self, is_http2: bool, now: Instant) -> u64 {
        self.has_asked = true;
        self.is_http2 = is_http2;
        self.heard_since = None;
        self.next_answer += 1;
        let answered = Answered {
            held: 0,
            unread: Unread { since: now },
            lag: Duration::ZERO,
            begun: Begun::default(),
            is_over: false,
        };
        self.answers.insert(self.next_answer, answered);
        self.next_answer
    }

    /// An answer begins.
    pub fn answered(&mut self, answer: u64, begun: Begun) {
        if let Some(answered) = self.answers.get_mut(&answer) {
            answered.begun = begun;
        }
    }

    /// A piece of an answer is given.
    pub fn give(&mut self, answer: u64, now: Instant) {
        let Some(answered) = self.answers.get_mut(&answer) else { return };
        if answered.held == 0 {
            answered.unread.since = now.checked_sub(answered.lag).unwrap_or(now);
        }
        answered.held += 1;
    }

    /// A piece of an answer was taken.
    pub fn take(&mut self, answer: u64, bytes: usize, now: Instant) {
        let Some(answered) = self.answers.get_mut(&answer) else { return };
        answered.held = answered.held.saturating_sub(1);
        answered.unread.take(bytes, now);
        if answered.held == 0 {
            let lag = now.saturating_duration_since(answered.unread.since);
            answered.lag = if answered.begun.has_length { lag } else { Duration::ZERO };
        }
        self.forget(answer, now);
    }

    /// Nothing more will be given.
    pub fn over(&mut self, answer: u64, now: Instant) {
        if let Some(answered) = self.answers.get_mut(&answer) {
            answered.is_over = true;
        }
        self.forget(answer, now);
    }

    fn forget(&mut self, answer: u64, now: Instant) {
        if self.answers.get(&answer).is_some_and(|answered| answered.is_over && answered.held == 0) {
            self.answers.remove(&answer);
            self.idle_since = now;
        }
    }

    /// The socket takes no more.
    pub fn socket_is_full(&mut self, now: Instant) {
        self.socket.get_or_insert(Unread { since: now });
    }

    /// The socket took something again.
    pub fn socket_took(&mut self, bytes: usize, now: Instant) {
        if let Some(socket) = &mut self.socket {
            socket.take(bytes, now);
            if socket.since >= now {
                self.socket = None;
            }
        }
    }

    /// The socket took all that there was.
    pub fn socket_is_empty(&mut self) {
        self.socket = None;
    }

    /// Whether the socket has something that it could not take.
    pub fn is_socket_full(&self) -> bool {
        self.socket.is_some()
    }

    /// What is to happen.
    pub fn verdict(&self, now: Instant, limits: &ConnectionLimits) -> Verdict {
        let mut next: Option<Instant> = None;
        let mut is_over = |end: Instant| {
            next = Some(next.map_or(end, |next| next.min(end)));
            end <= now
        };
        let is_for_people = self.answers.values().any(|answered| answered.begun.is_for_people);
        let unread = |is_for_people| if is_for_people { limits.unread_by_people } else { limits.unread };
        if self.socket.is_some_and(|socket| is_over(socket.since + unread(is_for_people))) {
            return Verdict::Overdue("it does not read");
        }
        let held = self.answers.values().filter(|answered| answered.held > 0);
        for answered in held {
            if is_over(answered.unread.since + unread(answered.begun.is_for_people)) {
                return Verdict::Overdue("it does not take an answer");
            }
        }
        if self.answers.is_empty() {
            if !self.has_asked && is_over(self.idle_since + limits.headers) {
                return Verdict::Overdue("it asks nothing");
            }
            match self.heard_since.filter(|_| !self.is_http2) {
                Some(since) if is_over(since + limits.headers) => {
                    return Verdict::Overdue("its request does not come");
                }
                None if is_over(self.idle_since + limits.idle) => return Verdict::Idle,
                _ => {}
            }
        }
        next.map_or(Verdict::Rest, Verdict::LookAgain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds after the beginning, what happens, and the verdict then.
    fn check(steps: &[(u64, fn(&mut Patience, Instant), Option<Result<u64, Verdict>>)]) {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let limits = ConnectionLimits::default();
        let mut patience = Patience::new(start);
        for (second, happens, expected) in steps {
            happens(&mut patience, at(*second));
            let Some(expected) = expected else { continue };
            let expected = expected.map_or_else(|verdict| verdict, |second| Verdict::LookAgain(at(second)));
            assert_eq!(patience.verdict(at(*second), &limits), expected, "after {second} s");
        }
    }

    const NOTHING: fn(&mut Patience, Instant) = |_, _| {};
    const ASKED: fn(&mut Patience, Instant) = |patience, now| _ = patience.asked(false, now);
    const OVER: fn(&mut Patience, Instant) = |patience, now| patience.over(1, now);

    #[test]
    fn whoever_asks_nothing_is_left() {
        check(&[(0, NOTHING, Some(Ok(32))), (32, NOTHING, Some(Err(Verdict::Overdue("it asks nothing"))))]);
    }

    #[test]
    fn an_idle_connection_ends_in_peace() {
        check(&[
            (1, ASKED, Some(Err(Verdict::Rest))),
            (50, OVER, Some(Ok(140))),
            (140, NOTHING, Some(Err(Verdict::Idle))),
        ]);
    }

    #[test]
    fn headers_have_their_time_again_for_each_request() {
        check(&[
            (1, ASKED, None),
            (2, OVER, None),
            (50, Patience::heard, Some(Ok(82))),
            (70, Patience::heard, Some(Ok(82))),
            (82, NOTHING, Some(Err(Verdict::Overdue("its request does not come")))),
        ]);
        // The pings of an idle HTTP/2 connection are no request.
        check(&[
            (1, |patience, now| _ = patience.asked(true, now), None),
            (2, OVER, None),
            (50, Patience::heard, Some(Ok(92))),
        ]);
    }

    #[test]
    fn an_answer_is_taken_in_time_and_not_too_slowly() {
        let give: fn(&mut Patience, Instant) = |patience, now| patience.give(1, now);
        let take: fn(&mut Patience, Instant) = |patience, now| patience.take(1, 160 * 1024, now);
        check(&[
            (0, ASKED, None),
            (10, give, Some(Ok(70))),
            (70, NOTHING, Some(Err(Verdict::Overdue("it does not take an answer")))),
        ]);
        // Ten seconds' worth is taken after forty, again and again.
        let begin: fn(&mut Patience, Instant) = |patience, _| {
            patience.answered(1, Begun { has_length: true, ..Begun::default() });
        };
        check(&[
            (0, ASKED, None),
            (0, begin, None),
            (0, give, Some(Ok(60))),
            (40, take, Some(Err(Verdict::Rest))),
            (100, give, Some(Ok(130))),
            (140, NOTHING, Some(Err(Verdict::Overdue("it does not take an answer")))),
        ]);
        // What has no length may be as slow as events come.
        check(&[(0, ASKED, None), (0, give, None), (40, take, None), (100, give, Some(Ok(160)))]);
        // People may read slowly.
        let begin: fn(&mut Patience, Instant) = |patience, _| {
            patience.answered(1, Begun { is_for_people: true, ..Begun::default() });
        };
        check(&[(0, ASKED, None), (0, begin, None), (0, give, Some(Ok(14_400)))]);
        // What was given and not taken is not over.
        check(&[(0, ASKED, None), (0, give, None), (1, OVER, Some(Ok(60))), (2, take, Some(Ok(92)))]);
    }

    #[test]
    fn a_socket_that_takes_nothing_is_closed() {
        let took: fn(&mut Patience, Instant) = |patience, now| patience.socket_took(160 * 1024, now);
        check(&[
            (0, ASKED, None),
            (10, Patience::socket_is_full, Some(Ok(70))),
            (60, took, Some(Ok(80))),
            (61, |patience, now| patience.socket_took(10 << 20, now), Some(Err(Verdict::Rest))),
            (70, Patience::socket_is_full, None),
            (130, NOTHING, Some(Err(Verdict::Overdue("it does not read")))),
        ]);
    }
}
