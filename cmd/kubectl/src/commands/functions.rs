//! The seed's verbs for functions: `register`, `update`, `trigger`.

mod local;
mod trigger;

pub use trigger::{TriggerFlags, trigger};

use crate::connection::{ClusterFlags, Connection, is_not_found};
use crate::manifests::check_names;
use anyhow::{Context, Result, bail};
use api::dialect::{ORIGINAL_NAME, map_name};
use http::Method;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// What `register` and `update` are told.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  kubectl register add.py\n  kubectl register greet.js\n  kubectl register folder/"
)]
pub struct FileFlags {
    /// The source: a .py or .js file, whose `main(params)` is called, or a folder of them with a main.py or main.js.
    file: PathBuf,
}

/// Runtimes, by how the names of their sources end.
const RUNTIMES: [(&str, &str); 2] = [("py", "python"), ("js", "nodejs")];
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
    println!("{} registered", shown(&function));
    Ok(())
}

/// Stores a function's new source.
pub async fn update(cluster: &ClusterFlags, flags: FileFlags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let function = function(&flags.file)?;
    let name = function["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let path = path(&connection, Some(&name));
    let live = match connection.get(&path).await {
        Err(error) if is_not_found(&error) => {
            bail!("there is no function {name:?}: kubectl register stores a new one")
        }
        live => live?,
    };
    check_names(&live, &function)?;
    let source = source_patch(&live, &function);
    let patch = json!({"spec": source}).to_string();
    connection
        .send_as(Method::PATCH, &path, "application/merge-patch+json", Some(patch), "application/json")
        .await?;
    println!("{} updated", shown(&function));
    Ok(())
}

/// What makes the live function's source this one's: what is not in it any more is removed.
fn source_patch(live: &Value, function: &Value) -> Value {
    let mut source = json!({"code": null, "files": null});
    if let Some(files) = function["spec"]["files"].as_object() {
        let gone = live["spec"]["files"].as_object().into_iter().flat_map(Map::keys);
        let mut patch: Map<String, Value> = gone.map(|name| (name.clone(), Value::Null)).collect();
        patch.extend(files.clone());
        source["files"] = patch.into();
    } else {
        source["code"] = function["spec"]["code"].clone();
    }
    source["runtime"] = function["spec"]["runtime"].clone();
    source
}

/// Which function, and what it was called.
fn shown(function: &Value) -> String {
    let name = function["metadata"]["name"].as_str().unwrap_or_default();
    match function["metadata"]["annotations"][ORIGINAL_NAME].as_str() {
        Some(original) => format!("function.minik8s.io/{name} (name {name} for {original})"),
        None => format!("function.minik8s.io/{name}"),
    }
}

fn path(connection: &Connection, name: Option<&str>) -> String {
    let path = format!("/apis/minik8s.io/v1/namespaces/{}/functions", connection.namespace);
    name.map_or(path.clone(), |name| format!("{path}/{name}"))
}

fn function(source: &Path) -> Result<Value> {
    let (runtime, spec) = match source.is_dir() {
        true => folder(source)?,
        false => {
            let runtime = runtime(source).with_context(|| {
                format!(
                    "{}: functions are Python or JavaScript files, NAME.py or NAME.js, or folders",
                    source.display()
                )
            })?;
            (runtime, json!({"code": read(source)?}))
        }
    };
    let absolute = std::path::absolute(source).with_context(|| source.display().to_string())?;
    let stem = if source.is_dir() { absolute.file_name() } else { absolute.file_stem() };
    let stem = stem.unwrap_or_default().to_string_lossy().into_owned();
    let name = map_name(&stem);
    let mut function = json!({
        "apiVersion": "minik8s.io/v1", "kind": "Function", "metadata": {"name": name}, "spec": spec,
    });
    function["spec"]["runtime"] = json!(runtime);
    if name != stem {
        function["metadata"]["annotations"] = json!({ ORIGINAL_NAME: stem });
    }
    Ok(function)
}

fn runtime(file: &Path) -> Option<&'static str> {
    let extension = file.extension()?.to_str()?;
    RUNTIMES.iter().find(|(own, _)| *own == extension).map(|(_, runtime)| *runtime)
}

/// A folder's files, and the runtime of its main one.
fn folder(folder: &Path) -> Result<(&'static str, Value)> {
    let mut files = Map::new();
    add_files(folder, folder, &mut files)?;
    let main = RUNTIMES.iter().find(|(extension, _)| files.contains_key(&format!("main.{extension}")));
    let Some((_, runtime)) = main else {
        bail!("{}: a function's folder has a main.py or a main.js", folder.display());
    };
    Ok((runtime, json!({"files": files})))
}

fn add_files(root: &Path, folder: &Path, files: &mut Map<String, Value>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "__pycache__" {
            continue;
        }
        if path.is_dir() {
            add_files(root, &path, files)?;
        } else {
            let inside = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            files.insert(inside, read(&path)?.into());
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_a_function_of_all_its_files() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("My_Shop");
        for file in ["main.py", "lib/prices.py", ".git/config", "__pycache__/main.pyc"] {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, file).expect("written");
        }
        let shop = function(&folder).expect("a function");
        assert_eq!(
            shop["spec"],
            json!({"runtime": "python", "files": {"main.py": "main.py", "lib/prices.py": "lib/prices.py"}})
        );
        assert_eq!(shown(&shop), "function.minik8s.io/my-shop (name my-shop for My_Shop)");
        let live = json!({"spec": {"files": {"old.py": "", "main.py": ""}}});
        let files = &source_patch(&live, &shop)["files"];
        assert_eq!(*files, json!({"old.py": null, "main.py": "main.py", "lib/prices.py": "lib/prices.py"}));
    }

    #[test]
    fn what_is_no_source_is_said() {
        let check = |name: &str, expected: &str| {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join(name);
            std::fs::create_dir_all(folder.path().join("empty")).expect("made");
            if !file.is_dir() {
                std::fs::write(&file, "x").expect("written");
            }
            let error = format!("{:#}", function(&file).expect_err("refused"));
            assert!(error.contains(expected), "{error}");
        };
        check("add.rb", "Python or JavaScript");
        check("empty", "has a main.py or a main.js");
    }
}
