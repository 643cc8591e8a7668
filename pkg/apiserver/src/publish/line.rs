//! One channel, as far as it was told in one epoch. Pure.
//!
//! A channel where nothing happens says how far it is, less and less often: after 2 seconds, 4, 8 … and then about every
//! minute. So whoever missed the last message soon hears that there was one, and nobody's place grows old.

use bus::HEARTBEAT;
use std::time::Duration;
use store::Revision;
use tokio::time::Instant;

/// Places may be no older than history that is kept; upstream sends bookmarks as often.
const LONGEST_QUIET: Duration = Duration::from_secs(64);

/// What was told on a channel.
#[derive(Debug, Clone)]
pub struct Line {
    sequence: u64,
    after: Revision,
    quiet: Duration,
    /// When it is to say how far it is.
    pub due: Instant,
}

impl Line {
    /// Nothing yet: everything up to this revision was told by somebody else, or by nobody.
    pub fn new(base: Revision, now: Instant) -> Line {
        Line { sequence: 0, after: base, quiet: HEARTBEAT, due: now }
    }

    /// The sequence number of the next message, and the revision that came before it.
    pub fn tell(&mut self, revision: Revision, now: Instant) -> (u64, Revision) {
        self.sequence += 1;
        self.quiet = HEARTBEAT;
        self.due = now + self.quiet;
        (self.sequence, std::mem::replace(&mut self.after, revision))
    }

    /// The same of a bookmark, which is no message of its own.
    pub fn mark(&mut self, now: Instant) -> (u64, Revision) {
        self.due = now + self.quiet;
        self.quiet = (self.quiet * 2).min(LONGEST_QUIET);
        (self.sequence, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_linked_and_silence_grows() {
        let start = Instant::now();
        let mut line = Line::new(100, start);
        assert_eq!(line.tell(105, start), (1, 100));
        assert_eq!(line.tell(107, start), (2, 105));
        let mut marks = Vec::new();
        while line.due < start + Duration::from_secs(300) {
            marks.push(line.due.duration_since(start).as_secs());
            let due = line.due;
            assert_eq!(line.mark(due), (2, 107));
        }
        assert_eq!(marks, [2, 4, 8, 16, 32, 64, 128, 192, 256]);
        assert_eq!(line.tell(200, start), (3, 107));
        assert_eq!(line.due, start + HEARTBEAT, "soon again");
    }
}
