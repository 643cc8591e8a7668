//! Events: what watchers are told, and how it is written on the wire.

use crate::object::Object;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use store::Revision;

/// What happened to an object, as far as a watcher is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// It came into view.
    Added,
    /// It changed.
    Modified,
    /// It went out of view.
    Deleted,
}

impl EventType {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }

    /// What stands before the object in the line of an event.
    pub(crate) fn head(self) -> &'static [u8] {
        match self {
            EventType::Added => b"{\"type\":\"ADDED\",\"object\":",
            EventType::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
            EventType::Deleted => b"{\"type\":\"DELETED\",\"object\":",
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    /// The place among all events of the resource: what cursors count.
    pub(crate) seq: u64,
    /// What happened.
    pub kind: EventType,
    /// The revision at which it happened.
    pub revision: Revision,
    /// The object after it; of a deletion, the last state under the revision of the deletion.
    pub object: Arc<Object>,
    /// The object before it, if there was one.
    pub previous: Option<Arc<Object>>,
    line: OnceLock<Bytes>,
    /// The same change for those who see the object only now.
    appeared: OnceLock<Arc<Event>>,
    /// The same change for those who do not see the object any more.
    departed: OnceLock<Arc<Event>>,
}

impl Event {
    pub(crate) fn new(seq: u64, kind: EventType, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        let revision = object.revision();
        let (line, appeared, departed) = Default::default();
        Event { seq, kind, revision, object, previous, line, appeared, departed }
    }

    /// `{"type":…,"object":…}` and a newline: made once, shared by all who watch.
    pub fn line(&self) -> Bytes {
        self.line.get_or_init(|| self.object.line(self.kind)).clone()
    }

    /// What this event is to somebody who did not see the object before, but does now.
    pub(crate) fn appeared(self: &Arc<Self>) -> Arc<Event> {
        if self.kind == EventType::Added {
            return self.clone();
        }
        let make = || Arc::new(Event::new(self.seq, EventType::Added, self.object.clone(), None));
        self.appeared.get_or_init(make).clone()
    }

    /// What this event is to somebody who saw the object before, but does not now: the old content, because the new
    /// one is none of theirs, under the new revision.
    pub(crate) fn departed(self: &Arc<Self>) -> Arc<Event> {
        let (kind, Some(previous)) = (self.kind, &self.previous) else { return self.clone() };
        if kind == EventType::Deleted {
            return self.clone();
        }
        let make = || {
            let object = Arc::new(previous.deleted_at(self.revision));
            Arc::new(Event::new(self.seq, EventType::Deleted, object, Some(previous.clone())))
        };
        self.departed.get_or_init(make).clone()
    }
}

/// The line of a bookmark: nothing has happened up to this revision that was not told. `initial_events_end` marks
/// the one after the present state.
pub fn bookmark(api_version: &str, kind: &str, revision: Revision, initial_events_end: bool) -> Bytes {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let annotations =
        if initial_events_end { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    let (kind, api_version) = (text(kind), text(api_version));
    Bytes::from(format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":\
         {{\"resourceVersion\":\"{revision}\",\"creationTimestamp\":null{annotations}}}}}}}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn bookmarks_are_events_with_a_revision_only() {
        let check = |end: bool, metadata: Value| {
            let line = bookmark("apps/v1", "Deployment", 7, end);
            assert!(line.ends_with(b"}}}\n"));
            let expected = json!({"type": "BOOKMARK", "object":
                {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": metadata}});
            assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), expected);
        };
        check(false, json!({"resourceVersion": "7", "creationTimestamp": null}));
        check(
            true,
            json!({"resourceVersion": "7", "creationTimestamp": null,
                "annotations": {"k8s.io/initial-events-end": "true"}}),
        );
    }
}
