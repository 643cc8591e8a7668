//! PUT: the object as it is to be, whole.

use crate::answer::{self, Answer};
use crate::context::Context;
use crate::decode;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::Outcome;
use crate::verbs::create;
use crate::write::{self, Part};
use api::{Errors, Field, Kind, Value, object};
use http::StatusCode;

/// Replaces the object, or the part of it that the subresource is.
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>, part: Part) -> Result<Answer> {
    let kind = &*resource.kind;
    let context = call.context()?;
    let mut body = decode::object(kind, call.headers, &call.body, &context)?;
    let (namespace, name) = (call.target.namespace, &*call.target.name);
    check_identity(kind, &body, namespace, name)?;
    set_namespace(kind, &mut body, namespace);
    let updated = change(server, resource, namespace, name, part, &context, |current| {
        check_preconditions(kind, &body, current, Precondition::of(kind))?;
        Ok(body.clone())
    })
    .await;
    match updated {
        Err(error)
            if error.code == StatusCode::NOT_FOUND && kind.create_on_update && matches!(part, Part::Main) =>
        {
            call.may_create(server)?;
            let created = create::create(server, resource, body, namespace, &context).await?;
            created.answer(resource, call, &context)
        }
        other => answer::object(resource, call, StatusCode::OK, other?.into_object(), &context),
    }
}

/// The namespace part of an object's key: none for kinds without namespaces.
pub fn namespace_of<'a>(kind: &Kind, namespace: &'a str) -> &'a str {
    if kind.namespaced() { namespace } else { "" }
}

/// The name and namespace in the object must be those in the path.
pub fn check_identity(kind: &Kind, body: &Value, namespace: &str, name: &str) -> Result<()> {
    let given = object::name(body);
    if given.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let given = object::namespace(body);
    if kind.namespaced() && !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(format!(
            "the namespace of the object ({given}) does not match the namespace on the URL ({namespace})"
        )));
    }
    Ok(())
}

/// The namespace of the path goes without saying.
fn set_namespace(kind: &Kind, body: &mut Value, namespace: &str) {
    let metadata = object::object_mut(body, "metadata");
    if kind.namespaced() {
        metadata.insert("namespace".into(), namespace.into());
    } else {
        metadata.remove("namespace");
    }
}

/// Whether a write must name the resourceVersion it is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// It must.
    Required,
    /// It may.
    Optional,
}

impl Precondition {
    /// What the kind says of a PUT.
    pub fn of(kind: &Kind) -> Precondition {
        if kind.unconditional_update { Precondition::Optional } else { Precondition::Required }
    }
}

/// The object that the client has seen must be the one that is there.
pub fn check_preconditions(kind: &Kind, body: &Value, current: &Value, version: Precondition) -> Result<()> {
    let name = object::name(current);
    let uid = object::meta(current, "uid").unwrap_or_default();
    if let Some(asked) = object::meta(body, "uid").filter(|asked| !asked.is_empty() && *asked != uid) {
        return Err(ApiError::conflict(
            kind,
            name,
            format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {uid}"),
        ));
    }
    match object::meta(body, "resourceVersion").filter(|version| !version.is_empty() && *version != "0") {
        Some(version) if Some(version) != object::meta(current, "resourceVersion") => {
            Err(ApiError::modified(kind, name))
        }
        Some(_) => Ok(()),
        None if version == Precondition::Optional => Ok(()),
        None => {
            let mut errors = Errors::new();
            let root = Field::root(body);
            root.get("metadata")
                .get("resourceVersion")
                .invalid("must be specified for an update", &mut errors);
            write::invalid_if_any(kind, body, errors)
        }
    }
}

/// Makes of an object, or of a part of it, what `compute` makes of its present state.
pub async fn change(
    server: &Server,
    resource: &Resource,
    namespace: &str,
    name: &str,
    part: Part,
    context: &Context,
    mut compute: impl FnMut(&Value) -> Result<Value>,
) -> Result<Outcome> {
    let namespace = namespace_of(&resource.kind, namespace);
    let mut attempt = server.attempt(resource, namespace, name, context.dry_run).await?;
    loop {
        let decision = match attempt.current().and_then(|current| Ok((compute(current)?, current))) {
            Ok((new, current)) => write::changed_object(server, resource, new, current, part, context).await,
            Err(error) => Err(error),
        };
        if let Some(outcome) = attempt.settle(decision).await? {
            return Ok(outcome);
        }
    }
}
