//! `kubectl certificate`: approve and deny.

use crate::change::ChangeFlags;
use crate::connection::{ClusterFlags, Connection};
use crate::manifests::FileFlags;
use crate::resources::Resource;
use crate::select::ObjectFlags;
use anyhow::{Result, bail};
use http::Method;
use serde_json::{Value, json};

/// What can be done with requests for certificates.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Let a request have its certificate.
    Approve(Flags),
    /// Refuse a request.
    Deny(Flags),
}

/// What both are told.
#[derive(clap::Args)]
pub struct Flags {
    /// The names of requests.
    names: Vec<String>,
    #[command(flatten)]
    files: FileFlags,
    /// Also where the opposite was said already.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Answers requests.
pub async fn run(cluster: &ClusterFlags, command: Command) -> Result<()> {
    let (flags, kind, opposite, done) = match command {
        Command::Approve(flags) => (flags, "Approved", "Denied", "approved"),
        Command::Deny(flags) => (flags, "Denied", "Approved", "denied"),
    };
    if flags.names.is_empty() && !flags.files.any() {
        bail!("one or more CSRs must be specified as <name> or -f <filename>");
    }
    let connection = Connection::open(cluster).await?;
    for (resource, mut request) in requests(&connection, &flags).await? {
        let path = format!("{}/approval", crate::select::path_of(&resource, &request));
        decide(&mut request, kind, opposite, flags.force)?;
        let path = format!("{path}{}", flags.change.query("kubectl-certificate"));
        let answered = connection.send(Method::PUT, &path, Some(&request)).await?;
        flags.change.show(&resource, &answered, done)?;
    }
    Ok(())
}

async fn requests(connection: &Connection, flags: &Flags) -> Result<Vec<(Resource, Value)>> {
    if flags.files.any() {
        let objects = ObjectFlags { files: flags.files.clone(), ..ObjectFlags::default() };
        return objects.choose(connection, false).await;
    }
    let resource = Resource {
        group: "certificates.k8s.io".into(),
        version: "v1".into(),
        plural: "certificatesigningrequests".into(),
        kind: "CertificateSigningRequest".into(),
        ..Resource::default()
    };
    let mut found = Vec::new();
    for name in &flags.names {
        let request = connection.get(&format!("{}/{name}", resource.path(None))).await?;
        found.push((resource.clone(), request));
    }
    Ok(found)
}

fn decide(request: &mut Value, kind: &str, opposite: &str, force: bool) -> Result<()> {
    let mut conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
    if conditions.iter().any(|condition| condition["type"] == opposite) && !force {
        bail!("certificate signing request \"{}\" is already {opposite}", crate::select::name_of(request));
    }
    if conditions.iter().all(|condition| condition["type"] != kind) {
        let verb = if kind == "Approved" { "approve" } else { "deny" };
        let reason = if kind == "Approved" { "KubectlApprove" } else { "KubectlDeny" };
        conditions.push(json!({
            "type": kind, "status": "True", "reason": reason,
            "message": format!("This CSR was {} by kubectl certificate {verb}.", kind.to_lowercase()),
        }));
    }
    request["status"]["conditions"] = conditions.into();
    Ok(())
}
