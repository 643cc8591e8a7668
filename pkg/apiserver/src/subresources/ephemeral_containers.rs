//! `pods/ephemeralcontainers`: containers added to a running pod, to look into it.

use crate::answer::{self, Answer};
use crate::decode;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::patch::PatchType;
use crate::registry::Resource;
use crate::server::Server;
use crate::verbs::patch::patch_in_place;
use crate::verbs::update::{self, Precondition};
use crate::write::Part;
use api::{Errors, Field, Value};
use http::StatusCode;

/// Adds ephemeral containers; those that are there can be neither changed nor removed.
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let kind = &*resource.kind;
    let context = call.context()?;
    let patch_type = match (call.info.verb, decode::media_type(call.headers)) {
        ("update", _) => None,
        (_, "application/json-patch+json") => Some(PatchType::Json),
        (_, "application/merge-patch+json") => Some(PatchType::Merge),
        (_, "application/strategic-merge-patch+json") => Some(PatchType::StrategicMerge),
        _ => return Err(ApiError::unsupported_media_type("application/strategic-merge-patch+json")),
    };
    let body = match patch_type {
        None => decode::object(kind, call.headers, &call.body, &context)?,
        Some(_) => decode::patch(&call.body)?,
    };
    let updated = update::change(server, resource, call, Part::Other("ephemeralcontainers"), &context, |pod| {
        let wanted = match patch_type {
            None => {
                update::check_preconditions(kind, &body, pod, Precondition::Optional)?;
                body.clone()
            }
            Some(patch_type) => {
                let mut patched = pod.clone();
                patch_in_place(kind, &mut patched, patch_type, &body, &context)?;
                patched
            }
        };
        let list = |pod: &Value| pod["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default();
        let (had, wants) = (list(pod), list(&wanted));
        if !had.iter().all(|container| wants.contains(container)) {
            let mut errors = Errors::new();
            let root = Field::root(&wanted);
            let detail = "existing ephemeral containers may not be removed or changed";
            root.get("spec").get("ephemeralContainers").forbidden(detail, &mut errors);
            return crate::write::invalid_if_any(kind, &wanted, errors);
        }
        pod["spec"]["ephemeralContainers"] = wants.into();
        Ok(())
    })
    .await?;
    answer::object(resource, call, StatusCode::OK, updated, &context)
}
