//! Secured connections over which anything at all can be sent.

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::sync::Arc;
use testing::{TestServer, in_time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A connection that speaks `h2` or `http/1.1`, as admin or as nobody.
pub async fn open(server: &TestServer, protocol: &str, as_admin: bool) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let name = ServerName::from(server.address().ip());
    let connector = TlsConnector::from(Arc::new(config(server, protocol, as_admin)));
    in_time("a secured connection", connector.connect(name, stream)).await.unwrap()
}

/// What a client needs to know of the server.
pub fn config(server: &TestServer, protocol: &str, as_admin: bool) -> ClientConfig {
    let text = std::fs::read_to_string(server.data_dir().join("admin.kubeconfig")).unwrap();
    let admin = pki::Kubeconfig::parse(&text).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(admin.ca_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = if as_admin {
        let chain = vec![CertificateDer::from_pem_slice(admin.client_cert_pem.unwrap().as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(admin.client_key_pem.unwrap().as_bytes()).unwrap();
        builder.with_client_auth_cert(chain, key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    config
}

/// Sends text and makes sure that it has left.
pub async fn send(stream: &mut TlsStream<TcpStream>, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

/// All that comes until the server ends the connection.
pub async fn rest(stream: &mut TlsStream<TcpStream>) -> String {
    let mut received = Vec::new();
    // However it ends: with TLS's own words or without.
    let _ = in_time("the server ends the connection", stream.read_to_end(&mut received)).await;
    String::from_utf8_lossy(&received).into_owned()
}
