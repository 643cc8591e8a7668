//! The members of an etcd cluster. One is talked to at a time; when it fails, the next.
//!
//! ```text
//! read ──> current ─✗─> next ─✗─> next …       any failure: a read can be asked again
//! write ─> current ─✗─> next …                 only what certainly was not sent; else the caller must find out
//! ```

use crate::{Error, unavailable};
use etcd_client::{Client, ConnectOptions, Error as EtcdError, KvClient, WatchClient};
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::Code;

/// How long one request may take, on however many members it is tried.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one member of several may take for a read before another is asked.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two rounds over all members, who may be electing their leader.
const PAUSE: Duration = Duration::from_millis(50);
/// etcd itself limits what it takes; what it sends is limited by how we ask.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// Connections to all members; each is made when it is first needed.
pub struct Members {
    members: Vec<Member>,
    /// Counts on for ever; its remainder is the member to talk to.
    current: AtomicUsize,
}

struct Member {
    kv: KvClient,
    watch: WatchClient,
    /// Keeps the connection open.
    _client: Client,
}

impl Members {
    /// Those at these URLs.
    pub async fn new(urls: &[String], options: &ConnectOptions) -> Result<Self, EtcdError> {
        let mut members = Vec::new();
        for url in urls {
            let client = Client::connect([url], Some(options.clone())).await?;
            members.push(Member {
                kv: client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX),
                watch: client.watch_client().max_decoding_message_size(MESSAGE_BYTES_MAX),
                _client: client,
            });
        }
        if members.is_empty() {
            return Err(EtcdError::InvalidArgs("no URL of an etcd was given".to_owned()));
        }
        Ok(Self { members, current: AtomicUsize::new(0) })
    }

    /// The watches of the current member, and its turn, for [`Members::leave`].
    pub fn watch(&self) -> (WatchClient, usize) {
        let (member, turn) = self.current();
        (member.watch.clone(), turn)
    }

    /// From now on another member is the current one, unless somebody has seen to that already.
    pub fn leave(&self, turn: usize) {
        let _ =
            self.current.compare_exchange(turn, turn.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Reads: from one member after the other, until one answers.
    pub async fn read<T, F>(&self, doing: &str, request: impl Fn(KvClient) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let ends = Instant::now() + REQUEST_TIMEOUT;
        let mut failures = 0;
        loop {
            let (member, turn) = self.current();
            let latest = if self.is_alone() { ends } else { ends.min(Instant::now() + MEMBER_TIMEOUT) };
            let failure = match timeout_at(latest, request(member.kv.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) if is_answer(&error) => return Err(unavailable(doing, error)),
                Ok(Err(error)) => unavailable(doing, error),
                Err(_) => no_answer(doing),
            };
            self.leave(turn);
            failures += 1;
            if self.is_alone() || Instant::now() >= ends {
                return Err(failure);
            }
            if failures % self.members.len() == 0 {
                sleep(PAUSE).await;
            }
        }
    }

    /// Writes: on the first member that can be reached.
    pub async fn write<T, F>(&self, doing: &str, request: impl Fn(KvClient) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let ends = Instant::now() + REQUEST_TIMEOUT;
        let mut failures = 0;
        loop {
            let (member, turn) = self.current();
            let error = match timeout_at(ends, request(member.kv.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => {
                    self.leave(turn);
                    return Err(no_answer(doing));
                }
            };
            if is_answer(&error) {
                return Err(unavailable(doing, error));
            }
            self.leave(turn);
            failures += 1;
            if failures >= self.members.len() || !was_not_sent(&error) {
                return Err(unavailable(doing, error));
            }
        }
    }

    fn current(&self) -> (&Member, usize) {
        let turn = self.current.load(Ordering::Relaxed);
        (&self.members[turn % self.members.len()], turn)
    }

    fn is_alone(&self) -> bool {
        self.members.len() == 1
    }
}

/// Waits for something of etcd's, for as long as that may take.
pub async fn call<T>(doing: &str, request: impl Future<Output = Result<T, EtcdError>>) -> Result<T, Error> {
    match timeout(REQUEST_TIMEOUT, request).await {
        Ok(result) => result.map_err(|error| unavailable(doing, error)),
        Err(_) => Err(no_answer(doing)),
    }
}

fn no_answer(doing: &str) -> Error {
    unavailable(doing, format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))
}

/// Whether an error is what etcd says of the request, which any member would say.
fn is_answer(error: &EtcdError) -> bool {
    match error {
        EtcdError::GRpcStatus(status) => matches!(
            status.code(),
            Code::InvalidArgument
                | Code::OutOfRange
                | Code::NotFound
                | Code::AlreadyExists
                | Code::FailedPrecondition
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::ResourceExhausted
        ),
        _ => false,
    }
}

/// Whether a request certainly never left: there was no connection to send it over.
fn was_not_sent(error: &EtcdError) -> bool {
    let mut cause = std::error::Error::source(error);
    if let EtcdError::GRpcStatus(status) = error {
        cause = std::error::Error::source(status);
    }
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::ConnectionRefused;
        }
        cause = error.source();
    }
    false
}
