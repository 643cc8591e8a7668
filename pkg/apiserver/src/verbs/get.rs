//! GET of one object: from the cache, as the bytes that are there.

use crate::answer::{self, Answer};
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::negotiate::{Format, Shape};
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::parse;
use crate::verbs::update::namespace_of;
use http::StatusCode;
use std::time::Duration;

/// How long a read waits for a resourceVersion that this server has not seen yet; upstream's.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// Answers with the object.
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    wait_for(server, call.query.get("resourceVersion")).await?;
    let (namespace, name) = (namespace_of(&resource.kind, call.target.namespace), &*call.target.name);
    let object =
        resource.cache.get(namespace, name).ok_or_else(|| ApiError::not_found(&resource.kind, name))?;
    if call.wanted.shape == Shape::Object && resource.is_ready_made(object.as_json()) {
        return match call.wanted.format {
            Format::Json => Ok(answer::json_bytes(StatusCode::OK, object.json())),
            Format::Yaml => answer::yaml(StatusCode::OK, object.as_json()),
        };
    }
    let object = resource.in_version(server, parse(object.as_json())?).await?;
    answer::shaped(resource, call, StatusCode::OK, object)
}

/// Makes the caches show at least what the client asks for: everything acknowledged so far where it does not say,
/// anything at all for `0`, and that version or a later one otherwise.
pub async fn wait_for(server: &Server, resource_version: Option<&str>) -> Result<()> {
    match resource_version {
        None => server.catch_up().await,
        Some("0") => Ok(()),
        Some(text) => {
            let revision = parse_version(text)?;
            if tokio::time::timeout(LONGEST_WAIT, server.registry.hub().wait(revision)).await.is_err() {
                let current = server.registry.hub().revision();
                return Err(store::Error::Future { asked: revision, current }.into());
            }
            Ok(())
        }
    }
}

/// A resourceVersion as a number.
pub fn parse_version(text: &str) -> Result<u64> {
    text.parse().map_err(|_| ApiError::bad_request(format!("Invalid value: {text:?}: resourceVersion: invalid: strconv.ParseUint: parsing {text:?}: invalid syntax")))
}
