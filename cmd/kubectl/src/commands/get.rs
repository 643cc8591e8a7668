//! `kubectl get`.

mod rows;
mod watch;

use crate::connection::{ClusterFlags, Connection, is_not_found};
use crate::manifests::FileFlags;
use crate::output::{Output, table};
use crate::resources::{Catalogue, Resource};
use crate::select::{self, SelectFlags, Target, name_of};
use anyhow::{Result, bail};
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
    #[command(flatten)]
    files: FileFlags,
    /// wide, yaml, json, name, jsonpath=…, custom-columns=…, go-template=…
    #[arg(long, short)]
    output: Option<String>,
    /// The template, for -o go-template and -o jsonpath.
    #[arg(long)]
    template: Option<String>,
    /// Go on showing changes.
    #[arg(long, short)]
    watch: bool,
    /// Show changes only, not what is there.
    #[arg(long)]
    watch_only: bool,
    /// Also show what kind of change it is.
    #[arg(long)]
    output_watch_events: bool,
    /// Without the line of names of columns.
    #[arg(long)]
    no_headers: bool,
    /// Also show labels.
    #[arg(long)]
    show_labels: bool,
    /// Show these labels in columns of their own.
    #[arg(long, short = 'L', value_delimiter = ',')]
    label_columns: Vec<String>,
    /// Show names with their kind.
    #[arg(long)]
    show_kind: bool,
    /// Also show who set which field.
    #[arg(long)]
    show_managed_fields: bool,
    /// Sort by what this path finds.
    #[arg(long)]
    sort_by: Option<String>,
    /// No error for what is not there.
    #[arg(long)]
    ignore_not_found: bool,
    /// How many to ask for at once.
    #[arg(long, default_value_t = 500)]
    chunk_size: usize,
    /// The part of the objects: status or scale.
    #[arg(long)]
    subresource: Option<String>,
    /// Show this path of the server.
    #[arg(long)]
    raw: Option<String>,
    /// Use the server's columns.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    server_print: bool,
    /// Accepted as upstream's: what is missing is never an error.
    #[arg(long, hide = true, num_args = 0..=1)]
    allow_missing_template_keys: Option<String>,
}

/// One thing to show, and its namespace where a file says it.
struct Asked {
    target: Target,
    path: String,
}

/// Shows.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    if let Some(path) = &flags.raw {
        let text =
            connection.text(Method::GET, path, "application/json", None, "application/json, */*").await?;
        print!("{text}");
        return Ok(());
    }
    let output = Output::parse_with(flags.output.as_deref(), flags.template.as_deref())?;
    let asked = asked(&connection, &flags).await?;
    if flags.watch || flags.watch_only {
        let [one] = asked.as_slice() else { bail!("you may only specify a single resource type to watch") };
        return watch::run(&connection, one, &flags, &output).await;
    }
    if output.is_table() {
        show_tables(&connection, &asked, &flags, output == Output::Wide).await
    } else {
        show_objects(&connection, &asked, &flags, &output).await
    }
}

async fn asked(connection: &Connection, flags: &Flags) -> Result<Vec<Asked>> {
    let part = flags.subresource.as_ref().map(|part| format!("/{part}")).unwrap_or_default();
    if flags.files.any() {
        if !flags.select.words.is_empty() {
            bail!(
                "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well"
            );
        }
        let objects = flags.files.objects(connection).await?.into_iter();
        let asked = objects.map(|(resource, value)| {
            let path = format!("{}{part}", select::path_of(&resource, &value));
            Asked { target: Target { resource, name: Some(name_of(&value).to_owned()), asked: None }, path }
        });
        return Ok(asked.collect());
    }
    if flags.select.words.is_empty() {
        eprintln!(
            "You must specify the type of resource to get. Use \"kubectl api-resources\" for a complete list of supported resources.\n"
        );
        bail!(
            "Required resource not specified.\n\
             Use \"kubectl explain <resource>\" for a detailed description of that resource (e.g. kubectl explain pods).\n\
             See 'kubectl get -h' for help and examples"
        );
    }
    let catalogue = Catalogue::for_words(connection, &flags.select.words).await?;
    let targets = select::targets(&catalogue, &flags.select.words)?;
    if flags.select.all_namespaces
        && targets.iter().any(|target| target.name.is_some() && target.resource.namespaced)
    {
        bail!("a resource cannot be retrieved by name across all namespaces");
    }
    Ok(targets
        .into_iter()
        .map(|target| {
            let path = target.path(connection, flags.select.all_namespaces && target.name.is_none());
            let part = if target.name.is_some() { part.as_str() } else { "" };
            Asked { path: format!("{path}{part}"), target }
        })
        .collect())
}

