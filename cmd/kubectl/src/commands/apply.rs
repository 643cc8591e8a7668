//! `kubectl apply`, `create` and `replace`: objects from files.

use crate::connection::{ClusterFlags, Connection, Refusal, is_not_found};
use crate::documents::{self, Document};
use crate::output::Output;
use crate::resources::{Catalogue, Resource};
use crate::select::name_of;
use anyhow::{Context, Result, bail};
use api::dialect::{self, ORIGINAL_NAME};
use http::Method;
use serde_json::Value;

/// What `apply` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl apply -f web.yaml\n  kubectl apply web.yaml\n  cat web.yaml | kubectl apply -f -"
)]
pub struct Flags {
    /// Files or folders of objects.
    files: Vec<String>,
    /// Files or folders of objects; `-` is standard input.
    #[arg(long, short)]
    filename: Vec<String>,
    /// Also folders below folders.
    #[arg(long, short = 'R')]
    recursive: bool,
    /// Who the changes are recorded for.
    #[arg(long, default_value = "kubectl")]
    field_manager: String,
    /// Take over fields that others have set.
    #[arg(long)]
    force_conflicts: bool,
    /// Accepted as upstream's: changes are always merged by the server.
    #[arg(long, hide = true)]
    server_side: bool,
    /// none, client or server: only say what would be done.
    #[arg(long, num_args = 0..=1, default_missing_value = "client", default_value = "none")]
    dry_run: String,
    /// name, yaml or json: show the objects.
    #[arg(long, short)]
    output: Option<String>,
}

/// What `create` and `replace` are told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl create -f web.yaml")]
pub struct CreateFlags {
    /// Files or folders of objects; `-` is standard input.
    #[arg(long, short, required = true)]
    filename: Vec<String>,
    /// Also folders below folders.
    #[arg(long, short = 'R')]
    recursive: bool,
    /// name, yaml or json: show the objects.
    #[arg(long, short)]
    output: Option<String>,
}

/// An object that is ready to be sent.
struct Ready {
    resource: Resource,
    value: Value,
    place: documents::Place,
}

/// Applies. A document that is wrong stops nothing before it: what happened to the others is said.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let files: Vec<String> = flags.files.into_iter().chain(flags.filename).collect();
    if files.is_empty() {
        bail!("must specify one of -f or a file: kubectl apply -f web.yaml");
    }
    let output = Output::parse(flags.output.as_deref())?;
    let connection = Connection::open(cluster).await?;
    let ready = prepare(&connection, documents::read(&files, flags.recursive)?).await?;
    let mut query = format!("?fieldManager={}&fieldValidation=Strict", flags.field_manager);
    if flags.force_conflicts {
        query.push_str("&force=true");
    }
    match flags.dry_run.as_str() {
        "none" | "false" => {}
        "client" | "server" | "true" => query.push_str("&dryRun=All"),
        other => bail!("--dry-run={other}: expected none, client or server"),
    }
    let suffix = if query.contains("dryRun") { " (server dry run)" } else { "" };
    let mut failed = 0;
    for (index, one) in ready.iter().enumerate() {
        match apply_one(&connection, one, &query).await {
            Ok((verb, object)) => shown(&output, &one.resource, &object, &format!("{verb}{suffix}"))?,
            Err(error) => {
                failed += 1;
                eprintln!("error: {}: {}: {error:#}", one.place, one.resource.named(name_of(&one.value)));
                if error.downcast_ref::<Refusal>().is_none() {
                    bail!("{} of {} objects were not looked at", ready.len() - index - 1, ready.len());
                }
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} objects were not applied; the others were", ready.len());
    }
    Ok(())
}

/// Creates.
pub async fn create(cluster: &ClusterFlags, flags: CreateFlags) -> Result<()> {
    let output = Output::parse(flags.output.as_deref())?;
    let connection = Connection::open(cluster).await?;
    for one in prepare(&connection, documents::read(&flags.filename, flags.recursive)?).await? {
        let path = one.resource.path(namespace(&connection, &one));
        let path = format!("{path}?fieldManager=kubectl-create&fieldValidation=Strict");
        let object = connection
            .send(Method::POST, &path, Some(&one.value))
            .await
            .with_context(|| one.place.to_string());
        shown(&output, &one.resource, &object?, "created")?;
    }
    Ok(())
}

