//! Admission webhooks: others who may change or refuse what is written, as their configurations say.
//!
//! ```text
//! configurations (cache) ──> hooks, understood once ──> which match (matching) ──> review (JSON) ──> call (HTTPS)
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

use super::matching::converted;
use super::question::{GROUP, Question, concerns_webhooks};
use super::understood::Understood;
use crate::context::Context;
use crate::error::{ApiError, Result};
use crate::registry::Registry;
use api::{Kind, Value};
pub use call::Client;
use futures::future::join_all;
pub use hook::Hook;
use patch::json_patch;
use std::collections::HashSet;
use std::sync::Arc;

/// The webhooks that are registered.
pub struct Webhooks {
    mutating: Understood<Vec<Hook>>,
    validating: Understood<Vec<Hook>>,
}

/// Those of each configuration, in the order of their names.
pub type Hooks = Arc<[Arc<Vec<Hook>>]>;

impl Webhooks {
    /// Those of the configurations in the caches.
    pub fn new(registry: &Registry) -> Webhooks {
        let registered = |plural| Understood::new(registry.built_in(GROUP, plural), Hook::all);
        Webhooks {
            mutating: registered("mutatingwebhookconfigurations"),
            validating: registered("validatingwebhookconfigurations"),
        }
    }

    /// Whether nobody needs to be asked.
    pub fn are_none(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }

    /// Those that may change an object of the kind, if there are any.
    pub fn mutating(&self, kind: &Kind, context: &Context) -> Option<Hooks> {
        let is_asked = !self.mutating.is_empty() && concerns_webhooks(kind, context);
        is_asked.then(|| self.mutating.all())
    }

    /// Those that may refuse an object of the kind, if there are any.
    pub fn validating(&self, kind: &Kind, context: &Context) -> Option<Hooks> {
        let is_asked = !self.validating.is_empty() && concerns_webhooks(kind, context);
        is_asked.then(|| self.validating.all())
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
    hooks: &[Arc<Vec<Hook>>],
    question: &Question<'_>,
    mut new: Option<&mut Value>,
    old: Option<&Value>,
    finish: impl Fn(&mut Value) -> Result<()>,
    again: impl Fn(&mut Value) -> Result<()>,
) -> Result<()> {
    let (mut reinvocable, mut wanted) = (HashSet::new(), HashSet::new());
    for round in 0..2 {
        let mut has_changed = false;
        for (index, hook) in hooks.iter().flat_map(|hooks| hooks.iter()).enumerate() {
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

/// Asks those who may refuse the object, all at once. The first refusal counts.
pub async fn validate(
    hooks: &[Arc<Vec<Hook>>],
    question: &Question<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<()> {
    let mut matching = Vec::new();
    for hook in hooks.iter().flat_map(|hooks| hooks.iter()) {
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
    let Some(seen_as) = hook.matching.applies(question, new, old)? else { return Ok(None) };
    if hook.conditions.are_none() {
        return Ok(Some(seen_as));
    }
    let (new, old) = (question.seen(&seen_as, new), question.seen(&seen_as, old));
    let request = question.request(&seen_as);
    let given =
        [("object", &*new), ("oldObject", &*old), ("request", &request), ("namespaceObject", &Value::Null)];
    match hook.conditions.hold(&given) {
        Ok(true) => Ok(Some(seen_as)),
        Ok(false) => Ok(None),
        Err(why) => Err(ApiError::forbidden(question.kind, question.name, why)),
    }
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
    let uid = uuid::Uuid::new_v4().to_string();
    let mut request = question.request(seen_as);
    request["uid"] = uid.as_str().into();
    request["object"] = question.seen(seen_as, new).into_owned();
    request["oldObject"] = question.seen(seen_as, old).into_owned();
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
