//! `kubectl get`.

use crate::connection::{ClusterFlags, Connection};
use crate::output::{Output, table};
use crate::resources::{Catalogue, Resource};
use crate::select::{self, SelectFlags, Target};
use anyhow::{Result, bail};
use futures::{AsyncBufReadExt, StreamExt};
use http::Method;
use serde_json::{Value, json};
use std::io::Write;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// What `get` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl get pods -A -o wide\n  kubectl get deploy web -o jsonpath='{.status.readyReplicas}'"
)]
pub struct Flags {
    #[command(flatten)]
    select: SelectFlags,
    /// wide, yaml, json, name, jsonpath=…, custom-columns=…
    #[arg(long, short)]
    output: Option<String>,
    /// Go on showing changes.
    #[arg(long, short)]
    watch: bool,
    /// Without the line of names of columns.
    #[arg(long)]
    no_headers: bool,
    /// Also show labels.
    #[arg(long)]
    show_labels: bool,
    /// Sort by what this path finds.
    #[arg(long)]
    sort_by: Option<String>,
    /// No error for what is not there.
    #[arg(long)]
    ignore_not_found: bool,
    /// How many to ask for at once.
    #[arg(long, default_value_t = 500)]
    chunk_size: usize,
}

/// Shows.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let output = Output::parse(flags.output.as_deref())?;
    let connection = Connection::open(cluster).await?;
    let catalogue = Catalogue::load(&connection).await?;
    let targets = select::targets(&catalogue, &flags.select.words)?;
    if flags.watch {
        let [target] = targets.as_slice() else {
            bail!("you may only watch one resource or type of resource at a time")
        };
        return watch(&connection, target, &flags, &output).await;
    }
    if output.is_table() {
        show_tables(&connection, &targets, &flags, output == Output::Wide).await
    } else {
        show_objects(&connection, &targets, &flags, &output).await
    }
}

async fn show_tables(connection: &Connection, targets: &[Target], flags: &Flags, wide: bool) -> Result<()> {
    let mut kinds: Vec<&Resource> = Vec::new();
    let mut groups: Vec<Vec<Value>> = Vec::new();
    for target in targets {
        let Some(answer) = fetch(connection, target, flags, TABLE).await? else { continue };
        match kinds.iter().position(|kind| **kind == target.resource) {
            Some(at) => groups[at].push(answer),
            None => {
                kinds.push(&target.resource);
                groups.push(vec![answer]);
            }
        }
    }
    let several = kinds.len() > 1;
    let mut shown = 0;
    let mut out = std::io::stdout().lock();
    for (kind, tables) in kinds.iter().zip(&groups) {
        let mut rows = rows(tables, kind, flags, wide, several);
        if rows.len() <= 1 {
            continue;
        }
        if flags.no_headers {
            rows.remove(0);
        }
        if shown > 0 {
            writeln!(out)?;
        }
        shown += 1;
        out.write_all(table(&rows).as_bytes())?;
    }
    if shown == 0 && !flags.ignore_not_found {
        let where_ = if flags.select.all_namespaces || kinds.iter().all(|kind| !kind.namespaced) {
            String::new()
        } else {
            format!(" in {} namespace", connection.namespace)
        };
        eprintln!("No resources found{where_}");
    }
    Ok(())
}

/// The cells of tables of one kind, the names of columns first.
fn rows(tables: &[Value], kind: &Resource, flags: &Flags, wide: bool, with_kind: bool) -> Vec<Vec<String>> {
    let Some(first) = tables.first() else { return Vec::new() };
    let columns = first["columnDefinitions"].as_array().cloned().unwrap_or_default();
    let is_shown: Vec<bool> = columns.iter().map(|column| wide || column["priority"] == 0).collect();
    let with_namespace = flags.select.all_namespaces && kind.namespaced;
    let mut header: Vec<String> = with_namespace.then(|| "NAMESPACE".to_owned()).into_iter().collect();
    let shown = columns.iter().zip(&is_shown).filter(|(_, shown)| **shown);
    header.extend(shown.map(|(column, _)| column["name"].as_str().unwrap_or_default().to_uppercase()));
    header.extend(flags.show_labels.then(|| "LABELS".to_owned()));
    let mut rows: Vec<(Value, Vec<String>)> = Vec::new();
    for row in tables.iter().flat_map(|table| table["rows"].as_array().into_iter().flatten()) {
        let metadata = &row["object"]["metadata"];
        let mut cells: Vec<String> = Vec::new();
        if with_namespace {
            cells.push(metadata["namespace"].as_str().unwrap_or_default().to_owned());
        }
        for (index, (cell, _)) in row["cells"]
            .as_array()
            .into_iter()
            .flatten()
            .zip(&is_shown)
            .filter(|(_, shown)| **shown)
            .enumerate()
        {
            let text = match cell {
                Value::String(text) => text.clone(),
                Value::Null => "<none>".to_owned(),
                other => other.to_string(),
            };
            cells.push(if index == 0 && with_kind { kind.named(&text) } else { text });
        }
        if flags.show_labels {
            cells.push(labels(&metadata["labels"]));
        }
        rows.push((row["object"].clone(), cells));
    }
    if let Some(path) = flags.sort_by.as_deref().and_then(|path| api::jsonpath::JsonPath::parse(path).ok()) {
        let key = |object: &Value| {
            path.first(object).map(|value| match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => format!("{:020}", number.as_i64().unwrap_or_default()),
                other => other.to_string(),
            })
        };
        rows.sort_by_key(|(object, _)| key(object));
    }
    std::iter::once(header).chain(rows.into_iter().map(|(_, cells)| cells)).collect()
}

