//! Who somebody is, once that is settled.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Somebody: a person, a program, a node, or nobody in particular.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name that bindings name.
    pub name: String,
    /// Tells users of the same name at different times apart; often empty.
    pub uid: String,
    /// The groups, in the order they were found.
    pub groups: Vec<String>,
    /// More about them, such as the pod that a token is bound to.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The name of those who did not say who they are.
    pub const ANONYMOUS: &str = "system:anonymous";
    /// The group of all who said who they are.
    pub const AUTHENTICATED: &str = "system:authenticated";
    /// The group of all who did not.
    pub const UNAUTHENTICATED: &str = "system:unauthenticated";
    /// The group that may do everything.
    pub const MASTERS: &str = "system:masters";
    /// The group of all nodes.
    pub const NODES: &str = "system:nodes";
    /// The group of all service accounts.
    pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
    /// The extra that says which credential was shown.
    pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

    const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
    const NODE_PREFIX: &str = "system:node:";

    /// Somebody who did not say who they are.
    pub fn anonymous() -> User {
        User {
            name: Self::ANONYMOUS.to_owned(),
            groups: vec![Self::UNAUTHENTICATED.to_owned()],
            ..User::default()
        }
    }

    /// A service account, without the groups of all who are authenticated.
    pub fn service_account(namespace: &str, name: &str) -> User {
        User {
            name: Self::service_account_name(namespace, name),
            groups: Self::service_account_groups(namespace),
            ..User::default()
        }
    }

    /// The user name of a service account.
    pub fn service_account_name(namespace: &str, name: &str) -> String {
        format!("{}{namespace}:{name}", Self::SERVICE_ACCOUNT_PREFIX)
    }

    /// The groups of the service accounts of a namespace.
    pub fn service_account_groups(namespace: &str) -> Vec<String> {
        vec![Self::SERVICE_ACCOUNTS.to_owned(), format!("{}:{namespace}", Self::SERVICE_ACCOUNTS)]
    }

    /// Namespace and name, if that is the user name of a service account.
    pub fn split_service_account(name: &str) -> Option<(&str, &str)> {
        let (namespace, name) = name.strip_prefix(Self::SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
        (is_name(namespace, false) && is_name(name, true)).then_some((namespace, name))
    }

    /// The node, if this is one.
    pub fn node(&self) -> Option<&str> {
        let node = self.name.strip_prefix(Self::NODE_PREFIX)?;
        self.is_in(Self::NODES).then_some(node)
    }

    /// Whether they are in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// With the group of those who said who they are.
    pub fn authenticated(mut self) -> User {
        if !self.is_in(Self::AUTHENTICATED) && !self.is_in(Self::UNAUTHENTICATED) {
            self.groups.push(Self::AUTHENTICATED.to_owned());
        }
        self
    }

    /// As `UserInfo` of the authentication API.
    pub fn to_json(&self) -> Value {
        let mut info = json!({"username": self.name});
        if !self.uid.is_empty() {
            info["uid"] = json!(self.uid);
        }
        if !self.groups.is_empty() {
            info["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

/// A DNS label, or a DNS subdomain where dots are allowed.
fn is_name(name: &str, dots: bool) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if dots { name.len() <= 253 && name.split('.').all(label) } else { name.len() <= 63 && label(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_service_accounts_are_taken_apart() {
        let check = |name: &str, expected| assert_eq!(User::split_service_account(name), expected, "{name}");
        check("system:serviceaccount:ns:default", Some(("ns", "default")));
        check("system:serviceaccount:ns:a.b", Some(("ns", "a.b")));
        check("system:serviceaccount:n.s:a", None);
        check("system:serviceaccount:ns:a:b", None);
        check("system:serviceaccount:ns:", None);
        check("system:serviceaccount:NS:a", None);
        check("jane", None);
    }

    #[test]
    fn a_node_needs_its_name_and_its_group() {
        let user = |name: &str, group: &str| User {
            name: name.into(),
            groups: vec![group.into()],
            ..User::default()
        };
        assert_eq!(user("system:node:n1", "system:nodes").node(), Some("n1"));
        assert_eq!(user("system:node:n1", "other").node(), None);
        assert_eq!(user("n1", "system:nodes").node(), None);
        assert_eq!(user("system:node:", "system:nodes").node(), Some(""));
    }
}
