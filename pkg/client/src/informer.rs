//! Caches and streams that follow the apiserver, for each kind once however many ask for it: whatever a program follows, it
//! follows here.
//!
//! ```text
//! follow (HTTP, Redis) ──> errors wait a growing while, an outage is told once ──> Cache, or events
//! ```

use crate::follow::{Bus, Question, Version, follow as changes};
use crate::watch::{question, version};
use crate::{AnyCache, Cache, Panicked, Tasks};
use futures::{Stream, StreamExt, stream};
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::error::Error;
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Shared caches. Clones share them.
#[derive(Clone)]
pub struct Informers {
    client: Client,
    caches: Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send>>>>,
    /// The same, by group and plural.
    by_resource: Arc<Mutex<HashMap<(String, String), Arc<dyn AnyCache>>>>,
    outages: Arc<Outages>,
    tasks: Tasks,
    shutdown: CancellationToken,
    bus: Option<Bus>,
}

impl Informers {
    /// None yet. Every cache is kept up to date until the token is cancelled; then [`Informers::join`].
    pub fn new(client: Client, shutdown: CancellationToken) -> Informers {
        let (caches, by_resource, outages) = Default::default();
        Informers { client, caches, by_resource, outages, tasks: Tasks::default(), shutdown, bus: None }
    }

    /// The same, hearing of changes over Redis where there is one.
    pub fn over(self, bus: Option<Bus>) -> Informers {
        Informers { bus, ..self }
    }

    /// The client that asks the API.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// All objects, and then their changes, for ever, for who keeps them in a way of its own. After an error it waits a
    /// while by itself.
    pub fn results<K>(
        &self,
        api: Api<K>,
        config: &watcher::Config,
    ) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
    where
        K: Resource + DeserializeOwned + Send + 'static,
    {
        let question = question(&api, config);
        let events = changes(api.into_client(), question, version, self.bus.as_ref());
        patiently(events, name_of::<K>(), self.outages.clone())
    }

    /// As [`Informers::results`], for who has nothing to do about errors.
    pub fn events<K>(
        &self,
        api: Api<K>,
        config: &watcher::Config,
    ) -> impl Stream<Item = Event<K>> + Send + use<K>
    where
        K: Resource + DeserializeOwned + Send + 'static,
    {
        self.results(api, config).filter_map(|event| std::future::ready(event.ok()))
    }

