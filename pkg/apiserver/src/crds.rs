//! CustomResourceDefinitions at work: from definitions to kinds being served, and back.
//!
//! ```text
//! definitions ──status──> NamesAccepted, Established ──> kinds ──> Registry
//! a definition being deleted ──> its objects deleted ──> its finalizer removed ──> gone
//! ```

use crate::context::Context;
use crate::deletion::{CUSTOM_RESOURCE_CLEANUP, DeleteOptions};
use crate::error::{ApiError, Result};
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::{Change, parse};
use crate::verbs::{delete, update};
use crate::write::Part;
use api::crd;
use api::{Kind, Value, object};
use jiff::Timestamp;
use listwatch::{Scope, Since};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What could not be done is tried again after this.
const RETRY: Duration = Duration::from_secs(1);

/// The kinds of definitions, by their names, uids and generations: what has not changed is not compiled again.
pub type CustomKinds = BTreeMap<(String, String, i64), Vec<Arc<Kind>>>;

/// Serves what is defined now.
pub async fn load(server: &Arc<Server>) -> Result<()> {
    serve_kinds(server, &definitions(server)?).await
}

/// Follows the definitions, and the objects of those that are going, until shutdown.
pub async fn keep(server: Arc<Server>, shutdown: CancellationToken) {
    let cache = server.registry.built_in("apiextensions.k8s.io", "customresourcedefinitions").cache.clone();
    while let Ok(mut watcher) = cache.watch(Scope::default(), Since::Now) {
        loop {
            let is_settled = match pass(&server).await {
                Ok(is_settled) => is_settled,
                Err(error) => {
                    tracing::warn!(
                        error = error.message,
                        "cannot bring custom resources in step with their definitions"
                    );
                    false
                }
            };
            tokio::select! {
                news = watcher.next() => if news.is_err() { break },
                () = tokio::time::sleep(RETRY), if !is_settled => {}
                () = shutdown.cancelled() => return,
            }
        }
    }
}

/// Refuses new objects of a kind whose definition is going: they would be left behind.
pub fn check_not_terminating(server: &Server, kind: &Kind) -> Result<()> {
    if kind.custom.is_none() {
        return Ok(());
    }
    let definition =
        server.lookup("apiextensions.k8s.io", "customresourcedefinitions", "", &kind.group_resource());
    if definition.is_none_or(|definition| object::meta(&definition, "deletionTimestamp").is_none()) {
        return Ok(());
    }
    let message = "create not allowed while custom resource definition is terminating".to_owned();
    Err(ApiError { message, ..ApiError::method_not_allowed(kind, "create") })
}

/// One look at all definitions. Returns whether nothing is left to do.
async fn pass(server: &Arc<Server>) -> Result<bool> {
    let resource = server.registry.built_in("apiextensions.k8s.io", "customresourcedefinitions");
    let all = definitions(server)?;
    for definition in &all {
        if object::meta(definition, "deletionTimestamp").is_some() {
            continue;
        }
        settle_status(server, &resource, definition, &all).await?;
    }
    server.catch_up().await?;
    let all = definitions(server)?;
    serve_kinds(server, &all).await?;
    let mut is_settled = true;
    for definition in all.iter().filter(|d| object::meta(d, "deletionTimestamp").is_some()) {
        is_settled &= clean_up(server, &resource, definition).await?;
    }
    Ok(is_settled)
}

fn definitions(server: &Server) -> Result<Vec<Value>> {
    let resource = server.registry.built_in("apiextensions.k8s.io", "customresourcedefinitions");
    resource.objects(None).iter().map(|object| parse(object.as_json())).collect()
}

/// Writes the conditions and accepted names of a definition, where they are not right yet.
async fn settle_status(
    server: &Server,
    resource: &Resource,
    definition: &Value,
    all: &[Value],
) -> Result<()> {
    let name = object::name(definition);
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    let others = all.iter().filter(|other| object::name(other) != name);
    let taken = crd::Names::of_group(group, others, api::kinds::all());
    let now = Timestamp::now();
    if crd::next_status(definition, &taken, now).is_none() {
        return Ok(());
    }
    server
        .modify(resource, "", name, false, |current| {
            Ok(match crd::next_status(current, &taken, now) {
                Some(status) => {
                    let mut next = current.clone();
                    next["status"] = status;
                    Change::Put(Box::new(next), Vec::new())
                }
                None => Change::Keep,
            })
        })
        .await
        .map(|_| ())
}

/// Serves the kinds of all established definitions, and tells discovery and OpenAPI.
async fn serve_kinds(server: &Arc<Server>, definitions: &[Value]) -> Result<()> {
    let established: Vec<&Value> = definitions
        .iter()
        .filter(|definition| object::condition_is(definition, "Established", "True"))
        .collect();
    let known = server.custom_kinds.lock().clone();
    let mut served = CustomKinds::new();
    for definition in established {
        let id = (
            object::name(definition).to_owned(),
            object::meta(definition, "uid").unwrap_or_default().to_owned(),
            definition["metadata"]["generation"].as_i64().unwrap_or(0),
        );
        let compile = || crd::kinds(definition).into_iter().map(Arc::new).collect();
        let kinds = known.get(&id).cloned().unwrap_or_else(compile);
        served.insert(id, kinds);
    }
    if served.keys().eq(known.keys()) {
        return Ok(());
    }
    server.registry.replace(served.values().flatten().cloned().collect()).await.map_err(|error| {
        tracing::error!(%error, "cannot serve custom resources");
        ApiError::unavailable("custom resources cannot be served at the moment")
    })?;
    *server.custom_kinds.lock() = served;
    server.api_services.kinds_changed.notify_one();
    Ok(())
}

/// Deletes the objects of a definition that is going, then lets it go. Returns whether it did.
async fn clean_up(server: &Arc<Server>, resource: &Resource, definition: &Value) -> Result<bool> {
    let holds = definition["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|list| list.iter().any(|f| f == CUSTOM_RESOURCE_CLEANUP));
    if !holds {
        return Ok(true);
    }
    let context = Context::internal(Timestamp::now());
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
    let served = server.registry.resources().any_version(group, plural).cloned();
    if let Some(custom) = served {
        for item in custom.objects(None) {
            delete::delete(
                server,
                &custom,
                item.namespace(),
                item.name(),
                &DeleteOptions::default(),
                &context,
            )
            .await?;
        }
        server.catch_up().await?;
        if !custom.cache.is_empty() {
            // Finalizers of the objects hold them; their controllers will come back to it.
            return Ok(false);
        }
    }
    update::change(server, resource, "", object::name(definition), Part::Main, &context, |current| {
        let mut next = current.clone();
        if let Some(finalizers) = next["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != CUSTOM_RESOURCE_CLEANUP);
        }
        Ok(next)
    })
    .await
    .map(|_| true)
}
