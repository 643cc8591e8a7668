//! `kubectl delete`.

use crate::change::DryRun;
use crate::connection::{ClusterFlags, Connection, is_not_found};
use crate::manifests::{FileFlags, check_asked};
use crate::resources::{Catalogue, Resource};
use crate::select::{self, name_of, path_of};
use anyhow::{Result, bail};
use api::dialect;
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// What `delete` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl delete pod web\n  kubectl delete -f web.yaml\n  kubectl delete web      # where only one object has that name"
)]
pub struct Flags {
    /// Kinds and names: `pod web`, `pod/web service/web`; or one name that only one object has.
    words: Vec<String>,
    #[command(flatten)]
    files: FileFlags,
    /// Only objects with these labels.
    #[arg(long, short = 'l')]
    selector: Option<String>,
    /// Only objects with these fields.
    #[arg(long)]
    field_selector: Option<String>,
    /// All of the kind in the namespace.
    #[arg(long)]
    all: bool,
    /// In all namespaces.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Do not mind what is not there.
    #[arg(long)]
    ignore_not_found: bool,
    /// background, foreground or orphan: what becomes of what belongs to it.
    #[arg(long, num_args = 0..=1, default_missing_value = "background", default_value = "background")]
    cascade: String,
    /// How long pods have to end, in seconds; -1 is their own choice.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    grace_period: i64,
    /// At once, without waiting for anything.
    #[arg(long)]
    force: bool,
    /// Within a second.
    #[arg(long)]
    now: bool,
    /// Wait until it is gone.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    wait: bool,
    /// How long to wait, such as 30s; 0 is as long as it takes.
    #[arg(long, default_value = "0s")]
    timeout: String,
    /// none, client or server: only say what would be done.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "client", default_value = "none")]
    dry_run: DryRun,
    /// name: show only names.
    #[arg(long, short)]
    output: Option<String>,
    /// Delete this path of the server.
    #[arg(long)]
    raw: Option<String>,
}

/// Deletes.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    if let Some(path) = &flags.raw {
        let kind = "application/json";
        print!("{}", connection.text(Method::DELETE, path, kind, None, kind).await?);
        return Ok(());
    }
    if flags.output.as_deref().is_some_and(|output| output != "name") {
        bail!("unexpected -o output mode: {}. We only support '-o name'", flags.output.unwrap_or_default());
    }
    let timeout = crate::duration::parse(&flags.timeout)?;
    let options = options(&flags)?;
    let chosen = choose(&connection, &flags).await?;
    if chosen.is_empty() && !flags.ignore_not_found {
        println!("No resources found");
    }
    let is_forced = flags.force && options["gracePeriodSeconds"] == 0;
    if is_forced && !chosen.is_empty() {
        eprintln!(
            "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. \
             The resource may continue to run on the cluster indefinitely."
        );
    }
    let mut waiting = Vec::new();
    let mut failure = None;
    for (resource, object) in &chosen {
        match delete_one(&connection, &flags, &options, resource, object).await {
            Ok(uid) => {
                say(&flags, resource, object, is_forced);
                waiting.push((resource, object, uid));
            }
            Err(error) if flags.ignore_not_found && is_not_found(&error) => {}
            Err(error) => {
                if let Some(earlier) = failure.replace(error) {
                    eprintln!("{earlier:#}");
                }
            }
        }
    }
    let is_node = |resource: &Resource| resource.group.is_empty() && resource.plural == "nodes";
    let is_told = flags.output.is_none() && flags.dry_run == DryRun::None;
    if is_told && waiting.iter().any(|(resource, ..)| is_node(resource)) {
        eprintln!(
            "Note: pods there end, and the node stays away until its kubelet is started anew. For good: kubeadm reset on \
             its machine."
        );
    }
    if flags.wait && !is_forced && flags.dry_run == DryRun::None {
        let ends = (!timeout.is_zero()).then(|| Instant::now() + timeout);
        for (resource, object, uid) in waiting {
            let path = path_of(resource, object);
            if !wait_until_gone(&connection, &path, &uid, ends).await? {
                bail!("timed out waiting for the condition on {}/{}", resource.plural, name_of(object));
            }
        }
    }
    failure.map_or(Ok(()), Err)
}

fn options(flags: &Flags) -> Result<Value> {
    let propagation = match flags.cascade.as_str() {
        "background" | "true" => "Background",
        "foreground" => "Foreground",
        "orphan" | "false" => "Orphan",
        other => {
            bail!("invalid cascade value ({other}). Must be \"background\", \"foreground\", or \"orphan\"")
        }
    };
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation});
    match (flags.grace_period, flags.force, flags.now) {
        (0, false, false) => options["gracePeriodSeconds"] = 1.into(),
        (seconds, _, false) if seconds >= 0 => options["gracePeriodSeconds"] = seconds.into(),
        (seconds, _, true) if seconds >= 0 => bail!("--now and --grace-period cannot be specified together"),
        (_, _, true) => options["gracePeriodSeconds"] = 1.into(),
        (_, true, false) => options["gracePeriodSeconds"] = 0.into(),
        _ => {}
    }
    if flags.dry_run == DryRun::Server {
        options["dryRun"] = json!(["All"]);
    }
    Ok(options)
}