async fn show_tables(connection: &Connection, asked: &[Asked], flags: &Flags, wide: bool) -> Result<()> {
    let mut kinds: Vec<&Resource> = Vec::new();
    let mut groups: Vec<Vec<Value>> = Vec::new();
    let mut failure = None;
    for one in asked {
        let answer = match fetch(connection, one, flags, TABLE).await {
            Ok(Some(answer)) => as_table(answer),
            Ok(None) => continue,
            Err(error) => {
                failure = Some(later(failure, error));
                continue;
            }
        };
        match kinds.iter().position(|kind| **kind == one.target.resource) {
            Some(at) => groups[at].push(answer),
            None => {
                kinds.push(&one.target.resource);
                groups.push(vec![answer]);
            }
        }
    }
    let with_kind = flags.show_kind || kinds.len() > 1 || asked.len() > 1 && kinds.len() > 1;
    let mut shown = 0;
    let mut out = std::io::stdout().lock();
    for (kind, tables) in kinds.iter().zip(&groups) {
        let mut rows = rows::rows(tables, kind, flags, wide, with_kind);
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
    drop(out);
    if let Some(error) = failure {
        return Err(error);
    }
    if shown == 0 && !flags.ignore_not_found {
        if flags.select.all_namespaces || kinds.iter().all(|kind| !kind.namespaced) {
            eprintln!("No resources found");
        } else {
            eprintln!("No resources found in {} namespace.", connection.namespace);
        }
    }
    if let [one] = asked
        && shown > 0
    {
        show_result(connection, one).await?;
    }
    Ok(())
}

/// The last error is the command's; earlier ones are said as they come.
fn later(earlier: Option<anyhow::Error>, error: anyhow::Error) -> anyhow::Error {
    if let Some(earlier) = earlier {
        eprintln!("{earlier:#}");
    }
    error
}

/// What the server has no table of: its name and age.
fn as_table(answer: Value) -> Value {
    if answer["kind"] == "Table" {
        return answer;
    }
    let age = api::printing::age(&answer, jiff::Timestamp::now());
    json!({
        "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Age", "priority": 0}],
        "rows": [{"cells": [name_of(&answer), age], "object": answer}],
    })
}

/// The result of a job of the seed, below its line; Kubernetes' own jobs have none.
async fn show_result(connection: &Connection, one: &Asked) -> Result<()> {
    if one.target.resource.kind != "Job" || one.target.name.is_none() {
        return Ok(());
    }
    let job = connection.get(&one.path).await?;
    let Some(file) = job["metadata"]["annotations"][api::dialect::SLURM_RESULT].as_str() else {
        return Ok(());
    };
    let namespace = job["metadata"]["namespace"].as_str().unwrap_or_default();
    let selector = format!("batch.kubernetes.io/job-name={}", name_of(&job));
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let pods = connection.get(&format!("{path}?labelSelector={}", select::encode(&selector))).await?;
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    let newest = pods
        .iter()
        .max_by_key(|pod| pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned());
    match newest {
        Some(pod) if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Running")) => {
            let text = connection
                .text(Method::GET, &format!("{path}/{}/log", name_of(pod)), "", None, "*/*")
                .await?;
            println!("\n{file}:\n{}", text.trim_end());
        }
        Some(pod) => {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let why = conditions.iter().find_map(|condition| condition["message"].as_str());
            let phase = pod["status"]["phase"].as_str().unwrap_or("Pending");
            println!(
                "\n{file}: no result yet: pod {} is {phase}{}",
                name_of(pod),
                why.map(|why| format!(": {why}")).unwrap_or_default()
            );
        }
        None => println!("\n{file}: no result yet: the job has no pod"),
    }
    Ok(())
}

