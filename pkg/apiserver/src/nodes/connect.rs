//! A connection to somebody else, for one request.

use super::location::{Place, Scheme};
use crate::client_tls::{self, Failed, Trust};
use crate::server::Server;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Whoever takes longer than this to take a connection is not there.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The body of a request that is forwarded.
pub type Sent = UnsyncBoxBody<Bytes, hyper::Error>;

/// A body that is there already.
pub fn whole(body: Bytes) -> Sent {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// A host and its port, as URLs and the `Host` header have them.
pub fn authority((host, port): (&str, u16)) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Sends a request and gives back the answer, whose body comes as it is read. The connection lives as long as it does.
pub async fn send(
    server: &Arc<Server>,
    place: &Place,
    request: Request<Sent>,
) -> std::io::Result<Response<Incoming>> {
    let secured = match place.scheme {
        Scheme::Http => None,
        scheme => Some((Arc::new(tls(server, scheme).map_err(Error::other)?), place.host.as_str())),
    };
    send_to(server, (&place.host, place.port), secured, request).await
}

/// The same, to an address and with TLS if it is given, with somebody whose certificate has this name. How long an answer
/// may take is the caller's to say: some take as long as their client stays.
pub async fn send_to(
    server: &Arc<Server>,
    address: (&str, u16),
    secured: Option<(Arc<ClientConfig>, &str)>,
    request: Request<Sent>,
) -> std::io::Result<Response<Incoming>> {
    open(server, address, secured).await?.send_request(request).await.map_err(Error::other)
}

/// A connection, open until nobody has its sender any more and the last answer has been read.
pub async fn open(
    server: &Arc<Server>,
    address: (&str, u16),
    secured: Option<(Arc<ClientConfig>, &str)>,
) -> std::io::Result<SendRequest<Sent>> {
    let about = |error: Error| Error::new(error.kind(), format!("dial tcp {}: {error}", authority(address)));
    let slow = |_| Error::new(std::io::ErrorKind::TimedOut, "i/o timeout");
    let opening = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some((config, name)) = secured else { return Ok(Box::new(stream) as Box<dyn Stream>) };
        let name = ServerName::try_from(name.to_owned()).map_err(Error::other)?;
        Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?) as Box<dyn Stream>)
    };
    let opened = tokio::time::timeout(TIMEOUT, opening).await.map_err(slow).and_then(|opened| opened);
    let stream = opened.map_err(about)?;
    let (sender, connection) =
        hyper::client::conn::http1::handshake::<_, Sent>(TokioIo::new(stream)).await.map_err(Error::other)?;
    let shutdown = server.shutdown.clone();
    server.streams.spawn(async move {
        tokio::select! {
            _ = connection.with_upgrades() => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(sender)
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// TLS as it is for whoever is there.
fn tls(server: &Server, scheme: Scheme) -> Result<ClientConfig, Failed> {
    let config = &server.config;
    if scheme != Scheme::Kubelet {
        return client_tls::config(Trust::Anybody, None);
    }
    let trust = match &config.kubelet_certificate_authority {
        Some(path) => Trust::file(path)?,
        None => Trust::Anybody,
    };
    let own = || {
        let file = |name: &str| config.cert_dir().join(name);
        (file("apiserver-kubelet-client.crt"), file("apiserver-kubelet-client.key"))
    };
    client_tls::config(trust, Some(&config.kubelet_client.clone().unwrap_or_else(own)))
}
