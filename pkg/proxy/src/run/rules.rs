//! Keeps the packet filter in step with services.

use super::RETRY;
use super::health_checks::HealthChecks;
use crate::flags::Config;
use crate::iptables::Iptables;
use crate::metrics::Status;
use crate::node::{This, all_ips, has_ipv6};
use crate::objects::{Dirty, Objects};
use crate::removals::Removals;
use crate::rules::Settings;
use crate::services::{ServicePort, Taken, ports_of};
use crate::syncer::Syncer;
use client::{EventType, Key, Recorder, reference};
use ipnet::IpNet;
use network::iptables::IptablesError;
use network::{claims, overlay};
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Chains that nobody needs go when nothing has changed for so long.
const TIDY_AFTER: Duration = Duration::from_secs(1);
/// Who removes rules removes many: they are looked for when that has gone on for so long.
const REMOVED: Duration = Duration::from_millis(250);

/// The packet filter, for each family of addresses that this node has.
pub struct Filter {
    families: Vec<Syncer>,
    /// IPv6 could not be used, which has been said.
    without_ipv6: bool,
}

impl Filter {
    /// IPv4 must work; IPv6 is used if it does.
    pub async fn find(config: &Config) -> Result<Filter, IptablesError> {
        let iptables = Iptables::find(&config.iptables).await?;
        let families = vec![Syncer::new(iptables, unsettled(config, false))];
        let mut filter = Filter { families, without_ipv6: false };
        filter.find_ipv6(config).await;
        Ok(filter)
    }

    /// A node may get its first IPv6 address at any time.
    async fn find_ipv6(&mut self, config: &Config) {
        if self.families.len() > 1 || !has_ipv6() {
            return;
        }
        match Iptables::find(&config.iptables.replacen("iptables", "ip6tables", 1)).await {
            Ok(iptables) => {
                self.families.push(Syncer::new(iptables, unsettled(config, true)));
            }
            Err(error) if !self.without_ipv6 => {
                tracing::warn!(%error, "services have no IPv6");
                self.without_ipv6 = true;
            }
            Err(_) => {}
        }
    }
}

/// Until shutdown.
pub async fn keep(
    mut filter: Filter,
    config: &Config,
    objects: &Objects,
    checks: &HealthChecks,
    status: &Status,
    recorder: &Recorder,
    shutdown: &CancellationToken,
) {
    claims::allow_forwarding(config.localhost_node_ports);
    objects.settled().await;
    let dirty = Dirty::default();
    dirty.follow(objects);
    let mut claimed = None;
    let mut taken = Taken::default();
    let mut is_tracking = false;
    let mut look = tokio::time::interval(config.sync_period);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    // While we write, nobody is listened to: what was removed meanwhile is looked for once, after that.
    let (mut removals, mut unlooked) = (None, false);
    loop {
        if removals.is_none() {
            removals = listen(&filter);
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = dirty.changed() => {}
            _ = look.tick() => {
                look_at(&mut filter).await;
                filter.find_ipv6(config).await;
                claimed = None;
            }
            () = removed(&removals) => {
                look_at(&mut filter).await;
            }
            () = tokio::time::sleep(TIDY_AFTER), if !failing && unlooked && removals.is_some() => {
                unlooked = false;
                if look_at(&mut filter).await {
                    continue;
                }
            }
            () = tokio::time::sleep(RETRY), if failing => {}
            () = tokio::time::sleep(TIDY_AFTER), if !failing && has_leftovers(&filter) => {
                removals = None;
                unlooked = true;
                tidy(&mut filter).await;
                continue;
            }
        }
        if !objects.services.is_known() || !objects.slices.is_known() {
            continue;
        }
        let this = This::find(&config.node, &objects.nodes.list());
        status.node(&this);
        let mut ranges = config.service_ranges.clone();
        ranges.extend(objects.more_ranges(&ranges));
        claim(config, &this, &ranges, &mut claimed).await;
        for syncer in &mut filter.families {
            let settings = settings(config, syncer.settings().ipv6, &this, &ranges);
            if *syncer.settings() != settings {
                syncer.set_settings(settings);
            }
        }
        let (mut keys, since) = dirty.take();
        // Nodes come and go, and so do their addresses.
        if taken_now(objects, &ranges, &mut taken) {
            let services = objects.services.list();
            keys.extend(services.iter().filter(|it| it.more.is_some()).map(|it| Key::of(it.as_ref())));
        }
        checks.update(objects, &this, &keys);
        if !keys.is_empty() || filter.families.iter().any(Syncer::needs_all) {
            (removals, unlooked) = (None, true);
        }
        failing = !sync(&mut filter, objects, &this, &taken, (keys, since), status, recorder).await;
        // The first rules make the kernel track connections.
        if !failing && !std::mem::replace(&mut is_tracking, true) {
            config.tracking.apply();
        }
    }
}

