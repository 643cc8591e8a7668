//! The seed's verbs for functions: `register`, `update`, `trigger`.

use crate::connection::{ClusterFlags, Connection, is_not_found};
use crate::manifests::check_names;
use anyhow::{Context, Result, bail};
use api::dialect::{ORIGINAL_NAME, map_name};
use http::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What `register` and `update` are told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl register add.py")]
pub struct FileFlags {
    /// The Python file; its `main(params)` is called.
    file: PathBuf,
}

/// What `trigger` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl trigger add '{\"x\":1,\"y\":2}'")]
pub struct TriggerFlags {
    /// The function.
    name: String,
    /// Its parameters, as JSON; empty for none.
    #[arg(default_value = "")]
    data: String,
}

/// What is true until something runs functions.
const NOTHING_RUNS_THEM: &str = "Note: no controller for functions is running in this cluster: the function is stored, \
    and nothing runs it.";

/// Stores a new function.
pub async fn register(cluster: &ClusterFlags, flags: FileFlags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let function = function(&flags.file)?;
    if let Err(error) = connection.send(Method::POST, &path(&connection, None), Some(&function)).await {
        let name = function["metadata"]["name"].as_str();
        if let Ok(live) = connection.get(&path(&connection, name)).await {
            check_names(&live, &function)?;
        }
        return Err(error);
    }
    println!("function.minik8s.io/{} registered", function["metadata"]["name"].as_str().unwrap_or_default());
    eprintln!("{NOTHING_RUNS_THEM}");
    Ok(())
}

/// Stores a function's new code.
pub async fn update(cluster: &ClusterFlags, flags: FileFlags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let function = function(&flags.file)?;
    let name = function["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let patch = json!({"spec": {"code": function["spec"]["code"]}}).to_string();
    let path = path(&connection, Some(&name));
    if let Ok(live) = connection.get(&path).await {
        check_names(&live, &function)?;
    }
    let sent = connection.send_as(
        Method::PATCH,
        &path,
        "application/merge-patch+json",
        Some(patch),
        "application/json",
    );
    match sent.await {
        Err(error) if is_not_found(&error) => {
            bail!("there is no function {name:?}: kubectl register stores a new one")
        }
        sent => sent?,
    };
    println!("function.minik8s.io/{name} updated");
    eprintln!("{NOTHING_RUNS_THEM}");
    Ok(())
}

/// Calls a function.
pub async fn trigger(cluster: &ClusterFlags, flags: TriggerFlags) -> Result<()> {
    if !flags.data.is_empty() {
        serde_json::from_str::<Value>(&flags.data).context("the parameters are not JSON")?;
    }
    let connection = Connection::open(cluster).await?;
    let name = map_name(&flags.name);
    connection.get(&path(&connection, Some(&name))).await?;
    bail!(
        "function {name:?} is stored, but no controller for functions is running in this cluster, so nothing can call it"
    )
}

fn path(connection: &Connection, name: Option<&str>) -> String {
    let path = format!("/apis/minik8s.io/v1/namespaces/{}/functions", connection.namespace);
    name.map_or(path.clone(), |name| format!("{path}/{name}"))
}

fn function(file: &Path) -> Result<Value> {
    if file.extension().is_none_or(|extension| extension != "py") {
        bail!("{}: functions are Python files, NAME.py", file.display());
    }
    let code = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = map_name(&stem);
    let mut function = json!({
        "apiVersion": "minik8s.io/v1", "kind": "Function", "metadata": {"name": name},
        "spec": {"runtime": "python", "code": code},
    });
    if name != stem {
        function["metadata"]["annotations"] = json!({ ORIGINAL_NAME: stem });
    }
    Ok(function)
}
