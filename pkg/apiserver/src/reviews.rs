//! Questions: kinds that are posted, answered and forgotten.

use crate::answer::{self, Answer};
use crate::auth::{access_review, reviewed_user, token};
use crate::decode;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::subresources;
use api::{Errors, Field, Value, object};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::json;

/// Answers a review (or takes a Binding, which is posted the same way).
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let kind = &*resource.kind;
    if kind.plural == "bindings" {
        let pods = server.registry.built_in("", "pods");
        return subresources::bind(server, &pods, call).await;
    }
    let context = call.context()?;
    let mut review = decode::object(kind, call.headers, &call.body, &context)?;
    if kind.namespaced() {
        set_namespace(resource, &mut review, call.target.namespace)?;
    }
    let mut errors = Errors::new();
    (kind.validate)(&Field::root(&review), &mut errors);
    if !errors.is_empty() {
        return Err(ApiError::invalid(kind, object::name(&review), errors.as_slice()));
    }
    let status = match kind.plural.as_str() {
        "tokenreviews" => token::review(&review, &server.auth.authenticator, server, Timestamp::now())
            .map_err(ApiError::bad_request)?,
        "selfsubjectreviews" => json!({ "userInfo": call.user.to_json() }),
        "selfsubjectaccessreviews" => {
            access_review(&server.auth.authorizer.read(), &review["spec"], &call.user)
        }
        "subjectaccessreviews" | "localsubjectaccessreviews" => {
            let user = reviewed_user(&review["spec"]);
            access_review(&server.auth.authorizer.read(), &review["spec"], &user)
        }
        "selfsubjectrulesreviews" => {
            let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
            if namespace.is_empty() {
                return Err(ApiError::bad_request("no namespace on request"));
            }
            server.auth.authorizer.read().rules_review(&call.user, namespace)
        }
        _ => return Err(ApiError::no_such_path()),
    };
    review["status"] = status;
    answer::object(resource, call, StatusCode::CREATED, review, &context)
}

/// The namespace comes from the path; the review may repeat it but not contradict it.
fn set_namespace(resource: &Resource, review: &mut Value, namespace: &str) -> Result<()> {
    if namespace.is_empty() {
        return Err(ApiError::method_not_allowed(&resource.kind, "create"));
    }
    let given = object::namespace(review);
    if !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(format!(
            "the namespace of the provided object does not match the namespace sent on the request ({given} != {namespace})"
        )));
    }
    object::object_mut(review, "metadata").insert("namespace".into(), namespace.into());
    Ok(())
}
