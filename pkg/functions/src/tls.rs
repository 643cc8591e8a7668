//! What the activator shows of itself, and what it believes of those who call: the API server's own certificate, by
//! which it hands on who asks, and otherwise only tokens.

use crate::run::Error;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The files of a server.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Its certificate.
    pub certificate: PathBuf,
    /// The key of that.
    pub key: PathBuf,
    /// Whose certificates may say who asks; nobody's, if there is none.
    pub front_proxy: Option<PathBuf>,
}

/// Secures connections, with the files as they are now.
pub struct Tls {
    files: Files,
    current: Mutex<(Option<SystemTime>, TlsAcceptor)>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// What is wrong with one.
    pub fn new(files: Files) -> Result<Tls, Error> {
        let current = Mutex::new((changed(&files.certificate), acceptor(&files)?));
        Ok(Tls { files, current })
    }

    /// What secures the next connection. Files that were renewed are read again.
    pub fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock();
        let changed = changed(&self.files.certificate);
        if current.0 != changed {
            match acceptor(&self.files) {
                Ok(acceptor) => *current = (changed, acceptor),
                Err(error) => tracing::warn!(%error, "the renewed certificate is not taken"),
            }
        }
        current.1.clone()
    }
}

/// Whether whoever connected is the API server, handing on who asks.
pub fn is_front_proxy<Io>(stream: &TlsStream<Io>) -> bool {
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let own = certificates.first().and_then(|certificate| pki::Facts::from_der(certificate).ok());
    own.is_some_and(|facts| facts.common_name == pki::FRONT_PROXY_CLIENT)
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn acceptor(files: &Files) -> Result<TlsAcceptor, Error> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|error| Error::File(path.to_owned(), error.to_string()));
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, Error> {
        let text = read(path)?;
        let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        parsed.map_err(|error| Error::File(path.to_owned(), error.to_string()))
    };
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|error| Error::File(files.key.clone(), error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| Error::Tls(error.to_string()))?;
    let builder = match &files.front_proxy {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| Error::File(path.clone(), error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| Error::Tls(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(certificates(&files.certificate)?, key)
        .map_err(|error| Error::File(files.certificate.clone(), error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
