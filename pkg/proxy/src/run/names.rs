//! Keeps the names in step with services, and serves them.

use crate::flags::Config;
use crate::gateway::Services;
use crate::nameserver::{SharedZone, bind, serve};
use crate::node::This;
use crate::objects::Objects;
use crate::upstream::{Upstream, at_port};
use crate::zone::Zone;
use futures::future::BoxFuture;
use network::claims;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Changes that come together are taken together.
const GATHER: Duration = Duration::from_millis(20);
/// Where there are many names, making them anew takes long: no more than one part in so many of the time.
const SHARE: u32 = 10;

/// Where the host's name servers are.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The loop that keeps the zone, and the server that answers from it.
pub fn start<'a>(
    config: &'a Config,
    objects: &'a Objects,
    shutdown: &'a CancellationToken,
) -> (BoxFuture<'a, ()>, BoxFuture<'a, ()>) {
    let Some(address) = config.cluster_dns else {
        return (Box::pin(async {}), Box::pin(async {}));
    };
    let zone: SharedZone = Arc::default();
    (
        Box::pin(keep(zone.clone(), config, objects, shutdown)),
        Box::pin(answer(zone, address, config, shutdown)),
    )
}

async fn keep(zone: SharedZone, config: &Config, objects: &Objects, shutdown: &CancellationToken) {
    let mut changes = objects.changes();
    loop {
        let began = Instant::now();
        let new = make(config, objects);
        *zone.write() = Arc::new(new);
        let pause = GATHER.max(began.elapsed() * SHARE);
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = super::any_change(&mut changes) => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        changes.iter_mut().for_each(|changes| changes.mark_unchanged());
    }
}

fn make(config: &Config, objects: &Objects) -> Zone {
    if !objects.services.is_known() || !objects.slices.is_known() {
        return Zone::unknown(&config.cluster_domain);
    }
    let sites = objects.sites(&objects.own_classes(), &Services::default());
    let this = This::find(&config.node, &objects.nodes.list());
    let reserved = objects.reserved(&config.cluster_domain);
    Zone::new(
        &config.cluster_domain,
        objects.services.list(),
        objects.slices.list(),
        sites.names(&reserved).cloned().collect::<Vec<_>>().into_iter(),
        reserved,
        &this.addresses,
    )
}

async fn answer(zone: SharedZone, address: IpAddr, config: &Config, shutdown: &CancellationToken) {
    let sockets = loop {
        let bound = async {
            claims::claim_address(address).await.map_err(std::io::Error::other)?;
            bind(SocketAddr::new(address, config.dns_port)).await
        };
        match bound.await {
            Ok(sockets) => break sockets,
            Err(error) => {
                tracing::warn!(%error, %address, "names cannot be served yet");
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(super::RETRY) => {}
                }
            }
        }
    };
    let upstream = match config.upstream_dns.as_slice() {
        [] => Upstream::of_host(RESOLV_CONF, address),
        servers => Upstream::fixed(servers.iter().copied().map(at_port).collect()),
    };
    serve(zone, upstream, vec![sockets.0], vec![sockets.1], shutdown.clone()).await;
}
