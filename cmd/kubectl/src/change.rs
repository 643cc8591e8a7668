//! Changing one object that is there, for all commands that do: what they may be told, the smallest patch that makes
//! the change, and how the outcome is shown.
//!
//! ```text
//! object ──edit──> object ──difference──> merge patch ──> server (again from its present form if somebody was faster)
//! ```

use crate::connection::{Connection, Refusal};
use crate::output::Output;
use crate::resources::Resource;
use crate::select::{encode, name_of, path_of};
use anyhow::{Result, bail};
use http::Method;
use serde_json::{Map, Value};

/// How often a change is tried when others change the same object.
const ATTEMPTS: usize = 5;

/// What every command that changes objects may be told.
#[derive(clap::Args, Clone, Default)]
pub struct ChangeFlags {
    /// none, client or server: only say what would be done.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "client", default_value = "none")]
    pub dry_run: DryRun,
    /// name, yaml, json, jsonpath=…: show the objects.
    #[arg(long, short)]
    pub output: Option<String>,
    /// Who the changes are recorded for.
    #[arg(long)]
    pub field_manager: Option<String>,
    /// The template, for -o go-template and -o jsonpath.
    #[arg(long)]
    pub template: Option<String>,
    /// Also show who set which field.
    #[arg(long)]
    pub show_managed_fields: bool,
    /// Accepted as upstream's: what is missing is never an error.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)]
    pub allow_missing_template_keys: Option<String>,
}

/// What is only pretended, and where.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DryRun {
    /// Nothing is pretended.
    #[default]
    None,
    /// Nothing is sent.
    Client,
    /// The server does everything but store it.
    Server,
}

impl DryRun {
    /// What upstream puts behind messages.
    pub fn suffix(self) -> &'static str {
        match self {
            DryRun::None => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        }
    }
}

impl ChangeFlags {
    /// The query of a write.
    pub fn query(&self, manager: &str) -> String {
        let manager = self.field_manager.as_deref().unwrap_or(manager);
        let dry = if self.dry_run == DryRun::Server { "&dryRun=All" } else { "" };
        format!("?fieldManager={}{dry}", encode(manager))
    }

    /// Says what was done, or shows the object where that was asked for.
    pub fn show(&self, resource: &Resource, object: &Value, done: &str) -> Result<()> {
        match Output::parse_with(self.output.as_deref(), self.template.as_deref())? {
            Output::Table => println!("{} {done}{}", resource.named(name_of(object)), self.dry_run.suffix()),
            Output::Name => println!("{}", resource.named(name_of(object))),
            Output::Wide => bail!("unable to match a printer suitable for the output format \"wide\""),
            output => print!("{}", output.show(&self.shown(object))?),
        }
        Ok(())
    }

    fn shown(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if !self.show_managed_fields
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            metadata.remove("managedFields");
        }
        object
    }
}

/// What came of a change.
pub struct Changed {
    /// The object as it is now, or would be.
    pub object: Value,
    /// Whether anything became different.
    pub is_different: bool,
}

/// Changes an object as `edit` does it. What others change meanwhile stays: only the difference is sent.
pub async fn change(
    connection: &Connection,
    flags: &ChangeFlags,
    manager: &str,
    (resource, object): (&Resource, &Value),
    edit: impl Fn(&mut Value) -> Result<()>,
) -> Result<Changed> {
    let mut before = object.clone();
    let path = path_of(resource, object);
    for attempt in 1.. {
        let mut after = before.clone();
        edit(&mut after)?;
        let Some(mut patch) = difference(&before, &after) else {
            return Ok(Changed { object: before, is_different: false });
        };
        if flags.dry_run == DryRun::Client {
            return Ok(Changed { object: after, is_different: true });
        }
        // A list is replaced whole, so nobody else may have changed it.
        if has_list(&patch) {
            patch["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        }
        let path = format!("{path}{}", flags.query(manager));
        match merge(connection, &path, &patch).await {
            Ok(object) => return Ok(Changed { object, is_different: true }),
            Err(error) if attempt < ATTEMPTS && is_conflict(&error) => {
                before = connection.get(&path_of(resource, object)).await?;
            }
            Err(error) => return Err(error),
        }
    }
    bail!("somebody else changes {path} all the time")
}

/// Makes a new object, and shows it.
pub async fn create(
    connection: &Connection,
    flags: &ChangeFlags,
    manager: &str,
    (resource, object): (&Resource, &Value),
    done: &str,
) -> Result<Value> {
    let made = if flags.dry_run == DryRun::Client {
        unsent(connection, object)
    } else {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&connection.namespace);
        let path = format!("{}{}", resource.path(Some(namespace)), flags.query(manager));
        connection.send(Method::POST, &path, Some(object)).await?
    };
    flags.show(resource, &made, done)?;
    Ok(made)
}

/// An object that a command made and does not send, as upstream shows it: in no namespace unless one was named, and with
/// the empty parts that its types write.
pub fn unsent(connection: &Connection, object: &Value) -> Value {
    let mut object = object.clone();
    if !connection.namespace_is_given
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("namespace");
    }
    let nothing = || Value::Object(Map::new());
    match object["kind"].as_str().unwrap_or_default() {
        "Namespace" => {
            object["spec"] = nothing();
            object["status"] = nothing();
        }
        "Pod" | "Deployment" | "Job" | "CronJob" | "ResourceQuota" => object["status"] = nothing(),
        "Service" | "Ingress" => object["status"]["loadBalancer"] = nothing(),
        "PodDisruptionBudget" => {
            for field in ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"] {
                object["status"][field] = 0.into();
            }
        }
        "HorizontalPodAutoscaler" => {
            object["status"]["currentMetrics"] = Value::Null;
            object["status"]["desiredReplicas"] = 0.into();
        }
        _ => {}
    }
    object
}

/// Sends a merge patch.
pub async fn merge(connection: &Connection, path: &str, patch: &Value) -> Result<Value> {
    let (kind, body) = ("application/merge-patch+json", Some(patch.to_string()));
    connection.send_as(Method::PATCH, path, kind, body, "application/json").await
}

/// Whether the server says that somebody was faster.
pub fn is_conflict(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.code == 409)
}

/// The merge patch that makes one value of another; `None` if they are the same.
pub fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            Some(old) => patch.extend(difference(old, value).map(|value| (name.clone(), value))),
            None if value.is_null() => {}
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn has_list(patch: &Value) -> bool {
    match patch {
        Value::Array(_) => true,
        Value::Object(fields) => fields.values().any(has_list),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_difference_is_sent() {
        let check = |before: Value, after: Value, expected: Value| {
            assert_eq!(difference(&before, &after).unwrap_or_default(), expected, "{before} -> {after}");
        };
        check(json!({"a": 1}), json!({"a": 1}), Value::Null);
        check(json!({"a": 1, "b": 2}), json!({"a": 3, "b": 2}), json!({"a": 3}));
        check(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1}}), json!({"a": {"c": null}}));
        check(json!({"a": [1]}), json!({"a": [1, 2]}), json!({"a": [1, 2]}));
        check(json!({}), json!({"a": {"b": {}}}), json!({"a": {"b": {}}}));
        check(json!({}), json!({"a": null}), Value::Null);
    }

    #[test]
    fn a_patch_with_a_list_needs_the_version_it_was_made_from() {
        assert!(has_list(&json!({"spec": {"containers": []}})));
        assert!(!has_list(&json!({"metadata": {"labels": {"a": "b"}}})));
    }
}
