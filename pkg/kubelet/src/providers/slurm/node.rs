//! A SLURM site as a provider of pods: which pods there are, and how each is.
//!
//! ```text
//! create, update, delete ──> table of pods ──> submit, end     one task per pod, while there is something to do
//!                                ▲    └──> status ──> outbox ──> changes
//!                      follow ───┘   journals and the queue, for all pods at once
//! ```

use super::commands::SlurmSite;
use super::contents::PodData;
use super::exec;
use super::follow;
use super::journal::Journal;
use super::queue::{Row, SiteNodes};
use super::records::{Record, Records, Submission};
use super::script::JobPlace;
use super::status::{self, Known};
use super::tail;
use crate::events::Events;
use crate::host::Capacity;
use crate::local::Outbox;
use crate::node::{Machine, Pressure};
use crate::provider::{Change, Described, Log, LogRequest, PodProvider, Running};
use crate::runtime::{Error, ExecSpec, Handlers, PodRef, Session, Usage};
use api::Quantity;
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus, Taint};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OnceCell, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Gives the objects that pods name.
#[async_trait]
pub trait PodObjects: Send + Sync + 'static {
    /// Those that this pod names; what is not there is left out.
    async fn of(&self, pod: &Pod) -> Result<PodData, String>;
}

/// What a node is made of.
pub struct NodeParts {
    /// The site.
    pub site: SlurmSite,
    /// Where the records of jobs are kept.
    pub folder: std::path::PathBuf,
    /// The node's name.
    pub node_name: String,
    /// Who gives the objects that pods name.
    pub objects: Arc<dyn PodObjects>,
    /// Who is told what happens.
    pub events: Events,
}

/// A site.
pub struct SlurmNode {
    own: Weak<SlurmNode>,
    pub(super) site: SlurmSite,
    pub(super) records: Records,
    pub(super) node_name: String,
    pub(super) objects: Arc<dyn PodObjects>,
    pub(super) events: Events,
    pub(super) table: Mutex<BTreeMap<String, Entry>>,
    pub(super) outbox: Arc<Outbox>,
    /// Counts what has changed about any pod.
    pub(super) turned: watch::Sender<u64>,
    /// Told when the queue is to be looked at soon.
    pub(super) look: Notify,
    /// Told when there is a job to follow.
    pub(super) follow: Notify,
    pub(super) tasks: TaskTracker,
    pub(super) shutdown: CancellationToken,
    pub(super) turns: Arc<Semaphore>,
    pub(super) whoami: OnceCell<String>,
    /// Records of pods that nobody has named yet; their jobs are orphans once all pods have been named.
    pub(super) unclaimed: Mutex<BTreeMap<String, Record>>,
    pub(super) is_complete: watch::Sender<bool>,
    /// Why the queue could not be looked at, last.
    pub(super) trouble: Mutex<Option<String>>,
    nodes: Mutex<Option<(Instant, Result<SiteNodes, String>)>>,
    /// What it had when it was last seen.
    known: Mutex<SiteNodes>,
    version: OnceCell<String>,
}

/// A pod.
pub(super) struct Entry {
    pub pod: Arc<Pod>,
    pub record: Option<Record>,
    pub journal: Journal,
    pub row: Option<Row>,
    pub status: PodStatus,
    /// Why it is not submitted yet.
    pub trouble: Option<String>,
    /// How often neither the queue nor accounting knew its job.
    pub missed: u32,
    /// It ends; its object is gone, if `true`.
    pub ending: Option<bool>,
    /// Nothing of it is left.
    pub finished: bool,
    /// Cancelled when it is not to be submitted any more.
    pub cancel: CancellationToken,
    /// Whoever submits or ends it has this.
    pub busy: Arc<tokio::sync::Mutex<()>>,
}

/// What keeps pods off that do not mean such a node. Those of interLink tolerate the one that keeps off, those of the seed
/// both.
pub fn taints() -> Vec<Taint> {
    let taint = |key: &str, value: &str, effect: &str| Taint {
        key: key.into(),
        value: Some(value.into()),
        effect: effect.into(),
        time_added: None,
    };
    vec![
        taint("virtual-node.interlink/no-schedule", "true", "NoSchedule"),
        taint("minik8s.io/provider", "slurm", "PreferNoSchedule"),
    ]
}

