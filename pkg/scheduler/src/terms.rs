//! Who is near whom: counts of pods per topology domain, kept up to date as pods come and go.
//!
//! ```text
//! a pod that asks:   Tally  how many pods that match me stand in each domain
//! a pod that is:     Held   how many pods in each domain would not have me there, or would rather
//! ```
//!
//! A tally exists while a class of pods asks for it, and a held term while pods that carry it exist. Placing or removing a pod
//! changes one number in each that it matches; no decision ever walks over pods. When nodes change their labels, counts
//! are made anew before their next use.

use crate::rules::NodeRules;
use crate::slab::Slab;
use crate::wire;
use api::selector::{LabelSelector, Labels};
use serde_json::json;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// The domain of a node that lacks the label.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Which pods are meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Matcher {
    /// All of them must hold.
    pub parts: Vec<Part>,
}

/// Pods of some namespaces with some labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    namespaces: Vec<String>,
    namespace_selector: Option<LabelSelector>,
    selectors: Vec<LabelSelector>,
}

/// The labels of namespaces, by name.
pub(crate) type Namespaces = HashMap<String, Labels>;

impl Part {
    /// A term of pod affinity, as a pod with these labels in this namespace means it.
    pub(crate) fn of_term(term: &wire::PodTerm, namespace: &str, labels: &wire::Map) -> Part {
        let mut namespaces = term.namespaces.clone();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(namespace.to_owned());
        }
        namespaces.sort_unstable();
        let mut selectors = vec![parse(&term.label_selector)];
        selectors.extend(keyed(&term.match_label_keys, labels, "In"));
        selectors.extend(keyed(&term.mismatch_label_keys, labels, "NotIn"));
        Part { namespaces, namespace_selector: term.namespace_selector.as_ref().map(parse), selectors }
    }

    /// Pods of one namespace.
    pub(crate) fn in_namespace(namespace: &str, selectors: Vec<LabelSelector>) -> Part {
        Part { namespaces: vec![namespace.to_owned()], namespace_selector: None, selectors }
    }

    fn matches(&self, namespace: &str, labels: &Labels, namespaces: &Namespaces) -> bool {
        let is_here = self.namespaces.iter().any(|name| name == namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| {
                namespaces
                    .get(namespace)
                    .map_or_else(|| selector.matches(&Labels::default()), |labels| selector.matches(labels))
            });
        is_here && self.selectors.iter().all(|selector| selector.matches(labels))
    }
}

impl Matcher {
    pub(crate) fn one(part: Part) -> Matcher {
        Matcher { parts: vec![part] }
    }

    pub(crate) fn matches(&self, namespace: &str, labels: &Labels, namespaces: &Namespaces) -> bool {
        self.parts.iter().all(|part| part.matches(namespace, labels, namespaces))
    }

    /// Whether it depends on the labels of namespaces.
    pub(crate) fn looks_at_namespaces(&self) -> bool {
        self.parts.iter().any(|part| part.namespace_selector.is_some())
    }
}

/// A selector of an object. One that was not understood matches nothing.
pub(crate) fn parse(selector: &serde_json::Value) -> LabelSelector {
    LabelSelector::from_json(selector).unwrap_or_else(|_| LabelSelector::nothing())
}

/// Selectors for the labels that an asking pod wants shared, or not shared, with it.
pub(crate) fn keyed(keys: &[String], labels: &wire::Map, operator: &str) -> Vec<LabelSelector> {
    let selector = |key: &String| {
        let value = labels.get(key)?;
        let expression = json!({"key": key, "operator": operator, "values": [value]});
        Some(parse(&json!({"matchExpressions": [expression]})))
    };
    keys.iter().filter_map(selector).collect()
}

/// The values of a label of nodes.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    pub key: String,
    /// By node; [`NOWHERE`] without the label.
    pub domain_of: Vec<u32>,
    values: HashMap<String, u32>,
}

impl Topology {
    pub(crate) fn domain(&self, node: u32) -> u32 {
        self.domain_of.get(node as usize).copied().unwrap_or(NOWHERE)
    }

