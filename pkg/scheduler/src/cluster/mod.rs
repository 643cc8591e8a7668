//! The cluster as the scheduler sees it: slim records, kept up to date event by event.
//!
//! ```text
//! Node <─ Pod ─> Class ─> Plan ─> tallies, verdicts
//! ```
//!
//! It owns no connection and knows no clock. Whatever order events come in, the state is that of one rebuilt from the objects
//! alone (see the tests).

pub(crate) mod class;
pub(crate) mod nodes;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

use crate::answers::Answers;
use crate::requests;
use crate::rules::{Compiled, NodeRules, Verdict};
use crate::slab::Slab;
use crate::terms::{Namespaces, Terms, parse};
use crate::volumes::Volumes;
use crate::wire;
use class::{Carried, Class, ClassKey};
use nodes::Nodes;
use plan::Owners;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use nodes::NodeChange;

/// A pod's number while the cluster knows it.
pub type PodId = u32;
/// A node's number while the cluster knows it.
pub type NodeId = u32;

/// No node.
const NO_NODE: u32 = u32::MAX;

/// A pod: who it is and where. What it asks for is its class'.
#[derive(Debug)]
pub(crate) struct Pod {
    pub class: u32,
    node: u32,
    pub name: Box<str>,
    pub uid: Box<str>,
    /// When it started, in seconds; pods that have not started come last.
    pub started: i64,
    pub is_going: bool,
    /// Whether it is going because another pod needs its place.
    pub is_preempted: bool,
    /// Whether it is on its node only because we decided so.
    is_assumed: bool,
    pub nominated: Option<Box<str>>,
    pub generation: i64,
    /// The reason and message of its condition `PodScheduled`, if that says no.
    pub said: Option<Box<(String, String)>>,
}

/// What an event did to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodChange {
    /// Its number; gone if the pod is.
    pub pod: PodId,
    /// Where it was.
    pub was_on: Option<NodeId>,
    /// Where it is.
    pub is_on: Option<NodeId>,
    /// Whether it was known.
    pub was_known: bool,
    /// Whether it is known still.
    pub is_known: bool,
    /// Whether what decides about its place changed.
    pub spec: bool,
    /// Whether it began to go.
    pub going: bool,
}

/// A budget of pods that may be disrupted.
#[derive(Debug)]
pub(crate) struct Budget {
    pub namespace: String,
    pub selector: api::selector::LabelSelector,
    pub allowed: i32,
    pub disrupted: Vec<String>,
}

/// Verdicts about nodes that equal rules share.
#[derive(Debug)]
pub(crate) struct RuleTable {
    rules: Arc<NodeRules>,
    pub compiled: Compiled,
    /// [`Verdict`] by node.
    pub verdicts: Vec<u8>,
    /// The score of preferences by node; empty if there are none.
    pub preferences: Vec<i64>,
    users: u32,
}

/// Nodes, pods and what binds them.
#[derive(Debug, Default)]
pub struct Cluster {
    pub(crate) nodes: Nodes,
    pub(crate) pods: Slab<Pod>,
    pods_by_key: HashMap<Box<str>, PodId>,
    pub(crate) classes: Slab<Class>,
    class_ids: HashMap<Arc<ClassKey>, u32>,
    pub(crate) rules: Slab<RuleTable>,
    rule_ids: HashMap<Arc<NodeRules>, u32>,
    pub(crate) terms: Terms,
    pub(crate) namespaces: Namespaces,
    pub(crate) owners: Owners,
    pub(crate) volumes: Volumes,
    pub(crate) budgets: BTreeMap<String, Budget>,
    /// Pods that wait for a place on a node, by its name.
    pub(crate) nominations: HashMap<Box<str>, Vec<PodId>>,
    /// How many placed pods each priority has.
    pub(crate) priorities: BTreeMap<i32, u32>,
    /// How often a claim is used by a placed pod.
    pub(crate) claims_in_use: HashMap<String, u32>,
    /// What pods of a class were told at a generation.
    pub(crate) refusals: (u64, HashMap<u32, Arc<crate::place::Refusal>>),
    /// What nodes said, as long as they are as they were.
    pub(crate) answers: Answers,
    /// Changes with everything that a decision depends on.
    pub(crate) generation: u64,
}

impl Cluster {
    /// An empty one.
    pub fn new() -> Cluster {
        Cluster::default()
    }

