//! GET of a collection: the cached bytes of every object, joined; in pages where the client wants them.
//!
//! The first page comes from the cache. The pages after it must show the same moment, so they are read from the
//! store's history at the first page's revision.

use crate::answer::{self, Answer};
use crate::body::Joiner;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::negotiate::{Format, Shape};
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::{in_version, parse};
use crate::verbs::get::{parse_version, wait_for};
use api::selector::{FieldSelector, LabelSelector};
use api::{Kind, Value, table};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::StatusCode;
use listwatch::{Object, Selector};
use serde_json::json;
use std::sync::Arc;
use store::{Range, Revision};

/// A page of objects.
pub struct Found {
    /// In the order of their keys.
    pub objects: Vec<Arc<Object>>,
    /// The moment that the page shows.
    pub revision: Revision,
    /// The key that the next page begins after, where there is one.
    pub next: Option<String>,
    /// How many objects follow, where that is known.
    pub remaining: Option<u64>,
}

/// Answers with the objects.
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let found = select(server, resource, call).await?;
    let kind = &*resource.kind;
    let mut metadata = json!({ "resourceVersion": found.revision.to_string() });
    if let Some(next) = &found.next {
        metadata["continue"] = token(kind, found.revision, next).into();
        if let Some(remaining) = found.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    if call.wanted.shape == Shape::Object && call.wanted.format == Format::Json {
        return Ok(joined(resource, &metadata, &found.objects)?);
    }
    let values: Vec<Value> = found
        .objects
        .iter()
        .map(|object| Ok(in_version(kind, parse(&object.json)?)))
        .collect::<Result<_>>()?;
    let list = match call.wanted.shape {
        Shape::Table => table::table(kind, values.iter(), metadata, answer::include_object(call)?, jiff::Timestamp::now()),
        Shape::Metadata => table::partial_object_metadata_list(values.iter(), metadata),
        Shape::Object => {
            json!({"kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": metadata, "items": values})
        }
    };
    answer::formatted(call, StatusCode::OK, &list)
}

/// The whole list as JSON, of bytes that are encoded already.
fn joined(resource: &Resource, metadata: &Value, objects: &[Arc<Object>]) -> Result<Answer> {
    let kind = &*resource.kind;
    let mut body = Joiner::new();
    let opening = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        kind.list_kind,
        kind.api_version()
    );
    body.push(opening.as_bytes());
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            body.push(b",");
        }
        if resource.is_ready_made(&object.json) {
            body.push(&object.json);
        } else {
            body.push(in_version(kind, parse(&object.json)?).to_string().as_bytes());
        }
    }
    body.push(b"]}");
    Ok(answer::json_body(StatusCode::OK, body.finish()))
}

