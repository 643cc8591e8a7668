//! The protocol of Redis (RESP 2): commands out, replies in.
//!
//! ```text
//! command(["PUBLISH", channel, bytes]) ──> *3␍␊$7␍␊PUBLISH␍␊…
//! take(buffer) ──> None: not whole yet │ Reply │ Malformed: no Redis speaks so
//! ```
//!
//! What comes in is bounded before it is kept: by length of a line, length and number of parts, and depth.

use bytes::{Buf, Bytes, BytesMut};

/// The longest part: an object has at most 1.5 MB in the store, and a little more as it is served.
const LONGEST_PART: usize = 4 << 20;
const LONGEST_LINE: usize = 16 << 10;
const MOST_PARTS: usize = 4096;
const DEEPEST: usize = 3;

/// What Redis says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`.
    Status(String),
    /// `-NOPERM …`.
    Refused(String),
    /// `:1`.
    Integer(i64),
    /// Bytes.
    Part(Bytes),
    /// Nothing.
    Nil,
    /// Several.
    Parts(Vec<Reply>),
}

impl Reply {
    /// The text of a part or a status.
    pub fn text(&self) -> Option<&str> {
        match self {
            Reply::Status(text) => Some(text),
            Reply::Part(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// This is no Redis, or it says what nobody asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what answers does not speak as Redis does: {0}")]
pub struct Malformed(&'static str);

/// A command, as bytes.
pub fn command<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Takes a reply out of what has come, if one is whole.
pub(crate) fn take(buffer: &mut BytesMut) -> Result<Option<Reply>, Malformed> {
    let Some((shape, end)) = measure(buffer, 0, 0)? else { return Ok(None) };
    let frame = buffer.split_to(end).freeze();
    Ok(Some(shape.filled(&frame)))
}

/// A reply whose parts are still places in the buffer.
enum Shape {
    Whole(Reply),
    Part(usize, usize),
    Parts(Vec<Shape>),
}

impl Shape {
    fn filled(self, frame: &Bytes) -> Reply {
        match self {
            Shape::Whole(reply) => reply,
            Shape::Part(from, to) => Reply::Part(frame.slice(from..to)),
            Shape::Parts(parts) => Reply::Parts(parts.into_iter().map(|part| part.filled(frame)).collect()),
        }
    }
}

/// The reply that begins here, and where it ends; none if it is not whole.
fn measure(buffer: &[u8], from: usize, depth: usize) -> Result<Option<(Shape, usize)>, Malformed> {
    if depth > DEEPEST {
        return Err(Malformed("parts within parts within parts"));
    }
    let rest = buffer.get(from..).unwrap_or_default();
    if let Some(first) = rest.first()
        && !b"+-:$*".contains(first)
    {
        return Err(Malformed("an unknown type"));
    }
    let Some(length) = rest.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
        return if rest.len() >= LONGEST_LINE { Err(Malformed("a line without an end")) } else { Ok(None) };
    };
    let line = rest[..length].strip_suffix(b"\r").ok_or(Malformed("a line that ends oddly"))?;
    let Some((kind, line)) = line.split_first() else { return Err(Malformed("an empty line")) };
    let text = std::str::from_utf8(line).map_err(|_| Malformed("a line that is no text"))?;
    let number = || text.parse::<i64>().map_err(|_| Malformed("a number that is none"));
    let next = from + length + 1;
    let reply = match kind {
        b'+' => Reply::Status(text.to_owned()),
        b'-' => Reply::Refused(text.to_owned()),
        b':' => Reply::Integer(number()?),
        _ if number()? == -1 => Reply::Nil,
        b'$' => {
            let length = within(number()?, LONGEST_PART)?;
            let end = next + length;
            return match buffer.get(end..end + 2) {
                None => Ok(None),
                Some(b"\r\n") => Ok(Some((Shape::Part(next, end), end + 2))),
                Some(_) => Err(Malformed("a part that is longer than it says")),
            };
        }
        _ => {
            let count = within(number()?, MOST_PARTS)?;
            let (mut parts, mut at) = (Vec::with_capacity(count.min(8)), next);
            for _ in 0..count {
                let Some((part, end)) = measure(buffer, at, depth + 1)? else { return Ok(None) };
                parts.push(part);
                at = end;
            }
            return Ok(Some((Shape::Parts(parts), at)));
        }
    };
    Ok(Some((Shape::Whole(reply), next)))
}

fn within(number: i64, most: usize) -> Result<usize, Malformed> {
    let number = usize::try_from(number).map_err(|_| Malformed("a negative length"))?;
    if number <= most { Ok(number) } else { Err(Malformed("more than anybody sends")) }
}

/// Forgets what a buffer once had to hold.
pub(crate) fn shrink(buffer: &mut BytesMut) {
    if !buffer.has_remaining() && buffer.capacity() > 64 << 10 {
        *buffer = BytesMut::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Option<Reply>, Malformed> {
        take(&mut BytesMut::from(text.as_bytes()))
    }

    #[test]
    fn replies_are_understood_once_they_are_whole() {
        let part = |text: &'static str| Reply::Part(Bytes::from_static(text.as_bytes()));
        let message = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n";
        let expected = Reply::Parts(vec![part("message"), part("a"), part("hi")]);
        for end in 0..message.len() {
            assert_eq!(read(&message[..end]), Ok(None), "{end}");
        }
        assert_eq!(read(message), Ok(Some(expected.clone())));
        let mut two = BytesMut::from(format!("{message}:1\r\n").as_bytes());
        assert_eq!(take(&mut two), Ok(Some(expected)));
        assert_eq!(take(&mut two), Ok(Some(Reply::Integer(1))));
        assert_eq!(read("+OK\r\n"), Ok(Some(Reply::Status("OK".into()))));
        assert_eq!(read("-NOPERM no\r\n"), Ok(Some(Reply::Refused("NOPERM no".into()))));
        assert_eq!(read("$-1\r\n"), Ok(Some(Reply::Nil)));
    }

    #[test]
    fn garbage_is_refused_before_it_is_kept() {
        let check = |text: &str, why: &'static str| assert_eq!(read(text), Err(Malformed(why)), "{text:?}");
        check("HTTP/1.1 400 Bad Request\r\n", "an unknown type");
        check("$99999999\r\n", "more than anybody sends");
        check("*99999\r\n", "more than anybody sends");
        check("$-2\r\n", "a negative length");
        check("$1\r\nabc", "a part that is longer than it says");
        check(":x\r\n", "a number that is none");
        check("+OK\n", "a line that ends oddly");
        check("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "parts within parts within parts");
        check(&format!("+{}", "a".repeat(LONGEST_LINE)), "a line without an end");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = take(&mut BytesMut::from(&bytes[..]));
        }

        #[test]
        fn what_redis_echoes_is_what_was_sent(word in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut buffer = BytesMut::from(&command(&[&word])[..]);
            prop_assert_eq!(take(&mut buffer), Ok(Some(Reply::Parts(vec![Reply::Part(word.into())]))));
        }
    }
}
