//! Keeps the kernel's rules in step with services: only what differs is written.
//!
//! ```text
//! changed services ── render ──> chains ── differ from what was applied? ──> one transaction
//! the first time: the services' chains in chunks, then what leads to them, then what is stale goes
//! ```
//!
//! Of what was applied only hashes are kept. After a failure nothing is believed, and everything is written again.

use crate::conntrack::{self, Stale};
use crate::iptables::{Iptables, IptablesError};
use crate::rules::{self, Rendered, Settings, Table};
use crate::services::ServicePort;
use client::Key;
use network::Protocol;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

/// Services in one transaction, where a large one is slow.
const CHUNK: usize = 50;
/// Chains removed in one transaction.
const REMOVE_CHUNK: usize = 500;

/// What a sync did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// Chains written.
    pub chains: usize,
    /// Chains removed.
    pub removed: usize,
    /// Rules there are now, in nat and filter.
    pub rules: usize,
}

/// The rules of one family of addresses.
pub struct Syncer {
    iptables: Iptables,
    settings: Settings,
    services: BTreeMap<Key, Vec<Port>>,
    nat: HashMap<String, u64>,
    filter: HashMap<String, u64>,
    /// Nothing is known of the kernel: all is written.
    whole: bool,
}

/// What is kept of a port: what it adds to shared chains, and the names of its own.
struct Port {
    shared: Rendered,
    chains: Vec<(String, u64)>,
    rules: usize,
    udp: Option<Udp>,
}

/// What a port of a connectionless protocol leads to, to find what is remembered of endpoints that are gone.
struct Udp {
    addresses: Vec<(Option<IpAddr>, u16)>,
    endpoints: HashSet<IpAddr>,
}

/// A set of changed chains of one service.
type Writes = Vec<(String, Vec<String>)>;

impl Syncer {
    /// Nothing has been applied.
    pub fn new(iptables: Iptables, settings: Settings) -> Syncer {
        Syncer {
            iptables,
            settings,
            services: BTreeMap::new(),
            nat: HashMap::new(),
            filter: HashMap::new(),
            whole: true,
        }
    }

