//! `kubectl rollout status`: how far roll-outs are, in upstream's words.

use crate::connection::Connection;
use crate::resources::Resource;
use crate::select::{ObjectFlags, name_of, path_of};
use anyhow::{Result, bail};
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// What `rollout status` is told.
#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    objects: ObjectFlags,
    /// How long to wait, such as 90s; 0s is for ever.
    #[arg(long, default_value = "0s", value_parser = crate::duration::parse)]
    timeout: std::time::Duration,
    /// Wait until it is done.
    #[arg(long, short, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    watch: bool,
    /// Only of this revision; 0 is the latest.
    #[arg(long, default_value_t = 0)]
    revision: i64,
}

/// Waits, and says what it waits for.
pub async fn run(connection: &Connection, flags: Flags) -> Result<()> {
    let chosen = flags.objects.choose(connection, false).await?;
    if chosen.is_empty() {
        bail!("no resources found");
    }
    let waiting = async {
        for (resource, object) in chosen {
            follow(connection, &resource, object, &flags).await?;
        }
        Ok(())
    };
    if flags.timeout.is_zero() {
        return waiting.await;
    }
    match tokio::time::timeout(flags.timeout, waiting).await {
        Ok(result) => result,
        Err(_) => bail!("timed out waiting for the condition"),
    }
}

