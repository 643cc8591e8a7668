//! APIServices of what this server answers for itself: nobody is asked, but whoever lists them finds every version.

use super::{GROUP, available, put_right};
use crate::bootstrap;
use crate::context::Context;
use crate::discovery::{group_priority, version_priority};
use crate::error::Result;
use crate::server::Server;
use crate::storage::{Change, parse};
use api::kinds::apiregistration::api_service::LOCAL;
use api::{Kind, Value, object};
use futures::future::try_join_all;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whoever has this label was made here, and goes with what it is about.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Its value for those that are kept as they were made: custom kinds' versions.
const ALWAYS: &str = "true";
/// Its value for the others.
const ON_START: &str = "onstart";
/// The places of the core group and of its version.
const CORE: (i64, i64) = (18_000, 1);
/// The place of custom kinds' versions.
const CUSTOM_VERSION_PRIORITY: i64 = 100;

/// Makes those that are missing, puts right those that were changed, and removes those of versions that are served no
/// more.
pub async fn pass(server: &Arc<Server>) -> Result<()> {
    let resource = server.registry.built_in(GROUP, "apiservices");
    let context = Context::internal(jiff::Timestamp::now());
    let wanted = wanted(server.registry.resources().kinds());
    let missing = wanted.iter().filter(|(name, _)| resource.cache.get("", name).is_none());
    try_join_all(
        missing.map(|(_, service)| {
            bootstrap::ensure(server, GROUP, "apiservices", "", service.clone(), &context)
        }),
    )
    .await?;
    for known in resource.objects(None).iter() {
        let known = parse(known.as_json())?;
        match wanted.get(object::name(&known)) {
            Some(wanted) => {
                put_right(server, &resource, &known, "spec", |current| spec(wanted, current)).await?
            }
            None if is_stale(&known) => remove(server, &known).await?,
            None => {}
        }
        if !super::is_remote(&known) {
            available::say(server, &known, LOCAL).await?;
        }
    }
    Ok(())
}

async fn remove(server: &Server, known: &Value) -> Result<()> {
    let resource = server.registry.built_in(GROUP, "apiservices");
    let remove = |current: &Value| match is_stale(current) {
        true => Ok(Change::Remove(Vec::new())),
        false => Ok(Change::Keep),
    };
    match server.modify(&resource, "", object::name(known), false, remove).await {
        Err(error) if error.reason != "NotFound" => Err(error),
        _ => Ok(()),
    }
}

fn managed(service: &Value) -> Option<&str> {
    service["metadata"]["labels"][MANAGED].as_str()
}

/// What the spec of one must be, where that is ours to say. Who takes the label away may have it as they like.
fn spec(wanted: &Value, current: &Value) -> Option<Value> {
    let is_ours = managed(wanted) == Some(ALWAYS) && managed(current) == Some(ALWAYS);
    is_ours.then(|| wanted["spec"].clone())
}

/// Whether one that nothing is served for was made here. One that is not kept as it was made may have been given to
/// another server since.
fn is_stale(service: &Value) -> bool {
    match managed(service) {
        Some(ALWAYS) => true,
        Some(_) => !super::is_remote(service),
        None => false,
    }
}

/// What should be there, by name. The group that APIServices are of has none.
fn wanted(kinds: &[Arc<Kind>]) -> BTreeMap<String, Value> {
    let mut wanted = BTreeMap::new();
    for kind in kinds.iter().filter(|kind| kind.group != GROUP) {
        let (group, version) = (kind.group.as_str(), kind.version.as_str());
        let (managed, (of_group, of_version)) = match kind.custom {
            Some(_) => (ALWAYS, (group_priority(group), CUSTOM_VERSION_PRIORITY)),
            None if group.is_empty() => (ON_START, CORE),
            None => (ON_START, (group_priority(group), version_priority(kinds, group, version))),
        };
        let name = format!("{version}.{group}");
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name, "labels": {MANAGED: managed}},
            "spec": {"group": group, "version": version, "groupPriorityMinimum": of_group,
                "versionPriority": of_version},
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
        let wanted = wanted(api::kinds::all());
        assert_eq!(wanted["v1.apps"]["spec"]["groupPriorityMinimum"], 17_800);
        assert_eq!(wanted["v2.autoscaling"]["spec"]["versionPriority"], 30);
        assert_eq!(wanted["v1.autoscaling"]["spec"]["versionPriority"], 15);
        let core =
            json!({"group": "", "version": "v1", "groupPriorityMinimum": 18_000, "versionPriority": 1});
        assert_eq!(wanted["v1."]["spec"], core);
        assert!(!wanted.contains_key("v1.apiregistration.k8s.io"));
    }

    #[test]
    fn what_was_given_to_another_server_stays() {
        let mut service = wanted(api::kinds::all())["v1.apps"].clone();
        assert!(is_stale(&service));
        service["spec"]["service"] = json!({"name": "x"});
        assert!(!is_stale(&service));
        service["metadata"]["labels"][MANAGED] = ALWAYS.into();
        assert!(is_stale(&service), "of a custom kind that is gone");
    }

    #[test]
    fn custom_kinds_have_the_spec_that_we_gave_them() {
        let service = |managed: &str, priority: i64| json!({"metadata": {"labels": {MANAGED: managed}}, "spec": {"versionPriority": priority}});
        let wanted = service(ALWAYS, 100);
        assert_eq!(spec(&wanted, &service(ALWAYS, 1)), Some(wanted["spec"].clone()));
        assert_eq!(spec(&wanted, &service("no", 1)), None);
        assert_eq!(spec(&service(ON_START, 15), &service(ON_START, 1)), None);
    }
}