    /// Notes a node's value. Returns whether it changed.
    pub(crate) fn set(&mut self, node: u32, value: Option<&str>) -> bool {
        let domain = match value {
            None => NOWHERE,
            Some(value) => match self.values.get(value) {
                Some(domain) => *domain,
                None => {
                    let domain = self.values.len() as u32;
                    self.values.insert(value.to_owned(), domain);
                    domain
                }
            },
        };
        let node = node as usize;
        if self.domain_of.len() <= node {
            self.domain_of.resize(node + 1, NOWHERE);
        }
        std::mem::replace(&mut self.domain_of[node], domain) != domain
    }

    /// How many values were ever seen.
    pub(crate) fn domains(&self) -> usize {
        self.values.len()
    }
}

/// What a tally counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TallySpec {
    pub matcher: Matcher,
    pub topology: u32,
    /// For spreading: leaves out pods that are going, and nodes that are not eligible.
    pub scope: Option<Scope>,
}

/// Which nodes count for spreading.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// Nodes must have all these labels.
    pub topologies: Vec<u32>,
    /// Whose selector and affinity must hold, if honoured.
    pub rules: Option<NodeRules>,
    /// Whose tolerations must cover the node's taints, if honoured.
    pub tolerations: Option<Vec<wire::Toleration>>,
}

/// How many pods match in each domain.
#[derive(Debug)]
pub(crate) struct Tally {
    pub spec: Arc<TallySpec>,
    /// By domain.
    pub counts: Vec<u32>,
    pub total: u64,
    /// How many eligible nodes each domain has; only with a scope.
    pub present: Vec<u32>,
    /// By node; only with a scope.
    pub eligible: Vec<bool>,
    /// The [`Epochs`] for which the counts hold.
    pub built: Option<Epochs>,
    users: u32,
}

/// A term that pods carry, seen by the pods it is about.
#[derive(Debug)]
pub(crate) struct Held {
    pub spec: Arc<HeldSpec>,
    /// By domain: how many pods there refuse a pod that matches.
    pub refusing: Vec<u32>,
    /// By domain: the sum of the weights, positive for affinity and negative for anti-affinity.
    pub weight: Vec<i64>,
    pub refusing_total: u64,
    pub weighing_total: u64,
    pub built: Option<Epochs>,
    users: u32,
}

/// What a held term is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HeldSpec {
    pub matcher: Matcher,
    pub topology: u32,
}

/// When what counts depend on last changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Epochs {
    /// A node with pods changed its domain.
    pub domains: u64,
    /// Any node changed what rules look at.
    pub nodes: u64,
}

/// All topologies, tallies and held terms.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    pub topologies: Vec<Topology>,
    pub tallies: Slab<Tally>,
    pub held: Slab<Held>,
    pub epochs: Epochs,
    tally_ids: HashMap<Arc<TallySpec>, u32>,
    held_ids: HashMap<Arc<HeldSpec>, u32>,
}

