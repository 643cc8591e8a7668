//! The objects that this node follows, and their copy on disk, with which a restarted kubeproxy works while there is
//! no apiserver.
//!
//! ```text
//! apiserver ── watch ──> Cache ──> changed keys, to whoever follows
//!                          └── now and then ──> objects.json ── at the next start, until a list has come ──> the same
//! ```

use crate::gateway::{Classes, Reserved, Services as Places, Sites, sites};
use crate::node::{has_some_of, own_names};
use crate::record::{Service, Slice};
use api::domains::RECORD;
use api::kinds::minik8s::dns::DNS;
use api::kinds::networking::ingress::CLASS_ANNOTATION;
use client::{AnyCache, Cache, Informers, Key};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass, ServiceCIDR};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt::Debug;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a start waits for the apiserver before it believes its copy.
const SETTLE: Duration = Duration::from_secs(3);

/// Which slices a service has.
const BY_SERVICE: &str = "service";

/// Everything that is followed. Clones share it.
#[derive(Clone)]
pub struct Objects {
    /// Services.
    pub services: Kept<Service>,
    /// Where they lead.
    pub slices: Kept<Slice>,
    /// Nodes.
    pub nodes: Kept<Node>,
    /// DNS objects.
    pub dnses: Kept<DNS>,
    /// Ingresses.
    pub ingresses: Kept<Ingress>,
    /// Their classes.
    pub classes: Kept<IngressClass>,
    /// Ranges of services' addresses; none where a cluster knows no such objects.
    pub cidrs: Kept<ServiceCIDR>,
    /// Counts changes of where headless services are.
    headless: watch::Receiver<u64>,
    /// What the API server is called by this node.
    control_plane: Option<String>,
    path: PathBuf,
}

/// The objects of a kind: as they are, or, until that is known, as they were.
pub struct Kept<K> {
    cache: Cache<K>,
    /// Whether there was a copy of them.
    was_saved: bool,
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        Kept { cache: self.cache.clone(), was_saved: self.was_saved }
    }
}

/// The copy on disk. What was not known when it was made is not in it.
#[derive(Serialize, Deserialize)]
struct Copy<S, E, N, D, I, C, R> {
    services: Option<Vec<S>>,
    slices: Option<Vec<E>>,
    nodes: Option<Vec<N>>,
    dnses: Option<Vec<D>>,
    ingresses: Option<Vec<I>>,
    classes: Option<Vec<C>>,
    cidrs: Option<Vec<R>>,
}

type Saved = Copy<Service, Slice, Node, DNS, Ingress, IngressClass, ServiceCIDR>;

impl Objects {
    /// Follows them all. What was known before is known at once.
    pub fn follow(informers: &Informers, dir: &Path, control_plane: Option<String>) -> Objects {
        let path = dir.join("objects.json");
        let saved = std::fs::File::open(&path).ok();
        let saved: Option<Saved> = saved.and_then(|file| serde_json::from_reader(BufReader::new(file)).ok());
        let saved = saved.unwrap_or(Copy {
            services: None,
            slices: None,
            nodes: None,
            dnses: None,
            ingresses: None,
            classes: None,
            cidrs: None,
        });
        let slices: Kept<Slice> = Kept::follow(informers, |_| {}, saved.slices);
        let by_service = |slice: &Slice| slice.service_key().map(|key| key.to_string()).into_iter().collect();
        slices.cache.index(BY_SERVICE, by_service);
        let services: Kept<Service> = Kept::follow(informers, |_| {}, saved.services);
        Objects {
            headless: headless_changes(&services, &slices),
            services,
            slices,
            nodes: Kept::follow(informers, prune_node, saved.nodes),
            dnses: Kept::follow(informers, |_| {}, saved.dnses),
            ingresses: Kept::follow(informers, prune_ingress, saved.ingresses),
            classes: Kept::follow(informers, |_| {}, saved.classes),
            cidrs: Kept::follow(informers, |_| {}, saved.cidrs),
            control_plane,
            path,
        }
    }

    /// The slices of a service.
    pub fn slices_of(&self, service: &Key) -> Vec<Arc<Slice>> {
        self.slices.cache.by(BY_SERVICE, &service.to_string())
    }

