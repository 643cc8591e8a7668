//! `kubectl rollout`: status and restart.

use crate::connection::{ClusterFlags, Connection};
use crate::select::{self, SelectFlags, name_of, path_of};
use anyhow::{Result, bail};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// What can be done with roll-outs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Wait until it is rolled out, and say how far it is.
    Status {
        #[command(flatten)]
        select: SelectFlags,
        /// How long to wait, such as 90s; for ever if nothing is said.
        #[arg(long)]
        timeout: Option<jiff::SignedDuration>,
    },
    /// Start all its pods anew, as an update does.
    Restart {
        #[command(flatten)]
        select: SelectFlags,
    },
    /// Stop rolling out.
    Pause {
        #[command(flatten)]
        select: SelectFlags,
    },
    /// Go on rolling out.
    Resume {
        #[command(flatten)]
        select: SelectFlags,
    },
}

/// Does it.
pub async fn run(cluster: &ClusterFlags, command: Command) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (select, patch, done) = match &command {
        Command::Status { select, timeout } => {
            let waiting = status(&connection, select);
            return match timeout {
                None => waiting.await,
                Some(timeout) => match tokio::time::timeout(timeout.unsigned_abs(), waiting).await {
                    Ok(result) => result,
                    Err(_) => bail!("timed out waiting for the condition"),
                },
            };
        }
        Command::Restart { select } => {
            let annotations = json!({"kubectl.kubernetes.io/restartedAt": now});
            (select, json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}), "restarted")
        }
        Command::Pause { select } => (select, json!({"spec": {"paused": true}}), "paused"),
        Command::Resume { select } => (select, json!({"spec": {"paused": false}}), "resumed"),
    };
    for (resource, object) in select::objects(&connection, select).await? {
        let path = format!("{}?fieldManager=kubectl-rollout", path_of(&resource, &object));
        let body = Some(patch.to_string());
        connection
            .send_as(Method::PATCH, &path, "application/strategic-merge-patch+json", body, "application/json")
            .await?;
        println!("{} {done}", resource.named(name_of(&object)));
    }
    Ok(())
}

async fn status(connection: &Connection, select: &SelectFlags) -> Result<()> {
    let mut last = String::new();
    loop {
        let found = select::objects(connection, select).await?;
        let mut all_done = true;
        for (resource, object) in &found {
            let (text, done) = progress(&resource.kind, object)?;
            all_done &= done;
            if text != last {
                println!("{text}");
                last = text;
            }
        }
        if all_done {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// How far a roll-out is, in upstream's words, and whether it is done.
fn progress(kind: &str, object: &Value) -> Result<(String, bool)> {
    let name = name_of(object);
    let (spec, status) = (&object["spec"], &object["status"]);
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    if number(&object["metadata"]["generation"]) > number(&status["observedGeneration"]) {
        return Ok((format!("Waiting for {} spec update to be observed...", kind.to_lowercase()), false));
    }
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let waiting = |text: String| Ok((format!("Waiting for {text}..."), false));
    match kind {
        "Deployment" => {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            if conditions.clone().any(|condition| condition["reason"] == "ProgressDeadlineExceeded") {
                bail!("deployment \"{name}\" exceeded its progress deadline");
            }
            let (updated, replicas, available) = (
                number(&status["updatedReplicas"]),
                number(&status["replicas"]),
                number(&status["availableReplicas"]),
            );
            let about = format!("deployment \"{name}\" rollout to finish");
            if updated < wanted {
                return waiting(format!("{about}: {updated} out of {wanted} new replicas have been updated"));
            }
            if replicas > updated {
                return waiting(format!(
                    "{about}: {} old replicas are pending termination",
                    replicas - updated
                ));
            }
            if available < updated {
                return waiting(format!("{about}: {available} of {updated} updated replicas are available"));
            }
            Ok((format!("deployment \"{name}\" successfully rolled out"), true))
        }
        "DaemonSet" => {
            let (updated, desired, available) = (
                number(&status["updatedNumberScheduled"]),
                number(&status["desiredNumberScheduled"]),
                number(&status["numberAvailable"]),
            );
            let about = format!("daemon set \"{name}\" rollout to finish");
            if updated < desired {
                return waiting(format!("{about}: {updated} out of {desired} new pods have been updated"));
            }
            if available < desired {
                return waiting(format!("{about}: {available} of {desired} updated pods are available"));
            }
            Ok((format!("daemon set \"{name}\" successfully rolled out"), true))
        }
        "StatefulSet" => {
            let ready = number(&status["readyReplicas"]);
            if ready < wanted {
                return waiting(format!("{} pods to be ready", wanted - ready));
            }
            if status["updateRevision"] != status["currentRevision"] {
                return waiting(format!(
                    "statefulset rolling update to complete {} pods at revision {}",
                    number(&status["updatedReplicas"]),
                    status["updateRevision"].as_str().unwrap_or_default()
                ));
            }
            Ok((
                format!(
                    "statefulset rolling update complete {wanted} pods at revision {}...",
                    status["currentRevision"].as_str().unwrap_or_default()
                ),
                true,
            ))
        }
        other => bail!("no status viewer has been implemented for {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployments_progress_is_told_in_upstreams_words() {
        let check = |status: Value, expected: &str| {
            let object = json!({"metadata": {"name": "web", "generation": 2}, "spec": {"replicas": 3}, "status": status});
            assert_eq!(progress("Deployment", &object).expect("a deployment").0, expected);
        };
        check(json!({"observedGeneration": 1}), "Waiting for deployment spec update to be observed...");
        check(
            json!({"observedGeneration": 2, "updatedReplicas": 1}),
            "Waiting for deployment \"web\" rollout to finish: 1 out of 3 new replicas have been updated...",
        );
        check(
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 4}),
            "Waiting for deployment \"web\" rollout to finish: 1 old replicas are pending termination...",
        );
        check(
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3}),
            "deployment \"web\" successfully rolled out",
        );
    }
}
