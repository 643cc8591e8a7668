//! Bodies, both ways: reading a request's within a limit, and answering with bytes that are shared, not copied.

use crate::budget::Share;
use crate::encoding::{Pieces, Work};
use crate::error::{ApiError, Result};
use bytes::{Bytes, BytesMut};
use futures::Stream;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use listwatch::Object;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The largest request body taken; upstream's limit.
pub const LARGEST_REQUEST: usize = 3 * 1024 * 1024;

/// Bodies that come whole in their first piece and are no larger than this are not charged to anybody.
const SMALL: usize = 16 * 1024;

/// So much of a body that is not taken is read all the same: who is still sending when the connection is closed may never
/// see the answer that says why.
const LONGEST_FAREWELL: usize = 8 * LARGEST_REQUEST;
/// And for no longer than this.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(2);

/// Reads a whole request body, or says why not: it is too large, or its user has too many on their way. What is held of
/// it is charged to the share until that is dropped.
pub async fn read(mut body: Incoming, share: &mut Share) -> Result<Bytes> {
    let taken = take(&mut body, share).await;
    if taken.is_err() {
        let _ = tokio::time::timeout(FAREWELL_PATIENCE, discard(&mut body)).await;
    }
    taken
}

/// Reads what is still to come of a body, within bounds, and keeps nothing of it.
async fn discard(body: &mut Incoming) {
    let mut left = LONGEST_FAREWELL;
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}

async fn take(body: &mut Incoming, share: &mut Share) -> Result<Bytes> {
    let too_large = || ApiError::too_large(format!("Request entity too large: limit is {LARGEST_REQUEST}"));
    if body.size_hint().lower() > LARGEST_REQUEST as u64 {
        return Err(too_large());
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::bad_request(format!("the body of the request could not be read: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > LARGEST_REQUEST {
            return Err(too_large());
        }
        let is_all = whole.is_empty() && body.is_end_stream();
        let is_small = is_all && data.len() <= SMALL;
        if !is_small && !share.try_grow(data.len()) {
            return Err(ApiError::overloaded());
        }
        if is_all {
            return Ok(data);
        }
        // Copied, since a piece keeps the whole buffer that it was read into.
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// An answer's body.
pub enum Body {
    /// Bytes that are there already; none at the end.
    Full(Bytes),
    /// A list, of which each piece is joined when it is to be sent: however long it is, it takes no more memory.
    List(ListBody),
    /// What others make, piece by piece.
    Work(Work),
    /// Chunks that come over time: a watch.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    /// Nothing.
    pub fn empty() -> Body {
        Body::Full(Bytes::new())
    }

    /// One piece.
    pub fn full(bytes: impl Into<Bytes>) -> Body {
        Body::Full(bytes.into())
    }

    /// Pieces that come over time.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Body {
        Body::Stream(Box::pin(stream))
    }

    /// How many bytes are still to come, where that is known.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Body::Full(bytes) => Some(bytes.len() as u64),
            Body::List(list) => Some(list.bytes),
            Body::Work(_) | Body::Stream(_) => None,
        }
    }

    /// The next piece of what is there already.
    fn next_piece(&mut self) -> Option<Bytes> {
        match self {
            Body::Full(bytes) => Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()),
            Body::List(list) => list.next_piece(),
            Body::Work(_) | Body::Stream(_) => None,
        }
    }
}

/// What is there already, for those who do more with it.
impl Pieces for Body {
    fn cost(&self) -> usize {
        PIECE
    }

