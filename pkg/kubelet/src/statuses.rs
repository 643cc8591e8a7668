//! Writes the statuses of pods to the apiserver, newest first wins, and deletes pods that have ended.
//!
//! ```text
//! worker ──set(pod, status)──> the latest of each pod ──> at most 8 patches at once ──> apiserver
//! ```
//!
//! Workers never wait for it. While the apiserver is away only the latest status of each pod is kept. What others write over
//! the kubelet's word (a pod of a node that was not heard of is not ready) is written again; their own conditions are theirs.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const AT_ONCE: usize = 8;
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// What is to be written about one pod.
#[derive(Debug, Clone)]
struct Entry {
    namespace: String,
    name: String,
    /// The uid that the API knows it by; none: a static pod that has no mirror yet.
    uid: Option<String>,
    is_static: bool,
    status: PodStatus,
    /// Nothing of the pod is left: its object may go.
    delete: bool,
    /// What the API has, as far as it is known.
    sent: Option<Value>,
    /// The resourceVersion that our last write made.
    version: u64,
    /// What the API was seen to have, and its resourceVersion, while a write of ours is under way.
    seen: Option<(u64, PodStatus)>,
    dirty: bool,
    in_flight: bool,
    retry: Option<(Instant, Duration)>,
}

/// The statuses of all pods of the node.
#[derive(Default)]
pub struct Statuses {
    entries: Mutex<BTreeMap<String, Entry>>,
    /// The uids of static pods' mirrors.
    mirrors: Mutex<BTreeMap<String, String>>,
    changed: Notify,
}

impl Entry {
    /// Whether the API has something else than we say; then it is to be written again.
    fn is_contradicted_by(&mut self, pod: &Pod) -> bool {
        if let Some(status) = &pod.status {
            self.seen = Some((version(pod), status.clone()));
        }
        self.is_contradicted()
    }

    /// The same, by what was seen last. While we write, nobody knows which of both is the later.
    fn is_contradicted(&mut self) -> bool {
        if self.in_flight {
            return false;
        }
        let Some((version, status)) = self.seen.take() else { return false };
        if version <= self.version || status == self.status {
            return false;
        }
        let has = own_word(&status);
        let contradicts = !says(&has, &own_word(&self.status));
        if contradicts {
            // Also if a write is due already: it would be left out if this were not known.
            self.sent = Some(has);
            self.dirty = true;
        }
        contradicts
    }
}

enum Written {
    Done { sent: Option<Value>, version: u64 },
    Gone,
    Failed(kube::Error),
}

impl Statuses {
    /// The status of a pod is this now. `delete`: nothing of it is left and its object may go.
    pub fn set(&self, pod: &Pod, status: &PodStatus, delete: bool) {
        let meta = &pod.metadata;
        let Some(uid) = meta.uid.clone() else { return };
        let is_static = crate::plan::is_static(pod);
        let known = if is_static { self.mirrors.lock().get(&uid).cloned() } else { Some(uid.clone()) };
        let mut entries = self.entries.lock();
        let entry = entries.entry(uid).or_insert_with(|| Entry {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: known,
            is_static,
            status: PodStatus::default(),
            delete: false,
            sent: pod.status.as_ref().map(own_word),
            version: 0,
            seen: None,
            dirty: true,
            in_flight: false,
            retry: None,
        });
        if entry.status != *status || entry.delete != delete {
            entry.status = status.clone();
            entry.delete = delete;
            entry.dirty = true;
            drop(entries);
            self.changed.notify_one();
        }
    }

    /// The API has this of a pod. If somebody else has changed what the kubelet says, it is said again.
    pub fn seen(&self, pod: &Pod) {
        let Some(uid) = &pod.metadata.uid else { return };
        if self.entries.lock().get_mut(uid).is_some_and(|entry| entry.is_contradicted_by(pod)) {
            self.changed.notify_one();
        }
    }

    /// A static pod's mirror in the API is this one now.
    pub fn mirrored(&self, uid: &str, mirror: Option<&Pod>) {
        let its = mirror.and_then(|mirror| mirror.metadata.uid.clone());
        match &its {
            Some(its) => self.mirrors.lock().insert(uid.to_owned(), its.clone()),
            None => self.mirrors.lock().remove(uid),
        };
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(uid) else { return };
        if entry.uid != its {
            entry.sent = None;
            entry.version = 0;
            entry.dirty = its.is_some();
            entry.uid = its;
        } else if !mirror.is_some_and(|mirror| entry.is_contradicted_by(mirror)) {
            return;
        }
        drop(entries);
        self.changed.notify_one();
    }

