//! `kubectl top`.

use crate::connection::{ClusterFlags, Connection, Refusal};
use crate::output::table;
use crate::select::encode;
use anyhow::{Result, bail};
use api::Quantity;
use serde_json::Value;

/// What can be looked at.
#[derive(clap::Subcommand)]
#[command(after_help = "Example:\n  kubectl top nodes\n  kubectl top pods -A")]
pub enum Command {
    /// What nodes use.
    #[command(alias = "nodes", alias = "no")]
    Node(Flags),
    /// What pods use.
    #[command(alias = "pods", alias = "po")]
    Pod(PodFlags),
}

/// What both are told.
#[derive(clap::Args)]
pub struct Flags {
    /// Only this one.
    name: Option<String>,
    /// Only those with these labels.
    #[arg(long, short = 'l')]
    selector: Option<String>,
    /// cpu or memory: the most first.
    #[arg(long)]
    sort_by: Option<String>,
    /// Without the line of names of columns.
    #[arg(long)]
    no_headers: bool,
    /// Nodes' shares of all they have, not of what pods may have.
    #[arg(long)]
    show_capacity: bool,
}

/// What `top pod` is told.
#[derive(clap::Args)]
#[group(skip)]
pub struct PodFlags {
    #[command(flatten)]
    flags: Flags,
    /// In all namespaces.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Each container by itself.
    #[arg(long)]
    containers: bool,
    /// Add everything up.
    #[arg(long)]
    sum: bool,
    /// Only those with these fields.
    #[arg(long)]
    field_selector: Option<String>,
}

/// Used CPU in thousandths of a core, and memory in thousandths of a byte, as quantities count.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Usage {
    cpu: f64,
    memory: f64,
}

impl Usage {
    fn of(usage: &Value) -> Usage {
        Usage { cpu: amount(&usage["cpu"]), memory: amount(&usage["memory"]) }
    }

    fn plus(self, other: Usage) -> Usage {
        Usage { cpu: self.cpu + other.cpu, memory: self.memory + other.memory }
    }
}

/// Shows.
pub async fn run(cluster: &ClusterFlags, command: Command) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    match command {
        Command::Node(flags) => nodes(&connection, &flags).await,
        Command::Pod(flags) => pods(&connection, &flags).await,
    }
}

/// Metrics of one object or of all; the way they are asked for.
async fn metrics(connection: &Connection, path: &str, flags: &Flags) -> Result<Vec<Value>> {
    let path = match (&flags.name, &flags.selector) {
        (Some(_), Some(_)) => bail!("only one of NAME or --selector can be provided"),
        (Some(name), None) => format!("{path}/{name}"),
        (None, Some(selector)) => format!("{path}?labelSelector={}", encode(selector)),
        (None, None) => path.to_owned(),
    };
    match connection.get(&path).await {
        Ok(answer) => Ok(answer["items"].as_array().cloned().unwrap_or_else(|| vec![answer])),
        Err(error) => match error.downcast_ref::<Refusal>() {
            Some(refusal) if refusal.code == 503 => bail!("Metrics API not available"),
            _ => Err(error),
        },
    }
}

fn sort<T>(rows: &mut [(T, Usage)], by: Option<&str>) -> Result<()> {
    match by {
        None => {}
        Some("cpu") => rows.sort_by(|a, b| b.1.cpu.total_cmp(&a.1.cpu)),
        Some("memory") => rows.sort_by(|a, b| b.1.memory.total_cmp(&a.1.memory)),
        Some(_) => bail!("--sort-by accepts only cpu or memory"),
    }
    Ok(())
}

async fn nodes(connection: &Connection, flags: &Flags) -> Result<()> {
    let found = metrics(connection, "/apis/metrics.k8s.io/v1beta1/nodes", flags).await?;
    let nodes = connection.get("/api/v1/nodes").await?;
    let mut used: Vec<(&Value, Usage)> = found.iter().map(|one| (one, Usage::of(&one["usage"]))).collect();
    sort(&mut used, flags.sort_by.as_deref())?;
    let mut rows = Vec::new();
    if !flags.no_headers {
        rows.push(["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"].map(str::to_owned).to_vec());
    }
    for (metric, usage) in used {
        let name = &metric["metadata"]["name"];
        let node =
            nodes["items"].as_array().into_iter().flatten().find(|node| node["metadata"]["name"] == *name);
        let field = if flags.show_capacity { "capacity" } else { "allocatable" };
        let size = node.map(|node| Usage::of(&node["status"][field])).unwrap_or_default();
        rows.push(vec![
            name.as_str().unwrap_or_default().to_owned(),
            millicores(usage.cpu),
            share(usage.cpu, size.cpu),
            mebibytes(usage.memory),
            share(usage.memory, size.memory),
        ]);
    }
    print!("{}", table(&rows));
    Ok(())
}

