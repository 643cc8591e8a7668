//! `kubectl drain`: empties nodes, by eviction, so that disruption budgets are kept.
//!
//! ```text
//! node ──cordon──> its pods ──choose (pure)──> evict each, again while a budget says no ──> wait until all are gone
//! ```

mod choose;

use super::cordon;
use crate::change::DryRun;
use crate::connection::{ClusterFlags, Connection, Refusal, is_not_found};
use crate::resources::Resource;
use crate::select::{encode, name_of, path_of};
use anyhow::{Result, bail};
use choose::{Choice, Rules};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// How long to wait before an eviction that a budget forbade is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// What `drain` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl drain n1 --ignore-daemonsets --delete-emptydir-data")]
pub struct Flags {
    /// The nodes.
    nodes: Vec<String>,
    /// Only nodes with these labels.
    #[arg(long, short = 'l')]
    selector: Option<String>,
    /// Leave pods of DaemonSets where they are.
    #[arg(long)]
    ignore_daemonsets: bool,
    /// Also evict pods whose emptyDir volumes then are lost.
    #[arg(long)]
    delete_emptydir_data: bool,
    /// Also evict pods that nobody makes again.
    #[arg(long)]
    force: bool,
    /// How long pods have to end, in seconds; -1 is their own choice.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    grace_period: i64,
    /// How long to wait in all, such as 5m; 0s is as long as it takes.
    #[arg(long, default_value = "0s", value_parser = crate::duration::parse)]
    timeout: Duration,
    /// Delete pods instead of evicting them: disruption budgets are not looked at.
    #[arg(long)]
    disable_eviction: bool,
    /// Only pods with these labels.
    #[arg(long, default_value = "")]
    pod_selector: String,
    /// Do not wait for pods that have been ending for so many seconds; 0 waits for all.
    #[arg(long, default_value_t = 0)]
    skip_wait_for_delete_timeout: u64,
    /// Accepted as upstream's.
    #[arg(long, hide = true, default_value_t = 500)]
    chunk_size: u32,
    /// none, client or server: only say what would be done.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "client", default_value = "none")]
    dry_run: DryRun,
}

/// Drains. A node that cannot be drained does not keep the others from it.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let nodes = cordon::nodes(&connection, &flags.nodes, flags.selector.as_deref()).await?;
    for node in &nodes {
        cordon::mark(&connection, node, true, flags.dry_run).await?;
    }
    let (mut pending, mut failures) = (Vec::new(), Vec::new());
    for node in &nodes {
        let name = name_of(node);
        match drain(&connection, &flags, name).await {
            Ok(()) => println!("node/{name} drained{}", flags.dry_run.suffix()),
            Err(error) => {
                eprintln!(
                    "error: unable to drain node \"{name}\" due to error: {error:#}, continuing command..."
                );
                pending.push(name);
                failures.push(format!("{error:#}"));
            }
        }
    }
    if pending.is_empty() {
        return Ok(());
    }
    eprintln!("There are pending nodes to be drained:");
    pending.iter().for_each(|name| eprintln!(" {name}"));
    bail!("{}", failures.join("\n"))
}

async fn drain(connection: &Connection, flags: &Flags, node: &str) -> Result<()> {
    let fields = encode(&format!("spec.nodeName={node}"));
    let labels = encode(&flags.pod_selector);
    let list = connection.get(&format!("/api/v1/pods?fieldSelector={fields}&labelSelector={labels}")).await?;
    let rules = Rules {
        ignore_daemonsets: flags.ignore_daemonsets,
        delete_emptydir_data: flags.delete_emptydir_data,
        force: flags.force,
        skip_ending_for: flags.skip_wait_for_delete_timeout,
        now: jiff::Timestamp::now(),
    };
    let mut pods = Vec::new();
    for pod in list["items"].as_array().into_iter().flatten() {
        let orphaned = choose::daemon_set_of(pod).is_some() && !daemon_set_exists(connection, pod).await?;
        pods.push((pod.clone(), orphaned));
    }
    let Choice { evict, warnings } = choose::choose(&pods, &rules)?;
    warnings.iter().for_each(|warning| eprintln!("Warning: {warning}"));
    let all = futures::future::try_join_all(evict.iter().map(|pod| remove(connection, flags, pod)));
    if flags.timeout.is_zero() {
        return all.await.map(drop);
    }
    match tokio::time::timeout(flags.timeout, all).await {
        Ok(result) => result.map(drop),
        Err(_) => bail!("drain did not complete within {}s: global timeout reached", flags.timeout.as_secs()),
    }
}

/// Whether the DaemonSet of a pod is still there: a pod that it left behind is nobody's.
async fn daemon_set_exists(connection: &Connection, pod: &Value) -> Result<bool> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let Some(name) = choose::daemon_set_of(pod) else { return Ok(false) };
    match connection.get(&format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}")).await {
        Ok(_) => Ok(true),
        Err(error) if is_not_found(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Evicts (or deletes) a pod, and waits until it is gone.
async fn remove(connection: &Connection, flags: &Flags, pod: &Value) -> Result<()> {
    let (namespace, name) = (pod["metadata"]["namespace"].as_str().unwrap_or_default(), name_of(pod));
    let pods =
        Resource { version: "v1".into(), plural: "pods".into(), namespaced: true, ..Resource::default() };
    let path = path_of(&pods, pod);
    let doing = if flags.disable_eviction { "deleting" } else { "evicting" };
    println!("{doing} pod {namespace}/{name}{}", flags.dry_run.suffix());
    if flags.dry_run == DryRun::Client {
        return Ok(());
    }
    while let Err(error) = ask(connection, flags, pod, &path).await {
        match error.downcast_ref::<Refusal>().map(|refusal| (refusal.code, refusal.message.clone())) {
            Some((404, _)) => return Ok(()),
            Some((429, message)) => {
                eprintln!(
                    "error when evicting pods/\"{name}\" -n \"{namespace}\" (will retry after 5s): {message}"
                );
            }
            _ => bail!("error when {doing} pods/\"{name}\" -n \"{namespace}\": {error:#}"),
        }
        tokio::time::sleep(RETRY).await;
    }
    if flags.dry_run == DryRun::Server {
        return Ok(());
    }
    super::delete::wait_until_gone(connection, &path, &pod["metadata"]["uid"], None).await?;
    println!("pod/{name} {}", if flags.disable_eviction { "deleted" } else { "evicted" });
    Ok(())
}

async fn ask(connection: &Connection, flags: &Flags, pod: &Value, path: &str) -> Result<()> {
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    if flags.grace_period >= 0 {
        options["gracePeriodSeconds"] = flags.grace_period.into();
    }
    if flags.dry_run == DryRun::Server {
        options["dryRun"] = json!(["All"]);
    }
    if flags.disable_eviction {
        return connection.send(Method::DELETE, path, Some(&options)).await.map(drop);
    }
    if let Some(fields) = options.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]},
        "deleteOptions": options,
    });
    connection.send(Method::POST, &format!("{path}/eviction"), Some(&eviction)).await.map(drop)
}
