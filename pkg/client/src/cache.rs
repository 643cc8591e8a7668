//! The objects of a kind as far as they are known here, with indexes, and how to hear of changes.
//!
//! One task (see [`crate::Informers`]) writes; everybody reads. An object is never changed in place: who holds one keeps it.
//!
//! A cache can say whether it has [seen](AnyCache::has_seen) a write. Events of a kind come in the order of their
//! resourceVersions, so a cache that has seen any event of version N has seen all writes up to N.

use crate::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;

/// The known objects of a kind. Clones share them.
pub struct Cache<K>(Arc<Inner<K>>);

/// What happened to an object: new, changed or gone, by which of both is there.
#[derive(Debug)]
pub struct Change<K> {
    /// As it was.
    pub old: Option<Arc<K>>,
    /// As it is.
    pub new: Option<Arc<K>>,
}

/// Hears of metadata: as it was, and as it is.
pub type MetadataHandler = Box<dyn Fn(Option<&ObjectMeta>, Option<&ObjectMeta>) + Send + Sync>;

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;
type IndexBy<K> = fn(&K) -> Vec<String>;

struct Inner<K> {
    state: RwLock<State<K>>,
    /// Held while changes are told, so that who subscribes hears every object once, in order.
    handlers: Mutex<Vec<Handler<K>>>,
    /// Counts changes, to be waited for.
    changes: watch::Sender<u64>,
}

struct State<K> {
    objects: BTreeMap<Key, Arc<K>>,
    indexes: HashMap<&'static str, Index<K>>,
    latest: u64,
    /// When the last complete list was asked for.
    listed: Option<Instant>,
}

struct Index<K> {
    by: IndexBy<K>,
    /// Values, and what has them. All in one set: one for each value takes room for eleven, and most are of one or two.
    keys: BTreeSet<(String, Key)>,
}

/// What can be asked of a cache of whatever kind.
pub trait AnyCache: Send + Sync {
    /// Whether it knows all objects that there were at some time.
    fn is_synced(&self) -> bool;
    /// Whether a write of this resourceVersion, answered at this time, is in it.
    fn has_seen(&self, version: u64, at: Instant) -> bool;
    /// Whether the object is gone, on its way, or another one with the same name.
    fn is_gone(&self, key: &Key, uid: &str) -> bool;
    /// Counts changes: who waits for one subscribes before asking.
    fn changes(&self) -> watch::Receiver<u64>;
    /// As [`Cache::subscribe`], of what every kind has.
    fn subscribe_metadata(&self, handler: MetadataHandler);
}

/// A resourceVersion as a number; zero where it is none.
pub fn version_number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Cache(self.0.clone())
    }
}

impl<K> Change<K> {
    /// The object as it is, or as it was if it is gone.
    pub fn object(&self) -> &Arc<K> {
        self.new.as_ref().or(self.old.as_ref()).expect("a change is of something")
    }
}

impl<K: Resource> Change<K> {
    /// Where the object is.
    pub fn key(&self) -> Key {
        Key::of(self.object().as_ref())
    }
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        let state = State { objects: BTreeMap::new(), indexes: HashMap::new(), latest: 0, listed: None };
        Cache(Arc::new(Inner {
            state: RwLock::new(state),
            handlers: Mutex::new(Vec::new()),
            changes: watch::Sender::new(0),
        }))
    }
}

impl<K: Resource + Debug + Send + Sync + 'static> Cache<K> {
    /// The object, if it is known.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.0.state.read().objects.get(key).cloned()
    }

    /// All objects, by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.0.state.read().objects.values().cloned().collect()
    }

    /// The objects of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let state = self.0.state.read();
        let from = Bound::Included(Key::new(namespace, ""));
        let range = state.objects.range((from, Bound::Unbounded));
        range.take_while(|(key, _)| key.namespace == namespace).map(|(_, object)| object.clone()).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.state.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets objects be found [by](Cache::by) what `by` says of them. An index of this name that is there stays.
    pub fn index(&self, name: &'static str, by: IndexBy<K>) {
        let mut state = self.0.state.write();
        if state.indexes.contains_key(name) {
            return;
        }
        let mut index = Index { by, keys: BTreeSet::new() };
        for (key, object) in &state.objects {
            index.insert(key, object);
        }
        state.indexes.insert(name, index);
    }

    /// The objects under a value of an index, by namespace and name.
    pub fn by(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        let state = self.0.state.read();
        let from = (value.to_owned(), Key::new("", ""));
        let keys = state.indexes.get(index).into_iter().flat_map(|index| index.keys.range(&from..));
        let keys = keys.take_while(|(of, _)| of == value).map(|(_, key)| key);
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    /// Tells of every object that is known now, as if it were new, and of every change from now on. What is called
    /// must be quick, and must not subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.0.handlers.lock();
        for object in self.list() {
            handler(&Change { old: None, new: Some(object) });
        }
        handlers.push(Box::new(handler));
    }

    /// Waits until all objects are known.
    pub async fn synced(&self) {
        let mut changes = self.changes();
        while !self.is_synced() && changes.changed().await.is_ok() {}
    }

    /// An object is new or changed.
    pub fn apply(&self, object: K) {
        let handlers = self.0.handlers.lock();
        let change = self.0.state.write().apply(object);
        self.tell(&handlers, change);
    }

    /// An object is gone. It comes as it was last, with the resourceVersion of its end.
    pub fn remove(&self, object: &K) {
        let handlers = self.0.handlers.lock();
        let change = self.0.state.write().remove(object);
        self.tell(&handlers, change);
    }

    /// These are all objects, according to a list that was asked for at this time.
    pub fn replace(&self, objects: Vec<K>, asked: Instant) {
        let handlers = self.0.handlers.lock();
        let changes = self.0.state.write().replace(objects, asked);
        self.tell(&handlers, changes);
    }

    fn tell(&self, handlers: &[Handler<K>], changes: impl IntoIterator<Item = Change<K>>) {
        for change in changes {
            handlers.iter().for_each(|handler| handler(&change));
        }
        self.0.changes.send_modify(|count| *count += 1);
    }
}

