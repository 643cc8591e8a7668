//! Making room for a more important pod: which pods must go from which node.
//!
//! ```text
//! a node that lacks room ── without all lesser pods: does it fit? ── give back, the most important first ──> victims
//! of all such nodes: the fewest broken budgets, the least important victims, the fewest, the youngest
//! ```

use crate::cluster::nodes::Usage;
use crate::cluster::{Cluster, NodeId, PodId};
use crate::filter::{View, lacking};
use crate::place::Refusal;
use crate::reasons::{Reason, Tallied};
use std::cmp::Reverse;
use std::collections::HashMap;

/// At least this many nodes are tried, if there are as many.
const LEAST_CANDIDATES: usize = 100;
/// At least this share of the nodes is tried, in percent.
const LEAST_PERCENT: usize = 10;

/// A pod that must go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    /// Its number.
    pub pod: PodId,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Whether it was told to go already.
    pub is_going: bool,
}

/// Room for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemption {
    /// The node.
    pub node: NodeId,
    /// Who must go, the most important first.
    pub victims: Vec<Victim>,
    /// Lesser pods that waited for a place on the node, and need wait no more.
    pub displaced: Vec<PodId>,
}

/// What it takes to make room on a node.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// Who must go, the most important first; empty where nobody need.
    victims: Vec<PodId>,
    cost: Cost,
}

/// What it costs to take a node: broken budgets, the most important victim, all their priorities, their number, and how
/// long the most important have run.
type Cost = (usize, i32, i64, usize, Reverse<i64>);

impl Cluster {
    /// Finds a node where a pod that was refused would fit if lesser pods went, or says why there is none, in the words that
    /// belong into the refusal's message. `offset` is where the search begins.
    pub fn preempt(&mut self, pod: PodId, refusal: &Refusal, offset: usize) -> Result<Preemption, String> {
        let class = self.pods[pod].class;
        let key = self.classes[class].key.clone();
        if key.never_preempts() {
            return Err("preemption: not eligible due to preemptionPolicy=Never.".to_owned());
        }
        let priority = key.spec.priority;
        if self.waits_for_victims(pod, priority, refusal) {
            return Err("preemption: not eligible due to a terminating pod on the nominated node.".to_owned());
        }
        let total = self.nodes.order.len();
        let candidates = &refusal.candidates;
        let mut reasons = Tallied::default();
        if total > candidates.len() {
            reasons.add(Reason::NotHelpful, (total - candidates.len()) as u32);
        }
        let found = if self.priorities.range(..priority).next().is_none() {
            if !candidates.is_empty() {
                reasons.add(Reason::NoVictims, candidates.len() as u32);
            }
            None
        } else {
            let view = self.look(class).ok();
            view.and_then(|view| self.cheapest(&view, pod, candidates, offset, &mut reasons))
        };
        let Some((node, victims)) = found else {
            let message = reasons.message(total, &self.nodes.resource_names);
            return Err(format!("preemption: {message}"));
        };
        let name = self.node_name(node);
        let waiting = self.nominations.get(name).into_iter().flatten();
        let displaced = waiting.copied().filter(|other| self.class_of(*other).key.spec.priority < priority);
        Ok(Preemption {
            node,
            displaced: displaced.collect(),
            victims: victims.into_iter().map(|pod| self.victim(pod)).collect(),
        })
    }

    /// Whether pods that must go for it are going already.
    fn waits_for_victims(&self, pod: PodId, priority: i32, refusal: &Refusal) -> bool {
        let Some(node) = self.pods[pod].nominated.as_deref().and_then(|name| self.nodes.find(name)) else {
            return false;
        };
        refusal.candidates.contains(&node)
            && self.nodes.list[node as usize].pods.iter().any(|other| {
                self.pods[*other].is_preempted && self.class_of(*other).key.spec.priority < priority
            })
    }

    /// Of some of these nodes, from `offset` on, the one where making room costs least.
    fn cheapest(
        &mut self,
        view: &View,
        pod: PodId,
        nodes: &[NodeId],
        offset: usize,
        reasons: &mut Tallied,
    ) -> Option<(NodeId, Vec<PodId>)> {
        let enough = (nodes.len() * LEAST_PERCENT / 100).max(LEAST_CANDIDATES).min(nodes.len());
        let mut rooms = self.take_rooms(view, pod);
        let mut best: Option<(Cost, NodeId, usize)> = None;
        let (mut found, mut has_unviolating) = (0, false);
        for index in 0..nodes.len() {
            let node = nodes[(index + offset) % nodes.len()];
            let Some(position) = self.nodes.position(node) else { continue };
            match rooms[position].get_or_insert_with(|| self.make_room(view, pod, node)) {
                Ok(room) if room.victims.is_empty() => {}
                Ok(room) => {
                    found += 1;
                    has_unviolating |= room.cost.0 == 0;
                    if best.as_ref().is_none_or(|(least, _, _)| room.cost < *least) {
                        best = Some((room.cost, node, position));
                    }
                    if has_unviolating && found >= enough {
                        break;
                    }
                }
                Err(reason) => reasons.add(*reason, 1),
            }
        }
        let best = best.and_then(|(_, node, position)| match &rooms[position] {
            Some(Ok(room)) => Some((node, room.victims.clone())),
            _ => None,
        });
        self.keep_rooms(view, rooms);
        best
    }

