//! Admission: what the server changes in, or refuses of, an object that is valid by itself.
//!
//! An ordered list of plug-ins, each a plain function of the request, the object and the caches. A plug-in joins by
//! one line in [`PLUGINS`], or in [`VALIDATORS`] if it changes nothing. Those of others are [`webhook`]s and [`policy`].
//!
//! ```text
//! PLUGINS ──> webhooks that change ──> the kind's rules ──> VALIDATORS ──> policies ──> webhooks that refuse
//! ```

mod certificate_approval;
mod certificate_signing;
mod certificate_subject_restriction;
mod default_class;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
pub mod domain_claim;
mod limit_ranger;
mod matching;
mod namespace_lifecycle;
mod node_restriction;
mod param_access;
mod persistent_volume_claim_resize;
mod pod_security;
pub mod pod_topology_labels;
pub mod policy;
mod priority;
pub mod question;
mod rbac_escalation;
mod runtime_class;
mod service_account;
mod service_addresses;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;
mod understood;
pub mod webhook;

use crate::context::Context;
use crate::error::Result;
use crate::registry::Resource;
use crate::server::Server;
use api::{Kind, Value, object};

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
    /// By whom and when, and what to tell them.
    pub context: &'a Context,
    /// The object as it was.
    pub old: Option<&'a Value>,
}

impl<'a> Request<'a> {
    /// About an object of the resource, which is named by `named`.
    fn new(
        server: &'a Server,
        operation: Operation,
        resource: &'a Resource,
        subresource: &'a str,
        context: &'a Context,
        named: &Value,
        old: Option<&'a Value>,
    ) -> Request<'a> {
        Request {
            server,
            operation,
            kind: &resource.kind,
            namespace: object::namespace(named).to_owned(),
            name: object::name(named).to_owned(),
            subresource,
            context,
            old,
        }
    }

    /// Whether this is about the kind of that group and plural itself, not a part of it.
    pub fn is_for(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.kind.group == group && self.kind.plural == plural
    }
}

/// A plug-in: may change the object (there is none when it is deleted), or refuse the request.
type Plugin = fn(&Request<'_>, Option<&mut Value>) -> Result<()>;

/// A plug-in that only looks: it refuses a create or an update, or warns of it.
type Validator = fn(&Request<'_>, &Value) -> Result<()>;

/// The plug-ins that may change objects, in the order they are asked.
const PLUGINS: &[(&str, Plugin)] = &[
    ("NamespaceLifecycle", namespace_lifecycle::admit),
    ("ServiceAccount", service_account::admit),
    ("NodeRestriction", node_restriction::admit),
    ("TaintNodesByCondition", taint_nodes_by_condition::admit),
    ("DefaultTolerationSeconds", default_toleration_seconds::admit),
    ("Priority", priority::admit),
    ("RuntimeClass", runtime_class::admit),
    ("DefaultStorageClass", default_storage_class::admit),
    ("StorageObjectInUseProtection", storage_object_in_use_protection::admit),
    ("DefaultIngressClass", default_ingress_class::admit),
    ("PodTopologyLabels", pod_topology_labels::admit),
    // It sees what all others have put in.
    ("LimitRanger", limit_ranger::admit),
    ("RBACEscalation", rbac_escalation::admit),
];

/// The one plug-in that may be switched off.
pub const DENY_SERVICE_EXTERNAL_IPS: &str = "DenyServiceExternalIPs";

/// The plug-ins that only look. They are asked when webhooks have changed the object and its kind's rules are kept:
/// what they see is what will be stored.
const VALIDATORS: &[(&str, Validator)] = &[
    ("PodSecurity", pod_security::validate),
    ("PersistentVolumeClaimResize", persistent_volume_claim_resize::validate),
    ("CertificateApproval", certificate_approval::validate),
    ("CertificateSigning", certificate_signing::validate),
    ("CertificateSubjectRestriction", certificate_subject_restriction::validate),
    ("ParamAccess", param_access::validate),
    (DENY_SERVICE_EXTERNAL_IPS, service_addresses::deny_external_ips),
    ("ServiceAddresses", service_addresses::validate),
];

/// Asks every plug-in that may change objects about a create or an update.
pub fn admit(
    server: &Server,
    operation: Operation,
    resource: &Resource,
    subresource: &str,
    context: &Context,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<()> {
    let request = Request::new(server, operation, resource, subresource, context, new, old);
    PLUGINS.iter().try_for_each(|(_, plugin)| plugin(&request, Some(&mut *new)))
}

/// Asks every plug-in that only looks about a create or an update.
pub fn validate(
    server: &Server,
    operation: Operation,
    resource: &Resource,
    subresource: &str,
    context: &Context,
    new: &Value,
    old: Option<&Value>,
) -> Result<()> {
    let request = Request::new(server, operation, resource, subresource, context, new, old);
    VALIDATORS.iter().try_for_each(|(_, validator)| validator(&request, new))
}

/// Asks every plug-in about a deletion.
pub fn admit_delete(server: &Server, resource: &Resource, context: &Context, old: &Value) -> Result<()> {
    let request = Request::new(server, Operation::Delete, resource, "", context, old, Some(old));
    PLUGINS.iter().try_for_each(|(_, plugin)| plugin(&request, None))
}

/// Whether a text stands anywhere in encoded JSON: a quick no, for what is rarely there, before decoding.
fn mentions(json: &[u8], text: &str) -> bool {
    json.windows(text.len()).any(|window| window == text.as_bytes())
}
