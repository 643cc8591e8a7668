//! Messages: one change of one object, or how far a channel is.
//!
//! ```text
//! 1 MODIFIED 1041 17 2208 2213 1732050000123 default/web
//! {"kind":"Pod","apiVersion":"v1",…}
//!
//! version type epoch sequence after revision sent key, a line feed, and the object as the API serves it
//! ```
//!
//! A Secret has no second line: whoever follows Secrets asks the API for what became of it.

use bytes::Bytes;
use std::fmt::Write;

const VERSION: &str = "1";
/// No first line is as long: names have 253 characters each.
const LONGEST_HEAD: usize = 1024;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageType {
    /// It came into view.
    Added,
    /// It changed.
    Modified,
    /// It is gone; the object is as it was last.
    Deleted,
    /// Nothing: this is how far the channel is.
    Bookmark,
}

impl MessageType {
    /// As watches call it.
    pub fn as_str(self) -> &'static str {
        match self {
            MessageType::Added => "ADDED",
            MessageType::Modified => "MODIFIED",
            MessageType::Deleted => "DELETED",
            MessageType::Bookmark => "BOOKMARK",
        }
    }

    fn parse(text: &str) -> Option<MessageType> {
        let all = [MessageType::Added, MessageType::Modified, MessageType::Deleted, MessageType::Bookmark];
        all.into_iter().find(|known| known.as_str() == text)
    }
}

/// One message of a channel.
///
/// # Guarantees
/// Between `after` and `revision` nothing else happened on this channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What happened.
    pub kind: MessageType,
    /// Whose word this is: it grows whenever another publisher leads, or the same one has lost its connection.
    pub epoch: u64,
    /// How many messages there were on this channel in this epoch; a bookmark repeats the last one's.
    pub sequence: u64,
    /// The revision of the message before; where there is none, from where on this epoch tells.
    pub after: u64,
    /// The resourceVersion; of a bookmark, up to where nothing has happened since.
    pub revision: u64,
    /// When it was sent, in milliseconds since 1970 by the publisher's clock.
    pub sent_ms: u64,
    /// `namespace/name`, or `name`; `-` where there is no object.
    pub key: String,
    /// The object as the API serves it, where it may be told.
    pub object: Option<Bytes>,
}

/// This is no message of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a message: {0}")]
pub struct Garbled(&'static str);

impl Message {
    /// What stands before the object.
    pub fn head(&self) -> String {
        let mut head = String::with_capacity(96 + self.key.len());
        // Writing to a string does not fail.
        let _ = writeln!(
            head,
            "{VERSION} {} {} {} {} {} {} {}",
            self.kind.as_str(),
            self.epoch,
            self.sequence,
            self.after,
            self.revision,
            self.sent_ms,
            self.key
        );
        head
    }

    /// The whole message.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.head().into_bytes();
        bytes.extend_from_slice(self.object.as_deref().unwrap_or_default());
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`Garbled`] if it is anything else.
    pub fn decode(payload: &Bytes) -> Result<Message, Garbled> {
        let end = payload.iter().take(LONGEST_HEAD).position(|byte| *byte == b'\n');
        let end = end.ok_or(Garbled("it has no first line"))?;
        let head = std::str::from_utf8(&payload[..end]).map_err(|_| Garbled("its first line is no text"))?;
        let mut words = head.split(' ');
        let mut word = || words.next().ok_or(Garbled("its first line is too short"));
        if word()? != VERSION {
            return Err(Garbled("it is of another version"));
        }
        let kind = MessageType::parse(word()?).ok_or(Garbled("its type is unknown"))?;
        let mut number = || word()?.parse::<u64>().map_err(|_| Garbled("a number is none"));
        let [epoch, sequence, after, revision, sent_ms] =
            [number()?, number()?, number()?, number()?, number()?];
        let key = word()?.to_owned();
        if words.next().is_some() {
            return Err(Garbled("its first line is too long"));
        }
        if after > revision {
            return Err(Garbled("it comes before what was before it"));
        }
        let object = Some(payload.slice(end + 1..)).filter(|object| !object.is_empty());
        Ok(Message { kind, epoch, sequence, after, revision, sent_ms, key, object })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: MessageType, object: Option<&'static str>) -> Message {
        let (epoch, sequence, after, revision, sent_ms) = (1041, 17, 2208, 2213, 1_732_050_000_123);
        let key = "default/web".to_owned();
        Message { kind, epoch, sequence, after, revision, sent_ms, key, object: object.map(Bytes::from) }
    }

    #[test]
    fn what_is_written_is_read() {
        for kind in [MessageType::Added, MessageType::Modified, MessageType::Deleted, MessageType::Bookmark] {
            for object in [None, Some("{\"kind\":\"Pod\"}")] {
                let message = message(kind, object);
                assert_eq!(Message::decode(&message.encode().into()), Ok(message));
            }
        }
        let text = String::from_utf8(message(MessageType::Modified, Some("{}")).encode()).expect("text");
        assert_eq!(text, "1 MODIFIED 1041 17 2208 2213 1732050000123 default/web\n{}");
    }

    #[test]
    fn what_is_not_ours_is_said_to_be_none() {
        let check = |text: &'static str, why: &'static str| {
            assert_eq!(Message::decode(&Bytes::from_static(text.as_bytes())), Err(Garbled(why)), "{text:?}");
        };
        check("", "it has no first line");
        check("{}", "it has no first line");
        check("2 ADDED 1 1 1 1 1 a\n", "it is of another version");
        check("1 GONE 1 1 1 1 1 a\n", "its type is unknown");
        check("1 ADDED 1 1 1 x 1 a\n", "a number is none");
        check("1 ADDED 1 1 -1 1 1 a\n", "a number is none");
        check("1 ADDED 1 1 1 1\n", "its first line is too short");
        check("1 ADDED 1 1 1 1 1 a b\n", "its first line is too long");
        check("1 ADDED 1 1 9 1 1 a\n", "it comes before what was before it");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::decode(&bytes.into());
        }
    }
}
