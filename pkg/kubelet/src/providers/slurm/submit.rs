//! From a pod to its job: intent on disk, sbatch with our mark, its number on disk.
//!
//! ```text
//! render ──> Intended ──> sbatch ─┬─ a number ──> Submitted
//!                ▲                ├─ refused ───> Refused, or once more after a while where that can help
//!                │                └─ who knows? ─> looked for by its mark, twice as long as SLURM's own patience
//!                └──────────── not there ────────────────┘
//! ```
//!
//! A job that is in the queue in spite of all that does nothing: of several for one pod only the first runs (`claim`).

use super::commands::{Submitted, Trace};
use super::node::SlurmNode;
use super::queue::{JobId, Row};
use super::records::{Record, Submission};
use super::refusal::Refusal;
use super::script::{self, Rendered};
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What does not work is tried again after this long at first ...
const FIRST_RETRY: Duration = Duration::from_secs(2);
/// ... and at last.
const LONGEST_RETRY: Duration = Duration::from_secs(120);
/// How often a job that may have been submitted is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What is to happen next.
enum Next {
    /// It is a job, or never will be.
    Settled,
    /// Once more; whether it is known that nothing was submitted.
    Again {
        /// It is.
        nothing_came: bool,
        /// Why not yet.
        why: String,
    },
}

impl SlurmNode {
    /// Makes a pod a job, whatever it takes.
    pub(super) async fn submit(self: Arc<Self>, uid: String) {
        let Some((cancel, busy)) =
            self.table.lock().get(&uid).map(|entry| (entry.cancel.clone(), entry.busy.clone()))
        else {
            return;
        };
        let _busy = busy.lock_owned().await;
        let mut again = false;
        let mut retry = FIRST_RETRY;
        loop {
            if cancel.is_cancelled() || self.shutdown.is_cancelled() {
                return;
            }
            let Ok(turn) = self.turns.clone().acquire_owned().await else { return };
            if cancel.is_cancelled() || self.shutdown.is_cancelled() {
                return;
            }
            let next = self.try_submit(&uid, again).await;
            drop(turn);
            let Next::Again { nothing_came, why } = next else { return };
            again = nothing_came;
            tracing::info!(uid, why, "a job is not submitted yet");
            self.change(&uid, |entry| entry.trouble = Some(why));
            tokio::select! {
                () = tokio::time::sleep(retry) => retry = (retry * 2).min(LONGEST_RETRY),
                () = cancel.cancelled() => return,
                () = self.shutdown.cancelled() => return,
            }
        }
    }

    async fn try_submit(&self, uid: &str, again: bool) -> Next {
        let Some((pod, record)) =
            self.table.lock().get(uid).map(|entry| (entry.pod.clone(), entry.record.clone()))
        else {
            return Next::Settled;
        };
        let unready = |why: String| Next::Again { nothing_came: again, why };
        let user = match self.user(&pod).await {
            Ok(Ok(user)) => user,
            Ok(Err(refusal)) => return self.refuse(&pod, None, refusal),
            Err(why) => return unready(why),
        };
        let config = &self.site.config;
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let identity = config.identity(&namespace).cloned().unwrap_or_default();
        let record = match record {
            Some(record) => {
                // A kubelet before this one may have submitted it.
                if !again {
                    match self.site.trace(record.user.as_deref(), &record.folder()).await {
                        Ok(Trace::Job(job)) => return self.submitted(&pod, record, job, ""),
                        Ok(Trace::Begun) => {
                            return self.look_for(&pod, record, "an earlier kubelet had begun").await;
                        }
                        Ok(Trace::Nothing) => {}
                        Err(error) => return unready(crate::error::chain(&error)),
                    }
                }
                record
            }
            None => Record {
                namespace,
                name: pod.metadata.name.clone().unwrap_or_default(),
                uid: uid.to_owned(),
                root: config.root_of(identity.user.as_deref()),
                user,
                submission: Submission::Intended,
                last_word: None,
            },
        };
        if let Err(refusal) = super::refusal::check(&pod, config) {
            return self.refuse(&pod, Some(record), refusal);
        }
        let data = match self.objects.of(&pod).await {
            Ok(data) => data,
            Err(why) => return unready(why),
        };
        let job = match script::render(&pod, &data, config, self.place()) {
            Ok(job) => job,
            // What a pod names may come later.
            Err(refusal) if matches!(refusal.reason, "FailedMount" | "CreateContainerConfigError") => {
                self.events.warning(&pod, refusal.reason, refusal.message.clone());
                return unready(refusal.message);
            }
            Err(refusal) => return self.refuse(&pod, Some(record), refusal),
        };
        if let Err(error) = self.keep(record.clone()) {
            return unready(format!("write down that it is submitted: {error}"));
        }
        self.send(&pod, record, &job, again).await
    }

