//! What the server says about itself: discovery, OpenAPI and the token issuer's keys.

use crate::answer::{self, Answer};
use crate::error::{ApiError, Result};
use crate::server::Server;
use crate::{discovery, openapi};
use http::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};

/// Answers the paths of this module; `None` for others.
pub fn handle(server: &Server, path: &str, headers: &HeaderMap) -> Option<Result<Answer>> {
    let path = path.trim_end_matches('/');
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match path {
        "" => Some(Ok(answer::json(StatusCode::OK, &serde_json::json!({ "paths": paths(server) })))),
        "/.well-known/openid-configuration" => Some(Ok(answer::json(StatusCode::OK, &server.auth.openid_configuration()))),
        "/openid/v1/jwks" => Some(Ok(answer::json(StatusCode::OK, &server.auth.jwks()))),
        _ if path.starts_with("/openapi/") => Some(document(server, path, accept, headers)),
        _ => discovered(server, path, accept).map(Ok),
    }
}
