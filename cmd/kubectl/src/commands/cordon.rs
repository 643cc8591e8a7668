//! `kubectl cordon` and `kubectl uncordon`.

use crate::connection::{ClusterFlags, Connection};
use anyhow::Result;
use http::Method;
use serde_json::json;

/// What they are told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl cordon n1")]
pub struct Flags {
    /// The nodes.
    #[arg(required = true)]
    nodes: Vec<String>,
}

/// Closes nodes to new pods, or opens them.
pub async fn run(cluster: &ClusterFlags, flags: Flags, closed: bool) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let done = if closed { "cordoned" } else { "uncordoned" };
    for name in flags.nodes {
        let path = format!("/api/v1/nodes/{name}");
        let before = connection.get(&path).await?;
        let is_closed = before["spec"]["unschedulable"].as_bool().unwrap_or_default();
        if is_closed == closed {
            println!("node/{name} already {done}");
            continue;
        }
        let patch = json!({"spec": {"unschedulable": closed.then_some(true)}}).to_string();
        connection
            .send_as(Method::PATCH, &path, "application/merge-patch+json", Some(patch), "application/json")
            .await?;
        println!("node/{name} {done}");
    }
    Ok(())
}