/// To be told of rules that are removed, where the kernel tells of that.
fn listen(filter: &Filter) -> Option<Removals> {
    let listening = filter.families.iter().any(Syncer::is_nft).then(Removals::listen)?;
    listening.inspect_err(|error| tracing::debug!(%error, "nobody tells of rules that are removed")).ok()
}

/// Returns when rules that somebody has removed may be ours.
async fn removed(removals: &Option<Removals>) {
    match removals {
        Some(removals) if removals.next().await.is_ok() => tokio::time::sleep(REMOVED).await,
        _ => std::future::pending().await,
    }
}

fn has_leftovers(filter: &Filter) -> bool {
    filter.families.iter().any(Syncer::has_leftovers)
}

async fn tidy(filter: &mut Filter) {
    for syncer in &mut filter.families {
        if let Err(error) = syncer.tidy().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "chains that nobody needs are left");
        }
    }
}

/// Whether all is as it should be.
async fn look_at(filter: &mut Filter) -> bool {
    tidy(filter).await;
    let mut is_intact = true;
    for syncer in &mut filter.families {
        match syncer.look().await {
            Ok(true) => {}
            Ok(false) => {
                tracing::info!("rules are missing: all are written");
                is_intact = false;
            }
            Err(error) => tracing::warn!(%error, "rules cannot be looked at"),
        }
    }
    is_intact
}

async fn sync(
    filter: &mut Filter,
    objects: &Objects,
    this: &This,
    taken: &Taken,
    (mut keys, since): (HashSet<Key>, Option<Instant>),
    status: &Status,
    recorder: &Recorder,
) -> bool {
    let (mut rules, mut in_step) = (0, true);
    for syncer in &mut filter.families {
        let whole = syncer.needs_all();
        if whole {
            // Beside those that have changed, which may be gone: another family may need no more than them.
            keys.extend(objects.services.list().iter().map(|service| Key::of(service.as_ref())));
        }
        if keys.is_empty() && !whole {
            continue;
        }
        let began = Instant::now();
        let mut refused = Vec::new();
        let changes = keys.iter().map(|key| (key.clone(), ports(objects, key, this, taken, &mut refused)));
        match syncer.sync(changes).await {
            Ok(synced) => {
                rules += synced.rules;
                for (key, said) in &synced.refused {
                    tracing::warn!(service = %key, said, "iptables does not take the rules of this service");
                    let message = format!("iptables does not take its rules, it is not served: {said}");
                    tell(recorder, objects, key, "RulesRefused", message);
                }
                refused.iter().filter(|_| this.first).for_each(|(key, addresses)| {
                    let message =
                        format!("{addresses}: of a node, the API or services, and not led to this one");
                    tell(recorder, objects, key, "AddressTaken", message);
                });
                status.synced(began.elapsed(), whole, rules, objects.services.cache().len(), since);
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "rules are not in step");
                status.failed();
                // Others need not wait for this one, which will write everything again.
                in_step = false;
            }
        }
    }
    if in_step {
        status.is_in_step();
    }
    in_step
}