    /// Takes over a node as it is now.
    pub fn set_node(&mut self, node: wire::Node) -> (NodeId, NodeChange) {
        let (id, change) = self.nodes.set(node);
        if change.added || change.labels || change.taints {
            self.look_again(id);
        }
        if change != NodeChange::default() {
            self.generation += 1;
            self.answers.node_changed(id, &self.nodes);
        }
        if change.added {
            self.answers.clear();
        }
        (id, change)
    }

    /// Forgets a node.
    pub fn delete_node(&mut self, name: &str) {
        let Some(id) = self.nodes.remove(name) else { return };
        self.generation += 1;
        self.answers.clear();
        self.look_again(id);
    }

    /// Makes what was derived from a node anew.
    fn look_again(&mut self, id: NodeId) {
        let node = &self.nodes.list[id as usize];
        let mut is_moved = false;
        for topology in &mut self.terms.topologies {
            let value = if node.exists { node.facts.labels.get(&topology.key) } else { None };
            is_moved |= topology.set(id, value);
        }
        self.terms.epochs.nodes += 1;
        self.terms.epochs.domains += u64::from(is_moved && !node.pods.is_empty());
        for (_, table) in self.rules.iter_mut() {
            table.look_at(id, node);
        }
    }

    /// Takes over a pod as it is now; one that has ended is forgotten.
    pub fn set_pod(&mut self, mut pod: wire::Pod) -> Option<PodChange> {
        let key = key(&pod.metadata.namespace, &pod.metadata.name);
        if matches!(pod.status.phase.as_str(), "Succeeded" | "Failed") {
            return self.delete_pod(&key);
        }
        let known = self.pods_by_key.get(key.as_str()).copied();
        if let Some(id) = known
            && *self.pods[id].uid != *pod.metadata.uid
        {
            // A pod of the same name that is another: events between were missed.
            self.delete_pod(&key);
        }
        let known = known.filter(|id| self.pods.get(*id).is_some());
        let node_name = std::mem::take(&mut pod.spec.node_name);
        requests::count_given(&mut pod);
        let class = self.class(ClassKey::of(&mut pod));
        let id = match known {
            Some(id) => id,
            None => self.add_record(key.into(), &pod, class),
        };
        let was_going = self.pods[id].is_going;
        let was_on = self.pods[id].on();
        let (old_class, is_assumed) = (self.pods[id].class, self.pods[id].is_assumed);
        let is_on = match (node_name.as_str(), was_on) {
            ("", Some(node)) if is_assumed => Some(node),
            ("", _) => None,
            (name, _) => Some(self.nodes.number(name)),
        };
        let is_going = pod.metadata.deletion_timestamp.is_some();
        if was_on != is_on || old_class != class || was_going != is_going {
            self.lift(id);
            self.pods[id].is_going = is_going;
            self.pods[id].class = class;
            self.put(id, is_on);
            was_on.into_iter().for_each(|node| self.nodes.release(node));
        }
        if old_class != class {
            self.nomination_changed(id);
        }
        if known.is_some() {
            self.drop_class(old_class);
        }
        self.take_status(id, &pod, &node_name);
        Some(PodChange {
            pod: id,
            was_on: was_on.filter(|_| known.is_some()),
            is_on,
            was_known: known.is_some(),
            is_known: true,
            spec: known.is_some() && old_class != class,
            going: is_going && !was_going,
        })
    }

    fn add_record(&mut self, key: Box<str>, pod: &wire::Pod, class: u32) -> PodId {
        let id = self.pods.insert(Pod {
            class,
            node: NO_NODE,
            name: pod.metadata.name.as_str().into(),
            uid: pod.metadata.uid.as_str().into(),
            started: i64::MAX,
            is_going: false,
            is_preempted: false,
            is_assumed: false,
            nominated: None,
            generation: 0,
            said: None,
        });
        self.pods_by_key.insert(key, id);
        id
    }

    fn take_status(&mut self, id: PodId, wire: &wire::Pod, node_name: &str) {
        let nominated = Some(wire.status.nominated_node_name.as_str());
        let nominated = nominated.filter(|name| !name.is_empty() && node_name.is_empty());
        self.nominate(id, nominated);
        let conditions = &wire.status.conditions;
        let is_preempted = conditions.iter().any(|condition| {
            condition.kind == "DisruptionTarget"
                && condition.status == "True"
                && condition.reason == "PreemptionByScheduler"
        });
        let said = conditions
            .iter()
            .find(|condition| condition.kind == "PodScheduled" && condition.status == "False")
            .map(|condition| Box::new((condition.reason.clone(), condition.message.clone())));
        let pod = &mut self.pods[id];
        pod.is_preempted = pod.is_going && is_preempted;
        pod.said = said;
        pod.generation = wire.metadata.generation;
        pod.is_assumed &= node_name.is_empty();
        if let Some(started) = &wire.status.start_time {
            let started = started.parse::<jiff::Timestamp>().map_or(i64::MAX, jiff::Timestamp::as_second);
            if std::mem::replace(&mut pod.started, started) != started
                && let Some(node) = pod.on()
            {
                // Who must go first depends on it.
                self.answers.node_changed(node, &self.nodes);
            }
        }
    }

