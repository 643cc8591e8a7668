//! TLS towards others: whom we believe, and whom we say we are.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whom everybody believes, where nobody is named.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Why there is no TLS.
pub type Failed = Box<dyn Error + Send + Sync>;

/// The certificate to show, and its key.
pub type Identity = (PathBuf, PathBuf);

/// Whom to believe.
pub enum Trust {
    /// Whoever answers.
    Anybody,
    /// Whom one of these has signed for.
    Roots(RootCertStore),
}

impl Trust {
    /// Those of a file.
    pub fn file(path: &Path) -> Result<Trust, Failed> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(&std::fs::read(path)?) {
            roots.add(root?)?;
        }
        Ok(Trust::Roots(roots))
    }

    /// Those of a `caBundle`; the system's, if it is empty.
    pub fn bundle(bundle: &str) -> Result<Trust, String> {
        let pem = match bundle {
            "" => std::fs::read(SYSTEM_ROOTS).unwrap_or_default(),
            bundle => STANDARD.decode(bundle).map_err(|error| error.to_string())?,
        };
        let mut roots = RootCertStore::empty();
        let (added, _) =
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
        match added {
            0 => Err("unable to load root certificates: unable to parse bytes as PEM block".into()),
            _ => Ok(Trust::Roots(roots)),
        }
    }
}

/// TLS with somebody. The files are read each time: they may have been renewed.
pub fn config(trust: Trust, identity: Option<&Identity>) -> Result<ClientConfig, Failed> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Roots(roots) => {
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?
        }
        Trust::Anybody => Arc::new(Unverified(provider.signature_verification_algorithms)),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some((certificate, key)) => {
            let chain = std::fs::read(certificate)?;
            let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&std::fs::read(key)?)?)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
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
