//! GET of a collection: the cached bytes of every object, joined; in pages where the client wants them.
//!
//! All pages show the moment of the first one: the cache keeps a window of the past, and a page that comes after
//! that is told so.

use crate::answer::{self, Answer};
use crate::body::{Body, Item, ListBody};
use crate::conversion::selects;
use crate::encoding::{Encoding, ListPieces, Source};
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::negotiate::Shape;
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::parse;
use crate::verbs::get::{parse_version, wait_for};
use api::selector::{LabelSelector, Term};
use api::{Kind, Value, table};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use listwatch::{Listing, Object, Page, Scope};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use store::Revision;

/// Answers with the objects.
pub async fn handle(server: &Server, resource: &Arc<Resource>, call: &Call<'_>) -> Result<Answer> {
    let found = select(server, resource, call).await?;
    let mut metadata = json!({ "resourceVersion": found.revision.to_string() });
    if let Some(next) = &found.next {
        metadata["continue"] = token(Some(found.revision), next).into();
        if let Some(remaining) = found.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    // What is held of the list until it is sent: not the objects, which the cache holds, but which ones they are.
    let mut held = server.waiting.share(&call.user);
    if !held.try_grow(found.objects.len() * size_of::<Item>()) {
        return Err(ApiError::overloaded());
    }
    let is_ready = |object: &Arc<Object>| resource.ready_made(object.as_json()).is_some();
    if call.wanted.is_plain() && resource.converter.is_none() && found.objects.iter().all(is_ready) {
        return Ok(joined(resource, &metadata, found.objects).keeping(held));
    }
    let sources = match resource.converter {
        None => found.objects.into_iter().map(Source::Stored).collect(),
        Some(_) => {
            let lengths: Vec<usize> = found.objects.iter().map(|object| object.as_json().len()).collect();
            // They are all there until the last one is sent.
            held.must_grow(lengths.iter().sum());
            let values = in_versions(server, resource, &found.objects).await?;
            values.into_iter().zip(lengths).map(|(value, length)| Source::Converted(value, length)).collect()
        }
    };
    let include = match call.wanted.shape {
        Shape::Table => answer::include_object(call)?,
        _ => table::IncludeObject::None,
    };
    let now = jiff::Timestamp::now();
    let encoding = Encoding { resource: resource.clone(), wanted: call.wanted, include, now };
    let pieces = ListPieces::new(encoding, metadata, sources);
    Ok(answer::list(call, pieces, || server.maker(&call.user))?.keeping(held))
}

async fn in_versions(server: &Server, resource: &Resource, objects: &[Arc<Object>]) -> Result<Vec<Value>> {
    let stored = objects.iter().map(|object| parse(object.as_json())).collect::<Result<_>>()?;
    resource.all_in_version(server, stored).await
}

/// A list in the shape and format the client wants.
pub fn shaped(kind: &Kind, call: &Call<'_>, values: Vec<Value>, metadata: Value) -> Result<Answer> {
    let list = match call.wanted.shape {
        Shape::Table => {
            let include = answer::include_object(call)?;
            call.wanted.meta.of(table::table(kind, values.iter(), metadata, include, jiff::Timestamp::now()))
        }
        Shape::Metadata => call.wanted.meta.of(table::partial_list(values.iter(), metadata)),
        Shape::Object => {
            let items: Vec<Value> = values.into_iter().map(|value| as_item(kind, value)).collect();
            json!({"kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": metadata, "items": items})
        }
    };
    answer::formatted(call, StatusCode::OK, &list)
}

/// The whole list as JSON, of bytes that are ready to be sent.
fn joined(resource: &Resource, metadata: &Value, objects: Vec<Arc<Object>>) -> Answer {
    let kind = &*resource.kind;
    let opening = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        kind.list_kind,
        kind.api_version()
    );
    // Of built-in kinds the list says what they are.
    let from = match objects.first().and_then(|first| resource.ready_made(first.as_json())) {
        Some(from) if kind.custom.is_none() => from,
        _ => 1,
    };
    let items = objects.into_iter().map(|object| Item(object, from)).collect();
    answer::json_body(StatusCode::OK, Body::List(ListBody::new(opening.into(), items)))
}

/// An object as an item of a list: of built-in kinds the list says what they are, so that they do not.
fn as_item(kind: &Kind, mut object: Value) -> Value {
    if kind.custom.is_none()
        && let Some(members) = object.as_object_mut()
    {
        members.remove("kind");
        members.remove("apiVersion");
    }
    object
}