    /// What rules depend on besides services.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Other settings: every service has to be given again.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
        self.whole = true;
    }

    /// Looks whether the rules are still there; if not, the next sync writes all of them.
    pub async fn look(&mut self) -> Result<bool, IptablesError> {
        let intact = self.iptables.is_intact().await?;
        self.whole |= !intact;
        Ok(intact)
    }

    /// The next sync writes everything.
    pub fn forget(&mut self) {
        self.whole = true;
    }

    /// Whether the next sync needs every service, not only those that have changed.
    pub fn needs_all(&self) -> bool {
        self.whole
    }

    /// Brings the kernel into step. A service without ports is gone. If [`Syncer::needs_all`], `changes` are all
    /// services.
    pub async fn sync(&mut self, changes: Vec<(Key, Vec<ServicePort>)>) -> Result<Synced, IptablesError> {
        let whole = std::mem::replace(&mut self.whole, true);
        if whole {
            self.services.clear();
            self.nat.clear();
            self.filter.clear();
        }
        let (writes, removed, stale, shared_changed) = self.take(changes);
        let shared = if shared_changed || whole { self.shared_writes() } else { Default::default() };
        let result = match whole {
            true => self.apply_all(&writes, &shared).await?,
            false => self.apply(&writes, &removed, &shared).await?,
        };
        self.whole = false;
        conntrack::flush(&stale).await;
        Ok(Synced { rules: self.count(), ..result })
    }

    /// Renders what changed, and finds what of it is not in the kernel.
    fn take(
        &mut self,
        changes: Vec<(Key, Vec<ServicePort>)>,
    ) -> (Vec<Writes>, Vec<String>, Vec<Stale>, bool) {
        let (mut writes, mut removed, mut stale) = (Vec::new(), Vec::new(), Vec::new());
        let mut shared_changed = false;
        for (key, ports) in changes {
            let mut of_service: Writes = Vec::new();
            let mut new_ports = Vec::new();
            for service in &ports {
                let (port, chains) = render(service, &self.settings);
                of_service.extend(
                    chains.into_iter().filter(|(name, rules)| self.nat.get(name) != Some(&hash(rules))),
                );
                new_ports.push(port);
            }
            let old_ports = match new_ports.is_empty() {
                true => self.services.remove(&key),
                false => self.services.insert(key.clone(), new_ports),
            };
            let old_ports = old_ports.unwrap_or_default();
            let new_ports = self.services.get(&key).map(Vec::as_slice).unwrap_or_default();
            let kept: HashSet<&str> =
                new_ports.iter().flat_map(|port| &port.chains).map(|(name, _)| name.as_str()).collect();
            let old_chains = old_ports.iter().flat_map(|port| &port.chains);
            removed.extend(
                old_chains.filter(|(name, _)| !kept.contains(name.as_str())).map(|(name, _)| name.clone()),
            );
            shared_changed |=
                old_ports.iter().map(|port| &port.shared).ne(new_ports.iter().map(|port| &port.shared));
            stale.extend(forgotten(&old_ports, new_ports));
            for (name, hash) in new_ports.iter().flat_map(|port| &port.chains) {
                self.nat.insert(name.clone(), *hash);
            }
            if !of_service.is_empty() {
                writes.push(of_service);
            }
        }
        for name in &removed {
            self.nat.remove(name);
        }
        (writes, removed, stale, shared_changed)
    }

    /// The shared chains that differ: of nat, and of filter.
    fn shared_writes(&mut self) -> (Writes, Writes) {
        let rendered = self.services.values().flatten().map(|port| &port.shared);
        let shared = rules::shared(rendered, &self.settings);
        let differ = |table: Table, applied: &mut HashMap<String, u64>| -> Writes {
            let changed = table.into_iter().filter(|(name, rules)| applied.get(name) != Some(&hash(rules)));
            let changed: Writes = changed.collect();
            applied.extend(changed.iter().map(|(name, rules)| (name.clone(), hash(rules))));
            changed
        };
        (differ(shared.nat, &mut self.nat), differ(shared.filter, &mut self.filter))
    }

    /// A few changes: all in one transaction per table.
    async fn apply(
        &self,
        writes: &[Writes],
        removed: &[String],
        shared: &(Writes, Writes),
    ) -> Result<Synced, IptablesError> {
        let many = self.iptables.is_nft() && writes.len() > CHUNK;
        let (first, last) = if many { (writes, &[][..]) } else { (&[][..], writes) };
        for chunk in first.chunks(CHUNK) {
            self.iptables.restore(&transaction("nat", chunk.iter().flatten(), &[])).await?;
        }
        let mut text = String::new();
        let nat = last.iter().flatten().chain(&shared.0);
        if !last.is_empty() || !shared.0.is_empty() || !removed.is_empty() {
            text += &transaction("nat", nat, removed);
        }
        if !shared.1.is_empty() {
            text += &transaction("filter", shared.1.iter(), &[]);
        }
        if !text.is_empty() {
            self.iptables.restore(&text).await?;
        }
        let chains = writes.iter().map(Vec::len).sum::<usize>() + shared.0.len() + shared.1.len();
        Ok(Synced { chains, removed: removed.len(), rules: 0 })
    }

    /// Everything, from whatever there is: what services need first, what leads to it next, what is stale last. At no
    /// time does a packet meet a chain that is half written, or is one that worked before refused.
    async fn apply_all(&self, writes: &[Writes], shared: &(Writes, Writes)) -> Result<Synced, IptablesError> {
        let present = self.iptables.service_chains("nat").await?;
        let chunk = if self.iptables.is_nft() { CHUNK } else { usize::MAX };
        for chunk in writes.chunks(chunk) {
            self.iptables.restore(&transaction("nat", chunk.iter().flatten(), &[])).await?;
        }
        let mut text = transaction("nat", shared.0.iter(), &[]);
        text += &transaction("filter", shared.1.iter(), &[]);
        self.iptables.restore(&text).await?;
        self.iptables.add_jumps().await?;
        let stale: Vec<String> = present.into_iter().filter(|name| !self.nat.contains_key(name)).collect();
        // A chain cannot go before what leads to it: all are emptied first.
        for chunk in stale.chunks(REMOVE_CHUNK) {
            self.iptables.restore(&emptied("nat", chunk)).await?;
        }
        for chunk in stale.chunks(REMOVE_CHUNK) {
            self.iptables.restore(&transaction("nat", std::iter::empty(), chunk)).await?;
        }
        let chains = writes.iter().map(Vec::len).sum::<usize>() + shared.0.len() + shared.1.len();
        Ok(Synced { chains, removed: stale.len(), rules: 0 })
    }

    fn count(&self) -> usize {
        let of_port = |port: &Port| {
            let shared = &port.shared;
            port.rules
                + shared.services.len()
                + shared.node_ports.len()
                + shared.refused.len()
                + shared.refused_outside.len()
                + shared.firewall.len()
        };
        self.services.values().flatten().map(of_port).sum()
    }
}

