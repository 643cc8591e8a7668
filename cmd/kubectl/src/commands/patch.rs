//! `kubectl patch`.

use crate::connection::{ClusterFlags, Connection};
use crate::select::{self, SelectFlags, name_of, path_of};
use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::Value;

/// What `patch` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl patch deployment web -p '{\"spec\":{\"replicas\":3}}'")]
pub struct Flags {
    #[command(flatten)]
    select: SelectFlags,
    /// The change, as JSON or YAML.
    #[arg(long, short)]
    patch: Option<String>,
    /// A file that holds the change.
    #[arg(long)]
    patch_file: Option<String>,
    /// strategic, merge or json.
    #[arg(long = "type", default_value = "strategic")]
    kind: String,
    /// A part of the object with a path of its own, such as status or scale.
    #[arg(long)]
    subresource: Option<String>,
}

/// Patches.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let content_type = match flags.kind.as_str() {
        "strategic" => "application/strategic-merge-patch+json",
        "merge" => "application/merge-patch+json",
        "json" => "application/json-patch+json",
        other => bail!("--type must be one of [json merge strategic], not {other:?}"),
    };
    let text = match (&flags.patch, &flags.patch_file) {
        (Some(patch), None) => patch.clone(),
        (None, Some(file)) => std::fs::read_to_string(file).with_context(|| format!("read {file}"))?,
        _ => bail!("must specify --patch or --patch-file containing the contents of the patch"),
    };
    let patch: Value = serde_saphyr::from_str(&text).context("unable to parse the patch")?;
    let connection = Connection::open(cluster).await?;
    for (resource, object) in select::objects(&connection, &flags.select).await? {
        let subresource = flags.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        let path = format!("{}{subresource}?fieldManager=kubectl-patch", path_of(&resource, &object));
        let body = Some(patch.to_string());
        let after = connection.send_as(Method::PATCH, &path, content_type, body, "application/json").await?;
        let same = after["metadata"]["resourceVersion"] == object["metadata"]["resourceVersion"];
        let what = if same { "patched (no change)" } else { "patched" };
        println!("{} {what}", resource.named(name_of(&object)));
    }
    Ok(())
}
