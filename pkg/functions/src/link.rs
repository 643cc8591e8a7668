//! The way to one pod: its address as soon as it has one, its program as soon as it listens, its connections.
//!
//! ```text
//! pod's status ──> address ──┐
//! the pod tells that it listens ──┴─> connect ──> /load, for a source ──> Ready ──> calls, over kept connections
//! ```
//!
//! A pod tells that it listens (`FUNCTION_READY`), so that nothing is probed: what it says is only a hint, and whoever
//! else says it makes the activator knock once at a door that is still closed.

use crate::definition::{Definition, Program};
use crate::fleet::Fault;
use crate::runtimes::PORT;
use axum::body::Body;
use bytes::Bytes;
use client::Key;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The header by which a pod knows the activator.
pub const TOKEN: &str = "x-function-token";
/// A pod that takes longer than this to take a connection is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A program that does not tell when it listens is knocked at, more and more seldom.
const FIRST_KNOCK: Duration = Duration::from_millis(5);
/// One that tells is knocked at all the same, in case that what it said was lost.
const SPARE_KNOCK: Duration = Duration::from_millis(500);
const SLOWEST_KNOCK: Duration = Duration::from_secs(1);
/// What a runtime says of a source is no longer than this.
const MOST_SAID: usize = 1 << 20;

/// When a pod got how far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// Scaling wanted it.
    pub wanted: Option<Instant>,
    /// The API had it.
    pub created: Option<Instant>,
    /// It had a node.
    pub bound: Option<Instant>,
    /// It had an address.
    pub addressed: Option<Instant>,
    /// It took a connection.
    pub connected: Option<Instant>,
    /// It had the source.
    pub ready: Option<Instant>,
}

/// The way to one pod.
pub struct Link {
    /// The pod.
    pub pod: Key,
    /// Whose pod it is.
    pub definition: Arc<Definition>,
    /// When it got how far.
    pub times: Mutex<Times>,
    /// Ended when there is nothing to reach any more.
    pub gone: CancellationToken,
    /// Why it does not start yet, in the scheduler's words.
    pub note: Mutex<Option<String>>,
    /// Why the pod has ended, once its status says so.
    pub end: watch::Sender<Option<Fault>>,
    token: String,
    address: watch::Sender<Option<SocketAddr>>,
    told: Notify,
    idle: Mutex<Vec<SendRequest<Body>>>,
}

/// Why a call had no answer.
pub enum Unanswered {
    /// It was certainly not sent.
    NotSent(Box<Request<Body>>),
    /// It may have been.
    Broken,
}

impl Link {
    /// To a pod that is to be, or that is there.
    pub fn new(pod: Key, definition: Arc<Definition>, token: String) -> Link {
        Link {
            pod,
            definition,
            times: Mutex::default(),
            gone: CancellationToken::new(),
            note: Mutex::default(),
            end: watch::Sender::new(None),
            token,
            address: watch::Sender::new(None),
            told: Notify::new(),
            idle: Mutex::default(),
        }
    }

    /// What the pod knows of the token.
    pub fn token_hash(&self) -> String {
        crate::pod::token_hash(&self.token)
    }

    /// The pod's token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The pod has an address.
    pub fn has_address(&self, ip: IpAddr) {
        let port = match self.definition.program() {
            Ok(Program::Image(port)) => port,
            _ => PORT,
        };
        let address = Some(SocketAddr::new(ip, port));
        self.address.send_if_modified(|known| std::mem::replace(known, address) != address);
    }

    /// The pod says that it listens, or has begun to run.
    pub fn listens(&self) {
        self.told.notify_one();
    }

    fn is_source(&self) -> bool {
        matches!(self.definition.program(), Ok(Program::Source(_)))
    }

    /// Waits until the pod takes calls.
    ///
    /// # Errors
    ///
    /// Why it never will.
    pub async fn open(&self) -> Result<(), Fault> {
        let mut address = self.address.subscribe();
        let mut pause = if self.is_source() { SPARE_KNOCK } else { FIRST_KNOCK };
        let mut sender = loop {
            let there = *address.borrow_and_update();
            if let Some(there) = there {
                self.times.lock().addressed.get_or_insert_with(Instant::now);
                if let Ok(sender) = connect(there).await {
                    break sender;
                }
            }
            tokio::select! {
                () = self.told.notified() => {}
                _ = address.changed() => {}
                () = tokio::time::sleep(pause), if there.is_some() => pause = (pause * 2).min(SLOWEST_KNOCK),
            }
        };
        self.times.lock().connected = Some(Instant::now());
        if let Ok(Program::Source(runtime)) = self.definition.program() {
            self.load(&mut sender, self.definition.source(runtime).to_string()).await?;
        }
        self.times.lock().ready = Some(Instant::now());
        self.idle.lock().push(sender);
        Ok(())
    }

    async fn load(&self, sender: &mut SendRequest<Body>, source: String) -> Result<(), Fault> {
        let broken = |error: &dyn std::fmt::Display| {
            Fault::new("LoadFailed", format!("the pod did not take the source: {error}"))
        };
        let request = self.request("/load", source.into()).map_err(|error| broken(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = answer.status();
        let said =
            Limited::new(answer.into_body(), MOST_SAID).collect().await.map_err(|error| broken(&error))?;
        match status.is_success() {
            true => Ok(()),
            false => Err(Fault::said(&said.to_bytes())),
        }
    }

    /// A request that a runtime takes.
    pub fn request(&self, path: &'static str, body: Bytes) -> http::Result<Request<Body>> {
        Request::post(path).header(header::HOST, "function").header(TOKEN, &self.token).body(Body::from(body))
    }

    /// Sends a request, over a connection of before if there is one. The connection can be kept when the answer is read.
    pub async fn send(
        &self,
        mut request: Request<Body>,
    ) -> Result<(Response<Incoming>, SendRequest<Body>), Unanswered> {
        loop {
            let kept = self.idle.lock().pop();
            let is_new = kept.is_none();
            let mut sender = match kept {
                Some(sender) => sender,
                None => match self.connect().await {
                    Some(sender) => sender,
                    None => return Err(Unanswered::NotSent(Box::new(request))),
                },
            };
            if sender.ready().await.is_err() {
                if is_new {
                    return Err(Unanswered::NotSent(Box::new(request)));
                }
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(answer) => return Ok((answer, sender)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !is_new => request = unsent,
                    Some(unsent) => return Err(Unanswered::NotSent(Box::new(unsent))),
                    None => return Err(Unanswered::Broken),
                },
            }
        }
    }

    /// Keeps a connection whose answer has been read.
    pub fn keep(&self, sender: SendRequest<Body>) {
        if !sender.is_closed() {
            self.idle.lock().push(sender);
        }
    }

    /// Closes what is not used.
    pub fn close(&self) {
        self.gone.cancel();
        self.idle.lock().clear();
    }

    async fn connect(&self) -> Option<SendRequest<Body>> {
        let address = (*self.address.borrow())?;
        connect(address).await.ok()
    }
}

async fn connect(address: SocketAddr) -> std::io::Result<SendRequest<Body>> {
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address));
    let stream = connecting.await.map_err(|_| std::io::ErrorKind::TimedOut)??;
    stream.set_nodelay(true)?;
    let (sender, connection) =
        http1::handshake::<_, Body>(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
    // It ends when nobody has the sender any more, or the pod is gone.
    tokio::spawn(async move { connection.with_upgrades().await.ok() });
    Ok(sender)
}