    fn next_piece(&mut self) -> Option<std::io::Result<Bytes>> {
        Body::next_piece(self).map(Ok)
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        let frame = |bytes| Ok(Frame::data(bytes));
        match self.get_mut() {
            Body::Work(work) => work.poll_piece(cx).map(|piece| piece.map(|piece| piece.map(Frame::data))),
            Body::Stream(stream) => stream.as_mut().poll_next(cx).map(|chunk| chunk.map(frame)),
            ready => Poll::Ready(ready.next_piece().map(frame)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// The bytes of a list: an opening that ends in `[`, the items with commas between them, and `]}`.
pub struct ListBody<T = Item> {
    opening: Bytes,
    items: std::vec::IntoIter<T>,
    /// How many are still to come.
    bytes: u64,
    /// What stands before the next item.
    separator: &'static [u8],
    /// An item that is sent as it is.
    large: Option<Bytes>,
}

/// What a list consists of.
pub trait Listed: AsRef<[u8]> {
    /// The same bytes, not copied.
    fn share(&self) -> Bytes;
}

/// An item of a list: the JSON of a cached object from a place in it on, which is after the brace that opens it. So items
/// can be sent without the members that they begin with.
pub struct Item(pub Arc<Object>, pub usize);

impl AsRef<[u8]> for Item {
    fn as_ref(&self) -> &[u8] {
        &self.0.as_json()[self.1..]
    }
}

impl Listed for Item {
    fn share(&self) -> Bytes {
        self.0.json().slice(self.1..)
    }
}

/// A few TLS records: enough that little is lost between two pieces.
const PIECE: usize = 64 * 1024;
/// Items of more bytes are not copied: whoever reads nothing of many lists holds what the cache holds anyway.
const LARGE: usize = 16 * 1024;
const CLOSING: &[u8] = b"]}";

impl<T: Listed> ListBody<T> {
    /// A list of items that are encoded already.
    pub fn new(opening: Bytes, items: Vec<T>) -> ListBody<T> {
        let separators = (items.len() * b",{".len()).saturating_sub(1);
        let bytes = opening.len()
            + items.iter().map(|item| item.as_ref().len()).sum::<usize>()
            + separators
            + CLOSING.len();
        ListBody { opening, items: items.into_iter(), bytes: bytes as u64, separator: b"{", large: None }
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        if self.bytes == 0 {
            return None;
        }
        if let Some(item) = self.large.take() {
            self.bytes -= item.len() as u64;
            return Some(item);
        }
        let mut piece = Vec::with_capacity(PIECE.min(self.bytes as usize));
        piece.extend_from_slice(&std::mem::take(&mut self.opening));
        while let Some(item) = self.items.as_slice().first() {
            let bytes = item.as_ref();
            let is_large = bytes.len() > LARGE;
            let length = if is_large { 0 } else { bytes.len() };
            if piece.len() + self.separator.len() + length + CLOSING.len() > PIECE {
                break;
            }
            piece.extend_from_slice(std::mem::replace(&mut self.separator, b",{"));
            if is_large {
                self.large = Some(item.share());
            } else {
                piece.extend_from_slice(bytes);
            }
            self.items.next();
            if is_large {
                break;
            }
        }
        if self.items.as_slice().is_empty() && self.large.is_none() {
            piece.extend_from_slice(CLOSING);
        }
        self.bytes -= piece.len() as u64;
        Some(piece.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Listed for Bytes {
        fn share(&self) -> Bytes {
            self.clone()
        }
    }

    fn check(items: &[usize], expected_pieces: usize) {
        let items: Vec<Bytes> = items.iter().map(|&length| vec![b'x'; length].into()).collect();
        let joined = items
            .iter()
            .map(|item| format!("{{{}", String::from_utf8_lossy(item)))
            .collect::<Vec<_>>()
            .join(",");
        let mut body = ListBody::new("{\"items\":[".into(), items);
        let expected = format!("{{\"items\":[{joined}]}}");
        assert_eq!(body.bytes, expected.len() as u64);
        let pieces: Vec<Bytes> = std::iter::from_fn(|| body.next_piece()).collect();
        assert!(pieces.concat() == expected.as_bytes(), "{} bytes", expected.len());
        assert_eq!(pieces.len(), expected_pieces);
        assert_eq!(body.bytes, 0);
    }

    #[test]
    fn a_list_is_sent_in_pieces() {
        check(&[], 1);
        check(&[1], 1);
        check(&[1, 2, 3], 1);
        check(&[1000; 1000], 16);
        // Large ones by themselves.
        check(&[LARGE], 1);
        check(&[LARGE + 1], 3);
        check(&[1, LARGE + 1, 2, 3, PIECE * 3, 1], 5);
        check(&[LARGE, LARGE, LARGE, LARGE], 2);
    }
}
