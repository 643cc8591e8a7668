//! `kubectl autoscale`.

use crate::change::{ChangeFlags, create};
use crate::connection::{ClusterFlags, Connection};
use crate::resources::Resource;
use crate::select::{ObjectFlags, name_of};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// What `autoscale` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl autoscale deployment web --min=2 --max=10 --cpu=80%")]
pub struct Flags {
    #[command(flatten)]
    objects: ObjectFlags,
    /// The fewest there may be.
    #[arg(long)]
    min: Option<u32>,
    /// The most there may be.
    #[arg(long)]
    max: Option<u32>,
    /// How much CPU pods should use: in percent of what they ask for (80%), or of their own each (500m).
    #[arg(long)]
    cpu: Option<String>,
    /// How much memory pods should use: in percent of what they ask for (80%), or each (512Mi).
    #[arg(long)]
    memory: Option<String>,
    /// The older form of --cpu, in percent.
    #[arg(long, allow_negative_numbers = true, default_value_t = -1, hide = true, conflicts_with = "cpu")]
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
    let metrics = metrics(&flags)?;
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
        if !metrics.is_empty() {
            autoscaler["spec"]["metrics"] = json!(metrics);
        }
        create(&connection, &flags.change, "kubectl-autoscale", (&autoscalers, &autoscaler), "autoscaled")
            .await?;
    }
    Ok(())
}

/// What the pods' use is measured by.
fn metrics(flags: &Flags) -> Result<Vec<Value>> {
    let percent = (flags.cpu_percent >= 0).then(|| format!("{}%", flags.cpu_percent));
    if percent.is_some() {
        eprintln!(
            "Flag --cpu-percent has been deprecated, Use --cpu with percentage or resource quantity format (e.g., '70%' for utilization or '500m' for milliCPU)."
        );
    }
    let wanted = [("cpu", flags.cpu.as_ref().or(percent.as_ref())), ("memory", flags.memory.as_ref())];
    let metric = |(name, target): (&str, &String)| {
        let target =
            target_of(target).with_context(|| format!("--{name} {target:?}: expected 80% or a quantity"))?;
        Ok(json!({"type": "Resource", "resource": {"name": name, "target": target}}))
    };
    wanted.into_iter().filter_map(|(name, target)| Some((name, target?))).map(metric).collect()
}

fn target_of(text: &str) -> Option<Value> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: u32 = percent.parse().ok().filter(|percent| *percent > 0)?;
            Some(json!({"type": "Utilization", "averageUtilization": percent}))
        }
        None => {
            text.parse::<api::Quantity>().ok()?;
            Some(json!({"type": "AverageValue", "averageValue": text}))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_share_or_an_amount() {
        assert_eq!(target_of("80%"), Some(json!({"type": "Utilization", "averageUtilization": 80})));
        assert_eq!(target_of("500m"), Some(json!({"type": "AverageValue", "averageValue": "500m"})));
        for wrong in ["", "%", "0%", "-1%", "much"] {
            assert_eq!(target_of(wrong), None, "{wrong}");
        }
    }
}
