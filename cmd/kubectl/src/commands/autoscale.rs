//! `kubectl autoscale`.

use crate::change::{ChangeFlags, create};
use crate::connection::{ClusterFlags, Connection};
use crate::resources::Resource;
use crate::select::{ObjectFlags, name_of};
use anyhow::{Context, Result, bail};
use serde_json::json;

/// What `autoscale` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl autoscale deployment web --min=2 --max=10 --cpu-percent=80")]
pub struct Flags {
    #[command(flatten)]
    objects: ObjectFlags,
    /// The fewest there may be.
    #[arg(long)]
    min: Option<u32>,
    /// The most there may be.
    #[arg(long)]
    max: Option<u32>,
    /// How busy pods should be, in percent of the CPU they ask for.
    #[arg(long, allow_negative_numbers = true, default_value_t = -1)]
    cpu_percent: i32,
    /// The autoscaler's name; that of what it scales unless told.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Makes autoscalers.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let max = flags.max.filter(|max| *max > 0);
    let max = max.context("--max=MAXPODS is required and must be at least 1")?;
    if flags.min.is_some_and(|min| min > max) {
        bail!("--max=MAXPODS must be larger or equal to --min=MINPODS");
    }
    let connection = Connection::open(cluster).await?;
    let autoscalers = Resource {
        group: "autoscaling".into(),
        version: "v2".into(),
        plural: "horizontalpodautoscalers".into(),
        kind: "HorizontalPodAutoscaler".into(),
        namespaced: true,
        ..Resource::default()
    };
    for (resource, object) in flags.objects.choose(&connection, false).await? {
        if !matches!(
            resource.kind.as_str(),
            "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController"
        ) {
            bail!("cannot autoscale a {}: it has no scale", resource.kind);
        }
        let mut autoscaler = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {
                "name": flags.name.as_deref().unwrap_or_else(|| name_of(&object)),
                "namespace": object["metadata"]["namespace"],
            },
            "spec": {
                "scaleTargetRef": {"apiVersion": resource.api_version(), "kind": resource.kind, "name": name_of(&object)},
                "maxReplicas": max,
            },
        });
        if let Some(min) = flags.min {
            autoscaler["spec"]["minReplicas"] = min.into();
        }
        if flags.cpu_percent >= 0 {
            let target = json!({"type": "Utilization", "averageUtilization": flags.cpu_percent});
            autoscaler["spec"]["metrics"] =
                json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
        }
        create(&connection, &flags.change, "kubectl-autoscale", (&autoscalers, &autoscaler), "autoscaled")
            .await?;
    }
    Ok(())
}
