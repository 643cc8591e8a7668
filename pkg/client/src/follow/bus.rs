//! A program's one connection to Redis: subscribes to what its informers follow, and hands messages out.
//!
//! ```text
//! Redis ──> Bus ──> Inbox of each informer of the channel
//!            └── an error, a closed connection, silence, garbage: every inbox is lost, and it connects anew
//! ```
//!
//! It never makes anybody wait, and nobody makes it wait: an inbox that is full is lost by itself.

use super::inbox::Inbox;
use super::metrics::METRICS;
use bus::{
    Channel, Connection, Login, Message, Reader, RedisConfig, RedisError, Reply, SILENCE, Writer, command,
};
use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// A restart is nothing to tell people of, nor is a node that is not registered yet.
const TOLD_AFTER: u32 = 4;
/// The API, too, may keep us waiting for a password only so long.
const PASSWORD_PATIENCE: Duration = Duration::from_secs(5);

/// A program's way to Redis. Clones share it.
#[derive(Clone)]
pub struct Bus(Arc<Shared>);

/// How a program proves at Redis who it is.
pub enum RedisIdentity {
    /// By the files of the configuration.
    Files,
    /// As this node: the API says who that is, to that node only.
    Node {
        /// A client that is the node.
        client: Client,
        /// Its name.
        name: String,
    },
}

struct Shared {
    config: RedisConfig,
    identity: RedisIdentity,
    wanted: Mutex<HashMap<Channel, Vec<Weak<Inbox>>>>,
    changed: Notify,
}

/// The part of `nodes/redis` that matters.
#[derive(Deserialize)]
struct Credentials {
    spec: CredentialsSpec,
}

#[derive(Deserialize)]
struct CredentialsSpec {
    user: String,
    password: String,
}

impl Bus {
    /// As [`Bus::start`], where there is a Redis.
    pub fn of(
        config: Option<&RedisConfig>,
        identity: RedisIdentity,
        shutdown: &CancellationToken,
    ) -> Option<Bus> {
        config.map(|config| Bus::start(config.clone(), identity, shutdown.clone()))
    }

    /// Connects, and stays connected, until shutdown.
    pub fn start(config: RedisConfig, identity: RedisIdentity, shutdown: CancellationToken) -> Bus {
        let (wanted, changed) = Default::default();
        let shared = Arc::new(Shared { config, identity, wanted, changed });
        let (working, stopped) = (shared.clone(), shutdown);
        tokio::spawn(async move {
            tokio::select! {
                () = working.keep() => {}
                () = stopped.cancelled() => working.lose_all(),
            }
        });
        Bus(shared)
    }

    /// What is told on a channel from now on, as long as the inbox is kept.
    pub(super) fn subscribe(&self, channel: Channel) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox::default());
        self.0.wanted.lock().entry(channel).or_default().push(Arc::downgrade(&inbox));
        self.0.changed.notify_one();
        inbox
    }
}

impl Shared {
    async fn keep(&self) {
        let (mut retry, mut failures) = (FIRST_RETRY, 0);
        loop {
            let began = Instant::now();
            let mut session = Session::default();
            let error = match self.connect().await {
                Ok(connection) => session.run(self, connection).await,
                Err(error) => error,
            };
            self.lose_all();
            if session.is_heard {
                if failures >= TOLD_AFTER {
                    tracing::info!("Redis was there again for {} seconds", began.elapsed().as_secs());
                }
                (retry, failures) = (FIRST_RETRY, 0);
            }
            failures += 1;
            if failures == TOLD_AFTER {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "Redis tells nothing; changes come from the API server until it does");
            }
            tokio::time::sleep(retry.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            retry = (retry * 2).min(LONGEST_RETRY);
        }
    }

    async fn connect(&self) -> Result<Connection, RedisError> {
        let login = self.config.login()?;
        let login = match &self.identity {
            RedisIdentity::Files => login,
            RedisIdentity::Node { client, name } => {
                let path = format!("/api/v1/nodes/{name}/redis");
                let request = http::Request::get(path).body(Vec::new());
                let request = request.map_err(|error| RedisError::Password(error.to_string()))?;
                let asking = client.request::<Credentials>(request);
                let found = tokio::time::timeout(PASSWORD_PATIENCE, asking).await;
                let found = found.map_err(|_| RedisError::Password("the API does not answer".to_owned()))?;
                let spec = found.map_err(|error| RedisError::Password(error.to_string()))?.spec;
                Login { user: Some(spec.user), password: Some(spec.password), ..login }
            }
        };
        let connection = Connection::open(&self.config.server, &login).await?;
        METRICS.connects.fetch_add(1, Relaxed);
        Ok(connection)
    }

