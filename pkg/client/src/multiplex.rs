//! A client whose requests and watches share one HTTP/2 connection: for programs that watch many kinds.
//!
//! A watch over HTTP/1.1 holds a TLS connection of its own, with buffers at both ends. A controller-manager has some ninety.
//! A server that does not speak HTTP/2 is spoken to in HTTP/1.1.

use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use http::{Request, Response};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Builder};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Client;
use kube::client::{Body, ClientBuilder, ConfigExt};
use std::task::{Context, Poll};
use std::time::Duration;

/// A connection that says nothing for so long is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);
/// One that does not answer for so long is not.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// A client for what a configuration says. It cannot upgrade connections, as exec and attach do.
pub(crate) fn client(config: kube::Config) -> kube::Result<Client> {
    if config.tls_server_name.is_some() || config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let connections = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(None)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build::<_, Body>(HttpsConnector::from((tcp, tls)));
    let requests = ClientBuilder::new(Connections(connections), config.default_namespace.clone())
        .with_layer(&config.extra_headers_layer()?);
    let base = config.base_uri_layer();
    Ok(match config.auth_layer()? {
        Some(credentials) => requests.with_layer(&credentials).with_layer(&base).build(),
        None => requests.with_layer(&base).build(),
    })
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Connections whose errors are of the kind that kube's layers ask for.
#[derive(Clone)]
struct Connections(legacy::Client<HttpsConnector<HttpConnector>, Body>);

impl tower_service::Service<Request<Body>> for Connections {
    type Response = Response<hyper::body::Incoming>;
    type Error = Failed;
    type Future = BoxFuture<'static, Result<Self::Response, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.request(request).map_err(Failed::from).boxed()
    }
}
