//! What list-watch promises, on any store.

mod hubs;
mod lists;
mod watches;

pub use hubs::*;
pub use lists::*;
pub use watches::*;

use bytes::Bytes;
use listwatch::{
    Batch, Cache, Chunk, Ended, Error, Event, Hub, Page, ResourceConfig, Revision, Scope, SelectableField,
    Since, Watcher, Window,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Expect, Store, Write};

pub const PODS: &str = "/registry/core/pods/";
pub const NODES: &str = "/registry/core/nodes/";

/// A hub with pods on a store.
pub struct Bed {
    pub store: Arc<dyn Store>,
    pub hub: Hub,
    pub pods: Arc<Cache>,
}

/// How pods are registered.
pub fn pods(window: usize) -> ResourceConfig {
    ResourceConfig {
        fields: vec![SelectableField::from("spec.nodeName").indexed(), SelectableField::from("status.phase")],
        window: Window { events: window, ..Window::default() },
        ..ResourceConfig::new(PODS, true)
    }
}

impl Bed {
    pub async fn new(store: Arc<dyn Store>, window: usize) -> Self {
        let hub = Hub::start(store.clone(), vec![pods(window)]).await.unwrap();
        let pods = hub.cache(PODS).unwrap();
        Bed { store, hub, pods }
    }

    /// Writes a pod (`ns/name`, labels as a selector of equalities, node) and waits until the cache has it.
    pub async fn put(&self, path: &str, labels: &str, node: &str) -> Revision {
        let revision = put(&*self.store, path, labels, node).await;
        self.hub.wait(revision).await;
        revision
    }

    pub async fn delete(&self, path: &str) -> Revision {
        let revision = commit(&*self.store, &format!("{PODS}{path}"), None).await;
        self.hub.wait(revision).await;
        revision
    }

    pub fn watch(&self, scope: &Scope, since: Since) -> Watcher {
        self.pods.watch(scope.clone(), since).unwrap()
    }

    pub fn paths(&self, scope: &Scope, revision: Option<Revision>) -> Vec<String> {
        let listing = self.pods.list(scope, Page { revision, ..Page::default() }).unwrap();
        listing.objects.iter().map(|object| object.path().to_string()).collect()
    }
}

pub async fn commit(store: &dyn Store, key: &str, value: Option<Bytes>) -> Revision {
    let write = Write { key: key.into(), expect: Expect::Any, value };
    store.commit(vec![write]).await.unwrap()
}

pub async fn put(store: &dyn Store, path: &str, labels: &str, node: &str) -> Revision {
    commit(store, &format!("{PODS}{path}"), Some(pod(path, labels, node))).await
}

pub fn pod(path: &str, labels: &str, node: &str) -> Bytes {
    let (namespace, name) = path.split_once('/').unwrap();
    let labels = labels.split(',').filter_map(|label| label.split_once('='));
    let labels: BTreeMap<&str, &str> = labels.collect();
    Bytes::from(api::object::stored(&json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node},
    })))
}

/// `ns?labels?fields`, each part optional.
pub fn scope(text: &str) -> Scope {
    let mut parts = text.split('?');
    Scope {
        namespace: parts.next().filter(|namespace| !namespace.is_empty()).map(Box::from),
        labels: api::selector::LabelSelector::parse(parts.next().unwrap_or_default()).unwrap(),
        fields: api::selector::FieldSelector::parse(parts.next().unwrap_or_default()).unwrap(),
    }
}

/// Everything that a watcher has to tell up to a revision.
pub async fn told(watcher: &mut Watcher, until: Revision) -> Vec<Arc<Event>> {
    let mut told = Vec::new();
    while watcher.revision().is_none_or(|revision| revision < until) {
        match watcher.next().await.unwrap() {
            Batch::Events(events) => told.extend(events),
            Batch::InitialEventsEnd(_) => {}
        }
    }
    told
}

pub fn short(event: &Event) -> String {
    let node = serde_json::from_slice::<Value>(event.object.as_json()).unwrap()["spec"]["nodeName"].clone();
    let (kind, path) = (event.kind.as_str(), event.object.path());
    format!("{kind} {path}@{} on {}", event.revision, node.as_str().unwrap())
}

/// Applies an event to what a client knows, and insists that it fits.
pub fn replay(state: &mut BTreeMap<String, Revision>, event: &Event) {
    let path = event.object.path().to_string();
    let known = match event.kind {
        listwatch::EventType::Deleted => state.remove(&path),
        _ => state.insert(path.clone(), event.revision),
    };
    assert_eq!(known.is_none(), event.kind == listwatch::EventType::Added, "{path}@{}", event.revision);
    assert!(known.is_none_or(|known| known < event.revision));
}

/// What a list says, as far as [`replay`] knows it.
pub fn listed(cache: &Cache, scope: &Scope, revision: Option<Revision>) -> BTreeMap<String, Revision> {
    let listing = cache.list(scope, Page { revision, ..Page::default() }).unwrap();
    listing.objects.iter().map(|object| (object.path().to_string(), object.revision())).collect()
}
