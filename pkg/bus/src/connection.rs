//! A connection to Redis: TCP or TLS, a user and its password, and then commands or messages.
//!
//! Nothing is kept in queues here: who does not read lets Redis wait, and Redis closes the connection when it has waited for
//! too much (`client-output-buffer-limit pubsub`), which is a reconnect like any other.

use crate::resp::{self, Malformed, Reply, command, shrink};
use crate::server::RedisServer;
use bytes::BytesMut;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long Redis may take until it has let us in.
const PATIENCE: Duration = Duration::from_secs(4);

/// Who somebody is at Redis. What it shows has no password.
#[derive(Clone, Default)]
pub struct Login {
    /// The user; Redis' default user where there is none.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// Certificates of authorities, as PEM, for TLS.
    pub authorities: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login of {:?}", self.user)
    }
}

/// What is wrong with Redis, or with us.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// It cannot be reached, or has gone.
    #[error("{doing} at {place}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Where.
        place: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// It closed the connection.
    #[error("Redis closed the connection")]
    Closed,
    /// It did not answer in time.
    #[error("Redis does not answer")]
    Silent,
    /// It is no Redis.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It says no.
    #[error("Redis refuses: {0}")]
    Refused(String),
    /// The certificates of authorities cannot be used.
    #[error("TLS with Redis: {0}")]
    Tls(String),
    /// A file that is needed to be let in.
    #[error("{0}")]
    File(String),
    /// The password cannot be had.
    #[error("the password for Redis: {0}")]
    Password(String),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that Redis has let in.
pub struct Connection {
    reader: Reader,
    writer: Writer,
}

/// What Redis says.
pub struct Reader {
    half: ReadHalf<Box<dyn Stream>>,
    buffer: BytesMut,
    place: String,
}

/// What it is told.
pub struct Writer {
    half: WriteHalf<Box<dyn Stream>>,
    place: String,
}

impl Connection {
    /// Connects, and says who we are.
    pub async fn open(server: &RedisServer, login: &Login) -> Result<Connection, RedisError> {
        match tokio::time::timeout(PATIENCE, connect(server, login)).await {
            Ok(result) => result,
            Err(_) => Err(RedisError::Silent),
        }
    }

    /// Asks one thing.
    ///
    /// # Errors
    /// [`RedisError::Refused`] with Redis' words, if it says no.
    pub async fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Reply, RedisError> {
        self.writer.send(&command(words)).await?;
        match self.reader.next().await? {
            Reply::Refused(words) => Err(RedisError::Refused(words)),
            reply => Ok(reply),
        }
    }

    /// Both directions, for whoever does not wait for one answer after the other.
    pub fn split(self) -> (Reader, Writer) {
        (self.reader, self.writer)
    }
}

impl Reader {
    /// The next thing that Redis says. Cancelled and called again, it loses nothing.
    pub async fn next(&mut self) -> Result<Reply, RedisError> {
        loop {
            if let Some(reply) = resp::take(&mut self.buffer)? {
                shrink(&mut self.buffer);
                return Ok(reply);
            }
            self.buffer.reserve(4096);
            match self.half.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(RedisError::Closed),
                Ok(_) => {}
                Err(source) => {
                    return Err(RedisError::Io { doing: "read", place: self.place.clone(), source });
                }
            }
        }
    }
}

impl Writer {
    /// Says something.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), RedisError> {
        let io = async {
            self.half.write_all(bytes).await?;
            self.half.flush().await
        };
        io.await.map_err(|source| RedisError::Io { doing: "write", place: self.place.clone(), source })
    }
}

async fn connect(server: &RedisServer, login: &Login) -> Result<Connection, RedisError> {
    let place = format!("{}:{}", server.host, server.port);
    let failed = |source| RedisError::Io { doing: "connect", place: place.clone(), source };
    let stream = TcpStream::connect((server.host.as_str(), server.port)).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let stream: Box<dyn Stream> = if server.tls {
        let name = ServerName::try_from(server.host.clone())
            .map_err(|_| RedisError::Tls(format!("{:?} is not a name", server.host)))?;
        Box::new(connector(login)?.connect(name, stream).await.map_err(failed)?)
    } else {
        Box::new(stream)
    };
    let (reader, writer) = tokio::io::split(stream);
    let mut connection = Connection {
        reader: Reader { half: reader, buffer: BytesMut::new(), place: place.clone() },
        writer: Writer { half: writer, place },
    };
    match (&login.user, &login.password) {
        (Some(user), password) => {
            connection.call(&["AUTH", user, password.as_deref().unwrap_or_default()]).await?;
        }
        (None, Some(password)) => drop(connection.call(&["AUTH", password]).await?),
        (None, None) => {}
    }
    Ok(connection)
}

fn connector(login: &Login) -> Result<TlsConnector, RedisError> {
    let pem = login.authorities.as_deref().ok_or_else(|| {
        RedisError::Tls("--redis-cafile is missing: which CA has signed its certificate?".into())
    })?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| RedisError::Tls(error.to_string()))?;
        roots.add(certificate).map_err(|error| RedisError::Tls(error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| RedisError::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
