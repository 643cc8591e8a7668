//! What a pod says of the node it wants, whatever else runs there: selector, affinity, tolerations, a pin.
//!
//! ```text
//! NodeRules ──compile──> Compiled ──verdict(node)──> 0, or which rule the node breaks
//! ```
//!
//! Verdicts are kept per node and made again only for a node that changed, so that a thousand equal pods cost one look.

use crate::wire;
use api::node_selector::{Term, Written};
use api::selector::Labels;
use api::taints::{TaintParts, tolerates};
use std::collections::BTreeSet;

/// The taint of a node that is cordoned, also before it has it.
const UNSCHEDULABLE: TaintParts<'_> =
    TaintParts { key: "node.kubernetes.io/unschedulable", value: "", effect: "NoSchedule" };

/// The rules of a pod for nodes. Pods with equal rules share one table of verdicts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeRules {
    pub selector: wire::Map,
    pub affinity: wire::NodeAffinity,
    pub tolerations: Vec<wire::Toleration>,
    /// The seed's label `node`.
    pub pin: Option<String>,
}

/// Why a node is not one for a pod, whatever runs on it. Zero is no reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Verdict {
    Fits = 0,
    Unschedulable = 1,
    NodeName = 2,
    Taint = 3,
    Affinity = 4,
}

/// What rules look at.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeFacts {
    pub name: String,
    pub labels: Labels,
    pub taints: Vec<wire::Taint>,
    pub unschedulable: bool,
}

/// Rules, ready to be asked.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    selector: Vec<(String, String)>,
    /// No terms match no node; no affinity matches all.
    required: Option<Vec<Term>>,
    preferred: Vec<(i64, Term)>,
    tolerations: Vec<wire::Toleration>,
    pin: Option<String>,
}

/// Terms of which one must hold.
pub(crate) fn terms(selector: &wire::NodeSelector) -> Vec<Term> {
    selector.node_selector_terms.iter().map(term).collect()
}

fn term(term: &wire::NodeTerm) -> Term {
    Term::new(term.match_expressions.iter().map(written), term.match_fields.iter().map(written))
}

fn written(expression: &wire::Expression) -> Written<'_> {
    (&expression.key, &expression.operator, &expression.values)
}

impl NodeRules {
    /// The only nodes that affinity allows by name, where it does: then nobody else need be asked.
    pub(crate) fn names(&self) -> Option<BTreeSet<&str>> {
        let required = self.affinity.required.as_ref()?;
        let mut names = BTreeSet::new();
        for term in &required.node_selector_terms {
            let mut of_term: Option<BTreeSet<&str>> = None;
            for field in &term.match_fields {
                if field.key == "metadata.name" && field.operator == "In" {
                    let values: BTreeSet<&str> = field.values.iter().map(String::as_str).collect();
                    of_term = Some(match of_term {
                        Some(others) => others.intersection(&values).copied().collect(),
                        None => values,
                    });
                }
            }
            names.extend(of_term?);
        }
        if required.node_selector_terms.is_empty() { None } else { Some(names) }
    }

    pub(crate) fn compile(&self) -> Compiled {
        Compiled {
            selector: self.selector.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            required: self.affinity.required.as_ref().map(terms),
            preferred: self
                .affinity
                .preferred
                .iter()
                .filter(|preferred| preferred.weight != 0)
                .map(|preferred| (i64::from(preferred.weight), term(&preferred.preference)))
                .collect(),
            tolerations: self.tolerations.clone(),
            pin: self.pin.clone(),
        }
    }
}

impl Compiled {
    /// The first rule that the node breaks, in the order of upstream's filters.
    pub(crate) fn verdict(&self, node: &NodeFacts) -> Verdict {
        if node.unschedulable && !self.tolerates(UNSCHEDULABLE) {
            Verdict::Unschedulable
        } else if self.pin.as_ref().is_some_and(|pin| *pin != node.name) {
            Verdict::NodeName
        } else if !self.tolerates_all(&node.taints) {
            Verdict::Taint
        } else if !self.selects(node) {
            Verdict::Affinity
        } else {
            Verdict::Fits
        }
    }

    /// Whether selector and required affinity hold.
    pub(crate) fn selects(&self, node: &NodeFacts) -> bool {
        self.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            && self
                .required
                .as_ref()
                .is_none_or(|terms| terms.iter().any(|term| term.holds(&node.name, &node.labels)))
    }

    /// Whether no taint keeps the pod from being placed.
    pub(crate) fn tolerates_all(&self, taints: &[wire::Taint]) -> bool {
        taints
            .iter()
            .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
            .all(|taint| self.tolerates(taint))
    }