    /// As [`Informers::results`], of objects of which only what matters is decoded.
    pub fn slim<T>(
        &self,
        question: Question,
        version: Version<T>,
    ) -> impl Stream<Item = watcher::Result<Event<T>>> + Send + use<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let events = changes(self.client.clone(), question, version, self.bus.as_ref());
        patiently(events, name_of::<T>(), self.outages.clone())
    }

    /// All objects of a kind, without their managed fields.
    pub fn cache<K>(&self) -> Cache<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.cache_pruned(|_| {})
    }

    /// As [`Informers::cache`]; `prune` takes away what nobody here reads, to save memory. Who asks first decides.
    pub fn cache_pruned<K>(&self, prune: fn(&mut K)) -> Cache<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.cache_seeded(prune, Vec::new())
    }

    /// As [`Informers::cache_pruned`]; until the first list has come it holds these objects, as they were known before.
    /// Whoever follows it hears what the list then says of them.
    pub fn cache_seeded<K>(&self, prune: fn(&mut K), seed: Vec<K>) -> Cache<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let start = || self.results(api, &config()).map(move |event| prune_event(event, prune));
        let cache = self.cache_of(TypeId::of::<K>(), start, seed);
        self.make_known::<K, _>(&cache);
        cache
    }

    /// The objects of a kind that have a label, without their managed fields. Nobody else has the same cache.
    pub fn cache_labelled<K>(&self, label: &str) -> Cache<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let events = self.results(api, &config().labels(label)).map(|event| prune_event(event, |_| {}));
        let cache = Cache::default();
        let (kept, shutdown) = (cache.clone(), self.shutdown.clone());
        let task = format!("the cache of {} with {label}", K::plural(&()));
        self.tasks.spawn(task, async move { keep(kept, events, &shutdown).await });
        cache
    }

    fn make_known<K: Resource<DynamicType = ()>, T>(&self, cache: &Cache<T>)
    where
        T: Resource + Debug + Send + Sync + 'static,
    {
        let id = (K::group(&()).into_owned(), K::plural(&()).into_owned());
        self.by_resource.lock().entry(id).or_insert_with(|| Arc::new(cache.clone()));
    }

    /// The cache of a resource that somebody has asked for, whatever its type, if anybody has.
    pub fn known(&self, resource: &ApiResource) -> Option<Arc<dyn AnyCache>> {
        self.by_resource.lock().get(&(resource.group.clone(), resource.plural.clone())).cloned()
    }

    /// The metadata of all objects of a kind: much less to keep, where that is enough.
    pub fn metadata<K>(&self) -> Cache<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let api: Api<PartialObjectMeta<K>> = Api::all(self.client.clone());
        let start = || self.results(api, &config());
        let cache = self.cache_of(TypeId::of::<PartialObjectMeta<K>>(), start, Vec::new());
        self.make_known::<K, _>(&cache);
        cache
    }

    /// Who all objects are of a kind that is known only at run time, and who owns them: metadata without labels and
    /// annotations. It is kept until `stop` is cancelled, and is not shared.
    pub fn metadata_of(
        &self,
        resource: &ApiResource,
        stop: CancellationToken,
    ) -> Cache<PartialObjectMeta<DynamicObject>> {
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(self.client.clone(), resource);
        let cache = Cache::default();
        let bare = |object: &mut PartialObjectMeta<DynamicObject>| {
            (object.metadata.labels, object.metadata.annotations) = (None, None);
            (object.metadata.generate_name, object.types) = (None, None);
        };
        let events = self.results(api, &config()).map(move |event| prune_event(event, bare));
        let (kept, shutdown) = (cache.clone(), self.shutdown.clone());
        self.tasks.spawn(format!("the cache of {}", resource.plural), async move {
            tokio::select! {
                () = keep(kept, events, &shutdown) => {}
                () = stop.cancelled() => {}
            }
        });
        cache
    }

    /// Waits until a cache is kept up to date no more, because something that it told panicked: then what is planned is wrong.
    pub async fn panicked(&self) -> Panicked {
        self.tasks.panicked().await
    }

    /// Waits until every task has ended, once the token was cancelled.
    pub async fn join(&self) {
        self.tasks.join().await;
    }

    fn cache_of<T, S>(&self, id: TypeId, start: impl FnOnce() -> S, seed: Vec<T>) -> Cache<T>
    where
        T: Resource + Debug + Send + Sync + 'static,
        T::DynamicType: Send,
        S: Stream<Item = watcher::Result<Event<T>>> + Send + 'static,
    {
        let mut caches = self.caches.lock();
        let kept = caches.entry(id).or_insert_with(|| {
            let cache: Cache<T> = Cache::default();
            seed.into_iter().for_each(|object| cache.apply(object));
            let (kept, events, shutdown) = (cache.clone(), start(), self.shutdown.clone());
            let task = format!("the cache of {}", std::any::type_name::<T>());
            self.tasks.spawn(task, async move { keep(kept, events, &shutdown).await });
            Box::new(cache)
        });
        kept.downcast_ref::<Cache<T>>().expect("an id has one type").clone()
    }
}

fn config() -> watcher::Config {
    watcher::Config::default()
}

/// Such as Service.
fn name_of<T>() -> &'static str {
    std::any::type_name::<T>().rsplit("::").next().unwrap_or_default().trim_end_matches('>')
}

fn prune_event<K>(event: watcher::Result<Event<K>>, prune: fn(&mut K)) -> watcher::Result<Event<K>> {
    event.map(|event| event.modify(prune))
}

/// The same events, with a pause after each error, which grows; one that has become long is told of.
fn patiently<T: Send + 'static>(
    events: impl Stream<Item = watcher::Result<Event<T>>> + Send + 'static,
    what: &'static str,
    outages: Arc<Outages>,
) -> impl Stream<Item = watcher::Result<Event<T>>> + Send {
    let start = (Box::pin(events), Pause::default(), Duration::ZERO, outages);
    stream::unfold(start, move |(mut events, mut pause, wait, outages)| async move {
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let event = events.next().await?;
        let mut wait = Duration::ZERO;
        match &event {
            Ok(event) => {
                if let Some(error) = pause.heard(event).and_then(Arc::into_inner) {
                    tracing::info!(error, what, "over: followed again");
                }
            }
            Err(error) => {
                tracing::debug!(%error, what, "a watch failed");
                if pause.has_become_long() {
                    let (outage, is_new) = outages.join(cause(error).to_string());
                    if is_new {
                        tracing::warn!(error = *outage, what, "cannot be followed, and is tried again");
                    }
                    pause.outage = Some(outage);
                }
                // Half and half, so that those who failed together do not come back together.
                wait = pause.next().mul_f64(0.5 + fastrand::f64() / 2.0);
            }
        }
        Some((event, (events, pause, wait, outages)))
    })
}

