//! Channels: where the changes of a resource are told.
//!
//! ```text
//! minik8s:heartbeat                 that the publisher is there
//! minik8s:all:deployments.apps      every object of a resource
//! minik8s:node:worker-1:pods        the objects of one node: its pods, and itself
//! ```
//!
//! `minik8s` is the name of the cluster: several may share a Redis. Names of resources and nodes have no character that means
//! anything to Redis' patterns; a name that has one has no channel.

use std::fmt;

/// Where changes are told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Channel {
    /// That the publisher is there, and how far it is.
    Heartbeat,
    /// All objects of a resource: `pods`, `deployments.apps`.
    All(String),
    /// Those of them that are of one node.
    Node {
        /// The node's name.
        node: String,
        /// The resource.
        resource: String,
    },
}

impl Channel {
    /// The channel of a resource of a group; the core group's name is empty. None if a name cannot be one.
    pub fn of_resource(group: &str, plural: &str) -> Option<Channel> {
        let resource = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        is_name(&resource).then_some(Channel::All(resource))
    }

    /// The channel of what is of one node.
    pub fn of_node(node: &str, resource: &str) -> Option<Channel> {
        let channel = || Channel::Node { node: node.to_owned(), resource: resource.to_owned() };
        (is_name(node) && is_name(resource)).then(channel)
    }

    /// As Redis knows it, in this cluster.
    pub fn name(&self, cluster: &str) -> String {
        format!("{cluster}:{self}")
    }

    /// What a name means in this cluster.
    pub fn parse(name: &str, cluster: &str) -> Option<Channel> {
        let rest = name.strip_prefix(cluster)?.strip_prefix(':')?;
        if rest == "heartbeat" {
            return Some(Channel::Heartbeat);
        }
        if let Some(resource) = rest.strip_prefix("all:") {
            return is_name(resource).then(|| Channel::All(resource.to_owned()));
        }
        let (node, resource) = rest.strip_prefix("node:")?.split_once(':')?;
        Channel::of_node(node, resource)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Channel::Heartbeat => write!(f, "heartbeat"),
            Channel::All(resource) => write!(f, "all:{resource}"),
            Channel::Node { node, resource } => write!(f, "node:{node}:{resource}"),
        }
    }
}

/// Whether this is a DNS name, as resources, groups and nodes have them: nothing that a pattern of Redis could be made of.
pub(crate) fn is_name(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.len() <= 512 && text.bytes().all(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_read_as_it_is_named() {
        let check = |channel: Option<Channel>, name: &str| {
            let channel = channel.expect("good names");
            assert_eq!(channel.name("blue"), name);
            assert_eq!(Channel::parse(name, "blue"), Some(channel));
            assert_eq!(Channel::parse(name, "green"), None);
        };
        check(Some(Channel::Heartbeat), "blue:heartbeat");
        check(Channel::of_resource("", "pods"), "blue:all:pods");
        check(Channel::of_resource("apps", "deployments"), "blue:all:deployments.apps");
        check(Channel::of_node("worker-1.example.com", "pods"), "blue:node:worker-1.example.com:pods");
    }

    #[test]
    fn no_name_makes_a_pattern_or_another_channel() {
        for name in ["", "*", "a*", "a?b", "[ab]", "a\\b", "a:pods", "A", "a b", "a\r\nb", "ä"] {
            assert_eq!(Channel::of_node(name, "pods"), None, "{name:?}");
            assert_eq!(Channel::of_resource("", name), None, "{name:?}");
        }
        for name in ["blue:node:a:b:pods", "blue:node:a", "blue:all:", "blue:all:*", "blue:", "blue"] {
            assert_eq!(Channel::parse(name, "blue"), None, "{name:?}");
        }
    }
}
