//! Connections to a server: accepted one after the other, secured, and served by HTTP, with bounds on how many there are
//! and on how long each keeps us waiting.
//!
//! ```text
//! Doors ── accept ──> Connection ── secure ──> Connection ── serve ──> requests
//!   │ crowd: who holds how many, whose oldest ends     │ patience: what it keeps us waiting for, and how long
//! ```

use crate::crowd::Crowd;
use crate::limits::{ConnectionLimits, most_files};
use crate::patience::{Begun, Patience, Verdict};
use crate::watched::{Answer, Taken, Watched};
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A failing accept (too many open files) is tried again after this, when others may have closed theirs.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// An idle connection that was told to end is closed after this.
const FAREWELL: Duration = Duration::from_secs(5);
/// Whether the other side is still there is asked after so long without a word.
const KEEPALIVE: Duration = Duration::from_secs(180);
/// The bytes of a request's headers, and of what is read or written at once.
const LARGEST_BUFFER: usize = 128 * 1024;
/// The bytes of the headers of a request over HTTP/2.
const LARGEST_HEADERS: u32 = 64 * 1024;
/// What of an answer over HTTP/2 waits for its client to have room.
const LARGEST_SEND_BUFFER: usize = 128 * 1024;

/// The next connection; none after shutdown.
pub async fn accept(listener: &TcpListener, shutdown: &CancellationToken) -> Option<TcpStream> {
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => return Some(stream),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Where connections come in.
pub struct Doors {
    limits: ConnectionLimits,
    strangers: Mutex<Crowd<IpAddr, CancellationToken>>,
    users: Mutex<Crowd<Arc<str>, CancellationToken>>,
    next: AtomicU64,
    http: Builder<TokioExecutor>,
    http_for_strangers: Builder<TokioExecutor>,
}

impl Doors {
    /// With these limits, as far as the number of open files allows them.
    pub fn new(limits: ConnectionLimits) -> Arc<Doors> {
        let limits = limits.within(most_files());
        Arc::new(Doors {
            strangers: Mutex::new(Crowd::new(limits.of_strangers())),
            users: Mutex::new(Crowd::new(limits.of_users())),
            next: AtomicU64::new(0),
            http: http(limits.streams),
            http_for_strangers: http((limits.streams / 4).max(1)),
            limits,
        })
    }

    /// The next connection; none after shutdown.
    pub async fn accept(
        self: &Arc<Doors>,
        listener: &TcpListener,
        shutdown: &CancellationToken,
    ) -> Option<Connection<Watched>> {
        let socket = accept(listener, shutdown).await?;
        let _ = socket.set_nodelay(true);
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 6);
        let _ = socket2::SockRef::from(&socket).set_tcp_keepalive(&keepalive);
        let address = socket.peer_addr().map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |peer| peer.ip());
        let peer = Arc::new(Peer {
            doors: self.clone(),
            id: self.next.fetch_add(1, Relaxed),
            holder: Mutex::new(Holder::Stranger(source(address))),
            is_known: AtomicBool::new(false),
            patience: Mutex::new(Patience::new(Instant::now())),
            changed: Notify::new(),
            ended: CancellationToken::new(),
        });
        let loser = self.strangers.lock().enter(source(address), peer.id, peer.ended.clone());
        if let Some(loser) = loser {
            loser.cancel();
        }
        Some(Connection { io: Watched::new(socket, peer.clone()), peer })
    }
}

/// Where somebody comes from: with IPv6 a network, since whoever has one address there has them all.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

/// HTTP of both versions. Time is [`Patience`]'s to judge.
fn http(streams: u32) -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(LARGEST_BUFFER);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams)
        .max_header_list_size(LARGEST_HEADERS)
        .max_send_buf_size(LARGEST_SEND_BUFFER);
    http
}

/// Who holds a connection.
enum Holder {
    /// Somebody at this address who has not said who it is.
    Stranger(IpAddr),
    /// A user.
    User(Arc<str>),
    /// One of the cluster's own programs: they are always let in.
    Cluster,
}

