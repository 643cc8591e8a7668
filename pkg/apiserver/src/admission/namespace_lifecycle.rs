//! Nothing is created in a namespace that is not there or is going away, and three namespaces never go.

use super::{Operation, Request, mentions};
use crate::error::{ApiError, Result};
use crate::storage::parse;
use api::Value;
use api::object;

const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn admit(request: &Request<'_>, _object: Option<&mut Value>) -> Result<()> {
    if request.is_for("", "namespaces") {
        return match request.operation {
            Operation::Delete if IMMORTAL.contains(&request.name.as_str()) => {
                Err(ApiError::forbidden(request.kind, &request.name, "this namespace may not be deleted"))
            }
            _ => Ok(()),
        };
    }
    if request.operation != Operation::Create || !request.kind.namespaced() {
        return Ok(());
    }
    let namespaces = request.server.registry.built_in("", "namespaces");
    let Some(namespace) = namespaces.cache.get("", &request.namespace) else {
        return Err(ApiError::not_found(&namespaces.kind, &request.namespace));
    };
    let ends = |namespace: &Value| object::meta(namespace, "deletionTimestamp").is_some();
    if !mentions(namespace.as_json(), "deletionTimestamp") || !ends(&parse(namespace.as_json())?) {
        return Ok(());
    }
    let why = format!(
        "unable to create new content in namespace {} because it is being terminated",
        request.namespace
    );
    let message = format!("namespace {} is being terminated", request.namespace);
    Err(ApiError::forbidden(request.kind, &request.name, why).with_cause(
        "NamespaceTerminating",
        &message,
        "metadata.namespace",
    ))
}
