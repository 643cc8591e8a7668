//! What the server says about itself: discovery, OpenAPI and the token issuer's keys.

use crate::answer::{self, Answer};
use crate::backup;
use crate::discovery::{self, Aggregated};
use crate::error::{ApiError, Result};
use crate::openapi::{Document, V2Form};
use crate::server::Server;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers the paths of this module; `None` for others.
pub async fn handle(server: &Arc<Server>, path: &str, headers: &HeaderMap) -> Option<Result<Answer>> {
    // What is discovered may end in a slash; a document is one file.
    let path = if path.starts_with("/openapi/") { path } else { path.strip_suffix('/').unwrap_or(path) };
    let accept = text(headers, &ACCEPT);
    match path {
        "" => Some(Ok(answer::json(StatusCode::OK, &paths(server)))),
        "/.well-known/openid-configuration" => {
            Some(Ok(answer::json(StatusCode::OK, &server.auth.openid_configuration())))
        }
        backup::PATH => Some(backup::handle(server).await),
        "/openid/v1/jwks" => Some(Ok(answer::json(StatusCode::OK, &server.auth.jwks()))),
        _ => match path.strip_prefix("/openapi/") {
            Some(wanted) => Some(document(server, wanted, headers).await),
            None => discovered(server, path, accept).map(Ok),
        },
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Everything that can be asked for without naming a resource.
fn paths(server: &Server) -> Value {
    let resources = server.registry.resources();
    let mut paths: Vec<String> =
        ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3"]
            .into_iter()
            .chain(["/openid/v1/jwks", "/readyz", "/version", "/.well-known/openid-configuration"])
            .map(str::to_owned)
            .collect();
    for kind in resources.kinds().iter().filter(|kind| !kind.group.is_empty()) {
        paths.push(format!("/apis/{}", kind.group));
        paths.push(format!("/apis/{}/{}", kind.group, kind.version));
    }
    for other in &server.api_services.table().foreign {
        paths.push(format!("/apis/{}", other.group));
        paths.push(format!("/apis/{}/{}", other.group, other.version));
    }
    paths.sort();
    paths.dedup();
    json!({ "paths": paths })
}

fn discovered(server: &Server, path: &str, accept: &str) -> Option<Answer> {
    let resources = server.registry.resources();
    let kinds = resources.kinds();
    let table = server.api_services.table();
    let form = Aggregated::accepted(accept);
    let value = match (path, form) {
        ("/api" | "/apis", Some(form)) => {
            let value = discovery::aggregated(kinds, &table.foreign, path == "/api", form);
            let content_type = HeaderValue::from_static(form.content_type());
            return Some(answer::typed(StatusCode::OK, content_type, value.to_string().into()));
        }
        ("/api", None) => discovery::api_versions(kinds, &server.address.to_string()),
        ("/apis", None) => discovery::api_group_list(kinds, &table.foreign),
        ("/api/v1", _) => discovery::api_resource_list(kinds, "", "v1")?,
        _ => match path.strip_prefix("/apis/")?.split_once('/') {
            None => discovery::api_group(kinds, &table.foreign, path.strip_prefix("/apis/")?)?,
            Some((group, version)) => discovery::api_resource_list(kinds, group, version)?,
        },
    };
    Some(answer::json(StatusCode::OK, &value))
}

/// The index of documents, with those of other servers.
fn index(server: &Server, own: Arc<Document>) -> Arc<Document> {
    let table = server.api_services.table();
    if table.foreign.is_empty() {
        return own;
    }
    let mut index: Value = serde_json::from_slice(&own.plain()).unwrap_or_default();
    table.add_documents(&mut index);
    Arc::new(Document::new(index.to_string().as_bytes()))
}

/// An OpenAPI document. Making one takes a while, so it is done beside the event loop, and what the client has
/// already is not sent again.
async fn document(server: &Arc<Server>, wanted: &str, headers: &HeaderMap) -> Result<Answer> {
    let form = V2Form::accepted(text(headers, &ACCEPT));
    let (server, wanted) = (server.clone(), wanted.to_owned());
    let made = tokio::task::spawn_blocking(move || {
        let resources = server.registry.resources();
        let kinds = resources.kinds();
        match wanted.as_str() {
            "v2" => Some((server.documents.v2(kinds, form), form.content_type())),
            "v3" => Some((index(&server, server.documents.index(kinds)), "application/json")),
            other => Some((server.documents.v3(kinds, other.strip_prefix("v3/")?)?, "application/json")),
        }
    });
    let found: Option<(Arc<Document>, &'static str)> =
        made.await.map_err(|_| ApiError::internal("the OpenAPI document could not be made"))?;
    let (document, content_type) = found.ok_or_else(ApiError::no_such_path)?;
    let etag =
        HeaderValue::from_str(&document.etag()).map_err(|_| ApiError::internal("an ETag of odd bytes"))?;
    if headers.get(IF_NONE_MATCH) == Some(&etag) {
        return Ok(answer::empty(StatusCode::NOT_MODIFIED).with_header(ETAG, etag));
    }
    let content_type = HeaderValue::from_static(content_type);
    let answer = if text(headers, &ACCEPT_ENCODING).contains("gzip") {
        answer::typed(StatusCode::OK, content_type, document.gzip())
            .with_header(CONTENT_ENCODING, HeaderValue::from_static("gzip"))
            .with_header(VARY, HeaderValue::from_static("Accept-Encoding"))
    } else {
        answer::typed(StatusCode::OK, content_type, document.plain().into())
    };
    Ok(answer.with_header(ETAG, etag))
}
