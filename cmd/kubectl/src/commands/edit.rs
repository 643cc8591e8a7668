//! `kubectl edit`.

use crate::change::{ChangeFlags, DryRun, difference, merge};
use crate::connection::{ClusterFlags, Connection};
use crate::editor;
use crate::resources::Resource;
use crate::select::{ObjectFlags, name_of, path_of};
use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What `edit` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  EDITOR=nano kubectl edit deployment web")]
pub struct Flags {
    #[command(flatten)]
    objects: ObjectFlags,
    /// A part of the object with a path of its own, such as status or scale.
    #[arg(long)]
    subresource: Option<String>,
    #[command(flatten)]
    change: ChangeFlags,
}

const HEADER: &str = "# Please edit the object below. Lines beginning with a '#' will be ignored,\n\
    # and an empty file will abort the edit. If an error occurs while saving this file will be\n\
    # reopened with the relevant failures.\n#\n";

/// Edits. A text that the server does not take is shown again with the reason, and kept in a file when given up.
pub async fn run(cluster: &ClusterFlags, mut flags: Flags) -> Result<()> {
    // -o says in which language to edit, not what to print.
    let as_json = flags.change.output.take().as_deref() == Some("json");
    let connection = Connection::open(cluster).await?;
    for (resource, object) in flags.objects.choose(&connection, false).await? {
        edit(&connection, &flags, &resource, object, as_json).await?;
    }
    Ok(())
}

async fn edit(
    connection: &Connection,
    flags: &Flags,
    resource: &Resource,
    mut object: Value,
    as_json: bool,
) -> Result<()> {
    let subresource = flags.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
    let path = format!("{}{subresource}", path_of(resource, &object));
    if !subresource.is_empty() {
        object = connection.get(&path).await?;
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    let original = if as_json {
        serde_json::to_string_pretty(&object)? + "\n"
    } else {
        format!("{HEADER}{}", serde_saphyr::to_string(&object)?)
    };
    let mut text = original.clone();
    loop {
        let after = editor::edit(&text)?;
        if without_comments(&after) == without_comments(&text) && text != original {
            let kept = keep(&after)?;
            eprintln!("A copy of your changes has been stored to \"{kept}\"");
            bail!("Edit cancelled, no valid changes were saved.");
        }
        if without_comments(&after) == without_comments(&original) {
            println!("Edit cancelled, no changes made.");
            return Ok(());
        }
        if without_comments(&after).is_empty() {
            println!("Edit cancelled, saved file was empty.");
            return Ok(());
        }
        match send(connection, flags, &path, &object, &after).await {
            Ok(None) => {
                println!("Edit cancelled, no changes made.");
                return Ok(());
            }
            Ok(Some(changed)) => return flags.change.show(resource, &changed, "edited"),
            Err(error) => {
                let named = format!("{} \"{}\"", resource.qualified(), name_of(&object));
                eprintln!("error: {named} was not valid: {error:#}");
                let reasons: String = format!("{named} was not valid:\n* {error:#}")
                    .lines()
                    .map(|line| format!("# {line}\n"))
                    .collect();
                text = format!("{HEADER}{reasons}#\n{}", without_comments(&after));
            }
        }
    }
}

/// Sends what became different; `None` if nothing did.
async fn send(
    connection: &Connection,
    flags: &Flags,
    path: &str,
    before: &Value,
    after: &str,
) -> Result<Option<Value>> {
    let value: Value = serde_saphyr::from_str(after).context("that is not YAML")?;
    for field in ["/metadata/name", "/kind", "/apiVersion"] {
        if before.pointer(field) != value.pointer(field) {
            bail!("At least one of apiVersion, kind and name was changed");
        }
    }
    let Some(patch) = difference(before, &value) else { return Ok(None) };
    if flags.change.dry_run == DryRun::Client {
        return Ok(Some(value));
    }
    let path = format!("{path}{}&fieldValidation=Strict", flags.change.query("kubectl-edit"));
    merge(connection, &path, &patch).await.map(Some)
}

fn keep(text: &str) -> Result<String> {
    let (_, path) = tempfile::Builder::new().prefix("kubectl-edit-").suffix(".yaml").tempfile()?.keep()?;
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect::<String>().trim().to_owned()
}
