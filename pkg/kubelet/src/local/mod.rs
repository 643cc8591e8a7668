//! This machine as a provider of pods: a worker for each, driven by `plan_pod` over a [`crate::runtime::Runtime`].
//!
//! ```text
//! create, update, delete ──> table of workers ──> plan ──> runtime, pod_network, host
//! runtime events ──────────────────┘   └──> outbox ──> changes
//! ```
//!
//! It decides what a worker is wanted for, never what a worker does.

mod outbox;
mod sessions;
mod table;

pub use outbox::Outbox;
pub use sessions::Sessions;
pub(crate) use table::PodTable;

use crate::admission::{self, Rejection};
use crate::allocation::{self, Verdict, event_message};
use crate::eviction::Thresholds;
use crate::health::{BEAT, Pulse};
use crate::isolation::{self, Isolation};
use crate::node::{Machine, amounts};
use crate::plan::Ending;
use crate::provider::{Change, Described, Log, LogFile, LogRequest, PodProvider, Running};
use crate::runtime::{Error, Event, ExecSpec, PodRef, PodView, Session, Usage};
use crate::shared::Shared;
use crate::worker::{Handle, Wanted, labels};
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A runtime that does not answer is asked again after this long.
const RUNTIME_RETRY: Duration = Duration::from_secs(1);
/// How often what is there is compared with what should be.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// A runtime that takes longer to say its version is as good as away.
const RUNTIME_ANSWERS: Duration = Duration::from_secs(10);

/// What the local node is told once.
pub(crate) struct Settings {
    /// Pods at most.
    pub max_pods: u32,
    /// What it can give to pods that ask for isolation.
    pub isolation: Isolation,
    /// What must be left of the machine.
    pub eviction: Thresholds,
    /// Where the disk is looked at.
    pub root: PathBuf,
    /// Ranges of pod addresses are given by flag; those of the API do not matter.
    pub has_ranges: bool,
    /// What it has, where that is not asked of the machine: simulated nodes.
    pub machine: Option<Machine>,
}

/// This machine.
pub(crate) struct LocalNode {
    pub shared: Arc<Shared>,
    pub table: Arc<PodTable>,
    settings: Settings,
    sessions: Sessions,
    /// This node in the API, once it is known.
    node: RwLock<Option<Arc<Node>>>,
    /// Held while the node is seen: whoever sees the same waits until its network is set up, too.
    seeing: tokio::sync::Mutex<()>,
    workers: TaskTracker,
    shutdown: CancellationToken,
    /// Held while it is decided who gets room.
    deciding: Mutex<()>,
    /// What is to stay when the rest is swept away, until that is done.
    keep: Mutex<Option<BTreeSet<String>>>,
    told: Notify,
    pulse: Pulse,
}

impl LocalNode {
    /// No pods yet. Workers end when the token is cancelled.
    pub fn new(shared: Arc<Shared>, settings: Settings, shutdown: CancellationToken) -> Arc<LocalNode> {
        Arc::new(LocalNode {
            sessions: Sessions::new(shared.runtime.clone()),
            shared,
            table: Arc::default(),
            settings,
            node: RwLock::default(),
            seeing: tokio::sync::Mutex::default(),
            workers: TaskTracker::new(),
            shutdown,
            deciding: Mutex::default(),
            keep: Mutex::default(),
            told: Notify::new(),
            pulse: Pulse::default(),
        })
    }

    fn happened(&self, event: &Event) {
        match event {
            Event::Changed(pod) => self.table.wake(&pod.uid),
            Event::Images => self.shared.outbox.put(Change::Node),
            Event::Lost => {
                self.table.wake_all();
                self.shared.outbox.put(Change::Node);
            }
        }
    }

    /// Whether a pod may run here. One that was let in before is not asked again.
    fn admit(&self, pod: &Pod) -> Result<(), Rejection> {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let is_over = matches!(phase, Some("Succeeded" | "Failed"));
        if !is_new(pod) || is_over || pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        isolation::check(pod, &self.settings.isolation)?;
        if crate::plan::is_static(pod) {
            return Ok(());
        }
        let node = self.node.read().clone();
        admission::admit(pod, &self.table.allocated(), node.as_deref(), *self.shared.pressure.read())
    }

    /// Gives pods that ask for another size what there is room for, and remembers why others do not have it.
    fn give_room(&self) {
        let Some(node) = self.node.read().clone().filter(|_| self.table.any_asks()) else { return };
        let _deciding = self.deciding.lock();
        let mut shares = self.table.shares();
        let verdicts = allocation::decide(&mut shares, &node, *self.shared.pressure.read());
        for (uid, verdict) in verdicts {
            let pod = shares[&uid].pod.clone();
            if self.table.decided(&uid, &pod, &verdict) {
                self.tell(&pod, &verdict);
                self.table.wake(&uid);
            }
        }
    }

