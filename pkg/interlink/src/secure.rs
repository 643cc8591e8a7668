//! Who may speak on a hop: bearer tokens, certificates of both sides, and, without either, only the same user of the machine.
//!
//! ```text
//! Config ──> TlsFiles, token file ──┬──> Guard    what a server asks for
//!                                   └──> Caller   what a client shows
//! ```
//!
//! Files are read again when they are used: what is renewed counts without a restart.

use crate::config::TlsFiles;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::digest::{SHA256, digest};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A token is no longer than this.
const LONGEST_TOKEN: u64 = 64 * 1024;

/// What a file of secrets lacks.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// It cannot be read.
    #[error("read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{path}: {what}")]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// TLS cannot be set up of it.
    #[error("set up TLS")]
    Tls(#[from] rustls::Error),
    /// Strangers could reach what nobody guards.
    #[error(
        "{0} can be reached by others: set {1} (a token file) or {2}.CACertFile (client certificates), or listen on 127.0.0.1"
    )]
    Open(SocketAddr, &'static str, &'static str),
}

/// A file with a token, which only its owner may read.
#[derive(Debug, Clone)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// Of a path; it must be readable now.
    pub fn new(path: &Path) -> Result<TokenFile, SecureError> {
        let file = TokenFile(path.to_owned());
        file.read()?;
        Ok(file)
    }

    /// The token, as it is now.
    pub fn read(&self) -> Result<String, SecureError> {
        use std::io::Read;
        use std::os::unix::fs::MetadataExt;
        let failed = |source| SecureError::Read { path: self.0.clone(), source };
        let wrong = |what: &str| SecureError::Content { path: self.0.clone(), what: what.to_owned() };
        let file = std::fs::File::open(&self.0).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode();
        // A Secret in a pod is readable by its group, and by all unless it says otherwise: there it is the pod's own.
        if mode & 0o022 != 0 {
            return Err(wrong("others may write to it: chmod go-w it"));
        }
        let mut text = String::new();
        file.take(LONGEST_TOKEN).read_to_string(&mut text).map_err(failed)?;
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("has no token: one line of printable characters is expected"));
        }
        Ok(token.to_owned())
    }
}

/// What a server asks of whoever connects.
pub struct Guard {
    token: Option<TokenFile>,
    /// With a certificate of its own; says whether it asks for the client's.
    tls: Option<TlsFiles>,
    asks_for_certificates: bool,
}

impl Guard {
    /// From the files of a hop.
    pub fn new(tls: &TlsFiles, token_file: Option<&Path>) -> Result<Guard, SecureError> {
        let guard = Guard {
            token: token_file.map(TokenFile::new).transpose()?,
            tls: tls.certificate.is_some().then(|| tls.clone()),
            asks_for_certificates: tls.certificate.is_some() && tls.ca.is_some(),
        };
        guard.server_config()?;
        Ok(guard)
    }

    /// Refuses to listen where strangers would be let in.
    pub fn may_listen(
        &self,
        at: SocketAddr,
        token: &'static str,
        tls: &'static str,
    ) -> Result<(), SecureError> {
        if self.lets_anybody_in() && !at.ip().is_loopback() {
            return Err(SecureError::Open(at, token, tls));
        }
        Ok(())
    }

    /// Neither token nor certificate is asked for: then only the same user of this machine is let in.
    pub fn lets_anybody_in(&self) -> bool {
        self.token.is_none() && !self.asks_for_certificates
    }

    /// TLS, with the certificates of the moment; none: it is not used.
    pub fn server_config(&self) -> Result<Option<Arc<ServerConfig>>, SecureError> {
        let Some(files) = &self.tls else { return Ok(None) };
        let (Some(certificate), Some(key)) = (&files.certificate, &files.key) else { return Ok(None) };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        let builder = match &files.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(roots(ca)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                let wrong =
                    |error: rustls::server::VerifierBuilderError| rustls::Error::General(error.to_string());
                builder.with_client_cert_verifier(verifier.map_err(wrong)?)
            }
        };
        let mut config = builder.with_single_cert(chain(certificate)?, private_key(key)?)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(Arc::new(config)))
    }

    /// Whether a request shows the token, if one is asked for.
    pub fn admits(&self, headers: &HeaderMap) -> Result<bool, SecureError> {
        let Some(token) = &self.token else { return Ok(true) };
        let expected = token.read()?;
        let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|text| text.split_once(' '));
        let Some((scheme, shown)) = shown else { return Ok(false) };
        // Digests are compared: how long that takes says nothing of the token.
        let same = digest(&SHA256, shown.trim().as_bytes()).as_ref()
            == digest(&SHA256, expected.as_bytes()).as_ref();
        Ok(scheme.eq_ignore_ascii_case("bearer") && same)
    }
}

