//! `kubectl workflow validate`: what the server would say of a file, without one.

use super::{ClusterFlags, Connection, path};
use crate::connection::is_not_found;
use crate::documents::{self, Document};
use anyhow::{Result, bail};
use api::dialect::translate;
use api::field::{Errors, Field};
use api::kind::Kind;
use api::kinds;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

/// What `validate` is told.
#[derive(clap::Args)]
pub struct Flags {
    /// Files or folders.
    #[arg(long, short, required = true)]
    filename: Vec<String>,
    /// Also ask the cluster whether the functions are there.
    #[arg(long)]
    online: bool,
}

/// Checks every Workflow of the files.
pub async fn run(cluster: &ClusterFlags, flags: &Flags) -> Result<ExitCode> {
    let documents = documents::read(&flags.filename, true).await?;
    let workflows: Vec<Document> =
        documents.into_iter().filter(|document| document.value["kind"] == "Workflow").collect();
    if workflows.is_empty() {
        bail!("there is no Workflow in {}", flags.filename.join(", "));
    }
    let mut is_good = true;
    for document in &workflows {
        let place = document.place.to_string();
        let name = document.value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match checked(document) {
            Ok(workflow) => {
                println!("{place}: workflow {name:?} is good");
                if flags.online {
                    let connection = Connection::open(cluster).await?;
                    warn_of_missing(&connection, &workflow).await?;
                }
            }
            Err(faults) => {
                is_good = false;
                faults.iter().for_each(|fault| eprintln!("{fault}"));
            }
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The workflow in Kubernetes' form with all defaults, or what is wrong with it, with the place in the file.
fn checked(document: &Document) -> Result<Value, Vec<String>> {
    let own = |_: &str| Some("minik8s.io/v1".to_owned());
    let mut workflow = match translate(document.value.clone(), own) {
        Ok(translated) => translated.value,
        Err(error) => return Err(vec![format!("{}: {error}", document.at(&error.path))]),
    };
    let kind = kind();
    if let Some(fault) = unknown_field(&workflow) {
        return Err(vec![format!("{}: {fault}", document.place)]);
    }
    (kind.default)(&mut workflow);
    let mut errors = Errors::new();
    (kind.validate)(&Field::root(&workflow), &mut errors);
    if errors.is_empty() {
        return Ok(workflow);
    }
    let said = errors.into_vec().into_iter().map(|error| {
        // The seed's form has no `spec`.
        let path = match document.value["spec"].is_object() {
            true => error.path.clone(),
            false => error.path.trim_start_matches("spec.").to_owned(),
        };
        format!("{}: {}: {}", document.at(&path), path, error.message())
    });
    Err(said.collect())
}

/// What a Workflow does not have, or has otherwise.
fn unknown_field(workflow: &Value) -> Option<String> {
    let typed = serde_json::from_value::<api::kinds::minik8s::Workflow>(workflow.clone());
    let typed = match typed {
        Ok(typed) => serde_json::to_value(typed).unwrap_or_default(),
        Err(error) => return Some(error.to_string()),
    };
    lost(&workflow["spec"], &typed["spec"], "spec").map(|path| format!("unknown field {path:?}"))
}

/// The first member of `given` that `kept` does not have although it says something.
fn lost(given: &Value, kept: &Value, path: &str) -> Option<String> {
    match given {
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            let says_nothing = match value {
                Value::Null | Value::Bool(false) => true,
                Value::Number(number) => number.as_f64() == Some(0.0),
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::Object(members) => members.is_empty(),
                Value::Bool(true) => false,
            };
            match kept.get(name) {
                None if says_nothing => None,
                None => Some(path),
                Some(kept) => lost(value, kept, &path),
            }
        }),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(at, item)| lost(item, &kept[at], &format!("{path}[{at}]")))
        }
        _ => None,
    }
}

fn kind() -> Arc<Kind> {
    let found = kinds::all().iter().find(|kind| kind.group == "minik8s.io" && kind.kind == "Workflow");
    found.cloned().expect("a built-in kind")
}

/// Warns of functions that a workflow calls and that are not there, yet.
pub async fn warn_of_missing(connection: &Connection, workflow: &Value) -> Result<()> {
    let nodes = workflow["spec"]["nodes"].as_object();
    let functions: BTreeSet<&str> =
        nodes.into_iter().flatten().filter_map(|(_, node)| node["function"].as_str()).collect();
    for function in functions {
        match connection.get(&path(connection, "functions", Some(function))).await {
            Err(error) if is_not_found(&error) => {
                eprintln!(
                    "Warning: there is no function {function:?} yet: kubectl register {function}.py stores one"
                );
            }
            // Whoever may not look is not told.
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Value, Vec<String>> {
        let document = documents::parse(text, "flow.yaml").remove(0).expect("YAML");
        checked(&document)
    }

    #[test]
    fn the_seeds_workflow_is_good() {
        let text = include_str!("../../../../../testcases/seed/workflow.yaml");
        let workflow = check(text).expect("good");
        assert_eq!(workflow["spec"]["nodes"]["add"]["function"], "add");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let text = "kind: Workflow\nmetadata: {name: w}\nstartAt: a\nnodes:\n  a:\n    type: Task\n    next: nowhere\n  b:\n    type: Pass\n";
        let faults = check(text).expect_err("faults");
        assert_eq!(faults, ["flow.yaml:7:5: nodes[a].next: Not found: \"nowhere\""]);
        let text = "kind: Workflow\nmetadata: {name: w}\nstartAt: a\nnodes:\n  a:\n    type: Task\n  b:\n    type: Pass\n    next: b\n";
        let faults = check(text).expect_err("faults").join("\n");
        assert!(faults.contains("nothing leads to this node"), "{faults}");
        let text = "kind: Workflow\nmetadata: {name: w}\nstartAt: a\nnodes:\n  a:\n    typo: Task\n";
        assert_eq!(check(text).expect_err("faults"), ["flow.yaml:1: unknown field \"spec.nodes.a.typo\""]);
    }
}
