//! One task per pod: observes, plans, executes, and waits until something happens.
//!
//! ```text
//! pod watch, runtime events, probe results, finished work, timers
//!        └──> observe (Runtime::pod, last words) ──> plan_pod ──> status, actions ──> work, each in a task of its own
//! ```
//!
//! A worker decides nothing ([`crate::plan`] does) and never blocks: what takes time is work, and ends with an
//! [`Outcome`] that changes what is remembered. A worker that is dropped leaves everything as it is; the next one takes
//! it up from what the runtime shows.

mod execute;
mod hooks;
mod image;
mod last_words;
mod outcome;
mod start;

pub use start::labels;

use crate::allocation::{self, Pending, Share};
use crate::health::Pulse;
use crate::plan::{Ending, Memory, Plan, Situation, Work, is_static, plan_pod};
use crate::probe::Probes;
use crate::provider::Change;
use crate::runtime::{PodRef, PodView};
use crate::shared::Shared;
use crate::wake::Wake;
use execute::Execution;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use outcome::Outcome;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A runtime that does not answer is asked again after this long.
const RUNTIME_AWAY: Duration = Duration::from_secs(1);

/// What is wanted of a worker.
#[derive(Clone)]
pub struct Wanted {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Why it has to end, where its object does not say so.
    pub ending: Option<Ending>,
}

/// How others reach a worker.
pub struct Handle {
    wanted: watch::Sender<Wanted>,
    wake: Arc<Wake>,
    shown: Arc<RwLock<Arc<Pod>>>,
    share: Arc<Mutex<Share>>,
    pulse: Arc<Pulse>,
    is_over: Arc<AtomicBool>,
}

impl Handle {
    /// A worker, and what it does: that ends with the pod's uid when nothing of the pod is left.
    pub(crate) fn new(
        shared: Arc<Shared>,
        wanted: Wanted,
        is_new: bool,
        shutdown: CancellationToken,
    ) -> (Handle, impl Future<Output = String> + use<>) {
        let wake = Arc::new(Wake::default());
        let shown = Arc::new(RwLock::new(wanted.pod.clone()));
        let share = Arc::new(Mutex::new(Share::new(wanted.pod.clone(), is_new)));
        let (sender, receiver) = watch::channel(wanted);
        let worker = Worker::new(shared, receiver, wake.clone(), shown.clone(), share.clone());
        let (pulse, is_over) = (worker.pulse.clone(), worker.is_over.clone());
        (Handle { wanted: sender, wake, shown, share, pulse, is_over }, worker.run(shutdown))
    }

    /// Something else is wanted.
    pub fn want(&self, wanted: Wanted) {
        self.wanted.send_replace(wanted);
    }

    /// What is wanted.
    pub fn wanted(&self) -> Wanted {
        self.wanted.borrow().clone()
    }

    /// Something about the pod may have changed.
    pub fn wake(&self) {
        self.wake.wake();
    }

    /// Whether the worker still looks after its pod: it has not died, and is not stuck.
    pub fn is_well(&self, now: Instant) -> bool {
        !self.wanted.is_closed() && !self.pulse.is_stuck(now)
    }

    /// Whether nothing of the pod is left on the node: no container, no volume.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// What the pod has of the node, and what it asks for.
    pub fn share(&self) -> &Mutex<Share> {
        &self.share
    }

    /// The pod with its present status.
    pub fn shown(&self) -> Arc<Pod> {
        self.shown.read().clone()
    }
}

/// Which pod an object is.
pub fn pod_ref(pod: &Pod) -> PodRef {
    let meta = &pod.metadata;
    PodRef {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    }
}

struct Worker {
    shared: Arc<Shared>,
    wanted: watch::Receiver<Wanted>,
    wake: Arc<Wake>,
    shown: Arc<RwLock<Arc<Pod>>>,
    share: Arc<Mutex<Share>>,
    memory: Memory,
    work: JoinSet<Outcome>,
    cancels: BTreeMap<String, CancellationToken>,
    probes: Probes,
    pulse: Arc<Pulse>,
    has_told: bool,
    is_over: Arc<AtomicBool>,
    pod: PodRef,
}

impl Worker {
    fn new(
        shared: Arc<Shared>,
        wanted: watch::Receiver<Wanted>,
        wake: Arc<Wake>,
        shown: Arc<RwLock<Arc<Pod>>>,
        share: Arc<Mutex<Share>>,
    ) -> Worker {
        let pod = wanted.borrow().pod.clone();
        let status = pod.status.clone().unwrap_or_default();
        let pod = pod_ref(&pod);
        // A kubelet before this one may have ended it, and not have told.
        let kept = shared.host.as_ref().and_then(|host| host.kept_status(&pod));
        let memory = Memory { status: kept.unwrap_or(status), ..Memory::default() };
        let probes = Probes::new(shared.clone());
        Worker {
            shared,
            wanted,
            wake,
            shown,
            share,
            memory,
            work: JoinSet::new(),
            cancels: BTreeMap::new(),
            probes,
            pulse: Arc::default(),
            has_told: false,
            is_over: Arc::default(),
            pod,
        }
    }

