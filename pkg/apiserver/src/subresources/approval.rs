//! `certificatesigningrequests/approval`: a person's or a controller's yes or no.

use crate::answer::{self, Answer};
use crate::decode;
use crate::error::Result;
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::verbs::update::{self, Precondition};
use crate::write::Part;
use http::StatusCode;

/// Takes the conditions of the body, and nothing else of it.
pub async fn update(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let context = call.context()?;
    let body = decode::object(&resource.kind, call.headers, &call.body, &context)?;
    update::check_identity(&resource.kind, &body, "", &call.target.name)?;
    let updated = update::change(server, resource, call, Part::Other("approval"), &context, |request| {
        update::check_preconditions(&resource.kind, &body, request, Precondition::Optional)?;
        let status = api::object::object_mut(request, "status");
        if let Some(conditions) = body["status"].get("conditions") {
            status.insert("conditions".into(), conditions.clone());
        }
        Ok(())
    })
    .await?;
    answer::object(resource, call, StatusCode::OK, updated, &context)
}
