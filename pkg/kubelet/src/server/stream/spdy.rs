//! SPDY/3.1 instead of a WebSocket: what upstream's apiserver speaks with kubelets, whatever its own clients speak.
//!
//! ```text
//! Upgrade: SPDY/3.1 ──> bytes ──> streams, each of which says in its headers what it is for ──> channels
//! ```

use super::super::answer::{self, Answer, Refusal};
use super::channels::{ERROR, RESIZE, Received, STDERR, STDIN, STDOUT};
use super::websocket::{has_token, tokens};
use bytes::{Bytes, BytesMut};
use client::spdy::{self, Connection, Event};
use futures::{Sink, Stream, sink, stream};
use http::header::{CONNECTION, HeaderName, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::collections::{BTreeMap, VecDeque};
use std::io::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::Mutex;
use tokio_tungstenite::tungstenite::Message;

const SPDY: &str = "SPDY/3.1";
/// What is spoken on the streams.
const VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// What is read from the client at once.
const BLOCK: usize = 32 * 1024;
/// How long a client gets to open its streams, as upstream's.
const OPENING: Duration = Duration::from_secs(30);

/// A handshake that was accepted.
pub struct Upgrade {
    /// What to answer.
    pub answer: Answer,
    /// The connection, once the answer is sent; `None` if the client is gone by then.
    pub connection: Pin<Box<dyn Future<Output = Option<TokioIo<Upgraded>>> + Send>>,
}

/// Whether a client wants SPDY.
pub fn is_asked(headers: &HeaderMap) -> bool {
    has_token(headers, &UPGRADE, SPDY)
}

/// Accepts a handshake for the one protocol that is spoken here, if the client offers it.
pub fn accept(mut request: Request<Incoming>, ours: &'static str) -> Result<Upgrade, Refusal> {
    let offered = tokens(request.headers(), &VERSION);
    if !offered.contains(&ours) {
        let text = format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{}], server accepts [{ours}]",
            offered.join(" ")
        );
        return Err((StatusCode::FORBIDDEN, text));
    }
    let mut answer = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = answer.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static(SPDY));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(VERSION, HeaderValue::from_static(ours));
    let upgrade = hyper::upgrade::on(&mut request);
    let connection = Box::pin(async move { Some(TokioIo::new(upgrade.await.ok()?)) });
    Ok(Upgrade { answer, connection })
}

/// The bytes of a connection, as a WebSocket would carry them.
pub fn messages<S>(connection: S) -> (impl Sink<Message> + Unpin, impl Stream<Item = Message> + Unpin)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (reader, writer) = tokio::io::split(connection);
    let source = stream::unfold(reader, |mut reader| async {
        let bytes = block(&mut reader).await?;
        Some((Message::Binary(bytes), reader))
    });
    let sink = sink::unfold(writer, |mut writer, message: Message| async {
        if let Message::Binary(bytes) = message {
            write(&mut writer, &[bytes]).await?;
        }
        Ok::<_, Error>(writer)
    });
    (Box::pin(sink), Box::pin(source))
}

/// The channels of a connection on which the client opens a stream for each of those that it wants; `None` if it does
/// not. Messages are those of `v4.channel.k8s.io`.
pub async fn channels<S>(
    connection: S,
    wanted: &[u8],
) -> Option<(impl Sink<Message> + Unpin, impl Stream<Item = Received> + Unpin)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (reader, writer) = tokio::io::split(connection);
    let writer = Arc::new(Mutex::new(writer));
    let mut incoming = Channels {
        reader,
        writer: writer.clone(),
        connection: Connection::new(),
        streams: BTreeMap::new(),
        heard: VecDeque::new(),
    };
    let opening = async {
        while !wanted.iter().all(|channel| incoming.streams.values().any(|open| open == channel)) {
            incoming.hear().await?;
        }
        Some(())
    };
    tokio::time::timeout(OPENING, opening).await.ok()??;
    let by_channel: BTreeMap<u8, u32> =
        incoming.streams.iter().map(|(stream, channel)| (*channel, *stream)).collect();
    let sink = sink::unfold((writer, by_channel), |(writer, streams), message: Message| async {
        let frames = frames(&streams, message);
        write(&mut *writer.lock().await, &frames).await?;
        Ok::<_, Error>((writer, streams))
    });
    let source = stream::unfold(incoming, |mut incoming| async {
        while incoming.heard.is_empty() {
            incoming.hear().await?;
        }
        Some((incoming.heard.pop_front()?, incoming))
    });
    Some((Box::pin(sink), Box::pin(source)))
}

