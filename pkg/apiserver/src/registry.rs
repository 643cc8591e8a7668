//! The resources being served: each kind with its cache. Built-in kinds are there from the start; custom ones come
//! and go with their definitions.

use crate::conversion::Converter;
use crate::metrics::ResourceMetrics;
use crate::{component_statuses, nodes};
use api::crd::Versions;
use api::kind::Verbs;
use api::{Kind, Value, object};
use listwatch::{Cache, Decode, Hub, Object, Page, ResourceConfig, Scope, SelectableField};
use parking_lot::RwLock;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use store::Store;

/// A kind that is served, with the cache of its objects.
pub struct Resource {
    /// What it is.
    pub kind: Arc<Kind>,
    /// Where its objects are read.
    pub cache: Arc<Cache>,
    /// What was asked of it.
    pub metrics: Arc<ResourceMetrics>,
    /// Who converts its objects from and to the version they are stored in, where that takes somebody else.
    pub converter: Option<Converter>,
    /// How bytes of this version begin: others must be converted before they are sent.
    opening: Vec<u8>,
}

impl Resource {
    /// A kind with its cache.
    pub fn new(kind: Arc<Kind>, cache: Arc<Cache>) -> Resource {
        let opening =
            format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version()).into_bytes();
        let converter = kind.versions.as_ref().and_then(Converter::new);
        Resource { kind, cache, metrics: Arc::default(), converter, opening }
    }

    /// All objects, or those of one namespace, as the cache shows them now.
    pub fn objects(&self, namespace: Option<&str>) -> Vec<Arc<Object>> {
        let scope = namespace.map(Scope::namespace).unwrap_or_default();
        self.cache.list(&scope, Page::default()).map(|listing| listing.objects).unwrap_or_default()
    }

    /// Whether cached bytes can be sent as they are.
    pub fn is_ready_made(&self, json: &[u8]) -> bool {
        self.ready_made(json).is_some()
    }

    /// If cached bytes can be sent as they are: where what follows kind and apiVersion begins.
    pub fn ready_made(&self, json: &[u8]) -> Option<usize> {
        (self.kind.convert.is_none() && json.starts_with(&self.opening)).then_some(self.opening.len())
    }
}

/// All resources at one moment.
#[derive(Default)]
pub struct Resources {
    by_path: HashMap<String, HashMap<String, HashMap<String, Arc<Resource>>>>,
    kinds: Vec<Arc<Kind>>,
}

impl Resources {
    /// The resource under `/apis/{group}/{version}/{plural}`.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(group)?.get(version)?.get(plural)
    }

    /// Some version of the resource: all versions share their objects.
    pub fn any_version(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(group)?.values().find_map(|plurals| plurals.get(plural))
    }

    /// All kinds, built-in ones first.
    pub fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// All resources.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_path.values().flat_map(|versions| versions.values()).flat_map(|plurals| plurals.values())
    }
}

/// The resources being served, replaced as a whole when a definition changes.
pub struct Registry {
    hub: Arc<Hub>,
    unseal: Decode,
    now: RwLock<Arc<Resources>>,
}

impl Registry {
    /// Reads the built-in kinds from the store and serves them. `unseal` turns stored bytes into JSON.
    pub async fn start(store: Arc<dyn Store>, unseal: Decode) -> Result<Registry, store::Error> {
        let configs =
            api::kinds::all().iter().filter(|kind| kind.stored_as.is_none() && kind.verbs == Verbs::All);
        let hub = Arc::new(Hub::start(store, configs.map(|kind| config(kind, &unseal)).collect()).await?);
        let registry = Registry { hub, unseal, now: RwLock::default() };
        registry.replace(Vec::new()).await?;
        Ok(registry)
    }

    /// What feeds the caches.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The resources now.
    pub fn resources(&self) -> Arc<Resources> {
        self.now.read().clone()
    }

    /// The resource under a path.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.now.read().get(group, version, plural).cloned()
    }

    /// A built-in resource, which is always there.
    pub fn built_in(&self, group: &str, plural: &str) -> Arc<Resource> {
        self.now.read().any_version(group, plural).cloned().expect("a built-in kind")
    }

    /// Serves the built-in kinds and these custom ones, and nothing else. Caches of kinds that stay as they are are
    /// kept; of those that are defined otherwise than before, all objects are read anew.
    pub async fn replace(&self, custom: Vec<Arc<Kind>>) -> Result<(), store::Error> {
        let kinds: Vec<Arc<Kind>> =
            api::kinds::all().iter().cloned().chain(computed()).chain(custom).collect();
        let before = self.resources();
        let mut next = Resources { kinds: kinds.clone(), ..Resources::default() };
        let mut used = HashSet::new();
        for kind in kinds {
            let prefix = kind.prefix();
            let is_read_alike = || {
                let before = before.any_version(&kind.group, &kind.plural);
                before.is_some_and(|before| before.kind.versions == kind.versions)
            };
            let is_known = kind.custom.is_none() || used.contains(&prefix) || is_read_alike();
            let cache = match self.hub.cache(&prefix).filter(|_| is_known) {
                Some(cache) => cache,
                None => self.hub.register(config(&kind, &self.unseal)).await?,
            };
            used.insert(prefix);
            let resource = Arc::new(Resource::new(kind.clone(), cache));
            next.by_path
                .entry(kind.group.clone())
                .or_default()
                .entry(kind.version.clone())
                .or_default()
                .insert(kind.plural.clone(), resource);
        }
        *self.now.write() = Arc::new(next);
        for prefix in
            before.iter().map(|resource| resource.kind.prefix()).filter(|prefix| !used.contains(prefix))
        {
            self.hub.remove(&prefix);
        }
        Ok(())
    }
}

/// Kinds that nothing is kept of: they are computed when somebody asks.
fn computed() -> impl Iterator<Item = Arc<Kind>> {
    nodes::metrics_kinds().into_iter().chain([component_statuses::kind()])
}

fn config(kind: &Kind, unseal: &Decode) -> ResourceConfig {
    let (decode, fields) = match &kind.versions {
        Some(versions) => (read_by(versions.clone(), unseal.clone()), &versions.selectable_fields),
        None => (unseal.clone(), &kind.selectable_fields),
    };
    ResourceConfig {
        decode,
        fields: fields.iter().map(|path| selectable(path)).collect(),
        ..ResourceConfig::new(kind.prefix(), kind.namespaced())
    }
}

/// Reads objects of a custom kind as they are defined now. Caches hold what comes of it, so that it is done once.
fn read_by(versions: Arc<Versions>, unseal: Decode) -> Decode {
    Arc::new(move |key, stored| {
        let mut object: Value = serde_json::from_slice(&unseal(key, stored)?)?;
        versions.read(&mut object);
        Ok(object::stored(&object).into())
    })
}

/// A field that selectors may name: where upstream's name for it is not its path, or its absence has a value.
fn selectable(path: &str) -> SelectableField {
    let field = SelectableField::from(path);
    match path {
        // Every kubelet lists and watches the pods of its own node.
        "spec.nodeName" => field.indexed(),
        "spec.unschedulable" | "spec.hostNetwork" => field.absent("false"),
        "status.replicas" => field.absent("0"),
        "status.successful" => field.at(&["status.succeeded"]).absent("0"),
        "source" => field.at(&["source.component", "reportingComponent"]),
        _ => field,
    }
}
