//! `kubectl cordon` and `kubectl uncordon`.

use crate::change::{self, ChangeFlags, DryRun};
use crate::connection::{ClusterFlags, Connection};
use crate::resources::Resource;
use crate::select::{encode, name_of};
use anyhow::{Result, bail};
use serde_json::Value;

/// What they are told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl cordon n1")]
pub struct Flags {
    /// The nodes.
    nodes: Vec<String>,
    /// Only nodes with these labels.
    #[arg(long, short = 'l')]
    selector: Option<String>,
    /// none, client or server: only say what would be done.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "client", default_value = "none")]
    dry_run: DryRun,
}

/// Closes nodes to new pods, or opens them.
pub async fn run(cluster: &ClusterFlags, flags: Flags, closed: bool) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    for node in nodes(&connection, &flags.nodes, flags.selector.as_deref()).await? {
        mark(&connection, &node, closed, flags.dry_run).await?;
    }
    Ok(())
}

/// What nodes are to the API: no need to ask the server.
pub fn resource() -> Resource {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Resource {
        version: "v1".into(),
        plural: "nodes".into(),
        singular: "node".into(),
        kind: "Node".into(),
        short_names: texts(&["no"]),
        ..Resource::default()
    }
}

/// The nodes that are named or have labels.
pub async fn nodes(connection: &Connection, names: &[String], selector: Option<&str>) -> Result<Vec<Value>> {
    match (names, selector) {
        ([], None) => bail!("one or more nodes must be named, or chosen by --selector"),
        ([], Some(selector)) => {
            let list = connection.get(&format!("/api/v1/nodes?labelSelector={}", encode(selector))).await?;
            Ok(list["items"].as_array().cloned().unwrap_or_default())
        }
        (_, Some(_)) => bail!("cannot specify both a node name and a --selector option"),
        (names, None) => {
            let mut nodes = Vec::new();
            for name in names {
                let name = name.strip_prefix("node/").unwrap_or(name);
                nodes.push(connection.get(&format!("/api/v1/nodes/{name}")).await?);
            }
            Ok(nodes)
        }
    }
}

/// Closes or opens one, and says so.
pub async fn mark(connection: &Connection, node: &Value, closed: bool, dry_run: DryRun) -> Result<()> {
    let done = if closed { "cordoned" } else { "uncordoned" };
    let name = name_of(node);
    let flags = ChangeFlags { dry_run, ..ChangeFlags::default() };
    let changed = change::change(connection, &flags, "kubectl-cordon", (&resource(), node), |node| {
        if let Some(spec) = node["spec"].as_object_mut() {
            match closed {
                true => drop(spec.insert("unschedulable".into(), true.into())),
                false => drop(spec.remove("unschedulable")),
            }
        } else if closed {
            node["spec"] = serde_json::json!({"unschedulable": true});
        }
        Ok(())
    })
    .await?;
    let already = if changed.is_different { "" } else { "already " };
    println!("node/{name} {already}{done}{}", dry_run.suffix());
    Ok(())
}
