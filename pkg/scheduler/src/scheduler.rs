//! Cluster and queue together: events go in, decisions come out. Without a connection and without a clock.

use crate::cluster::{Cluster, NodeId, PodChange, PodId, key};
use crate::place::{Profile, Search};
use crate::preempt::Victim;
use crate::queue::{Queue, Waiting};
use crate::reasons::plugin;
use crate::volumes::ClaimAction;
use crate::wire;
use std::collections::{HashMap, HashSet};

/// The kinds of objects that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Kind {
    Pod,
    Node,
    Namespace,
    Service,
    ReplicaSet,
    StatefulSet,
    ReplicationController,
    Budget,
    Claim,
    Volume,
    StorageClass,
    CsiNode,
}

/// An object as it is now.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Object {
    Pod(Box<wire::Pod>),
    Node(Box<wire::Node>),
    Namespace(wire::Labelled),
    Selecting(Kind, wire::Selecting),
    Claim(wire::Claim),
    Volume(Box<wire::PersistentVolume>),
    StorageClass(wire::StorageClass),
    CsiNode(wire::CsiNode),
}

/// What a watch tells.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "most events are objects, and none lives long")]
pub enum Event {
    /// An object is as it is.
    Set(Object),
    /// An object is gone: its kind, namespace and name.
    Delete(Kind, String, String),
    /// All objects of a kind follow: what does not is gone.
    Restart(Kind),
    /// All objects of a kind have been told.
    Complete(Kind),
}

/// A pod that a decision is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its number.
    pub pod: PodId,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
    /// Who was to place it.
    pub scheduler: String,
}

/// What is to be done about a pod.
#[derive(Debug)]
pub enum Decision {
    /// Bind it to a node, after this was done about its claims.
    Bind {
        /// The pod.
        target: Target,
        /// The node.
        node: String,
        /// What its claims need.
        claims: Vec<ClaimAction>,
    },
    /// Say why it is on no node.
    Refuse {
        /// The pod.
        target: Target,
        /// Why.
        message: String,
        /// Whether the API must be told: it says something else.
        is_news: bool,
        /// The node where room is made for it; empty if none is any more, nothing if that did not change.
        nominated: Option<String>,
        /// Who must go.
        victims: Vec<Victim>,
        /// Whose reserved place is lost.
        displaced: Vec<Target>,
    },
}

impl Decision {
    /// The pod that it is about.
    pub fn target(&self) -> &Target {
        match self {
            Decision::Bind { target, .. } | Decision::Refuse { target, .. } => target,
        }
    }
}

/// Places pods.
pub struct Scheduler {
    /// What is known.
    pub cluster: Cluster,
    queue: Queue,
    search: Search,
    profiles: HashMap<String, Profile>,
    /// Kinds whose objects are being told anew, with the keys told so far.
    restarting: HashMap<Kind, HashSet<String>>,
    complete: HashSet<Kind>,
    random: fastrand::Rng,
}

