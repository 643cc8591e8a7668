//! Garbage collection: what belongs to owners that are gone goes too.
//!
//! ```text
//! discovery ──> a metadata watch of every resource ──> Graph ──uids worth a look──> Queue
//!                          the server, asked live <── observe <────────────────────┘
//!                                                        └──> plan ──> writes
//! ```
//!
//! Nothing is deleted on the graph's word alone: the object and each of its owners are asked for first. A reference whose
//! uid is not that of the object by that name is a reference to nothing. A reference of a kind that the server does not
//! know says nothing.

pub mod graph;
pub mod plan;

#[cfg(test)]
mod tests;

use crate::discovery::{Resource, discover};
use crate::runtime::{Context, Queue, Task, execute};
use client::{AnyCache, Key, contained};
use graph::{Deletion, Graph, Node, Owner, Uid};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::DynamicObject;
use parking_lot::Mutex;
use plan::{Dependent, OwnerState, View, plan};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const WORKERS: usize = 8;
/// Resources that come and go without a CustomResourceDefinition are noticed after so long.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(60);
const LONGEST_SYNC: Duration = Duration::from_secs(30);
const SYNC_PAUSE: Duration = Duration::from_millis(50);
const DISCOVERY_RETRY: Duration = Duration::from_secs(1);
/// So many absent owners are remembered, so that a thousand orphans of one do not ask a thousand times.
const MOST_ABSENT: usize = 500;

/// Makes it.
pub fn start(context: &Context) -> Task {
    let collector = Collector {
        context: context.clone(),
        graph: Mutex::default(),
        queue: Queue::default(),
        monitors: Mutex::default(),
        absent: Mutex::default(),
        rediscover: Notify::new(),
    };
    Box::pin(Arc::new(collector).run())
}

struct Collector {
    context: Context,
    graph: Mutex<Graph>,
    queue: Queue,
    monitors: Mutex<BTreeMap<(String, String), Monitor>>,
    /// Owners that were not there; their uids never come back.
    absent: Mutex<HashSet<Uid>>,
    rediscover: Notify,
}

struct Monitor {
    resource: Arc<Resource>,
    cache: Arc<dyn AnyCache>,
    stop: CancellationToken,
}

impl Collector {
    async fn run(self: Arc<Self>) {
        let definitions = self.context.informers.metadata::<CustomResourceDefinition>();
        let this = self.clone();
        definitions.subscribe(move |_| this.rediscover.notify_one());
        for _ in 0..WORKERS {
            let worker = self.clone();
            self.context.tasks.spawn(self.context.name, async move { worker.work().await });
        }
        self.follow_discovery().await;
    }