/// The other side of a connection.
pub struct Peer {
    doors: Arc<Doors>,
    id: u64,
    holder: Mutex<Holder>,
    is_known: AtomicBool,
    patience: Mutex<Patience>,
    /// Told when there is a moment to wait for and nobody waits.
    changed: Notify,
    /// Cancelled when others need its place.
    ended: CancellationToken,
}

impl Peer {
    /// Whether it has said who it is.
    pub fn is_known(&self) -> bool {
        self.is_known.load(Relaxed)
    }

    /// It has said who it is: a user, or somebody acting for one, who shares what one user may hold.
    pub fn is_user(&self, name: &str) {
        self.becomes(Holder::User(name.into()));
    }

    /// It is one of the cluster's own programs, or its administrator.
    pub fn is_of_cluster(&self) {
        self.becomes(Holder::Cluster);
    }

    fn becomes(&self, known: Holder) {
        if self.is_known.swap(true, Relaxed) {
            return;
        }
        let mut holder = self.holder.lock();
        if self.forget(&holder).is_none() {
            return;
        }
        if let Holder::User(name) = &known {
            let loser = self.doors.users.lock().enter(name.clone(), self.id, self.ended.clone());
            if let Some(loser) = loser {
                loser.cancel();
            }
        }
        *holder = known;
    }

    fn forget(&self, holder: &Holder) -> Option<CancellationToken> {
        match holder {
            Holder::Stranger(address) => self.doors.strangers.lock().leave(address, self.id),
            Holder::User(name) => self.doors.users.lock().leave(name, self.id),
            Holder::Cluster => None,
        }
    }

    /// Completes when others need its place.
    pub(crate) fn ended(&self) -> WaitForCancellationFutureOwned {
        self.ended.clone().cancelled_owned()
    }

    /// Its socket is closed.
    pub(crate) fn left(&self) {
        let holder = self.holder.lock();
        self.forget(&holder);
    }

    pub(crate) fn heard(&self) {
        self.patience.lock().heard(Instant::now());
    }

    pub(crate) fn socket_is_full(&self) {
        self.change(|patience| patience.socket_is_full(Instant::now()));
    }

    pub(crate) fn socket_took(&self, bytes: usize) {
        let mut patience = self.patience.lock();
        if patience.is_socket_full() {
            patience.socket_took(bytes, Instant::now());
        }
    }

    pub(crate) fn socket_is_empty(&self) {
        self.patience.lock().socket_is_empty();
    }

    pub(crate) fn answered(&self, answer: u64, begun: Begun) {
        self.patience.lock().answered(answer, begun);
    }

    pub(crate) fn give(&self, answer: u64) {
        self.change(|patience| patience.give(answer, Instant::now()));
    }

    pub(crate) fn take(&self, answer: u64, bytes: usize) {
        self.change(|patience| patience.take(answer, bytes, Instant::now()));
    }

    pub(crate) fn over(&self, answer: u64) {
        self.change(|patience| patience.over(answer, Instant::now()));
    }

    /// Changes something that whoever waits without a moment in mind must look at.
    fn change(&self, change: impl FnOnce(&mut Patience)) {
        let mut patience = self.patience.lock();
        change(&mut patience);
        if std::mem::take(&mut patience.is_resting) {
            self.changed.notify_one();
        }
    }

    /// Waits until it is idle or has kept us waiting for too long.
    async fn outstays(&self) -> Verdict {
        loop {
            let verdict = {
                let mut patience = self.patience.lock();
                let verdict = patience.verdict(Instant::now(), &self.doors.limits);
                patience.is_resting = verdict == Verdict::Rest;
                verdict
            };
            match verdict {
                Verdict::Rest => self.changed.notified().await,
                Verdict::LookAgain(moment) => tokio::time::sleep_until(moment.into()).await,
                Verdict::Idle | Verdict::Overdue(_) => return verdict,
            }
        }
    }
}

/// A connection, over whatever it goes.
pub struct Connection<Io> {
    io: Io,
    peer: Arc<Peer>,
}

