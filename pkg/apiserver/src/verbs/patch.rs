//! PATCH: a change of an object, in one of four languages.

use crate::answer::{self, Answer};
use crate::context::Context;
use crate::decode;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::verbs::create;
use crate::verbs::update::{self, Precondition};
use crate::write::{self, Part};
use api::{Kind, Value, object};
use http::StatusCode;
use patch::PatchType;

const TYPES: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";

/// Patches the object, or the part of it that the subresource is.
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>, part: Part) -> Result<Answer> {
    let patch_type = match decode::media_type(call.headers) {
        "application/json-patch+json" => PatchType::Json,
        "application/merge-patch+json" => PatchType::Merge,
        "application/strategic-merge-patch+json" if resource.kind.custom.is_some() => {
            return Err(ApiError::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        "application/strategic-merge-patch+json" => PatchType::StrategicMerge,
        "application/apply-patch+yaml" => return apply(server, resource, call, part).await,
        _ => return Err(ApiError::unsupported_media_type(TYPES)),
    };
    let mut context = call.context()?;
    context.patch = Some(String::from_utf8_lossy(&call.body).into_owned());
    let body = decode::patch(&call.body)?;
    let (namespace, name) = (call.target.namespace, &*call.target.name);
    let patched = update::change(server, resource, namespace, name, part, &context, |current| {
        patched(&resource.kind, current, patch_type, &body, &context)
    })
    .await?
    .into_object();
    answer::object(resource, call, StatusCode::OK, patched, &context)
}

/// What a patch makes of an object, checked as if it had been sent.
fn patched(
    kind: &Kind,
    object: &Value,
    patch_type: PatchType,
    body: &Value,
    context: &Context,
) -> Result<Value> {
    let patched = patch::apply_patch(patch_type, kind.schema(), object.clone(), body.clone())?;
    update::check_identity(kind, &patched, object::namespace(object), object::name(object))?;
    let patched =
        decode::checked(kind, api::decode::Decoded { value: patched, duplicates: Vec::new() }, context)?;
    update::check_preconditions(kind, &patched, object, Precondition::Optional)?;
    Ok(patched)
}

/// Server-side apply: the fields that a manager wants, and only those.
async fn apply(server: &Server, resource: &Resource, call: &Call<'_>, part: Part) -> Result<Answer> {
    let kind = &*resource.kind;
    let mut context = call.context()?;
    context.is_apply = true;
    if call.query.get("fieldManager").is_none() {
        return Err(ApiError::unprocessable(
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
        ));
    }
    let decoded = decode::yaml(&call.body)?;
    // Before what is unknown is dropped: nobody can own a field that does not exist, so apply takes none, whatever the
    // request says of field validation.
    if decoded.value.is_object() {
        patch::check_fields(kind.schema(), &decoded.value)?;
    }
    let applied = decode::checked(kind, decoded, &context)?;
    let (namespace, name) = (call.target.namespace, &*call.target.name);
    let mut named = applied.clone();
    if object::name(&named).is_empty() {
        object::object_mut(&mut named, "metadata").insert("name".into(), name.into());
    }
    update::check_identity(kind, &named, namespace, name)?;
    if applied["metadata"].get("managedFields").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
    {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let api_version = kind.api_version();
    let by = write::write_context(kind, &api_version, &context, part);
    let merged = update::change(server, resource, namespace, name, part, &context, |current| {
        update::check_preconditions(kind, &named, current, Precondition::Optional)?;
        Ok(patch::apply(kind.schema(), Some(current), &applied, &by, context.force)?)
    })
    .await;
    match merged {
        Err(error) if error.code == StatusCode::NOT_FOUND && matches!(part, Part::Main) => {
            call.may_create(server)?;
            let new = patch::apply(kind.schema(), None, &named, &by, context.force)?;
            let created = create::create(server, resource, new, namespace, &context).await?;
            created.answer(resource, call, &context)
        }
        other => answer::object(resource, call, StatusCode::OK, other?.into_object(), &context),
    }
}
