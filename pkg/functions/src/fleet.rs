//! All functions that are called or have pods: who waits, which pods there are, and what is to be done next. Synchronous:
//! each event is one method, and leaves [`Action`]s behind.
//!
//! ```text
//! Desk: one function ── waiting: calls without a pod, in order
//!                    └─ pods: Starting, Ready (so many calls under way), Draining
//! ```

mod desk;

use crate::definition::Definition;
use crate::link::Link;
use crate::pod::PodKey;
use bytes::Bytes;
use client::Key;
use desk::{Desk, Slot};
use http::StatusCode;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Why a function's pod, or a call, failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A word for programs.
    pub reason: String,
    /// A sentence for people, and a traceback.
    pub message: String,
}

impl Fault {
    /// One with a reason and a message.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault { reason: reason.into(), message: message.into() }
    }

    /// What a runtime said.
    pub fn said(text: &Bytes) -> Fault {
        let said: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        let (reason, message, traceback) = (text("error"), text("message"), text("traceback"));
        let message = if traceback.is_empty() { message } else { format!("{message}\n{traceback}") };
        if reason.is_empty() {
            return Fault::new("Failed", "the pod answered with something that no runtime says");
        }
        Fault { reason, message }
    }
}

/// Why a call was not made.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// How HTTP says it.
    pub status: StatusCode,
    /// What there is to say.
    pub fault: Fault,
    /// When it may be tried again.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// One that need not be tried again.
    pub fn new(status: StatusCode, reason: &str, message: impl Into<String>) -> Refusal {
        Refusal { status, fault: Fault::new(reason, message), retry_after: None }
    }

    /// One that may be tried again.
    pub fn for_now(status: StatusCode, reason: &str, message: impl Into<String>) -> Refusal {
        Refusal { retry_after: Some(Duration::from_secs(1)), ..Refusal::new(status, reason, message) }
    }
}

/// A place in a pod.
pub struct Granted {
    /// The pod.
    pub link: Arc<Link>,
    /// Whether the pod started while the call waited.
    pub is_cold: bool,
}

/// What a call gets.
pub enum Place {
    /// A pod, at once.
    Granted(Granted),
    /// A pod or a refusal, later.
    Waiting(oneshot::Receiver<Result<Granted, Refusal>>),
}

/// How a call ended, as far as its pod is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The pod is free again, after so long.
    Answered(Duration),
    /// It never began.
    NotSent,
    /// The pod still works on it, or nobody knows what it does.
    Lost,
}

/// What is to be done outside.
pub enum Action {
    /// Make the pod, and open the way to it.
    Create(Arc<Link>),
    /// Open the way to a pod that is there.
    Open(Arc<Link>),
    /// Delete a pod; at once, if nothing that it does matters any more.
    Delete {
        /// Which.
        pod: Key,
        /// Without waiting for it to end by itself.
        at_once: bool,
    },
    /// Something about the function has changed that its status should say.
    Report(Key),
}

/// What a function's status says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Pods that do not end.
    pub replicas: usize,
    /// Those that take calls.
    pub ready: usize,
}

/// All functions that are called or have pods.
pub struct Fleet {
    desks: HashMap<Key, Desk>,
    faults: HashMap<Key, (String, Fault)>,
    actions: Vec<Action>,
    /// Pods that are being deleted, and are not to be taken on again.
    leaving: HashSet<Key>,
    keys: PodKey,
    most_per_namespace: usize,
}

impl Fleet {
    /// None yet. `most_per_namespace` is how many pods the functions of a namespace may have.
    pub fn new(keys: PodKey, most_per_namespace: usize) -> Fleet {
        let (desks, faults, actions, leaving) = Default::default();
        Fleet { desks, faults, actions, leaving, keys, most_per_namespace }
    }

    /// What is to be done because of what has happened.
    pub fn take_actions(&mut self) -> Vec<Action> {
        let actions = std::mem::take(&mut self.actions);
        self.leaving.extend(actions.iter().filter_map(|action| match action {
            Action::Delete { pod, .. } => Some(pod.clone()),
            _ => None,
        }));
        actions
    }

    /// Nothing of a pod is left.
    pub fn is_gone(&mut self, pod: &Key) {
        self.leaving.remove(pod);
    }

