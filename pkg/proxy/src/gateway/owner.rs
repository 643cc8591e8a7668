//! Who wants a host and a path, and which hosts nobody can have.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

/// An object that leads hosts and paths somewhere. The oldest is the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    created: Option<jiff::Timestamp>,
    kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    name: String,
}

impl Owner {
    /// Of an object of this kind.
    pub fn of(kind: &'static str, metadata: &ObjectMeta) -> Owner {
        Owner {
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            kind,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    /// What others are told who want the same.
    pub fn has_it(&self) -> (&'static str, String) {
        ("PathTaken", format!("it leads where {self} says, which is older"))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Names that mean something already: no object of some namespace can lead them elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Reserved {
    domain: String,
    nodes: HashSet<String>,
}

impl Reserved {
    /// What is below the cluster's domain, and its nodes.
    pub fn new(domain: &str, nodes: impl Iterator<Item = String>) -> Reserved {
        Reserved {
            domain: domain.trim_matches('.').to_ascii_lowercase(),
            nodes: nodes.map(|node| node.to_ascii_lowercase()).collect(),
        }
    }

    /// Whether a host is one of them.
    pub fn holds(&self, host: &str) -> bool {
        let is_below = |domain: &str| {
            !domain.is_empty()
                && host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        is_below(&self.domain)
            || is_below("localhost")
            || self.nodes.contains(host)
            || host.parse::<IpAddr>().is_ok()
    }

    /// What is said of one.
    pub fn trouble(&self, host: &str) -> (&'static str, String) {
        ("HostReserved", format!("{host} is a name of the cluster or of a node, and does not lead here"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_names_are_nobodys() {
        let reserved = Reserved::new("cluster.local.", ["N1".to_owned()].into_iter());
        for host in [
            "hello.default.svc.cluster.local",
            "cluster.local",
            "localhost",
            "a.localhost",
            "n1",
            "10.0.0.1",
            "::1",
        ] {
            assert!(reserved.holds(host), "{host}");
        }
        for host in ["notcluster.local", "local", "shop.example.com", "*.n1", "n2"] {
            assert!(!reserved.holds(host), "{host}");
        }
        assert!(!Reserved::default().holds("example.com"));
    }
}
