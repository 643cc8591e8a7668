//! Admission webhooks: others who may change or refuse what is written, as their configurations say.
//!
//! ```text
//! configurations (cache) ──> hooks, understood once ──> which match (hook) ──> review (JSON) ──> call (HTTPS)
//!                                                              patch, warnings, refusal <── answer ──┘
//! ```
//!
//! Nobody is asked while anything is locked, and where nothing is registered nothing is done. What the server writes by
//! itself asks nobody: it must be able to start before those that it would ask.

mod call;
mod hook;
mod review;
#[cfg(test)]
mod tests;

use crate::admission::Operation;
use crate::context::Context;
use crate::deletion::DeleteOptions;
use crate::error::{ApiError, Result};
use crate::patch::json_patch;
use crate::registry::{Registry, Resource};
use crate::server::Server;
use crate::storage::{in_version, parse};
use api::{Kind, Value, object};
pub use call::Client;
use futures::future::join_all;
pub use hook::Hook;
use hook::Subject;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use store::Revision;

const GROUP: &str = "admissionregistration.k8s.io";

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
    fn namespace(&self) -> &str {
        if self.is_namespace() { self.name } else { self.namespace }
    }

    fn is_namespace(&self) -> bool {
        self.kind.group.is_empty() && self.kind.plural == "namespaces"
    }
}

/// The webhooks that are registered.
pub struct Webhooks {
    mutating: Registered,
    validating: Registered,
}

impl Webhooks {
    /// Those of the configurations in the caches.
    pub fn new(registry: &Registry) -> Webhooks {
        let registered =
            |plural| Registered { configurations: registry.built_in(GROUP, plural), hooks: Mutex::default() };
        Webhooks {
            mutating: registered("mutatingwebhookconfigurations"),
            validating: registered("validatingwebhookconfigurations"),
        }
    }

    /// Whether nobody needs to be asked.
    pub fn are_none(&self) -> bool {
        self.mutating.configurations.cache.is_empty() && self.validating.configurations.cache.is_empty()
    }

    /// Those that may change an object of the kind, if there are any.
    pub fn mutating(&self, kind: &Kind, context: &Context) -> Option<Arc<[Hook]>> {
        self.mutating.hooks(kind, context)
    }

    /// Those that may refuse an object of the kind, if there are any.
    pub fn validating(&self, kind: &Kind, context: &Context) -> Option<Arc<[Hook]>> {
        self.validating.hooks(kind, context)
    }
}

/// The configurations of one kind, with their hooks as they were understood last.
struct Registered {
    configurations: Arc<Resource>,
    hooks: Mutex<(Vec<Revision>, Arc<[Hook]>)>,
}

impl Registered {
    /// In the order of the configurations' names, and as they stand in each.
    fn hooks(&self, kind: &Kind, context: &Context) -> Option<Arc<[Hook]>> {
        if self.configurations.cache.is_empty() || context.is_internal || kind.group == GROUP {
            return None;
        }
        let objects = self.configurations.objects(None);
        let revisions: Vec<Revision> = objects.iter().map(|object| object.revision()).collect();
        let mut known = self.hooks.lock();
        if known.0 != revisions {
            let configurations = objects.iter().filter_map(|object| parse(object.as_json()).ok());
            *known =
                (revisions, configurations.flat_map(|configuration| Hook::all(&configuration)).collect());
        }
        Some(known.1.clone())
    }
}

/// Why a hook's answer does not let a write through.
enum Failure {
    /// It could not be asked, or did not answer as it should: its policy decides what that means.
    Call(String),
    /// It said no, or must not be asked at all.
    Refused(ApiError),
}

