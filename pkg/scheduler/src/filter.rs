//! Whether a node can take a pod: upstream's filters, in upstream's order.

use crate::cluster::class::Class;
use crate::cluster::nodes::Usage;
use crate::cluster::plan::Plan;
use crate::cluster::{Cluster, NodeId, PodId};
use crate::reasons::{Reason, lack, other_bit};
use crate::rules::Verdict;
use crate::terms::NOWHERE;
use crate::volumes::Needs;
use std::sync::Arc;

/// What a decision about one pod looks at, beside the node.
#[derive(Debug)]
pub(crate) struct View {
    pub class: u32,
    pub plan: Arc<Plan>,
    /// For each constraint that must hold, the fewest pods in any domain.
    fewest: Vec<i64>,
    /// Whether any pod matches the required affinity.
    has_friends: bool,
    /// Whether any pod refuses pods of this class.
    is_refused: bool,
    pub needs: Option<Arc<Needs>>,
}

impl Cluster {
    /// Looks at what is now. `refresh` has been called.
    pub(crate) fn view(&self, class: u32, plan: Arc<Plan>, needs: Option<Arc<Needs>>) -> View {
        let tallies = &self.terms.tallies;
        let fewest = plan
            .hard
            .iter()
            .map(|spread| {
                let (fewest, domains) = tallies[spread.tally].fewest();
                if domains < spread.min_domains { 0 } else { i64::from(fewest) }
            })
            .collect();
        View {
            class,
            fewest,
            has_friends: plan.affinity.iter().any(|tally| tallies[*tally].total > 0),
            is_refused: self.classes[class]
                .concerned
                .iter()
                .any(|held| self.terms.held[*held].refusing_total > 0),
            plan,
            needs,
        }
    }

    /// Whether only the node's own pods and amounts decide.
    pub(crate) fn is_local(&self, view: &View) -> bool {
        let plan = &view.plan;
        plan.affinity.is_empty()
            && plan.anti_affinity.is_empty()
            && plan.hard.is_empty()
            && !view.is_refused
            && view.needs.is_none()
            && self.classes[view.class].ports.is_empty()
    }

    /// Why the node does not take the pod, if it does not.
    pub(crate) fn check(&self, view: &View, node: NodeId) -> Result<(), Reason> {
        let class = &self.classes[view.class];
        match self.rules[view.plan.rules].verdicts[node as usize] {
            verdict if verdict == Verdict::Fits as u8 => {}
            verdict if verdict == Verdict::Unschedulable as u8 => return Err(Reason::Unschedulable),
            verdict if verdict == Verdict::NodeName as u8 => return Err(Reason::NodeName),
            verdict if verdict == Verdict::Taint as u8 => return Err(Reason::Taint),
            _ => return Err(Reason::NodeAffinity),
        }
        let slot = &self.nodes.list[node as usize];
        if !class.ports.is_empty() && slot.pods_with_ports > 0 {
            let taken = slot.pods.iter().flat_map(|pod| &self.class_of(*pod).ports);
            if taken.into_iter().any(|port| class.ports.iter().any(|own| own.conflicts(port))) {
                return Err(Reason::Ports);
            }
        }
        lacking(&self.nodes.usage[node as usize], &slot.others, class)?;
        if let Some(needs) = &view.needs {
            self.check_volumes(needs, view.class, node)?;
        }
        self.check_spread(view, node)?;
        self.check_pod_affinity(view, class, node)
    }

    fn check_spread(&self, view: &View, node: NodeId) -> Result<(), Reason> {
        for (spread, fewest) in view.plan.hard.iter().zip(&view.fewest) {
            let domain = self.terms.topologies[spread.topology as usize].domain(node);
            if domain == NOWHERE {
                return Err(Reason::SpreadLabel);
            }
            let here = i64::from(self.terms.tallies[spread.tally].at(domain));
            if here + i64::from(spread.counts_itself) - fewest > spread.max_skew {
                return Err(Reason::Spread);
            }
        }
        Ok(())
    }

