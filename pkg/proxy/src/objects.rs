//! The objects that this node follows, and their copy on disk, with which a restarted kubeproxy works while there is
//! no apiserver.
//!
//! ```text
//! apiserver ── watch ──> Cache ──> changed keys, to whoever follows
//!                          └── now and then ──> objects.json ── at the next start, until a list has come ──> the same
//! ```

use api::kinds::minik8s::dns::DNS;
use client::{AnyCache, Cache, Informers, Key};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::Ingress;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// Which slices a service has.
const BY_SERVICE: &str = "service";

/// Everything that is followed. Clones share it.
#[derive(Clone)]
pub struct Objects {
    /// Services.
    pub services: Kept<Service>,
    /// Where they lead.
    pub slices: Kept<EndpointSlice>,
    /// Nodes.
    pub nodes: Kept<Node>,
    /// DNS objects.
    pub dnses: Kept<DNS>,
    /// Ingresses.
    pub ingresses: Kept<Ingress>,
    path: PathBuf,
}

/// The objects of a kind: as they are, or, until that is known, as they were.
pub struct Kept<K> {
    cache: Cache<K>,
    saved: Arc<Vec<Arc<K>>>,
    /// Whether there was a copy at all.
    was_saved: bool,
}

impl<K> Clone for Kept<K> {
    fn clone(&self) -> Self {
        Kept { cache: self.cache.clone(), saved: self.saved.clone(), was_saved: self.was_saved }
    }
}

/// The copy on disk.
#[derive(Serialize, Deserialize)]
struct Copy<S, E, N, D, I> {
    services: Vec<S>,
    slices: Vec<E>,
    nodes: Vec<N>,
    dnses: Vec<D>,
    ingresses: Vec<I>,
}

type Saved = Copy<Service, EndpointSlice, Node, DNS, Ingress>;

impl Objects {
    /// Follows them all. What was known before is known at once.
    pub fn follow(informers: &Informers, dir: &Path) -> Objects {
        let path = dir.join("objects.json");
        let saved: Option<Saved> =
            std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let was_saved = saved.is_some();
        let saved = saved.unwrap_or(Copy {
            services: Vec::new(),
            slices: Vec::new(),
            nodes: Vec::new(),
            dnses: Vec::new(),
            ingresses: Vec::new(),
        });
        let slices: Cache<EndpointSlice> = informers.cache();
        slices.index(BY_SERVICE, |slice| service_of(slice).map(|key| key.to_string()).into_iter().collect());
        Objects {
            services: kept(informers.cache(), saved.services, was_saved),
            slices: kept(slices, saved.slices, was_saved),
            nodes: kept(informers.cache_pruned(prune_node), saved.nodes, was_saved),
            dnses: kept(informers.cache(), saved.dnses, was_saved),
            ingresses: kept(informers.cache(), saved.ingresses, was_saved),
            path,
        }
    }

    /// The slices of a service.
    pub fn slices_of(&self, service: &Key) -> Vec<Arc<EndpointSlice>> {
        if self.slices.cache.is_synced() {
            return self.slices.cache.by(BY_SERVICE, &service.to_string());
        }
        let of_service = |slice: &&Arc<EndpointSlice>| service_of(slice).as_ref() == Some(service);
        self.slices.saved.iter().filter(of_service).cloned().collect()
    }

    /// Writes the copy, once everything is known.
    pub fn save(&self) -> std::io::Result<()> {
        let known =
            self.services.cache.is_synced() && self.slices.cache.is_synced() && self.nodes.cache.is_synced();
        if !known {
            return Ok(());
        }
        let copy = Copy {
            services: self.services.list(),
            slices: self.slices.list(),
            nodes: self.nodes.list(),
            dnses: self.dnses.list(),
            ingresses: self.ingresses.list(),
        };
        let bytes = serde_json::to_vec(&view(&copy)).map_err(std::io::Error::other)?;
        let temporary = self.path.with_extension("tmp");
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::write(&temporary, bytes)?;
        std::fs::rename(&temporary, &self.path)
    }

