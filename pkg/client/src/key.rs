//! Where an object of a kind is: its namespace and name.

use kube::{Resource, ResourceExt};
use std::fmt;

/// The namespace (empty for cluster-wide kinds) and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The namespace, empty where there is none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// A key of these.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Key {
        Key { namespace: namespace.into(), name: name.into() }
    }

    /// A key of a cluster-wide object.
    pub fn cluster(name: impl Into<String>) -> Key {
        Key::new("", name)
    }

    /// Where this object is.
    pub fn of(object: &impl Resource) -> Key {
        Key::new(object.namespace().unwrap_or_default(), object.name_any())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}