    fn tell(&self, pod: &Pod, verdict: &Verdict) {
        let events = &self.shared.events;
        let generation = pod.metadata.generation;
        match verdict {
            Verdict::Granted => {
                events.normal(
                    pod,
                    "ResizeStarted",
                    event_message("Pod resize started", pod, generation, None),
                );
            }
            Verdict::Refused(reason, message) => {
                let text = event_message(&format!("Pod resize {reason}"), pod, generation, Some(message));
                events.warning(pod, &format!("Resize{reason}"), text);
            }
        }
    }

    fn start(&self, pod: Arc<Pod>, ending: Option<Ending>) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let is_new = is_new(&pod);
        let wanted = Wanted { pod, ending };
        let (worker, work) = Handle::new(self.shared.clone(), wanted, is_new, self.shutdown.clone());
        self.table.insert(uid, worker);
        let (table, shared, shutdown) = (self.table.clone(), self.shared.clone(), self.shutdown.clone());
        self.workers.spawn(async move {
            let uid = work.await;
            if !shutdown.is_cancelled() {
                table.remove(&uid);
                shared.room.notify_one();
                shared.outbox.put(Change::Gone(uid));
            }
        });
    }

    /// Ends what the runtime runs and nobody wants, and removes what is left of pods that are gone. Says whether it
    /// could be done. What is there is listed first and compared then: a pod is in the table before anything is made of it.
    async fn sweep(&self, keep: &BTreeSet<String>) -> bool {
        let views = match self.shared.runtime.pods().await {
            Ok(views) => views,
            Err(error) => {
                tracing::warn!(error = crate::error::chain(&error), "list the pods of the runtime");
                return false;
            }
        };
        for view in views {
            let PodRef { namespace, name, uid } = &view.pod;
            if self.table.contains(uid) || keep.contains(uid) {
                continue;
            }
            // Its worker may have ended since, and left nothing.
            if self.shared.runtime.pod(&view.pod).await.is_ok_and(|now| !now.is_empty()) {
                tracing::info!(pod = name, namespace, "end a pod that nobody wants");
                self.start(Arc::new(orphan(&view)), Some(Ending::Gone));
            }
        }
        if let Err(error) = self.shared.runtime.remove_leftovers().await {
            tracing::warn!(error = crate::error::chain(&error), "remove what the runtime left");
        }
        for pod in self.shared.network.attached() {
            if !self.table.contains(&pod.uid)
                && let Err(error) = self.shared.network.detach(&pod).await
            {
                tracing::warn!(pod = pod.name, %error, "take a pod that is gone off the network");
            }
        }
        if let Some(host) = &self.shared.host {
            let table = self.table.clone();
            host.sweep(move |uid| table.contains(uid)).await;
        }
        true
    }

    /// What the rest of the node goes by.
    fn publish(&self, described: &Described) {
        if let Ok(version) = &described.runtime {
            let name = version.split(':').next().unwrap_or("containerd");
            name.clone_into(&mut self.shared.facts.write().runtime);
        }
        self.shared.facts.write().handlers.clone_from(&described.handlers);
        if let Some(host) = &self.shared.host {
            host.capacity.write().clone_from(&described.capacity);
            host.allocatable.write().clone_from(&described.allocatable);
        }
    }
}

