//! Connections to a server: accepted one after the other, secured, and served by HTTP.

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// A connection that takes longer than this to secure is dropped.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that takes longer than this to send its headers is dropped.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// A failing accept (too many open files) is tried again after this, when others may have closed theirs.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The next connection; none after shutdown.
pub async fn accept(listener: &TcpListener, shutdown: &CancellationToken) -> Option<TcpStream> {
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => return Some(stream),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Secures a connection; none if the client does not manage to.
pub async fn secure(acceptor: &TlsAcceptor, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    let _ = stream.set_nodelay(true);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(secured)) => return Some(secured),
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake timed out"),
    }
    None
}

/// HTTP of both versions, for clients that do not take for ever.
pub fn http() -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    http.http2().timer(TokioTimer::new());
    http
}