/// Replaces.
pub async fn replace(cluster: &ClusterFlags, flags: CreateFlags) -> Result<()> {
    let output = Output::parse(flags.output.as_deref())?;
    let connection = Connection::open(cluster).await?;
    for one in prepare(&connection, documents::read(&flags.filename, flags.recursive)?).await? {
        let path = format!("{}/{}", one.resource.path(namespace(&connection, &one)), name_of(&one.value));
        let path = format!("{path}?fieldManager=kubectl-replace&fieldValidation=Strict");
        let object = connection
            .send(Method::PUT, &path, Some(&one.value))
            .await
            .with_context(|| one.place.to_string());
        shown(&output, &one.resource, &object?, "replaced")?;
    }
    Ok(())
}

/// Translates every document before the first is sent, so that a wrong one leaves nothing half-done.
async fn prepare(connection: &Connection, documents: Vec<Document>) -> Result<Vec<Ready>> {
    let mut catalogue = Catalogue::load(connection).await?;
    let mut ready = Vec::new();
    for Document { value, place } in documents {
        let version = |kind: &str| catalogue.of_kind(kind).map(Resource::api_version);
        let translated = dialect::translate(value, version).with_context(|| place.to_string())?;
        let mut value = translated.value;
        if !translated.notes.is_empty() {
            eprintln!("{place}: understood as {}", translated.notes.join(", "));
        }
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let mut resource = catalogue.of(&api_version, &kind).cloned();
        if resource.is_none() {
            // A definition that was just made may have brought it.
            catalogue = Catalogue::load(connection).await?;
            resource = catalogue.of(&api_version, &kind).cloned();
        }
        let resource = resource.with_context(|| {
            format!("{place}: no matches for kind \"{kind}\" in version \"{api_version}\"; ensure CRDs are installed first")
        })?;
        if resource.namespaced && text("/metadata/namespace").is_empty() {
            value["metadata"]["namespace"] = connection.namespace.clone().into();
        }
        ready.push(Ready { resource, value, place });
    }
    Ok(ready)
}

fn namespace<'a>(connection: &'a Connection, one: &'a Ready) -> Option<&'a str> {
    Some(one.value["metadata"]["namespace"].as_str().unwrap_or(&connection.namespace))
}

async fn apply_one(connection: &Connection, one: &Ready, query: &str) -> Result<(&'static str, Value)> {
    let name = name_of(&one.value);
    if name.is_empty() {
        bail!("metadata.name is missing: apply needs one (kubectl create takes generateName)");
    }
    let path = format!("{}/{name}", one.resource.path(namespace(connection, one)));
    let before = match connection.get(&path).await {
        Ok(object) => Some(object),
        Err(error) if is_not_found(&error) => None,
        Err(error) => return Err(error),
    };
    if let Some(before) = &before {
        check_names(before, &one.value)?;
    }
    let body = one.value.to_string();
    let object = connection
        .send_as(
            Method::PATCH,
            &format!("{path}{query}"),
            "application/apply-patch+yaml",
            Some(body),
            "application/json",
        )
        .await?;
    let verb = match &before {
        None => "created",
        Some(before) if before["metadata"]["resourceVersion"] == object["metadata"]["resourceVersion"] => {
            "unchanged"
        }
        Some(_) => "configured",
    };
    Ok((verb, object))
}

/// Two names that map to the same one are two objects: the second is refused.
fn check_names(before: &Value, after: &Value) -> Result<()> {
    let original = |object: &Value| {
        let annotations = &object["metadata"]["annotations"];
        annotations[ORIGINAL_NAME].as_str().unwrap_or(name_of(object)).to_owned()
    };
    let (old, new) = (original(before), original(after));
    if old != new {
        bail!("{new:?} and {old:?} both become {:?}: rename one of them", name_of(after));
    }
    Ok(())
}

fn shown(output: &Output, resource: &Resource, object: &Value, what: &str) -> Result<()> {
    match output {
        Output::Table | Output::Wide => println!("{} {what}", resource.named(name_of(object))),
        Output::Name => println!("{}", resource.named(name_of(object))),
        output => print!("{}", output.show(object)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_that_become_one_are_refused() {
        let plain = json!({"metadata": {"name": "rr-one"}});
        let mapped = json!({"metadata": {"name": "rr-one", "annotations": {ORIGINAL_NAME: "rr_one"}}});
        assert!(check_names(&plain, &plain).is_ok());
        assert!(check_names(&mapped, &mapped).is_ok());
        let error = check_names(&plain, &mapped).expect_err("two names").to_string();
        assert_eq!(error, "\"rr_one\" and \"rr-one\" both become \"rr-one\": rename one of them");
        assert!(check_names(&mapped, &plain).is_err());
    }
}
