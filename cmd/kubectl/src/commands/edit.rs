//! `kubectl edit`.

use crate::connection::{ClusterFlags, Connection};
use crate::select::{self, SelectFlags, name_of, path_of};
use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::Value;
use std::process::Command;

/// What `edit` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  EDITOR=nano kubectl edit deployment web")]
pub struct Flags {
    #[command(flatten)]
    select: SelectFlags,
}

/// Edits. A text that the server does not take is kept in its file.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    for (resource, mut object) in select::objects(&connection, &flags.select).await? {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let before = serde_saphyr::to_string(&object)?;
        let file = tempfile::Builder::new().prefix("kubectl-edit-").suffix(".yaml").tempfile()?;
        std::fs::write(file.path(), &before)?;
        let editor = ["KUBE_EDITOR", "EDITOR"].iter().find_map(|name| std::env::var(name).ok());
        let editor = editor.unwrap_or_else(|| "vi".to_owned());
        let status = Command::new("sh")
            .args(["-c", &format!("{editor} \"$0\""), &file.path().display().to_string()])
            .status()
            .with_context(|| format!("run {editor}"))?;
        if !status.success() {
            bail!("{editor} ended with {status}; nothing was changed");
        }
        let after = std::fs::read_to_string(file.path())?;
        let named = resource.named(name_of(&object));
        if after == before {
            println!("Edit cancelled, no changes made.");
            continue;
        }
        let sent = async {
            let value: Value = serde_saphyr::from_str(&after).context("that is not YAML")?;
            let path =
                format!("{}?fieldManager=kubectl-edit&fieldValidation=Strict", path_of(&resource, &object));
            connection.send(Method::PUT, &path, Some(&value)).await
        };
        match sent.await {
            Ok(_) => println!("{named} edited"),
            Err(error) => {
                let (_, path) = file.keep()?;
                return Err(
                    error.context(format!("{named} was not changed; your text is in {}", path.display()))
                );
            }
        }
    }
    Ok(())
}
