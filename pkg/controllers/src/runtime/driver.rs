//! The loop around a controller.

use super::execute::{Failure, Seen, execute};
use super::{Clock, Plan, Queue, Write};
use crate::{Config, Metrics};
use client::{AnyCache, Cache, Change, Informers, Key, Recorder, Tasks, caught, contained};
use jiff::Timestamp;
use kube::{Client, Resource};
use std::collections::HashMap;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How many keys of a controller are worked on at once.
const WORKERS: usize = 8;
/// A cache that has not seen a write for so long is believed anyway, as upstream does it.
const EXPECTATION_TIMEOUT: Duration = Duration::from_secs(300);

/// Something that runs until shutdown.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a controller is made from.
#[derive(Clone)]
pub struct Context {
    /// Its name, such as `replicaset-controller`.
    pub name: &'static str,
    /// Writes in its name.
    pub client: Client,
    /// The caches, which all controllers share.
    pub informers: Informers,
    /// Sends events in its name.
    pub recorder: Recorder,
    /// What time it is.
    pub clock: Clock,
    /// How the program was started.
    pub config: Arc<Config>,
    /// Counts what happens.
    pub metrics: Metrics,
    /// Where it starts tasks of its own.
    pub tasks: Tasks,
    /// Ends it.
    pub shutdown: CancellationToken,
}

/// One controller. See the [module](super) for an example.
pub trait Controller: Send + Sync + 'static {
    /// Everything that a plan depends on, except the time.
    type View: Send + Sync;

    /// Takes what there is to know about a key from the caches; `None` if there is nothing to do. Few need more than caches:
    /// those who do (metrics) may ask the apiserver here, to read.
    fn observe(&self, key: &Key) -> impl Future<Output = kube::Result<Option<Self::View>>> + Send;

    /// What to do about it. Pure: the same view at the same time gives the same plan.
    fn plan(&self, view: &Self::View, now: Timestamp) -> Plan;

    /// What is written even so when a write of the plan failed, in order: a status, mostly. Nothing, unless a controller says
    /// otherwise.
    fn after_failure(
        &self,
        _view: &Self::View,
        _plan: &Plan,
        _failure: &Failure,
        _now: Timestamp,
    ) -> impl IntoIterator<Item = Write> {
        None
    }
}

/// Drives one controller.
pub struct Driver<C> {
    context: Context,
    controller: C,
    queue: Arc<Queue>,
    caches: HashMap<String, Arc<dyn AnyCache>>,
    others: Vec<Arc<dyn AnyCache>>,
    workers: usize,
}

impl<C: Controller> Driver<C> {
    /// A driver that watches nothing yet.
    pub fn new(context: &Context, controller: C) -> Driver<C> {
        Driver {
            context: context.clone(),
            controller,
            queue: Arc::default(),
            caches: HashMap::new(),
            others: Vec::new(),
            workers: WORKERS,
        }
    }

    /// The controller's own kind: keys are those of its objects.
    #[must_use]
    pub fn owns<K>(self, cache: &Cache<K>) -> Self
    where
        K: Resource<DynamicType = ()> + Debug + Send + Sync + 'static,
    {
        self.watches(cache, |change| vec![change.key()])
    }