impl Entry {
    fn new(pod: Arc<Pod>, record: Option<Record>) -> Entry {
        Entry {
            status: pod.status.clone().unwrap_or_default(),
            pod,
            record,
            journal: Journal::default(),
            row: None,
            trouble: None,
            missed: 0,
            ending: None,
            finished: false,
            cancel: CancellationToken::new(),
            busy: Arc::default(),
        }
    }

    /// Whether nothing more will come of it.
    pub fn is_over(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// Whether it is a job whose end is not known.
    pub fn is_live(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.job().is_some()) && !self.is_over()
    }
}

impl SlurmNode {
    /// A node. Its pods are those that it is given; what it has on disk of them is read.
    pub fn new(parts: NodeParts, shutdown: CancellationToken) -> std::io::Result<Arc<SlurmNode>> {
        let NodeParts { site, folder, node_name, objects, events } = parts;
        let records = Records::open(&folder)?;
        let unclaimed = records.load()?;
        let turns = Arc::new(Semaphore::new(site.config.submissions_at_once));
        Ok(Arc::new_cyclic(|own| SlurmNode {
            own: own.clone(),
            site,
            records,
            node_name,
            objects,
            events,
            table: Mutex::default(),
            outbox: Arc::default(),
            turned: watch::channel(0).0,
            look: Notify::new(),
            follow: Notify::new(),
            tasks: TaskTracker::new(),
            shutdown,
            turns,
            whoami: OnceCell::new(),
            unclaimed: Mutex::new(unclaimed),
            is_complete: watch::channel(false).0,
            trouble: Mutex::default(),
            nodes: Mutex::default(),
            known: Mutex::default(),
            version: OnceCell::new(),
        }))
    }

    pub(super) fn this(&self) -> Arc<SlurmNode> {
        self.own.upgrade().expect("whoever calls it has it")
    }

    /// The folder of sockets below that of records.
    pub fn sockets(folder: &Path) -> std::path::PathBuf {
        folder.join("ssh")
    }

