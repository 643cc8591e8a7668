//! `kubectl workflow graph`: a workflow's nodes and where they lead, for people and for documents.

use super::{ClusterFlags, Connection, path};
use crate::documents;
use anyhow::{Context, Result, bail};
use api::dialect::{map_name, translate};
use serde_json::Value;
use std::collections::HashSet;
use std::fmt::Write;

/// What `graph` is told.
#[derive(clap::Args)]
pub struct Flags {
    /// The workflow.
    name: Option<String>,
    /// A file, instead.
    #[arg(long, short, conflicts_with = "name")]
    filename: Option<String>,
    /// As Mermaid, for documents.
    #[arg(long)]
    mermaid: bool,
}

/// Draws.
pub async fn run(cluster: &ClusterFlags, flags: &Flags) -> Result<()> {
    let workflow = match (&flags.name, &flags.filename) {
        (Some(name), _) => {
            let connection = Connection::open(cluster).await?;
            connection.get(&path(&connection, "workflows", Some(&map_name(name)))).await?
        }
        (None, Some(file)) => {
            let documents = documents::read(std::slice::from_ref(file), false).await?;
            let found = documents.into_iter().find(|document| document.value["kind"] == "Workflow");
            let document = found.with_context(|| format!("{file}: there is no Workflow in it"))?;
            translate(document.value, |_| Some("minik8s.io/v1".to_owned()))?.value
        }
        (None, None) => bail!("name a workflow, or a file: kubectl workflow graph -f flow.yaml"),
    };
    let text =
        if flags.mermaid { mermaid(&workflow["spec"]) } else { text(&workflow["spec"], |_| String::new()) };
    print!("{text}");
    Ok(())
}

