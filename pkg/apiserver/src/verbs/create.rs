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
use crate::{crds, names, services, time, write};
use api::{Kind, Value, object};
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;
use store::{Expect, Write};

/// A generated name or address that is taken is replaced by another this often.
const MOST_ATTEMPTS: usize = 8;
/// How often a create gives way to others that change what it is made in, such as those that use up the same quota.
const MOST_CHARGES: usize = 200;

/// Creates the object in the body.
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let kind = &*resource.kind;
    let context = call.context()?;
    let body = decode::object(kind, call.headers, &call.body, &context)?;
    create(server, resource, body, call.target.namespace, &context).await?.answer(resource, call, &context)
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
        // Before it is asked whether they are on their way out.
        let stay = what_stays(server, kind, object::namespace(&new));
        let checked = match crds::check_not_terminating(server, kind) {
            Ok(()) => write::new_object(server, resource, &mut new, context).await,
            Err(error) => Err(error),
        };
        let writes = match checked {
            Ok(mut writes) => {
                writes.extend(stay);
                writes
            }
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
            Err(TakenKey(key)) => {
                match surrounding(server, &key) {
                    // Somebody else was charged at the same moment, say, or its namespace is going.
                    Some(_) if attempt < MOST_CHARGES => {}
                    Some(changed) => {
                        return Err(ApiError::modified(&changed, key.rsplit('/').next().unwrap_or_default()));
                    }
                    // An address that somebody else was given: one that we chose is chosen again.
                    None if services::asked_for(&object, &key) || attempt >= MOST_ATTEMPTS => {
                        return Err(services::taken(kind, &new, &key));
                    }
                    None => {}
                }
                server.catch_up().await?;
            }
        }
        attempt += 1;
    }
}

/// The kind of what an object is made in, and others have changed meanwhile.
fn surrounding(server: &Server, key: &str) -> Option<Arc<Kind>> {
    [("", "namespaces"), ("apiextensions.k8s.io", "customresourcedefinitions"), ("", "resourcequotas")]
        .map(|(group, plural)| server.kind(group, plural))
        .into_iter()
        .find(|kind| key.starts_with(&kind.prefix()))
}

/// An object is made only if its namespace and its definition are still as they are now: otherwise they might go
/// without it.
fn what_stays(server: &Server, kind: &Kind, namespace: &str) -> Vec<Write> {
    let stays = |group: &str, plural: &str, name: &str| {
        let resource = server.registry.built_in(group, plural);
        let revision = resource.cache.get("", name)?.revision();
        Some(Write { key: resource.kind.key("", name), expect: Expect::Unchanged(revision), value: None })
    };
    let namespace = kind.namespaced().then(|| stays("", "namespaces", namespace)).flatten();
    let definition = || stays("apiextensions.k8s.io", "customresourcedefinitions", &kind.group_resource());
    let definition = kind.custom.is_some().then(definition).flatten();
    namespace.into_iter().chain(definition).collect()
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