impl Scheduler {
    /// A scheduler for pods with these `schedulerName`s. `percent` is the share of nodes that is looked at, zero for
    /// upstream's own choice.
    pub fn new(profiles: HashMap<String, Profile>, percent: usize, seed: u64) -> Scheduler {
        Scheduler {
            cluster: Cluster::new(),
            queue: Queue::default(),
            search: Search { percent, ..Search::default() },
            profiles,
            restarting: HashMap::new(),
            complete: HashSet::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Whether all objects of so many kinds have been told once.
    pub fn has_synced(&self, kinds: usize) -> bool {
        self.complete.len() >= kinds
    }

    /// How many pods wait.
    pub fn waiting(&self) -> Waiting {
        self.queue.waiting()
    }

    /// When there is something to do without an event.
    pub fn due_ms(&self) -> Option<u64> {
        self.queue.due_ms()
    }

    /// Takes over what a watch tells.
    pub fn apply(&mut self, event: Event, now_ms: u64) {
        match event {
            Event::Set(object) => self.set(object, now_ms),
            Event::Delete(kind, namespace, name) => self.delete(kind, &namespace, &name, now_ms),
            Event::Restart(kind) => {
                self.restarting.insert(kind, HashSet::new());
            }
            Event::Complete(kind) => {
                self.complete.insert(kind);
                let Some(told) = self.restarting.remove(&kind) else { return };
                for key in self.known(kind).into_iter().filter(|key| !told.contains(key)) {
                    let (namespace, name) = key.split_once('/').unwrap_or(("", &key));
                    self.delete(kind, namespace, name, now_ms);
                }
            }
        }
    }

    /// The keys of what may have gone while nobody told. Other kinds only influence scores or are found missing when used.
    fn known(&self, kind: Kind) -> Vec<String> {
        match kind {
            Kind::Pod => self.cluster.pod_keys().map(str::to_owned).collect(),
            Kind::Node => self.cluster.node_names().map(|name| key("", name)).collect(),
            Kind::Budget => self.cluster.budgets.keys().cloned().collect(),
            Kind::Claim => self.cluster.volumes.claim_keys().collect(),
            Kind::Volume => self.cluster.volumes.names().map(|name| key("", name)).collect(),
            _ => Vec::new(),
        }
    }

    fn set(&mut self, object: Object, now_ms: u64) {
        let (kind, meta) = object.identity();
        if let Some(told) = self.restarting.get_mut(&kind) {
            told.insert(key(&meta.namespace, &meta.name));
        }
        match object {
            Object::Pod(pod) => {
                let change = self.cluster.set_pod(*pod);
                self.pod_changed(change, now_ms);
            }
            Object::Node(node) => {
                let (node, change) = self.cluster.set_node(*node);
                if change.may_help() {
                    self.wake_for(node, now_ms);
                }
            }
            Object::Namespace(namespace) => {
                if self.cluster.set_namespace(namespace) {
                    self.wake(plugin::POD_AFFINITY, now_ms);
                }
            }
            Object::Selecting(Kind::Service, service) => self.cluster.set_service(service),
            Object::Selecting(Kind::Budget, budget) => self.cluster.set_budget(budget),
            Object::Selecting(kind, set) => self.cluster.set_set(kind.name(), set),
            Object::Claim(claim) => {
                let (namespace, name) = (claim.metadata.namespace.clone(), claim.metadata.name.clone());
                if self.cluster.set_claim(claim) {
                    self.wake_users(&namespace, &name, now_ms);
                }
            }
            Object::Volume(volume) => {
                self.cluster.set_volume(*volume);
                self.wake(plugin::VOLUMES, now_ms);
            }
            Object::StorageClass(class) => {
                self.cluster.set_storage_class(class);
                self.wake(plugin::VOLUMES | plugin::CLAIMS, now_ms);
            }
            Object::CsiNode(node) => {
                self.cluster.set_csi_node(node);
                self.wake(plugin::VOLUMES, now_ms);
            }
        }
    }

    fn delete(&mut self, kind: Kind, namespace: &str, name: &str, now_ms: u64) {
        let key = key(namespace, name);
        match kind {
            Kind::Pod => {
                let change = self.cluster.delete_pod(&key);
                self.pod_changed(change, now_ms);
            }
            Kind::Node => {
                self.cluster.delete_node(name);
                self.wake(plugin::SPREAD, now_ms);
            }
            Kind::Namespace => self.cluster.delete_namespace(name),
            Kind::Service => self.cluster.delete_service(namespace, name),
            Kind::Budget => self.cluster.delete_budget(&key),
            Kind::Claim => self.cluster.delete_claim(&key),
            Kind::Volume => self.cluster.delete_volume(name),
            Kind::StorageClass => self.cluster.delete_storage_class(name),
            Kind::CsiNode => self.cluster.delete_csi_node(name),
            Kind::ReplicaSet | Kind::StatefulSet | Kind::ReplicationController => {
                self.cluster.delete_set(kind.name(), &key);
            }
        }
    }

    fn pod_changed(&mut self, change: Option<PodChange>, now_ms: u64) {
        let Some(change) = change else { return };
        if !change.is_known {
            self.queue.remove(change.pod);
            if let Some(node) = change.was_on {
                self.wake_for(node, now_ms);
            }
            return;
        }
        match (change.was_on, change.is_on) {
            (None, None) => self.pending(change),
            (Some(node), Some(_)) if change.spec || change.going => {
                // It may ask for less than before, or no longer count.
                self.wake_for(node, now_ms);
            }
            (was_on, Some(_)) => {
                self.queue.remove(change.pod);
                if was_on.is_none() {
                    self.wake_friends(change.pod, now_ms);
                }
            }
            (Some(node), None) => self.wake_for(node, now_ms),
        }
    }

    fn pending(&mut self, change: PodChange) {
        let pod = &self.cluster.pods[change.pod];
        let spec = &self.cluster.classes[pod.class].key.spec;
        let is_ours = self.profiles.contains_key(&spec.scheduler_name);
        if pod.is_going || !spec.scheduling_gates.is_empty() || !is_ours {
            self.queue.remove(change.pod);
        } else if change.spec || !self.queue.holds(change.pod) {
            self.queue.add(change.pod, spec.priority);
        }
    }

    /// The next decision, if a pod is to be tried.
    pub fn next(&mut self, now_ms: u64) -> Option<Decision> {
        let pod = self.queue.pop(now_ms)?;
        let scheduler = self.cluster.class_of(pod).key.spec.scheduler_name.clone();
        let profile = self.profiles.get(&scheduler).copied().unwrap_or_default();
        let target = self.target(pod);
        let refusal = match self.cluster.place(pod, profile, &mut self.search) {
            Ok(node) => return Some(self.bind(target, node, now_ms)),
            Err(refusal) => refusal,
        };
        self.queue.refused(pod, refusal.plugins);
        let had_nomination = self.cluster.pods[pod].nominated.is_some();
        let mut message = refusal.message.clone();
        let (mut nominated, mut victims, mut displaced) = (None, Vec::new(), Vec::new());
        if !refusal.is_final {
            let offset = self.random.usize(..refusal.candidates.len().max(1));
            match self.cluster.preempt(pod, &refusal, offset) {
                Ok(preemption) => {
                    let node = self.cluster.node_name(preemption.node).to_owned();
                    for other in preemption.displaced {
                        self.cluster.nominate(other, None);
                        displaced.push(self.target(other));
                    }
                    self.cluster.nominate(pod, Some(&node));
                    victims = preemption.victims;
                    nominated = Some(node);
                }
                Err(why) => {
                    if had_nomination && !why.starts_with("preemption: not eligible") {
                        self.cluster.nominate(pod, None);
                        nominated = Some(String::new());
                    }
                    message = format!("{message} {why}");
                }
            }
        }
        if !displaced.is_empty() {
            let displaced: HashSet<PodId> = displaced.iter().map(|target| target.pod).collect();
            self.queue.wake(now_ms, |pod, _| displaced.contains(&pod));
        }
        let said = &self.cluster.pods[pod].said;
        let is_news = nominated.is_some()
            || !said.as_ref().is_some_and(|said| said.0 == "Unschedulable" && said.1 == message);
        Some(Decision::Refuse { target, message, is_news, nominated, victims, displaced })
    }

    fn bind(&mut self, target: Target, node: NodeId, now_ms: u64) -> Decision {
        let class = self.cluster.pods[target.pod].class;
        let claims = self.cluster.claim_actions(class, node);
        self.cluster.assume(target.pod, node);
        self.wake_friends(target.pod, now_ms);
        Decision::Bind { target, node: self.cluster.node_name(node).to_owned(), claims }
    }

    /// What became of a binding. The pod may be gone by now, and its number another's.
    pub fn bound(&mut self, target: &Target, claims: &[ClaimAction], outcome: Outcome, now_ms: u64) {
        let is_same = self.cluster.pods.get(target.pod).is_some_and(|record| *record.uid == *target.uid);
        if outcome != Outcome::Bound {
            self.cluster.unpromise(claims);
        }
        if !is_same {
            return;
        }
        match outcome {
            Outcome::Bound => self.queue.remove(target.pod),
            Outcome::Failed | Outcome::Waits => {
                let was_on = self.cluster.node_of(target.pod);
                self.cluster.forget(target.pod);
                if self.cluster.node_of(target.pod).is_some() {
                    // The API has placed it meanwhile.
                    self.queue.remove(target.pod);
                    return;
                }
                // The others: what it leaves is no news to itself.
                was_on.into_iter().for_each(|node| self.wake_for(node, now_ms));
                if outcome == Outcome::Failed {
                    self.queue.failed(target.pod);
                } else {
                    self.queue.refused(target.pod, plugin::CLAIMS);
                }
            }
        }
    }

    fn target(&self, pod: PodId) -> Target {
        let record = &self.cluster.pods[pod];
        let class = &self.cluster.classes[record.class].key;
        Target {
            pod,
            namespace: class.namespace.clone(),
            name: record.name.to_string(),
            uid: record.uid.to_string(),
            generation: record.generation,
            scheduler: class.spec.scheduler_name.clone(),
        }
    }

    fn wake(&mut self, plugins: u32, now_ms: u64) {
        self.queue.wake(now_ms, |_, refused_by| refused_by & plugins != 0);
    }

    /// A claim has changed: those that use it may be helped.
    fn wake_users(&mut self, namespace: &str, claim: &str, now_ms: u64) {
        let cluster = &self.cluster;
        self.queue.wake(now_ms, |pod, refused_by| {
            let class = cluster.class_of(pod);
            refused_by & (plugin::VOLUMES | plugin::CLAIMS) != 0
                && class.key.namespace == namespace
                && class.claims.iter().any(|used| used == claim)
        });
    }

    /// A node is new or changed, or a pod left it or counts for less there. Where only the node itself decided, the pod is
    /// tried again only if it would fit there now. Equivalent pods are asked about once.
    fn wake_for(&mut self, node: NodeId, now_ms: u64) {
        if !self.queue.has_unschedulable() {
            return;
        }
        let cluster = &mut self.cluster;
        let mut by_class: HashMap<u32, bool> = HashMap::new();
        self.queue.wake(now_ms, |pod, refused_by| {
            if refused_by == plugin::CLAIMS {
                return false;
            }
            if refused_by & !plugin::LOCAL != 0 {
                return true;
            }
            let class = cluster.pods[pod].class;
            if cluster.waits_for(pod, node) {
                // The place that is kept for it is not in its own way.
                return cluster.would_fit(pod, node);
            }
            *by_class.entry(class).or_insert_with(|| cluster.would_fit(pod, node))
        });
    }

    /// A pod was placed: those may be helped that want to be near it, or to be spread with it.
    fn wake_friends(&mut self, pod: PodId, now_ms: u64) {
        if !self.queue.has_unschedulable() {
            return;
        }
        let cluster = &self.cluster;
        let counted_by = &cluster.class_of(pod).counted_by;
        self.queue.wake(now_ms, |other, refused_by| {
            refused_by != u32::MAX
                && refused_by & (plugin::POD_AFFINITY | plugin::SPREAD) != 0
                && cluster.class_of(other).plan.as_ref().is_some_and(|plan| {
                    let spreads = plan.hard.iter().map(|spread| spread.tally);
                    plan.affinity.iter().copied().chain(spreads).any(|tally| counted_by.contains(&tally))
                })
        });
    }
}

/// What became of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The pod is on its node.
    Bound,
    /// It must be tried again.
    Failed,
    /// Its claims wait for volumes to be made.
    Waits,
}

impl Kind {
    /// The kind's name in the API, for kinds of sets.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Pod => "Pod",
            Kind::Node => "Node",
            Kind::Namespace => "Namespace",
            Kind::Service => "Service",
            Kind::ReplicaSet => "ReplicaSet",
            Kind::StatefulSet => "StatefulSet",
            Kind::ReplicationController => "ReplicationController",
            Kind::Budget => "PodDisruptionBudget",
            Kind::Claim => "PersistentVolumeClaim",
            Kind::Volume => "PersistentVolume",
            Kind::StorageClass => "StorageClass",
            Kind::CsiNode => "CSINode",
        }
    }
}

impl Object {
    fn identity(&self) -> (Kind, &wire::Meta) {
        match self {
            Object::Pod(pod) => (Kind::Pod, &pod.metadata),
            Object::Node(node) => (Kind::Node, &node.metadata),
            Object::Namespace(namespace) => (Kind::Namespace, &namespace.metadata),
            Object::Selecting(kind, selecting) => (*kind, &selecting.metadata),
            Object::Claim(claim) => (Kind::Claim, &claim.metadata),
            Object::Volume(volume) => (Kind::Volume, &volume.metadata),
            Object::StorageClass(class) => (Kind::StorageClass, &class.metadata),
            Object::CsiNode(node) => (Kind::CsiNode, &node.metadata),
        }
    }
}
