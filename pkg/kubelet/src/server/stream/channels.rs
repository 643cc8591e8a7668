//! Channels in a WebSocket: the first byte of a message says which, in base64 protocols the first digit. Pure.

use super::websocket::Named;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use tokio_tungstenite::tungstenite::Message;

/// Standard input.
pub const STDIN: u8 = 0;
/// Standard output.
pub const STDOUT: u8 = 1;
/// Standard error.
pub const STDERR: u8 = 2;
/// How it ended.
pub const ERROR: u8 = 3;
/// The size of the terminal.
pub const RESIZE: u8 = 4;
/// A channel that the client will write nothing to any more, from version 5 on.
const CLOSE: u8 = 255;

/// What is agreed upon with the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `channel.k8s.io`: errors are text.
    V1,
    /// The same in base64.
    V1Base64,
    /// `v4.channel.k8s.io`: errors are a `Status`.
    V4,
    /// The same in base64.
    V4Base64,
    /// `v5.channel.k8s.io`: the client can close a channel.
    V5,
}

impl Named for Protocol {
    fn name(&self) -> &'static str {
        match self {
            Protocol::V1 => "channel.k8s.io",
            Protocol::V1Base64 => "base64.channel.k8s.io",
            Protocol::V4 => "v4.channel.k8s.io",
            Protocol::V4Base64 => "v4.base64.channel.k8s.io",
            Protocol::V5 => "v5.channel.k8s.io",
        }
    }
}

/// What a message says.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes on a channel.
    Data(u8, Bytes),
    /// The client writes nothing more to a channel.
    Closed(u8),
    /// The client is going.
    Gone,
    /// Nothing that concerns us.
    Nothing,
}

impl Protocol {
    /// Whether an error is told as a `Status`.
    pub fn has_status(self) -> bool {
        !matches!(self, Protocol::V1 | Protocol::V1Base64)
    }

    fn is_base64(self) -> bool {
        matches!(self, Protocol::V1Base64 | Protocol::V4Base64)
    }

    /// A message with bytes for a channel.
    pub fn message(self, channel: u8, bytes: &[u8]) -> Message {
        if self.is_base64() {
            let mut text = char::from(b'0' + channel).to_string();
            BASE64_STANDARD.encode_string(bytes, &mut text);
            return Message::text(text);
        }
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(channel);
        message.extend_from_slice(bytes);
        Message::binary(message)
    }

    /// What a message says.
    pub fn received(self, message: Message) -> Received {
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => Bytes::from(text),
            Message::Close(_) => return Received::Gone,
            _ => return Received::Nothing,
        };
        let Some((&channel, rest)) = bytes.split_first() else { return Received::Nothing };
        if self.is_base64() {
            let channel = channel.wrapping_sub(b'0');
            return BASE64_STANDARD
                .decode(rest)
                .map_or(Received::Nothing, |bytes| Received::Data(channel, bytes.into()));
        }
        match (channel, rest) {
            (CLOSE, [closed]) if self == Protocol::V5 => Received::Closed(*closed),
            _ => Received::Data(channel, bytes.slice(1..)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_protocol() {
        assert_eq!(Protocol::V5.message(1, b"hi"), Message::binary(&b"\x01hi"[..]));
        assert_eq!(Protocol::V4Base64.message(2, b"hi"), Message::text("2aGk="));
        let check = |protocol: Protocol, message: Message, expected: Received| {
            assert_eq!(protocol.received(message), expected, "{protocol:?}");
        };
        check(Protocol::V4, Message::binary(&b"\x00hi"[..]), Received::Data(0, "hi".into()));
        check(Protocol::V4, Message::binary(&b"\x00"[..]), Received::Data(0, "".into()));
        check(Protocol::V5, Message::binary(&b"\xff\x00"[..]), Received::Closed(0));
        check(
            Protocol::V4,
            Message::binary(&b"\xff\x00"[..]),
            Received::Data(255, Bytes::from_static(b"\0")),
        );
        check(Protocol::V1Base64, Message::text("0aGk="), Received::Data(0, "hi".into()));
        check(Protocol::V1Base64, Message::text("0!"), Received::Nothing);
        check(Protocol::V5, Message::binary(&b""[..]), Received::Nothing);
        check(Protocol::V5, Message::Close(None), Received::Gone);
        check(Protocol::V5, Message::Ping("".into()), Received::Nothing);
    }
}
