//! `kubectl workflow describe`: a run and its steps.

use super::{ClusterFlags, Connection, find, name_of, path, phase, steps, took};
use anyhow::Result;
use serde_json::Value;

/// The longest value in a line.
const MOST_SHOWN: usize = 100;

/// Shows a run.
pub async fn run(cluster: &ClusterFlags, name: &str) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let run = find(&connection, name).await?;
    let status = &run["status"];
    let mut lines = vec![
        ("Name", name_of(&run).to_owned()),
        ("Namespace", connection.namespace.clone()),
        ("Workflow", run["spec"]["workflow"].as_str().unwrap_or_default().to_owned()),
        ("Status", phase(&run).to_owned()),
        ("Params", value(&run["spec"], "params")),
        ("Output", fetched(&connection, status, "output").await),
        ("Reason", status["reason"].as_str().unwrap_or_default().to_owned()),
        ("Error", status["error"].as_str().unwrap_or_default().to_owned()),
        ("Started", status["startTime"].as_str().unwrap_or_default().to_owned()),
        ("Took", took(status)),
    ];
    if let Some(count) = status["redrives"].as_i64() {
        lines.push(("Redriven", format!("{count} times")));
    }
    let rows: Vec<Vec<String>> = lines
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(name, text)| vec![format!("{name}:"), text])
        .collect();
    print!("{}", cli::table(&rows));
    let steps = steps(&connection, &run).await?;
    println!("Steps:");
    let mut rows =
        vec![["  #", "NODE", "TYPE", "STATUS", "ATTEMPTS", "START", "TOOK"].map(str::to_owned).to_vec()];
    for step in &steps {
        rows.push(row(step));
    }
    for thread in status["threads"].as_array().into_iter().flatten().filter(|thread| !is_stopped(thread)) {
        rows.push(vec![
            format!("  {}", thread["step"].as_i64().map(|step| step.to_string()).unwrap_or_default()),
            text(thread, "node"),
            node_type(status, thread),
            text(thread, "state"),
            thread["attempt"].as_i64().unwrap_or(0).to_string(),
        ]);
    }
    print!("{}", cli::table(&rows));
    for step in &steps {
        println!("\nStep {} {}{}:", step["number"], text(step, "node"), branch(step));
        let shown = [
            ("Input", value(step, "input")),
            ("Output", value(step, "output")),
            ("Chose", text(step, "chose")),
            ("By", text(step, "by")),
            ("Error", join(&text(step, "reason"), &text(step, "error"))),
        ];
        for (name, text) in shown.into_iter().filter(|(_, text)| !text.is_empty()) {
            println!("  {name}: {}", cli::plain(&text).replace('\n', "\n    "));
        }
        for failure in step["failures"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            println!("  Attempt failed: {}", cli::plain(failure).replace('\n', "\n    "));
        }
    }
    Ok(())
}

fn is_stopped(thread: &Value) -> bool {
    matches!(thread["state"].as_str(), Some("Failed" | "Stopped"))
}

fn row(step: &Value) -> Vec<String> {
    let temperature = match step["isCold"].as_bool() {
        Some(true) => " cold",
        Some(false) => " warm",
        None => "",
    };
    vec![
        format!("  {}", step["number"]),
        format!("{}{}", text(step, "node"), branch(step)),
        text(step, "type"),
        text(step, "phase"),
        step["attempts"].as_i64().unwrap_or(1).to_string(),
        text(step, "startTime").get(11..23).unwrap_or_default().to_owned(),
        format!("{}{temperature}", took(step)),
    ]
}

fn branch(step: &Value) -> String {
    step["branch"].as_str().map(|branch| format!("[{branch}]")).unwrap_or_default()
}

fn node_type(status: &Value, thread: &Value) -> String {
    text(&status["graph"]["nodes"][thread["node"].as_str().unwrap_or_default()], "type")
}

fn text(of: &Value, field: &str) -> String {
    of[field].as_str().unwrap_or_default().to_owned()
}

fn join(reason: &str, error: &str) -> String {
    if reason.is_empty() { error.to_owned() } else { format!("{reason}: {error}") }
}

/// A value, or where it is.
fn value(of: &Value, field: &str) -> String {
    match (&of[field], of[format!("{field}Ref")].as_str()) {
        (Value::Null, Some(name)) => format!("in workflowvalue/{name}"),
        (Value::Null, None) => String::new(),
        (value, _) => clipped(&value.to_string()),
    }
}

async fn fetched(connection: &Connection, of: &Value, field: &str) -> String {
    let Some(name) = of[format!("{field}Ref")].as_str() else { return value(of, field) };
    match connection.get(&path(connection, "workflowvalues", Some(name))).await {
        Ok(found) => clipped(&found["spec"]["value"].to_string()),
        Err(_) => value(of, field),
    }
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
