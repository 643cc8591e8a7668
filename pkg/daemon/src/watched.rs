//! A connection's socket, and the answers that go over it, as [`Patience`](crate::patience::Patience) must know of them.

use crate::connections::Peer;
use crate::patience::Begun;
use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};
use std::any::Any;
use std::io::{ErrorKind, IoSlice, Result};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::WaitForCancellationFutureOwned;

/// A socket that tells what comes and what does not go. It counts as a connection until it is dropped.
pub struct Watched {
    socket: TcpStream,
    peer: Arc<Peer>,
    /// Others need its place: whoever waits for bytes of it is told, also after HTTP has handed it on.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Watched {
    /// The socket of a connection.
    pub(crate) fn new(socket: TcpStream, peer: Arc<Peer>) -> Watched {
        let ended = Box::pin(peer.ended());
        Watched { socket, peer, ended }
    }

    /// Its own address, and that of the other side.
    pub fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        Ok((self.socket.local_addr()?, self.socket.peer_addr()?))
    }

    fn tell(&self, written: Poll<Result<usize>>) -> Poll<Result<usize>> {
        match &written {
            Poll::Pending => self.peer.socket_is_full(),
            Poll::Ready(Ok(bytes)) => self.peer.socket_took(*bytes),
            Poll::Ready(Err(_)) => {}
        }
        written
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.peer.left();
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.socket).poll_read(cx, buffer) {
            Poll::Ready(read) => read?,
            Poll::Pending => {
                ready!(self.ended.as_mut().poll(cx));
                return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
            }
        }
        if buffer.filled().len() > before {
            self.peer.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.tell(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bytes);
        self.tell(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        // Whoever flushes has written everything.
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        if flushed.is_ready() {
            self.peer.socket_is_empty();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// An answer that people look at as it comes, and may be slow to take: an extension of the response that says so.
#[derive(Debug, Clone, Copy)]
pub struct ForPeople;

/// Something that is kept until an answer is taken: an extension of the response.
#[derive(Clone)]
pub(crate) struct KeptUntilTaken {
    _kept: Arc<dyn Any + Send + Sync>,
}

/// Keeps something, beside what is kept already, until an answer is taken or given up.
pub fn keep_until_taken<B>(response: &mut Response<B>, kept: impl Any + Send + Sync) {
    let before = response.extensions_mut().remove::<KeptUntilTaken>();
    let kept: Arc<dyn Any + Send + Sync> = match before {
        Some(before) => Arc::new((before, kept)),
        None => Arc::new(kept),
    };
    response.extensions_mut().insert(KeptUntilTaken { _kept: kept });
}

/// One answer, from its request on; over when it is dropped.
pub(crate) struct Answer {
    peer: Arc<Peer>,
    number: u64,
}

impl Answer {
    /// The answer with this number.
    pub(crate) fn new(peer: Arc<Peer>, number: u64) -> Answer {
        Answer { peer, number }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.peer.over(self.number);
    }
}

/// What is given at once: whoever takes less in all the time there is does not read.
const PIECE: usize = 64 * 1024;

/// The body of an answer, whose pieces tell when they are taken.
pub(crate) struct Taken<B> {
    body: B,
    /// What is left of a piece that is too large to be given at once.
    rest: Bytes,
    answer: Answer,
}

impl<B: Body> Taken<B> {
    /// The body of this answer.
    pub(crate) fn answer(response: Response<B>, answer: Answer) -> Response<Taken<B>> {
        let extensions = response.extensions();
        let begun = Begun {
            has_length: response.body().size_hint().exact().is_some(),
            is_for_people: extensions.get::<ForPeople>().is_some(),
            _kept: extensions.get::<KeptUntilTaken>().cloned(),
        };
        answer.peer.answered(answer.number, begun);
        response.map(|body| Taken { body, rest: Bytes::new(), answer })
    }
}

/// A piece that was given. It is dropped when it is sent: HTTP/2 keeps it until the client has room.
struct Held {
    bytes: Bytes,
    peer: Arc<Peer>,
    number: u64,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.peer.take(self.number, self.bytes.len());
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Taken<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, B::Error>>> {
        let me = &mut *self;
        let piece = if me.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut me.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        } else {
            std::mem::take(&mut me.rest)
        };
        if piece.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let mut bytes = piece;
        if bytes.len() > PIECE {
            me.rest = bytes.split_off(PIECE);
        }
        let (peer, number) = (me.answer.peer.clone(), me.answer.number);
        peer.give(number);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(Held { bytes, peer, number })))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, hint) = (self.rest.len() as u64, self.body.size_hint());
        hint.exact().map_or_else(SizeHint::default, |bytes| SizeHint::with_exact(bytes + rest))
    }
}
