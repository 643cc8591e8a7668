//! All pods of the node: which of them have a worker, and who is woken when something happens.
//!
//! ```text
//! sources (apiserver, files) ──┐
//! runtime events ──────────────┼──> one task, which owns the table of workers
//! workers that have ended ─────┘
//! ```
//!
//! It decides what a worker is wanted for, never what a worker does.

use crate::admission::{self, Rejection};
use crate::health::{BEAT, Pulse};
use crate::plan::{Ending, is_static};
use crate::runtime::{Event, PodView};
use crate::shared::Shared;
use crate::sources::Told;
use crate::sources::mirror::{self, Name, is_mirror, name_of};
use crate::worker::{Handle, Wanted, labels};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A mirror that could not be written is tried again after this long.
const MIRROR_RETRY: Duration = Duration::from_secs(2);
const RUNTIME_RETRY: Duration = Duration::from_secs(1);

/// The pods as others see them: by uid.
#[derive(Default)]
pub struct PodTable {
    workers: RwLock<BTreeMap<String, Handle>>,
    pulse: Pulse,
}

impl PodTable {
    /// All pods, with their present statuses.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.workers.read().values().map(Handle::shown).collect()
    }

    /// All pods that have not been told to end, with their present statuses.
    pub fn wanted(&self) -> Vec<Arc<Pod>> {
        let workers = self.workers.read();
        let wanted = workers.values().filter(|worker| {
            let wanted = worker.wanted();
            wanted.ending.is_none() && wanted.pod.metadata.deletion_timestamp.is_none()
        });
        wanted.map(Handle::shown).collect()
    }

    /// Whether any of these pods has containers that run, or may run.
    pub fn uses_the_node(&self, uids: &[String]) -> bool {
        let workers = self.workers.read();
        uids.iter().filter_map(|uid| workers.get(uid)).any(|worker| {
            let pod = worker.shown();
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase != Some("Failed")
                || statuses
                    .into_iter()
                    .any(|status| status.state.as_ref().is_some_and(|s| s.running.is_some()))
        })
    }

    /// An error where pods are not looked after any more.
    pub fn health(&self, now: Instant) -> Result<(), String> {
        if self.pulse.is_stuck(now) {
            return Err("sync Loop took longer than expected".into());
        }
        let workers = self.workers.read();
        match workers.values().find(|worker| !worker.is_well(now)) {
            Some(worker) => {
                let meta = &worker.shown().metadata;
                let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
                Err(format!(
                    "sync Loop took longer than expected for pod {}/{}",
                    namespace.unwrap_or_default(),
                    name.unwrap_or_default()
                ))
            }
            None => Ok(()),
        }
    }

    /// Ends a pod that may not run on.
    pub fn fail(&self, uid: &str, ending: Ending) {
        if let Some(worker) = self.workers.read().get(uid) {
            let mut wanted = worker.wanted();
            if wanted.ending.is_none() {
                wanted.ending = Some(ending);
                worker.want(wanted);
            }
        }
    }

    fn wake_all(&self) {
        self.workers.read().values().for_each(Handle::wake);
    }

    fn contains(&self, uid: &str) -> bool {
        self.workers.read().contains_key(uid)
    }
}

/// What the table is kept with.
pub(crate) struct Pods {
    pub shared: Arc<Shared>,
    pub table: Arc<PodTable>,
    /// This node in the API, once it is known.
    pub node: watch::Receiver<Option<Arc<Node>>>,
    pub node_name: String,
    pub client: Option<Client>,
    /// The sources that have to speak before anything unknown is removed.
    pub awaited: BTreeSet<&'static str>,
    /// Told when images come or go.
    pub images_changed: Arc<tokio::sync::Notify>,
    tasks: JoinSet<String>,
    /// Static pods that wait until one of the same name has ended.
    waiting: BTreeMap<Name, Arc<Pod>>,
    statics: Vec<Arc<Pod>>,
    mirrors: BTreeMap<Name, Arc<Pod>>,
    mirror_work: JoinSet<Result<(), kube::Error>>,
    listed_mirrors: bool,
}

impl Pods {
    /// No pods yet.
    pub fn new(
        shared: Arc<Shared>,
        table: Arc<PodTable>,
        node: watch::Receiver<Option<Arc<Node>>>,
        node_name: String,
        client: Option<Client>,
        awaited: BTreeSet<&'static str>,
        images_changed: Arc<tokio::sync::Notify>,
    ) -> Pods {
        Pods {
            shared,
            table,
            node,
            node_name,
            client,
            awaited,
            images_changed,
            tasks: JoinSet::new(),
            waiting: BTreeMap::new(),
            statics: Vec::new(),
            mirrors: BTreeMap::new(),
            mirror_work: JoinSet::new(),
            listed_mirrors: false,
        }
    }

