//! Carries decisions out: bindings, conditions, deletions and events.

use crate::preempt::Victim;
use crate::scheduler::{Decision, Outcome, Target};
use crate::volumes::ClaimAction;
use client::{EventType, Recorder, contained};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

/// Something was carried out.
pub(crate) struct Finished {
    /// The uid of the pod that it was about.
    pub pod: String,
    /// What became of a binding, if it was one.
    pub binding: Option<(Target, Vec<ClaimAction>, Outcome)>,
    /// When the decision began.
    pub began: Instant,
}

/// Carries out so many decisions at once.
pub(crate) struct Executor {
    client: Client,
    recorder: Recorder,
    tasks: TaskTracker,
    most: usize,
    running: usize,
    turns: Turns<(Decision, Instant)>,
    finished: mpsc::Sender<Finished>,
}

/// What is decided of a pod is written in that order: of two refusals under way at once the older could be the last word.
struct Turns<T> {
    /// By pod of which something is under way: what comes after that.
    waiting: HashMap<String, VecDeque<T>>,
}

impl<T> Turns<T> {
    /// What may begin, if nothing of this pod is under way.
    fn begin(&mut self, pod: &str, next: T) -> Option<T> {
        match self.waiting.get_mut(pod) {
            Some(waiting) => {
                waiting.push_back(next);
                None
            }
            None => {
                self.waiting.insert(pod.to_owned(), VecDeque::new());
                Some(next)
            }
        }
    }

    /// What was under way has ended: what may begin.
    fn end(&mut self, pod: &str) -> Option<T> {
        let next = self.waiting.get_mut(pod)?.pop_front();
        if next.is_none() {
            self.waiting.remove(pod);
        }
        next
    }
}

impl Executor {
    pub(crate) fn new(
        client: Client,
        recorder: Recorder,
        most: usize,
    ) -> (Executor, mpsc::Receiver<Finished>) {
        let (finished, results) = mpsc::channel(most);
        let tasks = TaskTracker::new();
        let turns = Turns { waiting: HashMap::new() };
        (Executor { client, recorder, tasks, most, running: 0, turns, finished }, results)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.running < self.most
    }

    /// A [`Finished`] was received, about this pod.
    pub(crate) fn freed(&mut self, pod: &str) {
        self.running -= 1;
        if let Some((decision, began)) = self.turns.end(pod) {
            self.start(decision, began);
        }
    }

    /// Waits for what is under way. Nobody reads the results any more: the channel has room for all.
    pub(crate) async fn join(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub(crate) fn execute(&mut self, decision: Decision, began: Instant) {
        self.running += 1;
        if let Some((decision, began)) = self.turns.begin(&decision.target().uid.clone(), (decision, began)) {
            self.start(decision, began);
        }
    }

    fn start(&self, decision: Decision, began: Instant) {
        let pod = decision.target().uid.clone();
        let hands = Hands { client: self.client.clone(), recorder: self.recorder.clone() };
        let finished = self.finished.clone();
        self.tasks.spawn(async move {
            // Also a panic gives back the room that was taken, and the pod to the queue.
            let outcome = contained(hands.carry_out(&decision)).await.unwrap_or_else(|panic| {
                tracing::error!(panic, ?decision, "a decision could not be carried out");
                Some(Outcome::Failed)
            });
            let binding = match decision {
                Decision::Bind { target, claims, .. } => outcome.map(|outcome| (target, claims, outcome)),
                Decision::Refuse { .. } => None,
            };
            // Room was counted; nobody listens only when the scheduler ends.
            let _ = finished.send(Finished { pod, binding, began }).await;
        });
    }
}

struct Hands {
    client: Client,
    recorder: Recorder,
}

impl Hands {
    /// What became of it, if it was a binding.
    async fn carry_out(&self, decision: &Decision) -> Option<Outcome> {
        match decision {
            Decision::Bind { target, node, claims } => Some(self.bind(target, node, claims).await),
            Decision::Refuse { target, message, is_news, nominated, victims, displaced } => {
                self.tell(target, EventType::Warning, "FailedScheduling", message.clone());
                if *is_news {
                    self.refuse(target, message, nominated.as_deref()).await;
                }
                for target in displaced {
                    let status = json!({"status": {"nominatedNodeName": null}});
                    self.patch_status(&target.namespace, &target.name, &status).await;
                }
                let node = nominated.as_deref().unwrap_or_default();
                let evictions = victims.iter().filter(|victim| !victim.is_going);
                futures::future::join_all(evictions.map(|victim| self.evict(victim, target, node))).await;
                None
            }
        }
    }