/// What a message is on the wire: bytes for the stream of its channel, or the end of all.
fn frames(streams: &BTreeMap<u8, u32>, message: Message) -> Vec<Bytes> {
    match message {
        Message::Binary(bytes) => {
            let stream = bytes.first().and_then(|channel| streams.get(channel));
            let stream = stream.filter(|_| bytes.len() > 1);
            stream.map(|stream| spdy::data(*stream, bytes.slice(1..))).into_iter().collect()
        }
        Message::Close(_) => streams.values().map(|stream| spdy::end(*stream)).collect(),
        _ => Vec::new(),
    }
}

struct Channels<S> {
    reader: ReadHalf<S>,
    writer: Arc<Mutex<WriteHalf<S>>>,
    connection: Connection,
    /// Which channel a stream is.
    streams: BTreeMap<u32, u8>,
    heard: VecDeque<Received>,
}

impl<S: AsyncRead + AsyncWrite> Channels<S> {
    /// Reads once, and answers what is to be answered; `None` at the end.
    async fn hear(&mut self) -> Option<()> {
        let bytes = block(&mut self.reader).await?;
        let (events, answers) = self.connection.receive(&bytes).ok()?;
        if !answers.is_empty() {
            write(&mut *self.writer.lock().await, &answers).await.ok()?;
        }
        for event in events {
            self.take(event);
        }
        Some(())
    }

    fn take(&mut self, event: Event) {
        let channel = |stream: &u32| self.streams.get(stream).copied();
        let heard = match event {
            Event::Opened(stream, headers) => {
                if let Some(channel) = headers.get("streamtype").and_then(|name| named(name)) {
                    self.streams.insert(stream, channel);
                }
                None
            }
            Event::Data(stream, bytes) => channel(&stream).map(|channel| Received::Data(channel, bytes)),
            Event::Closed(stream) | Event::Reset(stream) => channel(&stream).map(Received::Closed),
            Event::GoAway => Some(Received::Gone),
        };
        self.heard.extend(heard);
    }
}

fn named(stream: &str) -> Option<u8> {
    Some(match stream {
        "stdin" => STDIN,
        "stdout" => STDOUT,
        "stderr" => STDERR,
        "error" => ERROR,
        "resize" => RESIZE,
        _ => return None,
    })
}

async fn block(reader: &mut (impl AsyncRead + Unpin)) -> Option<Bytes> {
    let mut block = BytesMut::with_capacity(BLOCK);
    let count = reader.read_buf(&mut block).await.ok()?;
    (count > 0).then(|| block.freeze())
}

async fn write(writer: &mut (impl AsyncWrite + Unpin), pieces: &[Bytes]) -> Result<(), Error> {
    for piece in pieces {
        writer.write_all(piece).await?;
    }
    writer.flush().await
}

#[cfg(test)]
mod tests {
    use super::super::channels::Protocol;
    use super::super::websocket::goodbye;
    use super::*;
    use futures::{SinkExt, StreamExt};

    /// What upstream's apiserver does for `kubectl exec -i`.
    #[tokio::test]
    async fn each_stream_is_a_channel() {
        let (mut ours, theirs) = tokio::io::duplex(64 * 1024);
        let mut client = Connection::new();
        for (stream, name) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
            ours.write_all(&client.open(stream, &[("streamType", name)])).await.unwrap();
        }
        ours.write_all(&spdy::end(1)).await.unwrap();
        ours.write_all(&spdy::data(3, "hi".into())).await.unwrap();
        ours.write_all(&spdy::end(3)).await.unwrap();
        let (mut sink, source) = channels(theirs, &[ERROR, STDIN, STDOUT]).await.expect("they are open");
        let heard: Vec<Received> = source.take(3).collect().await;
        let expected = [Received::Closed(ERROR), Received::Data(STDIN, "hi".into()), Received::Closed(STDIN)];
        assert_eq!(heard, expected);
        let protocol = Protocol::V4;
        for message in [protocol.message(STDOUT, b""), protocol.message(STDOUT, b"out"), goodbye()] {
            assert!(sink.send(message).await.is_ok());
        }
        drop(sink);
        let mut said = Vec::new();
        ours.read_to_end(&mut said).await.unwrap();
        let (mut events, _) = client.receive(&said).unwrap();
        events.sort_by_key(|event| format!("{event:?}"));
        let expected = [Event::Closed(1), Event::Closed(3), Event::Closed(5), Event::Data(5, "out".into())];
        assert_eq!(events, expected);
    }

    #[tokio::test]
    async fn a_client_that_goes_before_its_streams_are_open_gets_nothing() {
        let (mut ours, theirs) = tokio::io::duplex(1024);
        ours.write_all(&Connection::new().open(1, &[("streamType", "error")])).await.unwrap();
        drop(ours);
        assert!(channels(theirs, &[ERROR, STDOUT]).await.is_none());
    }
}
