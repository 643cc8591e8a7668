//! `kubectl logs`.

use crate::connection::{ClusterFlags, Connection};
use crate::select::{self, SelectFlags, encode, name_of};
use anyhow::{Context, Result};
use futures::AsyncReadExt;
use std::io::Write;

/// What `logs` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl logs -f web\n  kubectl logs deployment/web -c main --tail 20")]
pub struct Flags {
    /// The pod, or kind/name of what has pods.
    pod: String,
    /// The container.
    container_name: Option<String>,
    /// The container.
    #[arg(long, short)]
    container: Option<String>,
    /// Go on as more is written.
    #[arg(long, short)]
    follow: bool,
    /// Of the container before this one.
    #[arg(long, short)]
    previous: bool,
    /// Only the last lines; -1 is all.
    #[arg(long, default_value_t = -1)]
    tail: i64,
    /// Only what is newer, such as 10m.
    #[arg(long)]
    since: Option<jiff::SignedDuration>,
    /// With the time of each line.
    #[arg(long)]
    timestamps: bool,
}

/// Shows.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let pod = pod_of(&connection, &flags.pod).await?;
    let mut query = vec![format!("follow={}", flags.follow), format!("previous={}", flags.previous)];
    query.push(format!("timestamps={}", flags.timestamps));
    query.extend(flags.container.or(flags.container_name).map(|name| format!("container={}", encode(&name))));
    if flags.tail >= 0 {
        query.push(format!("tailLines={}", flags.tail));
    }
    query.extend(flags.since.map(|since| format!("sinceSeconds={}", since.as_secs())));
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/log?{}", connection.namespace, query.join("&"));
    let mut stream = connection.stream(&path, "*/*").await?;
    let mut buffer = vec![0; 64 << 10];
    let mut out = std::io::stdout().lock();
    loop {
        let read = stream.read(&mut buffer).await.context("the log broke off")?;
        if read == 0 {
            return Ok(());
        }
        out.write_all(&buffer[..read])?;
        out.flush()?;
    }
}

/// The pod that a word means: its name, or the first pod of something that selects pods.
pub async fn pod_of(connection: &Connection, word: &str) -> Result<String> {
    let Some((kind, name)) = word.split_once('/') else { return Ok(api::dialect::map_name(word)) };
    if matches!(kind, "pod" | "pods" | "po") {
        return Ok(api::dialect::map_name(name));
    }
    let select = SelectFlags { words: vec![word.to_owned()], ..SelectFlags::default() };
    let found = select::objects(connection, &select).await?;
    let (_, object) = found.first().with_context(|| format!("{word} is not there"))?;
    let selector = &object["spec"]["selector"];
    let labels = selector.get("matchLabels").unwrap_or(selector).as_object().cloned().unwrap_or_default();
    let labels: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let path = format!(
        "/api/v1/namespaces/{}/pods?labelSelector={}",
        connection.namespace,
        encode(&labels.join(","))
    );
    let pods = connection.get(&path).await?;
    let first = pods["items"].as_array().and_then(|pods| pods.first());
    Ok(name_of(first.with_context(|| format!("{word} has no pods"))?).to_owned())
}