async fn show_objects(
    connection: &Connection,
    asked: &[Asked],
    flags: &Flags,
    output: &Output,
) -> Result<()> {
    let mut items: Vec<(Option<&Resource>, Value)> = Vec::new();
    let mut failure = None;
    for one in asked {
        let mut answer = match fetch(connection, one, flags, "application/json").await {
            Ok(Some(answer)) => answer,
            Ok(None) => continue,
            Err(error) => {
                failure = Some(later(failure, error));
                continue;
            }
        };
        let is_list = one.target.name.is_none();
        let found: Vec<Value> = if is_list {
            answer["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
        } else {
            vec![answer]
        };
        for mut item in found {
            // A subresource may be of another kind.
            if flags.subresource.is_none() {
                item["apiVersion"] = one.target.resource.api_version().into();
                item["kind"] = one.target.resource.kind.clone().into();
            }
            if !flags.show_managed_fields && matches!(output, Output::Yaml | Output::Kyaml | Output::Json) {
                item["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
            }
            items.push((Some(&one.target.resource), item));
        }
    }
    if let Some(path) = &flags.sort_by {
        rows::sort(path, &mut items, |(_, item)| item)?;
    }
    if *output == Output::Name {
        for (resource, item) in &items {
            println!("{}", resource.map_or_else(String::new, |resource| resource.named(name_of(item))));
        }
        return failure.map_or(Ok(()), Err);
    }
    let is_one = matches!(asked, [one] if one.target.name.is_some());
    let mut items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
    if is_one && items.is_empty() {
        return failure.map_or(Ok(()), Err);
    }
    let value = if is_one {
        items.remove(0)
    } else {
        json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
    };
    print!("{}", output.show_columns_or(&value, flags.no_headers)?);
    failure.map_or(Ok(()), Err)
}

/// An object, or a whole list, page by page. Nothing, if it is not there and that is fine.
async fn fetch(connection: &Connection, one: &Asked, flags: &Flags, accept: &str) -> Result<Option<Value>> {
    let include = if flags.sort_by.is_some() { "Object" } else { "Metadata" };
    let get = |path: String| async move {
        connection.send_as(Method::GET, &path, "application/json", None, accept).await
    };
    let of_table = if accept == TABLE { format!("includeObject={include}") } else { String::new() };
    let path = &one.path;
    if one.target.name.is_some() {
        return match get(format!("{path}?{of_table}")).await {
            Err(error) if flags.ignore_not_found && is_not_found(&error) => Ok(None),
            answer => {
                let answer = answer?;
                let row = &answer["rows"][0]["object"];
                one.target.check(if row.is_object() { row } else { &answer })?;
                Ok(Some(answer))
            }
        };
    }
    let query = select::query(&flags.select);
    let query = if query.is_empty() { "?".to_owned() } else { format!("{query}&") };
    let limit = if flags.chunk_size > 0 { format!("limit={}&", flags.chunk_size) } else { String::new() };
    let mut page = get(format!("{path}{query}{limit}{of_table}")).await?;
    let mut next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    let list = if page.get("rows").is_some() { "rows" } else { "items" };
    while !next.is_empty() {
        let mut more =
            get(format!("{path}{query}{limit}{of_table}&continue={}", select::encode(&next))).await?;
        next = more["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if let (Some(all), Some(more)) = (page[list].as_array_mut(), more[list].as_array_mut()) {
            all.append(more);
        }
    }
    Ok(Some(page))
}
