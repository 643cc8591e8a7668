//! What a container wrote as messages of a WebSocket, for clients that cannot read a stream: browsers.

use crate::answer::{self, Answer};
use crate::error::{ApiError, Result};
use crate::server::Server;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt};
use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, frame::coding::CloseCode};

/// How pieces become messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// As they are.
    Binary,
    /// As text.
    Base64,
}

/// The first that the client offers and we speak; bytes as they are where it offers nothing.
fn agree(offered: &str) -> Option<(Protocol, &'static str)> {
    let known = |name: &str| match name {
        "" => Some((Protocol::Binary, "")),
        "binary.k8s.io" => Some((Protocol::Binary, "binary.k8s.io")),
        "base64.binary.k8s.io" => Some((Protocol::Base64, "base64.binary.k8s.io")),
        _ => None,
    };
    offered.split(',').find_map(|name| known(name.trim()))
}

/// Accepts the handshake, and sends what comes until it ends or the client goes.
pub fn send(
    server: &Arc<Server>,
    parts: &mut Parts,
    pieces: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Answer> {
    let text = |headers: &HeaderMap, name| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let key = text(&parts.headers, SEC_WEBSOCKET_KEY);
    let agreed = agree(&text(&parts.headers, SEC_WEBSOCKET_PROTOCOL)).filter(|_| !key.is_empty());
    let (Some((protocol, name)), Some(upgrade)) = (agreed, parts.extensions.remove::<OnUpgrade>()) else {
        return Err(ApiError::bad_request(
            "unable to upgrade: not a WebSocket, or none of its protocols is known",
        ));
    };
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).expect("base64 is a header value");
    let mut accepted = answer::empty(StatusCode::SWITCHING_PROTOCOLS)
        .with_header(UPGRADE, HeaderValue::from_static("websocket"))
        .with_header(CONNECTION, HeaderValue::from_static("Upgrade"))
        .with_header(SEC_WEBSOCKET_ACCEPT, accept);
    if !name.is_empty() {
        accepted = accepted.with_header(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    let shutdown = server.shutdown.clone();
    server.streams.spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        let (mut to_client, mut from_client) = socket.split();
        let messages = pieces.map(move |piece| {
            Ok(match protocol {
                Protocol::Binary => Message::Binary(piece),
                Protocol::Base64 => Message::Text(STANDARD.encode(piece).into()),
            })
        });
        let mut messages = std::pin::pin!(messages);
        tokio::select! {
            _ = to_client.send_all(&mut messages) => {}
            // A client has nothing to say but that it goes; reading also answers its pings.
            () = async { while let Some(Ok(_)) = from_client.next().await {} } => {}
            () = shutdown.cancelled() => {}
        }
        let all_is_said = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        let _ = to_client.send(Message::Close(Some(all_is_said))).await;
    });
    Ok(accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_protocol_is_spoken() {
        assert_eq!(agree(""), Some((Protocol::Binary, "")));
        assert_eq!(
            agree("v4.channel.k8s.io, base64.binary.k8s.io"),
            Some((Protocol::Base64, "base64.binary.k8s.io"))
        );
        assert_eq!(agree("binary.k8s.io"), Some((Protocol::Binary, "binary.k8s.io")));
        assert_eq!(agree("chat"), None);
    }
}
