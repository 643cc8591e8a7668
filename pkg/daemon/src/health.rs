//! `/healthz`, `/livez`, `/readyz` and `/metrics` over plain HTTP, for programs that serve nothing else.

use crate::connections::{accept, http};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Serves until the token is cancelled. `metrics` gives the page of `/metrics`, in Prometheus' text format;
/// `healthy` says why not, if the program is not.
pub async fn serve_health<Metrics, Healthy>(
    listener: TcpListener,
    shutdown: CancellationToken,
    metrics: Metrics,
    healthy: Healthy,
) where
    Metrics: Fn() -> String + Send + Sync + 'static,
    Healthy: Fn() -> Result<(), String> + Send + Sync + 'static,
{
    let pages = Arc::new((metrics, healthy));
    let connections = TaskTracker::new();
    while let Some(stream) = accept(&listener, &shutdown).await {
        let (pages, shutdown) = (pages.clone(), shutdown.clone());
        connections.spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                let answer = answer(request.uri().path(), &pages.0, &pages.1);
                async move { Ok::<_, Infallible>(answer) }
            });
            let http = http();
            tokio::select! {
                _ = http.serve_connection(TokioIo::new(stream), answer) => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
    connections.close();
    connections.wait().await;
}

fn answer(
    path: &str,
    metrics: impl Fn() -> String,
    healthy: impl Fn() -> Result<(), String>,
) -> Response<Full<Bytes>> {
    let (status, body) = match path {
        "/healthz" | "/livez" | "/readyz" => match healthy() {
            Ok(()) => (StatusCode::OK, "ok".to_owned()),
            Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, why),
        },
        "/metrics" => (StatusCode::OK, metrics()),
        _ => (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unhealthy_program_says_why() {
        let answer =
            |path| answer(path, || "# metrics\n".to_owned(), || Err("no leader".to_owned())).status();
        assert_eq!(answer("/healthz"), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer("/metrics"), StatusCode::OK);
        assert_eq!(answer("/"), StatusCode::NOT_FOUND);
    }
}