    /// The pod is gone from the API; nothing more is written about it.
    pub fn forget(&self, uid: &str) {
        self.entries.lock().remove(uid);
        self.mirrors.lock().remove(uid);
    }

    /// Writes until the token is cancelled.
    pub async fn run(self: Arc<Self>, client: Client, shutdown: CancellationToken) {
        let mut writes: JoinSet<(String, Option<String>, Written)> = JoinSet::new();
        loop {
            let mut next_retry = None;
            if writes.len() < AT_ONCE {
                for (uid, entry) in self.due(AT_ONCE - writes.len(), &mut next_retry) {
                    let client = client.clone();
                    writes.spawn(async move { (uid, entry.uid.clone(), write(client, entry).await) });
                }
            }
            let retry = async {
                match next_retry {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(Ok((uid, object, written))) = writes.join_next() => self.written(&uid, object, written),
                () = self.changed.notified() => {}
                () = retry => {}
                () = shutdown.cancelled() => break,
            }
        }
        // What is on its way arrives; what waits is written by the next kubelet, from what it sees.
        let _ = tokio::time::timeout(Duration::from_secs(2), async {
            while writes.join_next().await.is_some() {}
        })
        .await;
    }

    fn due(&self, most: usize, next_retry: &mut Option<Instant>) -> Vec<(String, Entry)> {
        let now = Instant::now();
        let mut due = Vec::new();
        for (uid, entry) in self.entries.lock().iter_mut() {
            if !entry.dirty || entry.in_flight || entry.uid.is_none() {
                continue;
            }
            if let Some((at, _)) = entry.retry.filter(|(at, _)| *at > now) {
                *next_retry = Some(next_retry.map_or(at, |earlier| earlier.min(at)));
                continue;
            }
            if due.len() == most {
                break;
            }
            entry.dirty = false;
            entry.in_flight = true;
            due.push((uid.clone(), entry.clone()));
        }
        due
    }

    /// What became of a write to the object with that uid.
    fn written(&self, uid: &str, object: Option<String>, written: Written) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(uid) else { return };
        entry.in_flight = false;
        match written {
            Written::Done { sent, version } => {
                entry.retry = None;
                entry.sent = sent;
                entry.version = version;
            }
            // A mirror that is gone is made anew, and the pod runs on: its next mirror has no status yet.
            Written::Gone if entry.is_static && !entry.delete => {
                entry.sent = None;
                entry.dirty = entry.uid != object;
                entry.uid = entry.uid.take().filter(|uid| Some(uid) != object.as_ref());
            }
            Written::Gone => {
                entries.remove(uid);
            }
            Written::Failed(error) => {
                let pause = entry.retry.map_or(FIRST_RETRY, |(_, pause)| (pause * 2).min(LONGEST_RETRY));
                tracing::debug!(pod = entry.name, %error, "write the status");
                entry.retry = Some((Instant::now() + pause, pause));
                entry.dirty = true;
            }
        }
        // Whoever called looks again for what is due.
        if let Some(entry) = entries.get_mut(uid) {
            entry.is_contradicted();
        }
    }
}

async fn write(client: Client, entry: Entry) -> Written {
    let pods: Api<Pod> = Api::namespaced(client, &entry.namespace);
    let status = own_word(&entry.status);
    let mut written = entry.version;
    if entry.sent.as_ref() != Some(&status) {
        let patch = patch(&status, entry.sent.as_ref(), entry.uid.as_deref());
        let params = PatchParams::default();
        match pods.patch_status(&entry.name, &params, &Patch::Strategic(patch)).await {
            Ok(pod) => written = version(&pod),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Written::Gone,
            // What the apiserver refuses today it refuses tomorrow; the next status may be better.
            Err(kube::Error::Api(refused)) if matches!(refused.code, 400 | 422) => {
                tracing::warn!(pod = entry.name, message = refused.message, "the status was refused");
            }
            Err(error) => return Written::Failed(error),
        }
    }
    if !entry.delete {
        return Written::Done { sent: Some(status), version: written };
    }
    let only_it = Preconditions { uid: entry.uid, resource_version: None };
    let params = DeleteParams { preconditions: Some(only_it), ..DeleteParams::default().grace_period(0) };
    match pods.delete(&entry.name, &params).await {
        Ok(_) => Written::Gone,
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Written::Gone,
        Err(error) => Written::Failed(error),
    }
}