fn render(service: &ServicePort, settings: &Settings) -> (Port, Table) {
    let mut shared = rules::port(service, settings);
    let chains = std::mem::take(&mut shared.chains);
    let udp = (service.protocol == Protocol::Udp).then(|| {
        let of_family = |address: &&IpAddr| address.is_ipv6() == settings.ipv6;
        let fixed = service.cluster_ips.iter().chain(&service.external_ips).chain(&service.load_balancer_ips);
        let fixed = fixed.filter(of_family).map(|address| (Some(*address), service.port));
        let node_port = service.node_port.map(|port| (None, port));
        let endpoints = service.choose(settings.ipv6);
        let endpoints = endpoints.cluster.iter().chain(&endpoints.local).map(|endpoint| endpoint.address);
        Udp { addresses: fixed.chain(node_port).collect(), endpoints: endpoints.collect() }
    });
    let names = chains.iter().map(|(name, rules)| (name.clone(), hash(rules))).collect();
    let rules = chains.values().map(Vec::len).sum();
    (Port { shared, chains: names, rules, udp }, chains)
}

/// What must be forgotten of connectionless protocols: ways to endpoints that are gone, and, where there was none
/// before, ways to nowhere.
fn forgotten(old: &[Port], new: &[Port]) -> Vec<Stale> {
    let mut stale = Vec::new();
    let of = |ports: &[Port], address: &(Option<IpAddr>, u16)| -> HashSet<IpAddr> {
        let udp = ports.iter().filter_map(|port| port.udp.as_ref());
        udp.filter(|udp| udp.addresses.contains(address)).flat_map(|udp| udp.endpoints.clone()).collect()
    };
    let addresses = old.iter().chain(new).filter_map(|port| port.udp.as_ref()).flat_map(|udp| &udp.addresses);
    let addresses: HashSet<&(Option<IpAddr>, u16)> = addresses.collect();
    for address in addresses {
        let (before, after) = (of(old, address), of(new, address));
        for gone in before.difference(&after) {
            stale.push(Stale { address: address.0, port: address.1, endpoint: Some(*gone) });
        }
        if before.is_empty() && !after.is_empty() {
            stale.push(Stale { address: address.0, port: address.1, endpoint: None });
        }
    }
    stale
}

/// The text that replaces some chains and removes others.
fn transaction<'a>(
    table: &str,
    writes: impl Iterator<Item = &'a (String, Vec<String>)> + Clone,
    removed: &[String],
) -> String {
    let mut text = format!("*{table}\n");
    for (name, _) in writes.clone() {
        let _ = writeln!(text, ":{name} - [0:0]");
    }
    for name in removed {
        let _ = writeln!(text, ":{name} - [0:0]");
    }
    for (name, rules) in writes {
        for rule in rules {
            let _ = writeln!(text, "-A {name} {rule}");
        }
    }
    for name in removed {
        let _ = writeln!(text, "-X {name}");
    }
    text += "COMMIT\n";
    text
}

fn emptied(table: &str, names: &[String]) -> String {
    let names: String = names.iter().map(|name| format!(":{name} - [0:0]\n")).collect();
    format!("*{table}\n{names}COMMIT\n")
}

fn hash(rules: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    rules.hash(&mut hasher);
    hasher.finish()
}