    /// Counts changes of anything.
    pub fn changes(&self) -> Vec<watch::Receiver<u64>> {
        vec![
            self.services.cache.changes(),
            self.slices.cache.changes(),
            self.nodes.cache.changes(),
            self.dnses.cache.changes(),
            self.ingresses.cache.changes(),
        ]
    }
}

type Borrowed<'a> = Copy<&'a Service, &'a EndpointSlice, &'a Node, &'a DNS, &'a Ingress>;
type Shared = Copy<Arc<Service>, Arc<EndpointSlice>, Arc<Node>, Arc<DNS>, Arc<Ingress>>;

fn view(copy: &Shared) -> Borrowed<'_> {
    Copy {
        services: copy.services.iter().map(Arc::as_ref).collect(),
        slices: copy.slices.iter().map(Arc::as_ref).collect(),
        nodes: copy.nodes.iter().map(Arc::as_ref).collect(),
        dnses: copy.dnses.iter().map(Arc::as_ref).collect(),
        ingresses: copy.ingresses.iter().map(Arc::as_ref).collect(),
    }
}

impl<K: kube::Resource + Debug + Send + Sync + 'static> Kept<K> {
    /// All of them.
    pub fn list(&self) -> Vec<Arc<K>> {
        if self.cache.is_synced() { self.cache.list() } else { self.saved.to_vec() }
    }

    /// One of them.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        match self.cache.is_synced() {
            true => self.cache.get(key),
            false => self.saved.iter().find(|object| Key::of(object.as_ref()) == *key).cloned(),
        }
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

fn kept<K>(cache: Cache<K>, saved: Vec<K>, was_saved: bool) -> Kept<K> {
    Kept { cache, saved: Arc::new(saved.into_iter().map(Arc::new).collect()), was_saved }
}

/// The service that a slice is of.
pub fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.metadata.labels.as_ref()?.get(crate::services::SERVICE_NAME)?;
    Some(Key::new(slice.metadata.namespace.clone().unwrap_or_default(), name.clone()))
}

/// A node's status is long, and changes all the time; only its addresses are of interest here.
fn prune_node(node: &mut Node) {
    if let Some(status) = &mut node.status {
        let addresses = status.addresses.take();
        *status = k8s_openapi::api::core::v1::NodeStatus { addresses, ..Default::default() };
    }
}

/// Services that have changed and have not been looked at, and since when.
#[derive(Clone, Default)]
pub struct Dirty(Arc<Mutex<Pending>>, Arc<tokio::sync::Notify>);

#[derive(Default)]
struct Pending {
    keys: HashSet<Key>,
    since: Option<std::time::Instant>,
}

impl Dirty {
    /// Marks whatever changes from now on.
    pub fn follow(&self, objects: &Objects) {
        let dirty = self.clone();
        objects.services.cache().subscribe(move |change| dirty.mark(Some(change.key())));
        let dirty = self.clone();
        objects.slices.cache().subscribe(move |change| {
            // A slice may change hands.
            dirty.mark(change.old.as_deref().and_then(service_of));
            dirty.mark(change.new.as_deref().and_then(service_of));
        });
        let dirty = self.clone();
        objects.nodes.cache().subscribe(move |_| dirty.1.notify_one());
    }

    fn mark(&self, key: Option<Key>) {
        let Some(key) = key else { return };
        let mut pending = self.0.lock();
        pending.keys.insert(key);
        pending.since.get_or_insert_with(std::time::Instant::now);
        drop(pending);
        self.1.notify_one();
    }

    /// Waits for a change.
    pub async fn changed(&self) {
        self.1.notified().await;
    }

    /// Takes what has been marked, and when the first of it was.
    pub fn take(&self) -> (HashSet<Key>, Option<std::time::Instant>) {
        let mut pending = self.0.lock();
        (std::mem::take(&mut pending.keys), pending.since.take())
    }
}
