//! A connection's state: which streams are open, and what a client's bytes mean. Pure but for the buffers.

use super::frame::{self, Frame};
use super::headers;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

pub use super::frame::Malformed;

/// What a client did.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Opened a stream, with headers. It was answered already.
    Opened(u32, BTreeMap<String, String>),
    /// Sent bytes on a stream.
    Data(u32, Bytes),
    /// Will send no more on a stream.
    Closed(u32),
    /// Wants nothing more to do with a stream.
    Reset(u32),
    /// Is going.
    GoAway,
}

/// The server's side of a connection.
pub struct Connection {
    buffer: BytesMut,
    reader: headers::Reader,
    writer: headers::Writer,
}

impl Connection {
    /// At its beginning.
    pub fn new() -> Connection {
        Connection { buffer: BytesMut::new(), reader: headers::Reader::new(), writer: headers::Writer::new() }
    }

    /// Takes bytes of the client: what it did, and what is to be answered.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(Vec<Event>, Vec<Bytes>), Malformed> {
        self.buffer.extend_from_slice(bytes);
        let (mut events, mut answers) = (Vec::new(), Vec::new());
        while let Some(frame) = frame::take(&mut self.buffer)? {
            match frame {
                Frame::SynStream { stream, headers, fin } => {
                    events.push(Event::Opened(stream, self.reader.read(&headers)?));
                    if fin {
                        events.push(Event::Closed(stream));
                    }
                    answers.push(frame::encode(&Frame::SynReply { stream, headers: self.writer.none() }));
                }
                Frame::Data { stream, bytes, fin } => {
                    if !bytes.is_empty() {
                        events.push(Event::Data(stream, bytes));
                    }
                    if fin {
                        events.push(Event::Closed(stream));
                    }
                }
                Frame::Reset { stream, .. } => events.push(Event::Reset(stream)),
                Frame::Ping(id) => answers.push(frame::encode(&Frame::Ping(id))),
                Frame::GoAway => events.push(Event::GoAway),
                // Read for the sake of the stream that the next headers are compressed in.
                Frame::Headers(headers) => drop(self.reader.read(&headers)?),
                Frame::SynReply { .. } | Frame::Other => {}
            }
        }
        Ok((events, answers))
    }
}

/// Bytes for a stream.
pub fn data(stream: u32, bytes: Bytes) -> Bytes {
    frame::encode(&Frame::Data { stream, bytes, fin: false })
}

/// The end of our side of a stream.
pub fn end(stream: u32) -> Bytes {
    frame::encode(&Frame::Data { stream, bytes: Bytes::new(), fin: true })
}

/// The end of a stream that we do not want.
pub fn refuse(stream: u32) -> Bytes {
    const REFUSED: u32 = 3;
    frame::encode(&Frame::Reset { stream, why: REFUSED })
}