/// The objects that a collection request is about.
pub async fn select(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Listing> {
    let kind = &*resource.kind;
    let mut scope = scope(kind, call)?;
    let fields;
    (scope.fields, fields) = resource.divide(scope.fields);
    let limit = call.query.int("limit")?.filter(|limit| *limit > 0).map_or(0, |limit| limit as usize);
    let version = call.query.get("resourceVersion");
    let exact = matches_exactly(call)?;
    let (revision, after) = match call.query.get("continue") {
        Some(_) if version.is_some_and(|version| version != "0") => {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        Some(token) => read_token(token)?,
        None if exact => (Some(parse_version(version.unwrap_or_default())?), String::new()),
        None => (None, String::new()),
    };
    if revision.is_some_and(|revision| !after.is_empty() && revision < server.oldest_page.load(Relaxed)) {
        return Err(continue_expired(&after));
    }
    match revision {
        // Another apiserver may have given out a token for a moment that this one has not seen yet.
        Some(revision) => wait_for(server, Some(&revision.to_string())).await?,
        None => wait_for(server, version).await?,
    }
    let found = resource.cache.list(&scope, Page { after: &after, limit, revision });
    let mut found = found.map_err(|error| match error {
        listwatch::Error::TooOld { asked, oldest } if after.is_empty() => {
            ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
        }
        listwatch::Error::TooOld { .. } => continue_expired(&after),
        other => other.into(),
    })?;
    if !fields.is_everything() {
        let values = in_versions(server, resource, &found.objects).await?;
        let mut is_selected = values.iter().map(|value| selects(&fields, value));
        found.objects.retain(|_| is_selected.next().unwrap_or_default());
        found.remaining = None;
    }
    Ok(found)
}

/// `resourceVersionMatch`, and which combinations make sense.
fn matches_exactly(call: &Call<'_>) -> Result<bool> {
    let version = call.query.get("resourceVersion");
    let forbidden = |why: &str| {
        Err(ApiError::unprocessable(format!(
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: {why}"
        )))
    };
    match call.query.get("resourceVersionMatch") {
        None => {
            // Without a word on it, a page at a given version means exactly that version.
            let limited = call.query.int("limit")?.is_some_and(|limit| limit > 0);
            Ok(limited && version.is_some_and(|version| version != "0"))
        }
        Some(_) if call.query.get("continue").is_some() => {
            forbidden("resourceVersionMatch is forbidden with continue")
        }
        Some(_) if version.is_none() => {
            forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
        }
        Some("Exact") if version == Some("0") => {
            forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        }
        Some("Exact") => Ok(true),
        Some("NotOlderThan") => Ok(false),
        Some(other) => Err(ApiError::unprocessable(format!(
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\""
        ))),
    }
}

/// The namespace and the selectors of a request.
pub fn scope(kind: &Kind, call: &Call<'_>) -> Result<Scope> {
    let labels = match call.query.get("labelSelector") {
        Some(text) => LabelSelector::parse(text).map_err(|error| ApiError::bad_request(error.to_string()))?,
        None => LabelSelector::everything(),
    };
    let fields = &call.info.fields;
    for term in fields.terms() {
        // Kinds without namespaces that have fields of their own, or are custom, do not know the namespace.
        let namespace = kind.namespaced() || (kind.selectable_fields.is_empty() && kind.custom.is_none());
        let known = &*term.field == "metadata.name"
            || (&*term.field == "metadata.namespace" && namespace)
            || kind.selectable_fields.iter().any(|path| **path == *term.field);
        if !known {
            return Err(unknown_field(kind, &term.field));
        }
    }
    let stored = |term: &Term| Term { field: kind.stored_path(&term.field).into(), ..term.clone() };
    let fields = fields.terms().iter().map(stored).collect();
    let namespace =
        Some(call.target.namespace).filter(|namespace| kind.namespaced() && !namespace.is_empty());
    Ok(Scope { namespace: namespace.map(Into::into), labels, fields })
}

/// Kinds without fields of their own say which there are.
fn unknown_field(kind: &Kind, field: &str) -> ApiError {
    ApiError::bad_request(if kind.selectable_fields.is_empty() && kind.custom.is_none() {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {field}")
    })
}

/// The page's moment has left the window. The client can begin again, or go on with the token given here, which shows
/// what follows as it is now.
fn continue_expired(after: &str) -> ApiError {
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of \
         the results. Continuing with the provided token results in an inconsistent list - objects that were \
         created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.continue_token = Some(token(None, after));
    error
}

/// Where the next page begins, in upstream's form: the moment (none: whatever is current) and the last path before it.
fn token(revision: Option<Revision>, after: &str) -> String {
    let revision = revision.map_or(-1, |revision| revision as i64);
    let json = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{after}\u{0}")});
    URL_SAFE_NO_PAD.encode(json.to_string())
}

fn read_token(token: &str) -> Result<(Option<Revision>, String)> {
    let invalid = || ApiError::bad_request("continue key is not valid");
    let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|_| invalid())?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
    let revision =
        value["rv"].as_i64().filter(|revision| *revision > 0 || *revision == -1).ok_or_else(invalid)?;
    let after = value["start"].as_str().ok_or_else(invalid)?.trim_end_matches('\u{0}');
    Ok((u64::try_from(revision).ok(), after.to_owned()))
}