/// Asks those who may change the object, one after the other. `finish` makes an object of the kind of what each has
/// made of it; `again` has our own plug-ins look at it once more. Whoever wants to is then asked a second time about
/// what others have changed after it.
pub async fn mutate(
    hooks: &[Hook],
    question: &Question<'_>,
    mut new: Option<&mut Value>,
    old: Option<&Value>,
    finish: impl Fn(&mut Value) -> Result<()>,
    again: impl Fn(&mut Value) -> Result<()>,
) -> Result<()> {
    let (mut reinvocable, mut wanted) = (HashSet::new(), HashSet::new());
    for round in 0..2 {
        let mut has_changed = false;
        for (index, hook) in hooks.iter().enumerate() {
            if round == 1 && !wanted.contains(&index) {
                continue;
            }
            let Some(seen_as) = applies(hook, question, new.as_deref(), old)? else { continue };
            let asked = ask(hook, question, &seen_as, new.as_deref(), old, true).await;
            let Some(operations) = outcome(hook, asked)? else {
                reinvocable.extend(hook.is_reinvoked.then_some(index));
                continue;
            };
            let Some(object) = new.as_deref_mut() else {
                return Err(ApiError::internal(format!(
                    "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                    hook.name
                )));
            };
            let patched = patched(question, &seen_as, object.clone(), &operations)?;
            let before = std::mem::replace(object, patched);
            finish(object)?;
            if *object != before {
                has_changed = true;
                wanted.extend(reinvocable.drain());
            }
            reinvocable.extend(hook.is_reinvoked.then_some(index));
        }
        let Some(object) = new.as_deref_mut().filter(|_| has_changed) else { return Ok(()) };
        let before = object.clone();
        again(object)?;
        if *object != before {
            wanted.extend(reinvocable.drain());
        }
    }
    Ok(())
}

/// Asks everybody about what is not an object of a kind that we keep: a deletion, or what is sent to a part of an object.
pub async fn ask_all(
    question: &Question<'_>,
    mut new: Option<&mut Value>,
    old: Option<&Value>,
) -> Result<()> {
    let webhooks = &question.server.webhooks;
    if let Some(hooks) = webhooks.mutating(question.kind, question.context) {
        let keep = |_: &mut Value| Ok(());
        mutate(&hooks, question, new.as_deref_mut(), old, keep, keep).await?;
    }
    match webhooks.validating(question.kind, question.context) {
        Some(hooks) => validate(&hooks, question, new.as_deref(), old).await,
        None => Ok(()),
    }
}

/// Asks those who may refuse the object, all at once. The first refusal counts.
pub async fn validate(
    hooks: &[Hook],
    question: &Question<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<()> {
    let mut matching = Vec::new();
    for hook in hooks {
        if let Some(seen_as) = applies(hook, question, new, old)? {
            matching.push((hook, seen_as));
        }
    }
    let asked = matching.iter().map(async |(hook, seen_as)| {
        let answer = ask(hook, question, seen_as, new, old, false).await;
        outcome(hook, answer).map(|_| ())
    });
    join_all(asked).await.into_iter().collect()
}

/// As which kind a hook wants to see the object, if it wants to be asked at all.
fn applies(
    hook: &Hook,
    question: &Question<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<Option<Arc<Kind>>> {
    if !hook.selects_object(new, old) {
        return Ok(None);
    }
    let matches = |rule: &hook::Rule, kind: &Kind| rule.matches(&subject(question, kind));
    let seen_as = if hook.rules.iter().any(|rule| matches(rule, question.kind)) {
        Some(question.kind.clone())
    } else if hook.is_exact {
        None
    } else {
        let others = equivalents(question);
        hook.rules.iter().find_map(|rule| others.iter().find(|kind| matches(rule, kind)).cloned())
    };
    let Some(seen_as) = seen_as else { return Ok(None) };
    if !selects_namespace(hook, question, new)? {
        return Ok(None);
    }
    if hook.conditions.is_empty() {
        return Ok(Some(seen_as));
    }
    let see =
        |object: Option<&Value>| object.map(|object| converted(question.kind, &seen_as, object.clone()));
    let holds = hook.holds(see(new).as_ref(), see(old).as_ref(), &review::request(question, &seen_as, ""));
    match holds {
        Ok(true) => Ok(Some(seen_as)),
        Ok(false) => Ok(None),
        Err(why) => Err(ApiError::forbidden(question.kind, question.name, why)),
    }
}

fn subject<'a>(question: &'a Question<'_>, kind: &'a Kind) -> Subject<'a> {
    Subject {
        operation: question.operation.name(),
        group: &kind.group,
        version: &kind.version,
        resource: &kind.plural,
        subresource: question.subresource,
        is_namespaced: !question.is_namespace() && !question.namespace.is_empty(),
    }
}

