//! Which pods the node is to run: what the sources say, told to the provider, and what the provider says, told to the
//! apiserver.
//!
//! ```text
//! apiserver ──┐                                               ┌──> statuses ──> apiserver
//! files ──────┼──> create, update, delete ──> PodProvider ── changes ──> the node
//!             └──> mirrors ──> apiserver
//! ```
//!
//! It knows nothing of how pods are run.

use crate::health::{BEAT, Pulse};
use crate::plan::is_static;
use crate::provider::{Change, PodProvider};
use crate::sources::Told;
use crate::sources::mirror::{self, Name, is_mirror, name_of};
use crate::statuses::Statuses;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A mirror that could not be written is tried again after this long.
const MIRROR_RETRY: Duration = Duration::from_secs(2);

/// What the pods are kept with.
pub(crate) struct Pods {
    pub provider: Arc<dyn PodProvider>,
    pub statuses: Arc<Statuses>,
    /// This node in the API, once it is known.
    pub node: watch::Receiver<Option<Arc<Node>>>,
    pub node_name: String,
    pub client: Option<Client>,
    /// The sources that have to speak before anything unknown is removed.
    pub awaited: BTreeSet<&'static str>,
    /// Told when the node has something else to say of itself.
    pub node_changed: Arc<Notify>,
    /// Shows that somebody listens to the sources.
    pub pulse: Arc<Pulse>,
    /// What the sources have.
    pub known: Known,
}

/// What the sources have.
#[derive(Default)]
pub(crate) struct Known {
    /// Static pods that wait until one of the same name has ended.
    waiting: BTreeMap<Name, Arc<Pod>>,
    statics: Vec<Arc<Pod>>,
    /// Static pods that end. One of them may be wanted again before it has ended: its uid follows from its file.
    ending: BTreeSet<String>,
    mirrors: BTreeMap<Name, Arc<Pod>>,
    mirror_work: JoinSet<Result<(), kube::Error>>,
    listed_mirrors: bool,
    /// Mirrors changed while there was work to do on them.
    missed_mirrors: bool,
}