/// Tells the owner of a service what of it does not work on this node.
fn tell(recorder: &Recorder, objects: &Objects, key: &Key, reason: &'static str, message: String) {
    if let Some(service) = objects.services.get(key) {
        recorder.event(reference(service.as_ref()), EventType::Warning, reason, message);
    }
}

/// A service's ports, and whichever of its external addresses are others'.
fn ports(
    objects: &Objects,
    key: &Key,
    this: &This,
    taken: &Taken,
    refused: &mut Vec<(Key, String)>,
) -> Vec<ServicePort> {
    let Some(service) = objects.services.get(key) else { return Vec::new() };
    let slices = objects.slices_of(key);
    let mut ports = ports_of(&service, slices.iter().map(AsRef::as_ref), &this.here);
    let addresses: BTreeSet<IpAddr> = ports.iter_mut().flat_map(|port| taken.take_from(port)).collect();
    if !addresses.is_empty() {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        refused.push((key.clone(), addresses.join(", ")));
    }
    ports
}

/// Brings the addresses up to date that are nobody's to lead to a service; whether any have changed.
fn taken_now(objects: &Objects, ranges: &[IpNet], taken: &mut Taken) -> bool {
    let nodes = objects.nodes.list();
    let api = objects.slices_of(&Key::new("default", "kubernetes"));
    let api = api.iter().flat_map(|slice| slice.endpoints.iter().map(|place| place.address));
    let addresses = nodes.iter().flat_map(|node| all_ips(node)).chain(api).collect();
    let now = Taken { addresses, ranges: ranges.to_vec() };
    let changed = *taken != now;
    *taken = now;
    changed
}

/// This node's addresses, and the ranges that it keeps packets for.
type Claimed = (Option<IpAddr>, Option<IpAddr>, Vec<IpNet>);

/// The services' addresses stay on this node, and the name server's is its own.
async fn claim(config: &Config, this: &This, ranges: &[IpNet], claimed: &mut Option<Claimed>) {
    let now = (this.address(false), this.address(true), ranges.to_vec());
    if claimed.as_ref() == Some(&now) {
        return;
    }
    let mut complete = true;
    for range in ranges {
        let Some(source) = this.address(range.addr().is_ipv6()) else { continue };
        if let Err(error) = claims::claim_range(*range, source).await {
            tracing::warn!(error = &error as &dyn std::error::Error, %range, "packets for services that do not exist may leave this node");
            complete = false;
        }
    }
    if let Err(error) = claims::release_others(ranges).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "addresses that were the services' are still kept here"
        );
        complete = false;
    }
    if let Some(address) = config.cluster_dns
        && let Err(error) = claims::claim_address(address).await
    {
        tracing::warn!(error = &error as &dyn std::error::Error, %address, "names may not be answered");
        complete = false;
    }
    if complete {
        *claimed = Some(now);
    }
}

/// Before anything is known.
fn unsettled(config: &Config, ipv6: bool) -> Settings {
    settings(config, ipv6, &This::default(), &config.service_ranges)
}

fn settings(config: &Config, ipv6: bool, this: &This, ranges: &[IpNet]) -> Settings {
    let of_family = |range: &&IpNet| range.addr().is_ipv6() == ipv6;
    let overlay = this.overlay().filter(|_| config.overlay);
    let vtep = overlay.and_then(|local| local.vteps().find(|address| address.is_ipv6() == ipv6));
    Settings {
        ipv6,
        pods: config.cluster_cidrs.iter().find(of_family).copied().or(this.pod_range(ipv6)),
        service_ranges: ranges.iter().filter(of_family).copied().collect(),
        cluster_dns: config.cluster_dns.filter(|address| address.is_ipv6() == ipv6),
        overlay: vtep.map(|address| (overlay::DEVICE.to_owned(), address)),
        node_port_addresses: config.node_port_addresses.clone(),
        localhost_node_ports: config.localhost_node_ports,
        zone: this.here.zone.clone(),
    }
}
