//! `kubectl apply --prune`: what was applied before and is in no file any more goes.

use super::{Flags, takeover};
use crate::change::DryRun;
use crate::connection::Connection;
use crate::resources::{Catalogue, Resource};
use crate::select::{encode, name_of, path_of};
use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Kinds that are pruned where nothing else is said, as upstream's.
const KINDS: [(&str, &str); 16] = [
    ("v1", "ConfigMap"),
    ("v1", "Endpoints"),
    ("v1", "Namespace"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "PersistentVolume"),
    ("v1", "Pod"),
    ("v1", "ReplicationController"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("networking.k8s.io/v1", "Ingress"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
];

/// Prunes in the namespaces of what was applied.
pub async fn run(
    connection: &Connection,
    catalogue: &Catalogue,
    flags: &Flags,
    applied: &[(Resource, Value)],
) -> Result<()> {
    let mut namespaces: BTreeSet<&str> =
        applied.iter().filter_map(|(_, object)| object["metadata"]["namespace"].as_str()).collect();
    if namespaces.is_empty() {
        namespaces.insert(&connection.namespace);
    }
    let kept: BTreeSet<&str> =
        applied.iter().filter_map(|(_, object)| object["metadata"]["uid"].as_str()).collect();
    let query = flags.selector.as_ref().map(|selector| format!("?labelSelector={}", encode(selector)));
    for resource in kinds(catalogue, &flags.prune_allowlist)? {
        let scopes: Vec<Option<&str>> = if resource.namespaced {
            namespaces.iter().map(|name| Some(*name)).collect()
        } else {
            vec![None]
        };
        for namespace in scopes {
            let path = format!("{}{}", resource.path(namespace), query.clone().unwrap_or_default());
            let list = connection.get(&path).await?;
            for object in list["items"].as_array().into_iter().flatten() {
                let is_kept = object["metadata"]["uid"].as_str().is_some_and(|uid| kept.contains(uid));
                if is_kept || !was_applied(object, &flags.field_manager) {
                    continue;
                }
                prune_one(connection, flags, resource, object).await?;
            }
        }
    }
    Ok(())
}

async fn prune_one(
    connection: &Connection,
    flags: &Flags,
    resource: &Resource,
    object: &Value,
) -> Result<()> {
    let dry = if flags.dry_run == DryRun::Server { "?dryRun=All" } else { "" };
    if flags.dry_run != DryRun::Client {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": {"uid": object["metadata"]["uid"]}});
        connection
            .send(Method::DELETE, &format!("{}{dry}", path_of(resource, object)), Some(&options))
            .await?;
    }
    println!("{} pruned{}", resource.named(name_of(object)), flags.dry_run.suffix());
    Ok(())
}

fn kinds<'a>(catalogue: &'a Catalogue, allowed: &[String]) -> Result<Vec<&'a Resource>> {
    if allowed.is_empty() {
        return Ok(KINDS.iter().filter_map(|(version, kind)| catalogue.of(version, kind)).collect());
    }
    allowed
        .iter()
        .map(|text| {
            let parts: Vec<&str> = text.split('/').collect();
            let [group, version, kind] = parts.as_slice() else {
                anyhow::bail!("invalid GroupVersionKind format: {text}, please follow <group/version/kind>");
            };
            let api_version =
                if *group == "core" { (*version).to_owned() } else { format!("{group}/{version}") };
            catalogue.of(&api_version, kind).with_context(|| format!("the server has no {text}"))
        })
        .collect()
}

/// Only what was applied is pruned: never what somebody created otherwise.
fn was_applied(object: &Value, manager: &str) -> bool {
    let metadata = &object["metadata"];
    let mut managed = metadata["managedFields"].as_array().into_iter().flatten();
    !metadata["annotations"][takeover::LAST_APPLIED].is_null()
        || managed.any(|entry| entry["manager"] == manager && entry["operation"] == "Apply")
}