    /// Looks after the pods until the token is cancelled.
    pub async fn run(mut self, mut told: mpsc::Receiver<Told>, shutdown: CancellationToken) {
        let mut events = self.shared.runtime.events();
        let mut swept = false;
        loop {
            self.table.pulse.begin();
            if !swept && self.awaited.is_empty() {
                swept = self.sweep(&shutdown).await;
            }
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(told) = told.recv() => self.take(told, &shutdown),
                Some(event) = events.next() => self.happened(&event),
                Some(ended) = self.tasks.join_next() => {
                    if let Ok(uid) = ended {
                        self.ended(&uid, &shutdown);
                    }
                }
                Some(done) = self.mirror_work.join_next() => {
                    // What was done shows in the watch, and is looked at then.
                    if let Ok(Err(error)) = done {
                        tracing::debug!(error = crate::error::chain(&error), "mirror pod");
                        self.sync_mirrors();
                    }
                }
                () = tokio::time::sleep(RUNTIME_RETRY), if !swept && self.awaited.is_empty() => {}
                // Only to show that it still goes round.
                () = tokio::time::sleep(BEAT) => {}
            }
        }
        while self.tasks.join_next().await.is_some() {}
    }

    fn happened(&self, event: &Event) {
        match event {
            Event::Changed(pod) => {
                if let Some(worker) = self.table.workers.read().get(&pod.uid) {
                    worker.wake();
                }
            }
            Event::Images => self.images_changed.notify_one(),
            Event::Lost => {
                self.table.wake_all();
                self.images_changed.notify_one();
            }
        }
    }

    fn take(&mut self, told: Told, shutdown: &CancellationToken) {
        match told {
            Told::Listed(pods) => {
                let (mirrors, mut own): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| is_mirror(pod));
                self.mirrors = mirrors.into_iter().map(|pod| (name_of(&pod), pod)).collect();
                self.listed_mirrors = true;
                // The oldest is admitted first.
                own.sort_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
                let known: BTreeSet<&String> =
                    own.iter().filter_map(|pod| pod.metadata.uid.as_ref()).collect();
                let gone: Vec<Arc<Pod>> = self
                    .table
                    .workers
                    .read()
                    .values()
                    .map(|worker| worker.wanted().pod)
                    .filter(|pod| {
                        !is_static(pod) && pod.metadata.uid.as_ref().is_some_and(|uid| !known.contains(uid))
                    })
                    .collect();
                gone.iter().for_each(|pod| self.gone(pod));
                own.into_iter().for_each(|pod| self.apply(pod, shutdown));
                self.awaited.remove("api");
                self.sync_mirrors();
            }
            Told::Applied(pod) if is_mirror(&pod) => {
                self.mirrors.insert(name_of(&pod), pod);
                self.sync_mirrors();
            }
            Told::Deleted(pod) if is_mirror(&pod) => {
                self.mirrors.remove(&name_of(&pod));
                self.sync_mirrors();
            }
            Told::Applied(pod) => self.apply(pod, shutdown),
            Told::Deleted(pod) => self.gone(&pod),
            Told::Files(pods) => {
                self.take_files(pods, shutdown);
                self.awaited.remove("files");
            }
        }
    }

    fn apply(&mut self, pod: Arc<Pod>, shutdown: &CancellationToken) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let known = self.table.workers.read().get(&uid).map(Handle::wanted);
        if let Some(wanted) = known {
            if wanted.pod != pod
                && let Some(worker) = self.table.workers.read().get(&uid)
            {
                worker.want(Wanted { pod, ..wanted });
            }
            return;
        }
        let ending = self.admit(&pod).err().map(|Rejection { reason, message }| {
            self.shared.events.warning(&pod, &reason, message.clone());
            let message = format!("Pod was rejected: {message}");
            Ending::Failed { reason, message, grace_s: None, for_the_node: false }
        });
        self.start(pod, ending, shutdown);
    }

    /// Whether a pod may run here. One that was let in before is not asked again.
    fn admit(&self, pod: &Pod) -> Result<(), Rejection> {
        let status = pod.status.as_ref();
        let is_new = status.is_none_or(|status| status.start_time.is_none());
        let is_over = matches!(status.and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"));
        if !is_new || is_over || pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let node = self.node.borrow().clone();
        let others = self.table.pods();
        let pressure = *self.shared.pressure.read();
        admission::admit(pod, &others, node.as_deref(), pressure)
    }

    fn start(&mut self, pod: Arc<Pod>, ending: Option<Ending>, shutdown: &CancellationToken) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let wanted = Wanted { pod, ending };
        let worker = Handle::spawn(self.shared.clone(), wanted, &mut self.tasks, shutdown.clone());
        self.table.workers.write().insert(uid, worker);
    }

    fn gone(&self, pod: &Arc<Pod>) {
        let Some(uid) = &pod.metadata.uid else { return };
        self.shared.statuses.forget(uid);
        if let Some(worker) = self.table.workers.read().get(uid) {
            // The last word on its grace is in the object that was deleted.
            worker.want(Wanted { pod: pod.clone(), ending: Some(Ending::Gone) });
        }
    }

    fn ended(&mut self, uid: &str, shutdown: &CancellationToken) {
        self.table.workers.write().remove(uid);
        self.shared.statuses.forget(uid);
        self.start_waiting(shutdown);
    }

    fn take_files(&mut self, pods: Vec<Arc<Pod>>, shutdown: &CancellationToken) {
        let wanted: BTreeSet<&String> = pods.iter().filter_map(|pod| pod.metadata.uid.as_ref()).collect();
        let gone: Vec<Arc<Pod>> = self
            .statics
            .iter()
            .filter(|pod| pod.metadata.uid.as_ref().is_some_and(|uid| !wanted.contains(uid)))
            .cloned()
            .collect();
        gone.iter().for_each(|pod| self.gone(pod));
        let new =
            pods.iter().filter(|pod| pod.metadata.uid.as_ref().is_some_and(|uid| !self.table.contains(uid)));
        self.waiting = new.map(|pod| (name_of(pod), pod.clone())).collect();
        self.statics = pods;
        self.start_waiting(shutdown);
        self.sync_mirrors();
    }

    /// Starts static pods of whose name none is left.
    fn start_waiting(&mut self, shutdown: &CancellationToken) {
        if self.waiting.is_empty() {
            return;
        }
        let taken: BTreeSet<Name> = self.table.pods().iter().map(|pod| name_of(pod)).collect();
        let free: Vec<Name> = self.waiting.keys().filter(|name| !taken.contains(*name)).cloned().collect();
        for name in free {
            if let Some(pod) = self.waiting.remove(&name) {
                self.start(pod, None, shutdown);
                self.sync_mirrors();
            }
        }
    }

    fn sync_mirrors(&mut self) {
        let Some(client) = self.client.clone().filter(|_| self.listed_mirrors) else { return };
        for pod in &self.statics {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            self.shared.statuses.mirrored(uid, self.mirrors.get(&name_of(pod)).map(|mirror| &**mirror));
        }
        if !self.mirror_work.is_empty() {
            return;
        }
        let owner = self.owner();
        for action in mirror::plan(&self.statics, &self.mirrors) {
            let (client, owner) = (client.clone(), owner.clone());
            self.mirror_work.spawn(async move {
                let done = mirror::execute(client, action, owner).await;
                if done.is_err() {
                    tokio::time::sleep(MIRROR_RETRY).await;
                }
                done
            });
        }
    }

    fn owner(&self) -> Option<OwnerReference> {
        let node = self.node.borrow().clone()?;
        Some(OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: self.node_name.clone(),
            uid: node.metadata.uid.clone()?,
            controller: Some(true),
            block_owner_deletion: None,
        })
    }

    /// Ends what the runtime runs and nobody wants, and removes what is left of pods that are gone. Says whether it
    /// could be done.
    async fn sweep(&mut self, shutdown: &CancellationToken) -> bool {
        let views = match self.shared.runtime.pods().await {
            Ok(views) => views,
            Err(error) => {
                tracing::warn!(error = crate::error::chain(&error), "list the pods of the runtime");
                return false;
            }
        };
        for view in views {
            if self.table.contains(&view.pod.uid) {
                continue;
            }
            let waits = self.waiting.values().any(|pod| pod.metadata.uid.as_deref() == Some(&view.pod.uid));
            if !waits {
                tracing::info!(
                    pod = view.pod.name,
                    namespace = view.pod.namespace,
                    "end a pod that nobody wants"
                );
                self.start(Arc::new(orphan(&view)), Some(Ending::Gone), shutdown);
            }
        }
        for pod in self.shared.network.attached() {
            if !self.table.contains(&pod.uid)
                && let Err(error) = self.shared.network.detach(&pod).await
            {
                tracing::warn!(pod = pod.name, %error, "take a pod that is gone off the network");
            }
        }
        if let Some(host) = &self.shared.host {
            let known: BTreeSet<String> = self.table.workers.read().keys().cloned().collect();
            host.sweep(known).await;
        }
        true
    }
}

