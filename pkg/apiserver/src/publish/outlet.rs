//! The way to Redis: commands in, a bounded number of bytes under way, answers counted.
//!
//! ```text
//! Outlet::send ──(waits for room)──> writer ──> Redis ──> reader: taken, or the epoch is over
//! ```
//!
//! Whoever sends waits while Redis is slow, and the cache's ring of events, which it reads, goes on without it: so Redis
//! can be as slow as it likes and costs neither memory nor anybody's write.

use super::metrics::PublisherMetrics;
use bus::{Connection, Reader, RedisError, Reply, Writer};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

/// How much may be under way.
const MOST_BYTES: usize = 16 << 20;
const MOST_COMMANDS: usize = 4096;
/// Commands are sent together, up to so many.
const BATCH: usize = 128;
/// Redis that has not answered for so long is not believed to do so.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Telling a change.
    Publish,
    /// Making or removing a user: a Redis that does not let us is no reason to say nothing there.
    User,
}

/// Where commands go.
#[derive(Clone)]
pub struct Outlet {
    commands: mpsc::Sender<Command>,
    room: Arc<Semaphore>,
}

struct Command {
    bytes: Vec<u8>,
    purpose: Purpose,
    at: Instant,
    _room: OwnedSemaphorePermit,
}

/// Makes an outlet, and what works for it until something fails.
pub fn open(
    connection: Connection,
    metrics: Arc<PublisherMetrics>,
) -> (Outlet, impl Future<Output = RedisError>) {
    let (commands, queue) = mpsc::channel(MOST_COMMANDS);
    let (sent, under_way) = mpsc::channel(MOST_COMMANDS);
    let (reader, writer) = connection.split();
    let outlet = Outlet { commands, room: Arc::new(Semaphore::new(MOST_BYTES)) };
    let working = async move {
        tokio::select! {
            error = write(writer, queue, sent) => error,
            error = read(reader, under_way, &metrics) => error,
        }
    };
    (outlet, working)
}

impl Outlet {
    /// Sends a command, as soon as there is room for it. False: there is no way to Redis any more.
    pub async fn send(&self, bytes: Vec<u8>, purpose: Purpose) -> bool {
        let at = Instant::now();
        let size = u32::try_from(bytes.len().min(MOST_BYTES)).unwrap_or(u32::MAX);
        let Ok(room) = self.room.clone().acquire_many_owned(size).await else { return false };
        self.commands.send(Command { bytes, purpose, at, _room: room }).await.is_ok()
    }
}

async fn write(
    mut writer: Writer,
    mut queue: mpsc::Receiver<Command>,
    sent: mpsc::Sender<Command>,
) -> RedisError {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        if queue.recv_many(&mut batch, BATCH).await == 0 {
            return RedisError::Closed;
        }
        let mut bytes = Vec::with_capacity(batch.iter().map(|command| command.bytes.len()).sum());
        for mut command in batch.drain(..) {
            bytes.append(&mut command.bytes);
            if sent.send(command).await.is_err() {
                return RedisError::Closed;
            }
        }
        match tokio::time::timeout(PATIENCE, writer.send(&bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error,
            Err(_) => return RedisError::Silent,
        }
    }
}

async fn read(
    mut reader: Reader,
    mut under_way: mpsc::Receiver<Command>,
    metrics: &PublisherMetrics,
) -> RedisError {
    let mut is_told = false;
    loop {
        let Some(command) = under_way.recv().await else { return RedisError::Closed };
        let reply = match tokio::time::timeout(PATIENCE, reader.next()).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => return error,
            Err(_) => return RedisError::Silent,
        };
        match (command.purpose, reply) {
            (Purpose::Publish, Reply::Integer(_)) => metrics.took(command.at.elapsed()),
            (Purpose::Publish, Reply::Refused(words)) => return RedisError::Refused(words),
            (Purpose::Publish, _) => return RedisError::Refused("an answer to something else".into()),
            (Purpose::User, Reply::Refused(words)) if !is_told => {
                is_told = true;
                let advice = "make the users of nodes yourself (kubeadm redis-users prints the commands)";
                tracing::warn!(words, "Redis does not let us make users: {advice}");
            }
            (Purpose::User, _) => {}
        }
    }
}
