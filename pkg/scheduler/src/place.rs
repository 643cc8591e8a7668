//! The decision: on which node a pod runs, or why on none.
//!
//! ```text
//! place(pod) ── filter nodes, from where the last search ended ──> score those found ──> the best, in turn among equals
//! ```

use crate::cluster::{Cluster, NodeId, PodId};
use crate::filter::View;
use crate::reasons::{Reason, Tallied, plugin};
use std::sync::Arc;

/// In clusters smaller than this, every node is looked at.
const FEW_NODES: usize = 100;
/// At least this share of the nodes is looked at, in percent.
const LEAST_PERCENT: usize = 5;

/// How a node is chosen among those that can take a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Upstream's scores; equals in turn.
    #[default]
    Default,
    /// In turn, whatever else is on them.
    RoundRobin,
}

/// Where a search for nodes begins, and how many are enough.
#[derive(Debug, Clone, Copy, Default)]
pub struct Search {
    /// Where the next search begins.
    pub(crate) start: usize,
    /// The node whose turn it is among those that are taken in turn. Only pods that go anywhere take a turn.
    pub(crate) turn: usize,
    /// Which share of the nodes is looked at, in percent; zero lets their number decide.
    pub percent: usize,
}

/// Why a pod is on no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What users are told.
    pub message: String,
    /// Which filters refused it.
    pub(crate) plugins: u32,
    /// The nodes that might take it if pods left them.
    pub(crate) candidates: Vec<NodeId>,
    /// Whether pods leaving could change anything.
    pub(crate) is_final: bool,
}

impl Search {
    /// How many nodes that fit are enough.
    fn enough(&self, nodes: usize) -> usize {
        if nodes < FEW_NODES {
            return nodes;
        }
        let percent = if self.percent > 0 {
            self.percent
        } else {
            50usize.saturating_sub(nodes / 125).max(LEAST_PERCENT)
        };
        (nodes * percent / 100).max(FEW_NODES)
    }
}

impl Cluster {
    /// Finds a node for a pod that has none.
    pub fn place(
        &mut self,
        pod: PodId,
        profile: Profile,
        search: &mut Search,
    ) -> Result<NodeId, Arc<Refusal>> {
        let class = self.pods[pod].class;
        if let Some(refusal) = self.refused_before(pod, class) {
            return Err(refusal);
        }
        let view = match self.look(class) {
            Ok(view) => view,
            Err(refusal) => return Err(Arc::new(refusal)),
        };
        if let Some(node) = self.pods[pod].nominated.as_deref().and_then(|name| self.nodes.find(name))
            && self.nodes.list[node as usize].exists
            && self.check_reserved(&view, pod, node).is_ok()
        {
            return Ok(node);
        }
        if let Some(refusal) = self.still_refused(&view, pod) {
            return Err(refusal);
        }
        let found = match &view.plan.names {
            Some(names) => self.among(&view, pod, &names.clone()),
            None => self.search(&view, pod, profile, search),
        };
        let nodes = found.map_err(|verdicts| {
            let refusal = Arc::new(self.refusal(&verdicts));
            self.remember_refusal(pod, class, &refusal);
            self.keep_answer(&view, pod, &refusal, verdicts);
            refusal
        })?;
        Ok(self.choose_node(&view, profile, search, &nodes))
    }

    /// What a pod is told whom these nodes, and all others by their names, have refused.
    pub(crate) fn refusal(&self, verdicts: &[(NodeId, Reason)]) -> Refusal {
        let (mut reasons, total) = (Tallied::default(), self.nodes.order.len());
        if total > verdicts.len() {
            reasons.add(Reason::NotNamed, (total - verdicts.len()) as u32);
        }
        verdicts.iter().for_each(|(_, reason)| reasons.add(*reason, 1));
        let candidates = verdicts.iter().filter(|(_, reason)| reason.is_resolvable());
        Refusal {
            message: reasons.message(total, &self.nodes.resource_names),
            plugins: reasons.plugins(),
            candidates: candidates.map(|(node, _)| *node).collect(),
            is_final: false,
        }
    }

    /// What a decision about a class looks at, or why no node need be looked at.
    pub(crate) fn look(&mut self, class: u32) -> Result<View, Refusal> {
        let total = self.nodes.order.len();
        let refusal = |message: String, plugins, is_final| Refusal {
            message,
            plugins,
            candidates: Vec::new(),
            is_final,
        };
        if total == 0 {
            return Err(refusal("no nodes available to schedule pods".to_owned(), u32::MAX, true));
        }
        let plan = self.plan(class);
        self.refresh(class, &plan);
        let needs = self.needs(class).map_err(|why| {
            refusal(format!("0/{total} nodes are available: {why}."), plugin::CLAIMS, false)
        })?;
        Ok(self.view(class, plan, needs.map(Arc::new)))
    }

