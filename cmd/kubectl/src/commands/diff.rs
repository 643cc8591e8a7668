//! `kubectl diff`: what an apply of files would change.

use crate::connection::{ClusterFlags, Connection, is_not_found};
use crate::manifests::{FileFlags, check_names};
use crate::resources::Resource;
use crate::select::{encode, name_of};
use crate::yaml;
use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::Value;
use similar::TextDiff;
use std::process::{Command, ExitCode};

/// What `diff` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl diff -f web.yaml\n\nExit codes: 0 nothing would change, 1 something would, 2 and more: an error."
)]
pub struct Flags {
    #[command(flatten)]
    files: FileFlags,
    /// Who the changes are recorded for.
    #[arg(long, default_value = super::apply::MANAGER)]
    field_manager: String,
    /// Accepted as upstream's: changes are always merged by the server.
    #[arg(long, hide = true)]
    server_side: bool,
    /// Take over fields that others have set.
    #[arg(long)]
    force_conflicts: bool,
    /// Also show who set which field.
    #[arg(long)]
    show_managed_fields: bool,
    /// Only objects with these labels.
    #[arg(long, short = 'l')]
    selector: Option<String>,
}

/// Shows differences.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<ExitCode> {
    match differences(cluster, &flags).await {
        Ok(false) => Ok(ExitCode::SUCCESS),
        Ok(true) => Ok(ExitCode::from(1)),
        Err(error) => {
            eprintln!("error: {error:#}");
            Ok(ExitCode::from(2))
        }
    }
}

async fn differences(cluster: &ClusterFlags, flags: &Flags) -> Result<bool> {
    if !flags.files.any() {
        bail!("must specify one of -f and -k");
    }
    let connection = Connection::open(cluster).await?;
    let mut manifests = flags.files.manifests(&connection).await?;
    if let Some(selector) = &flags.selector {
        let selector = api::selector::LabelSelector::parse(selector)?;
        manifests.all.retain(|manifest| crate::select::has_labels(&selector, &manifest.value));
    }
    let mut files = Vec::new();
    for index in 0..manifests.all.len() {
        let resource = manifests.resource(&connection, index).await?;
        match compare(&connection, flags, &resource, &manifests.all[index].value).await {
            Ok(found) => files.push(found),
            Err(error) => bail!("{}", manifests.located(&connection, index, &error).await),
        }
    }
    files.retain(|(_, before, after)| before != after);
    show(&files)?;
    Ok(!files.is_empty())
}

/// The name of an object's file, and its text before and after.
async fn compare(
    connection: &Connection,
    flags: &Flags,
    resource: &Resource,
    value: &Value,
) -> Result<(String, String, String)> {
    let namespace = value["metadata"]["namespace"].as_str();
    let path = format!("{}/{}", resource.path(namespace), name_of(value));
    let live = match connection.get(&path).await {
        Ok(live) => {
            check_names(&live, value)?;
            Some(live)
        }
        Err(error) if is_not_found(&error) => None,
        Err(error) => return Err(error),
    };
    let query = format!("?fieldManager={}&dryRun=All&fieldValidation=Strict", encode(&flags.field_manager));
    // What stands in the way of a real apply is for apply to say; here the question is what it would make.
    let force = if flags.force_conflicts || !flags.server_side { "&force=true" } else { "" };
    let merged = connection
        .send_as(
            Method::PATCH,
            &format!("{path}{query}{force}"),
            "application/apply-patch+yaml",
            Some(value.to_string()),
            "application/json",
        )
        .await?;
    let text = |object: &Value| {
        let mut object = object.clone();
        if !flags.show_managed_fields {
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
        }
        if resource.kind == "Secret" {
            mask(&mut object);
        }
        yaml::emit(&object)
    };
    let name = format!(
        "{}.{}.{}.{}.{}",
        if resource.group.is_empty() { "" } else { &resource.group },
        resource.version,
        resource.kind,
        namespace.unwrap_or_default(),
        name_of(value)
    );
    Ok((name.trim_start_matches('.').to_owned(), live.as_ref().map(text).unwrap_or_default(), text(&merged)))
}

/// A secret's contents are not for terminals.
fn mask(secret: &mut Value) {
    for field in ["data", "stringData"] {
        for value in secret[field].as_object_mut().into_iter().flat_map(|fields| fields.values_mut()) {
            *value = "***".into();
        }
    }
}

fn show(files: &[(String, String, String)]) -> Result<()> {
    let Ok(program) = std::env::var("KUBECTL_EXTERNAL_DIFF") else {
        for (name, before, after) in files {
            let diff = TextDiff::from_lines(before, after);
            print!(
                "diff -u -N LIVE/{name} MERGED/{name}\n{}",
                diff.unified_diff().header(&format!("LIVE/{name}"), &format!("MERGED/{name}"))
            );
        }
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let (live, merged) = (folder.path().join("LIVE"), folder.path().join("MERGED"));
    std::fs::create_dir(&live)?;
    std::fs::create_dir(&merged)?;
    for (name, before, after) in files {
        if !before.is_empty() {
            std::fs::write(live.join(name), before)?;
        }
        std::fs::write(merged.join(name), after)?;
    }
    let mut words = program.split_whitespace();
    let status = Command::new(words.next().unwrap_or("diff")).args(words).arg(&live).arg(&merged).status();
    status.with_context(|| format!("run {program}"))?;
    Ok(())
}