    async fn send(&self, pod: &Pod, record: Record, job: &Rendered, again: bool) -> Next {
        match self.site.submit(record.user.as_deref(), job, again).await {
            Submitted::Job(job, note) => self.submitted(pod, record, job, &note),
            Submitted::Refused { message, passing: true } => {
                self.events.warning(pod, "SlurmRefused", message.clone());
                Next::Again { nothing_came: true, why: message }
            }
            Submitted::Refused { message, passing: false } => {
                if let Err(error) = self.site.remove(&record).await {
                    tracing::warn!(error = crate::error::chain(&error), "remove the files of a refused job");
                }
                self.refuse(pod, Some(record), Refusal { reason: "SlurmRefused", message })
            }
            Submitted::NotNow(why) => {
                self.events.warning(pod, "SlurmUnavailable", why.clone());
                Next::Again { nothing_came: again, why }
            }
            Submitted::Unknown(why) => {
                self.events.warning(pod, "SlurmUnavailable", why.clone());
                self.look_for(pod, record, &why).await
            }
        }
    }

    /// Looks for a job that may have been submitted, until it is found or SLURM has said often enough that it is not there.
    async fn look_for(&self, pod: &Pod, record: Record, why: &str) -> Next {
        let patience = Duration::from_secs(2 * self.site.config.message_timeout_seconds);
        self.change(&record.uid, |entry| entry.trouble = Some(format!("it may have been submitted: {why}")));
        let mut since: Option<Instant> = None;
        loop {
            match self.find(pod, &record).await {
                Ok(Some(job)) => return self.submitted(pod, record, job, ""),
                Ok(None) => {
                    let since = since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= patience {
                        return Next::Again { nothing_came: true, why: why.to_owned() };
                    }
                }
                Err(error) => tracing::debug!(error, "look for a job"),
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.shutdown.cancelled() => return Next::Again { nothing_came: false, why: why.to_owned() },
            }
        }
    }

    /// The job of a pod, if SLURM has one.
    pub(super) async fn find(&self, pod: &Pod, record: &Record) -> Result<Option<JobId>, String> {
        if let Ok(Trace::Job(job)) = self.site.trace(record.user.as_deref(), &record.folder()).await {
            return Ok(Some(job));
        }
        let rows = self.site.queue().await?;
        let mark = script::comment(&self.records.mark, &record.uid);
        let name = script::job_name(pod);
        let is_its = |row: &&Row| row.comment == mark || row.name == name;
        if let Some(row) = rows.iter().filter(is_its).min_by_key(|row| row.job) {
            return Ok(Some(row.job));
        }
        let accounted = self.site.accounted_by_name(&name).await?;
        Ok(accounted.into_iter().map(|ended| ended.job).min())
    }

    fn submitted(&self, pod: &Pod, record: Record, job: JobId, note: &str) -> Next {
        let uid = record.uid.clone();
        let record = Record { submission: Submission::Submitted(job), ..record };
        if let Err(error) = self.keep(record) {
            // It is in its folder, too, and found there.
            return Next::Again { nothing_came: false, why: format!("write down its number: {error}") };
        }
        self.change(&uid, |entry| entry.trouble = None);
        let note = if note.is_empty() { String::new() } else { format!(": {note}") };
        self.events.normal(pod, "Submitted", format!("SLURM job {job}{note}"));
        self.follow.notify_one();
        Next::Settled
    }

    fn refuse(&self, pod: &Pod, record: Option<Record>, refusal: Refusal) -> Next {
        let meta = &pod.metadata;
        let record = record.unwrap_or_else(|| Record {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            user: None,
            root: String::new(),
            submission: Submission::Intended,
            last_word: None,
        });
        let submission =
            Submission::Refused { reason: refusal.reason.to_owned(), message: refusal.message.clone() };
        match self.keep(Record { submission, ..record }) {
            Ok(()) => Next::Settled,
            Err(error) => {
                Next::Again { nothing_came: true, why: format!("write down that it is refused: {error}") }
            }
        }
    }

    /// The user that a pod's job is run as, if it is another than who commands are run as.
    pub(super) async fn user(&self, pod: &Pod) -> Result<Result<Option<String>, Refusal>, String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let Some(identity) = self.site.config.identity(namespace) else {
            return Ok(super::refusal::check(pod, &self.site.config).map(|()| None));
        };
        let whoami = self.whoami.get_or_try_init(|| self.site.whoami()).await;
        let whoami = whoami.map_err(|error| crate::error::chain(&error))?;
        Ok(match &identity.user {
            Some(user) if user == whoami => Ok(None),
            Some(user) => Ok(Some(user.clone())),
            None if whoami == "root" => Err(Refusal {
                reason: "NamespaceNotMapped",
                message: format!("namespace {namespace} has no user at this site, and would run as root"),
            }),
            None => Ok(None),
        })
    }
}