/// TLS as a client of a hop uses it.
pub fn client_config(files: &TlsFiles) -> Result<ClientConfig, SecureError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = match &files.ca {
        Some(ca) => roots(ca)?,
        None => RootCertStore::empty(),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_root_certificates(roots);
    Ok(match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            builder.with_client_auth_cert(chain(certificate)?, private_key(key)?)?
        }
        _ => builder.with_no_client_auth(),
    })
}

fn roots(path: &Path) -> Result<RootCertStore, SecureError> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(path)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecureError> {
    let wrong = |what: String| SecureError::Content { path: path.to_owned(), what };
    let text = std::fs::read(path).map_err(|source| SecureError::Read { path: path.to_owned(), source })?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| wrong(error.to_string()))?;
    if all.is_empty() { Err(wrong("has no certificate in PEM".into())) } else { Ok(all) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, SecureError> {
    let text = std::fs::read(path).map_err(|source| SecureError::Read { path: path.to_owned(), source })?;
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|error| SecureError::Content { path: path.to_owned(), what: error.to_string() })
}

/// Whether the other end of a connection within this machine belongs to root or to the user of this program.
pub fn is_same_user(own: SocketAddr, peer: SocketAddr) -> bool {
    let table = match peer.ip() {
        IpAddr::V4(_) => "/proc/net/tcp",
        IpAddr::V6(_) => "/proc/net/tcp6",
    };
    let text = std::fs::read_to_string(table).unwrap_or_default();
    let me = nix::unistd::geteuid().as_raw();
    owner(&text, peer, own).is_some_and(|uid| uid == 0 || uid == me)
}

/// Whose an established connection is, by the kernel's table.
fn owner(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    const ESTABLISHED: &str = "01";
    let (local, remote) = (hex(local), hex(remote));
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1) == Some(&local.as_str()) && fields.get(2) == Some(&remote.as_str());
        if is_it && fields.get(3) == Some(&ESTABLISHED) { fields.get(7)?.parse().ok() } else { None }
    })
}

/// An address as the kernel writes it: words in the machine's own order.
fn hex(address: SocketAddr) -> String {
    let words: Vec<u8> = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let mut text = String::new();
    for word in words.chunks(4) {
        let word: [u8; 4] = word.try_into().unwrap_or_default();
        text.push_str(&format!("{:08X}", u32::from_ne_bytes(word)));
    }
    format!("{text}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_must_be_shown_as_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "first\n").unwrap();
        let guard = Guard::new(&TlsFiles::default(), Some(&path)).unwrap();
        let shows = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, text.parse().unwrap());
            guard.admits(&headers).unwrap()
        };
        assert!(shows("Bearer first") && shows("bearer first"));
        assert!(!shows("Bearer firs") && !shows("first") && !shows("Basic first") && !shows("Bearer"));
        assert!(!guard.admits(&HeaderMap::new()).unwrap());
        std::fs::write(&path, "second").unwrap();
        assert!(shows("Bearer second") && !shows("Bearer first"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(guard.admits(&HeaderMap::new()).is_err());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(guard.admits(&HeaderMap::new()).is_err());
    }

    #[test]
    fn nobody_listens_unguarded_where_others_are() {
        let open = Guard::new(&TlsFiles::default(), None).unwrap();
        assert!(open.may_listen("127.0.0.1:1".parse().unwrap(), "VKTokenFile", "TLS").is_ok());
        let error = open.may_listen("0.0.0.0:1".parse().unwrap(), "VKTokenFile", "TLS").unwrap_err();
        assert!(error.to_string().contains("VKTokenFile"), "{error}");
    }

    #[test]
    fn who_is_at_the_other_end_is_known() {
        let table =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:A001 0100007F:0BB8 06 00000000:00000000 00:00000000 00000000     0        0 11 1
   1: 0100007F:A001 0100007F:0BB8 01 00000000:00000000 00:00000000 00000000  1000        0 11 1";
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(owner(table, at(0xa001), at(3000)), Some(1000));
        assert_eq!(owner(table, at(0xa002), at(3000)), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        assert!(is_same_user(server.local_addr().unwrap(), peer));
        drop(client);
    }
}
