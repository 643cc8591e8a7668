//! `kubectl scale`.

use crate::connection::{ClusterFlags, Connection};
use crate::select::{self, SelectFlags, name_of, path_of};
use anyhow::{Result, bail};
use http::Method;
use serde_json::json;

/// What `scale` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl scale deployment web --replicas 3")]
pub struct Flags {
    #[command(flatten)]
    select: SelectFlags,
    /// How many there should be.
    #[arg(long)]
    replicas: u32,
    /// Only if there are this many now.
    #[arg(long)]
    current_replicas: Option<u32>,
}

/// Scales.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    for (resource, object) in select::objects(&connection, &flags.select).await? {
        let path = format!("{}/scale", path_of(&resource, &object));
        if let Some(expected) = flags.current_replicas {
            let now = connection.get(&path).await?["spec"]["replicas"].as_u64().unwrap_or_default();
            if now != u64::from(expected) {
                bail!("Expected replicas to be {expected}, was {now}");
            }
        }
        let patch = json!({"spec": {"replicas": flags.replicas}}).to_string();
        connection
            .send_as(Method::PATCH, &path, "application/merge-patch+json", Some(patch), "application/json")
            .await?;
        println!("{} scaled", resource.named(name_of(&object)));
    }
    Ok(())
}
