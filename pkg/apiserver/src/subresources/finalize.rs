//! `namespaces/finalize`: the namespace controller's word that nothing is left.

use crate::answer::{self, Answer};
use crate::decode;
use crate::error::Result;
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::verbs::update::{self, Precondition};
use crate::write::Part;
use http::StatusCode;

/// Takes the finalizers of the body, and nothing else of it.
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let context = call.context()?;
    let body = decode::object(&resource.kind, call.headers, &call.body, &context)?;
    update::check_identity(&resource.kind, &body, "", &call.target.name)?;
    let updated = update::change(server, resource, call, Part::Other("finalize"), &context, |namespace| {
        update::check_preconditions(&resource.kind, &body, namespace, Precondition::Optional)?;
        let spec = api::object::object_mut(namespace, "spec");
        match body["spec"].get("finalizers") {
            Some(finalizers) => spec.insert("finalizers".into(), finalizers.clone()),
            None => spec.remove("finalizers"),
        };
        Ok(())
    })
    .await?;
    answer::object(resource, call, StatusCode::OK, updated, &context)
}