    fn lose_all(&self) {
        self.wanted.lock().values().flatten().filter_map(Weak::upgrade).for_each(|inbox| inbox.lose());
    }

    /// Every channel that somebody still follows.
    fn followed(&self) -> HashSet<Channel> {
        let mut wanted = self.wanted.lock();
        wanted.retain(|_, inboxes| {
            inboxes.retain(|inbox| inbox.strong_count() > 0);
            !inboxes.is_empty()
        });
        wanted.keys().cloned().chain([Channel::Heartbeat]).collect()
    }

    fn hand_out(&self, channel: &Channel, message: &Message) {
        let wanted = self.wanted.lock();
        for inbox in wanted.get(channel).into_iter().flatten().filter_map(Weak::upgrade) {
            inbox.push(message.clone());
        }
    }
}

/// One connection's life.
#[derive(Default)]
struct Session {
    subscribed: HashSet<Channel>,
    /// Asked for, and not answered yet, in the order of the answers.
    asked: VecDeque<Channel>,
    /// Whether a publisher was heard.
    is_heard: bool,
}

impl Session {
    async fn run(&mut self, shared: &Shared, connection: Connection) -> RedisError {
        let (mut reader, mut writer) = connection.split();
        let mut silent_at = Instant::now() + SILENCE;
        let mut subscribed = self.subscribe(shared, &mut writer).await;
        loop {
            let heard = tokio::select! {
                heard = self.hear(shared, &mut reader) => heard,
                () = shared.changed.notified() => {
                    subscribed = self.subscribe(shared, &mut writer).await;
                    Ok(false)
                }
                () = tokio::time::sleep_until(silent_at) => Err(RedisError::Silent),
            };
            match heard.and_then(|heard| std::mem::replace(&mut subscribed, Ok(())).map(|()| heard)) {
                Ok(true) => silent_at = Instant::now() + SILENCE,
                Ok(false) => {}
                Err(error) => return error,
            }
        }
    }

    async fn subscribe(&mut self, shared: &Shared, writer: &mut Writer) -> Result<(), RedisError> {
        let followed = shared.followed();
        let cluster = &shared.config.server.cluster;
        let mut commands = Vec::new();
        for channel in followed.difference(&self.subscribed) {
            // One at a time: a channel that we may not hear takes none of the others with it.
            commands.extend(command(&["SUBSCRIBE", &channel.name(cluster)]));
            self.asked.push_back(channel.clone());
        }
        for channel in self.subscribed.difference(&followed) {
            commands.extend(command(&["UNSUBSCRIBE", &channel.name(cluster)]));
        }
        if !commands.is_empty() {
            writer.send(&commands).await?;
        }
        self.subscribed = followed;
        Ok(())
    }

    /// Hears one thing; whether it was a publisher's word.
    async fn hear(&mut self, shared: &Shared, reader: &mut Reader) -> Result<bool, RedisError> {
        let parts = match reader.next().await? {
            Reply::Parts(parts) => parts,
            Reply::Refused(words) if words.starts_with("NOPERM") && !self.asked.is_empty() => {
                if let Some(channel) = self.asked.pop_front() {
                    tracing::warn!(%channel, words, "Redis does not let us hear of this; the API server tells it");
                }
                return Ok(false);
            }
            Reply::Refused(words) => return Err(RedisError::Refused(words)),
            other => return Err(RedisError::Refused(format!("an answer to nothing: {other:?}"))),
        };
        let [kind, channel, payload] = &parts[..] else {
            return Err(RedisError::Refused("an answer that nobody asked for".to_owned()));
        };
        match (kind.text(), payload) {
            (Some("subscribe"), _) => {
                self.asked.pop_front();
                Ok(false)
            }
            (Some("unsubscribe"), _) => Ok(false),
            (Some("message"), Reply::Part(payload)) => {
                let name = channel.text().unwrap_or_default();
                let Some(channel) = Channel::parse(name, &shared.config.server.cluster) else {
                    return Err(RedisError::Refused(format!("a message of {name:?}, which nobody follows")));
                };
                let message = Message::decode(payload).map_err(|error| {
                    RedisError::Refused(format!("a message on {channel} is garbled: {error}"))
                })?;
                self.is_heard = true;
                let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
                METRICS.came(Duration::from_millis(now_ms.saturating_sub(message.sent_ms)));
                shared.hand_out(&channel, &message);
                Ok(true)
            }
            _ => Err(RedisError::Refused("an answer that nobody asked for".to_owned())),
        }
    }
}
