//! Who asks, and whether they may.
//!
//! ```text
//! certificate ─┐                                                     ┌─ system:masters
//! bearer token ┼─ authn ─> User ─ impersonation ─> User ─ Authorizer ┼─ node (graph of what runs where)
//! nothing ─────┘                                                     └─ rbac (roles and bindings)
//! ```
//!
//! All of it is synchronous and keeps no connection to anything: indexes are fed with objects (`apply`,
//! `delete`), other objects are asked for through [`Lookup`], time is given by the caller. HTTP, watching and
//! writing are the server's. There is no way to switch any of it off.

pub mod authn;
pub mod bootstrap;
pub mod impersonation;
pub mod node;
pub mod rbac;
pub mod token;

mod access_review;
mod attributes;
mod authorizer;
mod user;

pub use access_review::{access_review, reviewed_user};
pub use attributes::Attributes;
pub use authorizer::{Authorizer, Decision, Reason};
pub use user::User;

use api::Value;
use jiff::Timestamp;

/// What has to be known of an object to tell whether it is still the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.deletionTimestamp`.
    pub deleted: Option<Timestamp>,
}

impl Identity {
    /// Reads it from an object.
    pub fn of(object: &Value) -> Identity {
        Identity {
            uid: api::object::meta(object, "uid").unwrap_or_default().to_owned(),
            deleted: api::object::meta(object, "deletionTimestamp").and_then(|at| at.parse().ok()),
        }
    }
}

/// Other objects, as the server's caches have them.
///
/// Resources are named as `kubectl` does: `pods`, `csidrivers.storage.k8s.io`. The namespace of a cluster-scoped
/// object is empty.
pub trait Lookup {
    /// The whole object.
    fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value>;

    /// Only its identity: asked with every request of a service account, so worth answering without decoding.
    fn identity(&self, resource: &str, namespace: &str, name: &str) -> Option<Identity> {
        self.object(resource, namespace, name).map(|object| Identity::of(&object))
    }
}

#[cfg(test)]
mod tests;
