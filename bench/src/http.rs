//! A client that does as little as possible: one HTTP/1.1 connection over TLS, one request at a time. It shares the
//! machine with what it measures, so it parses of an answer only what it needs to find its end.

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BytesMut};
use pki::Kubeconfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where an API server is, and what to show it.
#[derive(Clone)]
pub struct Endpoint {
    address: SocketAddr,
    connector: TlsConnector,
}

/// One connection; another one in its place when the server has closed it between two requests.
pub struct Connection {
    endpoint: Endpoint,
    stream: TlsStream<TcpStream>,
    input: BytesMut,
}

/// A request is sent again this often when the server closes the connection instead of answering.
const MOST_RETRIES: usize = 5;

/// What came back.
pub struct Answer {
    pub status: u16,
    /// The length of the body.
    pub bytes: usize,
    /// Whether it was sent more than once: then what it does may have been done before.
    pub repeated: bool,
}

impl Answer {
    /// Complains unless this is the answer to a create.
    pub fn is_created(&self) -> Result<()> {
        // Of a create that was sent twice, the first may have arrived.
        let is_created = self.status == 201 || (self.repeated && self.status == 409);
        ensure!(is_created, "a create was answered {}", self.status);
        Ok(())
    }
}

impl Endpoint {
    /// Reads a kubeconfig.
    pub fn from_file(path: &Path) -> Result<Endpoint> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let config = Kubeconfig::parse(&text).with_context(|| format!("read {}", path.display()))?;
        let address = config.server.strip_prefix("https://").unwrap_or_default().parse();
        let address = address.with_context(|| format!("{} is not https://IP:PORT", config.server))?;
        let (Some(certificate), Some(key)) = (&config.client_cert_pem, &config.client_key_pem) else {
            bail!("{} has no client certificate", path.display());
        };
        Endpoint::new(address, &config.ca_pem, Some((certificate, key)), "http/1.1")
    }

    /// A server whose certificate is of this authority, as somebody with this certificate and key, or as nobody.
    pub fn new(
        address: SocketAddr,
        ca: &str,
        identity: Option<(&str, &str)>,
        protocol: &str,
    ) -> Result<Endpoint> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots.add(root?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut tls = match identity {
            None => tls.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
                tls.with_client_auth_cert(chain.collect::<Result<Vec<_>, _>>()?, key)?
            }
        };
        tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Ok(Endpoint { address, connector: TlsConnector::from(Arc::new(tls)) })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Result<Connection> {
        let (stream, input) = (self.stream().await?, BytesMut::with_capacity(64 << 10));
        Ok(Connection { endpoint: self.clone(), stream, input })
    }

    /// A secured connection, over which anything can be sent.
    pub async fn stream(&self) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        self.connector.connect(name, stream).await.context("TLS handshake")
    }
}

/// The bytes of a request.
pub fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

impl Connection {
    /// Sends a request and reads the whole answer; the body goes into `body` if there is one to fill.
    pub async fn exchange(&mut self, request: &[u8], mut body: Option<&mut Vec<u8>>) -> Result<Answer> {
        let (status, framing, repeated) = self.begin(request).await?;
        let mut take = |bytes: &[u8]| {
            if let Some(body) = &mut body {
                body.extend_from_slice(bytes);
            }
        };
        let bytes = match framing {
            Framing::Length(length) => {
                self.skip(length, &mut take).await?;
                length
            }
            Framing::Chunked => {
                let mut total = 0;
                loop {
                    let length = self.chunk_length().await?;
                    self.skip(length, &mut take).await?;
                    self.skip(2, |_| {}).await?;
                    total += length;
                    if length == 0 {
                        break total;
                    }
                }
            }
        };
        Ok(Answer { status, bytes, repeated })
    }

    /// Sends bytes, whatever they are.
    pub async fn say(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Begins a watch; from now on, [`Connection::events`].
    pub async fn watch(&mut self, request: &[u8]) -> Result<()> {
        let (status, ..) = self.begin(request).await?;
        ensure!(status == 200, "a watch was answered {status}");
        Ok(())
    }

    /// Waits for bytes of a watch; how many, and how many events end in them. An event ends in a newline; the lines
    /// of the chunks around it have a carriage return too, and nothing else does.
    pub async fn events(&mut self) -> Result<(u64, i64)> {
        if self.input.is_empty() {
            self.fill().await?;
        }
        let count = |wanted: u8| self.input.iter().filter(|byte| **byte == wanted).count() as i64;
        let read = (self.input.len() as u64, count(b'\n') - count(b'\r'));
        self.input.clear();
        Ok(read)
    }

    /// Sends a request until the head of its answer comes: a server may close a connection that it keeps alive at any
    /// moment between two answers.
    async fn begin(&mut self, request: &[u8]) -> Result<(u16, Framing, bool)> {
        let mut retries = 0;
        let end = loop {
            match self.send(request).await {
                Ok(end) => break end,
                Err(_) if self.input.is_empty() && retries < MOST_RETRIES => {
                    retries += 1;
                    self.stream = self.endpoint.stream().await?;
                }
                Err(error) => return Err(error),
            }
        };
        let head = self.input.split_to(end);
        let head = std::str::from_utf8(&head)?;
        let status = head.get(9..12).unwrap_or_default().parse().context("not an HTTP answer")?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        Ok((status, length.map_or(Framing::Chunked, Framing::Length), retries > 0))
    }

    /// Sends a request; where the head of its answer ends.
    async fn send(&mut self, request: &[u8]) -> Result<usize> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.find(b"\r\n\r\n").await
    }

    async fn chunk_length(&mut self) -> Result<usize> {
        let end = self.find(b"\r\n").await?;
        let line = self.input.split_to(end);
        usize::from_str_radix(std::str::from_utf8(&line)?.trim(), 16).context("not a chunk")
    }

    /// The end of the first place where this is; reads until there is one.
    async fn find(&mut self, pattern: &[u8]) -> Result<usize> {
        loop {
            if let Some(at) = self.input.windows(pattern.len()).position(|window| window == pattern) {
                return Ok(at + pattern.len());
            }
            self.fill().await?;
        }
    }

    async fn skip(&mut self, mut length: usize, mut take: impl FnMut(&[u8])) -> Result<()> {
        while length > 0 {
            if self.input.is_empty() {
                self.fill().await?;
            }
            let part = length.min(self.input.len());
            take(&self.input[..part]);
            self.input.advance(part);
            length -= part;
        }
        Ok(())
    }

    async fn fill(&mut self) -> Result<()> {
        self.input.reserve(16 << 10);
        ensure!(self.stream.read_buf(&mut self.input).await? > 0, "the server closed the connection");
        Ok(())
    }
}

enum Framing {
    Length(usize),
    Chunked,
}
