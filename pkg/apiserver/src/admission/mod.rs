//! Admission: what the server changes in, or refuses of, an object that is valid by itself.
//!
//! An ordered list of plug-ins, each a plain function of the request, the object and the caches. A plug-in joins by
//! one line in [`PLUGINS`]. After them come those of others: [`webhook`].

mod default_toleration_seconds;
mod limit_ranger;
mod namespace_lifecycle;
mod node_restriction;
mod priority;
mod rbac_escalation;
mod runtime_class;
mod service_account;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;
pub mod webhook;

use crate::auth::User;
use crate::context::Context;
use crate::error::Result;
use crate::registry::Resource;
use crate::server::Server;
use api::{Kind, Value, object};
use jiff::Timestamp;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change.
    Update,
    /// A deletion.
    Delete,
    /// A stream to a pod, or a request that is passed on.
    Connect,
}

impl Operation {
    /// As webhooks know it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// What a plug-in sees beside the object.
pub struct Request<'a> {
    /// The server, for its caches.
    pub server: &'a Server,
    /// What is being done.
    pub operation: Operation,
    /// To what kind.
    pub kind: &'a Kind,
    /// In which namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// To which object; empty while it has no name.
    pub name: String,
    /// To which part; empty for the object itself.
    pub subresource: &'a str,
    /// By whom.
    pub user: &'a User,
    /// The object as it was.
    pub old: Option<&'a Value>,
    /// When.
    pub now: Timestamp,
}

impl Request<'_> {
    /// Whether this is about the kind of that group and plural itself, not a part of it.
    pub fn is_for(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.kind.group == group && self.kind.plural == plural
    }
}

/// A plug-in: may change the object (there is none when it is deleted), or refuse the request.
type Plugin = fn(&Request<'_>, Option<&mut Value>) -> Result<()>;

/// The plug-ins, in the order they are asked.
const PLUGINS: &[(&str, Plugin)] = &[
    ("NamespaceLifecycle", namespace_lifecycle::admit),
    ("ServiceAccount", service_account::admit),
    ("NodeRestriction", node_restriction::admit),
    ("TaintNodesByCondition", taint_nodes_by_condition::admit),
    ("DefaultTolerationSeconds", default_toleration_seconds::admit),
    ("Priority", priority::admit),
    ("RuntimeClass", runtime_class::admit),
    ("StorageObjectInUseProtection", storage_object_in_use_protection::admit),
    // It sees what all others have put in.
    ("LimitRanger", limit_ranger::admit),
    ("RBACEscalation", rbac_escalation::admit),
];

/// Asks every plug-in about a create or an update.
pub fn admit(
    server: &Server,
    operation: Operation,
    resource: &Resource,
    subresource: &str,
    context: &Context,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<()> {
    let request = Request {
        server,
        operation,
        kind: &resource.kind,
        namespace: object::namespace(new).to_owned(),
        name: object::name(new).to_owned(),
        subresource,
        user: &context.user,
        old,
        now: context.now,
    };
    PLUGINS.iter().try_for_each(|(_, plugin)| plugin(&request, Some(&mut *new)))
}

/// Asks every plug-in about a deletion.
pub fn admit_delete(server: &Server, resource: &Resource, context: &Context, old: &Value) -> Result<()> {
    let request = Request {
        server,
        operation: Operation::Delete,
        kind: &resource.kind,
        namespace: object::namespace(old).to_owned(),
        name: object::name(old).to_owned(),
        subresource: "",
        user: &context.user,
        old: Some(old),
        now: context.now,
    };
    PLUGINS.iter().try_for_each(|(_, plugin)| plugin(&request, None))
}

/// Whether a text stands anywhere in encoded JSON: a quick no, for what is rarely there, before decoding.
fn mentions(json: &[u8], text: &str) -> bool {
    json.windows(text.len()).any(|window| window == text.as_bytes())
}
