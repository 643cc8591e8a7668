//! A connection's state: what the other side's bytes mean. Pure but for the buffers.

use super::frame::{self, Frame, Malformed};
use super::headers;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

/// What the other side did.
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

/// One side of a connection: the server's, unless it opens streams.
pub struct Connection {
    buffer: BytesMut,
    reader: headers::Reader,
    writer: headers::Writer,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection::new()
    }
}

impl Connection {
    /// At its beginning.
    pub fn new() -> Connection {
        Connection { buffer: BytesMut::new(), reader: headers::Reader::new(), writer: headers::Writer::new() }
    }

    /// Opens a stream, with headers: what to send.
    pub fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> Bytes {
        frame::encode(&Frame::SynStream { stream, headers: self.writer.write(headers), fin: false })
    }

    /// Takes bytes of the other side: what it did, and what is to be answered.
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
                    answers.push(frame::encode(&Frame::SynReply { stream, headers: self.writer.write(&[]) }));
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
                Frame::Headers(headers) | Frame::SynReply { headers, .. } => {
                    drop(self.reader.read(&headers)?);
                }
                Frame::Other => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_understand_each_other() {
        let (mut client, mut server) = (Connection::new(), Connection::new());
        for stream in [1, 3] {
            let headers = [("streamType", "data"), ("port", "80")];
            let (events, answers) = server.receive(&client.open(stream, &headers)).unwrap();
            let expected = [("port", "80"), ("streamtype", "data")];
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            assert_eq!(events, [Event::Opened(stream, expected)]);
            assert_eq!(client.receive(&answers.concat()).unwrap(), (Vec::new(), Vec::new()));
        }
        let wire = [data(3, "hi".into()), end(3), refuse(1)].concat();
        let expected = [Event::Data(3, "hi".into()), Event::Closed(3), Event::Reset(1)];
        assert_eq!(client.receive(&wire).unwrap().0, expected);
    }
}
