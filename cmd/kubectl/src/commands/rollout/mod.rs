//! `kubectl rollout`: status, history, undo, restart, pause and resume.

mod history;
mod progress;
mod template;
mod undo;

use crate::change::{self, ChangeFlags};
use crate::connection::{ClusterFlags, Connection};
use crate::resources::Resource;
use crate::select::{ObjectFlags, name_of};
use anyhow::{Result, bail};
use serde_json::{Value, json};

/// What can be done with roll-outs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Wait until it is rolled out, and say how far it is.
    Status(progress::Flags),
    /// Show what was rolled out before.
    History(history::Flags),
    /// Go back to what was rolled out before.
    Undo(undo::Flags),
    /// Start all its pods anew, as an update does.
    Restart(Flags),
    /// Stop rolling out.
    Pause(Flags),
    /// Go on rolling out.
    Resume(Flags),
}

/// What restart, pause and resume are told.
#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    objects: ObjectFlags,
    #[command(flatten)]
    change: ChangeFlags,
}

/// Does it.
pub async fn run(cluster: &ClusterFlags, command: Command) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    match command {
        Command::Status(flags) => progress::run(&connection, flags).await,
        Command::History(flags) => history::run(&connection, flags).await,
        Command::Undo(flags) => undo::run(&connection, flags).await,
        Command::Restart(flags) => {
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            apply(&connection, flags, "restarted", |resource, object| restart(resource, object, &now)).await
        }
        Command::Pause(flags) => {
            apply(&connection, flags, "paused", |resource, object| pause(resource, object, true)).await
        }
        Command::Resume(flags) => {
            apply(&connection, flags, "resumed", |resource, object| pause(resource, object, false)).await
        }
    }
}

async fn apply(
    connection: &Connection,
    flags: Flags,
    done: &str,
    edit: impl Fn(&Resource, &mut Value) -> Result<()>,
) -> Result<()> {
    for (resource, object) in flags.objects.choose(connection, false).await? {
        let what = (&resource, &object);
        let changed = change::change(connection, &flags.change, "kubectl-rollout", what, |object| {
            edit(&resource, object)
        })
        .await?;
        flags.change.show(&resource, &changed.object, done)?;
    }
    Ok(())
}

fn restart(resource: &Resource, object: &mut Value, now: &str) -> Result<()> {
    let about = format!("{} \"{}\"", resource.qualified(), name_of(object));
    if !matches!(resource.kind.as_str(), "Deployment" | "DaemonSet" | "StatefulSet") {
        bail!("{about} restarting is not supported");
    }
    if object["spec"]["paused"] == true {
        bail!("{about} can't restart paused deployment (run rollout resume first)");
    }
    let template = &mut object["spec"]["template"]["metadata"];
    if !template["annotations"].is_object() {
        template["annotations"] = json!({});
    }
    template["annotations"]["kubectl.kubernetes.io/restartedAt"] = now.into();
    Ok(())
}

fn pause(resource: &Resource, object: &mut Value, paused: bool) -> Result<()> {
    let about = format!("{} \"{}\"", resource.qualified(), name_of(object));
    if resource.kind != "Deployment" {
        bail!("{about} {} is not supported", if paused { "pausing" } else { "resuming" });
    }
    match (object["spec"]["paused"] == true, paused) {
        (true, true) => bail!("{about} is already paused"),
        (false, false) => bail!("{about} is not paused"),
        (_, true) => object["spec"]["paused"] = true.into(),
        (_, false) => {
            if let Some(spec) = object["spec"].as_object_mut() {
                spec.remove("paused");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_paused_is_neither_paused_nor_restarted() {
        let deployments = Resource {
            group: "apps".into(),
            plural: "deployments".into(),
            kind: "Deployment".into(),
            ..Resource::default()
        };
        let mut object = json!({"metadata": {"name": "web"}, "spec": {"template": {}}});
        pause(&deployments, &mut object, true).expect("paused");
        let error = pause(&deployments, &mut object, true).expect_err("again").to_string();
        assert_eq!(error, "deployments.apps \"web\" is already paused");
        let error = restart(&deployments, &mut object, "now").expect_err("paused").to_string();
        assert!(error.contains("can't restart paused deployment"), "{error}");
        pause(&deployments, &mut object, false).expect("resumed");
        restart(&deployments, &mut object, "now").expect("restarted");
        assert_eq!(
            object["spec"]["template"]["metadata"]["annotations"],
            json!({"kubectl.kubernetes.io/restartedAt": "now"})
        );
    }
}