    /// Forgets a pod, by namespace and name.
    pub fn delete_pod(&mut self, key: &str) -> Option<PodChange> {
        let (key, id) = self.pods_by_key.remove_entry(key)?;
        drop(key);
        let was_on = self.pods[id].on();
        self.nominate(id, None);
        self.lift(id);
        if let Some(pod) = self.pods.remove(id) {
            self.drop_class(pod.class);
        }
        was_on.into_iter().for_each(|node| self.nodes.release(node));
        let (is_on, was_known, is_known) = (None, true, false);
        Some(PodChange { pod: id, was_on, is_on, was_known, is_known, spec: false, going: false })
    }

    /// Puts a pod on a node before the API knows.
    pub fn assume(&mut self, id: PodId, node: NodeId) {
        self.put(id, Some(node));
        self.pods[id].is_assumed = true;
        self.nominate(id, None);
    }

    /// Takes a pod that was assumed away again; nothing if the API has confirmed it meanwhile.
    pub fn forget(&mut self, id: PodId) {
        let Some(pod) = self.pods.get(id).filter(|pod| pod.is_assumed) else { return };
        let was_on = pod.on();
        self.lift(id);
        self.pods[id].is_assumed = false;
        was_on.into_iter().for_each(|node| self.nodes.release(node));
    }

    /// Reserves a place for a pod on a node, or gives it up.
    pub fn nominate(&mut self, id: PodId, node: Option<&str>) {
        if self.pods[id].nominated.as_deref() == node {
            return;
        }
        self.generation += 1;
        self.nomination_changed(id);
        if let Some(old) = self.pods[id].nominated.take()
            && let Some(pods) = self.nominations.get_mut(&old)
        {
            pods.retain(|other| *other != id);
            if pods.is_empty() {
                self.nominations.remove(&old);
            }
        }
        if let Some(node) = node {
            self.pods[id].nominated = Some(node.into());
            self.nominations.entry(node.into()).or_default().push(id);
            self.nomination_changed(id);
        }
    }

    /// Whether a place on this node is reserved for the pod.
    pub(crate) fn waits_for(&self, id: PodId, node: NodeId) -> bool {
        self.pods[id].nominated.as_deref().is_some_and(|name| name == self.node_name(node))
    }

    /// Something about a pod that may wait for a place changed.
    fn nomination_changed(&mut self, id: PodId) {
        let node = self.pods[id].nominated.as_deref().and_then(|name| self.nodes.find(name));
        node.into_iter().for_each(|node| self.answers.node_changed(node, &self.nodes));
    }

    /// Places a pod that is nowhere.
    pub(crate) fn put(&mut self, id: PodId, node: Option<NodeId>) {
        let Some(node) = node else { return };
        self.pods[id].node = node;
        self.nodes.list[node as usize].pods.push(id);
        self.account(id, node, 1);
    }

    /// Takes a pod from its node, if it is on one.
    pub(crate) fn lift(&mut self, id: PodId) {
        let Some(node) = self.pods[id].on() else { return };
        self.account(id, node, -1);
        let slot = &mut self.nodes.list[node as usize];
        if let Some(index) = slot.pods.iter().position(|other| *other == id) {
            slot.pods.swap_remove(index);
        }
        self.pods[id].node = NO_NODE;
    }

