//! The pods of a virtual node, and what is to be done for each. Synchronous: who asks is told what to do next.
//!
//! ```text
//! New ──give──> Given ──statuses──> Over
//!   │ refused ───────────────────────┘
//!   └────────────── deleted in the API: Ending ──end──> Ended ── object gone ──> (nothing)
//! ```

use super::status;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Pods that are given away or ended at once.
const AT_ONCE: usize = 8;

/// How far a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// To be given away. `maybe`: it may have been, by whoever was here before.
    New { maybe: bool },
    /// Somebody else runs it.
    Given,
    /// It has ended, or never began.
    Over,
    /// Nothing of it is left there.
    Ended,
}

/// A pod.
pub(super) struct Entry {
    pub pod: Arc<Pod>,
    pub stage: Stage,
    pub status: PodStatus,
    /// Something is being done for it.
    is_busy: bool,
    /// Its object is gone.
    is_gone: bool,
    /// When it is tried again, and how long was waited.
    retry: Option<(Instant, Duration)>,
}

impl Entry {
    fn is_ending(&self) -> bool {
        self.is_gone || self.pod.metadata.deletion_timestamp.is_some()
    }
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Give it away; first ask whether it has been.
    Give { uid: String, ask_first: bool },
    /// End it there.
    End { uid: String },
}

/// All pods.
#[derive(Default)]
pub(super) struct Table {
    pods: BTreeMap<String, Entry>,
    busy: usize,
}

impl Table {
    /// A pod is to run. `maybe`: it may run already.
    pub fn insert(&mut self, uid: &str, pod: Arc<Pod>, maybe: bool) {
        let status = pod.status.clone().unwrap_or_default();
        let stage = match () {
            () if status::is_over(&status) => Stage::Over,
            () if status.start_time.is_some() => Stage::Given,
            () => Stage::New { maybe },
        };
        let entry = Entry { pod, stage, status, is_busy: false, is_gone: false, retry: None };
        self.pods.insert(uid.to_owned(), entry);
    }

    /// Its object has changed.
    pub fn update(&mut self, uid: &str, pod: Arc<Pod>) {
        if let Some(entry) = self.pods.get_mut(uid) {
            if pod.metadata.deletion_timestamp.is_some() && entry.pod.metadata.deletion_timestamp.is_none() {
                entry.retry = None;
            }
            entry.pod = pod;
        }
    }

    /// Its object is gone. Whether nothing is left to do.
    pub fn gone(&mut self, uid: &str) -> bool {
        let Some(entry) = self.pods.get_mut(uid) else { return false };
        entry.is_gone = true;
        entry.retry = None;
        let is_done = entry.stage == Stage::Ended && !entry.is_busy;
        if is_done {
            self.pods.remove(uid);
        }
        is_done
    }

    /// One of them.
    pub fn get(&self, uid: &str) -> Option<&Entry> {
        self.pods.get(uid)
    }

    /// All.
    pub fn entries(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.pods.iter()
    }

    /// A pod with its present status.
    pub fn shown(&self, uid: &str) -> Option<Arc<Pod>> {
        self.pods
            .get(uid)
            .map(|entry| Arc::new(Pod { status: Some(entry.status.clone()), ..(*entry.pod).clone() }))
    }

    /// What is to be done now, and when to look again.
    pub fn next(&mut self, now: Instant) -> (Vec<Work>, Option<Instant>) {
        let (mut work, mut again) = (Vec::new(), None);
        for (uid, entry) in &mut self.pods {
            let wanted = match entry.stage {
                _ if entry.is_busy => None,
                Stage::Ended => None,
                _ if entry.is_ending() => Some(Work::End { uid: uid.clone() }),
                Stage::New { maybe } => Some(Work::Give { uid: uid.clone(), ask_first: maybe }),
                Stage::Given | Stage::Over => None,
            };
            let Some(wanted) = wanted else { continue };
            if let Some((at, _)) = entry.retry.filter(|(at, _)| *at > now) {
                again = Some(again.map_or(at, |earlier: Instant| earlier.min(at)));
                continue;
            }
            if self.busy + work.len() >= AT_ONCE {
                break;
            }
            entry.is_busy = true;
            work.push(wanted);
        }
        self.busy += work.len();
        (work, again)
    }

