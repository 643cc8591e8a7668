//! Requests and answers on their way through.

use super::connect::{self, Sent};
use super::links::Links;
use crate::answer::Answer;
use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::server::Server;
use bytes::Bytes;
use daemon::ForPeople;
use futures::{Stream, StreamExt};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST,
    HeaderName, HeaderValue, LOCATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, BodyStream, Empty};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;

/// What concerns one connection only.
const HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
];
/// A page with more bytes keeps its links.
const LARGEST_PAGE: usize = 8 * 1024 * 1024;
/// Bytes on their way, for each direction of an upgraded connection.
const BUFFER: usize = 32 * 1024;

/// Whether the client wants to speak something else than HTTP.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let connection = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    headers.contains_key(UPGRADE)
        && connection
            .flat_map(|value| value.split(','))
            .any(|token| token.trim().eq_ignore_ascii_case("upgrade"))
}

/// The request as the other side gets it: without what was for us.
pub fn request(parts: &Parts, path: &str, body: Option<Sent>) -> Result<Request<Sent>> {
    let uri: Uri = path.parse().map_err(|_| ApiError::bad_request("the path cannot be forwarded"))?;
    let is_upgrade = is_upgrade(&parts.headers);
    let mut headers = parts.headers.clone();
    // What comes compressed could not be read on its way.
    for name in HOP_BY_HOP.iter().chain(&[AUTHORIZATION, HOST, ACCEPT_ENCODING]) {
        headers.remove(name);
    }
    let impersonating: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in impersonating {
        headers.remove(name);
    }
    if is_upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    } else {
        headers.remove(UPGRADE);
    }
    let host = parts.headers.get(HOST).cloned();
    let host = host.or_else(|| HeaderValue::from_str(parts.uri.authority()?.as_str()).ok());
    headers.insert(HOST, host.unwrap_or(HeaderValue::from_static("localhost")));
    let body = match body {
        Some(body) if !is_upgrade => body,
        _ => {
            headers.remove(CONTENT_LENGTH);
            connect::whole(Bytes::new())
        }
    };
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(request)
}

/// The answer as our client gets it. An upgraded connection goes on by itself until one side ends it, or the server
/// drains.
pub fn answer(server: &Arc<Server>, parts: &mut Parts, answer: Response<Incoming>) -> Answer {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return upgraded(server, parts, answer);
    }
    let (head, body) = answer.into_parts();
    whole(head, stream(server, body))
}

/// A body that is passed on as it comes, and ends when the server drains.
pub fn stream(server: &Server, body: Incoming) -> Body {
    Body::stream(pieces(body).take_until(server.shutdown.clone().cancelled_owned()))
}

/// A body as it comes, as far as it comes.
pub fn pieces(body: Incoming) -> impl Stream<Item = Bytes> + Send {
    let good = BodyStream::new(body).take_while(|frame| {
        let is_good = frame.is_ok();
        async move { is_good }
    });
    good.filter_map(|frame| async { frame.ok()?.into_data().ok() })
}

/// The answer to a request for a page: its links, and where it sends the client, lead through us.
pub async fn page(server: &Arc<Server>, answer: Response<Incoming>, links: &Links<'_>) -> Answer {
    let (mut head, body) = answer.into_parts();
    if let Some(led) = head.headers.get(LOCATION).and_then(|to| links.lead(to.to_str().ok()?))
        && let Ok(led) = HeaderValue::from_str(&led)
    {
        head.headers.insert(LOCATION, led);
        return whole(head, stream(server, body));
    }
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_html = kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/html");
    if !is_html || head.headers.contains_key(CONTENT_ENCODING) {
        return whole(head, stream(server, body));
    }
    let mut rest = Box::pin(pieces(body));
    let mut page = Vec::new();
    while page.len() < LARGEST_PAGE
        && let Some(piece) = rest.next().await
    {
        page.extend_from_slice(&piece);
    }
    // One that is larger, or no text, goes through as it is.
    let page = match String::from_utf8(page) {
        Ok(page) if page.len() < LARGEST_PAGE => {
            head.headers.remove(CONTENT_LENGTH);
            links.rewrite(&page).into_bytes()
        }
        Ok(page) => page.into_bytes(),
        Err(bytes) => bytes.into_bytes(),
    };
    let all = futures::stream::once(async { Bytes::from(page) }).chain(rest);
    whole(head, Body::stream(all.take_until(server.shutdown.clone().cancelled_owned())))
}

fn whole(head: http::response::Parts, body: Body) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    for name in HOP_BY_HOP {
        response.headers_mut().remove(name);
    }
    response.extensions_mut().insert(ForPeople);
    Answer(response)
}

fn upgraded(server: &Arc<Server>, parts: &mut Parts, mut answer: Response<Incoming>) -> Answer {
    let theirs = hyper::upgrade::on(&mut answer);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = std::mem::take(answer.headers_mut());
    if let Some(ours) = parts.extensions.remove::<OnUpgrade>() {
        let shutdown = server.shutdown.clone();
        server.streams.spawn(async move {
            let carry = async {
                let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else { return };
                let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
                // Whichever side fails, there is nobody left to tell.
                let _ =
                    tokio::io::copy_bidirectional_with_sizes(&mut ours, &mut theirs, BUFFER, BUFFER).await;
            };
            tokio::select! {
                () = carry => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
    Answer(response)
}

/// A request of our own.
pub fn get(path: &str) -> Result<Request<Sent>> {
    let uri: Uri = path.parse().map_err(|_| ApiError::bad_request("the path cannot be forwarded"))?;
    let mut request = Request::new(Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync());
    *request.uri_mut() = uri;
    request.headers_mut().insert(HOST, HeaderValue::from_static("kubelet"));
    Ok(request)
}