    async fn run(mut self, shutdown: CancellationToken) -> String {
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            if wanted.ending.is_some() && self.memory.ending != Some(Ending::Gone) {
                self.memory.ending.clone_from(&wanted.ending);
            }
            self.pulse.begin();
            let view = tokio::select! {
                view = self.shared.runtime.pod(&self.pod) => view,
                () = shutdown.cancelled() => return self.pod.uid,
            };
            let look_again = match view {
                Ok(view) => {
                    let now = Timestamp::now();
                    let plan = self.look(&wanted.pod, &view, now).await;
                    if plan.finished && plan.ending == Some(Ending::Gone) {
                        if let Some(host) = &self.shared.host {
                            host.forget(&self.pod);
                        }
                        return self.pod.uid;
                    }
                    plan.look_again.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default())
                }
                Err(error) => {
                    tracing::warn!(pod = self.pod.name, error = crate::error::chain(&error), "look at a pod");
                    Some(RUNTIME_AWAY)
                }
            };
            self.pulse.rest();
            if self.wait(look_again, &shutdown).await.is_err() {
                return self.pod.uid;
            }
        }
    }

    /// Until something happens. An error: the kubelet ends.
    async fn wait(&mut self, look_again: Option<Duration>, shutdown: &CancellationToken) -> Result<(), ()> {
        let timer = async {
            match look_again {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return Err(()),
            changed = self.wanted.changed() => {
                changed.map_err(|_| ())?;
                // Labels and annotations may be in a volume.
                self.memory.hurry(true);
            }
            () = self.wake.woken() => self.memory.hurry(self.wake.take_object_changed()),
            Some(found) = self.probes.next() => self.memory.probed(found),
            Some(outcome) = self.work.join_next() => {
                if let Ok(outcome) = outcome {
                    self.memory.apply(outcome, Timestamp::now());
                }
            }
            () = timer => {}
        }
        Ok(())
    }

    async fn look(&mut self, pod: &Arc<Pod>, view: &PodView, now: Timestamp) -> Plan {
        let pod = &self.allocated(pod, view);
        last_words::collect(&self.shared, pod, view, &mut self.memory.messages).await;
        let node = self.shared.facts.read().clone();
        let situation = Situation { pod, view, memory: &self.memory, node: &node, now };
        let plan = plan_pod(situation);
        self.probes.sync(pod, view, &plan);
        self.remember(pod, &plan, now);
        for action in &plan.actions {
            self.execute(pod, view, action, now);
        }
        plan
    }

    /// The pod with the resources that it has: those that were written down when it was not this kubelet that gave them.
    fn allocated(&mut self, pod: &Arc<Pod>, view: &PodView) -> Arc<Pod> {
        let mut share = self.share.lock();
        if share.allocated.is_none() {
            share.give(allocation::recorded(view).unwrap_or_else(|| allocation::of(pod)));
            if share.asks() {
                share.pending = Pending::said(&self.memory.status);
                self.shared.room.notify_one();
            }
        }
        self.memory.resize.generation = share.generation;
        self.memory.resize.pending.clone_from(&share.pending);
        share
            .allocated
            .as_ref()
            .map_or_else(|| pod.clone(), |allocation| allocation::applied(pod, allocation))
    }

    fn remember(&mut self, pod: &Arc<Pod>, plan: &Plan, now: Timestamp) {
        if plan.ending.is_some() && self.memory.ending_since.is_none() {
            self.memory.ending_since = Some(now);
        }
        if self.memory.ending.is_none() && plan.ending != Some(Ending::Deleted) {
            self.memory.ending.clone_from(&plan.ending);
        }
        let is_deleted = pod.metadata.deletion_timestamp.is_some() && !is_static(pod);
        let is_same = self.memory.status == plan.status && self.shown.read().spec == pod.spec;
        if !is_same {
            let mut shown = (**pod).clone();
            shown.status = Some(plan.status.clone());
            *self.shown.write() = Arc::new(shown);
        }
        self.memory.status = plan.status.clone();
        if !self.is_over.swap(plan.finished, Ordering::AcqRel) && plan.finished {
            self.shared.room.notify_one();
        }
        let finished = plan.finished && is_deleted;
        if plan.ending != Some(Ending::Gone) && (!is_same || finished || !self.has_told) {
            self.has_told = true;
            let status = Box::new(plan.status.clone());
            self.shared.outbox.put(Change::Status { pod: pod.clone(), status, finished });
        }
    }

    fn execute(&mut self, pod: &Arc<Pod>, view: &PodView, action: &crate::plan::Action, now: Timestamp) {
        let execution = Execution {
            shared: self.shared.clone(),
            pod: pod.clone(),
            pod_ref: self.pod.clone(),
            wake: self.wake.clone(),
        };
        let Some((work, task)) = execution.begin(action, view, &mut self.memory, &mut self.cancels, now)
        else {
            return;
        };
        self.memory.busy.insert(work.clone());
        if let Work::Start(name) = &work {
            self.memory.containers.entry(name.clone()).or_default();
        }
        self.work.spawn(task);
    }
}
