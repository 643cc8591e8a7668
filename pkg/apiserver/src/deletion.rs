//! What deleting an object means: a pure decision on grace periods, finalizers and propagation.
//!
//! ```text
//! DELETE ──> plan ──> Remove                    nothing holds it
//!                 ├─> Mark(object)              a grace period or a finalizer holds it: deletionTimestamp is set
//!                 └─> Pending                   it is already on its way
//! update that takes the last finalizer away ──> finished() ──> removed
//! ```

use crate::error::{ApiError, Result};
use api::{FieldError, Kind, Value, crd, field::Reason, object};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// `metav1.DeleteOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// How long the object may take to end.
    pub grace_period_seconds: Option<i64>,
    /// What becomes of dependents.
    pub propagation: Option<Propagation>,
    /// Only an object of this uid.
    pub uid: Option<String>,
    /// Only an object of this resourceVersion.
    pub resource_version: Option<String>,
    /// Decide, but change nothing.
    pub dry_run: bool,
}

/// What becomes of an object's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They stay.
    Orphan,
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum DeletePlan {
    /// Take it out of the store.
    Remove,
    /// Store it with a deletionTimestamp; somebody else will finish.
    Mark(Box<Value>),
    /// Nothing: it is already being deleted.
    Pending,
}

/// Holds a CustomResourceDefinition that is being deleted until its objects are gone.
pub const CUSTOM_RESOURCE_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

impl DeleteOptions {
    /// From the body of a DELETE and its query parameters, the body winning.
    pub fn parse(body: Option<&Value>, query: &crate::request::Query) -> Result<DeleteOptions> {
        let empty = json!({});
        let has_body = body.is_some();
        let body = body.unwrap_or(&empty);
        check_types(body)?;
        let text = |name: &str| {
            body.get(name).and_then(Value::as_str).or_else(|| query.get(name)).map(str::to_owned)
        };
        let orphan =
            body.get("orphanDependents").and_then(Value::as_bool).or(query.optional_flag("orphanDependents"));
        let propagation = match (text("propagationPolicy").as_deref(), orphan) {
            (Some(_), Some(_)) => {
                return Err(invalid_options(
                    "propagationPolicy",
                    "orphanDependents and deletionPropagation cannot be both set",
                ));
            }
            (Some("Orphan"), None) | (None, Some(true)) => Some(Propagation::Orphan),
            (Some("Background"), None) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Foreground"), None) => Some(Propagation::Foreground),
            (None, None) => None,
            (Some(other), None) => {
                return Err(invalid_options(
                    "propagationPolicy",
                    &format!(
                        "{other:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                    ),
                ));
            }
        };
        let dry_run = match body.get("dryRun").and_then(Value::as_array) {
            Some(values) => dry_run(values.iter().filter_map(Value::as_str))?,
            None => dry_run(query.all("dryRun"))?,
        };
        // Options in a body are all there are; without one, the query may name what is to be deleted.
        let precondition = |name: &str| match body.get("preconditions") {
            Some(given) => given.get(name).and_then(Value::as_str).map(str::to_owned),
            None if has_body => None,
            None => query.get(name).map(str::to_owned),
        };
        Ok(DeleteOptions {
            grace_period_seconds: match body.get("gracePeriodSeconds").and_then(Value::as_i64) {
                Some(seconds) => Some(seconds),
                None => query.int("gracePeriodSeconds")?,
            },
            propagation,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            dry_run,
        })
    }
}

type IsRight = fn(&Value) -> bool;

/// The members of `DeleteOptions`, with the names of their types in Go, which complaints use.
const MEMBERS: [(&str, &str, IsRight); 7] = [
    ("dryRun", "[]string", |value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string))),
    ("gracePeriodSeconds", "int64", Value::is_i64),
    ("orphanDependents", "bool", Value::is_boolean),
    ("propagationPolicy", "v1.DeletionPropagation", Value::is_string),
    ("preconditions", "v1.Preconditions", Value::is_object),
    ("preconditions.uid", "types.UID", Value::is_string),
    ("preconditions.resourceVersion", "string", Value::is_string),
];

/// Complains about members of other types than those of `DeleteOptions`.
fn check_types(body: &Value) -> Result<()> {
    for (name, ty, is_right) in MEMBERS {
        let given = body.pointer(&format!("/{}", name.replace('.', "/"))).unwrap_or(&Value::Null);
        let found = match given {
            Value::Null => continue,
            given if is_right(given) => continue,
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        return Err(ApiError::bad_request(format!(
            "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: json: cannot unmarshal {found} into Go struct field DeleteOptions.{name} of type {ty}"
        )));
    }
    Ok(())
}

/// Whether `dryRun` asks for a dry run; `All` is the only value there is.
pub fn dry_run<'a>(values: impl Iterator<Item = &'a str>) -> Result<bool> {
    let mut dry = false;
    for value in values.filter(|value| !value.is_empty()) {
        if value != "All" {
            return Err(invalid_options(
                "dryRun",
                &format!("Unsupported value: {value:?}: supported values: \"All\""),
            ));
        }
        dry = true;
    }
    Ok(dry)
}

