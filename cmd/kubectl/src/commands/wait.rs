//! `kubectl wait`.

use crate::connection::{ClusterFlags, Connection};
use crate::output::Template;
use crate::select::{self, SelectFlags, name_of};
use anyhow::{Result, bail};
use serde_json::Value;
use std::time::Duration;

/// What `wait` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl wait --for=condition=Ready pod/web --timeout=60s\n  kubectl wait --for=delete pod/web"
)]
pub struct Flags {
    #[command(flatten)]
    select: SelectFlags,
    /// condition=NAME[=VALUE], jsonpath={PATH}=VALUE, create or delete.
    #[arg(long = "for")]
    condition: String,
    /// How long to wait.
    #[arg(long, default_value = "30s")]
    timeout: jiff::SignedDuration,
}

/// What is waited for.
enum Condition {
    Create,
    Delete,
    Status(String, String),
    Path(Template, Option<String>),
}

/// Waits.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let condition = parse(&flags.condition)?;
    let connection = Connection::open(cluster).await?;
    let waiting = wait(&connection, &flags.select, &condition);
    match tokio::time::timeout(flags.timeout.unsigned_abs(), waiting).await {
        Ok(result) => result,
        Err(_) => bail!("timed out waiting for the condition on {}", flags.select.words.join(" ")),
    }
}

fn parse(text: &str) -> Result<Condition> {
    let lower = text.to_lowercase();
    if lower == "delete" {
        return Ok(Condition::Delete);
    }
    if lower == "create" {
        return Ok(Condition::Create);
    }
    if let Some(rest) = text.strip_prefix("condition=") {
        let (name, value) = rest.split_once('=').unwrap_or((rest, "true"));
        return Ok(Condition::Status(name.to_lowercase(), value.to_lowercase()));
    }
    if let Some(rest) = text.strip_prefix("jsonpath=") {
        let (path, value) = match rest.rfind("}=") {
            Some(at) => (&rest[..=at], Some(rest[at + 2..].trim_matches('"').to_owned())),
            None => (rest, None),
        };
        return Ok(Condition::Path(Template::parse(path)?, value));
    }
    bail!("unrecognized condition: {text:?}")
}

async fn wait(connection: &Connection, select: &SelectFlags, condition: &Condition) -> Result<()> {
    let mut pause = Duration::from_millis(20);
    loop {
        match select::objects(connection, select).await {
            Ok(found) if !found.is_empty() && found.iter().all(|(_, object)| holds(condition, object)) => {
                for (resource, object) in &found {
                    println!("{} condition met", resource.named(name_of(object)));
                }
                return Ok(());
            }
            Ok(found) if found.is_empty() && matches!(condition, Condition::Delete) => return Ok(()),
            Ok(found) if found.is_empty() && !matches!(condition, Condition::Create) => {
                bail!("no matching resources found")
            }
            Ok(_) => {}
            Err(error) if crate::connection::is_not_found(&error) => match condition {
                Condition::Delete => return Ok(()),
                Condition::Create => {}
                _ => return Err(error),
            },
            Err(error) => return Err(error),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

fn holds(condition: &Condition, object: &Value) -> bool {
    match condition {
        Condition::Create => true,
        Condition::Delete => false,
        Condition::Status(name, value) => {
            object["status"]["conditions"].as_array().into_iter().flatten().any(|own| {
                let is = |field: &str, expected: &str| {
                    own[field].as_str().is_some_and(|text| text.eq_ignore_ascii_case(expected))
                };
                is("type", name) && is("status", value)
            })
        }
        Condition::Path(template, expected) => {
            let found = template.render(object);
            expected.as_ref().map_or(!found.is_empty(), |expected| found == *expected)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_are_upstreams() {
        let pod =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let check = |text: &str, expected: bool| {
            assert_eq!(holds(&parse(text).expect(text), &pod), expected, "{text}");
        };
        check("condition=Ready", true);
        check("condition=ready=false", false);
        check("condition=Initialized", false);
        check("jsonpath={.status.phase}=Running", true);
        check("jsonpath={.status.phase}=Pending", false);
        check("delete", false);
        assert!(parse("ready").is_err());
    }
}