#[async_trait]
impl PodProvider for LocalNode {
    async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut events = self.shared.runtime.events();
        let mut swept: Option<Instant> = None;
        loop {
            self.pulse.begin();
            if swept.is_some_and(|at| at.elapsed() > SWEEP_EVERY) {
                self.keep.lock().get_or_insert_default();
            }
            let keep = self.keep.lock().clone();
            if let Some(keep) = &keep {
                tokio::select! {
                    is_swept = self.sweep(keep) => if is_swept {
                        *self.keep.lock() = None;
                        swept = Some(Instant::now());
                    },
                    () = shutdown.cancelled() => break,
                }
            }
            self.give_room();
            let again = self.keep.lock().is_some();
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(event) = events.next() => self.happened(&event),
                () = self.told.notified() => {}
                () = self.shared.room.notified() => {}
                () = tokio::time::sleep(RUNTIME_RETRY), if again => {}
                // Only to show that it still goes round.
                () = tokio::time::sleep(BEAT) => {}
            }
        }
        self.workers.close();
        self.workers.wait().await;
    }

    fn create(&self, pod: Arc<Pod>) {
        let ending = self.admit(&pod).err().map(|Rejection { reason, message }| {
            self.shared.events.warning(&pod, &reason, message.clone());
            let message = format!("Pod was rejected: {message}");
            Ending::Failed { reason, message, grace_s: None, for_the_node: false }
        });
        self.start(pod, ending);
    }

    fn update(&self, pod: Arc<Pod>) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        // Decided first, so that its status never says that it has what it asks for when it has not.
        if self.table.asks(&uid, &pod) {
            self.give_room();
        }
        self.table.want(&uid, |wanted| (wanted.pod != pod).then_some(Wanted { pod, ..wanted }));
    }

    fn delete(&self, pod: Arc<Pod>) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        // The last word on its grace is in the object that was deleted.
        self.table.want(&uid, |_| Some(Wanted { pod, ending: Some(Ending::Gone) }));
    }

    fn retain(&self, uids: BTreeSet<String>) {
        *self.keep.lock() = Some(uids);
        self.told.notify_one();
    }

    fn list(&self) -> Vec<Arc<Pod>> {
        self.table.pods()
    }

    fn get(&self, uid: &str) -> Option<Arc<Pod>> {
        self.table.get(uid)
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        let outbox = self.shared.outbox.clone();
        futures::stream::unfold(outbox, |outbox| async { Some((outbox.clone().next().await, outbox)) })
            .boxed()
    }

    fn health(&self) -> Result<(), String> {
        let now = Instant::now();
        if self.pulse.is_stuck(now) {
            return Err("sync Loop took longer than expected".into());
        }
        self.table.health(now)
    }

    async fn describe(&self) -> Described {
        let asked = async {
            let runtime = &self.shared.runtime;
            let version = runtime.version().await.map_err(|error| crate::error::chain(&error))?;
            Ok((version, runtime.images().await.unwrap_or_default()))
        };
        let silent =
            |_| Err(format!("the container runtime did not answer for {} s", RUNTIME_ANSWERS.as_secs()));
        let answered = tokio::time::timeout(RUNTIME_ANSWERS, asked).await.unwrap_or_else(silent);
        let (version, images) = match answered {
            Ok((version, images)) => (Ok(version), images),
            Err(why) => (Err(why), Vec::new()),
        };
        let machine = match &self.settings.machine {
            Some(machine) => machine.clone(),
            None => Machine::read(&self.settings.root),
        };
        let (capacity, allocatable) = amounts(&machine, self.settings.max_pods, &self.settings.eviction);
        let described = Described {
            handlers: self.shared.runtime.handlers().await,
            labels: BTreeMap::new(),
            machine,
            capacity,
            allocatable,
            pressure: *self.shared.pressure.read(),
            runtime: version,
            network: self.shared.network.ready(),
            images,
        };
        self.publish(&described);
        described
    }

    async fn node_seen(&self, node: Option<Arc<Node>>) {
        let _turn = self.seeing.lock().await;
        let ranges = |node: Option<&Arc<Node>>| -> Vec<IpNet> {
            let spec = node.and_then(|node| node.spec.as_ref());
            let listed = spec.into_iter().flat_map(|spec| spec.pod_cidrs.iter().flatten());
            listed.filter_map(|range| range.parse().ok()).collect()
        };
        let now = ranges(node.as_ref());
        let before = std::mem::replace(&mut *self.node.write(), node);
        if self.settings.has_ranges || now.is_empty() || now == ranges(before.as_ref()) {
            return;
        }
        if let Err(error) = self.shared.network.set_ranges(&now).await {
            tracing::error!(error = crate::error::chain(&error), "set up the network of pods");
        }
        self.shared.outbox.put(Change::Node);
    }

    async fn logs(&self, pod: &PodRef, container_id: &str, _asked: LogRequest) -> Result<Log, Error> {
        let found = match self.sessions.logs(pod, container_id).await {
            // The containers of a pod that has ended are removed at once; its logs stay as long as it does.
            Err(Error::NotFound(what)) => {
                let kept = self.shared.host.as_ref().and_then(|host| host.kept_log(pod, container_id));
                let path = kept.ok_or(Error::NotFound(what))?;
                Ok(LogFile { path, ended: Box::pin(std::future::ready(())) })
            }
            found => found,
        };
        found.map(Log::File)
    }

    async fn exec(&self, pod: &PodRef, container: &str, spec: &ExecSpec) -> Result<Session, Error> {
        self.sessions.exec(pod, container, spec).await
    }

    async fn attach(&self, pod: &PodRef, container: &str, stdin: bool) -> Result<Session, Error> {
        self.sessions.attach(pod, container, stdin).await
    }

    async fn ports(&self, pod: &PodRef) -> Result<Option<PathBuf>, Error> {
        self.sessions.ports(pod).await
    }

    async fn usage(&self, pod: &PodRef) -> Result<BTreeMap<String, Usage>, Error> {
        self.sessions.usage(pod).await
    }

    async fn running(&self) -> Result<Vec<(PodRef, Vec<Running>)>, Error> {
        self.sessions.running().await
    }
}

/// Whether no kubelet has taken a pod on yet.
fn is_new(pod: &Pod) -> bool {
    pod.status.as_ref().is_none_or(|status| status.start_time.is_none())
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
