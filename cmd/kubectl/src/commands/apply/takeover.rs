//! From client-side to server-side apply: what `kubectl apply` of upstream owns is taken over, so that a field that is no
//! longer in the file goes, and no field is lost on the way.

use crate::connection::{Connection, Refusal};
use anyhow::Result;
use http::Method;
use serde_json::{Map, Value, json};

/// Who applies.
pub const MANAGER: &str = "kubectl";
/// Where client-side apply keeps what it applied.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Who owns that annotation once the fields are taken over, as upstream's kubectl has it.
const ANNOTATION_MANAGER: &str = "kubectl-last-applied";
/// Who client-side users' fields are recorded for.
const CLIENT_SIDE: [&str; 2] = ["kubectl-client-side-apply", "before-first-apply"];

/// Records client-side users' fields for server-side apply. `live` becomes the object after that.
pub async fn take_over(connection: &Connection, path: &str, live: &mut Value) -> Result<()> {
    for _ in 0..5 {
        let last = live["metadata"]["annotations"][LAST_APPLIED].as_str();
        let last: Option<Value> = last.and_then(|last| serde_json::from_str(last).ok());
        let managed = &live["metadata"]["managedFields"];
        let Some(fields) = taken_over(managed, last.as_ref()) else { return Ok(()) };
        let patch = json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": fields},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        ]);
        let kind = "application/json-patch+json";
        let sent =
            connection.send_as(Method::PATCH, path, kind, Some(patch.to_string()), "application/json").await;
        match sent {
            Err(error) if crate::change::is_conflict(&error) => *live = connection.get(path).await?,
            sent => {
                let sent = sent?;
                // Only who owns what has changed: what is said to the user is about the rest.
                live["metadata"]["resourceVersion"] = sent["metadata"]["resourceVersion"].clone();
                live["metadata"]["managedFields"] = sent["metadata"]["managedFields"].clone();
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The managed fields with client-side users' moved to the applier; `None` if there are none. Of theirs it takes only
/// what they did apply: whoever creates an object is recorded for what the server adds to it, too, and that must not go
/// because no file has it.
fn taken_over(managed: &Value, last_applied: Option<&Value>) -> Option<Value> {
    let entries = managed.as_array()?;
    let is_client_side = |entry: &&Value| {
        entry["operation"] == "Update"
            && entry["subresource"].as_str().unwrap_or_default().is_empty()
            && entry["manager"].as_str().is_some_and(|manager| CLIENT_SIDE.contains(&manager))
    };
    let newest = entries.iter().rfind(is_client_side)?;
    let is_own = |entry: &&Value| entry["manager"] == MANAGER && entry["operation"] == "Apply";
    let mut fields = Value::Object(Map::new());
    for entry in entries.iter().filter(|entry| is_client_side(entry) || is_own(entry)) {
        let mut own = entry["fieldsV1"].clone();
        if let Some(last) = last_applied.filter(|_| is_client_side(&entry)) {
            keep_applied(&mut own, last);
        }
        union(&mut fields, &own);
    }
    let mut rest: Vec<Value> =
        entries.iter().filter(|entry| !is_client_side(entry) && !is_own(entry)).cloned().collect();
    let entry = |manager: &str, fields: Value| {
        let mut entry = newest.clone();
        entry["manager"] = manager.into();
        entry["operation"] = "Apply".into();
        entry["fieldsV1"] = fields;
        entry
    };
    let annotation = format!("f:{LAST_APPLIED}");
    let annotations = fields.pointer_mut("/f:metadata/f:annotations").and_then(Value::as_object_mut);
    if annotations.and_then(|annotations| annotations.remove(&annotation)).is_some() {
        rest.push(entry(ANNOTATION_MANAGER, json!({"f:metadata": {"f:annotations": {annotation: {}}}})));
    }
    rest.insert(0, entry(MANAGER, fields));
    Some(Value::Array(rest))
}

fn union(into: &mut Value, from: &Value) {
    for (name, below) in from.as_object().into_iter().flatten() {
        if into.get(name).is_none() {
            into[name] = Value::Object(Map::new());
        }
        union(&mut into[name], below);
    }
}

/// Leaves of managed fields those that an object has; items of lists are found by their keys.
fn keep_applied(fields: &mut Value, object: &Value) {
    let Some(fields) = fields.as_object_mut() else { return };
    fields.retain(|name, below| {
        let found = match name.split_once(':') {
            Some(("f", name)) if name == LAST_APPLIED => return true,
            Some(("f", name)) => object.get(name),
            Some(("k", keys)) => item_of(object, keys),
            Some(("v", value)) => {
                item(object, |item| serde_json::from_str::<Value>(value).is_ok_and(|own| own == *item))
            }
            _ => return true,
        };
        // The note itself is not in the note.
        if let (None, "f:metadata" | "f:annotations") = (found, name.as_str()) {
            keep_applied(below, &Value::Null);
            return !below.as_object().is_none_or(Map::is_empty);
        }
        found.map(|found| keep_applied(below, found)).is_some()
    });
}

/// The item with these keys; one that it does not say is the default.
fn item_of<'a>(list: &'a Value, keys: &str) -> Option<&'a Value> {
    let keys: Value = serde_json::from_str(keys).ok()?;
    let keys = keys.as_object()?;
    item(list, |item| keys.iter().all(|(key, value)| item.get(key).is_none_or(|own| own == value)))
}

fn item(list: &Value, fits: impl Fn(&Value) -> bool) -> Option<&Value> {
    list.as_array()?.iter().find(|item| fits(item))
}

/// Whether all conflicts are with commands that the user has called as well: `kubectl edit`, `scale`, `patch`, …
pub fn is_with_own_commands(error: &anyhow::Error) -> bool {
    let Some(refusal) = error.downcast_ref::<Refusal>().filter(|refusal| refusal.code == 409) else {
        return false;
    };
    let mut causes = refusal.details["causes"].as_array().into_iter().flatten().peekable();
    causes.peek().is_some()
        && causes.all(|cause| {
            let message = cause["message"].as_str().unwrap_or_default();
            message.strip_prefix("conflict with \"").is_some_and(|manager| manager.starts_with("kubectl"))
        })
}

/// Fields that the last client-side apply had, that the file no longer has, and that are still there.
pub fn kept_fields(before: &Value, config: &Value, after: &Value) -> Vec<String> {
    let last = before["metadata"]["annotations"][LAST_APPLIED].as_str();
    let Some(last) = last.and_then(|last| serde_json::from_str::<Value>(last).ok()) else {
        return Vec::new();
    };
    let mut kept = Vec::new();
    kept_below("", &last, config, after, &mut kept);
    kept
}

fn kept_below(path: &str, last: &Value, config: &Value, after: &Value, kept: &mut Vec<String>) {
    let Some(fields) = last.as_object() else { return };
    for (name, value) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (config.get(name), after.get(name)) {
            // A value that differs from what was applied is somebody else's; an equal one is the default.
            (None, Some(left)) if !left.is_object() && left != value => kept.push(path),
            (Some(config), Some(after)) if path != "metadata" && path != "status" => {
                kept_below(&path, value, config, after, kept)
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_side_fields_become_the_appliers() {
        let managed = json!([
            {"manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": "apps/v1", "fieldsV1": {
                "f:metadata": {"f:annotations": {".": {}, "f:kubectl.kubernetes.io/last-applied-configuration": {}}},
                "f:spec": {"f:replicas": {}}}},
            {"manager": "kubectl", "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": {"f:spec": {"f:paused": {}}}},
            {"manager": "controller", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
        ]);
        let expected = json!([
            {"manager": "kubectl", "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": {
                "f:metadata": {"f:annotations": {".": {}}}, "f:spec": {"f:replicas": {}, "f:paused": {}}}},
            {"manager": "controller", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
            {"manager": "kubectl-last-applied", "operation": "Apply", "apiVersion": "apps/v1", "fieldsV1": {
                "f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/last-applied-configuration": {}}}}},
        ]);
        assert_eq!(taken_over(&managed, None), Some(expected));
        assert_eq!(
            taken_over(&json!([{"manager": "kubectl", "operation": "Apply", "fieldsV1": {}}]), None),
            None
        );
    }

    #[test]
    fn what_the_server_added_is_not_taken_over() {
        let mut fields = json!({
            "f:metadata": {"f:annotations": {".": {}, format!("f:{LAST_APPLIED}"): {}}, "f:labels": {"f:a": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                ".": {}, "f:name": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:resources": {"f:limits": {"f:cpu": {}}},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:protocol": {}}}}}},
        });
        let applied = json!({"metadata": {"name": "a"}, "spec": {"containers": [
            {"name": "b"}, {"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}});
        keep_applied(&mut fields, &applied);
        let expected = json!({
            "f:metadata": {"f:annotations": {".": {}, format!("f:{LAST_APPLIED}"): {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                ".": {}, "f:name": {}, "f:image": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}}}}}},
        });
        assert_eq!(fields, expected);
    }

    #[test]
    fn what_stays_though_the_file_no_longer_has_it_is_named() {
        let last = json!({"spec": {"replicas": 2, "paused": false, "template": {"a": 1}}}).to_string();
        let before = json!({"metadata": {"annotations": {LAST_APPLIED: last}}});
        let config = json!({"spec": {"template": {"a": 1}}});
        let after = json!({"spec": {"replicas": 7, "paused": false, "template": {"a": 1}}});
        assert_eq!(kept_fields(&before, &config, &after), ["spec.replicas"]);
    }

    #[test]
    fn only_conflicts_with_ones_own_commands_are_forced() {
        let conflict = |managers: &[&str]| {
            let causes: Vec<Value> = managers
                .iter()
                .map(|manager| json!({"message": format!("conflict with \"{manager}\" using v1")}))
                .collect();
            let details = json!({"causes": causes});
            anyhow::Error::from(Refusal {
                code: 409,
                reason: "Conflict".into(),
                message: String::new(),
                details,
            })
        };
        assert!(is_with_own_commands(&conflict(&["kubectl-edit", "kubectl"])));
        assert!(!is_with_own_commands(&conflict(&["kubectl-edit", "hpa"])));
        assert!(!is_with_own_commands(&conflict(&[])));
    }
}
