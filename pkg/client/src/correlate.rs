//! Which events are worth sending, and which only count: upstream's correlator, as a pure structure.
//!
//! ```text
//! Note ──> too many of its source and object? ──> dropped
//!      ──> ten others that differ only in the message? ──> "(combined from similar events): …"
//!      ──> sent before? ──> count one more, else create
//! ```

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// What happened to an object, as somebody tells it.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub component: &'static str,
    pub regarding: ObjectReference,
    pub event_type: &'static str,
    pub reason: String,
    pub message: String,
    pub at: Timestamp,
}

/// What to do with a note.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    Create { name: String, message: String },
    Count { name: String, message: String, count: i32, first: Timestamp },
    Drop,
}

/// Notes that differ only in their message, within this time, are combined once there are so many.
const SIMILAR: usize = 10;
const SIMILAR_FOR: SignedDuration = SignedDuration::from_secs(600);
/// A source may say so much about an object at once, and then one more in every interval.
const BURST: f64 = 25.0;
const INTERVAL: SignedDuration = SignedDuration::from_secs(300);
/// So many of each are remembered.
const REMEMBERED: usize = 512;

type ObjectKey = (String, String, String, String, String);
type Bucket = (&'static str, ObjectKey, &'static str);
type Group = (&'static str, ObjectKey, &'static str, String);

/// What was said, and of which part of the object: of two containers of a pod it is two series.
type Said = (Option<String>, String);

#[derive(Default)]
pub(crate) struct Correlator {
    buckets: Bounded<Bucket, (f64, Timestamp)>,
    groups: Bounded<Group, (HashSet<String>, Timestamp)>,
    sent: Bounded<(Group, Option<Said>), Sent>,
}

#[derive(Clone)]
struct Sent {
    name: String,
    count: i32,
    first: Timestamp,
}

impl Correlator {
    pub fn observe(&mut self, note: &Note) -> Verdict {
        let object = object_key(&note.regarding);
        if !self.has_budget((note.component, object.clone(), note.event_type), note.at) {
            return Verdict::Drop;
        }
        let group: Group = (note.component, object, note.event_type, note.reason.clone());
        let combined = self.is_one_of_many(&group, note);
        let message = if combined {
            format!("(combined from similar events): {}", note.message)
        } else {
            note.message.clone()
        };
        let id = (group, (!combined).then(|| (note.regarding.field_path.clone(), note.message.clone())));
        match self.sent.get_mut(&id) {
            Some(sent) => {
                sent.count += 1;
                Verdict::Count { name: sent.name.clone(), message, count: sent.count, first: sent.first }
            }
            None => {
                let name = format!(
                    "{}.{:x}",
                    note.regarding.name.as_deref().unwrap_or_default(),
                    note.at.as_nanosecond()
                );
                self.sent.insert(id, Sent { name: name.clone(), count: 1, first: note.at });
                Verdict::Create { name, message }
            }
        }
    }

    fn has_budget(&mut self, key: Bucket, now: Timestamp) -> bool {
        let (tokens, since) = self.buckets.get_mut(&key).copied().unwrap_or((BURST, now));
        let earned = now.duration_since(since).as_secs_f64().max(0.0) / INTERVAL.as_secs_f64();
        let tokens = (tokens + earned).min(BURST);
        let has = tokens >= 1.0;
        self.buckets.insert(key, (if has { tokens - 1.0 } else { tokens }, now));
        has
    }

    fn is_one_of_many(&mut self, group: &Group, note: &Note) -> bool {
        if self.groups.get_mut(group).is_none_or(|(_, last)| note.at.duration_since(*last) > SIMILAR_FOR) {
            self.groups.insert(group.clone(), (HashSet::new(), note.at));
        }
        let (messages, last) = self.groups.get_mut(group).expect("inserted above");
        *last = note.at;
        messages.insert(note.message.clone());
        if messages.len() < SIMILAR {
            return false;
        }
        messages.remove(&note.message);
        true
    }
}

fn object_key(object: &ObjectReference) -> ObjectKey {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    (
        text(&object.kind),
        text(&object.namespace),
        text(&object.name),
        text(&object.uid),
        text(&object.api_version),
    )
}

/// A map that forgets its oldest entries.
struct Bounded<K, V> {
    entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Bounded<K, V> {
    fn default() -> Self {
        Bounded { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Hash + Eq + Clone, V> Bounded<K, V> {
    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    fn insert(&mut self, key: K, value: V) {
        if self.entries.insert(key.clone(), value).is_some() {
            return;
        }
        self.order.push_back(key);
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.entries.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(message: &str, second: i64) -> Note {
        Note {
            component: "test",
            regarding: ObjectReference { name: Some("web".into()), ..ObjectReference::default() },
            event_type: "Normal",
            reason: "Created".into(),
            message: message.into(),
            at: Timestamp::from_second(second).expect("a time"),
        }
    }

    #[test]
    fn the_same_again_is_counted() {
        let mut correlator = Correlator::default();
        let Verdict::Create { name, .. } = correlator.observe(&note("hello", 1)) else { panic!("not new") };
        let again = correlator.observe(&note("hello", 2));
        let first = Timestamp::from_second(1).expect("a time");
        assert_eq!(again, Verdict::Count { name, message: "hello".into(), count: 2, first });
    }

    #[test]
    fn what_is_said_of_two_containers_is_two_series() {
        let mut correlator = Correlator::default();
        let of = |container: &str, second: i64| {
            let mut note = note("Back-off restarting failed container", second);
            note.regarding.field_path = Some(format!("spec.containers{{{container}}}"));
            note
        };
        let [one, other] = ["one", "other"].map(|container| correlator.observe(&of(container, 1)));
        assert!(
            matches!((&one, &other), (Verdict::Create { .. }, Verdict::Create { .. })),
            "{one:?} {other:?}"
        );
        assert!(matches!(correlator.observe(&of("one", 2)), Verdict::Count { count: 2, .. }));
    }

    #[test]
    fn many_that_differ_in_the_message_are_combined() {
        let mut correlator = Correlator::default();
        for number in 0..9 {
            let verdict = correlator.observe(&note(&number.to_string(), 1));
            assert!(matches!(verdict, Verdict::Create { .. }), "{verdict:?}");
        }
        let tenth = correlator.observe(&note("nine", 1));
        assert!(
            matches!(&tenth, Verdict::Create { message, .. } if message == "(combined from similar events): nine")
        );
        let next = correlator.observe(&note("ten", 1));
        assert!(matches!(&next, Verdict::Count { count: 2, .. }), "{next:?}");
    }

    #[test]
    fn who_says_too_much_is_not_heard_for_a_while() {
        let mut correlator = Correlator::default();
        for _ in 0..25 {
            assert_ne!(correlator.observe(&note("again", 1)), Verdict::Drop);
        }
        assert_eq!(correlator.observe(&note("again", 1)), Verdict::Drop);
        assert_ne!(correlator.observe(&note("again", 302)), Verdict::Drop);
    }
}