/// Keeps a cache up to date until shutdown.
async fn keep<T>(
    cache: Cache<T>,
    events: impl Stream<Item = watcher::Result<Event<T>>>,
    shutdown: &CancellationToken,
) where
    T: Resource + Debug + Send + Sync + 'static,
{
    let mut events = std::pin::pin!(events);
    let mut list = Vec::new();
    let mut asked = Instant::now();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = shutdown.cancelled() => return,
        };
        match event {
            None => return,
            Some(Err(_)) => {}
            Some(Ok(Event::Init)) => (list, asked) = (Vec::new(), Instant::now()),
            Some(Ok(Event::InitApply(object))) => list.push(slim(object)),
            Some(Ok(Event::InitDone)) => cache.replace(std::mem::take(&mut list), asked),
            Some(Ok(Event::Apply(object))) => cache.apply(slim(object)),
            Some(Ok(Event::Delete(object))) => cache.remove(&slim(object)),
        }
    }
}

/// Without what nobody here reads.
fn slim<T: Resource>(mut object: T) -> T {
    let meta = object.meta_mut();
    meta.managed_fields = None;
    // It is decoded into room for four.
    meta.owner_references.iter_mut().for_each(Vec::shrink_to_fit);
    object
}

/// What lies under an error: what the server said, or what became of the connection.
fn cause(mut error: &dyn Error) -> &dyn Error {
    while let Some(under) = error.source() {
        error = under;
    }
    error
}

/// What keeps watches from going on, each error held by all that met it: an apiserver that is gone is told of once, not
/// once for each kind.
#[derive(Default)]
struct Outages(Mutex<Vec<Weak<String>>>);

impl Outages {
    /// The outage with this error, and whether it is new.
    fn join(&self, error: String) -> (Arc<String>, bool) {
        let mut outages = self.0.lock();
        outages.retain(|outage| outage.strong_count() > 0);
        if let Some(outage) = outages.iter().filter_map(Weak::upgrade).find(|outage| **outage == error) {
            return (outage, false);
        }
        let outage = Arc::new(error);
        outages.push(Arc::downgrade(&outage));
        (outage, true)
    }
}

/// How long is waited after an error: longer and longer, until something is heard.
struct Pause {
    next: Duration,
    /// What it became long with.
    outage: Option<Arc<String>>,
}

impl Default for Pause {
    fn default() -> Pause {
        Pause { next: FIRST_PAUSE, outage: None }
    }
}

impl Pause {
    /// That a list is begun says nothing of whether it may be had. Returns the outage that is over with this.
    fn heard<T>(&mut self, event: &Event<T>) -> Option<Arc<String>> {
        if matches!(event, Event::Init) {
            return None;
        }
        std::mem::take(self).outage
    }

    fn next(&mut self) -> Duration {
        let longer = (self.next * 2).min(LONGEST_PAUSE);
        std::mem::replace(&mut self.next, longer)
    }

    /// When it is no hiccup any more, and no outage yet.
    fn has_become_long(&self) -> bool {
        self.next == LONGEST_PAUSE && self.outage.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_listed_is_asked_for_less_and_less_often() {
        let mut pause = Pause::default();
        let mut told = Vec::new();
        // A watcher that is forbidden to list begins a list each time.
        for n in 0..20 {
            assert_eq!(pause.heard::<()>(&Event::Init), None);
            if pause.has_become_long() {
                pause.outage = Some(Arc::new(n.to_string()));
                told.push(n);
            }
            pause.next();
        }
        assert_eq!((pause.next(), told), (LONGEST_PAUSE, vec![8]), "told once");
        assert!(pause.heard::<()>(&Event::InitDone).is_some(), "and once that it is over");
        assert!(pause.heard::<()>(&Event::InitDone).is_none());
        assert_eq!((pause.next(), pause.next()), (FIRST_PAUSE, FIRST_PAUSE * 2));
    }

    #[test]
    fn an_error_that_all_watches_meet_is_one_outage() {
        let outages = Outages::default();
        let meet = |error: &str| outages.join(error.to_owned());
        let [(one, is_new), (other, is_another)] = [meet("refused"), meet("refused")];
        assert_eq!((is_new, is_another, meet("forbidden").1), (true, false, true));
        assert_eq!(Arc::into_inner(one), None, "not over for all");
        assert!(Arc::into_inner(other).is_some());
        assert!(meet("refused").1, "the next one is told of again");
    }
}
