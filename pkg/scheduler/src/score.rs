//! How good a node is for a pod: upstream's scores with upstream's weights, each from 0 to 100.

use crate::cluster::class::Class;
use crate::cluster::nodes::Usage;
use crate::cluster::{Cluster, NodeId};
use crate::filter::View;
use crate::terms::NOWHERE;

const MOST: i64 = 100;
const TAINT_TOLERATION: i64 = 3;
const NODE_AFFINITY: i64 = 2;
const FIT: i64 = 1;
const SPREAD: i64 = 2;
const POD_AFFINITY: i64 = 2;
const BALANCED: i64 = 1;
const IMAGE_LOCALITY: i64 = 1;

const MB: i64 = 1024 * 1024;
/// Images that are smaller than this in sum do not matter.
const LEAST_IMAGE_BYTES: i64 = 23 * MB;
/// More than this for each container does not matter.
const MOST_IMAGE_BYTES: i64 = 1000 * MB;

impl Cluster {
    /// The total score of each of these nodes.
    pub(crate) fn scores(&self, view: &View, nodes: &[NodeId]) -> Vec<i64> {
        let class = &self.classes[view.class];
        let mut totals: Vec<i64> = nodes
            .iter()
            .map(|node| {
                let usage = &self.nodes.usage[*node as usize];
                FIT * least_allocated(usage, class) + BALANCED * balanced(usage, class)
            })
            .collect();
        let table = &self.rules[view.plan.rules];
        if self.nodes.with_soft_taints > 0 {
            let taints = |node: &NodeId| &self.nodes.list[*node as usize].facts.taints;
            let raw: Vec<i64> = nodes.iter().map(|node| table.compiled.unwelcome(taints(node))).collect();
            add_normalized(&mut totals, &raw, TAINT_TOLERATION, true);
        }
        if !table.preferences.is_empty() {
            let raw: Vec<i64> = nodes.iter().map(|node| table.preferences[*node as usize]).collect();
            add_normalized(&mut totals, &raw, NODE_AFFINITY, false);
        }
        self.add_spread(&mut totals, view, nodes);
        self.add_pod_affinity(&mut totals, view, class, nodes);
        self.add_images(&mut totals, view, nodes);
        totals
    }

    fn add_spread(&self, totals: &mut [i64], view: &View, nodes: &[NodeId]) {
        let soft = &view.plan.soft;
        if soft.is_empty() {
            return;
        }
        let domain = |topology: u32, node: &NodeId| self.terms.topologies[topology as usize].domain(*node);
        let is_ignored: Vec<bool> = nodes
            .iter()
            .map(|node| {
                view.plan.soft_needs_all && soft.iter().any(|spread| domain(spread.topology, node) == NOWHERE)
            })
            .collect();
        let mut raw = vec![0.0; nodes.len()];
        for spread in soft {
            let counted = nodes.iter().zip(&is_ignored).filter(|(_, is_ignored)| !**is_ignored);
            let size = if spread.is_by_host {
                counted.count()
            } else {
                let mut seen = vec![false; self.terms.topologies[spread.topology as usize].domains() + 1];
                let mut size = 0;
                for (node, _) in counted {
                    let at = domain(spread.topology, node) as usize;
                    let at = at.min(seen.len() - 1);
                    size += usize::from(!std::mem::replace(&mut seen[at], true));
                }
                size
            };
            let weight = ((size + 2) as f64).ln();
            let tally = &self.terms.tallies[spread.tally];
            for (index, node) in nodes.iter().enumerate().filter(|(index, _)| !is_ignored[*index]) {
                let domain = domain(spread.topology, node);
                if domain != NOWHERE {
                    raw[index] += f64::from(tally.at(domain)) * weight + (spread.max_skew - 1) as f64;
                }
            }
        }
        let raw: Vec<i64> = raw.into_iter().map(|score: f64| score.round() as i64).collect();
        let scored = raw.iter().zip(&is_ignored).filter(|(_, is_ignored)| !**is_ignored).map(|(raw, _)| *raw);
        let (least, most) = scored.fold((i64::MAX, 0), |(least, most), raw| (least.min(raw), most.max(raw)));
        for ((total, raw), is_ignored) in totals.iter_mut().zip(raw).zip(is_ignored) {
            if !is_ignored {
                *total += SPREAD * if most == 0 { MOST } else { MOST * (most + least - raw) / most };
            }
        }
    }

