//! Connections that carry any question at all: HTTP/2, so that an answer without end is left by itself.

use crate::grammar::Question;
use bytes::Bytes;
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pki::Authority;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

/// More of a body is not read.
const LARGEST: usize = 1 << 20;
/// A whole answer is there by then.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a watch tells comes at once, or later than anybody waits here.
const GLANCE: Duration = Duration::from_millis(100);

/// What somebody shows of who they are.
#[derive(Clone)]
pub enum Credentials {
    /// A client certificate and its key, as PEM.
    Certificate(String, String),
    /// A bearer token.
    Token(String),
    /// Nothing.
    None,
}

impl Credentials {
    /// A certificate of the cluster's authority.
    pub fn certificate(authority: &Authority, name: &str, groups: &[&str]) -> Credentials {
        let identity = authority.client(name, groups, jiff::Timestamp::now()).unwrap();
        Credentials::Certificate(identity.certificate, identity.key)
    }
}

/// What came back. Code 0: nothing did.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub code: u16,
    pub body: Bytes,
}

/// A connection of one user, made again when it breaks.
pub struct Wire {
    address: SocketAddr,
    credentials: Credentials,
    connector: TlsConnector,
    sender: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Wire {
    pub fn new(address: SocketAddr, authority: &str, credentials: Credentials) -> Wire {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &credentials {
            Credentials::Certificate(certificate, key) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        Wire { address, credentials, connector, sender: Mutex::default() }
    }

    /// The answer to a question, asked once more where the connection was at its end.
    pub async fn ask(&self, question: &Question) -> Answer {
        for _ in 0..2 {
            match tokio::time::timeout(PATIENCE, self.try_ask(question)).await {
                Ok(Some(answer)) => return answer,
                Ok(None) => *self.sender.lock().await = None,
                Err(_) => break,
            }
        }
        Answer::default()
    }

    async fn try_ask(&self, question: &Question) -> Option<Answer> {
        let mut sender = self.sender().await?;
        let uri = Uri::builder().scheme("https").authority(self.address.to_string());
        let Ok(uri) = uri.path_and_query(question.path.as_str()).build() else {
            // No client can send that.
            return Some(Answer { code: 400, body: Bytes::new() });
        };
        let method: Method = question.method.parse().ok()?;
        let mut request = Request::builder().method(method).uri(uri);
        if let Credentials::Token(token) = &self.credentials {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in &question.headers {
            request = request.header(name.as_str(), value.as_str());
        }
        let request = request.body(Full::new(question.body.clone().into())).ok()?;
        let response = sender.send_request(request).await.ok()?;
        let (code, mut body) = (response.status().as_u16(), response.into_body());
        let mut received = Vec::new();
        while received.len() < LARGEST {
            let next = body.frame();
            let frame = match question.may_wait() && code == 200 {
                true => match tokio::time::timeout(GLANCE, next).await {
                    Ok(frame) => frame,
                    Err(_) => break,
                },
                false => next.await,
            };
            match frame {
                Some(Ok(frame)) => received.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
                // Some answers are cut short, as by a proxy whose other side goes.
                Some(Err(_)) | None => break,
            }
        }
        Some(Answer { code, body: received.into() })
    }

    async fn sender(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut sender = self.sender.lock().await;
        if let Some(open) = sender.as_ref().filter(|open| !open.is_closed()) {
            return Some(open.clone());
        }
        let stream = TcpStream::connect(self.address).await.ok()?;
        let stream = self.connector.connect(ServerName::from(self.address.ip()), stream).await.ok()?;
        let (open, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        Some(sender.insert(open).clone())
    }
}
