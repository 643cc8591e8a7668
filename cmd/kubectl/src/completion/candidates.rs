//! The candidates for what is wanted: of the program itself, of the kubeconfig, or of the cluster.

use super::typed::{Typed, Wanted};
use crate::connection::{ClusterFlags, Connection, read_kubeconfig};
use crate::pods;
use crate::resources::{Catalogue, Resource};
use anyhow::Result;
use http::Method;
use std::future::Future;
use std::time::Duration;

/// Somebody waits with a finger on a key.
const PATIENCE: Duration = Duration::from_secs(3);
/// Names only.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// What may stand there, each with what it is.
#[derive(Default)]
pub struct Candidates {
    /// All that begin as the word does.
    pub all: Vec<(String, String)>,
    /// Something follows in the same word.
    pub goes_on: bool,
    /// Names of files are candidates, too.
    pub files: bool,
}

/// Where candidates come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A kind and then names of it, or both as `kind/name`.
    KindsThenNames,
    /// A kind.
    Kinds,
    /// A pod, or `kind/name` of what has pods; only the first word.
    Pods,
    /// The containers of the pod that was named.
    Containers,
    /// Names of this kind.
    Names(&'static str),
    /// Of the kubeconfig.
    Contexts,
    Clusters,
    Users,
    /// Of the machine.
    Files,
    Nothing,
}

/// What the words of a command are.
fn source_of_words(path: &[&str]) -> Source {
    match path {
        [
            "get" | "describe" | "delete" | "edit" | "label" | "annotate" | "patch" | "scale" | "wait"
            | "expose",
        ]
        | ["autoscale" | "taint" | "events"]
        | ["rollout" | "set", _] => Source::KindsThenNames,
        ["explain"] => Source::Kinds,
        ["logs" | "exec" | "attach" | "port-forward" | "debug"] => Source::Pods,
        ["top", "pods"] => Source::Names("pods"),
        ["cordon" | "uncordon" | "drain"] | ["top", "nodes"] => Source::Names("nodes"),
        ["certificate", _] => Source::Names("certificatesigningrequests"),
        ["trigger"] => Source::Names("functions"),
        ["config", "use-context" | "delete-context" | "rename-context" | "get-contexts" | "set-context"] => {
            Source::Contexts
        }
        ["config", "delete-cluster" | "set-cluster"] => Source::Clusters,
        ["config", "delete-user" | "set-credentials"] => Source::Users,
        ["apply" | "diff" | "cp" | "kustomize" | "register" | "update"] => Source::Files,
        _ => Source::Nothing,
    }
}

/// What the value of a flag is.
fn source_of_value(flag: &str) -> Source {
    match flag {
        "namespace" => Source::Names("namespaces"),
        "context" => Source::Contexts,
        "cluster" => Source::Clusters,
        "user" => Source::Users,
        "container" => Source::Containers,
        "serviceaccount" => Source::Names("serviceaccounts"),
        "filename"
        | "kustomize"
        | "kubeconfig"
        | "certificate-authority"
        | "client-certificate"
        | "client-key"
        | "cache-dir"
        | "from-file"
        | "from-env-file"
        | "cert"
        | "key"
        | "patch-file" => Source::Files,
        _ => Source::Nothing,
    }
}

/// The values of `-o`.
const OUTPUTS: [&str; 10] = [
    "custom-columns=",
    "custom-columns-file=",
    "go-template=",
    "json",
    "jsonpath=",
    "jsonpath-file=",
    "name",
    "wide",
    "kyaml",
    "yaml",
];

/// All candidates for what was typed.
pub fn of(typed: &Typed<'_>) -> Candidates {
    let mut found = match &typed.wanted {
        Wanted::Commands => {
            known(typed.command.get_subcommands().filter(|below| !below.is_hide_set()).map(|below| {
                (below.get_name().to_owned(), below.get_about().map(ToString::to_string).unwrap_or_default())
            }))
        }
        Wanted::Flags => {
            known(typed.command.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(|flag| {
                Some((
                    format!("--{}", flag.get_long()?),
                    flag.get_help().map(ToString::to_string).unwrap_or_default(),
                ))
            }))
        }
        Wanted::Value(flag) if flag.get_long() == Some("output") => Candidates {
            goes_on: OUTPUTS
                .iter()
                .filter(|output| output.starts_with(&typed.begun))
                .all(|output| output.ends_with('=')),
            ..known(OUTPUTS.map(|output| (output.to_owned(), String::new())).into_iter())
        },
        Wanted::Value(flag) => match flag.get_possible_values().as_slice() {
            [] => of_source(typed, source_of_value(flag.get_long().unwrap_or_default())),
            values => known(values.iter().map(|value| (value.get_name().to_owned(), String::new()))),
        },
        Wanted::Word => {
            let possible = typed.command.get_positionals().nth(typed.words.len());
            match possible.map(clap::Arg::get_possible_values).unwrap_or_default().as_slice() {
                [] => of_source(typed, source_of_words(&typed.path)),
                values => known(values.iter().map(|value| (value.get_name().to_owned(), String::new()))),
            }
        }
        Wanted::Nothing => Candidates { files: true, ..Candidates::default() },
    };
    found.all.retain(|(candidate, _)| candidate.starts_with(&typed.begun));
    found.all.sort();
    found.all.dedup();
    for (candidate, _) in &mut found.all {
        candidate.insert_str(0, &typed.before);
    }
    found
}

