//! `kubectl delete`.

use crate::connection::{ClusterFlags, Connection, is_not_found};
use crate::documents;
use crate::resources::{Catalogue, Resource};
use crate::select::{self, name_of, path_of};
use anyhow::{Context, Result, bail};
use api::dialect;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// What `delete` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl delete pod web\n  kubectl delete -f web.yaml\n  kubectl delete web      # where only one object has that name"
)]
pub struct Flags {
    /// Kinds and names: `pod web`, `pod/web service/web`; or one name that only one object has.
    words: Vec<String>,
    /// Delete what files name.
    #[arg(long, short)]
    filename: Vec<String>,
    /// Only objects with these labels.
    #[arg(long, short = 'l')]
    selector: Option<String>,
    /// All of the kind in the namespace.
    #[arg(long)]
    all: bool,
    /// Do not mind what is not there.
    #[arg(long)]
    ignore_not_found: bool,
    /// background, foreground or orphan: what becomes of what belongs to it.
    #[arg(long, default_value = "background")]
    cascade: String,
    /// How long pods have to end, in seconds; -1 is their own choice.
    #[arg(long, default_value_t = -1)]
    grace_period: i64,
    /// At once, without waiting for anything.
    #[arg(long)]
    force: bool,
    /// Wait until it is gone.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    wait: bool,
}

/// Deletes.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let catalogue = Catalogue::load(&connection).await?;
    let chosen = choose(&connection, &catalogue, &flags).await?;
    if chosen.is_empty() && !flags.ignore_not_found {
        eprintln!("No resources found");
    }
    let propagation = match flags.cascade.as_str() {
        "background" | "true" => "Background",
        "foreground" => "Foreground",
        "orphan" | "false" => "Orphan",
        other => bail!("--cascade={other}: expected background, foreground or orphan"),
    };
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation});
    if flags.force {
        options["gracePeriodSeconds"] = 0.into();
    } else if flags.grace_period >= 0 {
        options["gracePeriodSeconds"] = flags.grace_period.into();
    }
    let mut waiting = Vec::new();
    for (resource, object) in &chosen {
        let path = path_of(resource, object);
        match connection.send(Method::DELETE, &path, Some(&options)).await {
            Ok(_) => {
                let how = if flags.force { "force deleted" } else { "deleted" };
                println!("{} {how}{}", quoted(resource, name_of(object)), in_namespace(resource, object));
                waiting.push((path, object["metadata"]["uid"].clone()));
            }
            Err(error) if flags.ignore_not_found && is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
    }
    if flags.wait && !flags.force {
        for (path, uid) in waiting {
            wait_until_gone(&connection, &path, &uid).await?;
        }
    }
    Ok(())
}

/// `pod "web"`, as upstream says it.
fn quoted(resource: &Resource, name: &str) -> String {
    let kind = resource.kind.to_lowercase();
    if resource.group.is_empty() {
        format!("{kind} \"{name}\"")
    } else {
        format!("{kind}.{} \"{name}\"", resource.group)
    }
}

fn in_namespace(resource: &Resource, object: &Value) -> String {
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) if resource.namespaced => format!(" from {namespace} namespace"),
        _ => String::new(),
    }
}

async fn choose(
    connection: &Connection,
    catalogue: &Catalogue,
    flags: &Flags,
) -> Result<Vec<(Resource, Value)>> {
    if !flags.filename.is_empty() {
        return from_files(connection, catalogue, &flags.filename);
    }
    if let [name] = flags.words.as_slice()
        && !name.contains(['/', ','])
        && flags.selector.is_none()
        && !flags.all
    {
        if catalogue.find(name).is_ok() {
            bail!("resource(s) were provided, but no name was specified: give a name, -l or --all");
        }
        return by_name(connection, catalogue, name).await;
    }
    let targets = select::targets(catalogue, &flags.words)?;
    let names_none = targets.iter().any(|target| target.name.is_none());
    if names_none && flags.selector.is_none() && !flags.all {
        bail!("resource(s) were provided, but no name was specified: give a name, -l or --all");
    }
    let mut chosen = Vec::new();
    for target in targets {
        let path = target.path(connection, false);
        if target.name.is_some() {
            match connection.get(&path).await {
                Ok(object) => chosen.push((target.resource, object)),
                Err(error) if flags.ignore_not_found && is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
            continue;
        }
        let query =
            flags.selector.as_ref().map(|selector| format!("?labelSelector={}", select::encode(selector)));
        let list = connection.get(&format!("{path}{}", query.unwrap_or_default())).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        chosen.extend(items.into_iter().map(|item| (target.resource.clone(), item)));
    }
    Ok(chosen)
}

fn from_files(
    connection: &Connection,
    catalogue: &Catalogue,
    files: &[String],
) -> Result<Vec<(Resource, Value)>> {
    let mut chosen = Vec::new();
    for document in documents::read(files, false)? {
        let version = |kind: &str| catalogue.of_kind(kind).map(Resource::api_version);
        let place = document.place.to_string();
        let mut value = dialect::translate(document.value, version).with_context(|| place.clone())?.value;
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let resource = catalogue.of(&text("apiVersion"), &text("kind")).with_context(|| {
            format!("{place}: no matches for kind \"{}\" in version \"{}\"", text("kind"), text("apiVersion"))
        })?;
        if resource.namespaced && value["metadata"]["namespace"].as_str().is_none() {
            value["metadata"]["namespace"] = connection.namespace.clone().into();
        }
        chosen.push((resource.clone(), value));
    }
    // What came first may be what the others stand on.
    chosen.reverse();
    Ok(chosen)
}

/// The only object of any kind that has this name. More than one, and nothing is deleted.
async fn by_name(
    connection: &Connection,
    catalogue: &Catalogue,
    name: &str,
) -> Result<Vec<(Resource, Value)>> {
    let mapped = dialect::map_name(name);
    let mut found: Vec<(Resource, Value)> = Vec::new();
    for resource in catalogue.all() {
        let can = |verb: &str| resource.verbs.iter().any(|own| own == verb);
        let is_known = found.iter().any(|(other, _)| other.plural == resource.plural);
        if !can("get") || !can("delete") || is_known || is_derived(resource) {
            continue;
        }
        let path = format!("{}/{mapped}", resource.path(Some(&connection.namespace)));
        if let Ok(object) = connection.get(&path).await {
            found.push((resource.clone(), object));
        }
    }
    match found.as_slice() {
        [] => bail!("no object of any kind is called {name:?} in namespace {}", connection.namespace),
        [_] => Ok(found),
        several => {
            let names: Vec<String> = several.iter().map(|(resource, _)| resource.named(&mapped)).collect();
            bail!(
                "several objects are called {name:?}: {}; nothing was deleted, name one of them",
                names.join(", ")
            )
        }
    }
}

/// What exists because something else of that name does.
fn is_derived(resource: &Resource) -> bool {
    matches!(resource.plural.as_str(), "endpoints" | "endpointslices" | "events" | "leases")
        || resource.group == "metrics.k8s.io"
}

async fn wait_until_gone(connection: &Connection, path: &str, uid: &Value) -> Result<()> {
    let mut pause = Duration::from_millis(20);
    loop {
        match connection.get(path).await {
            Ok(object) if uid.is_null() || object["metadata"]["uid"] == *uid => {}
            Ok(_) => return Ok(()),
            Err(error) if is_not_found(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}
