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

    /// What others are told who want the same path.
    pub fn has_it(&self) -> (&'static str, String) {
        ("PathTaken", format!("it leads where {self} says, which is older"))
    }

    /// What others are told who want the same host.
    pub fn has_host(&self) -> (&'static str, String) {
        ("HostTaken", format!("it is a host of namespace {:?}, by {self}", self.namespace))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Where images come from unless a reference says otherwise, and where most of the others come from: what answers in
/// their place chooses what runs.
const REGISTRIES: [&str; 7] =
    ["docker.io", "docker.com", "quay.io", "ghcr.io", "gcr.io", "pkg.dev", "registry.k8s.io"];
/// Names that lead to the machine itself, and services' names as certificates have them: without the cluster's domain.
const BELOW_NOBODY: [&str; 2] = ["localhost", "svc"];
/// The control plane's own, within the cluster.
const CONTROL_PLANE: [&str; 2] = ["kubernetes", "kubernetes.default"];

/// Names that mean something already: no object of some namespace can lead them elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Reserved {
    domain: String,
    names: HashSet<String>,
}

impl Reserved {
    /// What is below the cluster's domain, and its machines: nodes, and what the control plane is reached by.
    pub fn new(domain: &str, machines: impl Iterator<Item = String>) -> Reserved {
        let machines = machines.map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        Reserved {
            domain: domain.trim_matches('.').to_ascii_lowercase(),
            names: machines.filter(|name| !name.is_empty()).collect(),
        }
    }

    /// Whether a host is one of them, or one that they are among.
    pub fn holds(&self, host: &str) -> bool {
        let name = host.strip_prefix("*.").unwrap_or(host);
        let is_below = |domain: &str| {
            !domain.is_empty()
                && name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        is_below(&self.domain)
            || BELOW_NOBODY.into_iter().chain(REGISTRIES).any(is_below)
            || CONTROL_PLANE.contains(&name)
            || self.names.contains(host)
            || host.parse::<IpAddr>().is_ok()
    }

    /// What is said of one.
    pub fn trouble(&self, host: &str) -> (&'static str, String) {
        (
            "HostReserved",
            format!("{host} is a name of the cluster, of a node or of a registry, and does not lead here"),
        )
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
            "kubernetes",
            "kubernetes.default.svc",
            "registry-1.docker.io",
            "*.docker.io",
            "*.cluster.local",
        ] {
            assert!(reserved.holds(host), "{host}");
        }
        for host in ["notcluster.local", "local", "shop.example.com", "*.n1", "n2"] {
            assert!(!reserved.holds(host), "{host}");
        }
        assert!(!Reserved::default().holds("example.com"));
    }
}