    pub(super) fn place(&self) -> JobPlace<'_> {
        JobPlace { node_name: &self.node_name, mark: &self.records.mark }
    }

    /// Changes what is known of a pod, and tells how it is now.
    pub(super) fn change(&self, uid: &str, change: impl FnOnce(&mut Entry)) {
        let mut table = self.table.lock();
        let Some(entry) = table.get_mut(uid) else { return };
        change(entry);
        let Some(record) = &entry.record else { return };
        if entry.finished {
            return;
        }
        let known = Known {
            record,
            journal: &entry.journal,
            row: entry.row.as_ref(),
            trouble: entry.trouble.as_deref(),
            is_ending: entry.ending.is_some(),
        };
        let before = Some(&entry.status).filter(|status| status.phase.is_some());
        let status = status::status(&entry.pod, known, before, Timestamp::now());
        if status == entry.status {
            return;
        }
        // What has ended stays as it ended.
        if entry.is_over() {
            return;
        }
        self.tell(&entry.pod, &entry.status, &status);
        entry.status = status.clone();
        let change = Change::Status { pod: entry.pod.clone(), status: Box::new(status), finished: false };
        drop(table);
        self.outbox.put(change);
        self.turned.send_modify(|turn| *turn += 1);
    }

    /// The events that a change of status is.
    fn tell(&self, pod: &Pod, before: &PodStatus, now: &PodStatus) {
        let restarts = |status: &PodStatus| {
            let list = status.container_statuses.iter().flatten();
            list.map(|status| status.restart_count).max().unwrap_or(0)
        };
        let message = now.message.clone().unwrap_or_default();
        if restarts(now) > restarts(before) {
            self.events.warning(pod, "Requeued", format!("SLURM starts it anew: {message}"));
        } else if now.phase != before.phase && now.phase.as_deref() == Some("Running") {
            self.events.normal(pod, "Started", message);
        } else if now.phase != before.phase && now.phase.as_deref() == Some("Failed") {
            self.events.warning(pod, now.reason.as_deref().unwrap_or("Failed"), message);
        }
    }

    /// Keeps a record on disk and in the table.
    pub(super) fn keep(&self, record: Record) -> std::io::Result<()> {
        self.records.save(&record)?;
        let uid = record.uid.clone();
        self.change(&uid, |entry| entry.record = Some(record));
        Ok(())
    }

    fn begin(self: &Arc<Self>, pod: Arc<Pod>) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let record = self.unclaimed.lock().remove(&uid);
        let entry = Entry::new(pod.clone(), record);
        let (is_over, ends) = (entry.is_over(), pod.metadata.deletion_timestamp.is_some());
        let is_known = entry.record.as_ref().is_some_and(|record| record.submission != Submission::Intended);
        self.table.lock().insert(uid.clone(), entry);
        self.change(&uid, |_| {});
        if ends {
            self.end(&uid, false);
        } else if !is_over && !is_known {
            self.tasks.spawn(self.clone().submit(uid));
        } else if !is_over {
            self.follow.notify_one();
            self.look.notify_one();
        }
    }

    /// What its nodes have, not older than the site's file says.
    async fn nodes(&self) -> Result<SiteNodes, String> {
        let patience = Duration::from_secs(self.site.config.nodes_seconds);
        let kept = self.nodes.lock().clone();
        if let Some((_, found)) = kept.filter(|(at, found)| found.is_ok() && at.elapsed() < patience) {
            return found;
        }
        let found = self.site.nodes().await;
        if let Ok(nodes) = &found {
            self.known.lock().clone_from(nodes);
        }
        *self.nodes.lock() = Some((Instant::now(), found.clone()));
        found
    }

    fn capacity(&self, nodes: &SiteNodes) -> Capacity {
        let count = |count: u64| Quantity::from_value(i64::try_from(count).unwrap_or(i64::MAX));
        let memory = format!("{}Mi", nodes.memory_mib).parse().unwrap_or_default();
        let mut capacity = Capacity::from([
            ("cpu".to_owned(), count(nodes.cpus)),
            ("memory".to_owned(), memory),
            ("pods".to_owned(), count(u64::from(self.site.config.max_pods))),
        ]);
        for (resource, gres) in &self.site.config.gpus {
            capacity.insert(resource.clone(), count(nodes.gres.get(gres).copied().unwrap_or(0)));
        }
        capacity
    }

    fn labels(&self, nodes: &SiteNodes) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            ("minik8s.io/provider".to_owned(), "slurm".to_owned()),
            ("virtual-node.interlink/type".to_owned(), "virtual-kubelet".to_owned()),
        ]);
        for partition in &nodes.partitions {
            labels.insert(format!("slurm.minik8s.io/partition.{partition}"), "true".to_owned());
        }
        for (gres, count) in &nodes.gres {
            if let Some((name, kind)) = gres.split_once(':') {
                labels.insert(format!("slurm.minik8s.io/{name}.{kind}"), count.to_string());
            }
        }
        labels.retain(|key, value| crate::admission::is_label(key, value));
        labels
    }

    /// The record of a pod that has one, and whether it is a job.
    fn job_of(&self, pod: &PodRef) -> Result<Record, Error> {
        let table = self.table.lock();
        let record = table.get(&pod.uid).and_then(|entry| entry.record.clone());
        record
            .filter(|record| record.job().is_some())
            .ok_or_else(|| Error::NotFound(format!("the job of pod {}", pod.name)))
    }
}

