//! DELETE: one object, or all that a selector finds.

use crate::admission::question::{self, Question};
use crate::admission::{self, Operation};
use crate::answer::{self, Answer};
use crate::context::Context;
use crate::deletion::{self, DeleteOptions, DeletePlan};
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::{Change, Outcome};
use crate::verbs::{list, update::namespace_of};
use crate::{decode, services};
use api::{Kind, Value, object};
use http::StatusCode;
use serde_json::json;

/// Deletes one object.
pub async fn handle(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let kind = &*resource.kind;
    let mut context = call.context()?;
    let options = options(call)?;
    context.dry_run |= options.dry_run;
    if options.propagation.is_none() && kind.group == "batch" && kind.plural == "jobs" {
        context.warn("child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning");
    }
    let outcome =
        delete(server, resource, call.target.namespace, &call.target.name, &options, &context).await?;
    match outcome {
        Outcome::Removed(object) if !returns_object(kind) => {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {
                    "name": object::name(&object), "group": kind.group, "kind": kind.plural,
                    "uid": object::meta(&object, "uid"),
                },
            });
            Ok(answer::json(StatusCode::OK, &status).with_warnings(&context))
        }
        Outcome::Removed(object) | Outcome::Stored(object) => {
            answer::object(resource, call, StatusCode::OK, object, &context)
        }
    }
}

/// Deletes every object of the collection that the selectors match, and answers with them.
pub async fn handle_collection(server: &Server, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let mut context = call.context()?;
    let options = options(call)?;
    context.dry_run |= options.dry_run;
    let found = list::select(server, resource, call).await?;
    let mut deleted = Vec::new();
    for object in &found.objects {
        match delete(server, resource, object.namespace(), object.name(), &options, &context).await {
            Ok(outcome) => deleted.push(outcome.into_object()),
            // Somebody else was faster.
            Err(error) if error.code == StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
    }
    let kind = &resource.kind;
    let answer = json!({
        "kind": kind.list_kind, "apiVersion": kind.api_version(),
        "metadata": {"resourceVersion": found.revision.to_string()}, "items": deleted,
    });
    Ok(answer::json(StatusCode::OK, &answer).with_warnings(&context))
}

/// Deletes one object as the options say.
pub async fn delete(
    server: &Server,
    resource: &Resource,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
    context: &Context,
) -> Result<Outcome> {
    let kind = &resource.kind;
    let namespace = namespace_of(kind, namespace);
    let mut attempt = server.attempt(resource, namespace, name, context.dry_run).await?;
    let outcome = loop {
        let decision = match attempt.current() {
            Ok(current) => decide(server, resource, current, options, context).await,
            Err(error) => Err(error),
        };
        if let Some(outcome) = attempt.settle(decision).await? {
            break outcome;
        }
    };
    if is_container(kind) {
        // Creates look at the cache: nothing may go in any more once we have said that it goes.
        server.catch_up().await?;
    }
    Ok(outcome)
}

async fn decide(
    server: &Server,
    resource: &Resource,
    current: &Value,
    options: &DeleteOptions,
    context: &Context,
) -> Result<Change> {
    let kind = &resource.kind;
    admission::admit_delete(server, resource, context, current)?;
    let plan = deletion::plan(kind, current, options, context.now)?;
    if !question::nobody_is_asked(server) {
        let about = Question::about(server, context, Operation::Delete, kind, current);
        let question = Question { deletion: Some(options), ..about };
        Box::pin(question::ask_all(&question, None, Some(current))).await?;
    }
    Ok(match plan {
        DeletePlan::Remove => Change::Remove(services::release(kind, current)),
        DeletePlan::Mark(marked) => Change::Put(marked, Vec::new()),
        DeletePlan::Pending => Change::Keep,
    })
}

/// Kinds whose objects hold other objects.
fn is_container(kind: &Kind) -> bool {
    matches!(
        (kind.group.as_str(), kind.plural.as_str()),
        ("", "namespaces") | ("apiextensions.k8s.io", "customresourcedefinitions")
    )
}

fn options(call: &Call<'_>) -> Result<DeleteOptions> {
    if call.body.is_empty() {
        return DeleteOptions::parse(None, call.query);
    }
    let decoded = decode::document(call.headers, &call.body)?;
    match decoded.value {
        Value::Null => DeleteOptions::parse(None, call.query),
        Value::Object(_) => DeleteOptions::parse(Some(&decoded.value), call.query),
        _ => Err(ApiError::bad_request("the body of a DELETE must be DeleteOptions")),
    }
}

/// Kinds whose deletion answers with the object, where others answer with a `Status`.
fn returns_object(kind: &Kind) -> bool {
    matches!(
        (kind.group.as_str(), kind.plural.as_str()),
        ("", "pods" | "services" | "serviceaccounts" | "persistentvolumes" | "persistentvolumeclaims")
            | ("", "podtemplates" | "resourcequotas" | "namespaces")
            | ("storage.k8s.io", _)
    )
}
