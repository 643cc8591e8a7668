//! `kubectl create`: new objects, from files or by a generator for a kind.
//!
//! ```text
//! files ─────────────> Manifest ┐
//! flags ──generator──> object ──┴──> POST (or, with --dry-run=client, only shown)
//! ```

mod access;
mod data;
mod network;
mod workloads;

use super::apply::Validate;
use crate::change::{ChangeFlags, DryRun, unsent};
use crate::connection::{ClusterFlags, Connection, Refusal};
use crate::manifests::{FileFlags, check_names, unseen};
use crate::resources::{Catalogue, Resource};
use crate::select::name_of;
use crate::yaml;
use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::Value;

/// What `create` is told.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example:\n  kubectl create -f web.yaml\n  kubectl create deployment web --image=nginx"
)]
pub struct Flags {
    #[command(subcommand)]
    generator: Option<Generator>,
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    how: HowFlags,
    /// Change the objects in an editor first.
    #[arg(long)]
    edit: bool,
    /// Only objects with these labels.
    #[arg(long, short = 'l')]
    selector: Option<String>,
    /// Send the file to this path of the server.
    #[arg(long)]
    raw: Option<String>,
}

/// How objects are made.
#[derive(clap::Args, Clone, Default)]
pub struct HowFlags {
    #[command(flatten)]
    pub change: ChangeFlags,
    /// strict, warn or ignore: what is done about unknown fields.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "strict", default_value = "strict")]
    pub validate: Validate,
    /// Note the object for client-side apply.
    #[arg(long)]
    pub save_config: bool,
}

/// What can be made without a file.
#[derive(clap::Subcommand)]
enum Generator {
    /// A Deployment.
    #[command(alias = "deploy")]
    Deployment(workloads::Deployment),
    /// A Job.
    Job(workloads::Job),
    /// A CronJob.
    #[command(alias = "cj")]
    Cronjob(workloads::CronJob),
    /// A ConfigMap.
    #[command(alias = "cm")]
    Configmap(data::ConfigMap),
    /// A Secret.
    #[command(subcommand)]
    Secret(data::Secret),
    /// A Namespace.
    #[command(alias = "ns")]
    Namespace(data::Named),
    /// A ServiceAccount.
    #[command(alias = "sa")]
    Serviceaccount(data::Named),
    /// A ResourceQuota.
    #[command(alias = "resourcequota")]
    Quota(data::Quota),
    /// A PriorityClass.
    #[command(alias = "pc")]
    Priorityclass(data::PriorityClass),
    /// A PodDisruptionBudget.
    #[command(alias = "pdb")]
    Poddisruptionbudget(data::DisruptionBudget),
    /// A Service.
    #[command(subcommand, alias = "svc")]
    Service(network::Service),
    /// An Ingress.
    #[command(alias = "ing")]
    Ingress(network::Ingress),
    /// A Role.
    Role(access::Role),
    /// A ClusterRole.
    Clusterrole(access::Role),
    /// A RoleBinding.
    Rolebinding(access::Binding),
    /// A ClusterRoleBinding.
    Clusterrolebinding(access::Binding),
    /// A token for a ServiceAccount.
    Token(access::Token),
}

/// Creates.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    if let Some(generator) = flags.generator {
        let connection = Connection::open_or_offline(cluster).await?;
        return generate(&connection, generator).await;
    }
    let connection = Connection::open(cluster).await?;
    match &flags.raw {
        Some(_) => raw(&connection, &flags).await,
        None if flags.files.any() => from_files(&connection, flags).await,
        None => bail!(
            "must specify one of -f and -k, or what to create: kubectl create deployment web --image=nginx"
        ),
    }
}

/// Sends a file as it is.
async fn raw(connection: &Connection, flags: &Flags) -> Result<()> {
    let path = flags.raw.as_deref().unwrap_or_default();
    print!("{}", send_raw(connection, Method::POST, path, &flags.files).await?);
    Ok(())
}

/// Sends the only file as it is to a path; what the server answered.
pub async fn send_raw(
    connection: &Connection,
    method: Method,
    path: &str,
    files: &FileFlags,
) -> Result<String> {
    let [file] = files.filename.as_slice() else { bail!("--raw can only use a single local file or stdin") };
    let text = if file == "-" {
        std::io::read_to_string(std::io::stdin()).context("read standard input")?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("read {file}"))?
    };
    connection.text(method, path, "application/json", Some(text), "application/json").await
}

