//! TLS: which certificate is shown, and what is asked of clients.
//!
//! A client certificate is optional, and a wrong one does not end the handshake: it is looked at here, and the
//! request is answered 401, which people can read, instead of a TLS alert, which they cannot.

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme};
use std::sync::Arc;

/// What connections are secured with.
pub struct Tls {
    /// For the acceptor.
    pub config: Arc<ServerConfig>,
    certificate: Arc<Shown>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Tls {
    /// Shows this certificate and believes client certificates of these authorities.
    pub fn new(certificate_pem: &[u8], key_pem: &[u8], client_ca_pem: &[u8]) -> Result<Tls, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(client_ca_pem) {
            roots.add(root.map_err(not_pem)?)?;
        }
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let certificate = Arc::new(Shown(RwLock::new(certified(certificate_pem, key_pem)?)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_client_cert_verifier(Arc::new(Lenient(clients.clone())))
            .with_cert_resolver(certificate.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { config: Arc::new(config), certificate, clients })
    }

    /// Shows another certificate from now on. Connections that are open stay.
    pub fn show(&self, certificate_pem: &[u8], key_pem: &[u8]) -> Result<(), Error> {
        *self.certificate.0.write() = certified(certificate_pem, key_pem)?;
        Ok(())
    }

    /// Whether the certificates that a client has shown are good.
    pub fn verify_client(&self, chain: &[CertificateDer<'_>]) -> Result<(), Error> {
        let (first, rest) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        self.clients.verify_client_cert(first, rest, UnixTime::now()).map(|_| ())
    }
}

fn certified(certificate_pem: &[u8], key_pem: &[u8]) -> Result<Arc<CertifiedKey>, Error> {
    let chain =
        CertificateDer::pem_slice_iter(certificate_pem).collect::<Result<Vec<_>, _>>().map_err(not_pem)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(not_pem)?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match()?;
    Ok(Arc::new(certified))
}

fn not_pem(error: rustls::pki_types::pem::Error) -> Error {
    Error::General(format!("not PEM: {error}"))
}

#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

/// Takes any certificate whose key the client really has; [`Tls::verify_client`] decides about it.
#[derive(Debug)]
struct Lenient(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Lenient {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
