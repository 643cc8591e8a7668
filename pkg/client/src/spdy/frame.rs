//! Frames: eight bytes of head, and what they announce. Pure.

use bytes::{Buf, BufMut, Bytes, BytesMut};

const VERSION: u16 = 3;
const HEAD: usize = 8;
/// More than this in one frame is no port-forward.
const LARGEST: usize = 4 * 1024 * 1024;
const FIN: u8 = 1;

/// What one side says to the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// Which: odd numbers, counting up.
        stream: u32,
        /// Compressed.
        headers: Bytes,
        /// Nothing will follow.
        fin: bool,
    },
    /// Takes a stream.
    SynReply {
        /// Which.
        stream: u32,
        /// Compressed.
        headers: Bytes,
    },
    /// Ends a stream both ways, at once.
    Reset {
        /// Which.
        stream: u32,
        /// Why.
        why: u32,
    },
    /// Asks for the same back.
    Ping(u32),
    /// No more streams.
    GoAway,
    /// More headers of a stream.
    Headers(Bytes),
    /// Bytes.
    Data {
        /// Of which stream.
        stream: u32,
        /// What.
        bytes: Bytes,
        /// The last ones.
        fin: bool,
    },
    /// Something that needs no answer.
    Other,
}

/// What is not SPDY.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not SPDY/3.1: {0}")]
pub struct Malformed(pub &'static str);

/// Takes the next frame out of the buffer, if it is there as a whole.
pub fn take(buffer: &mut BytesMut) -> Result<Option<Frame>, Malformed> {
    let Some(head) = buffer.get(..HEAD) else { return Ok(None) };
    let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let flags = head[4];
    let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
    if length > LARGEST {
        return Err(Malformed("a frame that is too large"));
    }
    if buffer.len() < HEAD + length {
        return Ok(None);
    }
    buffer.advance(HEAD);
    let mut body = buffer.split_to(length).freeze();
    let fin = flags & FIN != 0;
    if first >> 31 == 0 {
        return Ok(Some(Frame::Data { stream: first, bytes: body, fin }));
    }
    if (first >> 16) as u16 & 0x7fff != VERSION {
        return Err(Malformed("another version"));
    }
    let mut number = || body.try_get_u32().map_err(|_| Malformed("a frame that is too short"));
    Ok(Some(match first & 0xffff {
        1 => {
            let stream = number()? & 0x7fff_ffff;
            number()?;
            body.try_get_u16().map_err(|_| Malformed("a frame that is too short"))?;
            Frame::SynStream { stream, headers: body, fin }
        }
        2 => Frame::SynReply { stream: number()? & 0x7fff_ffff, headers: body },
        3 => Frame::Reset { stream: number()? & 0x7fff_ffff, why: number()? },
        6 => Frame::Ping(number()?),
        7 => Frame::GoAway,
        8 => {
            number()?;
            Frame::Headers(body)
        }
        _ => Frame::Other,
    }))
}

/// The bytes of a frame.
pub fn encode(frame: &Frame) -> Bytes {
    let mut bytes = BytesMut::new();
    let mut control = |kind: u16, body: &[&[u8]]| {
        bytes.put_u16(0x8000 | VERSION);
        bytes.put_u16(kind);
        let length: usize = body.iter().map(|part| part.len()).sum();
        bytes.put_u32(length as u32);
        body.iter().for_each(|part| bytes.put_slice(part));
    };
    match frame {
        Frame::SynReply { stream, headers } => control(2, &[&stream.to_be_bytes(), headers]),
        Frame::Reset { stream, why } => control(3, &[&stream.to_be_bytes(), &why.to_be_bytes()]),
        Frame::Ping(id) => control(6, &[&id.to_be_bytes()]),
        Frame::GoAway => control(7, &[&[0; 8]]),
        Frame::Headers(_) | Frame::Other => {}
        Frame::SynStream { stream, headers, .. } => control(1, &[&stream.to_be_bytes(), &[0; 6], headers]),
        Frame::Data { stream, bytes: data, fin } => {
            bytes.put_u32(*stream);
            bytes.put_u32(u32::from(*fin) << 24 | data.len() as u32);
            bytes.put_slice(data);
        }
    }
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_wire_however_it_cuts_them() {
        let frames = [
            Frame::SynStream { stream: 1, headers: "h".into(), fin: false },
            Frame::SynReply { stream: 1, headers: "hh".into() },
            Frame::Data { stream: 1, bytes: "hello".into(), fin: false },
            Frame::Data { stream: 1, bytes: "".into(), fin: true },
            Frame::Ping(7),
            Frame::Reset { stream: 3, why: 5 },
            Frame::GoAway,
        ];
        let wire: Vec<u8> = frames.iter().flat_map(|frame| encode(frame).to_vec()).collect();
        for size in [1, 3, wire.len()] {
            let mut buffer = BytesMut::new();
            let mut found = Vec::new();
            for piece in wire.chunks(size) {
                buffer.extend_from_slice(piece);
                while let Some(frame) = take(&mut buffer).unwrap() {
                    found.push(frame);
                }
            }
            assert_eq!(found, frames);
        }
    }

    #[test]
    fn what_is_not_spdy_is_said_to_be() {
        let check = |bytes: &[u8]| take(&mut BytesMut::from(bytes)).unwrap_err();
        assert_eq!(check(b"\x80\x02\x00\x01\x00\x00\x00\x00"), Malformed("another version"));
        assert_eq!(check(b"\x80\x03\x00\x01\x00\x00\x00\x01x"), Malformed("a frame that is too short"));
        assert_eq!(check(b"\x00\x00\x00\x01\x00\xff\xff\xff"), Malformed("a frame that is too large"));
    }
}