fn version(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_ref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// A status without the conditions that are others' word.
fn own_word(status: &PodStatus) -> Value {
    let mut status = status.clone();
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(crate::plan::is_own_condition);
    }
    serde_json::to_value(status).expect("a status is JSON")
}

/// Whether `has` holds all that `word` says.
fn says(has: &Value, word: &Value) -> bool {
    match (has, word) {
        (Value::Object(has), Value::Object(word)) => {
            word.iter().all(|(key, word)| has.get(key).is_some_and(|has| says(has, word)))
        }
        (Value::Array(has), Value::Array(word)) if word.iter().all(|item| item.get("type").is_some()) => {
            word.iter().all(|word| has.iter().any(|has| has["type"] == word["type"] && says(has, word)))
        }
        (Value::Array(has), Value::Array(word)) => {
            has.len() == word.len() && has.iter().zip(word).all(|(has, word)| says(has, word))
        }
        (has, word) => has == word,
    }
}

/// The patch from what was sent to what is. Lists that merge by key are replaced where an element may vanish.
fn patch(status: &Value, sent: Option<&Value>, uid: Option<&str>) -> Value {
    let mut changes = status.clone();
    if let Some(sent) = sent {
        take_back(&mut changes, sent);
        for change in changes.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            let mut sent = sent["conditions"].as_array().into_iter().flatten();
            if let Some(sent) = sent.find(|sent| sent["type"] == change["type"]) {
                take_back(change, sent);
            }
        }
    }
    let said = |status: &Value, name: &str| {
        status["conditions"].as_array().is_some_and(|all| all.iter().any(|one| one["type"] == name))
    };
    // An earlier kubelet may have said it; who knows what was sent need not ask.
    let gone = crate::plan::PASSING
        .into_iter()
        .filter(|name| !said(status, name) && sent.is_none_or(|sent| said(sent, name)));
    if let Some(conditions) = changes.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.extend(gone.map(|name| json!({"$patch": "delete", "type": name})));
    }
    for list in ["podIPs", "hostIPs"] {
        if let Some(list) = changes.get_mut(list).and_then(Value::as_array_mut) {
            list.insert(0, json!({"$patch": "replace"}));
        }
    }
    json!({"metadata": {"uid": uid}, "status": changes})
}