    /// The ranges of services' addresses, besides those that this node was told of. What nodes and pods have is not kept from
    /// them, whoever says that it is the services'.
    pub fn more_ranges(&self, told: &[IpNet]) -> Vec<IpNet> {
        let cidrs = self.cidrs.list();
        let ranges = cidrs.iter().filter_map(|cidr| cidr.spec.as_ref()?.cidrs.as_ref()).flatten();
        let ranges = ranges.filter_map(|range| Some(range.parse::<IpNet>().ok()?.trunc()));
        let mut more: Vec<IpNet> = ranges.filter(|range| !told.contains(range)).collect();
        if !more.is_empty() {
            let nodes = self.nodes.list();
            more.retain(|range| !nodes.iter().any(|node| has_some_of(node, range)));
        }
        more
    }

    /// The classes of ingresses that are ours.
    pub fn own_classes(&self) -> Classes {
        Classes::new(self.classes.list().iter().map(AsRef::as_ref))
    }

    /// The names that no object can lead elsewhere.
    pub fn reserved(&self, domain: &str) -> Reserved {
        let nodes = self.nodes.list();
        let names = nodes.iter().flat_map(|node| own_names(node));
        Reserved::new(domain, names.chain(self.control_plane.iter().cloned()))
    }

    /// The hosts of DNS objects and ingresses, and where they lead.
    pub fn sites(&self, classes: &Classes, services: &Places) -> Sites {
        let (dnses, ingresses) = (self.dnses.list(), self.ingresses.list());
        // Who knows no DNS objects is somebody else's API server.
        let trusted = self.dnses.is_known();
        sites(
            dnses.iter().map(AsRef::as_ref),
            ingresses.iter().map(AsRef::as_ref),
            classes,
            services,
            trusted,
        )
    }

    /// Waits until services are known as they are, but not for long: what was known before is better than nothing, but
    /// the kernel may know better still.
    pub async fn settled(&self) {
        let synced = async {
            self.services.cache.synced().await;
            self.slices.cache.synced().await;
        };
        let _ = tokio::time::timeout(SETTLE, synced).await;
    }

    /// Writes the copy, once everything is known.
    pub fn save(&self) -> std::io::Result<()> {
        let known =
            self.services.cache.is_synced() && self.slices.cache.is_synced() && self.nodes.cache.is_synced();
        if !known {
            return Ok(());
        }
        let copy = Copy {
            services: self.services.known(),
            slices: self.slices.known(),
            nodes: self.nodes.known(),
            dnses: self.dnses.known(),
            ingresses: self.ingresses.known(),
            classes: self.classes.known(),
            cidrs: self.cidrs.known(),
        };
        let temporary = self.path.with_extension("tmp");
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = BufWriter::new(std::fs::File::create(&temporary)?);
        serde_json::to_writer(&mut file, &view(&copy)).map_err(std::io::Error::other)?;
        file.flush()?;
        // A node that loses its power must not come back with half of it.
        file.get_ref().sync_data()?;
        std::fs::rename(&temporary, &self.path)
    }

    /// Counts changes of anything.
    pub fn changes(&self) -> Vec<watch::Receiver<u64>> {
        let mut changes = self.gateway_changes();
        changes.extend([self.slices.cache.changes(), self.cidrs.cache.changes()]);
        changes
    }

    /// Counts changes of what hosts and paths are made of.
    pub fn gateway_changes(&self) -> Vec<watch::Receiver<u64>> {
        vec![
            self.services.cache.changes(),
            self.nodes.cache.changes(),
            self.dnses.cache.changes(),
            self.ingresses.cache.changes(),
            self.classes.cache.changes(),
            self.headless.clone(),
        ]
    }
}

/// Slices change all the time. Those of services with an address are no business of hosts and paths.
fn headless_changes(services: &Kept<Service>, slices: &Kept<Slice>) -> watch::Receiver<u64> {
    let (changes, headless) = watch::channel(0);
    let services = services.clone();
    slices.cache.subscribe(move |change| {
        let service = change.object().service_key().and_then(|key| services.get(&key));
        if service.is_some_and(|service| service.is_headless()) {
            changes.send_modify(|count| *count += 1);
        }
    });
    headless
}

type Borrowed<'a> =
    Copy<&'a Service, &'a Slice, &'a Node, &'a DNS, &'a Ingress, &'a IngressClass, &'a ServiceCIDR>;
type Shared =
    Copy<Arc<Service>, Arc<Slice>, Arc<Node>, Arc<DNS>, Arc<Ingress>, Arc<IngressClass>, Arc<ServiceCIDR>>;

