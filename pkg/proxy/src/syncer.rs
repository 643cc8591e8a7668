//! Keeps the kernel's rules in step with services: only what differs is written.
//!
//! ```text
//! changed services ── render ──> chains ── differ from what was applied? ──> one transaction
//! the first time, and if many change: services' chains in chunks, then what leads to them, then what is stale goes
//! ```
//!
//! Of what was applied only hashes are kept. After a failure nothing is believed, and everything is written again; a
//! service that iptables does not take by itself either is then left out, so that it keeps back nobody else.

use crate::conntrack::{self, Endpoints, Target};
use crate::iptables::Iptables;
use crate::rules::{self, Rendered, Settings, SharedRule, Table};
use crate::services::ServicePort;
use client::Key;
use network::Protocol;
use network::iptables::IptablesError;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

/// Services in one transaction, where a large one is slow.
const CHUNK: usize = 50;
/// Chains removed in one transaction.
const REMOVE_CHUNK: usize = 500;

/// A service that has changed: its ports, none if it is gone.
type Changed = (Key, Vec<ServicePort>);

/// What a sync did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// Chains written.
    pub chains: usize,
    /// Chains removed.
    pub removed: usize,
    /// Rules there are now, in nat and filter.
    pub rules: usize,
    /// Services that iptables does not take, as far as that is new, and what it says.
    pub refused: Vec<(Key, String)>,
}

/// The rules of one family of addresses.
pub struct Syncer {
    iptables: Iptables,
    settings: Settings,
    services: BTreeMap<Key, Box<[Port]>>,
    /// The chains that all services share, as they were applied: of nat, and of filter.
    shared: (HashMap<String, Sum>, HashMap<String, Sum>),
    /// Chains that nothing leads to any more.
    leftovers: BTreeSet<String>,
    /// What answers at places of UDP where that is not the same as before, and the kernel has not been told. It outlives
    /// a sync that fails: of a service that is gone nothing else is known.
    udp: Endpoints,
    /// Services that have no rules because iptables does not take them, and what it says.
    refused: BTreeMap<Key, String>,
    /// Nothing is known of the kernel: all is written.
    whole: bool,
}

/// What is kept of a port: what it adds to shared chains, and its own chains.
struct Port {
    shared: Box<[SharedRule]>,
    chains: Box<[Chain]>,
    rules: u32,
    udp: Option<Box<Udp>>,
}

impl Port {
    /// Nobody answers here.
    fn forget(&self, udp: &mut Endpoints) {
        for target in self.udp.iter().flat_map(|udp| &udp.targets) {
            udp.entry(*target).or_default();
        }
    }

    /// Who answers here.
    fn remember(&self, udp: &mut Endpoints) {
        if let Some(own) = &self.udp {
            for target in &own.targets {
                udp.entry(*target).or_default().extend(&own.endpoints);
            }
        }
    }
}

/// What is kept of a chain: its name, and a hash of its rules. There are ten or more per service.
#[derive(Clone, Copy)]
struct Chain {
    name: Name,
    hash: Sum,
}

/// A hash, in bytes, so that it stands beside a name without a gap.
type Sum = [u8; 8];

/// The name of a chain of a service or an endpoint without `KUBE-`, filled up by zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Name([u8; NAME]);

/// `SVC-` and sixteen characters.
const NAME: usize = 20;
const PREFIX: &str = "KUBE-";

impl Name {
    fn new(name: &str) -> Name {
        let name = name.strip_prefix(PREFIX).unwrap_or(name);
        let mut bytes = [0; NAME];
        let length = name.len().min(NAME);
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        Name(bytes)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::str::from_utf8(&self.0).unwrap_or_default().trim_end_matches('\0');
        write!(f, "{PREFIX}{name}")
    }
}

/// What a port of a connectionless protocol leads to, to find what is remembered of endpoints that are gone.
#[derive(PartialEq)]
struct Udp {
    targets: Vec<Target>,
    /// All that answer, also those that get no new clients: who is served by one goes on being so.
    endpoints: HashSet<SocketAddr>,
}

/// A transaction of a table: it replaces some chains and removes others. It is text from the first chain on, since the
/// rules of thousands of services, each by itself, leave memory full of holes.
#[derive(Default)]
struct Transaction {
    /// The chains, which begin empty.
    heads: String,
    /// Their rules.
    rules: String,
    /// Chains that are replaced.
    chains: usize,
    /// Services whose chains are among them.
    services: usize,
}

