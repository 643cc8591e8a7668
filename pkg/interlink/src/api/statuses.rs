//! Pods' statuses, asked of the plugin: for all pods of a request at once, or, of a plugin that answers for one only, from
//! what was last known while each is asked for in turn.

use super::kept::KeptPod;
use super::{ApiServer, Refusal, refusal};
use crate::asking::{Asking, Next, Outcome};
use crate::caller::CallError;
use crate::names::PodName;
use crate::wire::{self, BadBody, PodState};
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const STATUS: Duration = Duration::from_secs(30);

/// What is known, and how the plugin is asked.
#[derive(Default)]
pub(crate) struct Statuses {
    asking: Mutex<Asking>,
    known: Mutex<BTreeMap<String, PodState>>,
    /// One request for statuses is under way at most.
    turn: tokio::sync::Mutex<()>,
    changed: Notify,
}

impl Statuses {
    /// A pod was given to the plugin.
    pub fn want(&self, pod: &KeptPod) {
        self.asking.lock().want(&pod.uid);
        self.changed.notify_one();
    }

    /// What was last said of a pod counts no more.
    pub fn forget_answer(&self, uid: &str) {
        self.known.lock().remove(uid);
    }

    /// It is gone.
    pub fn forget(&self, uid: &str) {
        self.asking.lock().forget(uid);
        self.known.lock().remove(uid);
    }
}

impl ApiServer {
    /// The statuses of these pods, or of all. Those that the plugin does not know are left out.
    pub async fn status(&self, pods: &[Result<Pod, BadBody>]) -> Result<Vec<PodState>, Refusal> {
        let mut asked: Vec<Arc<KeptPod>> = Vec::new();
        for pod in pods.iter().flatten() {
            // One that is none fails nobody else's.
            let Ok(name) = PodName::of(pod) else { continue };
            let known = self.kept.get(&name.uid);
            asked.push(Arc::new(known.unwrap_or_else(|| KeptPod::new(&name, pod))));
        }
        if pods.is_empty() {
            asked = self.kept.all();
        }
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        if self.statuses.asking.lock().is_first_only() {
            let known = self.statuses.known.lock();
            let all: Option<Vec<PodState>> = asked.iter().map(|pod| known.get(&pod.uid).cloned()).collect();
            let is_one = asked.len() == 1;
            match all {
                Some(states) => return Ok(states),
                None if !is_one => {
                    return Ok(asked.iter().filter_map(|pod| known.get(&pod.uid).cloned()).collect());
                }
                None => {}
            }
        }
        self.ask(&asked).await.map_err(refusal)
    }

    /// Asks the plugin, and remembers what it says.
    async fn ask(&self, pods: &[Arc<KeptPod>]) -> Result<Vec<PodState>, CallError> {
        let _turn = self.statuses.turn.lock().await;
        let uids: Vec<String> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let briefs: Vec<&Value> = pods.iter().map(|pod| &pod.brief).collect();
        let body = json!(briefs).to_string().into_bytes();
        let answer = self.plugin.call("/status", Method::GET, body, STATUS).await;
        let states = answer.and_then(|answer| {
            wire::decode_states(&answer).map_err(|error| CallError::Answered { code: 502, words: error.0 })
        });
        let outcome = match &states {
            Err(CallError::Away { .. }) => Outcome::Away,
            Err(CallError::Answered { .. }) => Outcome::Odd,
            Ok(_) => Outcome::States(BTreeSet::new()),
        };
        let states = match states {
            Ok(states) => states,
            Err(error) => {
                self.statuses.asking.lock().answered(&uids, &outcome, Instant::now());
                self.statuses.changed.notify_one();
                return Err(error);
            }
        };
        let mut found = Vec::new();
        for state in states {
            match state {
                Ok(state) => {
                    if let Some(pod) = pods.iter().find(|pod| pod.is(&state)) {
                        let job = if state.job.is_empty() { pod.job.clone() } else { state.job.clone() };
                        found.push(PodState { uid: pod.uid.clone(), job, ..state });
                    }
                }
                Err(error) => tracing::debug!(%error, "a status that cannot be read"),
            }
        }
        let known: BTreeSet<String> = found.iter().map(|state| state.uid.clone()).collect();
        self.statuses.asking.lock().answered(&uids, &Outcome::States(known), Instant::now());
        let mut kept = self.statuses.known.lock();
        if self.statuses.asking.lock().is_first_only() {
            kept.extend(found.iter().map(|state| (state.uid.clone(), state.clone())));
        } else {
            kept.clear();
        }
        self.statuses.changed.notify_one();
        Ok(found)
    }
}

/// Asks a plugin that answers for one pod only, in turn. Others are asked when somebody asks us.
pub(super) async fn keep(server: Arc<ApiServer>, shutdown: CancellationToken) {
    loop {
        let is_first_only = server.statuses.asking.lock().is_first_only();
        let next =
            if is_first_only { server.statuses.asking.lock().next(Instant::now()) } else { Next::Rest };
        let wait = async {
            match next {
                Next::Ask(uids) => {
                    let pods: Vec<Arc<KeptPod>> =
                        uids.iter().filter_map(|uid| server.kept.get(uid)).map(Arc::new).collect();
                    match pods.is_empty() {
                        true => uids.iter().for_each(|uid| server.statuses.forget(uid)),
                        false => drop(server.ask(&pods).await),
                    }
                }
                Next::At(at) => tokio::time::sleep_until(at.into()).await,
                Next::Rest => server.statuses.changed.notified().await,
            }
        };
        tokio::select! { () = wait => {}, () = shutdown.cancelled() => return }
    }
}
