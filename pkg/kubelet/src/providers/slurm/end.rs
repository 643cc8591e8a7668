//! The end of a pod: its job is asked to end, made to, and nothing of it is left.
//!
//! ```text
//! deleted ──> TERM ──> quiet, or the grace is over ──> KILL ──> gone ──> files, record ──> finished
//! ```

use super::node::SlurmNode;
use super::records::{Record, Submission};
use crate::provider::Change;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;
use std::time::Duration;

const RETRY: Duration = Duration::from_secs(2);
const DEFAULT_GRACE_S: i64 = 30;

impl SlurmNode {
    /// Ends a pod. `is_gone`: its object is gone, and nobody asks what became of it.
    pub(super) fn end(self: &Arc<Self>, uid: &str, is_gone: bool) {
        let mut table = self.table.lock();
        let Some(entry) = table.get_mut(uid) else { return };
        let is_new = entry.ending.is_none();
        entry.ending = Some(is_gone || entry.ending == Some(true));
        entry.cancel.cancel();
        if entry.finished && is_gone {
            table.remove(uid);
            drop(table);
            self.outbox.put(Change::Gone(uid.to_owned()));
        } else if is_new {
            drop(table);
            self.tasks.spawn(self.clone().ends(uid.to_owned()));
        }
    }

    async fn ends(self: Arc<Self>, uid: String) {
        let Some(busy) = self.table.lock().get(&uid).map(|entry| entry.busy.clone()) else { return };
        // What is being submitted is a job first, and ends then.
        let _busy = busy.lock_owned().await;
        let Some((pod, record)) =
            self.table.lock().get(&uid).map(|entry| (entry.pod.clone(), entry.record.clone()))
        else {
            return;
        };
        if let Some(record) = record {
            let is_ended = tokio::select! {
                () = self.end_job(&pod, record) => true,
                () = self.shutdown.cancelled() => false,
            };
            if !is_ended {
                return;
            }
        }
        let mut table = self.table.lock();
        let Some(entry) = table.get_mut(&uid) else { return };
        entry.finished = true;
        entry.status = ended(&entry.status, Timestamp::now());
        let change = if entry.ending == Some(true) {
            table.remove(&uid);
            Change::Gone(uid)
        } else {
            Change::Status { pod: entry.pod.clone(), status: Box::new(entry.status.clone()), finished: true }
        };
        drop(table);
        self.outbox.put(change);
    }

    /// Until nothing of it is left.
    async fn end_job(&self, pod: &Pod, mut record: Record) {
        while record.submission == Submission::Intended {
            match self.find(pod, &record).await {
                Ok(Some(job)) => record.submission = Submission::Submitted(job),
                // Should it come later, it finds its folder gone and does nothing; its mark shows whose it is.
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(error, "look for the job of a pod that ends");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        if let Some(job) = record.job() {
            let user = record.user.as_deref();
            let grace = grace(pod);
            if !self.is_quiet(&record.uid) && grace > Duration::ZERO {
                let asked = self.site.terminate(user, job).await;
                if let Err(error) = asked {
                    tracing::warn!(%job, error = crate::error::chain(&error), "ask a job to end");
                }
                self.look.notify_one();
                let mut turns = self.turned.subscribe();
                let quiet = async { while !self.is_quiet(&record.uid) && turns.changed().await.is_ok() {} };
                let _ = tokio::time::timeout(grace, quiet).await;
            }
            while let Err(error) = self.site.kill(user, job).await {
                tracing::warn!(%job, error, "end a job");
                tokio::time::sleep(RETRY).await;
            }
        }
        if !record.root.is_empty() {
            while let Err(error) = self.site.remove(&record).await {
                tracing::warn!(
                    uid = record.uid,
                    error = crate::error::chain(&error),
                    "remove the files of a job"
                );
                tokio::time::sleep(RETRY).await;
            }
        }
        if let Err(error) = self.records.remove(&record.uid) {
            tracing::warn!(uid = record.uid, %error, "forget a job");
        }
    }

    /// A job whose pod was deleted while there was no kubelet.
    pub(super) async fn end_orphan(self: Arc<Self>, record: Record) {
        let mut pod = Pod::default();
        pod.metadata.name = Some(record.name.clone());
        pod.metadata.namespace = Some(record.namespace.clone());
        pod.metadata.uid = Some(record.uid.clone());
        pod.metadata.deletion_grace_period_seconds = Some(0);
        tokio::select! {
            () = self.end_job(&pod, record) => {}
            () = self.shutdown.cancelled() => {}
        }
    }

    /// Whether nothing of its job runs.
    fn is_quiet(&self, uid: &str) -> bool {
        let table = self.table.lock();
        let Some(entry) = table.get(uid) else { return true };
        entry.is_over()
            || entry.journal.is_quiet()
            || entry.row.as_ref().is_some_and(|row| row.state.is_over())
    }
}

fn grace(pod: &Pod) -> Duration {
    let said = pod.metadata.deletion_grace_period_seconds;
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let seconds = said.or(own).unwrap_or(DEFAULT_GRACE_S);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// A status in which nothing runs.
fn ended(status: &PodStatus, now: Timestamp) -> PodStatus {
    let mut status = status.clone();
    let lists = [&mut status.container_statuses, &mut status.init_container_statuses];
    for container in lists.into_iter().flatten().flatten() {
        let state = container.state.take().unwrap_or_default();
        container.ready = false;
        container.started = Some(false);
        container.state = Some(if state.terminated.is_some() {
            state
        } else {
            let ended = ContainerStateTerminated {
                exit_code: 137,
                reason: Some("Cancelled".into()),
                message: Some("its pod was deleted".into()),
                started_at: state.running.and_then(|running| running.started_at),
                finished_at: Some(Time(now)),
                container_id: container.container_id.clone(),
                ..ContainerStateTerminated::default()
            };
            ContainerState { terminated: Some(ended), ..ContainerState::default() }
        });
    }
    if !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        status.phase = Some("Failed".into());
    }
    for condition in status.conditions.iter_mut().flatten() {
        if matches!(condition.type_.as_str(), "Ready" | "ContainersReady") && condition.status == "True" {
            condition.status = "False".into();
            condition.reason = Some("PodFailed".into());
            condition.last_transition_time = Some(Time(now));
        }
    }
    status
}
