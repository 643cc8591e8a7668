//! The WebSocket handshake: from an HTTP request to a socket that speaks an agreed protocol.

use super::super::answer::{self, Answer, Refusal};
use http::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::pin::Pin;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, coding::CloseCode};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// A socket that messages go over.
pub type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Messages are no larger than this, and this much waits to be sent: kubectl sends up to 32 KiB at once.
const LARGEST_MESSAGE: usize = 4 * 1024 * 1024;
const WRITE_BUFFER: usize = 64 * 1024;

/// A name that is agreed upon in the handshake.
pub trait Named: Copy {
    /// What `Sec-WebSocket-Protocol` says; empty for what is spoken where the client says nothing.
    fn name(&self) -> &'static str;
}

/// A handshake that was accepted.
pub struct Upgrade<P> {
    /// What to answer.
    pub answer: Answer,
    /// What was agreed upon.
    pub protocol: P,
    /// The socket, once the answer is sent; `None` if the client is gone by then.
    pub socket: Pin<Box<dyn Future<Output = Option<Socket>> + Send>>,
}

/// The last message: all was said. A client takes any other end for a failure.
pub fn goodbye() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
}

/// Accepts a handshake for the first of our protocols that the client offers.
pub fn accept<P: Named>(mut request: Request<Incoming>, ours: &[P]) -> Result<Upgrade<P>, Refusal> {
    let bad = |text: &str| (StatusCode::BAD_REQUEST, text.to_owned());
    if !has_token(request.headers(), &UPGRADE, "websocket")
        || !has_token(request.headers(), &CONNECTION, "upgrade")
    {
        return Err(bad("Upgrade request required"));
    }
    let headers = request.headers();
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(bad("websocket: unsupported version: 13 not found in 'Sec-Websocket-Version' header"));
    }
    let key = headers
        .get(SEC_WEBSOCKET_KEY)
        .ok_or_else(|| bad("websocket: not a websocket handshake: Sec-WebSocket-Key is missing"))?;
    let accept = derive_accept_key(key.as_bytes());
    let offered = tokens(headers, &SEC_WEBSOCKET_PROTOCOL);
    let protocol = agree(&offered, ours)
        .ok_or_else(|| bad("websocket: none of the requested protocols is supported"))?;
    let mut answer = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = answer.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_str(&accept).expect("base64 is a header value"));
    if !protocol.name().is_empty() && !offered.is_empty() {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol.name()));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let socket = Box::pin(async move {
        let io = TokioIo::new(upgrade.await.ok()?);
        let config = WebSocketConfig::default()
            .max_message_size(Some(LARGEST_MESSAGE))
            .max_frame_size(Some(LARGEST_MESSAGE))
            .write_buffer_size(0)
            .max_write_buffer_size(LARGEST_MESSAGE + WRITE_BUFFER);
        Some(WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await)
    });
    Ok(Upgrade { answer, protocol, socket })
}

/// The first that the client offers and we speak; the last of ours where it offers nothing.
fn agree<P: Named>(offered: &[&str], ours: &[P]) -> Option<P> {
    if offered.is_empty() {
        return ours.iter().find(|protocol| protocol.name() == "channel.k8s.io").or(ours.last()).copied();
    }
    offered.iter().find_map(|name| ours.iter().find(|protocol| protocol.name() == *name)).copied()
}

/// The words of a header.
pub(super) fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty()).collect()
}

/// Whether a header has a word.
pub(super) fn has_token(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    tokens(headers, name).iter().any(|token| token.eq_ignore_ascii_case(wanted))
}
