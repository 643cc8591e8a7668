//! `kubectl auth`: can-i and whoami.

use crate::connection::{ClusterFlags, Connection};
use crate::output::table;
use crate::resources::Catalogue;
use anyhow::Result;
use http::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Questions about permission.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Whether something may be done: kubectl auth can-i create pods
    CanI {
        /// get, list, watch, create, update, patch, delete, …
        verb: String,
        /// A kind, kind/name, or a /path.
        what: String,
        /// The name of the object.
        name: Option<String>,
        /// A part of it, such as log or scale.
        #[arg(long)]
        subresource: Option<String>,
        /// Say nothing, only exit with 0 or 1.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Who the server takes us for.
    Whoami,
}

/// Asks.
pub async fn run(cluster: &ClusterFlags, command: Command) -> Result<ExitCode> {
    let connection = Connection::open(cluster).await?;
    match command {
        Command::CanI { verb, what, name, subresource, quiet } => {
            let review = review(&connection, &verb, &what, name, subresource).await?;
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            let answer = connection.send(Method::POST, path, Some(&review)).await?;
            let allowed = answer["status"]["allowed"].as_bool().unwrap_or_default();
            if !quiet {
                println!("{}", if allowed { "yes" } else { "no" });
            }
            Ok(if allowed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Whoami => {
            let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
            let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
            let user =
                connection.send(Method::POST, path, Some(&review)).await?["status"]["userInfo"].clone();
            let groups: Vec<&str> =
                user["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let row = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
            print!(
                "{}",
                table(&[
                    row("ATTRIBUTE", "VALUE"),
                    row("Username", user["username"].as_str().unwrap_or_default()),
                    row("Groups", &format!("[{}]", groups.join(" "))),
                ])
            );
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn review(
    connection: &Connection,
    verb: &str,
    what: &str,
    name: Option<String>,
    subresource: Option<String>,
) -> Result<Value> {
    let spec = if what.starts_with('/') {
        json!({"nonResourceAttributes": {"verb": verb, "path": what}})
    } else {
        let (kind, inline) =
            what.split_once('/').map_or((what, None), |(kind, name)| (kind, Some(name.to_owned())));
        let catalogue = Catalogue::load(connection).await?;
        let (group, resource) = match catalogue.find(kind) {
            Ok(resource) => (resource.group.clone(), resource.plural.clone()),
            Err(_) => (String::new(), kind.to_owned()),
        };
        json!({"resourceAttributes": {
            "namespace": connection.namespace, "verb": verb, "group": group, "resource": resource,
            "name": name.or(inline), "subresource": subresource,
        }})
    };
    Ok(json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}))
}