    fn check_pod_affinity(&self, view: &View, class: &Class, node: NodeId) -> Result<(), Reason> {
        let (tallies, topologies) = (&self.terms.tallies, &self.terms.topologies);
        let domain = |topology: u32| topologies[topology as usize].domain(node);
        let mut has_all = true;
        for tally in &view.plan.affinity {
            let tally = &tallies[*tally];
            match domain(tally.spec.topology) {
                NOWHERE => return Err(Reason::PodAffinity),
                domain => has_all &= tally.at(domain) > 0,
            }
        }
        // The first of pods that want each other near must be allowed somewhere.
        if !has_all && (view.has_friends || !view.plan.is_own_friend) {
            return Err(Reason::PodAffinity);
        }
        for tally in &view.plan.anti_affinity {
            let tally = &tallies[*tally];
            if tally.at(domain(tally.spec.topology)) > 0 {
                return Err(Reason::PodAntiAffinity);
            }
        }
        if view.is_refused {
            for held in &class.concerned {
                let held = &self.terms.held[*held];
                if held.refusing_at(domain(held.spec.topology)) > 0 {
                    return Err(Reason::RefusedByPod);
                }
            }
        }
        Ok(())
    }

    /// Like [`Cluster::check`], but as if pods that wait for a place on the node, and are as important, had it already.
    pub(crate) fn check_reserved(&mut self, view: &View, pod: PodId, node: NodeId) -> Result<(), Reason> {
        // First what is cheap: of thousands of nodes most are full, and few have anybody waiting.
        self.check(view, node)?;
        if self.nominations.is_empty() {
            return Ok(());
        }
        let name = self.nodes.list[node as usize].facts.name.as_str();
        let Some(waiting) = self.nominations.get(name) else { return Ok(()) };
        let priority = self.classes[view.class].key.spec.priority;
        let counts = |other: &PodId| {
            let record = &self.pods[*other];
            *other != pod && record.on().is_none() && self.classes[record.class].key.spec.priority >= priority
        };
        let waiting: Vec<PodId> = waiting.iter().copied().filter(counts).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        if self.is_local(view) && waiting.iter().all(|other| self.class_of(*other).carried.is_empty()) {
            let mut usage = self.nodes.usage[node as usize];
            let mut others = self.nodes.list[node as usize].others.clone();
            for other in &waiting {
                let class = self.class_of(*other);
                usage.add(class, 1);
                for (resource, amount) in &class.others {
                    if let Some(slot) = others.get_mut(*resource as usize) {
                        slot.1 += amount;
                    }
                }
            }
            return lacking(&usage, &others, &self.classes[view.class]);
        }
        let generation = self.generation;
        waiting.iter().for_each(|other| self.put(*other, Some(node)));
        let with = self.view(view.class, view.plan.clone(), view.needs.clone());
        let verdict = self.check(&with, node);
        waiting.iter().for_each(|other| self.lift(*other));
        self.generation = generation;
        verdict
    }
}

/// What a node lacks for one more pod of a class.
pub(crate) fn lacking(usage: &Usage, others: &[(i64, i64)], class: &Class) -> Result<(), Reason> {
    let asked = &class.requests.amounts;
    let (mut missing, mut is_resolvable) = (0, true);
    if usage.used_pods + 1 > usage.pods {
        missing |= lack::PODS;
    }
    let mut look = |bit: u32, asked: i64, has: i64, used: i64| {
        if asked > 0 && asked > has - used {
            missing |= bit;
            is_resolvable &= asked <= has;
        }
    };
    look(lack::CPU, asked.milli_cpu, usage.milli_cpu, usage.used_milli_cpu);
    look(lack::MEMORY, asked.memory, usage.memory, usage.used_memory);
    look(lack::EPHEMERAL, asked.ephemeral, usage.ephemeral, usage.used_ephemeral);
    for (resource, asked) in &class.others {
        let (has, used) = others.get(*resource as usize).copied().unwrap_or_default();
        look(other_bit(*resource), *asked, has, used);
    }
    if missing == 0 { Ok(()) } else { Err(Reason::Resources(missing, is_resolvable)) }
}