async fn follow(
    connection: &Connection,
    resource: &Resource,
    mut object: Value,
    flags: &Flags,
) -> Result<()> {
    let mut line = Line::new();
    let path = path_of(resource, &object);
    loop {
        let (text, done) = progress(&resource.kind, &object, flags.revision)?;
        line.show(&text);
        if done || !flags.watch {
            line.end();
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        object = connection.get(&path).await?;
    }
}

/// What is said last: on a terminal one line that changes, elsewhere a line for each change.
struct Line {
    last: String,
    is_live: bool,
}

impl Line {
    fn new() -> Line {
        Line { last: String::new(), is_live: std::io::stdout().is_terminal() }
    }

    fn show(&mut self, text: &str) {
        if text == self.last {
            return;
        }
        let mut out = std::io::stdout().lock();
        let _ = if self.is_live { write!(out, "\r\x1b[K{text}") } else { writeln!(out, "{text}") };
        let _ = out.flush();
        text.clone_into(&mut self.last);
    }

    fn end(&self) {
        if self.is_live {
            println!();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // An error or the end of patience comes on a line of its own.
        if self.is_live && self.last.ends_with("...") && self.last.starts_with("Waiting") {
            println!();
        }
    }
}

/// How far a roll-out is, and whether it is done.
fn progress(kind: &str, object: &Value, revision: i64) -> Result<(String, bool)> {
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let status = &object["status"];
    if kind == "Deployment" && revision > 0 {
        let own = object["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str();
        if own.and_then(|own| own.parse::<i64>().ok()) != Some(revision) {
            bail!(
                "desired revision ({revision}) is different from the running revision ({})",
                own.unwrap_or("0")
            );
        }
    }
    let strategy = object["spec"]["updateStrategy"]["type"].as_str();
    if matches!(kind, "StatefulSet" | "DaemonSet") && strategy == Some("OnDelete") {
        bail!("rollout status is only available for RollingUpdate strategy type");
    }
    if number(&object["metadata"]["generation"]) > number(&status["observedGeneration"]) {
        let kind = match kind {
            "DaemonSet" => "daemon set".to_owned(),
            "StatefulSet" => "statefulset".to_owned(),
            other => other.to_lowercase(),
        };
        return Ok((format!("Waiting for {kind} spec update to be observed..."), false));
    }
    match kind {
        "Deployment" => deployment(object),
        "DaemonSet" => Ok(daemon_set(object)),
        "StatefulSet" => Ok(stateful_set(object)),
        other => bail!("no status viewer has been implemented for {other}"),
    }
}

fn deployment(object: &Value) -> Result<(String, bool)> {
    let (name, status) = (name_of(object), &object["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    if conditions.any(|condition| condition["reason"] == "ProgressDeadlineExceeded") {
        bail!("deployment \"{name}\" exceeded its progress deadline");
    }
    let (updated, replicas, available) =
        (number("updatedReplicas"), number("replicas"), number("availableReplicas"));
    let about = format!("Waiting for deployment \"{name}\" rollout to finish");
    Ok(if updated < wanted {
        (format!("{about}: {updated} out of {wanted} new replicas have been updated..."), false)
    } else if replicas > updated {
        (format!("{about}: {} old replicas are pending termination...", replicas - updated), false)
    } else if available < updated {
        (format!("{about}: {available} of {updated} updated replicas are available..."), false)
    } else {
        (format!("deployment \"{name}\" successfully rolled out"), true)
    })
}

fn daemon_set(object: &Value) -> (String, bool) {
    let name = name_of(object);
    let number = |field: &str| object["status"][field].as_i64().unwrap_or_default();
    let (updated, desired, available) =
        (number("updatedNumberScheduled"), number("desiredNumberScheduled"), number("numberAvailable"));
    let about = format!("Waiting for daemon set \"{name}\" rollout to finish");
    if updated < desired {
        (format!("{about}: {updated} out of {desired} new pods have been updated..."), false)
    } else if available < desired {
        (format!("{about}: {available} of {desired} updated pods are available..."), false)
    } else {
        (format!("daemon set \"{name}\" successfully rolled out"), true)
    }
}

fn stateful_set(object: &Value) -> (String, bool) {
    let (spec, status) = (&object["spec"], &object["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let revision = |field: &str| status[field].as_str().unwrap_or_default();
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let (ready, updated) = (number("readyReplicas"), number("updatedReplicas"));
    if ready < wanted {
        return (format!("Waiting for {} pods to be ready...", wanted - ready), false);
    }
    if let Some(partition) = spec["updateStrategy"]["rollingUpdate"]["partition"].as_i64() {
        let of = (wanted - partition).max(0);
        if updated < of {
            let text = format!(
                "Waiting for partitioned roll out to finish: {updated} out of {of} new pods have been updated..."
            );
            return (text, false);
        }
        return (format!("partitioned roll out complete: {updated} new pods have been updated..."), true);
    }
    if revision("updateRevision") != revision("currentRevision") {
        let text = format!(
            "waiting for statefulset rolling update to complete {updated} pods at revision {}...",
            revision("updateRevision")
        );
        return (text, false);
    }
    let current = number("currentReplicas");
    (
        format!(
            "statefulset rolling update complete {current} pods at revision {}...",
            revision("currentRevision")
        ),
        true,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deployments_progress_is_told_in_upstreams_words() {
        let check = |status: Value, expected: &str| {
            let object = json!({"metadata": {"name": "web", "generation": 2}, "spec": {"replicas": 3}, "status": status});
            assert_eq!(progress("Deployment", &object, 0).expect("a deployment").0, expected);
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

    #[test]
    fn a_stateful_set_may_be_rolled_out_in_part() {
        let check = |partition: Option<i64>, status: Value, expected: &str| {
            let object = json!({"spec": {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": partition}}}, "status": status});
            assert_eq!(progress("StatefulSet", &object, 0).expect("a set").0, expected);
        };
        check(None, json!({"readyReplicas": 1}), "Waiting for 2 pods to be ready...");
        check(
            Some(2),
            json!({"readyReplicas": 3}),
            "Waiting for partitioned roll out to finish: 0 out of 1 new pods have been updated...",
        );
        check(
            Some(2),
            json!({"readyReplicas": 3, "updatedReplicas": 1}),
            "partitioned roll out complete: 1 new pods have been updated...",
        );
        check(
            None,
            json!({"readyReplicas": 3, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"}),
            "waiting for statefulset rolling update to complete 1 pods at revision b...",
        );
        let object = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
        assert!(progress("StatefulSet", &object, 0).is_err());
    }
}