impl Transaction {
    fn replace(&mut self, name: &str, rules: &[String]) {
        self.empty(name);
        for rule in rules {
            let _ = writeln!(self.rules, "-A {name} {rule}");
        }
        self.chains += 1;
    }

    fn empty(&mut self, name: &str) {
        let _ = writeln!(self.heads, ":{name} - [0:0]");
    }

    fn remove(&mut self, name: &str) {
        self.empty(name);
        let _ = writeln!(self.rules, "-X {name}");
    }

    fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    fn of(&self, table: &str) -> String {
        format!("*{table}\n{}{}COMMIT\n", self.heads, self.rules)
    }
}

/// What has been found to do, and is not done yet.
#[derive(Default)]
struct Batch {
    /// Of nat.
    writes: Transaction,
    removed: Vec<String>,
    shared_changed: bool,
    /// Chains written already.
    written: usize,
    /// Services that were found not to be taken.
    refused: Vec<(Key, String)>,
}

impl Syncer {
    /// Nothing has been applied.
    pub fn new(iptables: Iptables, settings: Settings) -> Syncer {
        Syncer {
            iptables,
            settings,
            services: BTreeMap::new(),
            shared: Default::default(),
            leftovers: BTreeSet::new(),
            udp: Endpoints::default(),
            refused: BTreeMap::new(),
            whole: true,
        }
    }

    /// Whether the kernel tells of changes to these rules.
    pub fn is_nft(&self) -> bool {
        self.iptables.is_nft()
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
        let intact = self.iptables.has_all(&rules::signs(&self.settings)).await?;
        self.whole |= !intact;
        Ok(intact)
    }

    /// Whether the next sync needs every service, not only those that have changed.
    pub fn needs_all(&self) -> bool {
        self.whole
    }

    /// Brings the kernel into step. A service without ports is gone. If [`Syncer::needs_all`], `changes` are all
    /// services. They are rendered a few at a time: the text of all rules is never in memory.
    pub async fn sync(
        &mut self,
        changes: impl IntoIterator<Item = Changed>,
    ) -> Result<Synced, IptablesError> {
        let whole = std::mem::replace(&mut self.whole, true);
        let mut batch = Batch::default();
        let mut synced = match whole {
            true => self.write_all(changes.into_iter(), &mut batch).await?,
            false => self.write_some(changes.into_iter(), &mut batch).await?,
        };
        self.whole = false;
        let udp = std::mem::take(&mut self.udp);
        if !udp.is_empty() {
            conntrack::clean(&udp, self.settings.ipv6).await;
        }
        synced.rules = self.count();
        synced.refused = batch.refused;
        Ok(synced)
    }

    /// Whether there is something to [tidy](Syncer::tidy).
    pub fn has_leftovers(&self) -> bool {
        !self.leftovers.is_empty()
    }

    /// Removes chains that nothing leads to any more. Not at once, since the kernel lets the next change wait while it
    /// takes them apart.
    pub async fn tidy(&mut self) -> Result<(), IptablesError> {
        let names: Vec<String> = std::mem::take(&mut self.leftovers).into_iter().collect();
        let result = self.remove(&names).await;
        self.whole |= result.is_err();
        result
    }

    /// A chain cannot go before what leads to it: all are emptied first.
    async fn remove(&self, names: &[String]) -> Result<(), IptablesError> {
        if names.len() > REMOVE_CHUNK {
            self.in_chunks(names, Transaction::empty).await?;
        }
        self.in_chunks(names, Transaction::remove).await
    }

    async fn in_chunks(
        &self,
        names: &[String],
        what: fn(&mut Transaction, &str),
    ) -> Result<(), IptablesError> {
        for chunk in names.chunks(REMOVE_CHUNK) {
            let mut text = Transaction::default();
            chunk.iter().for_each(|name| what(&mut text, name));
            self.iptables.restore(&text.of("nat")).await?;
        }
        Ok(())
    }