    /// Another kind: each change makes these keys be looked at.
    #[must_use]
    pub fn watches<K>(
        self,
        cache: &Cache<K>,
        keys: impl Fn(&Change<K>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + Debug + Send + Sync + 'static,
    {
        let (queue, name, metrics) = (self.queue.clone(), self.context.name, self.context.metrics.clone());
        cache.subscribe(move |change| match caught(|| keys(change)) {
            Ok(keys) => keys.into_iter().for_each(|key| queue.add(key)),
            // The cache goes on: others depend on it.
            Err(panic) => {
                let (kind, key) = (K::kind(&()), change.key());
                tracing::error!(controller = name, %kind, %key, panic, "a controller panicked over a change");
                metrics.panicked(name);
            }
        });
        self.reads(cache)
    }

    /// A kind that is read or written, and whose changes alone are no reason to look.
    #[must_use]
    pub fn reads<K>(mut self, cache: &Cache<K>) -> Self
    where
        K: Resource<DynamicType = ()> + Debug + Send + Sync + 'static,
    {
        let id = cache_id(&K::api_version(&()), &K::plural(&()));
        self.caches.insert(id, Arc::new(cache.clone()));
        self
    }

    /// A cache that must be complete before anything is planned, whatever it is of.
    #[must_use]
    pub fn needs(mut self, cache: Arc<dyn AnyCache>) -> Self {
        self.others.push(cache);
        self
    }

    /// How many keys are worked on at once.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// The queue, for what is not a change in a cache.
    pub fn queue(&self) -> Arc<Queue> {
        self.queue.clone()
    }

    /// Everything, to be run.
    pub fn task(self) -> Task {
        Box::pin(self.run())
    }

    async fn run(self) {
        let shutdown = self.context.shutdown.clone();
        for cache in self.caches.values().chain(&self.others) {
            let mut changes = cache.changes();
            while !cache.is_synced() {
                tokio::select! {
                    _ = changes.changed() => {}
                    () = shutdown.cancelled() => return,
                }
            }
        }
        let this = Arc::new(self);
        for _ in 0..this.workers {
            let worker = this.clone();
            this.context.tasks.spawn(this.context.name, async move { worker.work().await });
        }
    }

    async fn work(&self) {
        let shutdown = &self.context.shutdown;
        loop {
            let key = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                key = self.queue.take() => key,
            };
            // Not cut short by shutdown: a write under way is finished before somebody else may lead. In boxes, since most of
            // the hundreds of workers have nothing to do, and need no room for it.
            match contained(Box::pin(self.process(&key))).await {
                Ok(seen) if seen.is_empty() => {}
                Ok(seen) => Box::pin(self.wait_until_seen(&key, seen)).await,
                Err(panic) => self.panicked(&key, &panic),
            }
            self.queue.done(&key);
        }
    }

    /// One object that a controller cannot cope with must not keep it from all the others.
    fn panicked(&self, key: &Key, panic: &str) {
        tracing::error!(controller = self.context.name, %key, panic, "a controller panicked over an object");
        self.context.metrics.panicked(self.context.name);
        self.queue.add_failed(key.clone());
    }

    /// Observes, plans and executes; gives back what the caches have yet to see.
    async fn process(&self, key: &Key) -> Vec<Seen> {
        let name = self.context.name;
        let view = match self.controller.observe(key).await {
            Ok(Some(view)) => view,
            Ok(None) => {
                self.queue.forget_failures(key);
                return Vec::new();
            }
            Err(error) => {
                tracing::debug!(controller = name, %key, %error, "not observed");
                self.queue.add_failed(key.clone());
                return Vec::new();
            }
        };
        let now = self.context.clock.now();
        let mut plan = self.controller.plan(&view, now);
        self.context.metrics.planned(name, plan.writes.len() + usize::from(plan.status.is_some()));
        for note in plan.events.drain(..) {
            self.context.recorder.event(note.regarding, note.event_type, note.reason, note.message);
        }
        let writes = plan.writes.clone();
        let has_written = !writes.is_empty();
        let (mut seen, mut failure) = execute(&self.context.client, &self.context.recorder, writes).await;
        let rest: Vec<Write> = match &failure {
            Some(failure) => self.controller.after_failure(&view, &plan, failure, now).into_iter().collect(),
            None => plan.status.take().into_iter().collect(),
        };
        let (more, failed) = execute(&self.context.client, &self.context.recorder, rest).await;
        seen.extend(more);
        failure = failure.or(failed);
        match failure {
            None => {
                self.queue.forget_failures(key);
                // What was written may be of a kind whose changes are not watched: plan until there is nothing to do.
                if has_written {
                    self.queue.add(key.clone());
                }
                if let Some(after) = plan.look_again {
                    self.queue.add_after(key.clone(), after);
                }
            }
            Some(failure) => self.failed(key, &failure),
        }
        seen
    }

    fn failed(&self, key: &Key, failure: &Failure) {
        let (controller, why) = (self.context.name, failure.message());
        let (verb, target) = (failure.write.verb, failure.write.target.path());
        self.context.metrics.failed(controller);
        if failure.is_namespace_terminating() {
            // What deletes the namespace deletes the object as well, which is looked at then.
            tracing::debug!(controller, %key, "the namespace is going");
            return;
        }
        if failure.is_conflict() || self.context.shutdown.is_cancelled() {
            tracing::debug!(controller, %key, ?verb, target, why, "to be planned again");
        } else {
            tracing::warn!(controller, %key, ?verb, target, why, "a write failed");
        }
        self.queue.add_failed(key.clone());
    }

    async fn wait_until_seen(&self, key: &Key, seen: Vec<Seen>) {
        let wait = async {
            for write in &seen {
                let id = cache_id(&write.target.api_version, &write.target.plural);
                let Some(cache) = self.caches.get(&id) else { continue };
                let mut changes = cache.changes();
                while !is_in(cache.as_ref(), write) && changes.changed().await.is_ok() {}
            }
        };
        tokio::select! {
            () = wait => {}
            () = self.context.shutdown.cancelled() => {}
            () = tokio::time::sleep(EXPECTATION_TIMEOUT) => {
                tracing::warn!(controller = self.context.name, %key, "the caches lag: writes were not seen in time");
            }
        }
    }
}

fn is_in(cache: &dyn AnyCache, write: &Seen) -> bool {
    match write.version {
        Some(version) => cache.has_seen(version, write.at),
        None => cache.is_gone(&write.target.key, &write.uid),
    }
}

fn cache_id(api_version: &str, plural: &str) -> String {
    format!("{api_version}/{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use tokio::sync::mpsc;

    /// Panics over the object `poison`, and tells of each that it looks at.
    struct Fragile(mpsc::UnboundedSender<String>);

    impl Controller for Fragile {
        type View = String;

        async fn observe(&self, key: &Key) -> kube::Result<Option<String>> {
            self.0.send(key.name.clone()).expect("the test listens");
            Ok(Some(key.name.clone()))
        }

        fn plan(&self, view: &String, _now: Timestamp) -> Plan {
            assert!(view != "poison", "this was not expected");
            Plan::default()
        }
    }

    fn context() -> Context {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        let client = Client::try_from(nowhere).expect("a client");
        let shutdown = CancellationToken::new();
        Context {
            name: "fragile-controller",
            informers: Informers::new(client.clone(), shutdown.clone()),
            recorder: Recorder::new(client.clone(), "test", "host".into(), shutdown.clone()).0,
            clock: Clock::default(),
            config: Arc::default(),
            metrics: Metrics::default(),
            tasks: Tasks::default(),
            client,
            shutdown,
        }
    }

    fn config_map(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.namespace = Some("default".to_owned());
        object
    }

    #[tokio::test]
    async fn a_panic_is_of_its_object_only() {
        let (sender, mut looked_at) = mpsc::unbounded_channel();
        let context = context();
        let driver = Driver::new(&context, Fragile(sender)).workers(1);
        let queue = driver.queue();
        queue.add(Key::new("default", "poison"));
        queue.add(Key::new("default", "sound"));
        context.tasks.spawn("driver", driver.task());
        for expected in ["poison", "sound", "poison", "poison"] {
            assert_eq!(looked_at.recv().await.as_deref(), Some(expected));
        }
        queue.add(Key::new("default", "later"));
        while looked_at.recv().await.as_deref() != Some("later") {}
        let page = context.metrics.page();
        let panics = page.lines().find_map(|line| {
            line.strip_prefix("controller_panics_total{controller=\"fragile-controller\"} ")?.parse().ok()
        });
        assert!(panics.is_some_and(|panics: u32| panics >= 3), "{page}");
        context.shutdown.cancel();
        context.tasks.join().await;
    }

    #[tokio::test]
    async fn a_worker_that_waits_takes_little_memory() {
        let driver = Driver::new(&context(), Fragile(mpsc::unbounded_channel().0));
        // There are eight for each of thirty controllers.
        assert!(size_of_val(&driver.work()) <= 1024, "{} bytes", size_of_val(&driver.work()));
    }

    #[tokio::test]
    async fn a_change_that_is_not_understood_does_not_stop_the_cache() {
        let (sender, _looked_at) = mpsc::unbounded_channel();
        let (context, cache) = (context(), Cache::<ConfigMap>::default());
        let driver = Driver::new(&context, Fragile(sender)).watches(&cache, |change| {
            assert!(change.key().name != "poison", "this was not expected");
            vec![change.key()]
        });
        cache.apply(config_map("poison"));
        cache.apply(config_map("sound"));
        assert_eq!(driver.queue().take().await, Key::new("default", "sound"));
    }
}
