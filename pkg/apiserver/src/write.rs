//! What every write goes through, whatever verb brought it: checks, defaults, admission, rules.
//!
//! ```text
//! body ──decode──> object ──new_object────> default ──> track fields ──> admission ──> prepare ──> validate ──> store
//!                    └─────changed_object─> (the same, seeing the old object)
//! ```
//!
//! Webhooks that change objects are the last of admission; plug-ins that only look, policies and webhooks that refuse come
//! after validation.
//!
//! Fields are tracked before admission and preparation: what those set is nobody's, so that an apply which does not
//! name it does not remove it.

use crate::admission::question::{self, Question};
use crate::admission::webhook::{self, Hook};
use crate::admission::{self, Operation, domain_claim};
use crate::context::Context;
use crate::deletion;
use crate::error::{ApiError, Result};
use crate::quota;
use crate::registry::Resource;
use crate::server::Server;
use crate::services;
use crate::storage::{Change, in_version};
use crate::subresources::scale;
use crate::time;
use crate::type_checking;
use api::kind::ValidateUpdate;
use api::{Errors, Field, Kind, Value, meta, object};
use jiff::Timestamp;
use patch::WriteContext;
use serde_json::{Map, json};
use std::sync::Arc;
use store::Write;

/// Which part of an object a write is about.
#[derive(Clone, Copy)]
pub enum Part {
    /// The object but for its status.
    Main,
    /// Its status only.
    Status,
    /// Its number of replicas; the caller has seen to it that nothing else changes.
    Scale,
    /// What a named subresource may change.
    Door(&'static Door),
}

/// A subresource through which one part of an object is changed, by rules of its own.
pub struct Door {
    /// The path segment.
    pub name: &'static str,
    /// Leaves of the new object only what may be changed here; all else is the old one's.
    pub prepare: fn(&mut Value, &Value, Timestamp),
    /// Rules for changes: new, then old.
    pub validate: ValidateUpdate,
}

impl Part {
    /// The subresource's name, empty for the object itself.
    pub fn name(self) -> &'static str {
        match self {
            Part::Main => "",
            Part::Status => "status",
            Part::Scale => "scale",
            Part::Door(door) => door.name,
        }
    }
}

/// Completes and checks an object that is to be created. The name is set already. Returns what must be written along.
pub async fn new_object(
    server: &Server,
    resource: &Resource,
    new: &mut Value,
    context: &Context,
) -> Result<Vec<Write>> {
    let kind = &*resource.kind;
    default(kind, new);
    if !context.is_apply {
        let api_version = kind.api_version();
        patch::track_update(
            kind.schema(),
            None,
            new,
            &write_context(kind, &api_version, context, Part::Main),
        );
    }
    admission::admit(server, Operation::Create, resource, "", context, new, None)?;
    if let Some(hooks) = server.webhooks.mutating(kind, context) {
        Box::pin(change_by(&hooks, server, resource, new, None, Part::Main, context)).await?;
    }
    if kind.has_status() && !kind.status_on_create {
        remove(new, "status");
    }
    (kind.prepare)(new, None);
    name_requester(kind, new, context);
    domain_claim::record(server, kind, new, None, true, context);
    note_phase_change(kind, new, None, context);
    embed(kind, new);
    let mut writes = services::allocate(server, kind, new, None)?;
    let mut errors = Errors::new();
    let field = Field::root(new);
    meta::validate(&field, kind, &mut errors);
    (kind.validate)(&field, &mut errors);
    (kind.validate_create)(&field, &mut errors);
    if let Some(custom) = &kind.custom {
        custom.validate(new, None, &mut errors);
    }
    invalid_if_any(kind, new, errors)?;
    type_checking::note(server, kind, new, None);
    (kind.warnings)(new).into_iter().for_each(|warning| context.warn(warning));
    admission::validate(server, Operation::Create, resource, "", context, new, None)?;
    if !question::nobody_is_asked(server) {
        Box::pin(approve(server, resource, new, None, Part::Main, context)).await?;
    }
    writes.extend(quota::charge(server, kind, new, None, "", context.now)?);
    Ok(writes)
}

/// Fills in what was left out.
fn default(kind: &Kind, object: &mut Value) {
    embed(kind, object);
    (kind.default)(object);
    if let Some((_, to_stored)) = kind.convert {
        // What the way to the stored version adds, everybody sees from the beginning.
        *object = in_version(kind, to_stored(object.take()));
    }
    if let Some(custom) = &kind.custom {
        custom.default(object);
    }
}

/// Puts in the empty structs that objects of built-in kinds always have.
fn embed(kind: &Kind, object: &mut Value) {
    if kind.custom.is_none() {
        kind.schema().embed(object);
    }
}

/// Who asks for a certificate is who sent the request, whatever it says.
fn name_requester(kind: &Kind, new: &mut Value, context: &Context) {
    if kind.kind != "CertificateSigningRequest" || kind.group != "certificates.k8s.io" {
        return;
    }
    let spec = object::object_mut(new, "spec");
    if let Value::Object(user) = context.user.to_json() {
        spec.extend(user);
    }
}