    /// Renders a service that has changed, and finds what of it is not in the kernel.
    fn take(&mut self, key: &Key, ports: &[ServicePort], batch: &mut Batch) {
        let old = self.services.remove(key).unwrap_or_default();
        let applied: HashMap<Name, Sum> =
            old.iter().flat_map(|port| &port.chains).map(|chain| (chain.name, chain.hash)).collect();
        let chains_before = batch.writes.chains;
        let mut new = Vec::with_capacity(ports.len());
        for service in ports {
            let (port, table) = render(service, &self.settings);
            for (chain, (name, rules)) in port.chains.iter().zip(&table) {
                if applied.get(&chain.name) != Some(&chain.hash) {
                    self.leftovers.remove(name);
                    batch.writes.replace(name, rules);
                }
            }
            new.push(port);
        }
        batch.writes.services += usize::from(batch.writes.chains > chains_before);
        let kept: HashSet<Name> = new.iter().flat_map(|port| &port.chains).map(|chain| chain.name).collect();
        let gone = applied.keys().filter(|name| !kept.contains(name));
        batch.removed.extend(gone.map(ToString::to_string));
        batch.shared_changed |= old.iter().map(|port| &port.shared).ne(new.iter().map(|port| &port.shared));
        let (udp_before, udp_now) =
            (old.iter().flat_map(|port| &port.udp), new.iter().flat_map(|port| &port.udp));
        if udp_before.ne(udp_now) {
            old.iter().for_each(|port| port.forget(&mut self.udp));
            new.iter().for_each(|port| port.remember(&mut self.udp));
        }
        if !new.is_empty() {
            self.services.insert(key.clone(), new.into_boxed_slice());
        }
    }

    /// Replaces the shared chains that differ: in nat, and in filter.
    fn write_shared(&mut self, nat: &mut Transaction, filter: &mut Transaction) {
        let added = self.services.values().flatten().flat_map(|port| &port.shared);
        let shared = rules::shared(added, &self.settings);
        let replace = |table: Table, applied: &mut HashMap<String, Sum>, text: &mut Transaction| {
            for (name, rules) in table {
                let sum = hash(&rules);
                if applied.get(&name) != Some(&sum) {
                    text.replace(&name, &rules);
                    applied.insert(name, sum);
                }
            }
        };
        replace(shared.nat, &mut self.shared.0, nat);
        replace(shared.filter, &mut self.shared.1, filter);
    }

    /// Writes services' own chains, of which a packet meets the old ones or the new ones. Those that iptables does not
    /// take are found by halves, and left out.
    async fn write(&mut self, services: Vec<Changed>, batch: &mut Batch) -> Result<(), IptablesError> {
        let mut parts = vec![services];
        while let Some(mut part) = parts.pop() {
            for (key, ports) in &part {
                self.take(key, ports, batch);
            }
            let message = match self.flush(batch).await {
                Ok(()) => {
                    part.iter().for_each(|(key, _)| drop(self.refused.remove(key)));
                    continue;
                }
                Err(IptablesError::Refused { message, .. }) => message,
                Err(error) => return Err(error),
            };
            // If nothing at all can be written, it is nobody's fault.
            self.write_mark().await?;
            part.iter().for_each(|(key, _)| drop(self.services.remove(key)));
            match part.len() {
                1 => batch.refused.extend(part.pop().and_then(|(key, _)| self.refuse(key, message))),
                length => {
                    let rest = part.split_off(length / 2);
                    parts.extend([rest, part]);
                }
            }
        }
        Ok(())
    }

    /// Notes that a service is not taken, and returns what was not known of that.
    fn refuse(&mut self, key: Key, message: String) -> Option<(Key, String)> {
        let before = self.refused.insert(key.clone(), message.clone());
        (before.as_ref() != Some(&message)).then_some((key, message))
    }

    /// The one shared chain that services' chains lead to.
    async fn write_mark(&self) -> Result<(), IptablesError> {
        let mut mark = Transaction::default();
        let shared = rules::shared(std::iter::empty(), &self.settings).nat;
        mark.replace(rules::HOST_MARK, &shared[rules::HOST_MARK]);
        self.iptables.restore(&mark.of("nat")).await
    }

    /// Writes what has been found so far.
    async fn flush(&self, batch: &mut Batch) -> Result<(), IptablesError> {
        let writes = std::mem::take(&mut batch.writes);
        self.apply(&writes, &Transaction::default()).await?;
        batch.written += writes.chains;
        Ok(())
    }

    async fn apply(&self, nat: &Transaction, filter: &Transaction) -> Result<(), IptablesError> {
        let tables = [("nat", nat), ("filter", filter)].into_iter().filter(|(_, text)| !text.is_empty());
        let text: String = tables.map(|(table, text)| text.of(table)).collect();
        if text.is_empty() { Ok(()) } else { self.iptables.restore(&text).await }
    }

