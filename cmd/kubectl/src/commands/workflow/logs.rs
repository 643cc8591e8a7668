//! `kubectl workflow logs`: what the steps of a run have written, step by step.

use super::{ClusterFlags, Connection, find, items, name_of, steps};
use anyhow::Result;
use serde_json::Value;

/// Shows what there still is.
pub async fn run(cluster: &ClusterFlags, name: &str) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let run = find(&connection, name).await?;
    let graph = &run["status"]["graph"]["nodes"];
    let mut any = false;
    let mut all = steps(&connection, &run).await?;
    let threads = run["status"]["threads"].as_array().into_iter().flatten();
    for thread in threads.filter(|thread| thread["state"] == "Running") {
        all.push(serde_json::json!({"number": thread["step"], "node": thread["node"], "attempts": thread["attempt"], "type": "Task"}));
    }
    for step in all.iter().filter(|step| step["type"] == "Task") {
        let node = &graph[step["node"].as_str().unwrap_or_default()];
        let lines = match node["function"].as_str() {
            Some(function) => of_function(&connection, &run, step, function).await?,
            None => of_job(&connection, &run, step).await?,
        };
        if lines.is_empty() {
            continue;
        }
        any = true;
        println!("==> {} {} <==", step["number"], step["node"].as_str().unwrap_or_default());
        lines.iter().for_each(|line| println!("{}", cli::plain(line)));
    }
    if !any {
        eprintln!(
            "No step has written anything, or its pod is gone: kubectl workflow describe {} shows errors",
            name_of(&run)
        );
    }
    Ok(())
}

/// Lines that a call has written, which begin with its request, in pods that there still are.
async fn of_function(
    connection: &Connection,
    run: &Value,
    step: &Value,
    function: &str,
) -> Result<Vec<String>> {
    let start = format!("[{}-{}-", name_of(run), step["number"]);
    let mut lines = Vec::new();
    for text in logs(connection, &format!("minik8s.io%2Ffunction%3D{function}")).await? {
        let own = text.lines().filter_map(|line| line.strip_prefix(&start)?.split_once("] "));
        lines.extend(own.map(|(_, line)| line.to_owned()));
    }
    Ok(lines)
}

async fn of_job(connection: &Connection, run: &Value, step: &Value) -> Result<Vec<String>> {
    let label: String = name_of(run).chars().take(63).collect();
    let selector = format!(
        "minik8s.io%2Fworkflow-run%3D{},minik8s.io%2Fworkflow-step%3D{}",
        label.trim_end_matches(['-', '.']),
        step["number"]
    );
    let path = format!("/apis/batch/v1/namespaces/{}/jobs?labelSelector={selector}", connection.namespace);
    let mut lines = Vec::new();
    for job in items(connection.get(&path).await?) {
        let own = logs(connection, &format!("batch.kubernetes.io%2Fjob-name%3D{}", name_of(&job))).await?;
        lines.extend(own.iter().flat_map(|text| text.lines().map(str::to_owned)));
    }
    Ok(lines)
}

/// The logs of the pods with these labels, as far as they can be read.
async fn logs(connection: &Connection, selector: &str) -> Result<Vec<String>> {
    let pods = format!("/api/v1/namespaces/{}/pods", connection.namespace);
    let mut found = Vec::new();
    for pod in items(connection.get(&format!("{pods}?labelSelector={selector}")).await?) {
        let path = format!("{pods}/{}/log", name_of(&pod));
        if let Ok(text) = connection.text(http::Method::GET, &path, "application/json", None, "*/*").await {
            found.push(text);
        }
    }
    Ok(found)
}
