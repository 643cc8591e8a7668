//! TLS: the certificate that is shown, and which client certificates are believed.

use jiff::Timestamp;
use parking_lot::RwLock;
use pki::{Authority, San};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::{ClientHello, NoClientAuth, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use std::sync::Arc;

/// The certificate that is shown, which may be replaced while serving, and whose client certificates are believed.
#[derive(Clone)]
pub struct Serving {
    pub(super) config: Arc<ServerConfig>,
    shown: Arc<Shown>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate could not be made.
    #[error("make a serving certificate")]
    Pki(#[from] pki::Error),
    /// A certificate, key or authority cannot be used.
    #[error("use the serving certificate")]
    Rustls(#[from] rustls::Error),
    /// A text is not PEM.
    #[error("read PEM: {0}")]
    Pem(String),
}

impl Serving {
    /// Shows this certificate. Client certificates of the authorities in `client_ca_pem` are believed; empty: none is asked for.
    pub fn new(certificate_pem: &str, key_pem: &str, client_ca_pem: &str) -> Result<Serving, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(client_ca_pem.as_bytes()) {
            roots.add(root.map_err(not_pem)?)?;
        }
        let clients = if roots.is_empty() {
            Arc::new(NoClientAuth)
        } else {
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .allow_unauthenticated()
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?
        };
        let shown = Arc::new(Shown(RwLock::new(certified(certificate_pem, key_pem)?)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(shown.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Serving { config: Arc::new(config), shown })
    }

    /// Shows a certificate of its own making, as upstream's kubelet does where it is given none.
    pub fn self_signed(
        node_name: &str,
        addresses: &[String],
        client_ca_pem: &str,
        now: Timestamp,
    ) -> Result<Serving, TlsError> {
        let authority = Authority::create(&format!("{node_name}-ca@{}", now.as_second()), now)?;
        let names: Vec<San> =
            std::iter::once(node_name).chain(addresses.iter().map(String::as_str)).map(San::parse).collect();
        let made = authority.server(&format!("{node_name}@{}", now.as_second()), &names, now)?;
        Serving::new(&made.certificate, &made.key, client_ca_pem)
    }

    /// Shows another certificate from now on. Connections that are open stay.
    pub fn show(&self, certificate_pem: &str, key_pem: &str) -> Result<(), TlsError> {
        *self.shown.0.write() = certified(certificate_pem, key_pem)?;
        Ok(())
    }
}

fn certified(certificate_pem: &str, key_pem: &str) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(not_pem)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(not_pem)?;
    let certified = CertifiedKey::new(chain, rustls::crypto::ring::sign::any_supported_type(&key)?);
    certified.keys_match()?;
    Ok(Arc::new(certified))
}

fn not_pem(error: rustls::pki_types::pem::Error) -> TlsError {
    TlsError::Pem(error.to_string())
}

#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}