/// Other versions, or names, of the same objects.
fn equivalents(question: &Question<'_>) -> Vec<Arc<Kind>> {
    let resources = question.server.registry.resources();
    let prefix = question.kind.prefix();
    let is_other = |kind: &&Arc<Kind>| !Arc::ptr_eq(kind, question.kind) && kind.prefix() == prefix;
    resources.kinds().iter().filter(is_other).cloned().collect()
}

/// What is in no namespace is selected whatever its selector says.
fn selects_namespace(hook: &Hook, question: &Question<'_>, new: Option<&Value>) -> Result<bool> {
    let namespace = question.namespace();
    if hook.namespaces.is_everything() || (namespace.is_empty() && !question.is_namespace()) {
        return Ok(true);
    }
    if let Some(new) = new.filter(|_| question.is_namespace() && question.subresource.is_empty()) {
        return Ok(hook::selects(&hook.namespaces, new));
    }
    let server = question.server;
    let found = server.lookup("", "namespaces", "", namespace);
    let found = found.ok_or_else(|| ApiError::not_found(&server.kind("", "namespaces"), namespace))?;
    Ok(hook::selects(&hook.namespaces, &found))
}

/// An object of one version in another. What is sent to a part of an object is the same in all.
fn converted(from: &Kind, to: &Kind, object: Value) -> Value {
    if object["kind"] != *from.kind || from.api_version() == to.api_version() {
        return object;
    }
    let stored = match from.convert {
        Some((_, to_stored)) => to_stored(object),
        None => object,
    };
    in_version(to, stored)
}

/// Asks a hook. What comes back is the operations of its patch, if there is one.
async fn ask(
    hook: &Hook,
    question: &Question<'_>,
    seen_as: &Kind,
    new: Option<&Value>,
    old: Option<&Value>,
    is_mutating: bool,
) -> Result<Option<Value>, Failure> {
    if question.context.dry_run && !hook.takes_dry_runs {
        let why = format!("admission webhook {:?} does not support dry run", hook.name);
        return Err(Failure::Refused(ApiError::bad_request(why)));
    }
    let Some(version) = hook.review_version else {
        let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
        return Err(Failure::Call(why.into()));
    };
    let see = |object: Option<&Value>| object.map(|object| converted(question.kind, seen_as, object.clone()));
    let uid = uuid::Uuid::new_v4().to_string();
    let mut request = review::request(question, seen_as, &uid);
    request["object"] = see(new).unwrap_or_default();
    request["oldObject"] = see(old).unwrap_or_default();
    let body = review::body(version, request);
    let answer = hook.client.post(question.server, body, hook.timeout).await;
    let answer = answer.map_err(|why| Failure::Call(format!("failed to call webhook: {why}")))?;
    let verdict = review::verdict(&answer, version, &uid, is_mutating)
        .map_err(|why| Failure::Call(format!("received invalid webhook response: {why}")))?;
    verdict.warnings.into_iter().for_each(|warning| question.context.warn(warning));
    if verdict.is_allowed {
        Ok(verdict.patch)
    } else {
        Err(Failure::Refused(review::refusal(&hook.name, verdict.status)))
    }
}

/// What an answer means for the write, by the hook's policy.
fn outcome(hook: &Hook, asked: Result<Option<Value>, Failure>) -> Result<Option<Value>> {
    match asked {
        Ok(patch) => Ok(patch),
        Err(Failure::Refused(error)) => Err(error),
        Err(Failure::Call(why)) => {
            let text = format!("failed calling webhook {:?}: {why}", hook.name);
            tracing::warn!(configuration = hook.configuration, is_ignored = hook.ignores_failure, "{text}");
            if hook.ignores_failure { Ok(None) } else { Err(ApiError::internal(text)) }
        }
    }
}

/// The object after a patch of it as the hook has seen it.
fn patched(question: &Question<'_>, seen_as: &Kind, object: Value, operations: &Value) -> Result<Value> {
    let kind = question.kind;
    let seen = converted(kind, seen_as, object);
    let (api_version, name) = (seen["apiVersion"].clone(), seen["kind"].clone());
    let patched = json_patch(seen, operations).map_err(|error| ApiError::internal(error.to_string()))?;
    if patched["apiVersion"] != api_version || patched["kind"] != name {
        return Err(ApiError::internal("an admission webhook changed the kind of the object"));
    }
    Ok(converted(seen_as, kind, patched))
}
