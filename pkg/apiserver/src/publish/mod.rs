//! The publisher: tells every change over Redis, while this apiserver leads.
//!
//! ```text
//! Lease ──held──> epoch ──> one follower per resource ──> outlet ──> Redis
//!   └── lost, or Redis gone: the epoch is over; the next one has a higher number
//! ```
//!
//! # Guarantees
//! Everything after the revision that the lease names is told at least once, or seen to be missing. No write and no watch ever
//! waits for Redis: followers read rings of events, as watches do, and fall behind alone.

mod follow;
mod lease;
mod line;
mod metrics;
mod outlet;
mod users;

use crate::error::ApiError;
use crate::server::Server;
use api::kind::Verbs;
use bus::{Channel, Connection, HEARTBEAT, RedisConfig, RedisError};
use follow::{Epoch, bookmark, follow};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use store::Revision;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use metrics::PublisherMetrics;
pub use users::{NodePasswords, handle};

const FIRST_RETRY: Duration = Duration::from_millis(250);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// Where not even a heartbeat gets through for so long, the epoch is over.
const LONGEST_TELL: Duration = Duration::from_secs(5);

/// Why an epoch ended.
#[derive(Debug, thiserror::Error)]
enum Over {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error("another apiserver publishes")]
    Lost,
    #[error("the lease cannot be renewed: {0}")]
    Lease(String),
}

/// Publishes whenever this server holds the lease, until shutdown.
pub async fn keep(server: Arc<Server>, shutdown: CancellationToken) {
    let Some(config) = server.config.redis.clone() else { return };
    let identity = format!("{}_{}", hostname(), server.address);
    let publishing = async {
        let (mut observed, mut is_told, mut retry) = (lease::Observed::default(), false, FIRST_RETRY);
        loop {
            let held = match lease::hold(&server, &identity, &mut observed, None).await {
                Ok(Some(held)) => held,
                Ok(None) => {
                    tokio::time::sleep(lease::RENEW_EVERY / 2).await;
                    continue;
                }
                Err(error) => {
                    tracing::debug!(error = error.message, "cannot take the publisher's lease");
                    tokio::time::sleep(lease::RENEW_EVERY / 2).await;
                    continue;
                }
            };
            let began = Instant::now();
            let over = publish(&server, &config, &identity, &mut observed, held).await;
            server.publisher.leads.store(false, Relaxed);
            if began.elapsed() > LAST_RETRY {
                (is_told, retry) = (false, FIRST_RETRY);
            }
            if !is_told {
                is_told = true;
                tracing::warn!(
                    error = &over as &dyn std::error::Error,
                    "not publishing over Redis; everybody asks the API meanwhile"
                );
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(LAST_RETRY);
        }
    };
    tokio::select! {
        () = publishing => {}
        () = shutdown.cancelled() => {}
    }
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// One epoch, to its end.
async fn publish(
    server: &Arc<Server>,
    config: &RedisConfig,
    identity: &str,
    observed: &mut lease::Observed,
    held: lease::Held,
) -> Over {
    let mut connection = match connect(config).await {
        Ok(connection) => connection,
        Err(error) => return error.into(),
    };
    let users = users::NodeUsers::new(&config.server.cluster, server.node_passwords.clone());
    let nodes = server.registry.built_in("", "nodes").objects(None);
    let stale = users.stale(&mut connection, &nodes).await;
    let (outlet, working) = outlet::open(connection, server.publisher.clone());
    let now = server.registry.hub().revision();
    // Later than now: the store was restored meanwhile, or it is another one.
    let from = held.published.filter(|published| *published <= now).unwrap_or(now);
    let epoch = Arc::new(Epoch {
        server: server.clone(),
        number: held.epoch,
        cluster: config.server.cluster.clone(),
        outlet: outlet.clone(),
        users: users.clone(),
        told: Mutex::default(),
    });
    server.publisher.epochs.fetch_add(1, Relaxed);
    server.publisher.leads.store(true, Relaxed);
    tracing::info!(epoch = held.epoch, from, "publishing over Redis");
    let leading = async {
        // Before what is told of nodes' coming and going, which it must not undo.
        users.make_all(&outlet, &nodes, stale).await;
        let mut term = Term { epoch: epoch.clone(), tasks: JoinSet::new(), followed: BTreeMap::new() };
        term.follow_all(from);
        term.lead(identity, observed, from).await
    };
    tokio::select! {
        error = working => error.into(),
        over = leading => over,
    }
}

async fn connect(config: &RedisConfig) -> Result<Connection, RedisError> {
    Connection::open(&config.server, &config.login()?).await
}

/// What works during an epoch. Dropped, all of it ends.
struct Term {
    epoch: Arc<Epoch>,
    tasks: JoinSet<()>,
    followed: BTreeMap<String, AbortHandle>,
}

impl Term {
    /// Says every other second that it is there, renews the lease, and follows what becomes a resource.
    async fn lead(&mut self, identity: &str, observed: &mut lease::Observed, from: Revision) -> Over {
        let mut told = from;
        let mut renewed = Instant::now();
        let mut beat = tokio::time::interval(HEARTBEAT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            let revision = self.epoch.server.registry.hub().revision();
            let message = bookmark(self.epoch.number, 0, 0, revision);
            let sending = self.epoch.publish(&Channel::Heartbeat, &message);
            match tokio::time::timeout(LONGEST_TELL, sending).await {
                Ok(true) => {}
                Ok(false) | Err(_) => return RedisError::Silent.into(),
            }
            self.follow_all(revision);
            if renewed.elapsed() < lease::RENEW_EVERY {
                continue;
            }
            // What was told when it was renewed last: Redis has taken it, or the epoch would be over.
            let published = told;
            told = self.told().unwrap_or(told);
            match lease::hold(&self.epoch.server, identity, observed, Some(published)).await {
                Ok(Some(_)) => renewed = Instant::now(),
                Ok(None) => return Over::Lost,
                Err(ApiError { message, .. }) if renewed.elapsed() > 2 * lease::RENEW_EVERY => {
                    return Over::Lease(message);
                }
                Err(_) => {}
            }
        }
    }

    /// Up to where all resources are told.
    fn told(&self) -> Option<Revision> {
        let told = self.epoch.told.lock();
        if told.len() < self.followed.len() { None } else { told.values().min().copied() }
    }

    /// Follows every resource that is not followed yet, and is stored.
    fn follow_all(&mut self, from: Revision) {
        while self.tasks.try_join_next().is_some() {}
        let resources = self.epoch.server.registry.resources();
        for resource in resources.iter() {
            let kind = &resource.kind;
            if kind.stored_as.is_some() || kind.verbs != Verbs::All {
                continue;
            }
            let prefix = kind.prefix();
            if self.followed.get(&prefix).is_some_and(|task| !task.is_finished()) {
                continue;
            }
            let is_new = self.followed.contains_key(&prefix);
            let from = if is_new { resource.cache.revision() } else { from.max(resource.cache.oldest()) };
            let task = self.tasks.spawn(follow(self.epoch.clone(), resource.clone(), from));
            self.followed.insert(prefix, task);
        }
        let is_there = |prefix: &String| resources.iter().any(|resource| resource.kind.prefix() == *prefix);
        let gone: Vec<String> = self
            .followed
            .iter()
            .filter(|(prefix, task)| task.is_finished() && !is_there(prefix))
            .map(|(prefix, _)| prefix.clone())
            .collect();
        for prefix in gone {
            self.followed.remove(&prefix);
            self.epoch.told.lock().remove(&prefix);
        }
    }
}
