//! `kubectl patch`.

use crate::change::{ChangeFlags, DryRun};
use crate::connection::{ClusterFlags, Connection};
use crate::resources::Resource;
use crate::select::{ObjectFlags, path_of};
use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::Value;

/// What `patch` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl patch deployment web -p '{\"spec\":{\"replicas\":3}}'")]
pub struct Flags {
    #[command(flatten)]
    objects: ObjectFlags,
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
    /// Change what files say, ask no server.
    #[arg(long)]
    local: bool,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Patches.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let content_type = match flags.kind.as_str() {
        "strategic" => "application/strategic-merge-patch+json",
        "merge" => "application/merge-patch+json",
        "json" => "application/json-patch+json",
        other => bail!("--type must be one of [json merge strategic], not \"{other}\""),
    };
    let text = match (&flags.patch, &flags.patch_file) {
        (Some(patch), None) => patch.clone(),
        (None, Some(file)) => std::fs::read_to_string(file).with_context(|| format!("read {file}"))?,
        _ => bail!("must specify --patch or --patch-file containing the contents of the patch"),
    };
    let patch = understood(&text)?;
    let connection = Connection::open(cluster).await?;
    for (resource, object) in flags.objects.choose(&connection, flags.local).await? {
        if flags.local || flags.change.dry_run == DryRun::Client {
            let after = locally(&flags.kind, object.clone(), &patch)?;
            flags.change.show(&resource, &after, done(after != object))?;
            continue;
        }
        let subresource = flags.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        let query = flags.change.query("kubectl-patch");
        let path = format!("{}{subresource}{query}", path_of(&resource, &object));
        let body = Some(patch.to_string());
        let after = connection.send_as(Method::PATCH, &path, content_type, body, "application/json").await?;
        let is_different = after["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"];
        flags.change.show(&answered(&resource, &after), &after, done(is_different))?;
    }
    Ok(())
}

fn done(is_different: bool) -> &'static str {
    if is_different { "patched" } else { "patched (no change)" }
}

/// JSON, or else YAML. What begins as JSON is judged as JSON.
fn understood(text: &str) -> Result<Value> {
    let text = text.trim();
    if !text.starts_with(['{', '[']) {
        return serde_saphyr::from_str(text).context("unable to parse the patch as YAML");
    }
    serde_json::from_str(text).or_else(|error| {
        // Flow style is YAML, too.
        serde_saphyr::from_str(text).map_err(|_| {
            let why =
                if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
            anyhow::anyhow!("error decoding patch: {why}")
        })
    })
}

/// The kind of what the server sent back: a part of an object may be of a kind of its own, such as Scale.
fn answered(resource: &Resource, object: &Value) -> Resource {
    let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let (Some(version), Some(kind)) = (version, kind) else { return resource.clone() };
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    Resource { group: group.into(), version: version.into(), kind: kind.into(), ..resource.clone() }
}

/// The change made here.
fn locally(kind: &str, mut object: Value, patch: &Value) -> Result<Value> {
    match kind {
        "json" => bail!("--type=json needs a server: leave out --local and --dry-run=client"),
        "strategic" if has_list(patch) => {
            bail!(
                "lists are merged by the server: leave out --local and --dry-run=client, or use --type=merge"
            )
        }
        _ => merge(&mut object, patch),
    }
    Ok(object)
}

fn has_list(patch: &Value) -> bool {
    match patch {
        Value::Array(_) => true,
        Value::Object(fields) => fields.values().any(has_list),
        _ => false,
    }
}

/// RFC 7386.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (name, change) in changes {
        match change {
            Value::Null => drop(fields.remove(name)),
            change => merge(fields.entry(name.clone()).or_insert(Value::Null), change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_is_json_or_yaml() {
        assert_eq!(understood("{\"a\": 1}").expect("JSON"), json!({"a": 1}));
        assert_eq!(understood("a: 1").expect("YAML"), json!({"a": 1}));
        let error = understood("{").expect_err("neither");
        assert_eq!(error.to_string(), "error decoding patch: unexpected end of JSON input");
    }

    #[test]
    fn null_removes() {
        let mut object = json!({"a": {"b": 1, "c": 2}});
        merge(&mut object, &json!({"a": {"b": null, "d": {"e": null}}}));
        assert_eq!(object, json!({"a": {"c": 2, "d": {}}}));
    }
}
