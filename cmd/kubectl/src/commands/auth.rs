//! `kubectl auth`: can-i, whoami and reconcile.

use crate::change::ChangeFlags;
use crate::connection::{ClusterFlags, Connection, is_not_found};
use crate::manifests::FileFlags;
use crate::output::{Output, table};
use crate::resources::{Catalogue, Resource};
use crate::select::{self, path_of};
use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Questions about permission.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Whether something may be done: kubectl auth can-i create pods
    CanI(CanI),
    /// Who the server takes us for.
    Whoami {
        /// yaml or json: show the whole answer.
        #[arg(long, short)]
        output: Option<String>,
    },
    /// Make roles and bindings have at least what files say.
    Reconcile(Reconcile),
}

/// What `can-i` is told.
#[derive(clap::Args)]
pub struct CanI {
    /// get, list, watch, create, update, patch, delete, …
    verb: Option<String>,
    /// A kind, kind/name, or a /path.
    what: Option<String>,
    /// The name of the object.
    name: Option<String>,
    /// A part of it, such as log or scale.
    #[arg(long)]
    subresource: Option<String>,
    /// Say nothing, only exit with 0 or 1.
    #[arg(long, short)]
    quiet: bool,
    /// In all namespaces.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Show all that may be done in the namespace.
    #[arg(long)]
    list: bool,
    /// Without the line of names of columns.
    #[arg(long)]
    no_headers: bool,
}

/// What `reconcile` is told.
#[derive(clap::Args)]
pub struct Reconcile {
    #[command(flatten)]
    files: FileFlags,
    /// Take away permissions that files do not name.
    #[arg(long)]
    remove_extra_permissions: bool,
    /// Take away subjects that files do not name.
    #[arg(long)]
    remove_extra_subjects: bool,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Asks.
pub async fn run(cluster: &ClusterFlags, command: Command) -> Result<ExitCode> {
    let connection = Connection::open(cluster).await?;
    match command {
        Command::CanI(flags) if flags.list => list(&connection, flags.no_headers).await,
        Command::CanI(flags) => can_i(&connection, &flags).await,
        Command::Whoami { output } => whoami(&connection, output.as_deref()).await,
        Command::Reconcile(flags) => reconcile(&connection, flags).await,
    }
}

async fn can_i(connection: &Connection, flags: &CanI) -> Result<ExitCode> {
    let (Some(verb), Some(what)) = (&flags.verb, &flags.what) else {
        bail!(
            "you must specify two arguments: verb resource or verb resource/resourceName.\nSee 'kubectl auth can-i -h' for help and examples"
        );
    };
    let review = review(connection, flags, verb, what).await?;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let status = connection.send(Method::POST, path, Some(&review)).await?["status"].clone();
    let allowed = status["allowed"].as_bool().unwrap_or_default();
    if !flags.quiet {
        let reason = status["reason"].as_str().filter(|reason| !reason.is_empty() && !allowed);
        let reason = reason.map(|reason| format!(" - {reason}")).unwrap_or_default();
        println!("{}{reason}", if allowed { "yes" } else { "no" });
    }
    Ok(if allowed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn review(connection: &Connection, flags: &CanI, verb: &str, what: &str) -> Result<Value> {
    let spec = if what.starts_with('/') {
        json!({"nonResourceAttributes": {"verb": verb, "path": what}})
    } else {
        let (kind, inline) =
            what.split_once('/').map_or((what, None), |(kind, name)| (kind, Some(name.to_owned())));
        let catalogue = Catalogue::for_words(connection, &[kind.to_owned()]).await?;
        let (group, resource, namespaced) = match catalogue.find(kind) {
            Ok(resource) => (resource.group.clone(), resource.plural.clone(), resource.namespaced),
            Err(_) => {
                if kind != "*" {
                    eprintln!("Warning: the server doesn't have a resource type '{kind}'");
                }
                let (resource, group) = kind.split_once('.').unwrap_or((kind, ""));
                let group = if kind == "*" { "*" } else { group };
                (group.to_owned(), resource.to_owned(), true)
            }
        };
        if !namespaced && !flags.all_namespaces {
            let of = if group.is_empty() { String::new() } else { format!(" in group '{group}'") };
            eprintln!("Warning: resource '{resource}' is not namespace scoped{of}\n");
        }
        let namespace = if flags.all_namespaces { "" } else { &connection.namespace };
        json!({"resourceAttributes": {
            "namespace": namespace, "verb": verb, "group": group, "resource": resource,
            "name": flags.name.clone().or(inline), "subresource": flags.subresource,
        }})
    };
    Ok(json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}))
}

async fn list(connection: &Connection, no_headers: bool) -> Result<ExitCode> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": connection.namespace},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let status = connection.send(Method::POST, path, Some(&review)).await?["status"].clone();
    if status["incomplete"] == true {
        let why = status["evaluationError"].as_str().unwrap_or_default();
        eprintln!("Warning: the list may be incomplete: {why}");
    }
    let header = ["Resources", "Non-Resource URLs", "Resource Names", "Verbs"].map(str::to_owned).to_vec();
    let mut rows = rules(&status);
    if !no_headers {
        rows.insert(0, header);
    }
    print!("{}", table(&rows));
    Ok(ExitCode::SUCCESS)
}

