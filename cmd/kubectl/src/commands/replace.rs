//! `kubectl replace`: objects become exactly what files say.

use super::apply::Validate;
use super::create::send_raw;
use super::delete::wait_until_gone;
use crate::change::{ChangeFlags, DryRun};
use crate::connection::{ClusterFlags, Connection, is_not_found};
use crate::manifests::{FileFlags, check_names};
use crate::resources::Resource;
use crate::select::name_of;
use anyhow::{Result, bail};
use http::Method;
use serde_json::{Value, json};

/// What `replace` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl replace -f web.yaml\n  kubectl replace --force -f web.yaml")]
pub struct Flags {
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    change: ChangeFlags,
    /// strict, warn or ignore: what is done about unknown fields.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "strict", default_value = "strict")]
    validate: Validate,
    /// Delete the objects and make them anew.
    #[arg(long)]
    force: bool,
    /// How long pods have to end, in seconds.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    grace_period: i64,
    /// The part of the objects: status or scale.
    #[arg(long)]
    subresource: Option<String>,
    /// Note the object for client-side apply.
    #[arg(long)]
    save_config: bool,
    /// Send the file to this path of the server.
    #[arg(long)]
    raw: Option<String>,
}

/// Replaces.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    if let Some(path) = &flags.raw {
        print!("{}", send_raw(&connection, Method::PUT, path, &flags.files).await?);
        return Ok(());
    }
    if !flags.files.any() {
        bail!("must specify one of -f and -k");
    }
    let mut manifests = flags.files.manifests(&connection).await?;
    let count = manifests.all.len();
    let mut failed = 0;
    for index in 0..count {
        let sent = async {
            let resource = manifests.resource(&connection, index).await?;
            replace_one(&connection, &flags, &resource, manifests.all[index].value.clone()).await
        };
        if let Err(error) = sent.await {
            failed += 1;
            eprintln!("{}", manifests.located(&connection, index, &error).await);
        }
    }
    match failed {
        0 => Ok(()),
        failed if count > 1 => bail!("{failed} of {count} objects were not replaced; the others were"),
        _ => bail!("nothing was replaced"),
    }
}

async fn replace_one(
    connection: &Connection,
    flags: &Flags,
    resource: &Resource,
    mut value: Value,
) -> Result<()> {
    if flags.save_config {
        let note = format!("{value}\n");
        value["metadata"]["annotations"][super::apply::LAST_APPLIED] = note.into();
    }
    let namespace = value["metadata"]["namespace"].as_str().map(str::to_owned);
    let collection = resource.path(namespace.as_deref());
    let path = format!("{collection}/{}", name_of(&value));
    if flags.change.dry_run == DryRun::Client {
        return flags.change.show(resource, &value, "replaced");
    }
    let query = format!("{}{}", flags.change.query("kubectl-replace"), flags.validate.query());
    if flags.force {
        let mut options =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        options["gracePeriodSeconds"] = flags.grace_period.max(0).into();
        match connection.send(Method::DELETE, &path, Some(&options)).await {
            Ok(_) => drop(wait_until_gone(connection, &path, &Value::Null, None).await?),
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
        for field in ["resourceVersion", "uid"] {
            value["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
        }
        let object = connection.send(Method::POST, &format!("{collection}{query}"), Some(&value)).await?;
        return flags.change.show(resource, &object, "replaced");
    }
    if let Ok(live) = connection.get(&path).await {
        check_names(&live, &value)?;
    }
    let part = flags.subresource.as_ref().map(|part| format!("/{part}")).unwrap_or_default();
    let object = connection.send(Method::PUT, &format!("{path}{part}{query}"), Some(&value)).await?;
    flags.change.show(resource, &object, "replaced")
}
