//! `kubectl apply view-last-applied | set-last-applied | edit-last-applied`: the note of client-side apply.

use super::takeover::LAST_APPLIED;
use crate::change::{ChangeFlags, change};
use crate::connection::{ClusterFlags, Connection};
use crate::manifests::FileFlags;
use crate::resources::Resource;
use crate::select::{self, SelectFlags, name_of};
use crate::yaml;
use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What is done with the note.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show what client-side apply has applied last.
    #[command(name = "view-last-applied")]
    View {
        #[command(flatten)]
        select: SelectFlags,
        /// yaml or json.
        #[arg(long, short, default_value = "yaml")]
        output: String,
    },
    /// Note what files say as what was applied last.
    #[command(name = "set-last-applied")]
    Set {
        #[command(flatten)]
        files: FileFlags,
        /// Also for objects that have no note yet.
        #[arg(long)]
        create_annotation: bool,
        #[command(flatten)]
        change: ChangeFlags,
    },
    /// Change the note in an editor.
    #[command(name = "edit-last-applied")]
    Edit {
        #[command(flatten)]
        select: SelectFlags,
        #[command(flatten)]
        change: ChangeFlags,
    },
}

/// Does it.
pub async fn run(cluster: &ClusterFlags, command: Command) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    match command {
        Command::View { select, output } => {
            for (_, object) in select::objects(&connection, &select).await? {
                let note = note(&object)?;
                match output.as_str() {
                    "json" => println!("{}", serde_json::to_string_pretty(&note)?),
                    "yaml" => print!("{}", yaml::emit(&note)),
                    other => bail!(
                        "Unexpected -o output mode: {other}, the flag 'output' must be one of yaml|json"
                    ),
                }
            }
        }
        Command::Set { files, create_annotation, change: flags } => {
            let mut manifests = files.manifests(&connection).await?;
            for index in 0..manifests.all.len() {
                let resource = manifests.resource(&connection, index).await?;
                let value = &manifests.all[index].value;
                let path =
                    format!("{}/{}", resource.path(value["metadata"]["namespace"].as_str()), name_of(value));
                let object = connection.get(&path).await?;
                if !create_annotation && object["metadata"]["annotations"][LAST_APPLIED].is_null() {
                    bail!(
                        "no last-applied-configuration annotation found on resource: {}, to create the annotation, run the command with --create-annotation",
                        name_of(value)
                    );
                }
                let text = format!("{value}\n");
                let changed = note_anew(&connection, &flags, (&resource, &object), &text).await?;
                flags.show(&resource, &changed, "configured")?;
            }
        }
        Command::Edit { select, change: flags } => {
            for (resource, object) in select::objects(&connection, &select).await? {
                let before = yaml::emit(&note(&object)?);
                let after = crate::editor::edit(&before)?;
                if after.trim() == before.trim() {
                    println!("Edit cancelled, no changes made.");
                    continue;
                }
                let node = yaml::parse(&after)
                    .map_err(|error| anyhow::anyhow!("line {}: {error}", error.at.line))?;
                let text = format!("{}\n", node.context("nothing is left")?.resolve(yaml::Unknown));
                let changed = note_anew(&connection, &flags, (&resource, &object), &text).await?;
                flags.show(&resource, &changed, "edited")?;
            }
        }
    }
    Ok(())
}

/// Writes the note of an object, and gives the object back as it is then.
async fn note_anew(
    connection: &Connection,
    flags: &ChangeFlags,
    of: (&Resource, &Value),
    text: &str,
) -> Result<Value> {
    let changed = change(connection, flags, "kubectl-client-side-apply", of, |object| {
        object["metadata"]["annotations"][LAST_APPLIED] = text.into();
        Ok(())
    });
    Ok(changed.await?.object)
}

fn note(object: &Value) -> Result<Value> {
    let text = object["metadata"]["annotations"][LAST_APPLIED].as_str();
    let text = text.with_context(|| {
        format!("no last-applied-configuration annotation found on resource: {}", name_of(object))
    })?;
    serde_json::from_str(text).context("the last-applied-configuration annotation is not JSON")
}
