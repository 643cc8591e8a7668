//! Why a pod fits nowhere, in upstream's words.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The filters, as bits: which of them refused a pod decides which events bring it back.
pub(crate) mod plugin {
    pub(crate) const NODE_UNSCHEDULABLE: u32 = 1;
    pub(crate) const NODE_NAME: u32 = 1 << 1;
    pub(crate) const TAINT_TOLERATION: u32 = 1 << 2;
    pub(crate) const NODE_AFFINITY: u32 = 1 << 3;
    pub(crate) const NODE_PORTS: u32 = 1 << 4;
    pub(crate) const FIT: u32 = 1 << 5;
    pub(crate) const VOLUMES: u32 = 1 << 6;
    pub(crate) const SPREAD: u32 = 1 << 7;
    pub(crate) const POD_AFFINITY: u32 = 1 << 8;
    /// The pod's claims are not such that any node need be looked at.
    pub(crate) const CLAIMS: u32 = 1 << 9;
    /// Filters that look at one node and the pods on it, and at nothing else.
    pub(crate) const LOCAL: u32 =
        NODE_UNSCHEDULABLE | NODE_NAME | TAINT_TOLERATION | NODE_AFFINITY | NODE_PORTS | FIT;
}

/// What a node lacks, as bits; more bits for resources that only some nodes have.
pub(crate) mod lack {
    pub(crate) const PODS: u32 = 1;
    pub(crate) const CPU: u32 = 1 << 1;
    pub(crate) const MEMORY: u32 = 1 << 2;
    pub(crate) const EPHEMERAL: u32 = 1 << 3;
    pub(crate) const FIRST_OTHER: u32 = 4;
}

/// Why a node does not take a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    Unschedulable,
    NodeName,
    Taint,
    NodeAffinity,
    Ports,
    /// Bits of [`lack`], and whether removing pods could help.
    Resources(u32, bool),
    ClaimInUse,
    VolumeCount,
    VolumeElsewhere,
    NoVolume,
    VolumeGone,
    SpreadLabel,
    Spread,
    PodAffinity,
    PodAntiAffinity,
    RefusedByPod,
    /// The pod names other nodes.
    NotNamed,
    /// There is nobody to make room.
    NoVictims,
    /// No pod's going would help.
    NotHelpful,
}

impl Reason {
    /// Whether removing pods from the node could help.
    pub(crate) fn is_resolvable(self) -> bool {
        match self {
            Reason::Resources(_, is_resolvable) => is_resolvable,
            Reason::Ports
            | Reason::ClaimInUse
            | Reason::VolumeCount
            | Reason::Spread
            | Reason::PodAntiAffinity
            | Reason::RefusedByPod => true,
            _ => false,
        }
    }

    pub(crate) fn plugin(self) -> u32 {
        match self {
            Reason::Unschedulable => plugin::NODE_UNSCHEDULABLE,
            Reason::NodeName => plugin::NODE_NAME,
            Reason::Taint => plugin::TAINT_TOLERATION,
            Reason::NodeAffinity | Reason::NotNamed => plugin::NODE_AFFINITY,
            Reason::Ports => plugin::NODE_PORTS,
            Reason::Resources(..) => plugin::FIT,
            Reason::ClaimInUse
            | Reason::VolumeCount
            | Reason::VolumeElsewhere
            | Reason::NoVolume
            | Reason::VolumeGone => plugin::VOLUMES,
            Reason::SpreadLabel | Reason::Spread => plugin::SPREAD,
            Reason::PodAffinity | Reason::PodAntiAffinity | Reason::RefusedByPod => plugin::POD_AFFINITY,
            Reason::NoVictims | Reason::NotHelpful => 0,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Reason::Unschedulable => "node(s) were unschedulable",
            Reason::NodeName => "node(s) didn't match the requested node name",
            Reason::Taint => "node(s) had untolerated taint(s)",
            Reason::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Reason::Ports => "node(s) didn't have free ports for the requested pod ports",
            Reason::Resources(..) => "",
            Reason::ClaimInUse => {
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
            }
            Reason::VolumeCount => "node(s) exceed max volume count",
            Reason::VolumeElsewhere => "node(s) didn't match PersistentVolume's node affinity",
            Reason::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Reason::VolumeGone => "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            Reason::SpreadLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Reason::Spread => "node(s) didn't match pod topology spread constraints",
            Reason::PodAffinity => "node(s) didn't match pod affinity rules",
            Reason::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Reason::RefusedByPod => "node(s) didn't satisfy existing pods anti-affinity rules",
            Reason::NotNamed => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            Reason::NoVictims => "No preemption victims found for incoming pod",
            Reason::NotHelpful => "Preemption is not helpful for scheduling",
        }
    }
}

/// How many nodes gave which reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tallied {
    counts: Vec<(Reason, u32)>,
}

impl Tallied {
    pub(crate) fn add(&mut self, reason: Reason, nodes: u32) {
        // There are few different reasons, and the same one comes many times in a row.
        match self.counts.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, count)) => *count += nodes,
            None => self.counts.push((reason, nodes)),
        }
    }

    pub(crate) fn plugins(&self) -> u32 {
        self.counts.iter().fold(0, |plugins, (reason, _)| plugins | reason.plugin())
    }

    /// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).`
    pub(crate) fn message(&self, total: usize, resource_names: &[String]) -> String {
        let mut by_text: BTreeMap<String, u32> = BTreeMap::new();
        for (reason, count) in &self.counts {
            for text in texts(*reason, resource_names) {
                *by_text.entry(text).or_default() += count;
            }
        }
        let mut parts: Vec<String> =
            by_text.into_iter().map(|(text, count)| format!("{count} {text}")).collect();
        parts.sort_unstable();
        let mut message = format!("0/{total} nodes are available:");
        if !parts.is_empty() {
            let _ = write!(message, " {}.", parts.join(", "));
        }
        message
    }
}

fn texts(reason: Reason, resource_names: &[String]) -> Vec<String> {
    let Reason::Resources(lacking, _) = reason else { return vec![reason.text().to_owned()] };
    let fixed = [
        (lack::PODS, "Too many pods"),
        (lack::CPU, "Insufficient cpu"),
        (lack::MEMORY, "Insufficient memory"),
        (lack::EPHEMERAL, "Insufficient ephemeral-storage"),
    ];
    let fixed = fixed.iter().filter(|(bit, _)| lacking & bit != 0).map(|(_, text)| (*text).to_owned());
    let others = resource_names.iter().enumerate().filter(|(id, _)| lacking & other_bit(*id as u32) != 0);
    fixed.chain(others.map(|(_, name)| format!("Insufficient {name}"))).collect()
}

/// The bit of a resource that only some nodes have. Beyond those that fit, the last bit stands for all.
pub(crate) fn other_bit(resource: u32) -> u32 {
    1 << (lack::FIRST_OTHER + resource).min(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_counts_and_sorts_reasons() {
        let mut reasons = Tallied::default();
        reasons.add(Reason::Resources(lack::CPU | lack::MEMORY, true), 2);
        reasons.add(Reason::Taint, 1);
        reasons.add(Reason::Resources(other_bit(1), false), 1);
        let names = ["a.com/x".to_owned(), "b.com/y".to_owned()];
        assert_eq!(
            reasons.message(4, &names),
            "0/4 nodes are available: 1 Insufficient b.com/y, 1 node(s) had untolerated taint(s), 2 Insufficient cpu, 2 Insufficient memory."
        );
        assert_eq!(reasons.plugins(), plugin::FIT | plugin::TAINT_TOLERATION);
    }
}