/// The graph as lines, in the order of a run. `sign` says what stands before a node.
pub fn text(spec: &Value, sign: impl Fn(&str) -> String) -> String {
    let mut rows = Vec::new();
    for (name, depth) in order(spec) {
        let node = &spec["nodes"][&name];
        let leads: Vec<String> = edges(node)
            .into_iter()
            .map(|(label, to)| format!("{label}{}{to}", if label.is_empty() { "" } else { " " }))
            .collect();
        let indent = "  ".repeat(depth);
        let what = match node["type"].as_str().unwrap_or("Task") {
            "Task" if node["job"].is_object() => "Task (Job)".to_owned(),
            own => own.to_owned(),
        };
        rows.push(vec![format!("{}{indent}{name}", sign(&name)), what, leads.join("; ")]);
    }
    cli::table(&rows).lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn mermaid(spec: &Value) -> String {
    let mut text = "flowchart TD\n".to_owned();
    let nodes = order(spec);
    let id = |name: &str| {
        nodes.iter().position(|(own, _)| own == name).map(|at| format!("n{at}")).unwrap_or_default()
    };
    for (name, _) in &nodes {
        let node = &spec["nodes"][name];
        let (open, close) = match node["type"].as_str() {
            Some("Choice") => ("{", "}"),
            Some("Succeed" | "Fail") => ("([", "])"),
            Some("Parallel" | "Map") => ("[[", "]]"),
            _ => ("[", "]"),
        };
        let _ = writeln!(text, "    {}{open}\"{}\"{close}", id(name), quoted(name));
    }
    for (name, _) in &nodes {
        for (label, to) in edges(&spec["nodes"][name]) {
            let label = label.trim_end_matches(" →").trim_end_matches('→').trim();
            let label = if label.is_empty() { String::new() } else { format!("|\"{}\"|", quoted(label)) };
            match to.as_str() {
                "(the end)" => {}
                to => drop(writeln!(text, "    {} -->{label} {}", id(name), id(to))),
            }
        }
    }
    text
}

fn quoted(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The nodes as a run comes to them, and how deep they are in branches.
fn order(spec: &Value) -> Vec<(String, usize)> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    visit(spec, spec["startAt"].as_str().unwrap_or_default(), 0, &mut seen, &mut found);
    found
}

fn visit(
    spec: &Value,
    name: &str,
    depth: usize,
    seen: &mut HashSet<String>,
    found: &mut Vec<(String, usize)>,
) {
    let node = &spec["nodes"][name];
    if !node.is_object() || !seen.insert(name.to_owned()) {
        return;
    }
    found.push((name.to_owned(), depth));
    let list = |field: &str| node[field].as_array().into_iter().flatten();
    for branch in list("branches").chain([&node["each"]]).filter_map(Value::as_str) {
        visit(spec, branch, depth + 1, seen, found);
    }
    let ways = list("choices").chain(list("catch")).map(|way| &way["next"]);
    for next in ways.chain([&node["default"], &node["next"]]).filter_map(Value::as_str) {
        visit(spec, next, depth, seen, found);
    }
}

/// Where a node leads, with what decides it.
fn edges(node: &Value) -> Vec<(String, String)> {
    let end = |next: &Value| match next.as_str() {
        None | Some("") => "(the end)".to_owned(),
        Some(next) => next.to_owned(),
    };
    let list = |field: &str| node[field].as_array().into_iter().flatten();
    let mut edges = Vec::new();
    for branch in list("branches") {
        edges.push(("branch →".to_owned(), end(branch)));
    }
    if node["each"].is_string() {
        edges.push(("each →".to_owned(), end(&node["each"])));
    }
    for choice in list("choices") {
        let conditions: Vec<String> =
            choice["conditions"].as_array().into_iter().flatten().map(condition).collect();
        let label = if conditions.is_empty() { "otherwise".to_owned() } else { conditions.join(" and ") };
        edges.push((format!("{label} →"), end(&choice["next"])));
    }
    if node["default"].is_string() {
        edges.push(("otherwise →".to_owned(), end(&node["default"])));
    }
    let ends = matches!(node["type"].as_str(), Some("Choice" | "Succeed" | "Fail"));
    if !ends {
        edges.push(("→".to_owned(), end(&node["next"])));
    }
    for caught in list("catch") {
        let errors: Vec<&str> =
            caught["errors"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let errors = if errors.is_empty() { "any error".to_owned() } else { errors.join(", ") };
        edges.push((format!("on {errors} →"), end(&caught["next"])));
    }
    edges
}

fn condition(condition: &Value) -> String {
    let list = |field: &str, word: &str| {
        let all: Vec<String> =
            condition[field].as_array().into_iter().flatten().map(self::condition).collect();
        (!all.is_empty()).then(|| format!("({})", all.join(word)))
    };
    if condition["not"].is_object() {
        return format!("not {}", self::condition(&condition["not"]));
    }
    list("all", " and ").or_else(|| list("any", " or ")).unwrap_or_else(|| {
        let operator = condition["operator"].as_str().unwrap_or("eq");
        format!("{} {operator} {}", condition["variable"].as_str().unwrap_or_default(), condition["value"])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec() -> Value {
        json!({"startAt": "add", "nodes": {
            "add": {"type": "Task", "next": "judge", "catch": [{"errors": ["Raised"], "next": "sorry"}]},
            "judge": {"type": "Choice", "choices": [
                {"conditions": [{"variable": "n", "operator": "gt", "value": 2}], "next": "all"}, {"conditions": [], "next": ""}]},
            "all": {"type": "Map", "each": "one"}, "one": {"type": "Task", "job": {}}, "sorry": {"type": "Fail"}}})
    }

    #[test]
    fn a_graph_is_drawn_in_the_order_of_a_run() {
        let expected = "\
add     Task         → judge; on Raised → sorry
sorry   Fail
judge   Choice       n gt 2 → all; otherwise → (the end)
all     Map          each → one; → (the end)
  one   Task (Job)   → (the end)
";
        assert_eq!(text(&spec(), |_| String::new()), expected);
    }

    #[test]
    fn mermaid_knows_nodes_by_what_cannot_be_misread() {
        let text = mermaid(&spec());
        for line in [
            "flowchart TD",
            "    n2{\"judge\"}",
            "    n0 --> n2",
            "    n0 -->|\"on Raised\"| n1",
            "    n2 -->|\"n gt 2\"| n3",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        assert_eq!(quoted("a\"<b>"), "a&quot;&lt;b&gt;");
    }
}
