//! The decision, from those who have a say in it: `system:masters`, then the node graph, then RBAC.

use super::rbac::Grant;
use super::{Attributes, User, node, rbac};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// Whether somebody may, and why (or why not).
#[derive(Debug, Clone)]
pub struct Decision {
    /// Whether they may. Otherwise nobody allowed it: nobody can forbid what somebody else allows.
    pub allowed: bool,
    /// For logs, reviews and refusals.
    pub reason: Reason,
}

/// Text that is only made when somebody reads it.
#[derive(Debug, Clone, Default)]
pub enum Reason {
    /// Nothing to say.
    #[default]
    None,
    /// Said already.
    Text(String),
    /// Allowed by a binding.
    Granted(Arc<Grant>),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::None => Ok(()),
            Reason::Text(text) => f.write_str(text),
            Reason::Granted(grant) => write!(f, "RBAC: allowed by {grant}"),
        }
    }
}

impl Decision {
    pub(crate) fn allow() -> Decision {
        Decision { allowed: true, reason: Reason::None }
    }

    pub(crate) fn no_opinion(reason: impl Into<String>) -> Decision {
        let text = reason.into();
        let reason = if text.is_empty() { Reason::None } else { Reason::Text(text) };
        Decision { allowed: false, reason }
    }
}

/// All that decisions are taken from.
#[derive(Debug, Default)]
pub struct Authorizer {
    /// Roles and bindings.
    pub rbac: rbac::Index,
    /// What runs on which node, and what it needs.
    pub node: node::Graph,
}

impl Authorizer {
    /// Whether the user may do that.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.is_in(User::MASTERS) {
            return Decision::allow();
        }
        let node = self.node.authorize(attributes);
        if node.allowed {
            return node;
        }
        let mut rbac = self.rbac.authorize(attributes);
        if !rbac.allowed
            && let Reason::Text(first) = node.reason
        {
            let text = match rbac.reason {
                Reason::Text(second) => format!("{first}\n{second}"),
                _ => first,
            };
            rbac.reason = Reason::Text(text);
        }
        rbac
    }

    /// The status of a SelfSubjectRulesReview: all that the user may do in a namespace, as far as can be listed.
    pub fn rules_review(&self, user: &User, namespace: &str) -> Value {
        let (rules, mut errors) = self.rbac.rules_for(user, namespace);
        let resource: Vec<Value> =
            rules.iter().filter(|rule| !rule.resources.is_empty()).map(|rule| rule.without_urls()).collect();
        let other: Vec<Value> = rules
            .iter()
            .filter(|rule| !rule.non_resource_urls.is_empty())
            .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}))
            .collect();
        let is_node = user.node().is_some();
        if is_node {
            errors.insert(0, "node authorizer does not support user rule resolution".to_owned());
        }
        let mut status = json!({"resourceRules": resource, "nonResourceRules": other, "incomplete": is_node});
        if !errors.is_empty() {
            status["evaluationError"] = json!(rbac::aggregate_errors(&errors));
        }
        status
    }
}