    /// What was done for a pod is done: it is at this stage, or, without one, where it was, and is tried again later.
    pub fn done(&mut self, uid: &str, stage: Option<Stage>, now: Instant) {
        self.busy = self.busy.saturating_sub(1);
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.is_busy = false;
        match stage {
            Some(stage) => {
                entry.stage = stage;
                entry.retry = None;
            }
            None => {
                let pause = entry.retry.map_or(FIRST_PAUSE, |(_, pause)| (pause * 2).min(LONGEST_PAUSE));
                entry.retry = Some((now + pause, pause));
            }
        }
        if entry.stage == Stage::Ended && entry.is_gone {
            self.pods.remove(uid);
        }
    }

    /// Nobody knows what became of giving it away.
    pub fn is_doubtful(&mut self, uid: &str) {
        if let Some(entry) = self.pods.get_mut(uid)
            && matches!(entry.stage, Stage::New { .. })
        {
            entry.stage = Stage::New { maybe: true };
        }
    }

    /// Its status is this now; whether that is news.
    pub fn set(&mut self, uid: &str, status: PodStatus) -> bool {
        let Some(entry) = self.pods.get_mut(uid) else { return false };
        if status::is_over(&status) && entry.stage == Stage::Given {
            entry.stage = Stage::Over;
        }
        let is_news = entry.status != status;
        entry.status = status;
        is_news
    }

    /// Works out the status of a pod that is given away.
    pub fn tell(&mut self, uid: &str, state: &crate::wire::PodState, address: &str, now: Timestamp) -> bool {
        let Some(entry) = self.pods.get(uid).filter(|entry| entry.stage == Stage::Given) else {
            return false;
        };
        let status = status::told(&entry.pod, state, &entry.status, address, now);
        self.set(uid, status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(deleted: bool) -> Arc<Pod> {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        Arc::new(
            serde_json::from_value(
                json!({"metadata": {"name": "p", "uid": "u", "deletionTimestamp": deleted}}),
            )
            .unwrap(),
        )
    }

    fn give(ask_first: bool) -> Work {
        Work::Give { uid: "u".into(), ask_first }
    }

    #[test]
    fn a_pod_is_given_away_once_and_tried_again_later() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.insert("u", pod(false), false);
        assert_eq!(table.next(now).0, [give(false)]);
        assert_eq!(table.next(now).0, []);
        table.is_doubtful("u");
        table.done("u", None, now);
        assert_eq!(table.next(now), (vec![], Some(now + FIRST_PAUSE)));
        assert_eq!(table.next(now + FIRST_PAUSE).0, [give(true)]);
        table.done("u", Some(Stage::Given), now);
        assert_eq!(table.next(now + LONGEST_PAUSE), (vec![], None));
    }

    #[test]
    fn a_pod_that_is_deleted_while_it_is_given_away_is_ended() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.insert("u", pod(false), false);
        table.next(now);
        table.update("u", pod(true));
        assert_eq!(table.next(now).0, []);
        table.done("u", Some(Stage::Given), now);
        assert_eq!(table.next(now).0, [Work::End { uid: "u".into() }]);
        table.done("u", Some(Stage::Ended), now);
        assert!(table.gone("u"));
        assert!(table.get("u").is_none());
        assert_eq!(table.busy, 0);
    }

    #[test]
    fn a_pod_whose_object_is_gone_is_ended_and_forgotten() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.insert("u", pod(false), true);
        assert!(!table.gone("u"));
        assert_eq!(table.next(now).0, [Work::End { uid: "u".into() }]);
        table.done("u", Some(Stage::Ended), now);
        assert!(table.get("u").is_none());
    }

    #[test]
    fn what_was_known_before_a_restart_counts() {
        let mut table = Table::default();
        let with = |status: serde_json::Value| {
            Arc::new(serde_json::from_value(json!({"metadata": {"uid": "u"}, "status": status})).unwrap())
        };
        table.insert("u", with(json!({"phase": "Succeeded"})), true);
        assert_eq!(table.get("u").unwrap().stage, Stage::Over);
        table.insert("u", with(json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z"})), true);
        assert_eq!(table.get("u").unwrap().stage, Stage::Given);
        table.insert("u", with(json!({"phase": "Pending"})), true);
        assert_eq!(table.get("u").unwrap().stage, Stage::New { maybe: true });
    }
}