    /// Counts a pod in or out on a node, everywhere.
    fn account(&mut self, id: PodId, node: NodeId, by: i32) {
        self.generation += 1;
        self.answers.node_changed(node, &self.nodes);
        let pod = &self.pods[id];
        let class = &self.classes[pod.class];
        self.nodes.usage[node as usize].add(class, i64::from(by));
        let slot = &mut self.nodes.list[node as usize];
        for (resource, amount) in &class.others {
            let resource = *resource as usize;
            if slot.others.len() <= resource {
                slot.others.resize(resource + 1, (0, 0));
            }
            slot.others[resource].1 += amount * i64::from(by);
        }
        if !class.ports.is_empty() {
            slot.pods_with_ports = slot.pods_with_ports.wrapping_add_signed(by);
        }
        let epochs = self.terms.epochs;
        let topologies = &self.terms.topologies;
        for tally in &class.counted_by {
            let tally = &mut self.terms.tallies[*tally];
            if tally.is_fresh(epochs) {
                let domain = topologies[tally.spec.topology as usize].domain(node);
                tally.add(node, domain, pod.is_going, by);
            }
        }
        for Carried { held, refuses, weight } in &class.carried {
            let held = &mut self.terms.held[*held];
            if held.is_fresh(epochs) {
                held.add(topologies[held.spec.topology as usize].domain(node), *refuses, *weight, by);
            }
        }
        count(&mut self.priorities, class.key.spec.priority, by);
        for claim in &class.claims {
            let claim = key(&class.key.namespace, claim);
            let users = self.claims_in_use.entry(claim.clone()).or_default();
            *users = users.wrapping_add_signed(by);
            if *users == 0 {
                self.claims_in_use.remove(&claim);
            }
        }
    }

    /// Takes over the labels of a namespace.
    pub fn set_namespace(&mut self, namespace: wire::Labelled) -> bool {
        let labels = namespace.metadata.labels.iter().collect();
        let is_same = self.namespaces.get(&namespace.metadata.name) == Some(&labels);
        self.namespaces.insert(namespace.metadata.name, labels);
        if !is_same {
            self.match_again();
        }
        !is_same
    }

    /// Forgets a namespace.
    pub fn delete_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
        self.match_again();
    }

    /// Takes over a budget.
    pub fn set_budget(&mut self, budget: wire::Selecting) {
        self.answers.clear();
        let key = key(&budget.metadata.namespace, &budget.metadata.name);
        self.budgets.insert(
            key,
            Budget {
                namespace: budget.metadata.namespace,
                selector: parse(&budget.spec.selector),
                allowed: budget.status.disruptions_allowed,
                disrupted: budget.status.disrupted_pods.into_keys().collect(),
            },
        );
    }

    /// Forgets a budget, by namespace and name.
    pub fn delete_budget(&mut self, key: &str) {
        self.answers.clear();
        self.budgets.remove(key);
    }

    /// The number of a pod, by namespace and name.
    pub fn pod(&self, key: &str) -> Option<PodId> {
        self.pods_by_key.get(key).copied()
    }

    /// The keys of all pods.
    pub fn pod_keys(&self) -> impl Iterator<Item = &str> {
        self.pods_by_key.keys().map(|key| &**key)
    }

    /// The names of all nodes that exist.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.order.iter().map(|id| self.node_name(*id))
    }

    /// A node's name.
    pub fn node_name(&self, id: NodeId) -> &str {
        &self.nodes.list[id as usize].facts.name
    }

    /// Where a pod is.
    pub fn node_of(&self, id: PodId) -> Option<NodeId> {
        self.pods.get(id)?.on()
    }

    /// How many nodes exist.
    pub fn node_count(&self) -> usize {
        self.nodes.order.len()
    }

    /// How many pods are known.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    pub(crate) fn class_of(&self, id: PodId) -> &Class {
        &self.classes[self.pods[id].class]
    }
}

impl Pod {
    pub(crate) fn on(&self) -> Option<NodeId> {
        (self.node != NO_NODE).then_some(self.node)
    }
}

impl nodes::Usage {
    pub(crate) fn add(&mut self, class: &Class, by: i64) {
        let requests = &class.requests;
        self.used_pods += by;
        self.used_milli_cpu += requests.amounts.milli_cpu * by;
        self.used_memory += requests.amounts.memory * by;
        self.used_ephemeral += requests.amounts.ephemeral * by;
        self.scored_milli_cpu += requests.scored_milli_cpu * by;
        self.scored_memory += requests.scored_memory * by;
    }
}

impl RuleTable {
    fn look_at(&mut self, id: NodeId, node: &nodes::Node) {
        let id = id as usize;
        if self.verdicts.len() <= id {
            self.verdicts.resize(id + 1, Verdict::Fits as u8);
        }
        self.verdicts[id] = self.compiled.verdict(&node.facts) as u8;
        if self.compiled.has_preferences() {
            if self.preferences.len() <= id {
                self.preferences.resize(id + 1, 0);
            }
            self.preferences[id] = self.compiled.preference(&node.facts);
        }
    }
}

/// The key of a namespaced object.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

fn count(counts: &mut BTreeMap<i32, u32>, key: i32, by: i32) {
    let count = counts.entry(key).or_default();
    *count = count.wrapping_add_signed(by);
    if *count == 0 {
        counts.remove(&key);
    }
}