async fn pods(connection: &Connection, flags: &PodFlags) -> Result<()> {
    let path = if flags.all_namespaces {
        "/apis/metrics.k8s.io/v1beta1/pods".to_owned()
    } else {
        format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods", connection.namespace)
    };
    let mut found = metrics(connection, &path, &flags.flags).await?;
    found.sort_by_key(|one| {
        let text = |field: &str| one["metadata"][field].as_str().unwrap_or_default().to_owned();
        (text("namespace"), text("name"))
    });
    let mut used = rows_of(&found, flags.all_namespaces, flags.containers);
    if used.is_empty() {
        let place = format!(" in {} namespace.", connection.namespace);
        eprintln!("No resources found{}", if flags.all_namespaces { "" } else { &place });
        return Ok(());
    }
    sort(&mut used, flags.flags.sort_by.as_deref())?;
    let mut header: Vec<&str> = Vec::new();
    header.extend(flags.all_namespaces.then_some("NAMESPACE"));
    header.extend(if flags.containers { &["POD", "NAME"][..] } else { &["NAME"][..] });
    header.extend(["CPU(cores)", "MEMORY(bytes)"]);
    let names = header.len() - 2;
    let total = used.iter().fold(Usage::default(), |sum, (_, usage)| sum.plus(*usage));
    let mut rows: Vec<Vec<String>> = Vec::new();
    if !flags.flags.no_headers {
        rows.push(header.into_iter().map(str::to_owned).collect());
    }
    let cells = |usage: Usage| [millicores(usage.cpu), mebibytes(usage.memory)];
    rows.extend(used.into_iter().map(|(names, usage)| names.into_iter().chain(cells(usage)).collect()));
    if flags.sum {
        let blank = |text: &str| {
            vec![String::new(); names - 1].into_iter().chain([text.to_owned()]).collect::<Vec<_>>()
        };
        rows.push(blank("").into_iter().chain(["________".to_owned(), "________".to_owned()]).collect());
        rows.push(blank("").into_iter().chain(cells(total)).collect());
    }
    print!("{}", table(&rows));
    Ok(())
}

/// What pods, or their containers, are called and use.
fn rows_of(found: &[Value], all_namespaces: bool, containers: bool) -> Vec<(Vec<String>, Usage)> {
    let mut rows = Vec::new();
    for metric in found {
        let text = |field: &str| metric["metadata"][field].as_str().unwrap_or_default().to_owned();
        let mut names = Vec::new();
        names.extend(all_namespaces.then(|| text("namespace")));
        names.push(text("name"));
        let own = metric["containers"].as_array().into_iter().flatten();
        let own: Vec<(String, Usage)> = own
            .map(|one| (one["name"].as_str().unwrap_or_default().to_owned(), Usage::of(&one["usage"])))
            .collect();
        if containers {
            rows.extend(own.into_iter().map(|(name, usage)| {
                let names = names.iter().cloned().chain([name]).collect();
                (names, usage)
            }));
        } else {
            rows.push((names, own.iter().fold(Usage::default(), |sum, (_, usage)| sum.plus(*usage))));
        }
    }
    rows
}

fn amount(quantity: &Value) -> f64 {
    quantity
        .as_str()
        .and_then(|text| text.parse::<Quantity>().ok())
        .map_or(0.0, |quantity| quantity.milli_value() as f64)
}

fn share(used: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.0}%", (used / whole * 100.0).floor()) } else { "<unknown>".into() }
}

fn millicores(cpu: f64) -> String {
    format!("{cpu:.0}m")
}

fn mebibytes(memory: f64) -> String {
    format!("{:.0}Mi", (memory / 1000.0 / f64::from(1 << 20)).floor())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn containers_are_added_up_or_shown_one_by_one() {
        let pods = [json!({"metadata": {"name": "web", "namespace": "a"}, "containers": [
            {"name": "x", "usage": {"cpu": "100m", "memory": "10Mi"}}, {"name": "y", "usage": {"cpu": "1500u", "memory": "1Mi"}}]})];
        let shown = |all, containers| {
            let rows = rows_of(&pods, all, containers).into_iter();
            rows.map(|(names, usage)| {
                format!("{} {} {}", names.join("/"), millicores(usage.cpu), mebibytes(usage.memory))
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(shown(false, false), ["web 102m 11Mi"]);
        assert_eq!(shown(true, true), ["a/web/x 100m 10Mi", "a/web/y 2m 1Mi"]);
    }
}
