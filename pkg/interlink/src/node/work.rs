//! Carries out what is to be done for pods: gives them away, ends them, and asks how they are.

use super::table::{Stage, Work};
use super::{VirtualNode, status};
use crate::asking::{Next, Outcome};
use crate::caller::CallError;
use crate::gather;
use crate::wire::{self, Created, Generation, PodState, Submission};
use bytes::Bytes;
use client::EventType;
use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kubelet::provider::Change;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CREATE: Duration = Duration::from_secs(90);
/// What a pod may take to end, beside its grace.
const DELETE: Duration = Duration::from_secs(90);
const STATUS: Duration = Duration::from_secs(30);

/// Does what the table says, until the end of the program.
pub(super) async fn keep(node: Arc<VirtualNode>) {
    let mut running = JoinSet::new();
    loop {
        let told = node.wake.notified();
        // Nothing is given away before it is known in which words.
        let (work, again) = match node.link.generation() {
            Some(_) => node.table.lock().next(Instant::now()),
            None => (Vec::new(), None),
        };
        for work in work {
            let node = node.clone();
            running.spawn(async move {
                match work {
                    Work::Give { uid, ask_first } => give(&node, &uid, ask_first).await,
                    Work::End { uid } => end(&node, &uid).await,
                }
            });
        }
        let retry = async {
            match again {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(_) = running.join_next() => {}
            () = told => {}
            () = retry => {}
        }
    }
}

/// What became of giving a pod away.
enum Given {
    Taken,
    /// It will never be taken.
    Refused(String),
    /// It is tried again; why, as the pod's reason and message say.
    Later(&'static str, String),
    /// Nobody knows.
    Doubtful(String),
}

async fn give(node: &Arc<VirtualNode>, uid: &str, ask_first: bool) {
    let Some(pod) = node.table.lock().get(uid).map(|entry| entry.pod.clone()) else { return };
    let given = if ask_first { known(node, &pod).await } else { None };
    let given = match given {
        Some(given) => given,
        None => submit(node, &pod).await,
    };
    let now = Timestamp::now();
    let (stage, news) = {
        let mut table = node.table.lock();
        let before = table.get(uid).map(|entry| entry.status.clone()).unwrap_or_default();
        let (stage, status) = match &given {
            Given::Taken => (Some(Stage::Given), status::given(&pod, &node.address, now)),
            Given::Refused(why) => (Some(Stage::Over), status::failed(&pod, &before, "Refused", why, now)),
            Given::Later(reason, why) => (None, status::waiting(&pod, reason, why)),
            Given::Doubtful(why) => {
                table.is_doubtful(uid);
                (None, status::waiting(&pod, "ProviderFailed", why))
            }
        };
        (stage, table.set(uid, status))
    };
    if news {
        node.tell(uid, false);
    }
    match &given {
        Given::Taken => node.asking.lock().want(uid),
        Given::Refused(why) => node.event(&pod, EventType::Warning, "Refused", why),
        Given::Later(reason, why) => node.event(&pod, EventType::Warning, reason, why),
        Given::Doubtful(why) => node.event(&pod, EventType::Warning, "ProviderFailed", why),
    }
    node.table.lock().done(uid, stage, Instant::now());
    node.wake.notify_waiters();
}

/// Whether whoever was here before has given it away. None: nobody there knows it.
async fn known(node: &VirtualNode, pod: &Pod) -> Option<Given> {
    let body = json!([wire::brief(pod)]).to_string().into_bytes();
    match node.api.call("/status", Method::GET, body, STATUS).await {
        Err(error @ CallError::Away { .. }) => Some(Given::Doubtful(error.to_string())),
        Err(CallError::Answered { code, words }) if code >= 502 => Some(Given::Doubtful(words)),
        Err(CallError::Answered { .. }) => None,
        Ok(answer) => {
            let states = wire::decode_states(&answer).unwrap_or_default();
            let is_known =
                states.iter().flatten().any(|state| is_of(state, pod) && !state.containers.is_empty());
            is_known.then_some(Given::Taken)
        }
    }
}

fn is_of(state: &PodState, pod: &Pod) -> bool {
    let meta = &pod.metadata;
    match state.uid.is_empty() {
        false => meta.uid.as_ref() == Some(&state.uid),
        true => {
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            meta.name.as_ref() == Some(&state.name)
                && (state.namespace.is_empty() || state.namespace == namespace)
        }
    }
}

async fn submit(node: &VirtualNode, pod: &Arc<Pod>) -> Given {
    let body = match node.link.generation() {
        Some(Generation::Objects) => {
            let found = match gather::fetch(&node.client, pod, true).await {
                Ok(found) => found,
                Err(error) => {
                    return Given::Later("CreateContainerConfigError", kubelet::error::chain(&error));
                }
            };
            found.submission((**pod).clone()).encode()
        }
        _ => {
            if let Some(handover) = &node.handover
                && let Err(why) = handover.cover(node).await
            {
                return Given::Later("CredentialNotHandedOver", why);
            }
            json!([Submission { pod: (**pod).clone(), ..Submission::default() }.encode()["pod"]])
        }
    };
    match node.api.call("/create", Method::POST, body.to_string().into_bytes(), CREATE).await {
        Ok(answer) => {
            let all = serde_json::from_slice::<Vec<Created>>(&answer).ok().and_then(|mut all| all.pop());
            let created = all.or_else(|| serde_json::from_slice(&answer).ok()).unwrap_or_default();
            let job = if created.job.is_empty() { String::new() } else { format!(" as job {}", created.job) };
            node.event(pod, EventType::Normal, "Submitted", &format!("Given to {}{job}", node.api.base()));
            Given::Taken
        }
        Err(error) if error.is_refusal() => Given::Refused(error.to_string()),
        Err(error @ CallError::Answered { .. }) => Given::Later("ProviderFailed", error.to_string()),
        Err(error) => Given::Doubtful(error.to_string()),
    }
}

async fn end(node: &Arc<VirtualNode>, uid: &str) {
    let Some((pod, stage)) = node.table.lock().get(uid).map(|entry| (entry.pod.clone(), entry.stage)) else {
        return;
    };
    let done = match stage {
        // Nobody was ever told of it.
        Stage::New { maybe: false } => Ok(Bytes::new()),
        _ => {
            let one = wire::pod(&pod);
            let body = match node.link.generation() {
                Some(Generation::Objects) => one.to_string(),
                _ => json!([one]).to_string(),
            };
            let grace =
                pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
            let patience = DELETE + Duration::from_secs(u64::try_from(grace).unwrap_or(0));
            node.api.call("/delete", Method::DELETE, body.into_bytes(), patience).await
        }
    };
    let is_done = match done {
        Ok(_) => true,
        // What is not there has ended.
        Err(error) if error.code() == Some(404) => true,
        Err(error) => {
            node.event(&pod, EventType::Warning, "FailedKillPod", &error.to_string());
            false
        }
    };
    if is_done {
        node.asking.lock().forget(uid);
        let now = Timestamp::now();
        let status = node.table.lock().get(uid).map(|entry| entry.status.clone());
        if let Some(before) = status {
            let ended = if status::is_over(&before) {
                before
            } else {
                status::failed(&pod, &before, "Deleted", "The pod was deleted", now)
            };
            node.table.lock().set(uid, ended);
        }
        node.tell(uid, true);
        if node.link.generation() == Some(Generation::Objects) {
            let forgotten =
                node.api.call("/updateCache", Method::POST, uid.as_bytes().to_vec(), STATUS).await;
            if let Err(error) = forgotten {
                tracing::debug!(%error, "tell that a pod is forgotten");
            }
        }
    }
    node.table.lock().done(uid, is_done.then_some(Stage::Ended), Instant::now());
    if is_done && node.table.lock().get(uid).is_none() {
        node.outbox.put(Change::Gone(uid.to_owned()));
    }
    node.wake.notify_waiters();
}

/// Asks how pods are, until the end of the program.
pub(super) async fn ask(node: Arc<VirtualNode>) {
    loop {
        let told = node.wake.notified();
        let next = node.asking.lock().next(Instant::now());
        match next {
            Next::Ask(uids) => round(&node, &uids).await,
            Next::At(at) => tokio::select! {
                () = tokio::time::sleep_until(at.into()) => {}
                () = told => {}
            },
            Next::Rest => told.await,
        }
    }
}

async fn round(node: &VirtualNode, uids: &[String]) {
    let pods: Vec<Arc<Pod>> = {
        let table = node.table.lock();
        uids.iter().filter_map(|uid| table.get(uid).map(|entry| entry.pod.clone())).collect()
    };
    let briefs: Vec<serde_json::Value> = pods.iter().map(|pod| wire::brief(pod)).collect();
    let body = json!(briefs).to_string().into_bytes();
    drop(briefs);
    let answer = node.api.call("/status", Method::GET, body, STATUS).await;
    let states = match answer.map(|answer| wire::decode_states(&answer)) {
        Ok(Ok(states)) => states,
        Ok(Err(error)) => return odd(node, uids, &error.0),
        Err(CallError::Answered { code, words }) if code != 503 => return odd(node, uids, &words),
        Err(error) => {
            tracing::debug!(%error, "ask how pods are");
            node.asking.lock().answered(uids, &Outcome::Away, Instant::now());
            return;
        }
    };
    let mut known = BTreeSet::new();
    for state in states {
        let state = match state {
            Ok(state) => state,
            Err(error) => {
                tracing::debug!(%error, "a status that cannot be read");
                continue;
            }
        };
        // With a uid it is found at once; the first generation has names only.
        let by_uid = uids.contains(&state.uid).then(|| state.uid.clone());
        let uid = by_uid.or_else(|| pods.iter().find(|pod| is_of(&state, pod)).map(|pod| super::uid_of(pod)));
        let Some(uid) = uid else { continue };
        if node.table.lock().tell(&uid, &state, &node.address, Timestamp::now()) {
            node.tell(&uid, false);
        }
        known.insert(uid);
    }
    node.asking.lock().answered(uids, &Outcome::States(known), Instant::now());
    settle(node, uids);
}

fn odd(node: &VirtualNode, uids: &[String], why: &str) {
    tracing::debug!(error = why, pods = uids.len(), "an odd answer");
    node.asking.lock().answered(uids, &Outcome::Odd, Instant::now());
}

/// Pods that have ended, or are gone, are asked for no more.
fn settle(node: &VirtualNode, uids: &[String]) {
    for uid in uids {
        let Some((stage, pod, before)) =
            node.table.lock().get(uid).map(|entry| (entry.stage, entry.pod.clone(), entry.status.clone()))
        else {
            node.asking.lock().forget(uid);
            continue;
        };
        if stage == Stage::Given && node.asking.lock().is_gone(uid) {
            let why = format!("{} does not know this pod any more", node.api.base());
            let lost = status::failed(&pod, &before, "Lost", &why, Timestamp::now());
            node.event(&pod, EventType::Warning, "Lost", &why);
            if node.table.lock().set(uid, lost) {
                node.tell(uid, false);
            }
        }
        if node.table.lock().get(uid).is_none_or(|entry| entry.stage != Stage::Given) {
            node.asking.lock().forget(uid);
        }
    }
}
