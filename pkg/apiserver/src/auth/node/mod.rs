//! What a node may do: work on itself and on what runs on it, and nothing else.
//!
//! ```text
//! node <── pod <── secret, configmap, claim, service account, resource claim
//!   ↑        └──── claim <── volume <── secret
//!   └── volume attachment, resource slice
//! every node <── ingress <── secret
//! ```
//!
//! Two doors, as upstream: [`Graph::authorize`] decides by name before an object is read (a node may get a secret
//! only if one of its pods uses it), [`restrict`] looks at the content of what a node writes. What neither divides
//! further is allowed to all nodes alike by the rules of the role `system:node`.

mod authorize;
mod graph;
mod references;
mod restriction;

pub use graph::Graph;
pub use restriction::{Restricted, restrict};
