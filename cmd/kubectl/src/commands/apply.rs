//! `kubectl apply`: objects become as files say. The server merges; what client-side users own is taken over first.
//!
//! ```text
//! Manifest ──> live object ──> takeover of client-side fields ──> server-side apply ──> created | configured | unchanged
//! ```

mod autoscalers;
mod last_applied;
mod prune;
mod takeover;

pub use takeover::{LAST_APPLIED, MANAGER};

use crate::change::DryRun;
use crate::connection::{ClusterFlags, Connection, Refusal, is_not_found};
use crate::manifests::{FileFlags, Manifest, check_names};
use crate::output::Output;
use crate::resources::Resource;
use crate::select::{encode, name_of};
use anyhow::{Result, bail};
use http::Method;
use serde_json::Value;
use std::process::ExitCode;

/// What `apply` is told.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example:\n  kubectl apply -f web.yaml\n  kubectl apply web.yaml\n  cat web.yaml | kubectl apply -f -"
)]
pub struct Flags {
    #[command(subcommand)]
    command: Option<last_applied::Command>,
    /// Files or folders of objects.
    words: Vec<String>,
    #[command(flatten)]
    files: FileFlags,
    /// Who the changes are recorded for.
    #[arg(long, default_value = takeover::MANAGER)]
    field_manager: String,
    /// Take over fields that others have set.
    #[arg(long)]
    force_conflicts: bool,
    /// As upstream's: also fields that other kubectl commands have set are only taken over with --force-conflicts.
    #[arg(long)]
    server_side: bool,
    /// none, client or server: only say what would be done.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "client", default_value = "none")]
    dry_run: DryRun,
    /// strict, warn or ignore: what is done about unknown fields.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "strict", default_value = "strict")]
    validate: Validate,
    /// name, yaml, json, …: show the objects.
    #[arg(long, short)]
    output: Option<String>,
    /// Also show who set which field.
    #[arg(long)]
    show_managed_fields: bool,
    /// Delete objects that were applied before and are in no file any more; with -l or --all.
    #[arg(long)]
    prune: bool,
    /// Only objects with these labels.
    #[arg(long, short = 'l')]
    selector: Option<String>,
    /// Prune among all objects of the namespaces.
    #[arg(long)]
    all: bool,
    /// Kinds to prune, as GROUP/VERSION/KIND; may be given several times.
    #[arg(long)]
    prune_allowlist: Vec<String>,
    /// Delete and make anew what cannot be changed.
    #[arg(long)]
    force: bool,
    /// Accepted as upstream's.
    #[arg(long, hide = true, num_args = 0..=1)]
    overwrite: Option<String>,
    /// Accepted as upstream's: pruned objects are waited for.
    #[arg(long, hide = true, num_args = 0..=1)]
    wait: Option<String>,
}

/// What is done about fields that a kind does not have.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Validate {
    /// The object is refused.
    #[default]
    #[value(alias = "true")]
    Strict,
    /// The user is told.
    Warn,
    /// Nothing.
    #[value(alias = "false")]
    Ignore,
}

impl Validate {
    /// The query of a write.
    pub fn query(self) -> &'static str {
        match self {
            Validate::Strict => "&fieldValidation=Strict",
            Validate::Warn => "&fieldValidation=Warn",
            Validate::Ignore => "&fieldValidation=Ignore",
        }
    }
}

/// Applies. What happened to each object is said, also if another one is refused.
pub async fn run(cluster: &ClusterFlags, mut flags: Flags) -> Result<ExitCode> {
    if let Some(command) = flags.command {
        last_applied::run(cluster, command).await?;
        return Ok(ExitCode::SUCCESS);
    }
    flags.files.filename.append(&mut flags.words);
    if !flags.files.any() {
        bail!("must specify one of -f and -k, or a file: kubectl apply -f web.yaml");
    }
    if flags.prune && !flags.all && flags.selector.is_none() {
        bail!(
            "all resources selected for prune without explicitly passing --all. To prune all resources, pass the --all flag. If you did not mean to prune all resources, specify a label selector"
        );
    }
    let output = Output::parse(flags.output.as_deref())?;
    let connection = Connection::open(cluster).await?;
    let mut manifests = flags.files.manifests(&connection).await?;
    if let Some(selector) = &flags.selector {
        let selector = api::selector::LabelSelector::parse(selector)?;
        manifests.all.retain(|manifest| crate::select::has_labels(&selector, &manifest.value));
    }
    let count = manifests.all.len();
    let (mut applied, mut failed, mut to_run) = (Vec::new(), 0, Vec::new());
    for index in 0..count {
        let sent = match manifests.resource(&connection, index).await {
            Ok(resource) => {
                let sent = apply_one(&connection, &flags, &resource, &manifests.all[index]).await;
                sent.map(|(verb, object)| (resource, verb, object))
            }
            Err(error) => Err(error),
        };
        match sent {
            Ok((resource, verb, object)) => {
                show(&output, &flags, &resource, &object, verb)?;
                // The seed's form, which has no apiVersion, is a workflow that is to be run.
                let is_seeds = manifests.all[index].document.value["apiVersion"].is_null();
                if is_seeds && resource.kind == "Workflow" && flags.dry_run == DryRun::None {
                    to_run.push((object.clone(), verb));
                }
                applied.push((resource, object));
            }
            Err(error) => {
                failed += 1;
                eprintln!("{}", manifests.located(&connection, index, &error).await);
                if error.downcast_ref::<crate::connection::Unreachable>().is_some() {
                    bail!("{} of {count} objects were not applied", count - applied.len());
                }
            }
        }
    }
    if flags.dry_run == DryRun::None {
        autoscalers::warn(&connection, &manifests.catalogue, &applied).await;
    }
    if failed > 0 && failed == count && count > 1 {
        bail!("none of the {count} objects was applied");
    } else if failed > 0 && count > 1 {
        bail!("{failed} of {count} objects were not applied; the others were");
    } else if failed > 0 {
        bail!("nothing was applied");
    }
    if flags.prune {
        prune::run(&connection, &manifests.catalogue, &flags, &applied).await?;
    }
    let mut code = ExitCode::SUCCESS;
    for (workflow, verb) in to_run {
        let own = super::workflow::after_apply(&connection, &workflow, verb).await?;
        code = if own == ExitCode::SUCCESS { code } else { own };
    }
    Ok(code)
}