/// A PersistentVolume remembers when its phase last changed, unless whoever changes it says so.
fn note_phase_change(kind: &Kind, new: &mut Value, old: Option<&Value>, context: &Context) {
    if !kind.group.is_empty() || kind.plural != "persistentvolumes" {
        return;
    }
    const MEMBER: &str = "lastPhaseTransitionTime";
    let status =
        |volume: &Value, member: &str| volume["status"].get(member).filter(|v| !v.is_null()).cloned();
    let before = old.and_then(|old| status(old, MEMBER));
    let given = status(new, MEMBER);
    let is_same = old.is_some_and(|old| status(old, "phase") == status(new, "phase"));
    let now = || Some(Value::from(time::rfc3339(context.now)));
    let time = match given {
        None if is_same => before,
        None => now(),
        Some(given) if !is_same && Some(&given) == before.as_ref() => now(),
        given => given,
    };
    put_or_remove(object::object_mut(new, "status"), MEMBER, time.as_ref());
}

/// Completes and checks what an object is to become, and says what that means for the store.
pub async fn changed_object(
    server: &Server,
    resource: &Resource,
    mut new: Value,
    old: &Value,
    part: Part,
    context: &Context,
) -> Result<Change> {
    let kind = &*resource.kind;
    keep_what_the_server_owns(kind, &mut new, old, part);
    default(kind, &mut new);
    if !context.is_apply {
        let api_version = kind.api_version();
        patch::track_update(
            kind.schema(),
            Some(old),
            &mut new,
            &write_context(kind, &api_version, context, part),
        );
    }
    admission::admit(server, Operation::Update, resource, part.name(), context, &mut new, Some(old))?;
    if let Some(hooks) = server.webhooks.mutating(kind, context) {
        Box::pin(change_by(&hooks, server, resource, &mut new, Some(old), part, context)).await?;
    }
    embed(kind, &mut new);
    match part {
        Part::Main | Part::Scale => (kind.prepare)(&mut new, Some(old)),
        Part::Status => {
            (kind.prepare_status)(&mut new, Some(old));
            note_phase_change(kind, &mut new, Some(old), context);
        }
        Part::Door(door) => (door.prepare)(&mut new, old, context.now),
    }
    domain_claim::record(server, kind, &mut new, Some(old), matches!(part, Part::Main), context);
    count_generation(kind, &mut new, old, part);
    let mut writes = services::allocate(server, kind, &mut new, Some(old))?;
    validate_change(kind, &new, old, part)?;
    type_checking::note(server, kind, &mut new, Some(old));
    (kind.warnings)(&new).into_iter().for_each(|warning| context.warn(warning));
    admission::validate(server, Operation::Update, resource, part.name(), context, &new, Some(old))?;
    if !question::nobody_is_asked(server) {
        Box::pin(approve(server, resource, &new, Some(old), part, context)).await?;
    }
    if deletion::finished(kind, &new) {
        writes.extend(services::release(kind, &new));
        return Ok(Change::Remove(writes));
    }
    if new == *old {
        return Ok(Change::Keep);
    }
    writes.extend(quota::charge(server, kind, &new, Some(old), part.name(), context.now)?);
    Ok(Change::Put(Box::new(new), writes))
}

/// Lets webhooks change the object, and makes one of its kind of what they send.
async fn change_by(
    hooks: &[Arc<Vec<Hook>>],
    server: &Server,
    resource: &Resource,
    new: &mut Value,
    old: Option<&Value>,
    part: Part,
    context: &Context,
) -> Result<()> {
    let kind = &resource.kind;
    let named = new.clone();
    let question = question(server, kind, &named, old, part, context);
    if matches!(part, Part::Scale) {
        let (mut scale, old) = (scale::of(kind, new), old.map(|old| scale::of(kind, old)));
        let keep = |_: &mut Value| Ok(());
        webhook::mutate(hooks, &question, Some(&mut scale), old.as_ref(), keep, keep).await?;
        scale::set_replicas(kind, new, &scale["spec"]["replicas"]);
        return Ok(());
    }
    let finish = |object: &mut Value| {
        let checked = match &kind.custom {
            Some(custom) => custom.check(object),
            None => kind.schema().check_as(&kind.kind, object),
        };
        checked.map_err(|error| ApiError::internal(error.to_string()))?;
        let had = named["metadata"].as_object();
        let metadata = object::object_mut(object, "metadata");
        for name in SERVER_OWNED.iter().chain(&["resourceVersion", "namespace", "managedFields"]) {
            put_or_remove(metadata, name, had.and_then(|had| had.get(*name)));
        }
        if let Some(old) = old {
            keep_what_the_server_owns(kind, object, old, part);
        }
        default(kind, object);
        Ok(())
    };
    let again = |object: &mut Value| {
        admission::admit(server, question.operation, resource, part.name(), context, object, old)
    };
    webhook::mutate(hooks, &question, Some(new), old, finish, again).await
}

