//! APIServices of what this server answers for itself: nobody is asked, but whoever lists them finds every version.

use crate::context::Context;
use crate::discovery::{group_priority, version_priority};
use crate::error::Result;
use crate::server::Server;
use crate::storage::{Change, parse};
use crate::{bootstrap, time};
use api::{Kind, Value};
use futures::future::try_join_all;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whoever has this label was made here, and goes with what it is about.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The place of custom kinds' versions.
const CUSTOM_VERSION_PRIORITY: i64 = 100;

/// What is said of all of them.
pub const AVAILABLE: super::Said<'static> = ("True", "Local", "Local APIServices are always available");

/// Makes those that are missing, and removes those of versions that are served no more.
pub async fn pass(server: &Arc<Server>) -> Result<()> {
    let resource = server.registry.built_in("apiregistration.k8s.io", "apiservices");
    let context = Context::internal(jiff::Timestamp::now());
    let wanted = wanted(server.registry.resources().kinds(), &time::rfc3339(context.now));
    let missing = wanted.iter().filter(|(name, _)| resource.cache.get("", name).is_none());
    try_join_all(missing.map(|(_, service)| {
        bootstrap::ensure(server, "apiregistration.k8s.io", "apiservices", "", service.clone(), &context)
    }))
    .await?;
    for known in resource.objects(None).iter().filter(|known| !wanted.contains_key(known.name())) {
        if is_stale(&parse(known.as_json())?) {
            let remove = |current: &Value| match is_stale(current) {
                true => Ok(Change::Remove(Vec::new())),
                false => Ok(Change::Keep),
            };
            match server.modify(&resource, "", known.name(), false, remove).await {
                Err(error) if error.reason != "NotFound" => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether one that nothing is served for was made here: somebody may have given it to another server since.
fn is_stale(service: &Value) -> bool {
    service["metadata"]["labels"][MANAGED].is_string() && !service["spec"]["service"].is_object()
}

/// What should be there, by name. The group that APIServices are of has none.
fn wanted(kinds: &[Arc<Kind>], now: &str) -> BTreeMap<String, Value> {
    let mut wanted = BTreeMap::new();
    for kind in kinds.iter().filter(|kind| kind.group != "apiregistration.k8s.io") {
        let (group, version) = (kind.group.as_str(), kind.version.as_str());
        let (managed, priority) = match kind.custom {
            Some(_) => ("true", CUSTOM_VERSION_PRIORITY),
            None => ("onstart", version_priority(kinds, group, version)),
        };
        let name = format!("{version}.{group}");
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name, "labels": {MANAGED: managed}},
            "spec": {"group": group, "version": version, "groupPriorityMinimum": group_priority(group),
                "versionPriority": priority},
            "status": super::status(AVAILABLE, now),
        });
        wanted.entry(name).or_insert(service);
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_has_one() {
        let wanted = wanted(api::kinds::all(), "");
        assert_eq!(wanted["v1.apps"]["spec"]["groupPriorityMinimum"], 17_800);
        assert_eq!(wanted["v2.autoscaling"]["spec"]["versionPriority"], 30);
        assert_eq!(wanted["v1.autoscaling"]["spec"]["versionPriority"], 15);
        assert_eq!(wanted["v1."]["spec"]["group"], "");
        assert!(!wanted.contains_key("v1.apiregistration.k8s.io"));
    }

    #[test]
    fn what_was_given_to_another_server_stays() {
        let mut service = wanted(api::kinds::all(), "")["v1.apps"].clone();
        assert!(is_stale(&service));
        service["spec"]["service"] = json!({"name": "x"});
        assert!(!is_stale(&service));
    }
}