fn labels(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let text: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if text.is_empty() { "<none>".to_owned() } else { text.join(",") }
}

async fn show_objects(
    connection: &Connection,
    targets: &[Target],
    flags: &Flags,
    output: &Output,
) -> Result<()> {
    let mut items = Vec::new();
    for target in targets {
        let Some(mut answer) = fetch(connection, target, flags, "application/json").await? else { continue };
        let is_list = answer.get("items").is_some();
        let found: Vec<Value> = if is_list {
            answer["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
        } else {
            vec![answer]
        };
        for mut item in found {
            item["apiVersion"] = target.resource.api_version().into();
            item["kind"] = target.resource.kind.clone().into();
            if *output == Output::Name {
                println!("{}", target.resource.named(select::name_of(&item)));
            }
            items.push(item);
        }
    }
    if *output == Output::Name {
        return Ok(());
    }
    let is_one = items.len() == 1 && targets.len() == 1 && targets[0].name.is_some();
    let value = if is_one {
        items.remove(0)
    } else {
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
    };
    print!("{}", output.show(&value)?);
    Ok(())
}

/// An object, or a whole list, page by page. Nothing, if it is not there and that is fine.
async fn fetch(
    connection: &Connection,
    target: &Target,
    flags: &Flags,
    accept: &str,
) -> Result<Option<Value>> {
    let path = target.path(connection, flags.select.all_namespaces && target.name.is_none());
    let include = if flags.sort_by.is_some() { "Object" } else { "Metadata" };
    let get = |path: String| async move {
        connection.send_as(Method::GET, &path, "application/json", None, accept).await
    };
    if target.name.is_some() {
        return match get(format!("{path}?includeObject={include}")).await {
            Err(error) if flags.ignore_not_found && crate::connection::is_not_found(&error) => Ok(None),
            answer => answer.map(Some),
        };
    }
    let query = select::query(&flags.select);
    let query = if query.is_empty() { "?".to_owned() } else { format!("{query}&") };
    let mut page = get(format!("{path}{query}limit={}&includeObject={include}", flags.chunk_size)).await?;
    let mut next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    let list = if page.get("rows").is_some() { "rows" } else { "items" };
    while !next.is_empty() {
        let more = format!(
            "{path}{query}limit={}&includeObject={include}&continue={}",
            flags.chunk_size,
            select::encode(&next)
        );
        let mut more = get(more).await?;
        next = more["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if let (Some(all), Some(more)) = (page[list].as_array_mut(), more[list].as_array_mut()) {
            all.append(more);
        }
    }
    Ok(Some(page))
}

/// What is there, and then each change, as a line each.
async fn watch(connection: &Connection, target: &Target, flags: &Flags, output: &Output) -> Result<()> {
    let collection = Target { name: None, ..target.clone() };
    let mut select = flags.select.clone();
    if let Some(name) = &target.name {
        select.field_selector = Some(format!("metadata.name={name}"));
    }
    let path = collection.path(connection, flags.select.all_namespaces && target.name.is_none());
    let query = select::query(&select);
    let query = if query.is_empty() { "?".to_owned() } else { format!("{query}&") };
    let accept = if output.is_table() { TABLE } else { "application/json" };
    let stream = connection.stream(&format!("{path}{query}watch=true"), accept).await?;
    let mut lines = stream.lines();
    let mut widths: Vec<usize> = Vec::new();
    while let Some(line) = lines.next().await {
        let event: Value = serde_json::from_str(&line?)?;
        if event["type"] == "ERROR" {
            bail!("{}", event["object"]["message"].as_str().unwrap_or("the watch failed"));
        }
        if event["type"] == "BOOKMARK" {
            continue;
        }
        let object = &event["object"];
        if !output.is_table() {
            match output {
                Output::Name => println!("{}", target.resource.named(select::name_of(object))),
                output => print!("{}", output.show(object)?),
            }
            continue;
        }
        let mut rows =
            rows(std::slice::from_ref(object), &target.resource, flags, *output == Output::Wide, false);
        if !widths.is_empty() || flags.no_headers {
            rows.remove(0);
        }
        for row in rows {
            println!("{}", aligned(&row, &mut widths));
        }
    }
    Ok(())
}

/// A line under lines that are written already: columns are as wide as they have become.
fn aligned(row: &[String], widths: &mut Vec<usize>) -> String {
    widths.resize(row.len().max(widths.len()), 0);
    let cells = row.iter().zip(widths.iter_mut()).map(|(cell, width)| {
        *width = (*width).max(cell.chars().count());
        format!("{cell:<width$}   ", width = *width)
    });
    cells.collect::<String>().trim_end().to_owned()
}
