//! HTTP requests of probes and hooks. Whoever answers is believed: certificates are not checked, as upstream.

use super::task::{plain, port};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A GET.
pub(crate) struct Request {
    tls: bool,
    host: String,
    port: u16,
    path: String,
    headers: Vec<(String, String)>,
}

/// What came back.
pub(crate) struct Answer {
    /// The status code.
    pub status: u16,
}

impl Request {
    /// What an action asks of a container at an address.
    pub fn of(action: &HTTPGetAction, container: &Container, address: &str) -> Result<Request, String> {
        let headers = action.http_headers.iter().flatten();
        let path = action.path.as_deref().unwrap_or("/");
        Ok(Request {
            tls: action.scheme.as_deref() == Some("HTTPS"),
            host: action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| address.to_owned()),
            port: port(&action.port, container)?,
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
            headers: headers.map(|header| (header.name.clone(), header.value.clone())).collect(),
        })
    }

    /// As people write it.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    /// Sends it and reads the answer to its end.
    pub async fn send(&self, timeout: Duration) -> Result<Answer, String> {
        let timed = tokio::time::timeout(timeout, self.exchange()).await;
        timed.unwrap_or_else(|_| {
            Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into())
        })
    }

    async fn exchange(&self) -> Result<Answer, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|error| format!("dial tcp {}: connect: {}", self.authority(), plain(&error)))?;
        if !self.tls {
            return self.speak(stream).await;
        }
        let provider = rustls::crypto::ring::default_provider();
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_no_client_auth();
        let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        self.speak(connector.connect(name, stream).await.map_err(|error| error.to_string())?).await
    }

    async fn speak<S>(&self, stream: S) -> Result<Answer, String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(|error| error.to_string())?;
        let mut request = http::Request::get(&self.path);
        let has = |name: &str| self.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        if !has("host") {
            request = request.header("Host", self.authority());
        }
        if !has("user-agent") {
            request = request.header("User-Agent", "kube-probe/1.35");
        }
        if !has("accept") {
            request = request.header("Accept", "*/*");
        }
        request = request.header("Connection", "close");
        for (name, value) in self.headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let talk = async {
            let mut answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let status = answer.status().as_u16();
            while let Some(Ok(_)) = answer.body_mut().frame().await {}
            Ok(Answer { status })
        };
        let connection = async {
            let _ = connection.await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            answer = talk => answer,
            () = connection => Err("EOF".into()),
        }
    }
}

/// Believes every certificate.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
