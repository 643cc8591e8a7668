//! The pods of the node and their workers, by uid.

use crate::allocation::{self, Pending, Share, Verdict};
use crate::plan::Ending;
use crate::worker::{Handle, Wanted};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The pods as others see them: by uid.
#[derive(Default)]
pub(crate) struct PodTable {
    workers: RwLock<BTreeMap<String, Handle>>,
}

impl PodTable {
    /// All pods, with their present statuses.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.workers.read().values().map(Handle::shown).collect()
    }

    /// All pods, with their present statuses and what they have been given.
    pub(super) fn allocated(&self) -> Vec<Arc<Pod>> {
        self.shares().values().map(Share::in_force).collect()
    }

    /// What all pods have and ask for. Those that end ask for nothing more.
    pub(super) fn shares(&self) -> BTreeMap<String, Share> {
        let workers = self.workers.read();
        workers
            .iter()
            .map(|(uid, worker)| {
                let wanted = worker.wanted();
                let ends = wanted.ending.is_some()
                    || wanted.pod.metadata.deletion_timestamp.is_some()
                    || crate::plan::is_static(&wanted.pod);
                let mut share = worker.share().lock().clone();
                let mut pod = if ends { share.in_force() } else { share.pod.clone() };
                let shown = worker.shown();
                if pod.status != shown.status {
                    Arc::make_mut(&mut pod).status.clone_from(&shown.status);
                }
                share.ask(pod);
                (uid.clone(), share)
            })
            .collect()
    }

    /// Whether any pod asks for something else than it has.
    pub(super) fn any_asks(&self) -> bool {
        self.workers.read().values().any(|worker| worker.share().lock().asks())
    }

    /// Remembers what a pod asks for; says whether that is not what it has.
    pub(super) fn asks(&self, uid: &str, pod: &Arc<Pod>) -> bool {
        let workers = self.workers.read();
        let Some(worker) = workers.get(uid) else { return false };
        let mut share = worker.share().lock();
        share.ask(pod.clone());
        share.asks()
    }

    /// Remembers what was decided about a pod; says whether it was another word before.
    pub(super) fn decided(&self, uid: &str, pod: &Pod, verdict: &Verdict) -> bool {
        let workers = self.workers.read();
        let Some(worker) = workers.get(uid) else { return false };
        let mut share = worker.share().lock();
        let generation = pod.metadata.generation;
        match verdict {
            Verdict::Granted => {
                share.give(allocation::of(pod));
                share.generation = generation;
                true
            }
            Verdict::Refused(reason, message) => {
                let before = share.pending.as_ref();
                let since = before.filter(|before| before.reason == *reason).map(|before| before.since);
                let since = since.unwrap_or_else(Timestamp::now);
                let pending = Some(Pending { reason, message: message.clone(), generation, since });
                let is_news = share.pending != pending;
                share.pending = pending;
                is_news
            }
        }
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

    /// Whether something of any of these pods is left on the node.
    pub fn uses_the_node(&self, uids: &[String]) -> bool {
        let workers = self.workers.read();
        uids.iter().filter_map(|uid| workers.get(uid)).any(|worker| !worker.is_over())
    }

    /// An error where pods are not looked after any more.
    pub fn health(&self, now: Instant) -> Result<(), String> {
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

    /// Something may have changed about every pod.
    pub(super) fn wake_all(&self) {
        self.workers.read().values().for_each(Handle::wake);
    }

    /// Something has changed about one pod.
    pub(super) fn wake(&self, uid: &str) {
        if let Some(worker) = self.workers.read().get(uid) {
            worker.wake();
        }
    }

    /// Something else may be wanted of a pod, if it is there.
    pub(super) fn want(&self, uid: &str, change: impl FnOnce(Wanted) -> Option<Wanted>) {
        if let Some(worker) = self.workers.read().get(uid)
            && let Some(wanted) = change(worker.wanted())
        {
            worker.want(wanted);
        }
    }

    pub(super) fn insert(&self, uid: String, worker: Handle) {
        self.workers.write().insert(uid, worker);
    }

    pub(super) fn remove(&self, uid: &str) {
        self.workers.write().remove(uid);
    }

    pub(super) fn get(&self, uid: &str) -> Option<Arc<Pod>> {
        self.workers.read().get(uid).map(Handle::shown)
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.workers.read().contains_key(uid)
    }
}