#[async_trait]
impl PodProvider for SlurmNode {
    async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let work = async { tokio::join!(follow::queue(&self), follow::journals(&self)) };
        tokio::select! { _ = work => {}, () = shutdown.cancelled() => {} }
        self.tasks.close();
        // Whoever submits is let through to the end of what it has begun; the rest is taken up by the next kubelet.
        let _ = tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await;
    }

    fn create(&self, pod: Arc<Pod>) {
        self.this().begin(pod);
    }

    fn update(&self, pod: Arc<Pod>) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let ends = pod.metadata.deletion_timestamp.is_some();
        self.change(&uid, |entry| entry.pod = pod);
        if ends {
            self.this().end(&uid, false);
        }
    }

    fn delete(&self, pod: Arc<Pod>) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        self.change(&uid, |entry| entry.pod = pod);
        self.this().end(&uid, true);
    }

    fn retain(&self, _uids: BTreeSet<String>) {
        self.is_complete.send_replace(true);
        let orphans = std::mem::take(&mut *self.unclaimed.lock());
        for record in orphans.into_values() {
            tracing::info!(
                pod = record.name,
                namespace = record.namespace,
                "end the job of a pod that nobody wants"
            );
            let this = self.this();
            self.tasks.spawn(async move { this.end_orphan(record).await });
        }
        self.look.notify_one();
    }

    fn list(&self) -> Vec<Arc<Pod>> {
        let table = self.table.lock();
        table
            .values()
            .map(|entry| Arc::new(Pod { status: Some(entry.status.clone()), ..(*entry.pod).clone() }))
            .collect()
    }

    fn get(&self, uid: &str) -> Option<Arc<Pod>> {
        let table = self.table.lock();
        let entry = table.get(uid)?;
        Some(Arc::new(Pod { status: Some(entry.status.clone()), ..(*entry.pod).clone() }))
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        let outbox = self.outbox.clone();
        futures::stream::unfold(outbox, |outbox| async { Some((outbox.clone().next().await, outbox)) })
            .boxed()
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    async fn describe(&self) -> Described {
        let found = self.nodes().await;
        let version = match &found {
            Err(why) => Err(why.clone()),
            Ok(nodes) if nodes.usable == 0 => Err("no node of the site takes jobs".to_owned()),
            Ok(_) => self
                .version
                .get_or_try_init(|| self.site.version())
                .await
                .map(|text| format!("slurm://{text}")),
        };
        let version = match (version, self.trouble.lock().clone()) {
            (Ok(_), Some(why)) => Err(why),
            (version, _) => version,
        };
        let nodes = found.unwrap_or_else(|_| self.known.lock().clone());
        let capacity = self.capacity(&nodes);
        let machine = Machine { cpus: nodes.cpus, os_image: "a SLURM site".into(), ..Machine::default() };
        Described {
            machine,
            labels: self.labels(&nodes),
            allocatable: capacity.clone(),
            capacity,
            pressure: Pressure::default(),
            runtime: version,
            network: Ok(()),
            handlers: Handlers::new(),
            images: Vec::new(),
        }
    }

    async fn logs(&self, pod: &PodRef, container_id: &str, asked: LogRequest) -> Result<Log, Error> {
        let record = self.job_of(pod)?;
        tail::logs(self.this(), record, container_id, asked).await
    }

    async fn exec(&self, pod: &PodRef, container: &str, spec: &ExecSpec) -> Result<Session, Error> {
        let record = self.job_of(pod)?;
        let Some(job) = record.job() else {
            return Err(Error::NotFound(format!("the job of pod {}", pod.name)));
        };
        let folder = record.folder();
        let place = exec::Where { job, user: record.user.as_deref(), folder: &folder, container };
        exec::exec(&self.site, place, spec).await
    }

    async fn usage(&self, pod: &PodRef) -> Result<BTreeMap<String, Usage>, Error> {
        let record = self.job_of(pod)?;
        let Some(job) = record.job() else { return Ok(BTreeMap::new()) };
        let first = {
            let table = self.table.lock();
            let spec = table.get(&pod.uid).and_then(|entry| entry.pod.spec.clone());
            spec.and_then(|spec| spec.containers.first().map(|container| container.name.clone()))
        };
        let found = self.site.usage(record.user.as_deref(), job).await;
        let found =
            found.map_err(|why| Error::Unavailable { doing: "ask sstat".into(), source: why.into() })?;
        // SLURM measures the job as a whole.
        Ok(first.zip(found).into_iter().collect())
    }

    async fn running(&self) -> Result<Vec<(PodRef, Vec<Running>)>, Error> {
        let table = self.table.lock();
        let pods =
            table.values().filter(|entry| entry.status.phase.as_deref() == Some("Running")).map(|entry| {
                let containers = entry.status.container_statuses.iter().flatten();
                let running = containers
                    .filter(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()));
                let running = running.map(|status| (status.name.clone(), status.image.clone())).collect();
                (crate::worker::pod_ref(&entry.pod), running)
            });
        Ok(pods.collect())
    }
}