/// The objects that a collection request is about.
pub async fn select(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Found> {
    let kind = &*resource.kind;
    let selector = selector(kind, call)?;
    let namespace = Some(&*call.target.namespace).filter(|namespace| kind.namespaced() && !namespace.is_empty());
    let limit = call.query.int("limit")?.filter(|limit| *limit > 0).map_or(0, |limit| limit as usize);
    let version = call.query.get("resourceVersion");
    let exact = matches_exactly(call)?;
    if let Some(token) = call.query.get("continue") {
        if version.is_some_and(|version| version != "0") {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let (revision, after) = read_token(kind, token)?;
        return from_history(server, resource, namespace, &selector, Some(after), limit, revision).await;
    }
    if exact {
        let revision = parse_version(version.unwrap_or_default())?;
        return from_history(server, resource, namespace, &selector, None, limit, revision).await;
    }
    wait_for(server, version).await?;
    let listing = resource.cache.list(namespace, &selector, None, limit);
    let next = (listing.remaining > 0).then(|| listing.objects.last().map(|object| object.key.to_string())).flatten();
    let remaining = selector.is_everything().then_some(listing.remaining);
    Ok(Found { objects: listing.objects, revision: listing.revision, next, remaining })
}

/// `resourceVersionMatch`, and which combinations make sense.
fn matches_exactly(call: &Call<'_>) -> Result<bool> {
    let version = call.query.get("resourceVersion");
    let forbidden = |why: &str| Err(ApiError::unprocessable(format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: {why}")));
    match call.query.get("resourceVersionMatch") {
        None => {
            // Without a word on it, a page at a given version means exactly that version.
            let limited = call.query.int("limit")?.is_some_and(|limit| limit > 0);
            Ok(limited && version.is_some_and(|version| version != "0"))
        }
        Some(_) if call.query.get("continue").is_some() => forbidden("resourceVersionMatch is forbidden with continue"),
        Some(_) if version.is_none() => forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"),
        Some("Exact") if version == Some("0") => forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""),
        Some("Exact") => Ok(true),
        Some("NotOlderThan") => Ok(false),
        Some(other) => Err(ApiError::unprocessable(format!(
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\""
        ))),
    }
}

/// The label and field selectors of a request.
pub fn selector(kind: &Kind, call: &Call<'_>) -> Result<Selector> {
    let labels = match call.query.get("labelSelector") {
        Some(text) => LabelSelector::parse(text).map_err(|error| ApiError::bad_request(format!("unable to parse requirement: {error}")))?,
        None => LabelSelector::everything(),
    };
    let mut text = call.query.get("fieldSelector").unwrap_or_default().to_owned();
    if !call.target.name.is_empty() && !text.contains("metadata.name=") {
        // A watch of one object by its path.
        let separator = if text.is_empty() { "" } else { "," };
        text = format!("{text}{separator}metadata.name={}", call.target.name);
    }
    let fields = FieldSelector::parse(&text).map_err(|error| ApiError::bad_request(error.to_string()))?;
    for term in fields.terms() {
        let known = matches!(&*term.field, "metadata.name" | "metadata.namespace")
            || kind.selectable_fields.iter().any(|path| **path == *term.field);
        if !known {
            return Err(ApiError::bad_request(format!(
                "Unable to find {:?} that match label selector {:?}, field selector {text:?}: field label not supported: {}",
                format!("{}, Resource={}", kind.api_version(), kind.plural),
                call.query.get("labelSelector").unwrap_or_default(),
                term.field
            )));
        }
    }
    Ok(Selector { labels, fields })
}

/// Objects as they were at a revision.
async fn from_history(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    selector: &Selector,
    mut after: Option<String>,
    limit: usize,
    revision: Revision,
) -> Result<Found> {
    let kind = &*resource.kind;
    let prefix = match namespace {
        Some(namespace) => format!("{}{namespace}/", kind.prefix()),
        None => kind.prefix(),
    };
    let mut objects = Vec::new();
    loop {
        let wanted = if limit == 0 { 0 } else { limit - objects.len() };
        let range = Range { prefix: prefix.clone(), after: after.clone(), limit: wanted, revision: Some(revision) };
        let page = server.store.range(range).await.map_err(|error| too_old(kind, error))?;
        after = page.entries.last().map(|entry| entry.key.clone()).or(after);
        for entry in &page.entries {
            let object = resource.cache.decode(entry).map_err(|error| {
                tracing::error!(%error, key = entry.key, "cannot read a stored object");
                ApiError::internal("a stored object cannot be read; see the server's log")
            })?;
            if selector.matches(&object) {
                objects.push(Arc::new(object));
            }
        }
        let is_full = limit > 0 && objects.len() >= limit;
        if is_full || page.remaining == 0 {
            let next = if page.remaining > 0 { after } else { None };
            let remaining = selector.is_everything().then_some(page.remaining);
            return Ok(Found { objects, revision, next, remaining });
        }
    }
}

fn too_old(kind: &Kind, error: store::Error) -> ApiError {
    match error {
        store::Error::Compacted { .. } => ApiError::expired(format!(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list of {} without the continue parameter.",
            kind.plural
        )),
        other => other.into(),
    }
}

/// Where the next page begins, in upstream's form.
fn token(kind: &Kind, revision: Revision, after: &str) -> String {
    let start = after.strip_prefix(&kind.prefix()).unwrap_or(after);
    let json = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{start}\u{0}")});
    URL_SAFE_NO_PAD.encode(json.to_string())
}

fn read_token(kind: &Kind, token: &str) -> Result<(Revision, String)> {
    let invalid = || ApiError::bad_request("continue key is not valid");
    let bytes: Bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|_| invalid())?.into();
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
    let revision = value["rv"].as_u64().filter(|revision| *revision > 0).ok_or_else(invalid)?;
    let start = value["start"].as_str().ok_or_else(invalid)?.trim_end_matches('\u{0}');
    if start.split('/').any(|part| part == "..") {
        return Err(invalid());
    }
    Ok((revision, format!("{}{start}", kind.prefix())))
}
