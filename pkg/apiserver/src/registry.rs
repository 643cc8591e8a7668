//! The resources being served: each kind with its cache. Built-in kinds are there from the start; custom ones come
//! and go with their definitions.

use api::Kind;
use listwatch::{Cache, Hub};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

/// A kind that is served, with the cache of its objects.
pub struct Resource {
    /// What it is.
    pub kind: Arc<Kind>,
    /// Where its objects are read.
    pub cache: Arc<Cache>,
    /// How bytes of this version begin: others must be converted before they are sent.
    opening: Vec<u8>,
}

impl Resource {
    /// A kind with its cache.
    pub fn new(kind: Arc<Kind>, cache: Arc<Cache>) -> Resource {
        let opening = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version()).into_bytes();
        Resource { kind, cache, opening }
    }

    /// Whether cached bytes can be sent as they are.
    pub fn is_ready_made(&self, json: &[u8]) -> bool {
        self.kind.convert.is_none() && json.starts_with(&self.opening)
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
    hub: Hub,
    unseal: listwatch::Decode,
    now: RwLock<Arc<Resources>>,
}

impl Registry {
    /// Serves the built-in kinds. `unseal` turns stored bytes into JSON.
    pub async fn start(hub: Hub, unseal: listwatch::Decode) -> Result<Registry, listwatch::Error> {
        let registry = Registry { hub, unseal, now: RwLock::default() };
        registry.replace(Vec::new()).await?;
        Ok(registry)
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

    /// Serves the built-in kinds and these custom ones, and nothing else. Caches of kinds that stay are kept.
    pub async fn replace(&self, custom: Vec<Arc<Kind>>) -> Result<(), listwatch::Error> {
        let kinds: Vec<Arc<Kind>> = api::kinds::all().iter().cloned().chain(custom).collect();
        let before = self.resources();
        let mut caches: HashMap<String, Arc<Cache>> =
            before.iter().map(|resource| (resource.kind.prefix(), resource.cache.clone())).collect();
        let mut next = Resources { kinds: kinds.clone(), ..Resources::default() };
        let mut used = Vec::new();
        for kind in kinds {
            let prefix = kind.prefix();
            let cache = match caches.get(&prefix) {
                Some(cache) => cache.clone(),
                None => {
                    let cache = self.hub.register(self.config(&kind)).await?;
                    caches.insert(prefix.clone(), cache.clone());
                    cache
                }
            };
            used.push(prefix);
            let resource = Arc::new(Resource::new(kind.clone(), cache));
            next.by_path
                .entry(kind.group.clone())
                .or_default()
                .entry(kind.version.clone())
                .or_default()
                .insert(kind.plural.clone(), resource);
        }
        *self.now.write() = Arc::new(next);
        for prefix in caches.keys().filter(|prefix| !used.contains(prefix)) {
            self.hub.unregister(prefix);
        }
        Ok(())
    }

    fn config(&self, kind: &Kind) -> listwatch::ResourceConfig {
        listwatch::ResourceConfig {
            prefix: kind.prefix(),
            namespaced: kind.namespaced(),
            decode: self.unseal.clone(),
            selectable_fields: kind.selectable_fields.clone(),
        }
    }
}
