//! How far somebody knows a channel, and what a message means to them. Pure.
//!
//! ```text
//! position 10:  message (after 10, revision 12) ──> told; position 12
//!               message (after 9, revision 10)  ──> known already
//!               message (after 12, revision 14) ──> something is missing: the API is asked from 10 on,
//!                                                   and the message waits until that has come to 12
//! ```
//!
//! # Guarantees
//! What is told grows in revision, and nothing is told twice. What is told from messages alone has no gap, whichever of them
//! were lost, doubled, late or out of order: each says which revision came before it.

use bus::{Message, MessageType};
use std::collections::VecDeque;

/// How much waits for the API to come to it.
const MOST_WAITING: usize = 1024;
const MOST_WAITING_BYTES: usize = 4 << 20;

/// How far a channel is known, and what came too early.
#[derive(Debug, Default)]
pub struct Place {
    position: u64,
    /// Who was told of at that revision: objects of one commit share it.
    keys: Vec<String>,
    /// Up to here messages told, whatever the API says later of it.
    told: u64,
    /// Of the publisher that was heard last: another one means that something may be missing.
    epoch: u64,
    waiting: VecDeque<Message>,
    waiting_bytes: usize,
}

/// What a message means.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is known already.
    Known,
    /// These are next. Unless something still [waits](Place::is_waiting) nothing is missing: no need to ask the API.
    Next(Vec<Message>),
    /// Something is missing, and the API is to be asked.
    Missing(Missing),
}

/// Why something is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Messages of this publisher were lost.
    Gap,
    /// Another publisher tells, and began later than here.
    Epoch,
    /// What happened is not for everybody's ears: the API tells who may know.
    Withheld,
}

impl Place {
    /// Everything up to here is known.
    pub fn at(position: u64) -> Place {
        Place { position, ..Place::default() }
    }

    /// Up to where everything is known.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Up to where messages have told: what the API says of it is known.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// The API has told everything up to here. What waited and is next now comes back.
    pub fn advance(&mut self, revision: u64) -> Heard {
        if revision > self.position {
            self.position = revision;
            self.keys.clear();
        }
        self.drain()
    }

    /// A message came.
    pub fn hear(&mut self, message: Message) -> Heard {
        let epoch = self.epoch;
        self.epoch = epoch.max(message.epoch);
        if self.is_known(&message) {
            return Heard::Known;
        }
        let missing = match () {
            () if message.after > self.position && epoch != message.epoch && epoch != 0 => Missing::Epoch,
            () if message.after > self.position => Missing::Gap,
            () => Missing::Withheld,
        };
        self.wait(message);
        match self.drain() {
            Heard::Known => Heard::Missing(missing),
            heard => heard,
        }
    }

    /// What waited is not worth waiting for: it was lost, or too much of it.
    pub fn forget(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    fn wait(&mut self, message: Message) {
        // Kept in the order of revisions; mostly this is the last.
        let at = self.waiting.partition_point(|other| order(other) <= order(&message));
        let is_there = |other: &Message| order(other) == order(&message) && other.key == message.key;
        if self.waiting.range(..at).rev().take_while(|other| order(other) == order(&message)).any(is_there) {
            return;
        }
        self.waiting_bytes += size(&message);
        self.waiting.insert(at, message);
        while self.waiting.len() > MOST_WAITING || self.waiting_bytes > MOST_WAITING_BYTES {
            self.pop();
        }
    }

    /// What waited and is next.
    fn drain(&mut self) -> Heard {
        let (mut next, mut is_linked) = (Vec::new(), false);
        while let Some(first) = self.waiting.front() {
            let is_bookmark = first.kind == MessageType::Bookmark;
            if self.is_known(first) {
                self.pop();
                continue;
            }
            if first.after > self.position || (first.object.is_none() && !is_bookmark) {
                break;
            }
            let Some(message) = self.pop() else { break };
            is_linked = true;
            if message.revision > self.position {
                self.position = message.revision;
                self.keys.clear();
            }
            if !is_bookmark {
                self.keys.push(message.key.clone());
                self.told = self.position;
                next.push(message);
            }
        }
        if is_linked { Heard::Next(next) } else { Heard::Known }
    }

    /// Whether a message says nothing new: a bookmark always says how far its channel is.
    fn is_known(&self, message: &Message) -> bool {
        let is_of_same_commit = message.revision == self.position
            && message.after == message.revision
            && !self.keys.contains(&message.key);
        message.kind != MessageType::Bookmark && message.revision <= self.position && !is_of_same_commit
    }

    /// Whether something waits for the API: it is missing what was before.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn pop(&mut self) -> Option<Message> {
        let message = self.waiting.pop_front()?;
        self.waiting_bytes -= size(&message);
        Some(message)
    }
}

/// A bookmark comes after the change of its revision.
fn order(message: &Message) -> (u64, bool) {
    (message.revision, message.kind == MessageType::Bookmark)
}