fn known(all: impl Iterator<Item = (String, String)>) -> Candidates {
    Candidates { all: all.collect(), ..Candidates::default() }
}

fn plain(all: impl IntoIterator<Item = String>) -> Candidates {
    known(all.into_iter().map(|candidate| (candidate, String::new())))
}

/// What cannot be had is no candidate, and nobody is told: it would be written into the line.
fn of_source(typed: &Typed<'_>, source: Source) -> Candidates {
    let flags = cluster_flags(typed);
    let config = || read_kubeconfig(&flags).ok();
    match source {
        Source::Files => Candidates { files: true, ..Candidates::default() },
        Source::Nothing => Candidates::default(),
        Source::Contexts => plain(config().into_iter().flat_map(|c| c.contexts).map(|own| own.name)),
        Source::Clusters => plain(config().into_iter().flat_map(|c| c.clusters).map(|own| own.name)),
        Source::Users => plain(config().into_iter().flat_map(|c| c.auth_infos).map(|own| own.name)),
        _ => block_on(of_cluster(typed, source, &flags)).unwrap_or_default(),
    }
}

fn block_on<T>(asking: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(PATIENCE, asking).await })?
}

fn cluster_flags(typed: &Typed<'_>) -> ClusterFlags {
    let text = |name: &str| typed.flag(name).map(str::to_owned);
    ClusterFlags {
        kubeconfig: text("kubeconfig").map(Into::into),
        context: text("context"),
        namespace: text("namespace"),
        server: text("server"),
        token: text("token"),
        request_timeout: "0".to_owned(),
        ..ClusterFlags::default()
    }
}

async fn of_cluster(typed: &Typed<'_>, source: Source, flags: &ClusterFlags) -> Result<Candidates> {
    let connection = Connection::open(flags).await?;
    let all = typed.flag("all-namespaces").is_some();
    match source {
        Source::Names(kind) => names_of(&connection, kind, all).await.map(plain),
        Source::Containers => {
            let Some(pod) = typed.words.first() else { return Ok(Candidates::default()) };
            let pods = pods::of_word(&connection, pod).await?;
            Ok(plain(pods.first().into_iter().flat_map(pods::containers).map(str::to_owned)))
        }
        Source::Kinds => Ok(plain(kinds(&connection, &[]).await?)),
        Source::Pods if !typed.words.is_empty() => Ok(Candidates::default()),
        _ => match (typed.begun.split_once('/'), typed.words.first()) {
            (Some((kind, _)), _) => {
                let names = names_of(&connection, kind, all).await?;
                Ok(plain(names.into_iter().map(|name| format!("{kind}/{name}"))))
            }
            (None, _) if source == Source::Pods => names_of(&connection, "pods", all).await.map(plain),
            (None, Some(kind)) if !kind.contains('/') => {
                let mut names = names_of(&connection, kind, all).await?;
                names.retain(|name| !typed.words.contains(name));
                Ok(plain(names))
            }
            (None, named) => {
                let mut found = plain(kinds(&connection, &typed.words).await?);
                // Behind `kind/name` comes another `kind/name`.
                if named.is_some() {
                    found.goes_on = true;
                    found.all.iter_mut().for_each(|(kind, _)| kind.push('/'));
                }
                Ok(found)
            }
        },
    }
}

async fn kinds(connection: &Connection, words: &[String]) -> Result<Vec<String>> {
    let catalogue = Catalogue::for_words(connection, words).await?;
    Ok(catalogue
        .all()
        .iter()
        .filter(|resource| resource.verbs.iter().any(|verb| verb == "list"))
        .map(Resource::qualified)
        .collect())
}

async fn names_of(connection: &Connection, kind: &str, all_namespaces: bool) -> Result<Vec<String>> {
    let catalogue = Catalogue::for_words(connection, &[kind.to_owned()]).await?;
    let resource = catalogue.find(kind)?;
    let namespace = (!all_namespaces).then_some(connection.namespace.as_str());
    let path = resource.path(namespace);
    let list = connection.send_as(Method::GET, &path, "application/json", None, METADATA).await?;
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.map(|item| crate::select::name_of(item).to_owned()).collect())
}