    /// Who must go from a node, so that the pod fits.
    fn make_room(&mut self, view: &View, pod: PodId, node: NodeId) -> Result<Room, Reason> {
        let priority = self.classes[view.class].key.spec.priority;
        let here = self.nodes.list[node as usize].pods.iter().copied();
        let lesser: Vec<PodId> =
            here.filter(|other| self.class_of(*other).key.spec.priority < priority).collect();
        if lesser.is_empty() {
            return Err(Reason::NoVictims);
        }
        let (victims, violations) = if self.is_local(view) {
            self.select_by_amounts(view, pod, node, lesser)?
        } else {
            self.select_by_trial(view, pod, node, lesser)?
        };
        let cost = self.cost(&victims, violations);
        Ok(Room { victims, cost })
    }

    /// Victims where only amounts decide: nothing is moved, only added up.
    fn select_by_amounts(
        &self,
        view: &View,
        pod: PodId,
        node: NodeId,
        victims: Vec<PodId>,
    ) -> Result<(Vec<PodId>, usize), Reason> {
        let class = &self.classes[view.class];
        let mut usage = self.nodes.usage[node as usize];
        let mut others = self.nodes.list[node as usize].others.clone();
        let add = |usage: &mut Usage, others: &mut Vec<(i64, i64)>, pod: PodId, by: i64| {
            let class = self.class_of(pod);
            usage.add(class, by);
            for (resource, amount) in &class.others {
                if let Some(slot) = others.get_mut(*resource as usize) {
                    slot.1 += amount * by;
                }
            }
        };
        for waiting in self.nominations.get(self.node_name(node)).into_iter().flatten() {
            let counts = *waiting != pod && self.pods[*waiting].on().is_none();
            if counts && self.class_of(*waiting).key.spec.priority >= class.key.spec.priority {
                add(&mut usage, &mut others, *waiting, 1);
            }
        }
        for victim in &victims {
            add(&mut usage, &mut others, *victim, -1);
        }
        lacking(&usage, &others, class)?;
        let mut gone = Vec::new();
        let (order, violating) = self.by_importance(victims);
        let mut violations = 0;
        for (index, victim) in order.into_iter().enumerate() {
            add(&mut usage, &mut others, victim, 1);
            if lacking(&usage, &others, class).is_err() {
                add(&mut usage, &mut others, victim, -1);
                gone.push(victim);
                violations += usize::from(index < violating);
            }
        }
        gone.sort_by_key(|pod| self.importance(*pod));
        Ok((gone, violations))
    }

    /// Victims where other pods matter too: they are taken away and put back, and what is left is looked at.
    fn select_by_trial(
        &mut self,
        view: &View,
        pod: PodId,
        node: NodeId,
        victims: Vec<PodId>,
    ) -> Result<(Vec<PodId>, usize), Reason> {
        let generation = self.generation;
        let look = |cluster: &mut Cluster| {
            let now = cluster.view(view.class, view.plan.clone(), view.needs.clone());
            cluster.check_reserved(&now, pod, node)
        };
        for victim in &victims {
            self.lift(*victim);
        }
        let fits = look(self);
        let (mut gone, mut violations) = (Vec::new(), 0);
        let (order, violating) = self.by_importance(victims);
        for (index, victim) in order.into_iter().enumerate() {
            self.put(victim, Some(node));
            if fits.is_ok() && look(self).is_err() {
                self.lift(victim);
                gone.push(victim);
                violations += usize::from(index < violating);
            }
        }
        for victim in &gone {
            self.put(*victim, Some(node));
        }
        self.generation = generation;
        fits?;
        gone.sort_by_key(|pod| self.importance(*pod));
        Ok((gone, violations))
    }

    /// In which order pods are given back: those whose going would break a budget first, then the important ones. Also
    /// how many of the former there are.
    fn by_importance(&self, mut pods: Vec<PodId>) -> (Vec<PodId>, usize) {
        pods.sort_by_key(|pod| self.importance(*pod));
        if self.budgets.is_empty() {
            return (pods, 0);
        }
        let mut allowed: HashMap<&str, i32> = HashMap::new();
        let (mut violating, mut others) = (Vec::new(), Vec::new());
        for pod in pods {
            let class = self.class_of(pod);
            let mut is_violating = false;
            for (key, budget) in &self.budgets {
                if budget.namespace != class.key.namespace
                    || class.labels.is_empty()
                    || budget.selector.is_everything()
                    || !budget.selector.matches(&class.labels)
                    || budget.disrupted.iter().any(|name| **name == *self.pods[pod].name)
                {
                    continue;
                }
                let allowed = allowed.entry(key).or_insert(budget.allowed);
                *allowed -= 1;
                is_violating |= *allowed < 0;
            }
            if is_violating { violating.push(pod) } else { others.push(pod) }
        }
        let count = violating.len();
        violating.extend(others);
        (violating, count)
    }

    /// The most important come first: by priority, then by how long they have run.
    fn importance(&self, pod: PodId) -> (Reverse<i32>, i64) {
        (Reverse(self.class_of(pod).key.spec.priority), self.pods[pod].started)
    }

    fn cost(&self, victims: &[PodId], violations: usize) -> Cost {
        let priority = |pod: &PodId| self.class_of(*pod).key.spec.priority;
        let highest = victims.iter().map(priority).max().unwrap_or(i32::MIN);
        let sum = victims.iter().map(|pod| i64::from(priority(pod)) + i64::from(i32::MAX) + 1).sum();
        let most_important = victims.iter().filter(|pod| priority(pod) == highest);
        let earliest = most_important.map(|pod| self.pods[*pod].started).min().unwrap_or(i64::MAX);
        (violations, highest, sum, victims.len(), Reverse(earliest))
    }

    fn victim(&self, pod: PodId) -> Victim {
        let record = &self.pods[pod];
        Victim {
            pod,
            namespace: self.class_of(pod).key.namespace.clone(),
            name: record.name.to_string(),
            uid: record.uid.to_string(),
            is_going: record.is_going,
        }
    }
}