async fn apply_one(
    connection: &Connection,
    flags: &Flags,
    resource: &Resource,
    manifest: &Manifest,
) -> Result<(&'static str, Value)> {
    let name = name_of(&manifest.value);
    if name.is_empty() {
        bail!("metadata.name is missing: apply needs one, and cannot use generateName (kubectl create can)");
    }
    let path = format!("{}/{name}", resource.path(manifest.value["metadata"]["namespace"].as_str()));
    let mut before = match connection.get(&path).await {
        Ok(object) => Some(object),
        Err(error) if is_not_found(&error) => None,
        Err(error) => return Err(error),
    };
    if let Some(live) = &mut before {
        check_names(live, &manifest.value)?;
        if flags.dry_run == DryRun::None && flags.field_manager == takeover::MANAGER {
            takeover::take_over(connection, &path, live).await?;
        }
    }
    if flags.dry_run == DryRun::Client {
        return Ok((if before.is_some() { "configured" } else { "created" }, manifest.value.clone()));
    }
    let object = match send(connection, flags, &path, &manifest.value).await {
        Err(error) if flags.force && before.is_some() && is_immutable(&error) => {
            make_anew(connection, flags, &path, &manifest.value).await?
        }
        sent => sent?,
    };
    if let Some(before) = &before {
        for kept in takeover::kept_fields(before, &manifest.value, &object) {
            eprintln!("Warning: {kept} is no longer in the file, and stays: somebody else has set it since");
        }
    }
    let verb = match &before {
        _ if flags.server_side => "serverside-applied",
        None => "created",
        Some(before) if is_same(before, &object) => "unchanged",
        Some(_) => "configured",
    };
    Ok((verb, object))
}

/// Sends an object. Fields that the user's other commands have set are taken over, and that is said.
async fn send(connection: &Connection, flags: &Flags, path: &str, value: &Value) -> Result<Value> {
    let dry = if flags.dry_run == DryRun::Server { "&dryRun=All" } else { "" };
    let query = format!("?fieldManager={}{}{dry}", encode(&flags.field_manager), flags.validate.query());
    let patch = |force: bool| {
        let path = format!("{path}{query}{}", if force { "&force=true" } else { "" });
        async move {
            let kind = "application/apply-patch+yaml";
            connection.send_as(Method::PATCH, &path, kind, Some(value.to_string()), "application/json").await
        }
    };
    match patch(flags.force_conflicts).await {
        Err(error) if !flags.server_side && takeover::is_with_own_commands(&error) => {
            if let Some(refusal) = error.downcast_ref::<Refusal>() {
                for cause in refusal.details["causes"].as_array().into_iter().flatten() {
                    let text = |field: &str| cause[field].as_str().unwrap_or_default();
                    eprintln!(
                        "Note: took over {} ({})",
                        text("field").trim_start_matches('.'),
                        text("message")
                    );
                }
            }
            patch(true).await
        }
        sent => sent,
    }
}

fn is_immutable(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.code == 422)
}

async fn make_anew(connection: &Connection, flags: &Flags, path: &str, value: &Value) -> Result<Value> {
    connection.send(Method::DELETE, path, None).await?;
    crate::commands::delete::wait_until_gone(connection, path, &Value::Null, None).await?;
    send(connection, flags, path, value).await
}

/// Whether nothing but bookkeeping differs.
fn is_same(before: &Value, after: &Value) -> bool {
    if before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"] {
        let stripped = |object: &Value| {
            let mut object = object.clone();
            for field in ["managedFields", "resourceVersion", "generation"] {
                object["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
            }
            object
        };
        return stripped(before) == stripped(after);
    }
    false
}

fn show(output: &Output, flags: &Flags, resource: &Resource, object: &Value, verb: &str) -> Result<()> {
    match output {
        Output::Table | Output::Wide => {
            println!("{} {verb}{}", resource.named(name_of(object)), flags.dry_run.suffix());
        }
        Output::Name => println!("{}", resource.named(name_of(object))),
        output => {
            let mut object = object.clone();
            if !flags.show_managed_fields {
                object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
            }
            print!("{}", output.show(&object)?);
        }
    }
    Ok(())
}