    /// How many taints would rather not have the pod.
    pub(crate) fn unwelcome(&self, taints: &[wire::Taint]) -> i64 {
        let unwelcome =
            taints.iter().filter(|taint| taint.effect == "PreferNoSchedule" && !self.tolerates(*taint));
        unwelcome.count() as i64
    }

    /// The weights of the preferences that the node meets.
    pub(crate) fn preference(&self, node: &NodeFacts) -> i64 {
        self.preferred.iter().filter(|(_, term)| term.holds(&node.name, &node.labels)).map(|(w, _)| w).sum()
    }

    pub(crate) fn has_preferences(&self) -> bool {
        !self.preferred.is_empty()
    }

    fn tolerates<'a>(&self, taint: impl Into<TaintParts<'a>>) -> bool {
        let taint = taint.into();
        self.tolerations.iter().any(|toleration| tolerates(toleration, taint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(spec: Value, node: Value) -> Verdict {
        let spec: wire::PodSpec = serde_json::from_value(spec).unwrap();
        let node: wire::Node = serde_json::from_value(node).unwrap();
        let rules = NodeRules {
            selector: spec.node_selector,
            affinity: spec.affinity.node_affinity,
            tolerations: spec.tolerations,
            pin: None,
        };
        let facts = NodeFacts {
            name: node.metadata.name,
            labels: node.metadata.labels.iter().collect(),
            taints: node.spec.taints,
            unschedulable: node.spec.unschedulable,
        };
        rules.compile().verdict(&facts)
    }

    fn required(expression: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
    }

    #[test]
    fn selector_and_affinity_look_at_labels() {
        let node = json!({"metadata": {"name": "n", "labels": {"disk": "ssd", "cpus": "8"}}});
        let cases = [
            (json!({"nodeSelector": {"disk": "ssd"}}), Verdict::Fits),
            (json!({"nodeSelector": {"disk": "hdd"}}), Verdict::Affinity),
            (required(json!({"key": "disk", "operator": "In", "values": ["ssd", "nvme"]})), Verdict::Fits),
            (required(json!({"key": "disk", "operator": "NotIn", "values": ["ssd"]})), Verdict::Affinity),
            (required(json!({"key": "gpu", "operator": "DoesNotExist"})), Verdict::Fits),
            (required(json!({"key": "gpu", "operator": "Exists"})), Verdict::Affinity),
            (required(json!({"key": "cpus", "operator": "Gt", "values": ["7"]})), Verdict::Fits),
            (required(json!({"key": "cpus", "operator": "Lt", "values": ["8"]})), Verdict::Affinity),
            (required(json!({"key": "cpus", "operator": "Odd"})), Verdict::Affinity),
        ];
        for (spec, expected) in cases {
            assert_eq!(check(spec.clone(), node.clone()), expected, "{spec}");
        }
    }

    #[test]
    fn no_terms_match_no_node() {
        let spec = json!({"affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}});
        assert_eq!(check(spec, json!({"metadata": {"name": "n"}})), Verdict::Affinity);
    }

    #[test]
    fn taints_need_tolerations() {
        let node = |effect: &str| json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "value": "b", "effect": effect}]}});
        let tolerates = |toleration: Value| json!({"tolerations": [toleration]});
        let cases = [
            (json!({}), "NoSchedule", Verdict::Taint),
            (json!({}), "NoExecute", Verdict::Taint),
            (json!({}), "PreferNoSchedule", Verdict::Fits),
            (tolerates(json!({"key": "a", "value": "b"})), "NoSchedule", Verdict::Fits),
            (tolerates(json!({"key": "a", "value": "c"})), "NoSchedule", Verdict::Taint),
            (tolerates(json!({"key": "a", "operator": "Exists"})), "NoSchedule", Verdict::Fits),
            (tolerates(json!({"operator": "Exists"})), "NoExecute", Verdict::Fits),
            (tolerates(json!({"operator": "Exists", "effect": "NoSchedule"})), "NoExecute", Verdict::Taint),
        ];
        for (spec, effect, expected) in cases {
            assert_eq!(check(spec.clone(), node(effect)), expected, "{spec} {effect}");
        }
    }

    #[test]
    fn a_cordoned_node_takes_only_who_tolerates_it() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
        assert_eq!(check(json!({}), node.clone()), Verdict::Unschedulable);
        let spec =
            json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]});
        assert_eq!(check(spec, node), Verdict::Fits);
    }

    #[test]
    fn names_are_known_only_where_every_term_has_one() {
        let rules = |terms: Value| NodeRules {
            affinity: serde_json::from_value(
                json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}),
            )
            .unwrap(),
            ..NodeRules::default()
        };
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        let pinned = rules(json!([{"matchFields": [field]}]));
        assert_eq!(pinned.names(), Some(["n1"].into()));
        let open = rules(
            json!([{"matchFields": [field]}, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]),
        );
        assert_eq!(open.names(), None);
    }
}
