//! Parts of objects with code of their own. `status` needs none: it is an update or patch of a part. What others must
//! be asked for (logs, exec, proxy, …) is in [`crate::nodes`].

mod binding;
mod doors;
mod eviction;
pub mod scale;
mod token;

pub use binding::handle as bind;

use crate::answer::Answer;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::publish;
use crate::registry::Resource;
use crate::server::Server;
use crate::verbs;
use crate::write::Part;
use api::kind::Subresource;

/// Serves a subresource.
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let name = call.target.subresource;
    let known = resource.kind.subresources.iter().find(|sub| match sub {
        Subresource::Status => name == "status",
        Subresource::Scale { .. } => name == "scale",
        Subresource::Named { name: named, .. } => *named == name,
    });
    let Some(known) = known else { return Err(ApiError::no_such_path()) };
    match (known, name, call.info.verb) {
        (Subresource::Status, _, "get") => verbs::get::handle(server, resource, call).await,
        (Subresource::Status, _, "update") => {
            verbs::update::handle(server, resource, call, Part::Status).await
        }
        (Subresource::Status, _, "patch") => verbs::patch::handle(server, resource, call, Part::Status).await,
        (Subresource::Scale { spec_replicas, status_replicas, selector }, _, "get" | "update" | "patch") => {
            let paths = scale::Paths { spec_replicas, status_replicas, selector: selector.as_deref() };
            scale::handle(server, resource, call, &paths).await
        }
        (_, "binding", "create") => binding::handle(server, resource, call).await,
        (_, "eviction", "create") => eviction::handle(server, resource, call).await,
        (_, "redis", "get") => publish::handle(server, resource, call).await,
        (_, "token", "create") => token::handle(server, resource, call).await,
        (_, name, verb) => match (doors::find(name), verb) {
            (Some(_), "get") => verbs::get::handle(server, resource, call).await,
            (Some(door), "update") => verbs::update::handle(server, resource, call, Part::Door(door)).await,
            (Some(door), "patch") => verbs::patch::handle(server, resource, call, Part::Door(door)).await,
            _ => Err(ApiError::method_not_allowed(&resource.kind, verb)),
        },
    }
}