    /// Keeps a watch of every resource that can be collected.
    async fn follow_discovery(self: &Arc<Self>) {
        loop {
            let pause = match discover(&self.context.client).await {
                Ok(discovered) => {
                    self.watch_all(discovered.resources);
                    DISCOVERY_PERIOD
                }
                Err(error) => {
                    tracing::debug!(%error, "discovery failed");
                    DISCOVERY_RETRY
                }
            };
            tokio::select! {
                () = self.context.shutdown.cancelled() => return,
                () = self.rediscover.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn watch_all(self: &Arc<Self>, resources: Vec<Arc<Resource>>) {
        // Events are owned by nobody, expire by themselves and are many.
        let wanted: BTreeMap<_, _> = resources
            .into_iter()
            .filter(|resource| resource.can(&["list", "watch", "delete"]) && resource.plural != "events")
            .map(|resource| ((resource.group.clone(), resource.plural.clone()), resource))
            .collect();
        let mut gone = Vec::new();
        self.monitors.lock().retain(|id, monitor| {
            let kept = wanted.get(id).is_some_and(|resource| *resource == monitor.resource);
            if !kept {
                monitor.stop.cancel();
                gone.push(monitor.resource.clone());
            }
            kept
        });
        for resource in gone {
            let uids = self.graph.lock().of_resource(&resource);
            uids.iter().for_each(|uid| self.forget(uid));
        }
        for (id, resource) in wanted {
            if self.monitors.lock().contains_key(&id) {
                continue;
            }
            let stop = CancellationToken::new();
            let (informers, of) = (&self.context.informers, resource.api_resource());
            // What another controller watches anyway need not be watched twice.
            let cache =
                informers.known(&of).unwrap_or_else(|| Arc::new(informers.metadata_of(&of, stop.clone())));
            let (this, of) = (self.clone(), resource.clone());
            cache.subscribe_metadata(Box::new(move |old, new| this.changed(&of, old, new)));
            self.monitors.lock().insert(id, Monitor { resource, cache, stop });
        }
    }

    fn changed(&self, resource: &Arc<Resource>, old: Option<&ObjectMeta>, new: Option<&ObjectMeta>) {
        let uid = |metadata: Option<&ObjectMeta>| metadata.and_then(|metadata| metadata.uid.clone());
        if let Some(old) = uid(old).filter(|old| Some(old) != uid(new).as_ref()) {
            self.forget(&old);
        }
        if let Some(new) = new {
            let look = self.graph.lock().apply(resource, new);
            look.iter().for_each(|uid| self.look_at(uid));
        }
    }

    fn forget(&self, uid: &str) {
        let look = self.graph.lock().remove(uid);
        look.iter().for_each(|uid| self.look_at(uid));
    }

    fn look_at(&self, uid: &str) {
        self.queue.add(Key::cluster(uid));
    }

    /// Waits until every watch knows all objects: before, an owner might only seem to be absent. A watch that does not
    /// get there (a resource that is only half there) is not waited for for ever: the server is asked anyway.
    async fn synced(&self) {
        let ends = Instant::now() + LONGEST_SYNC;
        while Instant::now() < ends {
            let caches: Vec<_> = self.monitors.lock().values().map(|monitor| monitor.cache.clone()).collect();
            let Some(behind) = caches.iter().find(|cache| !cache.is_synced()) else {
                if caches.is_empty() {
                    tokio::time::sleep(SYNC_PAUSE).await;
                    continue;
                }
                return;
            };
            let _ = tokio::time::timeout(SYNC_PAUSE, behind.changes().changed()).await;
        }
    }

    async fn work(&self) {
        let shutdown = &self.context.shutdown;
        tokio::select! {
            () = self.synced() => {}
            () = shutdown.cancelled() => return,
        }
        loop {
            let key = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                key = self.queue.take() => key,
            };
            match contained(Box::pin(self.process(&key.name))).await {
                Ok(Ok(())) => self.queue.forget_failures(&key),
                Ok(Err(why)) => {
                    tracing::debug!(uid = key.name, why, "to be looked at again");
                    self.queue.add_failed(key.clone());
                }
                Err(panic) => {
                    tracing::error!(uid = key.name, panic, "the garbage collector panicked over an object");
                    self.context.metrics.panicked(self.context.name);
                    self.queue.add_failed(key.clone());
                }
            }
            self.queue.done(&key);
        }
    }

    async fn process(&self, uid: &str) -> Result<(), String> {
        let Some(view) = self.observe(uid).await? else { return Ok(()) };
        let outcome = plan(&view);
        self.context.metrics.planned(self.context.name, outcome.plan.writes.len());
        outcome.look_at.iter().for_each(|uid| self.look_at(uid));
        let (_, failure) = execute(&self.context.client, &self.context.recorder, outcome.plan.writes).await;
        failure.map_or(Ok(()), |failure| Err(failure.message()))
    }

    async fn observe(&self, uid: &str) -> Result<Option<View>, String> {
        let node = {
            let graph = self.graph.lock();
            match graph.get(uid).filter(|_| graph.needs_look(uid)) {
                Some(node) => node.clone(),
                None => return Ok(None),
            }
        };
        let Some(metadata) = self.live(&node.resource, &node.namespace, &node.name, uid).await? else {
            self.forget(uid);
            return Ok(None);
        };
        let deletion = Deletion::of(&metadata);
        let mut owners = Vec::new();
        if deletion == Deletion::None {
            for owner in metadata.owner_references.iter().flatten().map(Owner::of) {
                owners.push(self.owner_state(&node, &owner).await?);
            }
        }
        let dependents = self.dependents(uid, deletion == Deletion::Orphan).await?;
        Ok(Some(View { resource: node.resource, metadata, owners, dependents }))
    }

    /// The object as the server has it, if it still is the one of this uid.
    async fn live(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Option<ObjectMeta>, String> {
        let (client, of) = (self.context.client.clone(), resource.api_resource());
        let api: Api<DynamicObject> = match resource.namespaced {
            true => Api::namespaced_with(client, namespace, &of),
            false => Api::all_with(client, &of),
        };
        let found = api.get_metadata_opt(name).await.map_err(|error| error.to_string())?;
        Ok(found.map(|found| found.metadata).filter(|metadata| metadata.uid.as_deref() == Some(uid)))
    }

    async fn owner_state(&self, node: &Node, owner: &Owner) -> Result<OwnerState, String> {
        if self.absent.lock().contains(&owner.uid) {
            return Ok(OwnerState::Absent);
        }
        let Some(resource) = self.resource_of(owner) else {
            self.rediscover.notify_one();
            return Err(format!("no resource is known for {} {}", owner.api_version, owner.kind));
        };
        if resource.namespaced && node.namespace.is_empty() {
            // It makes no sense, and nobody can say what was meant: such a one is never collected.
            tracing::debug!(name = %node.name, kind = node.resource.kind, "its owner is in a namespace, it is not");
            return Ok(OwnerState::Solid);
        }
        match self.live(&resource, &node.namespace, &owner.name, &owner.uid).await? {
            Some(found) if Deletion::of(&found) == Deletion::Foreground => Ok(OwnerState::Waiting),
            Some(_) => Ok(OwnerState::Solid),
            None => {
                let mut absent = self.absent.lock();
                if absent.len() >= MOST_ABSENT {
                    absent.clear();
                }
                absent.insert(owner.uid.clone());
                Ok(OwnerState::Absent)
            }
        }
    }

    fn resource_of(&self, owner: &Owner) -> Option<Arc<Resource>> {
        let monitors = self.monitors.lock();
        let mut resources = monitors.values().map(|monitor| &monitor.resource);
        resources.find(|found| found.group == owner.group() && *found.kind == *owner.kind).cloned()
    }

    async fn dependents(&self, uid: &str, ask: bool) -> Result<Vec<Dependent>, String> {
        let nodes: Vec<(Uid, Node)> = {
            let graph = self.graph.lock();
            graph.dependents(uid).into_iter().map(|(uid, node)| (uid, node.clone())).collect()
        };
        let mut dependents = Vec::with_capacity(nodes.len());
        for (dependent, node) in nodes {
            let live = match ask {
                true => self.live(&node.resource, &node.namespace, &node.name, &dependent).await?,
                false => None,
            };
            dependents.push(Dependent {
                blocks: node.owners.iter().any(|owner| *owner.uid == *uid && owner.blocks),
                foreground: node.deletion == Deletion::Foreground,
                live: live.map(|metadata| (node.resource, metadata)),
                uid: dependent,
            });
        }
        Ok(dependents)
    }
}
