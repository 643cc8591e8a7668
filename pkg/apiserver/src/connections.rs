//! Connections: accepted, secured, served, and at the end drained.

use crate::auth::User;
use crate::budget;
use crate::handler;
use crate::identity::{self, Credentials};
use crate::server::{Server, StartError};
use daemon::{Doors, Peer, Watched};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

/// How long open requests get to finish at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// What is known of a client from its connection alone.
pub struct Connection {
    /// Who its certificate says it is: nobody, somebody, or nobody to be believed.
    pub certificate: ClientCertificate,
    /// What is counted of it.
    peer: Arc<Peer>,
}

impl Connection {
    /// One of its requests has shown who is there. The first one counts: whoever acts for others does so as itself.
    pub fn identify(&self, user: &User) {
        if self.peer.is_known() || user.name == User::ANONYMOUS {
            return;
        }
        if budget::is_of_the_cluster(user) {
            self.peer.is_of_cluster();
        } else {
            self.peer.is_user(budget::holder(user));
        }
    }
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
    let doors = Doors::new(server.config.connections.clone());
    let connections = TaskTracker::new();
    tasks.spawn(identity::renew(server.clone(), credentials.clone()));
    ready(&server);
    while let Some(connection) = doors.accept(&listener, &server.shutdown).await {
        let (server, credentials, acceptor) = (server.clone(), credentials.clone(), acceptor.clone());
        connections.spawn(async move {
            server.metrics.connections.fetch_add(1, Relaxed);
            serve_one(&server, &credentials, connection, &acceptor).await;
            server.metrics.connections.fetch_sub(1, Relaxed);
        });
    }
    drop(listener);
    connections.close();
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, connections.wait()).await;
    tasks.close();
    server.streams.close();
    let ended = async {
        tasks.wait().await;
        server.streams.wait().await;
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, ended).await;
    Ok(())
}

async fn serve_one(
    server: &Arc<Server>,
    credentials: &Credentials,
    connection: daemon::Connection<Watched>,
    acceptor: &TlsAcceptor,
) {
    let Some(secured) = connection.secure(acceptor).await else { return };
    let certificate = identity::client_certificate(credentials, secured.io().get_ref().1.peer_certificates());
    let known = Arc::new(Connection { certificate, peer: secured.peer().clone() });
    if let ClientCertificate::Valid(user) = &known.certificate {
        known.identify(user);
    }
    let answering = {
        let server = server.clone();
        move |request| {
            let answer = handler::handle(server.clone(), known.clone(), request);
            async move { answer.await.unwrap_or_else(|never: Infallible| match never {}) }
        }
    };
    secured.serve(answering, &server.shutdown).await;
}
