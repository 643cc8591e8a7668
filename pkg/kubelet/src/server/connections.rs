//! Connections: accepted, secured, served, and at the end drained.

use super::answer::{self, Answer, Refusal};
use super::identity::{User, user_of_certificate};
use super::route::{Query, Route};
use super::tls::Serving;
use super::{Server, forward, logs, node_logs, pods, stats, stream};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// How long requests get to finish at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until shutdown, then drains.
pub async fn serve(server: Arc<Server>, serving: Serving, listener: TcpListener) {
    let acceptor = TlsAcceptor::from(serving.config.clone());
    let http = Arc::new(daemon::http());
    let graceful = GracefulShutdown::new();
    let connections = tokio_util::task::TaskTracker::new();
    while let Some(stream) = daemon::accept(&listener, &server.shutdown).await {
        let (server, acceptor, http) = (server.clone(), acceptor.clone(), http.clone());
        let watcher = graceful.watcher();
        connections.spawn(async move { connection(&server, stream, acceptor, &http, watcher).await });
    }
    drop(listener);
    server.streams.close();
    connections.close();
    let drained = async {
        graceful.shutdown().await;
        server.streams.wait().await;
        connections.wait().await;
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
}

async fn connection(
    server: &Arc<Server>,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    http: &Builder<TokioExecutor>,
    watcher: Watcher,
) {
    let Some(secured) = daemon::secure(&acceptor, stream).await else { return };
    let chain = secured.get_ref().1.peer_certificates().unwrap_or_default();
    let user = Arc::new(chain.first().and_then(|first| user_of_certificate(first)));
    let service = service_fn(|request| {
        let (server, user) = (server.clone(), user.clone());
        async move {
            Ok::<_, Infallible>(
                handle(&server, (*user).as_ref(), request).await.unwrap_or_else(answer::refused),
            )
        }
    });
    let serving =
        watcher.watch(http.serve_connection_with_upgrades(TokioIo::new(secured), service).into_owned());
    if let Err(error) = serving.await {
        tracing::debug!(error = %error, "connection ended");
    }
}

async fn handle(
    server: &Arc<Server>,
    user: Option<&User>,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let path = request.uri().path();
    server.identity.admit(user, request.method(), path, request.headers()).await?;
    let route = Route::parse(request.method(), path)?;
    let query = Query::parse(request.uri().query().unwrap_or_default());
    match route {
        Route::Pods => Ok(pods::all(server)),
        Route::RunningPods => pods::running(server).await,
        Route::Logs(path) => logs::handle(server, &path, &query).await,
        Route::NodeLogs(path) => node_logs::handle(server, &path).await,
        Route::Exec(path) => stream::exec(server, &path, &query, request).await,
        Route::Attach(path) => stream::attach(server, &path, &query, request).await,
        Route::PortForward(path) => forward::handle(server, &path, &query, request).await,
        Route::Summary => stats::summary(server, query.flag("only_cpu_and_memory")).await,
        Route::ResourceMetrics => stats::resource_metrics(server).await,
        Route::Metrics => stats::metrics(server).await,
        Route::Healthz => pods::health(server),
        Route::Configz => Ok(answer::json(&serde_json::json!({ "kubeletconfig": server.configz }))),
    }
}
