//! Classes of equivalent pods: equal in everything that decides where they may run.
//!
//! A class exists while pods of it do. What can be worked out once for all of them is worked out here.

use super::plan::Plan;
use crate::requests::Requests;
use crate::rules::NodeRules;
use crate::terms::{HeldSpec, Matcher, Part};
use crate::wire;
use api::selector::Labels;
use std::sync::Arc;

/// The seed's label that pins a pod to a node.
const PIN_LABEL: &str = "node";
/// The seed's label that asks for the node with the most free memory.
const POLICY_LABEL: &str = "resourcePolicy";
/// What a required affinity of another pod adds to a node's score for the pods it wants near.
const HARD_AFFINITY_WEIGHT: i64 = 1;

/// What makes pods equivalent.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClassKey {
    pub namespace: String,
    pub labels: wire::Map,
    pub controller: Option<wire::Owner>,
    /// Only where the pod's own name decides, as for claims that are made for it.
    pub name: Option<String>,
    pub spec: wire::PodSpec,
}

/// A port of the node that a pod takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort {
    ip: String,
    protocol: String,
    port: u16,
}

/// A term that pods of a class carry, as other pods feel it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carried {
    pub held: u32,
    pub refuses: bool,
    pub weight: i64,
}

/// Equivalent pods.
#[derive(Debug)]
pub(crate) struct Class {
    pub key: Arc<ClassKey>,
    pub labels: Labels,
    pub requests: Requests,
    /// Requests of other resources, by their number.
    pub others: Vec<(u32, i64)>,
    pub ports: Vec<HostPort>,
    pub claims: Vec<String>,
    pub carried: Vec<Carried>,
    /// The tallies that count it.
    pub counted_by: Vec<u32>,
    /// The held terms that are about it; kept only with a plan.
    pub concerned: Vec<u32>,
    pub plan: Option<Arc<Plan>>,
    pub users: u32,
}

impl ClassKey {
    pub(crate) fn of(pod: &mut wire::Pod) -> ClassKey {
        let mut spec = std::mem::take(&mut pod.spec);
        spec.node_name.clear();
        let mut owners = pod.metadata.owner_references.drain(..);
        ClassKey {
            namespace: pod.metadata.namespace.clone(),
            labels: std::mem::take(&mut pod.metadata.labels),
            controller: owners.find(|owner| owner.controller),
            name: spec
                .volumes
                .iter()
                .any(|volume| volume.ephemeral.is_some())
                .then(|| pod.metadata.name.clone()),
            spec,
        }
    }

    pub(crate) fn rules(&self) -> NodeRules {
        NodeRules {
            selector: self.spec.node_selector.clone(),
            affinity: self.spec.affinity.node_affinity.clone(),
            tolerations: self.spec.tolerations.clone(),
            pin: self.labels.get(PIN_LABEL).cloned(),
        }
    }

    /// Whether a label of the seed names the node.
    pub(crate) fn is_pinned(&self) -> bool {
        self.labels.contains_key(PIN_LABEL)
    }

    pub(crate) fn wants_most_free_memory(&self) -> bool {
        self.labels.get(POLICY_LABEL).is_some_and(|policy| policy == "on")
    }

    /// The claims it uses.
    pub(crate) fn claims(&self) -> Vec<String> {
        let claim = |volume: &wire::Volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => Some(source.claim_name.clone()),
            (None, Some(_)) => Some(format!("{}-{}", self.name.as_deref()?, volume.name)),
            (None, None) => None,
        };
        self.spec.volumes.iter().filter_map(claim).collect()
    }

    pub(crate) fn ports(&self) -> Vec<HostPort> {
        let or = |text: &str, default: &str| if text.is_empty() { default } else { text }.to_owned();
        self.spec
            .containers
            .iter()
            .chain(self.spec.init_containers.iter().filter(|c| c.restart_policy.as_deref() == Some("Always")))
            .flat_map(|container| &container.ports)
            .filter(|port| port.host_port > 0)
            .map(|port| HostPort {
                ip: or(&port.host_ip, "0.0.0.0"),
                protocol: or(&port.protocol, "TCP"),
                port: port.host_port,
            })
            .collect()
    }

    /// The terms it carries: required ones first refuse or attract, preferred ones weigh.
    pub(crate) fn carries(&self) -> Vec<(wire::PodTerm, bool, i64)> {
        let affinity = &self.spec.affinity;
        let mut terms = Vec::new();
        for term in &affinity.pod_anti_affinity.required {
            terms.push((term.clone(), true, 0));
        }
        for term in &affinity.pod_affinity.required {
            terms.push((term.clone(), false, HARD_AFFINITY_WEIGHT));
        }
        for term in &affinity.pod_affinity.preferred {
            terms.push((term.pod_affinity_term.clone(), false, i64::from(term.weight)));
        }
        for term in &affinity.pod_anti_affinity.preferred {
            terms.push((term.pod_affinity_term.clone(), false, -i64::from(term.weight)));
        }
        terms
    }

    pub(crate) fn matcher(&self, term: &wire::PodTerm) -> Matcher {
        Matcher::one(Part::of_term(term, &self.namespace, &self.labels))
    }

    pub(crate) fn held(&self, term: &wire::PodTerm, topology: u32) -> HeldSpec {
        HeldSpec { matcher: self.matcher(term), topology }
    }

    /// Whether it may not take the place of others.
    pub(crate) fn never_preempts(&self) -> bool {
        self.spec.preemption_policy.as_deref() == Some("Never")
    }
}

impl HostPort {
    pub(crate) fn conflicts(&self, other: &HostPort) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == "0.0.0.0" || other.ip == "0.0.0.0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_conflict_by_address_and_protocol() {
        let port =
            |ip: &str, protocol: &str, port| HostPort { ip: ip.into(), protocol: protocol.into(), port };
        let any = port("0.0.0.0", "TCP", 80);
        assert!(any.conflicts(&port("127.0.0.1", "TCP", 80)));
        assert!(!any.conflicts(&port("0.0.0.0", "UDP", 80)));
        assert!(!any.conflicts(&port("0.0.0.0", "TCP", 81)));
        assert!(!port("127.0.0.1", "TCP", 80).conflicts(&port("127.0.0.2", "TCP", 80)));
    }
}
