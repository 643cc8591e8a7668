//! Connections: accepted, secured, served, and at the end drained.

use crate::auth::User;
use crate::handler;
use crate::identity::{self, Credentials};
use crate::server::{Server, StartError};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

/// How long open requests get to finish at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Requests at once on one HTTP/2 connection.
const STREAMS_PER_CONNECTION: u32 = 1000;

/// What is known of a client from its connection alone.
pub struct Connection {
    /// Who its certificate says it is: nobody, somebody, or nobody to be believed.
    pub certificate: ClientCertificate,
}

/// What a client showed.
pub enum ClientCertificate {
    /// Nothing.
    None,
    /// A good certificate.
    Valid(Arc<User>),
    /// One that we do not believe.
    Invalid,
}

/// Serves until shutdown, then drains.
pub async fn serve(
    server: Arc<Server>,
    credentials: Arc<Credentials>,
    listener: TcpListener,
    tasks: TaskTracker,
    ready: impl FnOnce(&Server),
) -> Result<(), StartError> {
    let acceptor = TlsAcceptor::from(credentials.tls.config.clone());
    let mut http = daemon::http();
    http.http2().max_concurrent_streams(STREAMS_PER_CONNECTION);
    let http = Arc::new(http);
    let graceful = GracefulShutdown::new();
    tasks.spawn(identity::renew(server.clone(), credentials.clone()));
    ready(&server);
    while let Some(stream) = daemon::accept(&listener, &server.shutdown).await {
        let (server, credentials) = (server.clone(), credentials.clone());
        let (acceptor, http, watcher) = (acceptor.clone(), http.clone(), graceful.watcher());
        tokio::spawn(async move {
            server.metrics.connections.fetch_add(1, Relaxed);
            connection(&server, &credentials, stream, acceptor, &http, watcher).await;
            server.metrics.connections.fetch_sub(1, Relaxed);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await;
    tasks.close();
    server.streams.close();
    let ended = async {
        tasks.wait().await;
        server.streams.wait().await;
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, ended).await;
    Ok(())
}

async fn connection(
    server: &Arc<Server>,
    credentials: &Credentials,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    http: &Builder<TokioExecutor>,
    watcher: Watcher,
) {
    let Some(secured) = daemon::secure(&acceptor, stream).await else { return };
    let certificate = identity::client_certificate(credentials, secured.get_ref().1.peer_certificates());
    let connection = Arc::new(Connection { certificate });
    let service = service_fn(|request| handler::handle(server.clone(), connection.clone(), request));
    let serving =
        watcher.watch(http.serve_connection_with_upgrades(TokioIo::new(secured), service).into_owned());
    if let Err(error) = serving.await {
        tracing::debug!(%error, "connection ended");
    }
}
