//! Which nodes a daemon runs on, and how its pods are pinned to them.

use super::{GENERATION_ANNOTATION, GENERATION_LABEL, HASH_LABEL};
use crate::pods;
use api::node_selector;
use api::taints::tolerates;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};
use kube::ResourceExt;

/// Whether a daemon has a pod on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It should.
    Runs,
    /// One that is there stays, none is created.
    Stays,
    /// None may be there.
    Goes,
}

/// Whether a node is the same for daemons as it was.
pub fn is_same(old: &Node, new: &Node) -> bool {
    let of = |node: &Node| {
        let spec = node.spec.as_ref();
        (
            node.metadata.labels.clone(),
            spec.and_then(|spec| spec.taints.clone()),
            spec.and_then(|spec| spec.unschedulable),
        )
    };
    of(old) == of(new)
}

/// Whether a DaemonSet has a pod on a node.
pub fn fit(set: &DaemonSet, node: &Node) -> Fit {
    let name = node.name_any();
    let mut spec = set.spec.as_ref().and_then(|spec| spec.template.spec.clone()).unwrap_or_default();
    if spec.node_name.as_ref().is_some_and(|wanted| *wanted != name) || !matches_affinity(&spec, node) {
        return Fit::Goes;
    }
    add_tolerations(&mut spec);
    let tolerations = spec.tolerations.unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let repels = |effects: &[&str]| {
        let taints = taints.iter().filter(|taint| effects.contains(&taint.effect.as_str()));
        taints.clone().any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
    };
    if repels(&["NoExecute"]) {
        Fit::Goes
    } else if repels(&["NoSchedule"]) {
        Fit::Stays
    } else {
        Fit::Runs
    }
}

/// The node that a daemon's pod is on, or is meant for.
pub fn target_node(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = &spec.node_name {
        return Some(node.clone());
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let selector = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = selector.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    names.next()?.values.as_ref()?.first().cloned()
}

/// The pod of a DaemonSet for a node.
pub fn pod(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let mut template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    if let Some(generation) = set.annotations().get(GENERATION_ANNOTATION) {
        labels.insert(GENERATION_LABEL.into(), generation.clone());
    }
    labels.insert(HASH_LABEL.into(), hash.into());
    let spec = template.spec.get_or_insert_default();
    add_tolerations(spec);
    pin(spec.affinity.get_or_insert_default(), node);
    pods::from_template(&template, set)
}

fn pin(affinity: &mut Affinity, node: &str) {
    let field = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
    let affinity = affinity.node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}

/// A daemon stays while its node has trouble.
fn add_tolerations(spec: &mut PodSpec) {
    let mut wanted = vec![
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    if spec.host_network == Some(true) {
        wanted.push(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    }
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in wanted {
        let toleration = Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        let same = tolerations.iter_mut().find(|old| {
            old.key == toleration.key
                && old.effect == toleration.effect
                && old.operator == toleration.operator
        });
        match same {
            Some(same) => *same = toleration,
            None => tolerations.push(toleration),
        }
    }
}

fn matches_affinity(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.labels();
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| node_selector::selects(required, &node.name_any(), labels))
}