impl Pods {
    /// Tells the provider until the token is cancelled.
    pub async fn run(mut self, mut told: mpsc::Receiver<Told>, shutdown: CancellationToken) {
        let mut changes = self.provider.changes();
        let mut is_complete = false;
        loop {
            self.pulse.begin();
            if !is_complete && self.awaited.is_empty() {
                is_complete = true;
                self.provider.retain(self.wanted());
            }
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(told) = told.recv() => self.take(told),
                Some(change) = changes.next() => self.changed(change),
                Some(done) = self.known.mirror_work.join_next() => {
                    if let Ok(Err(error)) = &done {
                        tracing::debug!(error = crate::error::chain(error), "mirror pod");
                    }
                    // What was done shows in the watch, and is looked at then, unless that has been.
                    if !matches!(done, Ok(Ok(()))) || self.known.missed_mirrors {
                        self.sync_mirrors();
                    }
                }
                // Only to show that it still goes round.
                () = tokio::time::sleep(BEAT) => {}
            }
        }
    }

    /// All that are to run.
    fn wanted(&self) -> BTreeSet<String> {
        let given = self.provider.list();
        given.iter().chain(self.known.waiting.values()).filter_map(|pod| pod.metadata.uid.clone()).collect()
    }

    fn changed(&mut self, change: Change) {
        match change {
            Change::Status { pod, status, finished } => self.statuses.set(&pod, &status, finished),
            Change::Gone(uid) => {
                self.statuses.forget(&uid);
                self.known.ending.remove(&uid);
                self.start_waiting();
            }
            Change::Node => self.node_changed.notify_one(),
        }
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Listed(pods) => {
                let (mirrors, mut own): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| is_mirror(pod));
                self.known.mirrors = mirrors.into_iter().map(|pod| (name_of(&pod), pod)).collect();
                self.known.listed_mirrors = true;
                // The oldest is admitted first.
                own.sort_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
                let listed: BTreeSet<&String> =
                    own.iter().filter_map(|pod| pod.metadata.uid.as_ref()).collect();
                let mut gone = self.provider.list();
                gone.retain(|pod| {
                    !is_static(pod) && pod.metadata.uid.as_ref().is_some_and(|uid| !listed.contains(uid))
                });
                gone.into_iter().for_each(|pod| self.gone(pod));
                own.into_iter().for_each(|pod| self.apply(pod));
                self.awaited.remove("api");
                self.sync_mirrors();
            }
            Told::Applied(pod) if is_mirror(&pod) => {
                self.known.mirrors.insert(name_of(&pod), pod);
                self.sync_mirrors();
            }
            Told::Deleted(pod) if is_mirror(&pod) => {
                self.known.mirrors.remove(&name_of(&pod));
                self.sync_mirrors();
            }
            Told::Applied(pod) => self.apply(pod),
            Told::Deleted(pod) => self.gone(pod),
            Told::Files(pods) => {
                self.take_files(pods);
                self.awaited.remove("files");
            }
        }
    }

    fn apply(&self, pod: Arc<Pod>) {
        let Some(uid) = &pod.metadata.uid else { return };
        if self.provider.get(uid).is_some() {
            self.statuses.seen(&pod);
            self.provider.update(pod);
        } else {
            self.provider.create(pod);
        }
    }

    fn gone(&self, pod: Arc<Pod>) {
        let Some(uid) = &pod.metadata.uid else { return };
        self.statuses.forget(uid);
        self.provider.delete(pod);
    }

    fn take_files(&mut self, pods: Vec<Arc<Pod>>) {
        let wanted: BTreeSet<&String> = pods.iter().filter_map(|pod| pod.metadata.uid.as_ref()).collect();
        let mut gone = self.known.statics.clone();
        gone.retain(|pod| pod.metadata.uid.as_ref().is_some_and(|uid| !wanted.contains(uid)));
        for pod in gone {
            self.known.ending.extend(pod.metadata.uid.clone().filter(|uid| self.provider.get(uid).is_some()));
            self.gone(pod);
        }
        let is_new = |pod: &&Arc<Pod>| {
            let uid = pod.metadata.uid.as_ref();
            uid.is_some_and(|uid| self.known.ending.contains(uid) || self.provider.get(uid).is_none())
        };
        let new = pods.iter().filter(is_new).map(|pod| (name_of(pod), pod.clone())).collect();
        self.known.waiting = new;
        self.known.statics = pods;
        self.start_waiting();
        self.sync_mirrors();
    }

    /// Starts static pods of whose name none is left.
    fn start_waiting(&mut self) {
        if self.known.waiting.is_empty() {
            return;
        }
        let taken: BTreeSet<Name> = self.provider.list().iter().map(|pod| name_of(pod)).collect();
        let waiting = std::mem::take(&mut self.known.waiting);
        for (name, pod) in waiting {
            if taken.contains(&name) {
                self.known.waiting.insert(name, pod);
            } else {
                self.provider.create(pod);
                self.sync_mirrors();
            }
        }
    }

    fn sync_mirrors(&mut self) {
        let Some(client) = self.client.clone().filter(|_| self.known.listed_mirrors) else { return };
        let Known { statics, mirrors, mirror_work, missed_mirrors, .. } = &mut self.known;
        for pod in statics.iter() {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            self.statuses.mirrored(uid, mirrors.get(&name_of(pod)).map(|mirror| &**mirror));
        }
        *missed_mirrors = !mirror_work.is_empty();
        if *missed_mirrors {
            return;
        }
        let node = self.node.borrow().clone();
        let owner = node.and_then(|node| owner(&self.node_name, &node));
        for action in mirror::plan(statics, mirrors) {
            let (client, owner) = (client.clone(), owner.clone());
            mirror_work.spawn(async move {
                let done = mirror::execute(client, action, owner).await;
                if done.is_err() {
                    tokio::time::sleep(MIRROR_RETRY).await;
                }
                done
            });
        }
    }
}

fn owner(name: &str, node: &Node) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.to_owned(),
        uid: node.metadata.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: None,
    })
}
