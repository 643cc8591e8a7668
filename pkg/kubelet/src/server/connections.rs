//! Connections: accepted, secured, served, and at the end drained.

use super::answer::{self, Answer, Refusal};
use super::identity::{User, user_of_certificate};
use super::route::{Query, Route};
use super::tls::Serving;
use super::{Server, forward, logs, node_logs, pods, stats, stream};
use daemon::{Doors, Peer, Watched};
use http::Request;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// How long requests get to finish at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until shutdown, then drains.
pub async fn serve(server: Arc<Server>, serving: Serving, listener: TcpListener) {
    let acceptor = TlsAcceptor::from(serving.config.clone());
    let doors = Doors::new(server.connections.clone());
    let connections = tokio_util::task::TaskTracker::new();
    while let Some(connection) = doors.accept(&listener, &server.shutdown).await {
        let (server, acceptor) = (server.clone(), acceptor.clone());
        connections.spawn(async move { serve_one(&server, connection, acceptor).await });
    }
    drop(listener);
    server.streams.close();
    connections.close();
    let drained = async {
        server.streams.wait().await;
        connections.wait().await;
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
}

async fn serve_one(server: &Arc<Server>, connection: daemon::Connection<Watched>, acceptor: TlsAcceptor) {
    let Some(secured) = connection.secure(&acceptor).await else { return };
    let chain = secured.io().get_ref().1.peer_certificates().unwrap_or_default();
    let user = Arc::new(chain.first().and_then(|first| user_of_certificate(first)));
    let peer = secured.peer().clone();
    let answering = {
        let server = server.clone();
        move |request| {
            let (server, user, peer) = (server.clone(), user.clone(), peer.clone());
            async move { handle(&server, (*user).as_ref(), &peer, request).await.unwrap_or_else(answer::refused) }
        }
    };
    secured.serve(answering, &server.shutdown).await;
}

async fn handle(
    server: &Arc<Server>,
    user: Option<&User>,
    peer: &Peer,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let path = request.uri().path();
    server.identity.admit(user, request.method(), path, request.headers()).await?;
    // Whoever may ask this node anything is the cluster's: its place is nobody else's to take.
    peer.is_of_cluster();
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