    async fn bind(&self, target: &Target, node: &str, claims: &[ClaimAction]) -> Outcome {
        let mut is_waiting = false;
        for claim in claims {
            match self.prepare(claim, node).await {
                Ok(is_ready) => is_waiting |= !is_ready,
                Err(error) => {
                    tracing::warn!(pod = target.name, %error, "a claim could not be prepared");
                    return Outcome::Failed;
                }
            }
        }
        if is_waiting {
            return Outcome::Waits;
        }
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": target.name, "namespace": target.namespace, "uid": target.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let pods = Request::new(format!("/api/v1/namespaces/{}/pods", target.namespace));
        let body = binding.to_string().into_bytes();
        let request = pods.create_subresource("binding", &target.name, &PostParams::default(), body);
        let sent = match request {
            Ok(request) => self.client.request_text(request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        match sent {
            Ok(_) => {
                let (namespace, name) = (&target.namespace, &target.name);
                let message = format!("Successfully assigned {namespace}/{name} to {node}");
                self.tell(target, EventType::Normal, "Scheduled", message);
                Outcome::Bound
            }
            Err(error) => {
                tracing::info!(pod = target.name, namespace = target.namespace, %error, "a pod was not bound");
                Outcome::Failed
            }
        }
    }

    /// Does what a claim needs. False if its volume must be waited for.
    async fn prepare(&self, claim: &ClaimAction, node: &str) -> kube::Result<bool> {
        match claim {
            ClaimAction::Bind { namespace, name, uid, volume } => {
                let reference = json!({"spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "namespace": namespace, "name": name, "uid": uid}}});
                self.patch("/api/v1/persistentvolumes", volume, &reference).await?;
                let bound = json!({
                    "metadata": {"annotations": {
                        "pv.kubernetes.io/bind-completed": "yes",
                        "pv.kubernetes.io/bound-by-controller": "yes",
                    }},
                    "spec": {"volumeName": volume},
                });
                let claims = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
                self.patch(&claims, name, &bound).await?;
                Ok(true)
            }
            ClaimAction::Provision { is_asked: true, .. } => Ok(false),
            ClaimAction::Provision { namespace, name, .. } => {
                let asked =
                    json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}});
                let claims = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
                self.patch(&claims, name, &asked).await?;
                Ok(false)
            }
        }
    }

    async fn refuse(&self, target: &Target, message: &str, nominated: Option<&str>) {
        let mut status = json!({"conditions": [{
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": null,
            "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "observedGeneration": target.generation,
        }]});
        match nominated {
            Some("") => status["nominatedNodeName"] = Value::Null,
            Some(node) => status["nominatedNodeName"] = node.into(),
            None => {}
        }
        let patch = json!({"metadata": {"uid": target.uid}, "status": status});
        self.patch_status(&target.namespace, &target.name, &patch).await;
    }

    async fn evict(&self, victim: &Victim, preemptor: &Target, node: &str) {
        let scheduler = &preemptor.scheduler;
        let condition = json!({
            "metadata": {"uid": victim.uid},
            "status": {"conditions": [{
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
                "lastProbeTime": null,
                "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            }]},
        });
        self.patch_status(&victim.namespace, &victim.name, &condition).await;
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(victim.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        let pods = Request::new(format!("/api/v1/namespaces/{}/pods", victim.namespace));
        let deleted = match pods.delete(&victim.name, &params) {
            Ok(request) => self.client.request_text(request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        match deleted {
            Ok(_) => {
                let reference = reference(&victim.namespace, &victim.name, &victim.uid);
                let message = format!("Preempted by pod {} on node {node}", preemptor.uid);
                self.recorder.event(reference, EventType::Normal, "Preempted", message);
            }
            // It has gone by itself.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => tracing::warn!(pod = victim.name, %error, "a pod was not preempted"),
        }
    }

    async fn patch(&self, path: &str, name: &str, patch: &Value) -> kube::Result<()> {
        let request = Request::new(path)
            .patch(name, &PatchParams::default(), &Patch::Strategic(patch))
            .map_err(kube::Error::BuildRequest)?;
        self.client.request_text(request).await.map(drop)
    }

    async fn patch_status(&self, namespace: &str, name: &str, patch: &Value) {
        let pods = Request::new(format!("/api/v1/namespaces/{namespace}/pods"));
        let patch = Patch::Strategic(patch);
        let sent = match pods.patch_subresource("status", name, &PatchParams::default(), &patch) {
            Ok(request) => self.client.request_text(request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        match sent {
            Ok(_) => {}
            // It has gone, or is another.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => tracing::warn!(pod = name, namespace, %error, "a pod's status was not written"),
        }
    }

    fn tell(&self, target: &Target, event_type: EventType, reason: &'static str, message: String) {
        let reference = reference(&target.namespace, &target.name, &target.uid);
        self.recorder.event(reference, event_type, reason, message);
    }
}

fn reference(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_decisions_are_written_one_after_the_other() {
        let mut turns = Turns { waiting: HashMap::new() };
        assert_eq!(turns.begin("a", 1), Some(1));
        assert_eq!(turns.begin("a", 2), None);
        assert_eq!(turns.begin("b", 3), Some(3), "others wait for nobody");
        assert_eq!(turns.begin("a", 4), None);
        assert_eq!(turns.end("a"), Some(2));
        assert_eq!(turns.end("a"), Some(4));
        assert_eq!(turns.end("a"), None);
        assert_eq!(turns.end("b"), None);
        assert!(turns.waiting.is_empty(), "nothing is kept of pods that are done with");
    }
}
