//! `kubectl rollout history`, and the revisions that it and `undo` find: replica sets of a Deployment, controller
//! revisions of the others.

use super::template;
use crate::connection::Connection;
use crate::output::Output;
use crate::resources::Resource;
use crate::select::{ObjectFlags, encode, name_of};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

const REVISION: &str = "deployment.kubernetes.io/revision";
/// The label of what belongs to a Function.
const FUNCTION: &str = "minik8s.io/function";
const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// What `rollout history` is told.
#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    objects: ObjectFlags,
    /// Show this revision; 0 is all, in short.
    #[arg(long, default_value_t = 0)]
    revision: i64,
    /// yaml or json: show whole objects.
    #[arg(long, short)]
    output: Option<String>,
}

/// What was rolled out once.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    /// Its number.
    pub number: i64,
    /// Why, if somebody said so.
    pub cause: Option<String>,
    /// The template of its pods; of a Function, what its pods are made of.
    pub template: Value,
    /// The object that remembers it.
    pub source: Value,
}

/// Shows.
pub async fn run(connection: &Connection, flags: Flags) -> Result<()> {
    let output = Output::parse(flags.output.as_deref())?;
    for (resource, object) in flags.objects.choose(connection, false).await? {
        let revisions = revisions(connection, &resource, &object).await?;
        let named = resource.named(name_of(&object));
        if flags.revision == 0 {
            if !output.is_table() {
                let items: Vec<&Value> = revisions.iter().map(|revision| &revision.source).collect();
                print!("{}", output.show(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?);
                continue;
            }
            println!("{named} ");
            if revisions.is_empty() {
                println!("No rollout history found.");
                continue;
            }
            println!("REVISION  CHANGE-CAUSE");
            for revision in &revisions {
                let cause = revision.cause.as_deref().unwrap_or("<none>");
                println!("{:<10}{}", revision.number, cli::plain(cause));
            }
            println!();
            continue;
        }
        let found = revisions.into_iter().find(|revision| revision.number == flags.revision);
        let found = found.context("unable to find the specified revision")?;
        if !output.is_table() {
            print!("{}", output.show(&found.source)?);
            continue;
        }
        println!("{named} with revision #{}", found.number);
        match resource.kind.as_str() {
            "Function" => print!("{}", template::function(&found.template)),
            _ => print!("{}", template::describe(&found.template, found.cause.as_deref())),
        }
        println!();
    }
    Ok(())
}

/// What was rolled out of an object, the oldest first.
pub async fn revisions(
    connection: &Connection,
    resource: &Resource,
    object: &Value,
) -> Result<Vec<Revision>> {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let plural = match resource.kind.as_str() {
        "Deployment" => "replicasets",
        "DaemonSet" | "StatefulSet" | "Function" => "controllerrevisions",
        other => bail!("no history viewer has been implemented for {other:?}"),
    };
    let labels = match resource.kind.as_str() {
        "Function" => json!({FUNCTION: name_of(object)}),
        _ => object["spec"]["selector"]["matchLabels"].clone(),
    };
    let labels = labels.as_object().cloned().unwrap_or_default();
    let selector: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let path = format!(
        "/apis/apps/v1/namespaces/{namespace}/{plural}?labelSelector={}",
        encode(&selector.join(","))
    );
    let list = connection.get(&path).await?;
    let uid = &object["metadata"]["uid"];
    let owned = list["items"].as_array().into_iter().flatten().filter(|item| {
        let mut owners = item["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.any(|owner| owner["uid"] == *uid)
    });
    let mut revisions: Vec<Revision> = owned.filter_map(|item| parse(&resource.kind, item)).collect();
    revisions.sort_by_key(|revision| revision.number);
    Ok(revisions)
}

fn parse(owner: &str, item: &Value) -> Option<Revision> {
    let annotations = &item["metadata"]["annotations"];
    let cause = annotations[CHANGE_CAUSE].as_str().map(str::to_owned);
    let (number, template) = if owner == "Deployment" {
        let mut template = item["spec"]["template"].clone();
        if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
            labels.remove("pod-template-hash");
        }
        (annotations[REVISION].as_str()?.parse().ok()?, template)
    } else if owner == "Function" {
        (item["revision"].as_i64()?, item["data"]["spec"].clone())
    } else {
        let mut template = item["data"]["spec"]["template"].clone();
        if let Some(template) = template.as_object_mut() {
            template.remove("$patch");
        }
        (item["revision"].as_i64()?, template)
    };
    Some(Revision { number, cause, template, source: item.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_of_replica_sets_and_controller_revisions() {
        let set = json!({
            "metadata": {"annotations": {REVISION: "3", CHANGE_CAUSE: "new image"}},
            "spec": {"template": {"metadata": {"labels": {"app": "web", "pod-template-hash": "abc"}}}},
        });
        let revision = parse("Deployment", &set).expect("a revision");
        assert_eq!((revision.number, revision.cause.as_deref()), (3, Some("new image")));
        assert_eq!(revision.template, json!({"metadata": {"labels": {"app": "web"}}}));
        let data = json!({"spec": {"template": {"$patch": "replace", "spec": {}}}});
        let revision = parse("DaemonSet", &json!({"revision": 7, "data": data})).expect("a revision");
        assert_eq!((revision.number, revision.template), (7, json!({"spec": {}})));
        assert_eq!(parse("Deployment", &json!({"metadata": {}})), None);
    }
}