/// As much of a pod as its end needs.
fn orphan(view: &PodView) -> Pod {
    let noted = view.sandboxes.iter().find_map(|sandbox| sandbox.spec.annotations.get(labels::GRACE));
    let grace = noted.and_then(|grace| grace.parse().ok());
    Pod {
        metadata: ObjectMeta {
            namespace: Some(view.pod.namespace.clone()),
            name: Some(view.pod.name.clone()),
            uid: Some(view.pod.uid.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec { termination_grace_period_seconds: grace, ..PodSpec::default() }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_ends_with_the_grace_it_was_made_with() {
        let mut spec = crate::runtime::SandboxSpec::default();
        spec.annotations.insert(labels::GRACE.into(), "7".into());
        let pod = crate::runtime::PodRef { namespace: "a".into(), name: "b".into(), uid: "c".into() };
        let sandbox = crate::runtime::SandboxView {
            id: crate::runtime::SandboxId("s".into()),
            spec,
            pid: None,
            created_at: jiff::Timestamp::UNIX_EPOCH,
        };
        let view = PodView { pod, sandboxes: vec![sandbox], containers: vec![] };
        let made = orphan(&view);
        assert_eq!(made.spec.and_then(|spec| spec.termination_grace_period_seconds), Some(7));
        assert_eq!(crate::worker::pod_ref(&orphan(&view)), view.pod);
    }
}
