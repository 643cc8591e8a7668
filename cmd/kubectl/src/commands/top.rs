//! `kubectl top`.

use crate::connection::{ClusterFlags, Connection};
use crate::output::table;
use anyhow::{Result, bail};
use api::Quantity;
use serde_json::Value;

/// What `top` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl top nodes\n  kubectl top pods -A")]
pub struct Flags {
    /// nodes or pods.
    what: String,
    /// In all namespaces.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
}

/// Shows.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    match flags.what.as_str() {
        "node" | "nodes" | "no" => nodes(&connection).await,
        "pod" | "pods" | "po" => pods(&connection, flags.all_namespaces).await,
        other => bail!("top shows nodes or pods, not {other}"),
    }
}

async fn nodes(connection: &Connection) -> Result<()> {
    let usage = connection.get("/apis/metrics.k8s.io/v1beta1/nodes").await?;
    let nodes = connection.get("/api/v1/nodes").await?;
    let mut rows =
        vec![["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"].map(str::to_owned).to_vec()];
    for metric in usage["items"].as_array().into_iter().flatten() {
        let name = &metric["metadata"]["name"];
        let node =
            nodes["items"].as_array().into_iter().flatten().find(|node| node["metadata"]["name"] == *name);
        let size = node.map(|node| &node["status"]["allocatable"]).unwrap_or(&Value::Null);
        let share = |used: f64, whole: f64| {
            if whole > 0.0 { format!("{:.0}%", used / whole * 100.0) } else { "<unknown>".into() }
        };
        let (cpu, memory) = (amount(&metric["usage"]["cpu"]), amount(&metric["usage"]["memory"]));
        rows.push(vec![
            name.as_str().unwrap_or_default().to_owned(),
            millicores(cpu),
            share(cpu, amount(&size["cpu"])),
            mebibytes(memory),
            share(memory, amount(&size["memory"])),
        ]);
    }
    print!("{}", table(&rows));
    Ok(())
}

async fn pods(connection: &Connection, all_namespaces: bool) -> Result<()> {
    let path = if all_namespaces {
        "/apis/metrics.k8s.io/v1beta1/pods".to_owned()
    } else {
        format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods", connection.namespace)
    };
    let usage = connection.get(&path).await?;
    let mut header = ["NAME", "CPU(cores)", "MEMORY(bytes)"].map(str::to_owned).to_vec();
    if all_namespaces {
        header.insert(0, "NAMESPACE".to_owned());
    }
    let mut rows = vec![header];
    for metric in usage["items"].as_array().into_iter().flatten() {
        let sum = |what: &str| {
            let containers = metric["containers"].as_array().into_iter().flatten();
            containers.map(|container| amount(&container["usage"][what])).sum::<f64>()
        };
        let text = |field: &str| metric["metadata"][field].as_str().unwrap_or_default().to_owned();
        let mut row = vec![text("name"), millicores(sum("cpu")), mebibytes(sum("memory"))];
        if all_namespaces {
            row.insert(0, text("namespace"));
        }
        rows.push(row);
    }
    if rows.len() == 1 {
        eprintln!("No resources found in {} namespace.", connection.namespace);
        return Ok(());
    }
    print!("{}", table(&rows));
    Ok(())
}

fn amount(quantity: &Value) -> f64 {
    quantity
        .as_str()
        .and_then(|text| text.parse::<Quantity>().ok())
        .map_or(0.0, |quantity| quantity.milli_value() as f64 / 1000.0)
}

fn millicores(cores: f64) -> String {
    format!("{:.0}m", (cores * 1000.0).ceil())
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.0}Mi", bytes / f64::from(1 << 20))
}