    /// What has changed: in one transaction per table, unless it is much. What was refused before is tried by itself.
    async fn write_some(
        &mut self,
        changes: impl Iterator<Item = Changed>,
        batch: &mut Batch,
    ) -> Result<Synced, IptablesError> {
        let mut again = Vec::new();
        for (key, ports) in changes {
            if self.refused.contains_key(&key) {
                again.push((key, ports));
                continue;
            }
            self.take(&key, &ports, batch);
            if self.iptables.is_nft() && batch.writes.services == CHUNK {
                self.flush(batch).await?;
            }
        }
        let (mut nat, mut filter) = (std::mem::take(&mut batch.writes), Transaction::default());
        for service in again {
            self.write(vec![service], batch).await?;
        }
        if batch.shared_changed {
            self.write_shared(&mut nat, &mut filter);
        }
        let removed = batch.removed.len();
        self.leftovers.extend(std::mem::take(&mut batch.removed));
        self.apply(&nat, &filter).await?;
        let chains = batch.written + nat.chains + filter.chains;
        Ok(Synced { chains, removed, ..Synced::default() })
    }

    /// Everything, from whatever there was: first what services need, then what leads to it, and last what is stale
    /// goes. At no time does a packet meet a chain that is half written, or is one that worked before refused.
    async fn write_all(
        &mut self,
        changes: impl Iterator<Item = Changed>,
        batch: &mut Batch,
    ) -> Result<Synced, IptablesError> {
        // Who answers is said anew.
        self.udp.values_mut().for_each(HashSet::clear);
        for port in std::mem::take(&mut self.services).values().flatten() {
            port.forget(&mut self.udp);
        }
        self.leftovers.clear();
        self.refused.clear();
        self.shared = Default::default();
        let before = self.iptables.service_chains("nat").await?;
        self.write_mark().await?;
        let chunk = if self.iptables.is_nft() { CHUNK } else { usize::MAX };
        let mut changes = changes.peekable();
        while changes.peek().is_some() {
            let services = changes.by_ref().take(chunk).collect();
            self.write(services, batch).await?;
        }
        let (mut nat, mut filter) = (Transaction::default(), Transaction::default());
        self.write_shared(&mut nat, &mut filter);
        self.apply(&nat, &filter).await?;
        self.iptables.add_jumps().await?;
        let ours: HashSet<Name> =
            self.services.values().flatten().flat_map(|port| &port.chains).map(|chain| chain.name).collect();
        let stale: Vec<String> = before.into_iter().filter(|name| !ours.contains(&Name::new(name))).collect();
        self.remove(&stale).await?;
        let chains = batch.written + nat.chains + filter.chains;
        Ok(Synced { chains, removed: stale.len(), ..Synced::default() })
    }

    fn count(&self) -> usize {
        let of_port = |port: &Port| port.rules as usize + port.shared.len();
        self.services.values().flatten().map(of_port).sum()
    }
}

fn render(service: &ServicePort, settings: &Settings) -> (Port, Table) {
    let Rendered { chains, shared } = rules::port(service, settings);
    let udp = (service.protocol == Protocol::Udp).then(|| {
        let of_family = |address: &&IpAddr| address.is_ipv6() == settings.ipv6;
        let more = &service.more;
        let fixed = service.cluster_ips.iter().chain(&more.external_ips).chain(&more.load_balancer_ips);
        let fixed = fixed.filter(of_family).map(|address| (Some(*address), service.port));
        let node_port = service.node_port.map(|port| (None, port));
        let endpoints = service.endpoints.iter().filter(|endpoint| endpoint.serving);
        let endpoints = endpoints.filter(|endpoint| of_family(&&endpoint.address));
        let endpoints = endpoints.map(|endpoint| SocketAddr::new(endpoint.address, endpoint.port));
        Box::new(Udp { targets: fixed.chain(node_port).collect(), endpoints: endpoints.collect() })
    });
    let kept =
        chains.iter().map(|(name, rules)| Chain { name: Name::new(name), hash: hash(rules) }).collect();
    let rules = chains.values().map(Vec::len).sum::<usize>() as u32;
    (Port { shared: shared.into(), chains: kept, rules, udp }, chains)
}

fn hash(rules: &[String]) -> Sum {
    let mut hasher = DefaultHasher::new();
    rules.hash(&mut hasher);
    hasher.finish().to_ne_bytes()
}
