//! `kubectl cluster-info`: where the cluster is, and with `dump` everything that helps to find out what ails it.

use crate::connection::{ClusterFlags, Connection};
use crate::select::name_of;
use anyhow::{Context, Result};
use http::Method;
use serde_json::Value;
use std::path::PathBuf;

/// What `cluster-info` is told.
#[derive(clap::Args)]
pub struct Flags {
    #[command(subcommand)]
    command: Option<Command>,
}

/// What more it can do.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Everything that helps to find out what ails the cluster.
    Dump {
        /// In all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
        /// In these namespaces.
        #[arg(long, value_delimiter = ',')]
        namespaces: Vec<String>,
        /// A folder for files, instead of all in a row.
        #[arg(long)]
        output_directory: Option<PathBuf>,
        /// Accepted as upstream's: objects are shown as JSON.
        #[arg(long, short, hide = true)]
        output: Option<String>,
    },
}

/// Shows.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    match flags.command {
        None => info(&connection).await,
        Some(Command::Dump { all_namespaces, namespaces, output_directory, .. }) => {
            let namespaces = if all_namespaces {
                let list = connection.get("/api/v1/namespaces").await?;
                let items = list["items"].as_array().cloned().unwrap_or_default();
                items.iter().map(|item| name_of(item).to_owned()).collect()
            } else if namespaces.is_empty() {
                vec!["kube-system".to_owned(), connection.namespace.clone()]
            } else {
                namespaces
            };
            dump(&connection, &namespaces, output_directory).await
        }
    }
}

async fn info(connection: &Connection) -> Result<()> {
    let path = "/api/v1/namespaces/kube-system/services?labelSelector=kubernetes.io%2Fcluster-service%3Dtrue";
    let services = connection.get(path).await?;
    println!("Kubernetes control plane is running at {}", connection.server);
    for service in services["items"].as_array().into_iter().flatten() {
        println!("{} is running at {}{}", shown_name(service), connection.server, proxy_path(service));
    }
    println!("\nTo further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.");
    Ok(())
}

fn shown_name(service: &Value) -> &str {
    service["metadata"]["labels"]["kubernetes.io/name"].as_str().unwrap_or_else(|| name_of(service))
}

/// The path on which the server passes requests on to a service.
fn proxy_path(service: &Value) -> String {
    let port = &service["spec"]["ports"][0];
    let scheme = if port["name"] == "https" || port["port"] == 443 { "https:" } else { "" };
    let port = port["name"].as_str().map(|name| format!(":{name}")).unwrap_or_default();
    let namespace = service["metadata"]["namespace"].as_str().unwrap_or_default();
    format!("/api/v1/namespaces/{namespace}/services/{scheme}{}{port}/proxy", name_of(service))
}

/// Where a dump goes.
struct Sink(Option<PathBuf>);

impl Sink {
    fn put(&self, name: &str, text: &str) -> Result<()> {
        let Some(folder) = &self.0 else {
            print!("{text}");
            return Ok(());
        };
        let path = folder.join(name);
        let parent = path.parent().context("a file without a folder")?;
        std::fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }
}

const DUMPED: [(&str, &str); 7] = [
    ("events", "/api/v1"),
    ("replicationcontrollers", "/api/v1"),
    ("services", "/api/v1"),
    ("daemonsets", "/apis/apps/v1"),
    ("deployments", "/apis/apps/v1"),
    ("replicasets", "/apis/apps/v1"),
    ("pods", "/api/v1"),
];

async fn dump(connection: &Connection, namespaces: &[String], folder: Option<PathBuf>) -> Result<()> {
    let is_files = folder.clone();
    let sink = Sink(folder);
    let nodes = connection.get("/api/v1/nodes").await?;
    sink.put("nodes.json", &(serde_json::to_string_pretty(&nodes)? + "\n"))?;
    for namespace in namespaces {
        let mut pods = Value::Null;
        for (plural, root) in DUMPED {
            // A server without a kind has none of it.
            let Ok(list) = connection.get(&format!("{root}/namespaces/{namespace}/{plural}")).await else {
                continue;
            };
            sink.put(&format!("{namespace}/{plural}.json"), &(serde_json::to_string_pretty(&list)? + "\n"))?;
            pods = list;
        }
        for pod in pods["items"].as_array().into_iter().flatten() {
            logs(connection, &sink, namespace, pod).await?;
        }
    }
    if let Some(folder) = is_files {
        println!("Cluster info dumped to {}", folder.display());
    }
    Ok(())
}

async fn logs(connection: &Connection, sink: &Sink, namespace: &str, pod: &Value) -> Result<()> {
    let name = name_of(pod);
    for container in crate::pods::containers(pod) {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}");
        let text = connection.text(Method::GET, &path, "application/json", None, "*/*").await;
        let text = text.unwrap_or_else(|error| format!("{error:#}\n"));
        let about = format!("logs for container {container} of pod {namespace}/{name}");
        sink.put(
            &format!("{namespace}/{name}/logs.txt"),
            &format!("==== START {about} ====\n{text}==== END {about} ====\n"),
        )?;
    }
    Ok(())
}
