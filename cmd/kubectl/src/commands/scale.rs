//! `kubectl scale`.

use crate::change::{ChangeFlags, DryRun, merge};
use crate::connection::{ClusterFlags, Connection};
use crate::select::{ObjectFlags, path_of};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::time::Duration;

/// What `scale` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl scale deployment web --replicas 3")]
pub struct Flags {
    #[command(flatten)]
    objects: ObjectFlags,
    /// How many there should be.
    #[arg(long)]
    replicas: u32,
    /// Only if there are this many now; -1 is any number.
    #[arg(long, allow_negative_numbers = true, default_value_t = -1)]
    current_replicas: i64,
    /// Only if the object is still of this version.
    #[arg(long)]
    resource_version: Option<String>,
    /// How long to wait until it is so; 0s is not at all.
    #[arg(long, default_value = "0s", value_parser = crate::duration::parse)]
    timeout: std::time::Duration,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Scales.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let replicas = flags.replicas;
    let connection = Connection::open(cluster).await?;
    let chosen = flags.objects.choose(&connection, false).await?;
    if chosen.is_empty() {
        bail!("no objects passed to scale");
    }
    for (resource, mut object) in chosen {
        let version = &object["metadata"]["resourceVersion"];
        if let Some(expected) = flags.resource_version.as_ref().filter(|expected| *version != **expected) {
            bail!("Expected resource version to be {expected}, was {}", version.as_str().unwrap_or_default());
        }
        let path = format!("{}/scale", path_of(&resource, &object));
        let now = connection.get(&path).await?;
        let count = now["spec"]["replicas"].as_i64().unwrap_or_default();
        if flags.current_replicas >= 0 && count != flags.current_replicas {
            bail!("Expected replicas to be {}, was {count}", flags.current_replicas);
        }
        if flags.change.dry_run != DryRun::Client {
            let mut patch = json!({"spec": {"replicas": replicas}});
            if flags.current_replicas >= 0 {
                patch["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
            }
            let scale = format!("{path}{}", flags.change.query("kubectl-scale"));
            merge(&connection, &scale, &patch).await?;
            if !flags.timeout.is_zero() {
                let waited = tokio::time::timeout(flags.timeout, reached(&connection, &path));
                waited.await.context("timed out waiting for the condition")??;
            }
        }
        object["spec"]["replicas"] = replicas.into();
        flags.change.show(&resource, &object, "scaled")?;
    }
    Ok(())
}

/// Waits until there are as many as there should be.
async fn reached(connection: &Connection, path: &str) -> Result<()> {
    loop {
        let scale: Value = connection.get(path).await?;
        if scale["spec"]["replicas"].as_i64().unwrap_or_default()
            == scale["status"]["replicas"].as_i64().unwrap_or_default()
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