    fn add_pod_affinity(&self, totals: &mut [i64], view: &View, class: &Class, nodes: &[NodeId]) {
        let terms = &self.terms;
        let held: Vec<_> = class
            .concerned
            .iter()
            .map(|held| &terms.held[*held])
            .filter(|held| held.weighing_total > 0)
            .collect();
        let preferred: Vec<_> = view
            .plan
            .preferred
            .iter()
            .map(|(tally, weight)| (&terms.tallies[*tally], *weight))
            .filter(|(tally, _)| tally.total > 0)
            .collect();
        if held.is_empty() && preferred.is_empty() {
            return;
        }
        let domain = |topology: u32, node: NodeId| terms.topologies[topology as usize].domain(node);
        let raw: Vec<i64> = nodes
            .iter()
            .map(|node| {
                let of_held = held.iter().map(|held| held.weight_at(domain(held.spec.topology, *node)));
                let of_own = preferred
                    .iter()
                    .map(|(tally, weight)| i64::from(tally.at(domain(tally.spec.topology, *node))) * weight);
                of_held.sum::<i64>() + of_own.sum::<i64>()
            })
            .collect();
        let least = raw.iter().copied().min().unwrap_or(0);
        let range = raw.iter().copied().max().unwrap_or(0) - least;
        if range > 0 {
            for (total, raw) in totals.iter_mut().zip(raw) {
                *total += POD_AFFINITY * (MOST as f64 * ((raw - least) as f64 / range as f64)) as i64;
            }
        }
    }

    fn add_images(&self, totals: &mut [i64], view: &View, nodes: &[NodeId]) {
        let count = self.nodes.order.len() as f64;
        let images: Vec<(u32, i64)> = view
            .plan
            .images
            .iter()
            .filter_map(|name| {
                let number = self.nodes.image(name)?;
                let image = &self.nodes.image_list[number as usize];
                Some((number, (image.size as f64 * (f64::from(image.nodes) / count)) as i64))
            })
            .collect();
        if images.iter().map(|(_, bytes)| bytes).sum::<i64>() < LEAST_IMAGE_BYTES {
            return;
        }
        let most = MOST_IMAGE_BYTES * view.plan.images.len() as i64;
        for (total, node) in totals.iter_mut().zip(nodes) {
            let has = &self.nodes.list[*node as usize].images;
            let bytes: i64 = images
                .iter()
                .filter(|(number, _)| has.binary_search(number).is_ok())
                .map(|(_, bytes)| bytes)
                .sum();
            let bytes = bytes.clamp(LEAST_IMAGE_BYTES, most);
            *total += IMAGE_LOCALITY * (MOST * (bytes - LEAST_IMAGE_BYTES) / (most - LEAST_IMAGE_BYTES));
        }
    }
}

/// Scales scores to at most 100; the highest is the best, or the worst if reversed.
fn add_normalized(totals: &mut [i64], raw: &[i64], weight: i64, is_reversed: bool) {
    let most = raw.iter().copied().max().unwrap_or(0);
    for (total, raw) in totals.iter_mut().zip(raw) {
        let score = if most == 0 { 0 } else { MOST * raw / most };
        *total += weight * if is_reversed { MOST - score } else { score };
    }
}

/// The more is left, the better.
fn least_allocated(usage: &Usage, class: &Class) -> i64 {
    let score = |used: i64, asked: i64, has: i64| {
        if has == 0 {
            return None;
        }
        let needed = used + asked;
        Some(if needed > has { 0 } else { (has - needed) * MOST / has })
    };
    let cpu = score(usage.scored_milli_cpu, class.requests.scored_milli_cpu, usage.milli_cpu);
    let memory = score(usage.scored_memory, class.requests.scored_memory, usage.memory);
    match (cpu, memory) {
        (Some(cpu), Some(memory)) => (cpu + memory) / 2,
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => 0,
    }
}

/// The more alike the used shares of CPU and memory, the better.
fn balanced(usage: &Usage, class: &Class) -> i64 {
    let asked = &class.requests.amounts;
    if asked.milli_cpu == 0 && asked.memory == 0 {
        return 0;
    }
    if usage.milli_cpu == 0 || usage.memory == 0 {
        return MOST;
    }
    let share = |used: i64, has: i64| (used as f64 / has as f64).min(1.0);
    let cpu = share(usage.used_milli_cpu + asked.milli_cpu, usage.milli_cpu);
    let memory = share(usage.used_memory + asked.memory, usage.memory);
    ((1.0 - ((cpu - memory) / 2.0).abs()) * MOST as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_raw_score_is_scaled_to_a_hundred() {
        let mut totals = vec![0, 0, 1];
        add_normalized(&mut totals, &[0, 5, 10], 2, false);
        assert_eq!(totals, [0, 100, 201]);
        let mut totals = vec![0, 0];
        add_normalized(&mut totals, &[0, 0], 3, true);
        assert_eq!(totals, [300, 300]);
        let mut totals = vec![0, 0];
        add_normalized(&mut totals, &[1, 2], 1, true);
        assert_eq!(totals, [50, 0]);
    }
}