impl Connection<Watched> {
    /// Secures it; none if the client does not manage to in time.
    pub async fn secure(self, acceptor: &TlsAcceptor) -> Option<Connection<TlsStream<Watched>>> {
        let peer = self.peer;
        let secured = tokio::select! {
            secured = tokio::time::timeout(peer.doors.limits.handshake, acceptor.accept(self.io)) => secured,
            () = peer.ended.cancelled() => return None,
        };
        match secured {
            Ok(Ok(io)) => return Some(Connection { io, peer }),
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake timed out"),
        }
        None
    }
}

impl<Io> Connection<Io> {
    /// Who is at the other end.
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// What it goes over.
    pub fn io(&self) -> &Io {
        &self.io
    }
}

impl<Io: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection<Io> {
    /// Answers requests until the client has no more, keeps us waiting for too long, or others need its place. After
    /// `shutdown` only what was asked before is answered.
    pub async fn serve<Handle, Answering, B>(self, handle: Handle, shutdown: &CancellationToken)
    where
        Handle: Fn(Request<Incoming>) -> Answering + Clone + Send + 'static,
        Answering: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let peer = self.peer.clone();
        let service = service_fn(|request: Request<Incoming>| {
            let is_http2 = request.version() == Version::HTTP_2;
            let number = peer.patience.lock().asked(is_http2, Instant::now());
            let answer = Answer::new(peer.clone(), number);
            let answering = handle(request);
            async move { Ok::<_, Infallible>(Taken::answer(answering.await, answer)) }
        });
        let doors = &self.peer.doors;
        let http = if self.peer.is_known() { &doors.http } else { &doors.http_for_strangers };
        let mut serving = pin!(http.serve_connection_with_upgrades(TokioIo::new(self.io), service));
        let is_told_to_end = async {
            tokio::select! {
                verdict = self.peer.outstays() => verdict,
                () = shutdown.cancelled() => Verdict::Rest,
            }
        };
        let verdict = tokio::select! {
            biased;
            ended = serving.as_mut() => return log(ended),
            () = self.peer.ended.cancelled() => return tracing::debug!("others needed its place"),
            verdict = is_told_to_end => verdict,
        };
        if let Verdict::Overdue(why) = verdict {
            return tracing::debug!(why, "connection closed");
        }
        serving.as_mut().graceful_shutdown();
        // After shutdown, what was asked before has its time; who asks nothing has none.
        let patience = async {
            if verdict == Verdict::Idle {
                return tokio::time::sleep(FAREWELL).await;
            }
            while self.peer.outstays().await == Verdict::Idle {
                tokio::time::sleep(FAREWELL).await;
            }
        };
        tokio::select! {
            biased;
            ended = serving => log(ended),
            () = self.peer.ended.cancelled() => {}
            () = patience => {}
        }
    }
}

fn log(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// As HTTP hands it on when it is upgraded.
    #[tokio::test]
    async fn who_must_make_room_is_told_whoever_has_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let doors = Doors::new(ConnectionLimits { most: 8, ..ConnectionLimits::small() });
        let shutdown = CancellationToken::new();
        let (mut clients, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            clients.push(TcpStream::connect(address).await.unwrap());
            let connection = doors.accept(&listener, &shutdown).await.unwrap();
            connection.peer().is_user("mallory");
            taken.push(connection);
        }
        // A quarter of eight is for one user.
        for (number, mut connection) in taken.into_iter().enumerate() {
            let read = tokio::time::timeout(Duration::from_millis(100), connection.io.read_u8()).await;
            assert_eq!(read.is_ok_and(|read| read.is_err()), number < 2, "connection {number}");
        }
    }

    #[test]
    fn a_source_is_an_address_or_a_network() {
        let check = |address: &str, expected: &str| {
            let parse = |text: &str| text.parse::<IpAddr>().unwrap();
            assert_eq!(source(parse(address)), parse(expected));
        };
        check("10.0.0.1", "10.0.0.1");
        check("::ffff:10.0.0.1", "10.0.0.1");
        check("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::");
    }
}
