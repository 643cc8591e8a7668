//! What the server is and has: `api-resources`, `api-versions`, `cluster-info`, `version`.

use crate::connection::{ClusterFlags, Connection};
use crate::output::table;
use crate::resources::Catalogue;
use anyhow::{Result, bail};
use serde_json::json;
use std::collections::BTreeSet;

/// What `api-resources` is told.
#[derive(clap::Args)]
pub struct ResourcesFlags {
    /// Only those in namespaces, or (false) only those that are not.
    #[arg(long)]
    namespaced: Option<bool>,
    /// Only those of a group.
    #[arg(long)]
    api_group: Option<String>,
    /// name or wide.
    #[arg(long, short, default_value = "")]
    output: String,
    /// Without the line of names of columns.
    #[arg(long)]
    no_headers: bool,
}

/// What `version` is told.
#[derive(clap::Args)]
pub struct VersionFlags {
    /// Do not ask the server.
    #[arg(long)]
    client: bool,
    /// yaml or json.
    #[arg(long, short)]
    output: Option<String>,
}

/// Shows what kinds of things there are.
pub async fn resources(cluster: &ClusterFlags, flags: ResourcesFlags) -> Result<()> {
    let catalogue = Catalogue::load(&Connection::open(cluster).await?).await?;
    let is_wide = flags.output == "wide";
    let mut header = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"].map(str::to_owned).to_vec();
    header.extend(is_wide.then(|| "VERBS".to_owned()));
    let mut rows = if flags.no_headers { Vec::new() } else { vec![header] };
    for resource in catalogue.all() {
        let other_scope = flags.namespaced.is_some_and(|namespaced| namespaced != resource.namespaced);
        if other_scope || flags.api_group.as_ref().is_some_and(|group| *group != resource.group) {
            continue;
        }
        if flags.output == "name" {
            println!("{}", resource.qualified());
            continue;
        }
        let mut row = vec![
            resource.plural.clone(),
            resource.short_names.join(","),
            resource.api_version(),
            resource.namespaced.to_string(),
            resource.kind.clone(),
        ];
        row.extend(is_wide.then(|| resource.verbs.join(",")));
        rows.push(row);
    }
    if flags.output != "name" {
        print!("{}", table(&rows));
    }
    Ok(())
}

/// Shows which versions there are.
pub async fn versions(cluster: &ClusterFlags) -> Result<()> {
    let catalogue = Catalogue::load(&Connection::open(cluster).await?).await?;
    let versions: BTreeSet<String> = catalogue.all().iter().map(|resource| resource.api_version()).collect();
    versions.iter().for_each(|version| println!("{version}"));
    Ok(())
}

/// Shows where the cluster is.
pub async fn info(cluster: &ClusterFlags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    connection.get("/version").await?;
    println!("Kubernetes control plane is running at {}", connection.server);
    Ok(())
}

/// Shows versions.
pub async fn version(cluster: &ClusterFlags, flags: VersionFlags) -> Result<()> {
    let own = format!("v1.35.0+minik8s-{}", env!("CARGO_PKG_VERSION"));
    let mut versions = json!({"clientVersion": {"major": "1", "minor": "35", "gitVersion": own}});
    let mut failed = None;
    if !flags.client {
        match async { Connection::open(cluster).await?.get("/version").await }.await {
            Ok(server) => versions["serverVersion"] = server,
            Err(error) => failed = Some(error),
        }
    }
    match flags.output.as_deref() {
        Some("json") => println!("{}", serde_json::to_string_pretty(&versions)?),
        Some("yaml") => print!("{}", serde_saphyr::to_string(&versions)?),
        Some(other) => bail!("--output={other}: expected yaml or json"),
        None => {
            println!("Client Version: {own}");
            if let Some(server) = versions["serverVersion"]["gitVersion"].as_str() {
                println!("Server Version: {server}");
            }
        }
    }
    failed.map_or(Ok(()), Err)
}
