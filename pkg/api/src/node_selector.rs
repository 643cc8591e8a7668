//! Terms of a NodeSelector: which nodes the affinity of a pod, or a volume, means.
//!
//! ```text
//! NodeSelector: [Term, …]  one must hold     Term: matchExpressions (labels), matchFields (metadata.name)  all must hold
//! ```

use crate::selector::{Lookup, Operator, Requirement};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

/// Requirements that must all hold. A term that is empty, or was not understood, holds nowhere.
#[derive(Debug, Default)]
pub struct Term {
    expressions: Option<Vec<Requirement>>,
    names: Vec<(Operator, Vec<String>)>,
}

/// One requirement of a term, as it is written: key, operator, values.
pub type Written<'a> = (&'a str, &'a str, &'a [String]);

impl Term {
    /// A term of these expressions on labels and on fields.
    pub fn new<'a>(
        expressions: impl ExactSizeIterator<Item = Written<'a>>,
        fields: impl ExactSizeIterator<Item = Written<'a>>,
    ) -> Term {
        if expressions.len() + fields.len() == 0 {
            return Term::default();
        }
        let requirement = |(key, operator, values): Written<'a>| {
            let values = values.iter().map(String::as_str).collect();
            Requirement::new(key, operator_named(operator)?, values).ok()
        };
        let name = |(key, operator, values): Written<'a>| {
            let operator =
                operator_named(operator).filter(|it| matches!(it, Operator::In | Operator::NotIn))?;
            (key == "metadata.name").then(|| (operator, values.to_vec()))
        };
        let expressions: Option<Vec<_>> = expressions.map(requirement).collect();
        match fields.map(name).collect::<Option<Vec<_>>>() {
            Some(names) => Term { expressions, names },
            None => Term::default(),
        }
    }

    /// Whether a node of this name with these labels is meant.
    pub fn holds(&self, name: &str, labels: &impl Lookup) -> bool {
        let is_named = |operator: &Operator, names: &[String]| {
            names.iter().any(|other| other == name) == (*operator == Operator::In)
        };
        self.expressions
            .as_ref()
            .is_some_and(|expressions| expressions.iter().all(|expression| expression.matches(labels)))
            && self.names.iter().all(|(operator, names)| is_named(operator, names))
    }
}

impl From<&NodeSelectorTerm> for Term {
    fn from(term: &NodeSelectorTerm) -> Term {
        Term::new(written(&term.match_expressions), written(&term.match_fields))
    }
}

fn written(
    requirements: &Option<Vec<NodeSelectorRequirement>>,
) -> impl ExactSizeIterator<Item = Written<'_>> {
    requirements.as_deref().unwrap_or_default().iter().map(|requirement| {
        let values = requirement.values.as_deref().unwrap_or_default();
        (requirement.key.as_str(), requirement.operator.as_str(), values)
    })
}

/// Whether a node is one of those that a selector means.
pub fn selects(selector: &NodeSelector, name: &str, labels: &impl Lookup) -> bool {
    selector.node_selector_terms.iter().any(|term| Term::from(term).holds(name, labels))
}

fn operator_named(name: &str) -> Option<Operator> {
    Some(match name {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn check(term: Value) -> bool {
        let selector: NodeSelector =
            serde_json::from_value(json!({"nodeSelectorTerms": [term]})).expect("a selector");
        let labels = [("disk", "ssd"), ("cpus", "8")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        selects(&selector, "n1", &BTreeMap::from(labels))
    }

    #[test]
    fn all_requirements_of_a_term_must_hold() {
        let label = |key: &str, operator: &str, values: Value| {
            check(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        assert!(label("disk", "In", json!(["ssd", "nvme"])));
        assert!(!label("disk", "NotIn", json!(["ssd"])));
        assert!(label("gpu", "NotIn", json!(["a"])), "a label that is not there is not in");
        assert!(label("gpu", "DoesNotExist", json!([])));
        assert!(!label("gpu", "Exists", json!([])));
        assert!(label("cpus", "Gt", json!(["7"])));
        assert!(!label("cpus", "Lt", json!(["8"])));
        assert!(!label("disk", "Gt", json!(["7"])), "no number");
        assert!(!label("disk", "Odd", json!(["ssd"])));
        let both = |size: &str| {
            let sized = json!({"key": "cpus", "operator": "In", "values": [size]});
            check(json!({"matchExpressions": [{"key": "disk", "operator": "Exists"}, sized]}))
        };
        assert!(both("8") && !both("4"));
    }

    #[test]
    fn fields_are_the_name_and_nothing_else() {
        let field = |key: &str, operator: &str, values: Value| {
            check(json!({"matchFields": [{"key": key, "operator": operator, "values": values}]}))
        };
        assert!(field("metadata.name", "In", json!(["n1"])));
        assert!(!field("metadata.name", "NotIn", json!(["n1"])));
        assert!(field("metadata.name", "NotIn", json!(["n2"])));
        assert!(!field("metadata.name", "Exists", json!([])));
        assert!(!field("metadata.uid", "NotIn", json!(["u"])));
    }

    #[test]
    fn a_term_that_says_nothing_means_no_node() {
        assert!(!check(json!({})));
    }
}