    /// A function is new, or another than before.
    pub fn defined(&mut self, definition: Arc<Definition>, now: Instant) {
        let key = definition.desk.clone();
        if self.faults.get(&key).is_some_and(|(revision, _)| *revision != definition.revision) {
            self.faults.remove(&key);
        }
        if self.desks.contains_key(&key) || definition.bounds().min > 0 {
            let desk = self.desks.entry(key.clone()).or_insert_with(|| Desk::new(definition.clone(), now));
            desk.define(definition.clone(), now, &mut self.actions);
            self.plan(&key, now);
        }
        self.actions.push(Action::Report(definition.key.clone()));
    }

    /// A function is gone, and everything of it goes.
    pub fn undefined(&mut self, key: &Key) {
        let refusal =
            Refusal::new(StatusCode::NOT_FOUND, "NotFound", format!("function {:?} was deleted", key.name));
        for mut desk in self.desks.extract_if(|_, desk| desk.definition.key == *key).map(|(_, desk)| desk) {
            self.faults.remove(&desk.definition.desk);
            desk.refuse_all(&refusal);
            desk.remove_all(&mut self.actions);
        }
        self.faults.remove(key);
    }

    /// A call: a pod that takes it, or a place in the queue.
    ///
    /// # Errors
    ///
    /// Why there is neither.
    pub fn call(&mut self, definition: &Arc<Definition>, now: Instant) -> Result<Place, Refusal> {
        let key = &definition.desk;
        let desk = self.desks.entry(key.clone()).or_insert_with(|| Desk::new(definition.clone(), now));
        let place = desk.call(now);
        if matches!(place, Ok(Place::Waiting(_))) {
            self.plan(key, now);
        }
        place
    }

    /// A call has ended.
    pub fn ended(&mut self, link: &Arc<Link>, outcome: Outcome, now: Instant) {
        let key = &link.definition.desk;
        if let Some(desk) = self.desks.get_mut(key) {
            desk.ended(&link.pod, outcome, now, &mut self.actions);
            self.plan(key, now);
        }
    }

    /// A place in each pod that takes calls, whatever else it does: to ask what it holds.
    pub fn everywhere(&mut self, function: &Key, now: Instant) -> Vec<Granted> {
        let of_function = self.desks.values_mut().filter(|desk| desk.definition.key == *function);
        of_function.flat_map(|desk| desk.everywhere(now)).collect()
    }

    /// A pod takes calls.
    pub fn ready(&mut self, link: &Arc<Link>, now: Instant) {
        let key = &link.definition.desk;
        if let Some(desk) = self.desks.get_mut(key) {
            self.faults.remove(key);
            desk.ready(&link.pod, now);
            self.actions.push(Action::Report(link.definition.key.clone()));
            self.plan(key, now);
        }
    }

    /// A pod will never take calls: whoever waits is told why, and the pod goes.
    pub fn failed(&mut self, link: &Arc<Link>, fault: Fault, now: Instant) {
        let key = &link.definition.desk;
        let Some(desk) = self.desks.get_mut(key) else { return };
        let Some(slot) = desk.take(&link.pod) else { return };
        if slot.is_live() {
            self.faults.insert(key.clone(), (link.definition.revision.clone(), fault.clone()));
            desk.start_failed(now);
            if !desk.has_ready() {
                desk.refuse_all(&Refusal {
                    status: StatusCode::INTERNAL_SERVER_ERROR,
                    fault,
                    retry_after: None,
                });
            }
        }
        self.actions.push(Action::Delete { pod: link.pod.clone(), at_once: true });
        self.actions.push(Action::Report(link.definition.key.clone()));
        self.plan(key, now);
    }

    /// A pod has ended, is being deleted by somebody, or is gone.
    /// Whether that is news.
    pub fn left(&mut self, function: &Key, pod: &Key, has_ended: bool, now: Instant) -> bool {
        let Some(desk) = self.desks.values_mut().find(|desk| desk.has(function, pod)) else { return false };
        let is_news = desk.left(pod, has_ended);
        if is_news {
            let key = desk.definition.desk.clone();
            self.actions.push(Action::Report(function.clone()));
            self.plan(&key, now);
        }
        is_news
    }

    /// The way to a pod, if it is one of ours.
    pub fn link(&self, function: &Key, pod: &Key) -> Option<Arc<Link>> {
        let desk = self.desks.values().find(|desk| desk.has(function, pod))?;
        desk.slot(pod).map(|slot| slot.link.clone())
    }

