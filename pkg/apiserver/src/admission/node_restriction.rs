//! A node writes only what is its own.

use super::{Operation, Request};
use crate::auth::Attributes;
use crate::auth::node::{Restricted, restrict};
use crate::error::{ApiError, Result};
use api::Value;

pub(super) fn admit(request: &Request<'_>, object: Option<&mut Value>) -> Result<()> {
    if request.context.user.node().is_none() {
        return Ok(());
    }
    let authorizer = request.server.auth.authorizer.read();
    let new = object.as_deref();
    restrict(&attributes(request), new, request.old, request.server, &authorizer).map_err(|error| match error
    {
        Restricted::Forbidden(why) => ApiError::forbidden(request.kind, &request.name, why),
        Restricted::NotFound { .. } => ApiError::not_found(request.kind, &request.name),
    })
}

/// The write as authorizers see it.
pub(super) fn attributes<'a>(request: &'a Request<'a>) -> Attributes<'a> {
    let verb = match request.operation {
        Operation::Create => "create",
        Operation::Update => "update",
        Operation::Delete => "delete",
        Operation::Connect => "connect",
    };
    Attributes {
        version: &request.kind.version,
        subresource: request.subresource,
        namespace: &request.namespace,
        name: &request.name,
        ..Attributes::resource(&request.context.user, verb, &request.kind.group, &request.kind.plural)
    }
}
