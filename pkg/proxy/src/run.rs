//! The loops that keep everything in step, each waiting for what concerns it.

mod complaints;
mod gateway;
mod health_checks;
mod names;
mod rules;
mod secrets;

use crate::flags::Config;
use crate::iptables::Iptables;
use crate::metrics::Status;
use crate::node::{Bounds, This, peers};
use crate::objects::Objects;
use crate::web::{Web, WebError};
use client::{Bus, ConnectError, Informers, Panicked, Recorder, RedisIdentity};
use complaints::Complaints;
use futures::future::select_all;
use health_checks::HealthChecks;
use network::iptables::IptablesError;
use network::{claims, overlay};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// Changes are written to disk together, this long after the first.
const SAVE_AFTER: Duration = Duration::from_millis(200);
/// Where much is known, writing it takes long: no more than one part in so many of the time is spent on it.
const SAVE_SHARE: u32 = 50;

/// Why it cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no way to the apiserver.
    #[error("connect to the apiserver")]
    Connect(#[from] ConnectError),
    /// There is no packet filter.
    #[error("set up the packet filter")]
    Iptables(#[from] IptablesError),
    /// nginx cannot be set up.
    #[error("set up nginx")]
    Web(#[from] WebError),
    /// The kernel's network.
    #[error("set up the network")]
    Network(#[from] network::Error),
    /// What is known of the cluster is kept up to date no more.
    #[error("follow the cluster")]
    Lost(#[from] Panicked),
}

/// Runs until shutdown. What has been set up stays, so that a restart is not noticed.
pub async fn run(config: Config, status: Status, shutdown: CancellationToken) -> Result<(), Error> {
    let client = client::connect_multiplexed(config.kubeconfig.as_deref(), "kubeproxy").await?;
    let filter = rules::Filter::find(&config).await?;
    let web = match config.gateway_ports {
        Some(_) => Some(Web::new(&config.state_dir.join("nginx"))?),
        None => None,
    };
    let shutdown = shutdown.child_token();
    // Without a file the API says who this node is at Redis, to this node only.
    let identity = match config.redis.as_ref().is_some_and(|redis| redis.password_file.is_some()) {
        true => RedisIdentity::Files,
        false => RedisIdentity::Node { client: client.clone(), name: config.node.clone() },
    };
    let bus = Bus::of(config.redis.as_ref(), identity, &shutdown);
    let informers = Informers::new(client.clone(), shutdown.clone()).over(bus);
    let objects =
        Objects::follow(&informers, &config.state_dir, client::server_name(config.kubeconfig.as_deref()));
    let checks = HealthChecks::default();
    let (recorder, events) =
        Recorder::new(client.clone(), "kubeproxy", config.node.clone(), shutdown.clone());
    let complaints = Complaints::new(recorder.clone());
    let (zone_loop, name_server) = names::start(&config, &objects, &shutdown);
    let loops = async {
        tokio::join!(
            rules::keep(filter, &config, &objects, &checks, &status, &recorder, &shutdown),
            checks.serve(&status, &shutdown),
            keep_overlay(&config, &objects, &shutdown),
            gateway::keep(web, client, complaints, &config, &objects, &status, &shutdown),
            events,
            save(&objects, &shutdown),
            zone_loop,
            name_server,
        )
    };
    let end = while_followed(&informers, loops).await;
    shutdown.cancel();
    informers.join().await;
    end
}

/// To the end of the loops, or of any of the caches that they read: what is made of one that stands still is wrong, and
/// nobody would notice.
async fn while_followed<T>(informers: &Informers, loops: impl Future<Output = T>) -> Result<(), Error> {
    tokio::select! {
        _ = loops => Ok(()),
        panicked = informers.panicked() => Err(Error::Lost(panicked)),
    }
}

/// Removes everything from this node.
pub async fn cleanup(config: &Config) -> Result<(), Error> {
    for program in [config.iptables.clone(), config.iptables.replacen("iptables", "ip6tables", 1)] {
        match Iptables::find(&program).await {
            Ok(iptables) => iptables.cleanup().await?,
            Err(error) => tracing::warn!(%error, "not cleaned up"),
        }
    }
    claims::release_others(&[]).await?;
    if let Some(address) = config.cluster_dns {
        claims::release_address(address).await?;
    }
    if config.overlay {
        overlay::remove().await?;
    }
    let nginx = config.state_dir.join("nginx");
    if nginx.exists() {
        Web::new(&nginx)?.stop().await?;
    }
    if let Some(path) = &config.hosts_file
        && let Err(error) = crate::hosts::update(path, None, &[])
    {
        tracing::warn!(%error, path = %path.display(), "not cleaned up");
    }
    // Not knowing anything of before is what a new cluster needs.
    let _ = std::fs::remove_dir_all(&config.state_dir);
    Ok(())
}

async fn keep_overlay(config: &Config, objects: &Objects, shutdown: &CancellationToken) {
    if !config.overlay {
        return;
    }
    let mut changes = objects.nodes.cache_changes();
    loop {
        let nodes = objects.nodes.list();
        let mut retry = None;
        if let Some(local) = This::find(&config.node, &nodes).overlay()
            && let Err(error) =
                overlay::sync(&local, &peers(&config.node, &nodes, &bounds(config, objects))).await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "the overlay is not in step");
            retry = Some(RETRY);
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = changes.changed() => {}
            // Also if nothing changes: somebody may have removed the device.
            () = tokio::time::sleep(retry.unwrap_or(config.sync_period)) => {}
        }
    }
}

/// Where the pods of other nodes can be.
fn bounds(config: &Config, objects: &Objects) -> Bounds {
    let mut foreign = config.service_ranges.clone();
    foreign.extend(objects.more_ranges(&foreign));
    Bounds { cluster: config.cluster_cidrs.clone(), foreign }
}

async fn save(objects: &Objects, shutdown: &CancellationToken) {
    let mut changes = objects.changes();
    let mut pause = SAVE_AFTER;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = any_change(&mut changes) => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
        changes.iter_mut().for_each(|changes| changes.mark_unchanged());
        let began = Instant::now();
        let known = objects.clone();
        // Rules do not wait for the disk.
        let saved = tokio::task::spawn_blocking(move || known.save()).await;
        if let Err(error) = saved.unwrap_or_else(|lost| Err(std::io::Error::other(lost))) {
            tracing::warn!(%error, "what is known cannot be kept for a restart");
        }
        pause = SAVE_AFTER.max(began.elapsed() * SAVE_SHARE);
        if shutdown.is_cancelled() {
            return;
        }
    }
}

/// Waits until one of them changes.
async fn any_change(changes: &mut [watch::Receiver<u64>]) {
    let waiting = changes.iter_mut().map(|changes| Box::pin(changes.changed()));
    let _ = select_all(waiting).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Service;
    use testing::{TestServer, in_time};

    #[tokio::test]
    async fn a_cache_that_is_lost_is_the_end() {
        let server = TestServer::start().await;
        let shutdown = CancellationToken::new();
        let informers = Informers::new(server.admin(), shutdown.clone());
        // There is one service in every cluster.
        informers.cache::<Service>().subscribe(|_| panic!("lost"));
        let end = in_time("the end", while_followed(&informers, std::future::pending::<()>())).await;
        assert!(matches!(end, Err(Error::Lost(_))), "{end:?}");
        shutdown.cancel();
        informers.join().await;
    }
}