    fn search(
        &mut self,
        view: &View,
        pod: PodId,
        profile: Profile,
        search: &mut Search,
    ) -> Result<Vec<NodeId>, Vec<(NodeId, Reason)>> {
        let total = self.nodes.order.len();
        let enough = match profile {
            _ if view.plan.wants_most_free_memory => total,
            Profile::Default => search.enough(total),
            Profile::RoundRobin => 1,
        };
        let cursor = match profile {
            Profile::Default => &mut search.start,
            Profile::RoundRobin => &mut search.turn,
        };
        let start = *cursor % total;
        let mut found = Vec::with_capacity(enough.min(512));
        let mut refused = Vec::new();
        let mut looked_at = 0;
        for index in (start..total).chain(0..start) {
            let node = self.nodes.order[index];
            looked_at += 1;
            match self.check_reserved(view, pod, node) {
                Ok(()) => found.push(node),
                Err(reason) => refused.push((node, reason)),
            }
            if found.len() == enough {
                break;
            }
        }
        if profile == Profile::Default {
            *cursor = (start + looked_at) % total;
        }
        if found.is_empty() {
            // In the order of nodes, wherever the search began.
            refused.rotate_right(start);
            return Err(refused);
        }
        Ok(found)
    }

    /// The nodes of these names that fit.
    fn among(
        &mut self,
        view: &View,
        pod: PodId,
        names: &[String],
    ) -> Result<Vec<NodeId>, Vec<(NodeId, Reason)>> {
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for name in names {
            let Some(node) = self.nodes.find(name).filter(|node| self.nodes.list[*node as usize].exists)
            else {
                continue;
            };
            match self.check_reserved(view, pod, node) {
                Ok(()) => found.push(node),
                Err(reason) => refused.push((node, reason)),
            }
        }
        if found.is_empty() { Err(refused) } else { Ok(found) }
    }

    fn choose_node(&self, view: &View, profile: Profile, search: &mut Search, nodes: &[NodeId]) -> NodeId {
        let best = |scores: Vec<i64>| {
            let mut best = 0;
            for (index, score) in scores.iter().enumerate() {
                if *score > scores[best] {
                    best = index;
                }
            }
            nodes[best]
        };
        let chosen = if nodes.len() == 1 {
            nodes[0]
        } else if view.plan.wants_most_free_memory {
            let free = |node: &NodeId| {
                let usage = &self.nodes.usage[*node as usize];
                usage.memory - usage.used_memory
            };
            best(nodes.iter().map(free).collect())
        } else if profile == Profile::Default {
            best(self.scores(view, nodes))
        } else {
            nodes[0]
        };
        let total = self.nodes.order.len();
        let next = || {
            let position = self.nodes.order.iter().position(|node| *node == chosen).unwrap_or(0);
            (position + 1) % total
        };
        match profile {
            // All were looked at: the next search begins after the one that was chosen, so that equals take turns.
            Profile::Default if total <= FEW_NODES || nodes.len() == total => search.start = next(),
            Profile::Default => {}
            Profile::RoundRobin if self.goes_anywhere(view) => search.turn = next(),
            Profile::RoundRobin => {}
        }
        chosen
    }

    /// Whether neither a label of the seed nor a name decides where pods of a class go.
    fn goes_anywhere(&self, view: &View) -> bool {
        let plan = &view.plan;
        !plan.wants_most_free_memory && plan.names.is_none() && !self.classes[view.class].key.is_pinned()
    }

    /// Equivalent pods get the same answer while nothing has changed.
    fn refused_before(&mut self, pod: PodId, class: u32) -> Option<Arc<Refusal>> {
        if self.refusals.0 != self.generation {
            self.refusals.0 = self.generation;
            self.refusals.1.clear();
        }
        if self.pods[pod].nominated.is_some() || !self.nominations.is_empty() {
            return None;
        }
        self.refusals.1.get(&class).cloned()
    }

    fn remember_refusal(&mut self, pod: PodId, class: u32, refusal: &Arc<Refusal>) {
        if self.pods[pod].nominated.is_none() && self.nominations.is_empty() {
            self.refusals.1.insert(class, refusal.clone());
        }
    }

    /// Whether a pod that was refused would fit on this one node now.
    pub(crate) fn would_fit(&mut self, pod: PodId, node: NodeId) -> bool {
        let class = self.pods[pod].class;
        match self.look(class) {
            Ok(view) => {
                self.nodes.list[node as usize].exists && self.check_reserved(&view, pod, node).is_ok()
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_nodes_are_looked_at_as_upstream_does() {
        let search = Search::default();
        for (nodes, enough) in [(50, 50), (99, 99), (100, 100), (1000, 420), (5000, 500), (6000, 300)] {
            assert_eq!(search.enough(nodes), enough, "{nodes} nodes");
        }
        assert_eq!(Search { percent: 70, ..Search::default() }.enough(1000), 700);
    }
}