fn invalid_options(field: &str, detail: &str) -> ApiError {
    ApiError::unprocessable(format!(
        "DeleteOptions.meta.k8s.io \"\" is invalid: {field}: Invalid value: {detail}"
    ))
    .with_cause(Reason::Invalid.cause(), detail, field)
}

/// Decides what a deletion does to an object.
pub fn plan(kind: &Kind, current: &Value, options: &DeleteOptions, now: Timestamp) -> Result<DeletePlan> {
    check_preconditions(kind, current, options)?;
    let mut marked = current.clone();
    let deleting = object::meta(current, "deletionTimestamp");
    let mut finalizers = wanted_finalizers(kind, current, options);
    if deleting.is_none() && is_definition(kind) && !finalizers.iter().any(|f| f == CUSTOM_RESOURCE_CLEANUP) {
        finalizers.push(CUSTOM_RESOURCE_CLEANUP.to_owned());
    }
    set_finalizers(&mut marked, &finalizers);
    let grace_seconds = grace_period(kind, current, options);
    let held_seconds = current["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);

    if let Some(since) = deleting {
        // Already on its way: a grace period can only be shortened.
        if held_seconds > 0 && kind_is_graceful(kind) {
            match options.grace_period_seconds {
                Some(_) if grace_seconds < held_seconds => {
                    if grace_seconds == 0 && finalizers.is_empty() {
                        return Ok(DeletePlan::Remove);
                    }
                    let asked: Option<Timestamp> = since.parse().ok();
                    let from = asked.map_or(now, |at| at - SignedDuration::from_secs(held_seconds));
                    let until = (from + SignedDuration::from_secs(grace_seconds)).max(now);
                    mark(&mut marked, until, grace_seconds.max(i64::from(grace_seconds != 0)));
                    return Ok(DeletePlan::Mark(Box::new(marked)));
                }
                _ => return Ok(DeletePlan::Pending),
            }
        }
        return Ok(if !finalizers.is_empty() || namespace_is_held(kind, current) {
            if marked == *current { DeletePlan::Pending } else { DeletePlan::Mark(Box::new(marked)) }
        } else {
            DeletePlan::Remove
        });
    }
    if grace_seconds == 0 && finalizers.is_empty() && !namespace_is_held(kind, current) {
        return Ok(DeletePlan::Remove);
    }
    mark(&mut marked, now + SignedDuration::from_secs(grace_seconds), grace_seconds);
    if let Some(generation) = marked["metadata"]["generation"].as_i64() {
        marked["metadata"]["generation"] = (generation + 1).into();
    }
    if kind.group.is_empty() && kind.plural == "namespaces" {
        object::object_mut(&mut marked, "status").insert("phase".into(), "Terminating".into());
        // A namespace has no grace period, not even one of nothing.
        object::object_mut(&mut marked, "metadata").remove("deletionGracePeriodSeconds");
    }
    if is_definition(kind) {
        crd::mark_terminating(&mut marked, now);
    }
    Ok(DeletePlan::Mark(Box::new(marked)))
}

/// Whether an object that is being deleted has nothing left to wait for.
pub fn finished(kind: &Kind, object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata.get("deletionTimestamp").is_some_and(|t| !t.is_null())
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        && !namespace_is_held(kind, object)
}

/// Whether it is the object that is meant.
pub fn check_preconditions(kind: &Kind, current: &Value, options: &DeleteOptions) -> Result<()> {
    let name = object::name(current);
    let uid = object::meta(current, "uid").unwrap_or_default();
    if let Some(asked) = options.uid.as_deref().filter(|asked| *asked != uid) {
        return Err(ApiError::conflict(
            kind,
            name,
            format!(
                "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ),
        ));
    }
    let version = object::meta(current, "resourceVersion").unwrap_or_default();
    if let Some(asked) = options.resource_version.as_deref().filter(|asked| *asked != version) {
        return Err(ApiError::conflict(
            kind,
            name,
            format!(
                "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            ),
        ));
    }
    Ok(())
}

fn is_definition(kind: &Kind) -> bool {
    kind.group == "apiextensions.k8s.io" && kind.plural == "customresourcedefinitions"
}

/// Only pods are given time to end by themselves.
fn kind_is_graceful(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "pods"
}

fn grace_period(kind: &Kind, current: &Value, options: &DeleteOptions) -> i64 {
    if !kind_is_graceful(kind) {
        return 0;
    }
    let scheduled = current["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let ended = matches!(current["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !scheduled || ended {
        return 0;
    }
    let seconds = options
        .grace_period_seconds
        .or_else(|| current["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(0);
    if seconds < 0 { 1 } else { seconds }
}

/// A namespace stays while its own finalizers (in spec) do.
fn namespace_is_held(kind: &Kind, object: &Value) -> bool {
    kind.group.is_empty()
        && kind.plural == "namespaces"
        && object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

/// The finalizers as the propagation policy wants them.
fn wanted_finalizers(kind: &Kind, current: &Value, options: &DeleteOptions) -> Vec<String> {
    let mut finalizers: Vec<String> = current["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|f| f.as_str().map(str::to_owned))
        .collect();
    let default = default_propagation(kind, &finalizers);
    let policy = options.propagation.or(default);
    let wanted = match policy {
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Background) => None,
        None => return finalizers,
    };
    finalizers.retain(|f| f != ORPHAN && f != FOREGROUND);
    finalizers.extend(wanted.map(str::to_owned));
    finalizers
}

/// What happens where the client does not say: these two keep their pods, as they always have.
fn default_propagation(kind: &Kind, finalizers: &[String]) -> Option<Propagation> {
    if finalizers.iter().any(|f| f == ORPHAN || f == FOREGROUND) {
        return None;
    }
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "replicationcontrollers") | ("batch", "jobs") => Some(Propagation::Orphan),
        _ => None,
    }
}

fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let metadata = object::object_mut(object, "metadata");
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), json!(finalizers));
    }
}

fn mark(object: &mut Value, at: Timestamp, grace_seconds: i64) {
    let metadata = object::object_mut(object, "metadata");
    metadata.insert("deletionTimestamp".into(), crate::time::rfc3339(at).into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace_seconds.into());
}

/// The complaint about an update that adds finalizers to an object that is being deleted.
pub fn check_no_new_finalizers(new: &Value, old: &Value) -> Option<FieldError> {
    object::meta(old, "deletionTimestamp")?;
    let list = |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let had = list(old);
    let added: Vec<Value> = list(new).into_iter().filter(|f| !had.contains(f)).collect();
    (!added.is_empty()).then(|| FieldError {
        reason: Reason::Forbidden,
        path: "metadata.finalizers".into(),
        value: None,
        detail: format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn check(kind: &Kind, object: Value, options: DeleteOptions, expected: &str) {
        let text = match plan(kind, &object, &options, now()) {
            Ok(DeletePlan::Remove) => "remove".to_owned(),
            Ok(DeletePlan::Pending) => "pending".to_owned(),
            Ok(DeletePlan::Mark(object)) => {
                let m = &object["metadata"];
                format!(
                    "mark at={} grace={} finalizers={}",
                    m["deletionTimestamp"].as_str().unwrap(),
                    m["deletionGracePeriodSeconds"],
                    m.get("finalizers").unwrap_or(&json!([]))
                )
            }
            Err(error) => error.message,
        };
        assert_eq!(text, expected, "{object}");
    }

    #[test]
    fn a_pod_is_given_its_grace_period_only_where_it_runs() {
        let pod = Kind::new::<Pod>();
        let running = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}});
        check(
            &pod,
            running.clone(),
            DeleteOptions::default(),
            "mark at=2026-01-01T00:00:30Z grace=30 finalizers=[]",
        );
        let force = DeleteOptions { grace_period_seconds: Some(0), ..Default::default() };
        check(&pod, running.clone(), force, "remove");
        check(
            &pod,
            json!({"metadata": {}, "spec": {"terminationGracePeriodSeconds": 30}}),
            DeleteOptions::default(),
            "remove",
        );
        let mut ended = running;
        ended["status"] = json!({"phase": "Failed"});
        check(&pod, ended, DeleteOptions::default(), "remove");
    }

    #[test]
    fn a_grace_period_can_only_be_shortened() {
        let pod = Kind::new::<Pod>();
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:20Z", "deletionGracePeriodSeconds": 30}, "spec": {"nodeName": "n"}});
        let grace = |seconds| DeleteOptions { grace_period_seconds: Some(seconds), ..Default::default() };
        check(&pod, going.clone(), grace(60), "pending");
        check(&pod, going.clone(), grace(0), "remove");
        check(&pod, going, grace(20), "mark at=2026-01-01T00:00:10Z grace=20 finalizers=[]");
    }

    #[test]
    fn finalizers_hold_an_object_and_propagation_sets_them() {
        let deployment = Kind::new::<Deployment>();
        let propagation = |p| DeleteOptions { propagation: Some(p), ..Default::default() };
        check(&deployment, json!({"metadata": {}}), DeleteOptions::default(), "remove");
        check(
            &deployment,
            json!({"metadata": {}}),
            propagation(Propagation::Foreground),
            r#"mark at=2026-01-01T00:00:00Z grace=0 finalizers=["foregroundDeletion"]"#,
        );
        check(
            &deployment,
            json!({"metadata": {"finalizers": ["x"]}}),
            propagation(Propagation::Orphan),
            r#"mark at=2026-01-01T00:00:00Z grace=0 finalizers=["x","orphan"]"#,
        );
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}});
        check(&deployment, going.clone(), DeleteOptions::default(), "pending");
        assert!(!finished(&deployment, &going));
        assert!(finished(&deployment, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
    }
}