fn view(copy: &Shared) -> Borrowed<'_> {
    fn borrow<K>(all: &Option<Vec<Arc<K>>>) -> Option<Vec<&K>> {
        all.as_ref().map(|all| all.iter().map(Arc::as_ref).collect())
    }
    Copy {
        services: borrow(&copy.services),
        slices: borrow(&copy.slices),
        nodes: borrow(&copy.nodes),
        dnses: borrow(&copy.dnses),
        ingresses: borrow(&copy.ingresses),
        classes: borrow(&copy.classes),
        cidrs: borrow(&copy.cidrs),
    }
}

impl<K> Kept<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    fn follow(informers: &Informers, prune: fn(&mut K), saved: Option<Vec<K>>) -> Kept<K> {
        Kept { was_saved: saved.is_some(), cache: informers.cache_seeded(prune, saved.unwrap_or_default()) }
    }

    /// All of them, if they are known.
    fn known(&self) -> Option<Vec<Arc<K>>> {
        self.is_known().then(|| self.list())
    }

    /// All of them.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.cache.list()
    }

    /// One of them.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.cache.get(key)
    }

    /// Whether they are known, now or from before.
    pub fn is_known(&self) -> bool {
        self.was_saved || self.cache.is_synced()
    }

    /// Whether they are known as they are now.
    pub fn is_synced(&self) -> bool {
        self.cache.is_synced()
    }

    /// Counts changes.
    pub fn cache_changes(&self) -> watch::Receiver<u64> {
        self.cache.changes()
    }

    /// The cache itself, to be told of changes.
    pub fn cache(&self) -> &Cache<K> {
        &self.cache
    }
}

/// Only what has to do with hosts and paths.
fn prune_ingress(ingress: &mut Ingress) {
    if let Some(annotations) = &mut ingress.metadata.annotations {
        annotations.retain(|name, _| name == CLASS_ANNOTATION || name == RECORD);
    }
    ingress.metadata.labels = None;
}

/// A node's status is long, and changes all the time; only its addresses are of interest here.
fn prune_node(node: &mut Node) {
    if let Some(status) = &mut node.status {
        let addresses = status.addresses.take();
        *status = k8s_openapi::api::core::v1::NodeStatus { addresses, ..Default::default() };
    }
}

/// Services that have changed and have not been looked at, and since when.
#[derive(Clone)]
pub struct Dirty(Arc<Mutex<Pending>>, Arc<tokio::sync::Notify>, Instant);

impl Default for Dirty {
    fn default() -> Self {
        Dirty(Arc::default(), Arc::default(), Instant::now())
    }
}

#[derive(Default)]
struct Pending {
    keys: HashSet<Key>,
    since: Option<Instant>,
}

impl Dirty {
    /// Marks whatever changes from now on.
    pub fn follow(&self, objects: &Objects) {
        let dirty = self.clone();
        objects.services.cache().subscribe(move |change| dirty.mark(Some(change.key()), None));
        let dirty = self.clone();
        objects.slices.cache().subscribe(move |change| {
            // A slice may change hands.
            dirty.mark(change.old.as_deref().and_then(Slice::service_key), None);
            let happened = change.new.as_deref().and_then(|slice| slice.happened_ms);
            dirty.mark(change.new.as_deref().and_then(Slice::service_key), happened);
        });
        let dirty = self.clone();
        objects.nodes.cache().subscribe(move |_| dirty.1.notify_one());
        let dirty = self.clone();
        objects.cidrs.cache().subscribe(move |_| dirty.1.notify_one());
    }

    /// `happened_ms` is when the change happened, if that is known better than by its arrival.
    fn mark(&self, key: Option<Key>, happened_ms: Option<i64>) {
        let Some(key) = key else { return };
        let mut pending = self.0.lock();
        pending.keys.insert(key);
        let since = happened(happened_ms, self.2);
        pending.since = Some(pending.since.map_or(since, |earlier| earlier.min(since)));
        drop(pending);
        self.1.notify_one();
    }

    /// Waits for a change.
    pub async fn changed(&self) {
        self.1.notified().await;
    }

    /// Takes what has been marked, and when the first of it was.
    pub fn take(&self) -> (HashSet<Key>, Option<Instant>) {
        let mut pending = self.0.lock();
        (std::mem::take(&mut pending.keys), pending.since.take())
    }
}

/// When a change happened; what happened before `start` is counted from now, since nobody was here to see it.
fn happened(at_ms: Option<i64>, start: Instant) -> Instant {
    let now = Instant::now();
    let age = at_ms.map(|at| jiff::Timestamp::now().as_millisecond().saturating_sub(at));
    let age = age.and_then(|age| u64::try_from(age).ok()).map(Duration::from_millis);
    age.and_then(|age| now.checked_sub(age)).filter(|then| *then >= start).unwrap_or(now)
}