fn size(message: &Message) -> usize {
    message.object.as_ref().map_or(0, |object| object.len()) + 256
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn message(kind: MessageType, epoch: u64, after: u64, revision: u64) -> Message {
        let object = (kind != MessageType::Bookmark).then(|| Bytes::from_static(b"{}"));
        Message { kind, epoch, sequence: 0, after, revision, sent_ms: 0, key: "a".into(), object }
    }

    fn change(after: u64, revision: u64) -> Message {
        message(MessageType::Modified, 1, after, revision)
    }

    fn revisions(heard: Heard) -> Result<Vec<u64>, Heard> {
        match heard {
            Heard::Next(messages) => Ok(messages.iter().map(|message| message.revision).collect()),
            other => Err(other),
        }
    }

    #[test]
    fn messages_that_are_linked_are_told_once() {
        let mut place = Place::at(10);
        assert_eq!(revisions(place.hear(change(9, 12))), Ok(vec![12]));
        assert_eq!(place.hear(change(9, 12)), Heard::Known);
        assert_eq!(place.hear(change(4, 9)), Heard::Known);
        assert_eq!(revisions(place.hear(change(12, 13))), Ok(vec![13]));
        assert_eq!(revisions(place.hear(message(MessageType::Bookmark, 1, 13, 20))), Ok(vec![]));
        assert_eq!(place.position(), 20);
    }

    #[test]
    fn what_comes_too_early_waits_for_the_api() {
        let mut place = Place::at(10);
        assert_eq!(place.hear(change(12, 14)), Heard::Missing(Missing::Gap));
        assert_eq!(place.hear(change(14, 15)), Heard::Missing(Missing::Gap));
        assert_eq!(place.advance(11), Heard::Known);
        assert_eq!(revisions(place.advance(12)), Ok(vec![14, 15]));
        assert_eq!((place.position(), place.is_waiting()), (15, false));
    }

    #[test]
    fn what_the_api_has_told_is_not_told_again() {
        let mut place = Place::at(10);
        assert_eq!(place.hear(change(12, 14)), Heard::Missing(Missing::Gap));
        assert_eq!(place.advance(14), Heard::Known, "and whether more is missing is not known");
        assert_eq!(revisions(place.hear(change(14, 16))), Ok(vec![16]));
    }

    #[test]
    fn what_came_out_of_order_is_told_in_order() {
        let mut place = Place::at(10);
        assert_eq!(place.hear(change(12, 13)), Heard::Missing(Missing::Gap));
        assert_eq!(revisions(place.hear(change(10, 12))), Ok(vec![12, 13]));
    }

    #[test]
    fn a_lost_last_message_is_seen_by_its_bookmark() {
        let mut place = Place::at(10);
        assert_eq!(place.hear(message(MessageType::Bookmark, 1, 12, 30)), Heard::Missing(Missing::Gap));
        assert_eq!(revisions(place.advance(12)), Ok(vec![]));
        assert_eq!(place.position(), 30);
    }

    #[test]
    fn objects_of_one_commit_are_each_told_once() {
        let mut place = Place::at(10);
        let other = || Message { key: "b".into(), ..change(12, 12) };
        assert_eq!(revisions(place.hear(change(10, 12))), Ok(vec![12]));
        assert_eq!(revisions(place.hear(other())), Ok(vec![12]));
        assert_eq!((place.hear(other()), place.hear(change(10, 12))), (Heard::Known, Heard::Known));
    }

    #[test]
    fn another_publisher_is_believed_if_its_word_is_linked() {
        let mut place = Place::at(10);
        assert_eq!(revisions(place.hear(change(10, 11))), Ok(vec![11]));
        assert_eq!(revisions(place.hear(message(MessageType::Modified, 2, 11, 12))), Ok(vec![12]));
        assert_eq!(place.hear(message(MessageType::Modified, 3, 40, 41)), Heard::Missing(Missing::Epoch));
    }

    #[test]
    fn what_is_withheld_is_asked_for() {
        let mut place = Place::at(10);
        let secret = |after, revision| Message { object: None, ..change(after, revision) };
        assert_eq!(place.hear(secret(10, 12)), Heard::Missing(Missing::Withheld));
        assert_eq!(place.advance(12), Heard::Known);
        assert_eq!(revisions(place.hear(message(MessageType::Bookmark, 1, 12, 15))), Ok(vec![]));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut place = Place::at(1);
        for n in 0..5000 {
            assert_ne!(place.hear(change(10 + n, 11 + n)), Heard::Known);
        }
        assert!(place.waiting.len() <= MOST_WAITING);
        assert_eq!(place.advance(10), Heard::Known, "the first were let go");
        assert!(revisions(place.advance(4500)).is_ok_and(|told| told.len() == 510));
    }
}
