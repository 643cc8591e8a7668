//! Nothing is created in a namespace that is not there or is going away, and three namespaces never go.

use super::{Operation, Request};
use crate::error::{ApiError, Result};
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
    let Some(namespace) = request.server.namespace(&request.namespace) else {
        let namespaces = request.server.registry.built_in("", "namespaces");
        return Err(ApiError::not_found(&namespaces.kind, &request.namespace));
    };
    if object::meta(&namespace, "deletionTimestamp").is_none() {
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