/// Members that were sent and are no longer said become null, which removes them.
fn take_back(changes: &mut Value, sent: &Value) {
    let (Some(changes), Some(sent)) = (changes.as_object_mut(), sent.as_object()) else { return };
    for gone in sent.keys() {
        changes.entry(gone.as_str()).or_insert(Value::Null);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_made_anew_gets_the_status_that_the_old_one_did_not_take() {
        let pod = |uid: &str, annotation: &str| -> Pod {
            let annotations = json!({annotation: "file"});
            let pod =
                json!({"metadata": {"namespace": "n", "name": "p", "uid": uid, "annotations": annotations}});
            serde_json::from_value(pod).unwrap()
        };
        let is_due = |statuses: &Statuses| {
            let due = statuses.due(1, &mut None);
            due.first().map(|(_, entry)| entry.uid.clone().unwrap())
        };
        let statuses = Statuses::default();
        let status = PodStatus { phase: Some("Running".into()), ..PodStatus::default() };
        statuses.mirrored("s", Some(&pod("old", "kubernetes.io/config.mirror")));
        statuses.set(&pod("s", "kubernetes.io/config.source"), &status, false);
        assert_eq!(is_due(&statuses).as_deref(), Some("old"));
        // The old one is gone before the new one is seen, or after.
        statuses.written("s", Some("old".into()), Written::Gone);
        assert_eq!(is_due(&statuses), None);
        statuses.mirrored("s", Some(&pod("new", "kubernetes.io/config.mirror")));
        assert_eq!(is_due(&statuses).as_deref(), Some("new"));
        statuses.mirrored("s", Some(&pod("newest", "kubernetes.io/config.mirror")));
        statuses.written("s", Some("new".into()), Written::Gone);
        assert_eq!(is_due(&statuses).as_deref(), Some("newest"));
    }

    #[test]
    fn a_patch_takes_back_what_is_no_longer_said() {
        let sent = json!({"phase": "Pending", "reason": "Evicted", "podIPs": [{"ip": "10.0.0.1"}]});
        let status = json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.2"}]});
        assert_eq!(
            patch(&status, Some(&sent), Some("u")),
            json!({"metadata": {"uid": "u"}, "status": {
                "phase": "Running", "reason": null, "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.2"}],
            }})
        );
    }

    #[test]
    fn a_condition_that_holds_again_has_no_reason_any_more() {
        let sent =
            json!({"conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]});
        let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(
            patch(&status, Some(&sent), None)["status"]["conditions"],
            json!([{"type": "Ready", "status": "True", "reason": null}])
        );
    }

    #[test]
    fn a_condition_that_has_passed_is_removed() {
        let of = |names: &[&str]| {
            let all: Vec<Value> = names.iter().map(|name| json!({"type": name, "status": "True"})).collect();
            json!({"conditions": all})
        };
        let gone = |sent: Option<&[&str]>, status: &[&str]| -> Vec<Value> {
            let patch = patch(&of(status), sent.map(of).as_ref(), None);
            let all = patch["status"]["conditions"].as_array().unwrap().iter();
            all.filter(|one| one["$patch"] == "delete").map(|one| one["type"].clone()).collect()
        };
        assert_eq!(gone(Some(&["Ready", "PodResizePending"]), &["Ready"]), ["PodResizePending"]);
        assert!(gone(Some(&["Ready"]), &["Ready"]).is_empty());
        assert_eq!(gone(None, &["Ready", "PodResizePending"]), ["PodResizeInProgress"]);
    }

    #[test]
    fn what_others_write_over_our_word_is_said_again() {
        let pod = |version: u64, ready: &str, gate: &str| -> Pod {
            let conditions = json!([{"type": "gate", "status": gate}, {"type": "Ready", "status": ready}]);
            let status = json!({"phase": "Running", "qosClass": "Burstable", "conditions": conditions});
            let metadata = json!({"name": "p", "uid": "u", "resourceVersion": version.to_string()});
            serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
        };
        let is_due = |statuses: &Statuses| !statuses.due(1, &mut None).is_empty();
        let statuses = Statuses::default();
        let ours = pod(4, "True", "False");
        statuses.set(&ours, ours.status.as_ref().unwrap(), false);
        assert!(is_due(&statuses));
        let sent = Some(own_word(ours.status.as_ref().unwrap()));
        statuses.written("u", Some("u".into()), Written::Done { sent, version: 5 });
        // Our own write, one from before it, and one of what is not ours.
        for seen in [pod(5, "True", "False"), pod(4, "False", "False"), pod(6, "True", "True")] {
            statuses.seen(&seen);
            assert!(!is_due(&statuses), "{seen:?}");
        }
        // While a write is due, or under way, others may write as well, and nobody will tell us again.
        let told = |status: &str| PodStatus { message: Some(status.into()), ..ours.status.clone().unwrap() };
        let is_written_again = |version: u64| {
            let (_, entry) = statuses.due(1, &mut None).remove(0);
            let status = own_word(&entry.status);
            assert_ne!(entry.sent.as_ref(), Some(&status), "it would be left out");
            statuses.written("u", Some("u".into()), Written::Done { sent: Some(status), version });
        };
        statuses.set(&ours, &told("due"), false);
        statuses.set(&ours, ours.status.as_ref().unwrap(), false);
        statuses.seen(&pod(7, "False", "True"));
        is_written_again(8);
        statuses.set(&ours, &told("under way"), false);
        let (_, entry) = statuses.due(1, &mut None).remove(0);
        statuses.seen(&pod(10, "False", "True"));
        let sent = Some(own_word(&entry.status));
        statuses.written("u", Some("u".into()), Written::Done { sent, version: 9 });
        is_written_again(11);
        assert!(!is_due(&statuses));
        statuses.set(&ours, ours.status.as_ref().unwrap(), false);
        is_written_again(12);

        statuses.seen(&pod(13, "False", "True"));
        let (_, entry) = statuses.due(1, &mut None).remove(0);
        let patch = patch(&own_word(&entry.status), entry.sent.as_ref(), None);
        assert_eq!(patch["status"]["conditions"], json!([{"type": "Ready", "status": "True"}]));
    }
}
