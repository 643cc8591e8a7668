//! `kubectl config`.

use crate::connection::{ClusterFlags, read_kubeconfig};
use crate::output::table;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;

/// What can be done with the kubeconfig.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show it; secrets are left out.
    View,
    /// Show which context is used.
    CurrentContext,
    /// Show the contexts that there are.
    GetContexts,
    /// Use another context from now on.
    UseContext {
        /// Its name.
        name: String,
    },
    /// Set the namespace that the current context means where none is named.
    SetContext {
        /// Use the current one.
        #[arg(long, required = true)]
        current: bool,
        /// The namespace.
        #[arg(long = "namespace", id = "context_namespace")]
        namespace: String,
    },
}

/// Does it.
pub fn run(cluster: &ClusterFlags, command: Command) -> Result<()> {
    let config = read_kubeconfig(cluster)?;
    let current = config.current_context.clone().unwrap_or_default();
    match command {
        Command::View => {
            let mut value = serde_json::to_value(&config)?;
            redact(&mut value);
            print!("{}", serde_saphyr::to_string(&value)?);
        }
        Command::CurrentContext if current.is_empty() => bail!("current-context is not set"),
        Command::CurrentContext => println!("{current}"),
        Command::GetContexts => {
            let header = ["CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"];
            let mut rows = vec![header.map(str::to_owned).to_vec()];
            for named in &config.contexts {
                let context = named.context.clone().unwrap_or_default();
                rows.push(vec![
                    if named.name == current { "*" } else { "" }.to_owned(),
                    named.name.clone(),
                    context.cluster,
                    context.user.unwrap_or_default(),
                    context.namespace.unwrap_or_default(),
                ]);
            }
            print!("{}", table(&rows));
        }
        Command::UseContext { name } => {
            if !config.contexts.iter().any(|context| context.name == name) {
                bail!("no context exists with the name: \"{name}\"");
            }
            change(cluster, |value| value["current-context"] = name.clone().into())?;
            println!("Switched to context \"{name}\".");
        }
        Command::SetContext { namespace, .. } => {
            change(cluster, |value| {
                for context in value["contexts"].as_array_mut().into_iter().flatten() {
                    if context["name"] == current {
                        context["context"]["namespace"] = namespace.clone().into();
                    }
                }
            })?;
            println!("Context \"{current}\" modified.");
        }
    }
    Ok(())
}

/// Rewrites the file, whole or not at all.
fn change(cluster: &ClusterFlags, edit: impl FnOnce(&mut Value)) -> Result<()> {
    let path = path(cluster).context("find the kubeconfig's file")?;
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut value: Value =
        serde_saphyr::from_str(&text).with_context(|| format!("understand {}", path.display()))?;
    edit(&mut value);
    let folder = path.parent().context("find the kubeconfig's folder")?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    std::io::Write::write_all(&mut file, serde_saphyr::to_string(&value)?.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(&path).with_context(|| format!("write {}", path.display()))?;
    Ok(())
}

fn path(cluster: &ClusterFlags) -> Option<PathBuf> {
    let from_environment = || {
        let paths = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty())?;
        std::env::split_paths(&paths).find(|path| path.exists())
    };
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    cluster.kubeconfig.clone().or_else(from_environment).or_else(home)
}

/// Secrets are not shown.
fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    "token" | "password" | "client-key-data" if value.is_string() => {
                        *value = "REDACTED".into()
                    }
                    "client-certificate-data" | "certificate-authority-data" if value.is_string() => {
                        *value = "DATA+OMITTED".into();
                    }
                    _ => redact(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_not_shown() {
        let mut value = json!({"users": [{"user": {"token": "t", "client-key-data": "k", "client-certificate-data": "c"}}]});
        redact(&mut value);
        let user = json!({"token": "REDACTED", "client-key-data": "REDACTED", "client-certificate-data": "DATA+OMITTED"});
        assert_eq!(value, json!({"users": [{"user": user}]}));
    }
}
