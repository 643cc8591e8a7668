//! What the server is and has: `api-resources`, `api-versions`, `version`.

use crate::connection::{ClusterFlags, Connection};
use crate::output::table;
use crate::resources::{Catalogue, Resource};
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
    /// Only those that all of this can be done with, with commas between.
    #[arg(long, value_delimiter = ',')]
    verbs: Vec<String>,
    /// Only those of these groups of kinds, such as all.
    #[arg(long, value_delimiter = ',')]
    categories: Vec<String>,
    /// name or kind.
    #[arg(long)]
    sort_by: Option<String>,
    /// What the server said lately is enough.
    #[arg(long)]
    cached: bool,
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
    if !matches!(flags.output.as_str(), "" | "wide" | "name") {
        bail!("--output {} is not available", flags.output);
    }
    let connection = Connection::open(cluster).await?;
    let catalogue = if flags.cached {
        Catalogue::for_words(&connection, &[]).await?
    } else {
        Catalogue::load(&connection).await?
    };
    let is_wide = flags.output == "wide";
    let mut header = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"].map(str::to_owned).to_vec();
    if is_wide {
        header.extend(["VERBS".to_owned(), "CATEGORIES".to_owned()]);
    }
    let mut rows = if flags.no_headers { Vec::new() } else { vec![header] };
    let mut resources: Vec<&Resource> = catalogue.preferred();
    match flags.sort_by.as_deref() {
        None => resources.sort_by_key(|resource| {
            (!resource.group.is_empty(), resource.group.clone(), resource.plural.clone())
        }),
        Some("name") => resources.sort_by_key(|resource| resource.plural.clone()),
        Some("kind") => resources.sort_by_key(|resource| resource.kind.clone()),
        Some(_) => bail!("--sort-by accepts only name or kind"),
    }
    for resource in resources {
        let lacks = |wanted: &[String], own: &[String]| wanted.iter().any(|one| !own.contains(one));
        if lacks(&flags.verbs, &resource.verbs) || lacks(&flags.categories, &resource.categories) {
            continue;
        }
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
        if is_wide {
            row.extend([resource.verbs.join(","), resource.categories.join(",")]);
        }
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
        Some("yaml") => print!("{}", crate::yaml::emit(&versions)),
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