impl Terms {
    /// The number of a topology key. `label_of` gives the label of every node, for a key that is new.
    pub(crate) fn topology<'a>(&mut self, key: &str, nodes: impl Iterator<Item = (u32, &'a Labels)>) -> u32 {
        if let Some(id) = self.topologies.iter().position(|topology| topology.key == key) {
            return id as u32;
        }
        let mut topology = Topology { key: key.to_owned(), ..Topology::default() };
        for (node, labels) in nodes {
            topology.set(node, labels.get(key));
        }
        self.topologies.push(topology);
        (self.topologies.len() - 1) as u32
    }

    /// Asks for a tally; whether it is new is for the caller to note in the classes it matches.
    pub(crate) fn ask(&mut self, spec: TallySpec) -> (u32, bool) {
        if let Some(id) = self.tally_ids.get(&spec) {
            self.tallies[*id].users += 1;
            return (*id, false);
        }
        let spec = Arc::new(spec);
        let id = self.tallies.insert(Tally {
            spec: spec.clone(),
            counts: Vec::new(),
            total: 0,
            present: Vec::new(),
            eligible: Vec::new(),
            built: None,
            users: 1,
        });
        self.tally_ids.insert(spec, id);
        (id, true)
    }

    /// Gives a tally back; true if it is gone.
    pub(crate) fn release(&mut self, id: u32) -> bool {
        self.tallies[id].users -= 1;
        let is_unused = self.tallies[id].users == 0;
        if is_unused && let Some(tally) = self.tallies.remove(id) {
            self.tally_ids.remove(&tally.spec);
        }
        is_unused
    }

    /// Notes that a class carries a term.
    pub(crate) fn hold(&mut self, spec: HeldSpec) -> (u32, bool) {
        if let Some(id) = self.held_ids.get(&spec) {
            self.held[*id].users += 1;
            return (*id, false);
        }
        let spec = Arc::new(spec);
        let id = self.held.insert(Held {
            spec: spec.clone(),
            refusing: Vec::new(),
            weight: Vec::new(),
            refusing_total: 0,
            weighing_total: 0,
            built: None,
            users: 1,
        });
        self.held_ids.insert(spec, id);
        (id, true)
    }

    /// Notes that a class that carried a term is gone; true if the term is.
    pub(crate) fn let_go(&mut self, id: u32) -> bool {
        self.held[id].users -= 1;
        let is_unused = self.held[id].users == 0;
        if is_unused && let Some(held) = self.held.remove(id) {
            self.held_ids.remove(&held.spec);
        }
        is_unused
    }
}

impl Tally {
    /// Whether the counts hold at these epochs.
    pub(crate) fn is_fresh(&self, epochs: Epochs) -> bool {
        self.built.is_some_and(|built| {
            built.domains == epochs.domains && (self.spec.scope.is_none() || built.nodes == epochs.nodes)
        })
    }

    pub(crate) fn at(&self, domain: u32) -> u32 {
        self.counts.get(domain as usize).copied().unwrap_or(0)
    }

    /// Counts one pod more or less.
    pub(crate) fn add(&mut self, node: u32, domain: u32, is_going: bool, by: i32) {
        let is_counted = match &self.spec.scope {
            None => true,
            Some(_) => !is_going && self.eligible.get(node as usize).copied().unwrap_or(false),
        };
        if domain == NOWHERE || !is_counted {
            return;
        }
        let count = slot(&mut self.counts, domain);
        *count = count.wrapping_add_signed(by);
        self.total = self.total.wrapping_add_signed(i64::from(by));
    }

    /// The fewest in any domain that has eligible nodes, and how many such domains there are.
    pub(crate) fn fewest(&self) -> (u32, u32) {
        let mut fewest = (u32::MAX, 0);
        for (domain, nodes) in self.present.iter().enumerate() {
            if *nodes > 0 {
                fewest = (fewest.0.min(self.at(domain as u32)), fewest.1 + 1);
            }
        }
        fewest
    }
}

impl Held {
    pub(crate) fn is_fresh(&self, epochs: Epochs) -> bool {
        self.built.is_some_and(|built| built.domains == epochs.domains)
    }

    pub(crate) fn refusing_at(&self, domain: u32) -> u32 {
        self.refusing.get(domain as usize).copied().unwrap_or(0)
    }

    pub(crate) fn weight_at(&self, domain: u32) -> i64 {
        self.weight.get(domain as usize).copied().unwrap_or(0)
    }

    /// Counts one pod that carries the term, more or less.
    pub(crate) fn add(&mut self, domain: u32, refuses: bool, weight: i64, by: i32) {
        if domain == NOWHERE {
            return;
        }
        if refuses {
            let refusing = slot(&mut self.refusing, domain);
            *refusing = refusing.wrapping_add_signed(by);
            self.refusing_total = self.refusing_total.wrapping_add_signed(i64::from(by));
        }
        if weight != 0 {
            *slot(&mut self.weight, domain) += weight * i64::from(by);
            self.weighing_total = self.weighing_total.wrapping_add_signed(i64::from(by));
        }
    }
}

fn slot<T: Default + Clone>(list: &mut Vec<T>, index: u32) -> &mut T {
    let index = index as usize;
    if list.len() <= index {
        list.resize(index + 1, T::default());
    }
    &mut list[index]
}
