//! POST: a new object, under its own name or one made from `generateName`.

use crate::admission::question;
use crate::answer::{self, Answer};
use crate::context::Context;
use crate::decode;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::{Inserted, TakenKey, set_revision};
use crate::{crds, names, quota, services, time, write};
use api::{Kind, Value, object};
use bytes::Bytes;
use http::StatusCode;

/// A generated name or address that is taken is replaced by another this often.
const MOST_ATTEMPTS: usize = 8;
/// How often a create gives way to others that use up the same quota.
const MOST_CHARGES: usize = 200;

/// Creates the object in the body.
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let kind = &*resource.kind;
    let context = call.context()?;
    let body = decode::object(kind, call.headers, &call.body, &context)?;
    create(server, resource, body, &call.target.namespace, &context).await?.answer(resource, call, &context)
}

/// An object that was created (or would have been, in a dry run).
pub struct Created {
    object: Value,
    json: Option<Bytes>,
}

impl Created {
    /// Answers with it: with the bytes that it was stored as, where those are what the client wants.
    pub fn answer(self, resource: &Resource, call: &Call<'_>, context: &Context) -> Result<Answer> {
        match self.json {
            Some(json) if call.wanted.is_plain() => {
                Ok(answer::json_bytes(StatusCode::CREATED, json).with_warnings(context))
            }
            _ => answer::object(resource, call, StatusCode::CREATED, self.object, context),
        }
    }
}

/// Creates an object: the whole path from a checked body to the store.
pub async fn create(
    server: &Server,
    resource: &Resource,
    mut object: Value,
    namespace: &str,
    context: &Context,
) -> Result<Created> {
    let kind = &*resource.kind;
    crds::check_not_terminating(server, kind)?;
    set_namespace(kind, &mut object, namespace)?;
    let has_version = object::meta(&object, "resourceVersion").is_some_and(|version| !version.is_empty());
    let prefix = object::meta(&object, "generateName").unwrap_or_default().to_owned();
    let generates = object::name(&object).is_empty() && !prefix.is_empty();
    set_identity(kind, &mut object, context);
    let mut attempt = 1;
    let mut is_fresh = false;
    if !question::nobody_is_asked(server) {
        // Nobody is to be asked twice because our caches were behind.
        server.catch_up().await?;
        is_fresh = true;
    }
    loop {
        let mut new = object.clone();
        if generates {
            object::object_mut(&mut new, "metadata").insert("name".into(), names::generate(&prefix).into());
        }
        let writes = match write::new_object(server, resource, &mut new, context).await {
            Ok(writes) => writes,
            // What is missing or in the way may have come or gone since the caches were last in step.
            Err(_) if !is_fresh => {
                is_fresh = true;
                server.catch_up().await?;
                continue;
            }
            Err(error) => return Err(error),
        };
        // The last that is wrong with it: who would refuse it is asked first.
        if has_version {
            return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
        }
        if context.dry_run {
            // No write will find out that the name is taken.
            server.catch_up().await?;
            if resource.cache.get(object::namespace(&new), object::name(&new)).is_some() {
                return Err(ApiError::already_exists(kind, object::name(&new)));
            }
            return Ok(Created { object: new, json: None });
        }
        let own_key = kind.key(object::namespace(&new), object::name(&new));
        match server.insert(resource, &new, writes).await? {
            Ok(Inserted { revision, json }) => {
                set_revision(&mut new, revision);
                return Ok(Created { object: new, json });
            }
            Err(TakenKey(key)) if key == own_key => {
                if !generates || attempt >= MOST_ATTEMPTS {
                    return Err(ApiError::already_exists(kind, object::name(&new)));
                }
            }
            // Somebody else was charged at the same moment: what is left is looked up again.
            Err(TakenKey(key)) if quota::is_quota(server, &key) && attempt < MOST_CHARGES => {
                server.catch_up().await?;
            }
            // An address that somebody else was given at the same moment: one that we chose is chosen again.
            Err(TakenKey(key)) => {
                if quota::is_quota(server, &key) {
                    let quota = server.kind("", "resourcequotas");
                    return Err(ApiError::modified(&quota, key.rsplit('/').next().unwrap_or_default()));
                }
                if services::asked_for(&object, &key) || attempt >= MOST_ATTEMPTS {
                    return Err(services::taken(kind, &new, &key));
                }
                server.catch_up().await?;
            }
        }
        attempt += 1;
    }
}

/// The namespace comes from the path; the object may repeat it but not contradict it.
fn set_namespace(kind: &Kind, object: &mut Value, namespace: &str) -> Result<()> {
    let metadata = object::object_mut(object, "metadata");
    if !kind.namespaced() {
        metadata.remove("namespace");
        return Ok(());
    }
    if namespace.is_empty() {
        return Err(ApiError::bad_request("an empty namespace may not be set during creation"));
    }
    match metadata.get("namespace").and_then(Value::as_str) {
        None | Some("") => {
            metadata.insert("namespace".into(), namespace.into());
        }
        Some(given) if given == namespace => {}
        Some(given) => {
            return Err(ApiError::bad_request(format!(
                "the namespace of the provided object does not match the namespace sent on the request ({given} != {namespace})"
            )));
        }
    }
    Ok(())
}

/// What the server alone says about a new object.
fn set_identity(kind: &Kind, object: &mut Value, context: &Context) {
    let metadata = object::object_mut(object, "metadata");
    for name in
        ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "generation"]
    {
        metadata.remove(name);
    }
    metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".into(), time::rfc3339(context.now).into());
    if kind.generation {
        metadata.insert("generation".into(), 1.into());
    }
}