impl<K: Resource + Debug> State<K> {
    fn apply(&mut self, object: K) -> Option<Change<K>> {
        let key = Key::of(&object);
        self.saw(&object);
        let new = Arc::new(object);
        let old = self.objects.insert(key.clone(), new.clone());
        for index in self.indexes.values_mut() {
            if let Some(old) = &old {
                index.remove(&key, old);
            }
            index.insert(&key, &new);
        }
        Some(Change { old, new: Some(new) })
    }

    fn remove(&mut self, object: &K) -> Option<Change<K>> {
        self.saw(object);
        self.forget(&Key::of(object))
    }

    fn forget(&mut self, key: &Key) -> Option<Change<K>> {
        let old = self.objects.remove(key)?;
        for index in self.indexes.values_mut() {
            index.remove(key, &old);
        }
        Some(Change { old: Some(old), new: None })
    }

    fn replace(&mut self, objects: Vec<K>, asked: Instant) -> Vec<Change<K>> {
        let listed: BTreeSet<Key> = objects.iter().map(Key::of).collect();
        let gone: Vec<Key> = self.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
        let mut changes: Vec<Change<K>> = gone.iter().filter_map(|key| self.forget(key)).collect();
        for object in objects {
            let known = self.objects.get(&Key::of(&object));
            if known.is_none_or(|known| known.meta().resource_version != object.meta().resource_version) {
                changes.extend(self.apply(object));
            }
        }
        self.listed = Some(asked);
        changes
    }

    fn saw(&mut self, object: &K) {
        self.latest = self.latest.max(version_number(object.meta().resource_version.as_deref()));
    }
}

impl<K> Index<K> {
    fn insert(&mut self, key: &Key, object: &K) {
        self.keys.extend((self.by)(object).into_iter().map(|value| (value, key.clone())));
    }

    fn remove(&mut self, key: &Key, object: &K) {
        for value in (self.by)(object) {
            self.keys.remove(&(value, key.clone()));
        }
    }
}

impl<K: Resource + Debug + Send + Sync + 'static> AnyCache for Cache<K> {
    fn is_synced(&self) -> bool {
        self.0.state.read().listed.is_some()
    }

    fn has_seen(&self, version: u64, at: Instant) -> bool {
        let state = self.0.state.read();
        state.latest >= version || state.listed.is_some_and(|asked| asked > at)
    }

    fn is_gone(&self, key: &Key, uid: &str) -> bool {
        self.get(key).is_none_or(|object| {
            object.uid().as_deref() != Some(uid) || object.meta().deletion_timestamp.is_some()
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn subscribe_metadata(&self, handler: MetadataHandler) {
        self.subscribe(move |change| {
            let [old, new] = [&change.old, &change.new].map(|it| it.as_ref().map(|object| object.meta()));
            handler(old, new);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn pod(name: &str, node: &str, version: u64) -> Pod {
        let pod = json!({
            "metadata": {"namespace": "default", "name": name, "uid": name, "resourceVersion": version.to_string()},
            "spec": {"nodeName": node, "containers": []}
        });
        serde_json::from_value(pod).expect("a pod")
    }

    fn by_node(pod: &Pod) -> Vec<String> {
        pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<String> {
        pods.iter().map(|pod| pod.name_any()).collect()
    }

    #[test]
    fn indexes_follow_objects() {
        let cache = Cache::default();
        cache.apply(pod("a", "n1", 1));
        cache.index("node", by_node);
        cache.apply(pod("b", "n1", 2));
        cache.apply(pod("a", "n2", 3));
        assert_eq!(names(&cache.by("node", "n1")), ["b"]);
        assert_eq!(names(&cache.by("node", "n2")), ["a"]);
        cache.remove(&pod("a", "n2", 4));
        assert!(cache.by("node", "n2").is_empty());
        assert_eq!(names(&cache.in_namespace("default")), ["b"]);
        assert!(cache.in_namespace("defaulu").is_empty());
    }

    #[test]
    fn a_list_tells_only_what_is_different() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let cache = Cache::default();
        cache.apply(pod("same", "", 1));
        cache.apply(pod("gone", "", 2));
        cache.apply(pod("changed", "", 3));
        let log = told.clone();
        cache.subscribe(move |change: &Change<Pod>| {
            let kind = match (&change.old, &change.new) {
                (None, _) => "new",
                (Some(_), Some(_)) => "changed",
                (Some(_), None) => "gone",
            };
            log.lock().push(format!("{} {kind}", change.key().name));
        });
        told.lock().clear();
        cache.replace(vec![pod("same", "", 1), pod("changed", "", 5), pod("added", "", 6)], Instant::now());
        assert_eq!(*told.lock(), ["gone gone", "changed changed", "added new"]);
    }

    #[test]
    fn a_write_is_seen_by_its_version_or_by_a_later_list() {
        let cache: Cache<Pod> = Cache::default();
        let written = Instant::now();
        assert!(!cache.has_seen(7, written));
        cache.replace(vec![pod("a", "", 5)], written);
        assert!(!cache.has_seen(7, written), "the list may be older than the write");
        cache.apply(pod("b", "", 8));
        assert!(cache.has_seen(7, written));
        cache.replace(vec![], Instant::now() + std::time::Duration::from_millis(1));
        assert!(cache.has_seen(99, written), "asked for after the write");
    }
}
