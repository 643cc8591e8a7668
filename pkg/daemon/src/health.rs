//! Pages over plain HTTP, for programs that serve nothing else: `/healthz`, `/metrics` and the like.

use crate::connections::Doors;
use crate::limits::ConnectionLimits;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What is answered at a path.
pub struct Page {
    /// The answer's code.
    pub status: StatusCode,
    /// `text/plain` or such.
    pub content_type: &'static str,
    /// The page.
    pub text: String,
}

impl Page {
    /// A page that people read.
    pub fn plain(status: StatusCode, text: impl Into<String>) -> Page {
        Page { status, content_type: "text/plain; charset=utf-8", text: text.into() }
    }
}

/// Serves `/healthz`, `/livez`, `/readyz` and `/metrics` until the token is cancelled. `metrics` gives the page of
/// `/metrics`, in Prometheus' text format; `healthy` says why not, if the program is not.
pub async fn serve_health<Metrics, Healthy>(
    listener: TcpListener,
    shutdown: CancellationToken,
    metrics: Metrics,
    healthy: Healthy,
) where
    Metrics: Fn() -> String + Send + Sync + 'static,
    Healthy: Fn() -> Result<(), String> + Send + Sync + 'static,
{
    serve_pages(listener, shutdown, move |path| health_page(path, &metrics, &healthy)).await;
}

/// Serves these pages until the token is cancelled.
pub async fn serve_pages<Pages>(listener: TcpListener, shutdown: CancellationToken, pages: Pages)
where
    Pages: Fn(&str) -> Option<Page> + Send + Sync + 'static,
{
    serve_pages_within(ConnectionLimits::small(), listener, shutdown, pages).await;
}

async fn serve_pages_within<Pages>(
    limits: ConnectionLimits,
    listener: TcpListener,
    shutdown: CancellationToken,
    pages: Pages,
) where
    Pages: Fn(&str) -> Option<Page> + Send + Sync + 'static,
{
    let (pages, doors) = (Arc::new(pages), Doors::new(limits));
    let connections = TaskTracker::new();
    while let Some(connection) = doors.accept(&listener, &shutdown).await {
        let (pages, shutdown) = (pages.clone(), shutdown.clone());
        connections.spawn(async move {
            let page =
                move |request: Request<Incoming>| std::future::ready(answer(pages(request.uri().path())));
            tokio::select! {
                () = connection.serve(page, &shutdown) => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
    connections.close();
    connections.wait().await;
}

fn health_page(
    path: &str,
    metrics: impl Fn() -> String,
    healthy: impl Fn() -> Result<(), String>,
) -> Option<Page> {
    match path {
        "/healthz" | "/livez" | "/readyz" => Some(match healthy() {
            Ok(()) => Page::plain(StatusCode::OK, "ok"),
            Err(why) => Page::plain(StatusCode::INTERNAL_SERVER_ERROR, why),
        }),
        "/metrics" => Some(Page::plain(StatusCode::OK, metrics())),
        _ => None,
    }
}

fn answer(page: Option<Page>) -> Response<Full<Bytes>> {
    let page = page.unwrap_or_else(|| Page::plain(StatusCode::NOT_FOUND, "404 page not found\n"));
    let mut response = Response::new(Full::new(Bytes::from(page.text)));
    *response.status_mut() = page.status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(page.content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[test]
    fn an_unhealthy_program_says_why() {
        let page = |path| health_page(path, || "# metrics\n".to_owned(), || Err("no leader".to_owned()));
        let answer = |path| answer(page(path)).status();
        assert_eq!(answer("/healthz"), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer("/metrics"), StatusCode::OK);
        assert_eq!(answer("/"), StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn who_asks_nothing_holds_up_nobody() {
        let second = Duration::from_secs(1);
        let limits =
            ConnectionLimits { headers: second, idle: second, most: 64, ..ConnectionLimits::small() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let pages = |_: &str| Some(Page::plain(StatusCode::OK, "here"));
        let serving = tokio::spawn(serve_pages_within(limits, listener, shutdown.clone(), pages));
        let mut silent = Vec::new();
        for sent in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
        {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            silent.push(stream);
        }
        for mut stream in silent {
            let mut said = Vec::new();
            let closed = tokio::time::timeout(second * 30, stream.read_to_end(&mut said)).await;
            assert!(closed.is_ok(), "it is closed, after {:?}", String::from_utf8_lossy(&said));
        }
        shutdown.cancel();
        serving.await.unwrap();
    }
}
