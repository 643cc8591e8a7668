//! What others are asked about a request, and who: webhooks that may change the object, then policies and webhooks that
//! may refuse it.

use super::matching::converted;
use super::{Operation, webhook};
use crate::context::Context;
use crate::deletion::{DeleteOptions, Propagation};
use crate::error::Result;
use crate::server::Server;
use api::{Kind, Value, object};
use serde_json::json;
use std::borrow::Cow;
use std::sync::Arc;

/// Where webhooks and policies are registered.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// What is asked about a write, beside the object itself.
pub struct Question<'a> {
    /// The server, for its caches.
    pub server: &'a Server,
    /// Who asks, and how.
    pub context: &'a Context,
    /// What is being done.
    pub operation: Operation,
    /// The kind under whose path it is done.
    pub kind: &'a Arc<Kind>,
    /// To which part of it; empty for the object itself.
    pub subresource: &'a str,
    /// Group, version and kind of what is sent to that part, where it is something else.
    pub takes: Option<(&'a str, &'a str, &'a str)>,
    /// To which object.
    pub name: &'a str,
    /// In which namespace.
    pub namespace: &'a str,
    /// How it is deleted.
    pub deletion: Option<&'a DeleteOptions>,
}

impl<'a> Question<'a> {
    /// About an object of the kind itself, or of a part that is one.
    pub fn about(
        server: &'a Server,
        context: &'a Context,
        operation: Operation,
        kind: &'a Arc<Kind>,
        object: &'a Value,
    ) -> Question<'a> {
        let (name, namespace) = (object::name(object), object::namespace(object));
        Question {
            server,
            context,
            operation,
            kind,
            subresource: "",
            takes: None,
            name,
            namespace,
            deletion: None,
        }
    }

    /// The namespace as rules see it: a namespace is in itself.
    pub fn namespace(&self) -> &str {
        if self.is_namespace() { self.name } else { self.namespace }
    }

    /// Whether it is about a namespace.
    pub fn is_namespace(&self) -> bool {
        self.kind.group.is_empty() && self.kind.plural == "namespaces"
    }

    /// The question as a webhook that knows it as this kind is asked it, and as expressions see it: without the objects
    /// that it is about.
    pub fn request(&self, seen_as: &Kind) -> Value {
        let kind_of = |kind: &Kind| match self.takes {
            Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
            None => json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
        };
        let resource_of =
            |kind: &Kind| json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
        let mut request = json!({
            "kind": kind_of(seen_as), "resource": resource_of(seen_as),
            "requestKind": kind_of(self.kind), "requestResource": resource_of(self.kind),
            "operation": self.operation.name(), "userInfo": self.context.user.to_json(),
            "dryRun": self.context.dry_run, "options": options(self),
        });
        let texts = [
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("name", self.name),
            ("namespace", self.namespace()),
        ];
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            request[name] = text.into();
        }
        request
    }

    /// An object of this question as one of another version; null where there is none.
    pub fn seen<'v>(&self, seen_as: &Kind, object: Option<&'v Value>) -> Cow<'v, Value> {
        match object {
            None => Cow::Owned(Value::Null),
            Some(object) if self.kind.api_version() == seen_as.api_version() => Cow::Borrowed(object),
            Some(object) => Cow::Owned(converted(self.kind, seen_as, object.clone())),
        }
    }
}

/// Whether nobody needs to be asked about anything.
pub fn nobody_is_asked(server: &Server) -> bool {
    server.webhooks.are_none() && server.policies.are_none()
}

/// Whether a write is a webhook's business. Who is asked about what is decided by the one who may write that, and
/// what the server writes by itself must not wait for others.
pub fn concerns_webhooks(kind: &Kind, context: &Context) -> bool {
    !context.is_internal && kind.group != GROUP
}

/// Whether a write is a policy's business: all but what decides about policies.
pub fn concerns_policies(kind: &Kind, context: &Context) -> bool {
    let is_policy = kind.group == GROUP && kind.plural.contains("admissionpolic");
    !context.is_internal && !is_policy
}

/// Asks everybody about what is not an object of a kind that we keep: a deletion, or what is sent to a part of an object.
pub async fn ask_all(
    question: &Question<'_>,
    mut new: Option<&mut Value>,
    old: Option<&Value>,
) -> Result<()> {
    if let Some(hooks) = question.server.webhooks.mutating(question.kind, question.context) {
        let keep = |_: &mut Value| Ok(());
        webhook::mutate(&hooks, question, new.as_deref_mut(), old, keep, keep).await?;
    }
    approve(question, new.as_deref(), old).await
}

/// Asks those who may refuse: policies, then webhooks.
pub async fn approve(question: &Question<'_>, new: Option<&Value>, old: Option<&Value>) -> Result<()> {
    question.server.policies.approve(question, new, old).await?;
    match question.server.webhooks.validating(question.kind, question.context) {
        Some(hooks) => webhook::validate(&hooks, question, new, old).await,
        None => Ok(()),
    }
}

/// The options of the request, as the API has them.
fn options(question: &Question<'_>) -> Value {
    let context = question.context;
    let kind = match (question.operation, question.deletion) {
        (Operation::Connect, _) => return Value::Null,
        (Operation::Delete, deletion) => return deletion.map(delete_options).unwrap_or_default(),
        (Operation::Create, _) => "CreateOptions",
        (Operation::Update, _) if context.is_apply || context.patch.is_some() => "PatchOptions",
        (Operation::Update, _) => "UpdateOptions",
    };
    let mut options =
        json!({"kind": kind, "apiVersion": "meta.k8s.io/v1", "fieldManager": context.field_manager});
    if context.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    if context.force {
        options["force"] = true.into();
    }
    options
}

fn delete_options(deletion: &DeleteOptions) -> Value {
    let mut options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
    if let Some(seconds) = deletion.grace_period_seconds {
        options["gracePeriodSeconds"] = seconds.into();
    }
    if let Some(propagation) = deletion.propagation {
        options["propagationPolicy"] = match propagation {
            Propagation::Foreground => "Foreground",
            Propagation::Background => "Background",
            Propagation::Orphan => "Orphan",
        }
        .into();
    }
    for (name, value) in [("uid", &deletion.uid), ("resourceVersion", &deletion.resource_version)] {
        if let Some(value) = value {
            options["preconditions"][name] = value.as_str().into();
        }
    }
    if deletion.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    options
}
