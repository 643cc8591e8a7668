//! Nobody gives permissions that they do not have.

use super::{Operation, Request, node_restriction::attributes};
use crate::auth::Attributes;
use crate::auth::rbac::{Escalation, check_binding_write, check_role_write};
use crate::error::{ApiError, Result};
use api::Value;

pub(super) fn admit(request: &Request<'_>, object: Option<&mut Value>) -> Result<()> {
    let Some(new) = object else { return Ok(()) };
    if request.kind.group != "rbac.authorization.k8s.io" {
        return Ok(());
    }
    // A permission by name does not count for what has no name yet.
    let name = if request.operation == Operation::Create { "" } else { request.name.as_str() };
    let wanted = Attributes { name, ..attributes(request) };
    let authorizer = request.server.auth.authorizer.read();
    let checked = match request.kind.plural.as_str() {
        "roles" | "clusterroles" => check_role_write(&authorizer.rbac, &wanted, new, request.old),
        _ => check_binding_write(&authorizer.rbac, &wanted, new, request.old),
    };
    checked.map_err(|error| match error {
        Escalation::Forbidden(why) => ApiError::forbidden(request.kind, &request.name, why),
        Escalation::RoleNotFound { resource, name } => {
            ApiError::not_found(&request.server.kind("rbac.authorization.k8s.io", resource), &name)
        }
    })
}
