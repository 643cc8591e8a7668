//! Answers: text, JSON, or bytes that come over time.

use bytes::Bytes;
use futures::StreamExt;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde::Serialize;
use std::convert::Infallible;
use tokio::sync::mpsc;

/// A response that is ready to go.
pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A refusal: its code, and a sentence. The kubelet answers errors as text; the apiserver makes a `Status` of them.
pub type Refusal = (StatusCode, String);

/// A refusal as an answer.
pub fn refused((code, text): Refusal) -> Answer {
    typed(code, "text/plain; charset=utf-8", text.into())
}

/// Text.
pub fn text(text: impl Into<Bytes>) -> Answer {
    typed(StatusCode::OK, "text/plain; charset=utf-8", text.into())
}

/// A page.
pub fn html(text: String) -> Answer {
    typed(StatusCode::OK, "text/html; charset=utf-8", text.into())
}

/// Metrics, in Prometheus' format.
pub fn metrics(text: String) -> Answer {
    typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.into())
}

/// JSON.
pub fn json(value: &impl Serialize) -> Answer {
    let bytes = serde_json::to_vec(value).expect("what is answered is always JSON");
    typed(StatusCode::OK, "application/json", bytes.into())
}

/// No body.
pub fn empty(code: StatusCode) -> Answer {
    let mut response = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *response.status_mut() = code;
    response
}

/// Text that comes over time, until the sender is dropped.
pub fn stream(pieces: mpsc::Receiver<Bytes>) -> Answer {
    let pieces = futures::stream::unfold(pieces, |mut pieces| async {
        pieces.recv().await.map(|piece| (piece, pieces))
    });
    let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response.extensions_mut().insert(daemon::ForPeople);
    response
}

fn typed(code: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut response = Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
