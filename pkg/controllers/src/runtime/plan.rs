//! What a controller wants done.

use super::Write;
use client::EventType;
use k8s_openapi::api::core::v1::ObjectReference;
use std::time::Duration;

/// What to do about a key. Empty where everything is as it should be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Writes, in order. Neighbours of the same verb and resource are done at the same time (creates by ones, twos, fours, …
    /// so that a server that refuses them is not asked a thousand times). After a failure the rest is left out.
    pub writes: Vec<Write>,
    /// The status to set, after all writes; [`super::Controller::after_failure`] where one failed.
    pub status: Option<Write>,
    /// What to tell people at once, whatever becomes of the writes. For what depends on that, see [`Write::told`].
    pub events: Vec<Note>,
    /// When to look again even if nothing changes.
    pub look_again: Option<Duration>,
}

/// An event about an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// What it is about.
    pub regarding: ObjectReference,
    /// Normal or Warning.
    pub event_type: EventType,
    /// In one word.
    pub reason: String,
    /// For people. Of a write, `{name}` stands for the name that was written and `{error}` for why not.
    pub message: String,
}

impl Plan {
    /// Nothing but to look again.
    pub fn later(after: Duration) -> Plan {
        Plan { look_again: Some(after), ..Plan::default() }
    }

    /// Looks again by then at the latest.
    pub fn look_again_in(&mut self, after: Duration) {
        self.look_again = Some(self.look_again.map_or(after, |earlier| earlier.min(after)));
    }

    /// Adds an event.
    pub fn tell(&mut self, note: Note) {
        self.events.push(note);
    }

    /// Whether there is nothing to write.
    pub fn is_quiet(&self) -> bool {
        self.writes.is_empty() && self.status.is_none()
    }
}

impl Note {
    /// An event for information.
    pub fn normal(regarding: ObjectReference, reason: &str, message: impl Into<String>) -> Note {
        Note { regarding, event_type: EventType::Normal, reason: reason.into(), message: message.into() }
    }

    /// An event to worry about.
    pub fn warning(regarding: ObjectReference, reason: &str, message: impl Into<String>) -> Note {
        Note { regarding, event_type: EventType::Warning, reason: reason.into(), message: message.into() }
    }
}
