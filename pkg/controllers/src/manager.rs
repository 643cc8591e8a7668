//! Runs the controllers that were asked for, while this replica leads.

use crate::runtime::Context;
use crate::{CONTROLLERS, Config, Entry};
use client::{
    Bus, ConnectError, Informers, LeaderError, Panicked, Recorder, RedisIdentity, ServiceAccounts, Tasks,
};
use kube::Client;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const USER_AGENT: &str = "kube-controller-manager";

/// Why the controllers do not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no client.
    #[error("reach the apiserver")]
    Connect(#[from] ConnectError),
    /// Another replica leads.
    #[error(transparent)]
    Leader(#[from] LeaderError),
    /// `--controllers` names one that is not there.
    #[error("{0:?} is not in the list of known controllers: {1}")]
    UnknownController(String, String),
    /// Without it the rest would be half a controller-manager.
    #[error("a part that cannot be missing is gone")]
    Panicked(#[from] Panicked),
}

/// Runs until the token is cancelled, or leadership is lost.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let selected = select(&config.controllers)?;
    let client = client::connect_multiplexed(config.kubeconfig.as_deref(), USER_AGENT).await?;
    let accounts = match config.use_service_account_credentials {
        true => Some(ServiceAccounts::new(client.clone(), config.kubeconfig.as_deref(), USER_AGENT).await?),
        false => None,
    };
    let config = Arc::new(config);
    let leading = async |token| lead(&config, &client, accounts.as_ref(), &selected, token).await;
    if let Some(led) = config.leader.lead(&client, &config.host, shutdown, leading).await? {
        led?;
    }
    Ok(())
}

async fn lead(
    config: &Arc<Config>,
    client: &Client,
    accounts: Option<&ServiceAccounts>,
    selected: &[&'static Entry],
    shutdown: CancellationToken,
) -> Result<(), Panicked> {
    // Caches and events last until the last controller has ended.
    let last = CancellationToken::new();
    let bus = Bus::of(config.redis.as_ref(), RedisIdentity::Files, &last);
    let informers = Informers::new(client.clone(), last.clone()).over(bus);
    let (recorder, sending) = Recorder::new(client.clone(), USER_AGENT, config.host.clone(), last.clone());
    config.metrics.counts_events(recorder.dropped());
    let (support, tasks, stop) = (Tasks::default(), Tasks::default(), shutdown.child_token());
    support.spawn("sending events", sending);
    for entry in selected {
        let context = Context {
            name: entry.name,
            client: accounts.map_or_else(|| client.clone(), |accounts| accounts.client(entry.account)),
            informers: informers.clone(),
            recorder: recorder.named(entry.name),
            clock: config.clock.clone(),
            config: config.clone(),
            metrics: config.metrics.clone(),
            tasks: tasks.clone(),
            shutdown: stop.clone(),
        };
        tasks.spawn(entry.name, (entry.start)(&context));
    }
    let result = tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        panicked = tasks.panicked() => Err(panicked),
        panicked = informers.panicked() => Err(panicked),
        panicked = support.panicked() => Err(panicked),
    };
    stop.cancel();
    tasks.join().await;
    last.cancel();
    informers.join().await;
    support.join().await;
    result
}

/// The controllers that `--controllers` means: the first word that fits a name decides, `*` comes last.
fn select(words: &[String]) -> Result<Vec<&'static Entry>, Error> {
    let is =
        |entry: &Entry, word: &str| word == entry.name || (!entry.alias.is_empty() && word == entry.alias);
    for word in words.iter().filter(|word| *word != "*") {
        let name = word.strip_prefix('-').unwrap_or(word);
        if !CONTROLLERS.iter().any(|entry| is(entry, name)) {
            let known: Vec<&str> = CONTROLLERS.iter().map(|entry| entry.name).collect();
            return Err(Error::UnknownController(name.to_owned(), known.join(", ")));
        }
    }
    let all = words.iter().any(|word| word == "*");
    let wanted = |entry: &&Entry| {
        let word = words.iter().find(|word| is(entry, word.strip_prefix('-').unwrap_or(word)));
        word.map_or(all, |word| !word.starts_with('-'))
    };
    Ok(CONTROLLERS.iter().filter(wanted).collect())
}