/// Asks others whether the object may become so.
async fn approve(
    server: &Server,
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
    part: Part,
    context: &Context,
) -> Result<()> {
    let kind = &resource.kind;
    let question = question(server, kind, new, old, part, context);
    if matches!(part, Part::Scale) {
        let (scale, old) = (scale::of(kind, new), old.map(|old| scale::of(kind, old)));
        return question::approve(&question, Some(&scale), old.as_ref()).await;
    }
    question::approve(&question, Some(new), old).await
}

fn question<'a>(
    server: &'a Server,
    kind: &'a Arc<Kind>,
    new: &'a Value,
    old: Option<&Value>,
    part: Part,
    context: &'a Context,
) -> Question<'a> {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let takes = matches!(part, Part::Scale).then_some(("autoscaling", "v1", "Scale"));
    Question { subresource: part.name(), takes, ..Question::about(server, context, operation, kind, new) }
}

/// Who writes, for `metadata.managedFields`.
pub fn write_context<'a>(
    kind: &Kind,
    api_version: &'a str,
    context: &'a Context,
    part: Part,
) -> WriteContext<'a> {
    let reset_fields: &[&str] = match part {
        Part::Main if kind.has_status() => &["status"],
        Part::Status => &["spec", "metadata.labels"],
        _ => &[],
    };
    WriteContext {
        manager: &context.field_manager,
        api_version,
        subresource: part.name(),
        reset_fields,
        now: context.now,
    }
}

/// Complains with 422 if there is anything to complain about.
pub fn invalid_if_any(kind: &Kind, object: &Value, errors: Errors) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = match object::name(object) {
        "" => object::meta(object, "generateName").unwrap_or_default(),
        name => name,
    };
    Err(ApiError::invalid(kind, name, errors.as_slice()))
}

/// Metadata that only the server sets, on every update.
const SERVER_OWNED: [&str; 6] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

fn keep_what_the_server_owns(kind: &Kind, new: &mut Value, old: &Value, part: Part) {
    if matches!(part, Part::Status) {
        let status = new.get("status").cloned();
        let metadata = new.get("metadata").cloned();
        *new = old.clone();
        // A custom resource's status update changes nothing but the status; built-in kinds take metadata along.
        if kind.custom.is_none()
            && let Some(metadata) = metadata
        {
            new["metadata"] = metadata;
        }
        match status {
            Some(status) => new["status"] = status,
            None => remove(new, "status"),
        }
    } else if matches!(part, Part::Main) && kind.has_status() {
        match old.get("status") {
            Some(status) => new["status"] = status.clone(),
            None => remove(new, "status"),
        }
    }
    let had = old.get("metadata").and_then(Value::as_object);
    let metadata = object::object_mut(new, "metadata");
    for name in SERVER_OWNED {
        put_or_remove(metadata, name, had.and_then(|had| had.get(name)));
    }
    put_or_remove(metadata, "resourceVersion", had.and_then(|had| had.get("resourceVersion")));
    if matches!(part, Part::Status) {
        for name in ["labels", "finalizers", "ownerReferences"] {
            if !kind.group.is_empty() || name != "labels" {
                put_or_remove(metadata, name, had.and_then(|had| had.get(name)));
            }
        }
    }
}

fn put_or_remove(members: &mut Map<String, Value>, name: &str, value: Option<&Value>) {
    match value {
        Some(value) => members.insert(name.to_owned(), value.clone()),
        None => members.remove(name),
    };
}

fn remove(object: &mut Value, name: &str) {
    if let Some(members) = object.as_object_mut() {
        members.remove(name);
    }
}

/// `metadata.generation` grows when anything but metadata and status changes.
fn count_generation(kind: &Kind, new: &mut Value, old: &Value, part: Part) {
    if !kind.generation || matches!(part, Part::Status) {
        return;
    }
    let differs = |a: &Value, b: &Value| {
        a.as_object().into_iter().flatten().any(|(name, value)| {
            let ignored = name == "metadata" || (name == "status" && kind.has_status());
            !ignored && b.get(name) != Some(value)
        })
    };
    if differs(new, old) || differs(old, new) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        new["metadata"]["generation"] = json!(generation + 1);
    }
}

fn validate_change(kind: &Kind, new: &Value, old: &Value, part: Part) -> Result<()> {
    let mut errors = Errors::new();
    let (new_field, old_field) = (Field::root(new), Field::root(old));
    meta::validate(&new_field, kind, &mut errors);
    meta::validate_update(&new_field, &old_field, kind, &mut errors);
    if let Some(error) = deletion::check_no_new_finalizers(new, old) {
        errors.push(error);
    }
    match part {
        Part::Main | Part::Scale => {
            (kind.validate)(&new_field, &mut errors);
            (kind.validate_update)(&new_field, &old_field, &mut errors);
        }
        Part::Status => (kind.validate_status)(&new_field, &old_field, &mut errors),
        Part::Door(door) => (door.validate)(&new_field, &old_field, &mut errors),
    }
    if let Some(custom) = &kind.custom {
        custom.validate(new, Some(old), &mut errors);
    }
    invalid_if_any(kind, new, errors)
}