    /// The way to the pod with this hash of its token, if one of ours that starts has it.
    pub fn link_of(&self, token_hash: &str) -> Option<Arc<Link>> {
        let links = self.desks.values().flat_map(Desk::starting);
        links.into_iter().find(|link| link.token_hash() == token_hash)
    }

    /// A pod of a function that nobody here has made: of who led before. It is taken on if it is of the present revision.
    pub fn found(&mut self, definition: Option<Arc<Definition>>, pod: &Key, revision: &str, now: Instant) {
        if self.leaving.contains(pod) {
            return;
        }
        let Some(definition) = definition.filter(|definition| definition.revision == revision) else {
            self.actions.push(Action::Delete { pod: pod.clone(), at_once: false });
            return;
        };
        let link = self.new_link(&definition, pod.clone());
        let desk = self.desks.entry(definition.desk.clone()).or_insert_with(|| Desk::new(definition, now));
        desk.add(link.clone(), now);
        self.actions.push(Action::Open(link));
    }

    /// Looks at functions that it is time for. When to look again.
    pub fn look(&mut self, now: Instant) -> Option<Instant> {
        let is_due = |desk: &Desk| desk.look_again.is_some_and(|at| at <= now);
        let due: Vec<Key> =
            self.desks.iter().filter(|(_, desk)| is_due(desk)).map(|(key, _)| key.clone()).collect();
        due.iter().for_each(|key| self.plan(key, now));
        self.desks.values().filter_map(|desk| desk.look_again).min()
    }

    /// What a function's status says.
    pub fn counts(&self, key: &Key) -> (Counts, Option<Fault>) {
        let of_function = self.desks.values().filter(|desk| desk.definition.key == *key).map(Desk::counts);
        let counts = of_function.fold(Counts::default(), |sum, counts| Counts {
            replicas: sum.replicas + counts.replicas,
            ready: sum.ready + counts.ready,
        });
        (counts, self.faults.get(key).map(|(_, fault)| fault.clone()))
    }

    /// Why nothing of a function runs yet, as far as its pods say.
    pub fn why_not(&self, key: &Key) -> Option<String> {
        let links = self.desks.get(key)?.starting();
        links.into_iter().find_map(|link| link.note.lock().clone())
    }

    fn new_link(&self, definition: &Arc<Definition>, pod: Key) -> Arc<Link> {
        let token = self.keys.token(&pod.namespace, &pod.name);
        Arc::new(Link::new(pod, definition.clone(), token))
    }

    fn plan(&mut self, key: &Key, now: Instant) {
        let in_namespace = self.desks.iter().filter(|(other, _)| other.namespace == key.namespace);
        let used: usize = in_namespace.map(|(_, desk)| desk.counts().replicas).sum();
        let room = self.most_per_namespace.saturating_sub(used);
        let Some(desk) = self.desks.get_mut(key) else { return };
        let create = desk.plan(now, &mut self.actions);
        let definition = desk.definition.clone();
        if create > room && desk.counts().replicas == 0 {
            let message = format!(
                "the functions of namespace {:?} have {} pods already, which is as many as they may",
                key.namespace, self.most_per_namespace
            );
            desk.refuse_all(&Refusal::for_now(StatusCode::SERVICE_UNAVAILABLE, "TooManyPods", message));
        }
        for _ in 0..create.min(room) {
            let name = format!("{}-{}-{}", definition.key.name, definition.revision, suffix());
            let link = self.new_link(&definition, Key::new(key.namespace.clone(), name));
            link.times.lock().wanted = Some(now);
            let desk = self.desks.get_mut(key).expect("planned above");
            desk.add(link.clone(), now);
            self.actions.extend([Action::Create(link), Action::Report(definition.key.clone())]);
        }
        if self.desks.get(key).is_some_and(Desk::is_idle) {
            self.desks.remove(key);
            self.actions.push(Action::Report(definition.key.clone()));
        }
    }
}

fn suffix() -> String {
    (0..5).map(|_| fastrand::alphanumeric().to_ascii_lowercase()).collect()
}

impl Slot {
    fn is_live(&self) -> bool {
        self.phase != crate::scale::Phase::Draining
    }
}

#[cfg(test)]
mod tests;
