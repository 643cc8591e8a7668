//! A connection to somebody else, for one request.

use super::location::{Place, Scheme};
use crate::server::Server;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme};
use std::io::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Whoever takes longer than this to take a connection is not there.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The body of a request that is forwarded.
pub type Sent = UnsyncBoxBody<Bytes, hyper::Error>;

/// Sends a request and gives back the answer, whose body comes as it is read. The connection lives as long as it does.
pub async fn send(
    server: &Arc<Server>,
    place: &Place,
    request: Request<Sent>,
) -> std::io::Result<Response<Incoming>> {
    let about = |error: Error| Error::new(error.kind(), format!("dial tcp {}: {error}", place.authority()));
    let slow = |_| Error::new(std::io::ErrorKind::TimedOut, "i/o timeout");
    let opening = async {
        let stream = TcpStream::connect((place.host.as_str(), place.port)).await?;
        stream.set_nodelay(true)?;
        match place.scheme {
            Scheme::Http => Ok(Box::new(stream) as Box<dyn Stream>),
            scheme => {
                let config = tls(server, scheme).map_err(Error::other)?;
                let name = ServerName::try_from(place.host.clone()).map_err(Error::other)?;
                Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
                    as Box<dyn Stream>)
            }
        }
    };
    let opened = tokio::time::timeout(TIMEOUT, opening).await.map_err(slow).and_then(|opened| opened);
    let stream = opened.map_err(about)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Sent>(TokioIo::new(stream)).await.map_err(Error::other)?;
    let shutdown = server.shutdown.clone();
    server.streams.spawn(async move {
        tokio::select! {
            _ = connection.with_upgrades() => {}
            () = shutdown.cancelled() => {}
        }
    });
    sender.send_request(request).await.map_err(Error::other)
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The files are read each time: they may have been renewed, and a connection is not made often.
fn tls(server: &Server, scheme: Scheme) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = &server.config;
    let verifier: Arc<dyn ServerCertVerifier> = match (&config.kubelet_certificate_authority, scheme) {
        (Some(path), Scheme::Kubelet) => {
            let mut roots = RootCertStore::empty();
            for root in CertificateDer::pem_slice_iter(&std::fs::read(path)?) {
                roots.add(root?)?;
            }
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?
        }
        _ => Arc::new(Unverified(provider.signature_verification_algorithms)),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    if scheme != Scheme::Kubelet {
        return Ok(builder.with_no_client_auth());
    }
    let (certificate, key) = match &config.kubelet_client {
        Some((certificate, key)) => (certificate.clone(), key.clone()),
        None => {
            let file = |name: &str| Path::new(config.cert_dir()).join(name);
            (file("apiserver-kubelet-client.crt"), file("apiserver-kubelet-client.key"))
        }
    };
    let chain =
        CertificateDer::pem_slice_iter(&std::fs::read(certificate)?).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&std::fs::read(key)?)?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}

/// Takes any certificate, as upstream does of kubelets (whose certificates are often their own) unless it is told whom
/// to believe, and of pods and services. Nothing secret is sent but what the client sends there itself.
#[derive(Debug)]
struct Unverified(rustls::crypto::WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