/// Sends the request. The object's uid, as far as the server tells it.
async fn delete_one(
    connection: &Connection,
    flags: &Flags,
    options: &Value,
    resource: &Resource,
    object: &Value,
) -> Result<Value> {
    let path = path_of(resource, object);
    if flags.dry_run == DryRun::Client {
        return Ok(connection.get(&path).await?["metadata"]["uid"].clone());
    }
    let answer = connection.send(Method::DELETE, &path, Some(options)).await?;
    let told = [&answer["metadata"]["uid"], &answer["details"]["uid"], &object["metadata"]["uid"]];
    Ok(told.into_iter().find(|uid| uid.is_string()).cloned().unwrap_or_default())
}

fn say(flags: &Flags, resource: &Resource, object: &Value, is_forced: bool) {
    if flags.output.is_some() {
        println!("{}", resource.named(name_of(object)));
        return;
    }
    let how = if is_forced { "force deleted" } else { "deleted" };
    let namespace = match object["metadata"]["namespace"].as_str() {
        Some(namespace) if resource.namespaced => format!(" from {namespace} namespace"),
        _ => String::new(),
    };
    println!("{} {how}{namespace}{}", quoted(resource, name_of(object)), flags.dry_run.suffix());
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

/// The objects that are meant; of named ones only the name is known.
async fn choose(connection: &Connection, flags: &Flags) -> Result<Vec<(Resource, Value)>> {
    if flags.files.any() {
        return flags.files.objects(connection).await;
    }
    if flags.all && flags.selector.is_some() {
        bail!("setting 'all' parameter but found a non empty selector. ");
    }
    let many = flags.selector.is_some() || flags.field_selector.is_some() || flags.all;
    if let [name] = flags.words.as_slice()
        && !name.contains(['/', ','])
        && !many
    {
        let catalogue = Catalogue::load(connection).await?;
        if catalogue.find(name).is_ok() {
            bail!("resource(s) were provided, but no name was specified");
        }
        return by_name(connection, &catalogue, name).await;
    }
    if flags.words.is_empty() {
        bail!("You must provide one or more resources by argument or filename.");
    }
    let catalogue = Catalogue::for_words(connection, &flags.words).await?;
    let targets = select::targets(&catalogue, &flags.words)?;
    let names_none = targets.iter().any(|target| target.name.is_none());
    if names_none && !many {
        bail!("resource(s) were provided, but no name was specified");
    }
    if !names_none && many {
        bail!("name cannot be provided when a selector is specified");
    }
    let mut chosen = Vec::new();
    for target in targets {
        if let Some(name) = &target.name {
            if target.asked.is_some() {
                let path = target.path(connection, false);
                match connection.get(&path).await {
                    Err(error) if is_not_found(&error) => {}
                    live => target.check(&live?)?,
                }
            }
            let mut metadata = json!({ "name": name });
            if target.resource.namespaced {
                metadata["namespace"] = connection.namespace.clone().into();
            }
            chosen.push((target.resource, json!({ "metadata": metadata })));
            continue;
        }
        let select = select::SelectFlags {
            selector: flags.selector.clone(),
            field_selector: flags.field_selector.clone(),
            ..select::SelectFlags::default()
        };
        let path = format!("{}{}", target.path(connection, flags.all_namespaces), select::query(&select));
        let list = connection.get(&path).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        chosen.extend(items.into_iter().map(|item| (target.resource.clone(), item)));
    }
    Ok(chosen)
}

/// The only object of any kind that has this name. More than one, and nothing is deleted.
async fn by_name(
    connection: &Connection,
    catalogue: &Catalogue,
    name: &str,
) -> Result<Vec<(Resource, Value)>> {
    let mapped = dialect::map_name(name);
    let mut kinds: Vec<&Resource> = Vec::new();
    for resource in catalogue.all() {
        let can = |verb: &str| resource.verbs.iter().any(|own| own == verb);
        let is_known = kinds.iter().any(|other| other.plural == resource.plural);
        if can("get") && can("delete") && !is_known && !is_derived(resource) {
            kinds.push(resource);
        }
    }
    let looks = kinds.iter().map(|resource| async {
        let path = format!("{}/{mapped}", resource.path(Some(&connection.namespace)));
        connection.get(&path).await.ok().map(|object| ((*resource).clone(), object))
    });
    let found: Vec<(Resource, Value)> =
        futures::future::join_all(looks).await.into_iter().flatten().collect();
    match found.as_slice() {
        [] => bail!("no object of any kind is called {name:?} in namespace {}", connection.namespace),
        [(_, live)] => check_asked(name, live).map(|()| found),
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

/// Whether an object is gone, or another one has its name, before the time is over.
pub async fn wait_until_gone(
    connection: &Connection,
    path: &str,
    uid: &Value,
    ends: Option<Instant>,
) -> Result<bool> {
    let mut pause = Duration::from_millis(20);
    loop {
        match connection.get(path).await {
            Ok(object) if uid.is_null() || object["metadata"]["uid"] == *uid => {}
            Ok(_) => return Ok(true),
            Err(error) if is_not_found(&error) => return Ok(true),
            Err(error) => return Err(error),
        }
        if ends.is_some_and(|ends| Instant::now() + pause > ends) {
            return Ok(false);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}