/// Rules as rows, one for each resource, as upstream shows them.
fn rules(status: &Value) -> Vec<Vec<String>> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let shown = |texts: &[String]| format!("[{}]", texts.join(" "));
    let mut rows = Vec::new();
    for rule in status["resourceRules"].as_array().into_iter().flatten() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                let name = if group.is_empty() { resource } else { format!("{resource}.{group}") };
                let names = shown(&texts(&rule["resourceNames"]));
                rows.push(vec![name, "[]".to_owned(), names, shown(&texts(&rule["verbs"]))]);
            }
        }
    }
    rows.sort();
    for rule in status["nonResourceRules"].as_array().into_iter().flatten() {
        for url in texts(&rule["nonResourceURLs"]) {
            rows.push(vec![
                String::new(),
                format!("[{url}]"),
                "[]".to_owned(),
                shown(&texts(&rule["verbs"])),
            ]);
        }
    }
    rows
}

async fn whoami(connection: &Connection, output: Option<&str>) -> Result<ExitCode> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = connection.send(Method::POST, path, Some(&review)).await?;
    let output = Output::parse(output)?;
    if !output.is_table() {
        print!("{}", output.show(&answer)?);
        return Ok(ExitCode::SUCCESS);
    }
    let user = &answer["status"]["userInfo"];
    let list = |value: &Value| {
        let texts: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        format!("[{}]", texts.join(" "))
    };
    let mut rows = vec![vec!["ATTRIBUTE".to_owned(), "VALUE".to_owned()]];
    for (field, title) in [("username", "Username"), ("uid", "UID")] {
        rows.extend(user[field].as_str().map(|value| vec![title.to_owned(), value.to_owned()]));
    }
    rows.push(vec!["Groups".to_owned(), list(&user["groups"])]);
    for (key, value) in user["extra"].as_object().into_iter().flatten() {
        rows.push(vec![format!("Extra: {key}"), list(value)]);
    }
    print!("{}", table(&rows));
    Ok(ExitCode::SUCCESS)
}

async fn reconcile(connection: &Connection, flags: Reconcile) -> Result<ExitCode> {
    if !flags.files.any() {
        bail!("must specify one of -f and -k");
    }
    for (resource, object) in flags.files.objects(connection).await? {
        if resource.group != "rbac.authorization.k8s.io" {
            eprintln!("skipping {}: it is no role or binding", resource.named(select::name_of(&object)));
            continue;
        }
        let after = reconcile_one(connection, &flags, &resource, &object)
            .await
            .with_context(|| resource.named(select::name_of(&object)))?;
        flags.change.show(&resource, &after, "reconciled")?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn reconcile_one(
    connection: &Connection,
    flags: &Reconcile,
    resource: &Resource,
    wanted: &Value,
) -> Result<Value> {
    let path = path_of(resource, wanted);
    let query = flags.change.query("kubectl-auth");
    let there = match connection.get(&path).await {
        Ok(object) => object,
        Err(error) if is_not_found(&error) => {
            let namespace = wanted["metadata"]["namespace"].as_str();
            let path = format!("{}{query}", resource.path(namespace));
            return connection.send(Method::POST, &path, Some(wanted)).await;
        }
        Err(error) => return Err(error),
    };
    let mut after = there.clone();
    for (field, exact) in
        [("rules", flags.remove_extra_permissions), ("subjects", flags.remove_extra_subjects)]
    {
        if let Some(list) = wanted[field].as_array() {
            after[field] = merged(there[field].as_array(), list, exact).into();
        }
    }
    for field in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"][field].as_object().into_iter().flatten() {
            after["metadata"][field][key] = value.clone();
        }
    }
    if there.get("roleRef").is_some() && there["roleRef"] != wanted["roleRef"] {
        // A binding's role cannot be changed: it is made anew.
        connection.send(Method::DELETE, &path, None).await?;
        let path = format!("{}{query}", resource.path(wanted["metadata"]["namespace"].as_str()));
        return connection.send(Method::POST, &path, Some(wanted)).await;
    }
    if after == there {
        return Ok(there);
    }
    connection.send(Method::PUT, &format!("{path}{query}"), Some(&after)).await
}

/// What is there and what is wanted; `exact`: only what is wanted.
fn merged(there: Option<&Vec<Value>>, wanted: &[Value], exact: bool) -> Vec<Value> {
    let mut all: Vec<Value> =
        there.into_iter().flatten().filter(|own| !exact || wanted.contains(own)).cloned().collect();
    for one in wanted {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconciling_adds_and_takes_away_only_when_told() {
        let (a, b) = (json!({"verbs": ["get"]}), json!({"verbs": ["list"]}));
        assert_eq!(merged(Some(&vec![a.clone()]), std::slice::from_ref(&b), false), [a.clone(), b.clone()]);
        let only_b = std::slice::from_ref(&b);
        assert_eq!(merged(Some(&vec![a, b.clone()]), only_b, true), only_b);
        assert_eq!(merged(None, only_b, false), only_b);
    }

    #[test]
    fn rules_are_rows() {
        let status = json!({
            "resourceRules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]}],
            "nonResourceRules": [{"nonResourceURLs": ["/healthz"], "verbs": ["get"]}],
        });
        assert_eq!(
            rules(&status),
            [["deployments.apps", "[]", "[]", "[get list]"], ["", "[/healthz]", "[]", "[get]"]]
        );
    }
}