async fn from_files(connection: &Connection, flags: Flags) -> Result<()> {
    let mut manifests = flags.files.manifests(connection).await?;
    if let Some(selector) = &flags.selector {
        let selector = api::selector::LabelSelector::parse(selector)?;
        manifests.all.retain(|manifest| crate::select::has_labels(&selector, &manifest.value));
    }
    let count = manifests.all.len();
    let mut failed = 0;
    for index in 0..count {
        let sent = async {
            let resource = manifests.resource(connection, index).await?;
            let mut value = manifests.all[index].value.clone();
            if flags.edit {
                value = edited(&value)?;
            }
            create_one(connection, &flags.how, &resource, value).await
        };
        if let Err(error) = sent.await {
            failed += 1;
            eprintln!("{}", manifests.located(connection, index, &error).await);
        }
    }
    match failed {
        0 => Ok(()),
        failed if count > 1 => bail!("{failed} of {count} objects were not created; the others were"),
        _ => bail!("nothing was created"),
    }
}

fn edited(value: &Value) -> Result<Value> {
    let text = crate::editor::edit(&yaml::emit(value))?;
    let node = yaml::parse(&text).map_err(|error| anyhow::anyhow!("line {}: {error}", error.at.line))?;
    Ok(node.context("nothing is left")?.resolve(yaml::Unknown))
}

/// Makes one object and shows it.
pub async fn create_one(
    connection: &Connection,
    how: &HowFlags,
    resource: &Resource,
    mut value: Value,
) -> Result<()> {
    if how.save_config {
        let note = format!("{value}\n");
        value["metadata"]["annotations"][super::apply::LAST_APPLIED] = note.into();
    }
    if how.change.dry_run == DryRun::Client {
        return how.change.show(resource, &value, "created");
    }
    let namespace = value["metadata"]["namespace"].as_str().map(str::to_owned);
    let collection = resource.path(Some(namespace.as_deref().unwrap_or(&connection.namespace)));
    let path = format!("{collection}{}{}", how.change.query("kubectl-create"), how.validate.query());
    match connection.send(Method::POST, &path, Some(&value)).await {
        Ok(object) => how.change.show(resource, &object, "created"),
        Err(error) => {
            // Two of the seed's names may have become one.
            if error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.reason == "AlreadyExists")
                && let Ok(live) = connection.get(&format!("{collection}/{}", name_of(&value))).await
            {
                check_names(&live, &value)?;
            }
            Err(error)
        }
    }
}

async fn generate(connection: &Connection, generator: Generator) -> Result<()> {
    let (value, how) = match generator {
        Generator::Deployment(flags) => flags.object()?,
        Generator::Job(flags) => flags.object(connection).await?,
        Generator::Cronjob(flags) => flags.object()?,
        Generator::Configmap(flags) => flags.object()?,
        Generator::Secret(flags) => flags.object()?,
        Generator::Namespace(flags) => flags.object("Namespace"),
        Generator::Serviceaccount(flags) => flags.object("ServiceAccount"),
        Generator::Quota(flags) => flags.object()?,
        Generator::Priorityclass(flags) => flags.object(),
        Generator::Poddisruptionbudget(flags) => flags.object()?,
        Generator::Service(flags) => flags.object()?,
        Generator::Ingress(flags) => flags.object()?,
        Generator::Role(flags) => flags.object(connection, "Role").await?,
        Generator::Clusterrole(flags) => flags.object(connection, "ClusterRole").await?,
        Generator::Rolebinding(flags) => flags.object("RoleBinding")?,
        Generator::Clusterrolebinding(flags) => flags.object("ClusterRoleBinding")?,
        Generator::Token(flags) => return flags.run(connection).await,
    };
    make(connection, &how, value).await
}

/// Makes an object that a program made: finds its kind, and puts it into the namespace that is meant. What is only
/// pretended needs no server.
pub async fn make(connection: &Connection, how: &HowFlags, mut value: Value) -> Result<()> {
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    if how.change.dry_run == DryRun::Client {
        let is_clusters = text("kind").starts_with("Cluster")
            || text("kind") == "Namespace"
            || text("kind") == "PriorityClass";
        if !is_clusters {
            value["metadata"]["namespace"] = connection.namespace.clone().into();
        }
        return create_one(connection, how, &unseen(&value), unsent(connection, &value)).await;
    }
    let catalogue = Catalogue::for_words(connection, &[text("kind")]).await?;
    let resource = catalogue.of(&text("apiVersion"), &text("kind")).cloned();
    let resource =
        resource.with_context(|| format!("the server has no {} {}", text("apiVersion"), text("kind")))?;
    if resource.namespaced {
        value["metadata"]["namespace"] = connection.namespace.clone().into();
    }
    create_one(connection, how, &resource, value).await
}

/// `KEY=VALUE`.
fn pair(text: &str) -> Result<(&str, &str)> {
    text.split_once('=').with_context(|| format!("{text:?}: expected KEY=VALUE"))
}
