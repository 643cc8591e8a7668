//! Bodies, both ways: reading a request's within a limit, and answering with bytes that are shared, not copied.

use crate::error::{ApiError, Result};
use bytes::{Bytes, BytesMut};
use futures::Stream;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The largest request body taken; upstream's limit.
pub const LARGEST_REQUEST: usize = 3 * 1024 * 1024;

/// Reads a whole request body, or says that it is too large.
pub async fn read(body: Incoming) -> Result<Bytes> {
    match Limited::new(body, LARGEST_REQUEST).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(ApiError::too_large(format!("Request entity too large: limit is {LARGEST_REQUEST}")))
        }
        Err(error) => {
            Err(ApiError::bad_request(format!("the body of the request could not be read: {error}")))
        }
    }
}

/// An answer's body.
pub enum Body {
    /// Chunks that are there already.
    Chunks(VecDeque<Bytes>),
    /// Chunks that come over time: a watch.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    /// Nothing.
    pub fn empty() -> Body {
        Body::Chunks(VecDeque::new())
    }

    /// One piece.
    pub fn full(bytes: impl Into<Bytes>) -> Body {
        Body::Chunks(VecDeque::from([bytes.into()]))
    }

    /// Pieces that come over time.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Body {
        Body::Stream(Box::pin(stream))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Chunks(chunks) => Poll::Ready(chunks.pop_front().map(|chunk| Ok(Frame::data(chunk)))),
            Body::Stream(stream) => {
                stream.as_mut().poll_next(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Chunks(chunks) if chunks.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Chunks(chunks) => SizeHint::with_exact(chunks.iter().map(|chunk| chunk.len() as u64).sum()),
            Body::Stream(_) => SizeHint::default(),
        }
    }
}

/// Joins many small pieces into few large ones, so that each goes out in few records.
pub struct Joiner {
    done: VecDeque<Bytes>,
    current: BytesMut,
}

/// Large enough that a list of 10,000 objects is some hundred writes, small enough to start sending early.
const PIECE: usize = 256 * 1024;

impl Joiner {
    /// Nothing yet.
    pub fn new() -> Joiner {
        Joiner { done: VecDeque::new(), current: BytesMut::new() }
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.current.is_empty() && self.current.len() + bytes.len() > PIECE {
            self.done.push_back(self.current.split().freeze());
        }
        if self.current.capacity() == 0 && !self.done.is_empty() {
            self.current.reserve(PIECE);
        }
        self.current.extend_from_slice(bytes);
    }

    /// The body made of all that was pushed.
    pub fn finish(mut self) -> Body {
        if !self.current.is_empty() {
            self.done.push_back(self.current.freeze());
        }
        Body::Chunks(self.done)
    }
}

impl Default for Joiner {
    fn default() -> Self {
        Self::new()
    }
}
