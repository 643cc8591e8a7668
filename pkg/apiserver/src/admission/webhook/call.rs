//! Asking a webhook: one POST over TLS, on a connection that is kept for the next.

use crate::client_tls::{self, Trust};
use crate::nodes::endpoint_of;
use crate::server::Server;
use api::Value;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Connections to one webhook that wait for the next question.
const MOST_IDLE: usize = 8;
/// The largest answer: that to an object of the largest size, with room for the patch's encoding.
const LARGEST_ANSWER: usize = 8 * 1024 * 1024;

/// A webhook's place.
pub struct Client {
    place: Place,
    /// The name that its certificate must be for.
    host: String,
    port: u16,
    path: String,
    tls: Result<Arc<ClientConfig>, String>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

enum Place {
    Url,
    Service { namespace: String, name: String },
}

impl Client {
    /// As `clientConfig` says.
    pub fn new(config: &Value) -> Client {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let service = &config["service"];
        let (place, host, port, path) = if service.is_object() {
            let (namespace, name) = (text(service, "namespace"), text(service, "name"));
            let host = format!("{name}.{namespace}.svc");
            let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            (Place::Service { namespace, name }, host, port, text(service, "path"))
        } else {
            let url = text(config, "url");
            let rest = url.strip_prefix("https://").unwrap_or(&url);
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (host, port) = split_port(authority);
            (Place::Url, host, port, path.to_owned())
        };
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        let tls = tls(&text(config, "caBundle")).map(Arc::new);
        Client { place, host, port: port.unwrap_or(443), path, tls, idle: Mutex::default() }
    }

    /// Sends a body and gives back the answer's, or says why there is none, as upstream's client does.
    pub async fn post(&self, server: &Server, body: Vec<u8>, timeout: Duration) -> Result<Bytes, String> {
        let authority = match (self.place_is_url(), self.port) {
            (true, 443) => self.shown_host(),
            (_, port) => format!("{}:{port}", self.shown_host()),
        };
        let path = format!("{}?timeout={}s", self.path, timeout.as_secs());
        let about = |why: String| format!("Post \"https://{authority}{path}\": {why}");
        let body = Bytes::from(body);
        let request = || {
            Request::post(path.as_str())
                .header(HOST, authority.as_str())
                .header(USER_AGENT, "kube-apiserver-admission")
                .header(CONTENT_TYPE, "application/json")
                .header(ACCEPT, "application/json, */*")
                .body(Full::new(body.clone()))
                .map_err(|error| error.to_string())
        };
        let exchange = async {
            let kept = self.idle.lock().pop();
            if let Some(mut kept) = kept
                && kept.ready().await.is_ok()
                && let Ok(answer) = kept.send_request(request()?).await
            {
                return self.received(kept, answer).await;
            }
            // None was kept, or the other side has closed it meanwhile.
            let mut fresh = self.open(server).await?;
            let answer = fresh.send_request(request()?).await.map_err(|error| error.to_string())?;
            self.received(fresh, answer).await
        };
        match tokio::time::timeout(timeout, exchange).await {
            Err(_) => Err(about("context deadline exceeded".into())),
            Ok(Err(why)) => Err(about(why)),
            Ok(Ok((code, bytes))) if code.is_success() => Ok(bytes),
            Ok(Ok((StatusCode::NOT_FOUND, _))) => {
                Err("the server could not find the requested resource".into())
            }
            Ok(Ok((code, bytes))) if code.is_server_error() => Err(format!(
                "an error on the server ({:?}) has prevented the request from succeeding",
                String::from_utf8_lossy(&bytes)
            )),
            Ok(Ok((code, _))) => {
                let code = code.as_u16();
                Err(format!(
                    "the server responded with the status code {code} but did not return more information"
                ))
            }
        }
    }

    fn place_is_url(&self) -> bool {
        matches!(self.place, Place::Url)
    }

    fn shown_host(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }

    async fn received(
        &self,
        connection: SendRequest<Full<Bytes>>,
        answer: http::Response<hyper::body::Incoming>,
    ) -> Result<(StatusCode, Bytes), String> {
        let code = answer.status();
        let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        let mut idle = self.idle.lock();
        if idle.len() < MOST_IDLE && !connection.is_closed() {
            idle.push(connection);
        }
        Ok((code, body))
    }

    async fn open(&self, server: &Server) -> Result<SendRequest<Full<Bytes>>, String> {
        let tls = self.tls.clone()?;
        let (host, port) = match &self.place {
            Place::Url => (self.host.clone(), self.port),
            Place::Service { namespace, name } => endpoint_of(server, namespace, name, self.port)?,
        };
        let refused = |error: std::io::Error| format!("dial tcp {host}:{port}: {error}");
        let stream = TcpStream::connect((host.as_str(), port)).await.map_err(refused)?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
        let stream =
            TlsConnector::from(tls).connect(name, stream).await.map_err(|error| format!("tls: {error}"))?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let shutdown = server.shutdown.clone();
        server.streams.spawn(async move {
            tokio::select! {
                _ = connection => {}
                () = shutdown.cancelled() => {}
            }
        });
        Ok(sender)
    }
}

fn split_port(authority: &str) -> (String, Option<u16>) {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (authority, None),
    };
    (host.trim_matches(['[', ']']).to_owned(), port)
}

fn tls(bundle: &str) -> Result<ClientConfig, String> {
    client_tls::config(Trust::bundle(bundle)?, None).map_err(|error| error.to_string())
}
