//! A pod's priority is a number behind a name: the name is looked up when the pod is created.

use super::{Operation, Request, mentions};
use crate::error::{ApiError, Result};
use api::{Value, object};
use serde_json::json;

/// Classes that are always there.
const SYSTEM: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

pub(super) fn admit(request: &Request<'_>, pod: Option<&mut Value>) -> Result<()> {
    let Some(pod) = pod else { return Ok(()) };
    if !request.is_for("", "pods") {
        return Ok(());
    }
    if request.operation == Operation::Update {
        // The name cannot change, so neither does what it stands for.
        return Ok(());
    }
    let named = pod["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
    let (name, value, policy) = if named.is_empty() {
        default_class(request)
    } else {
        find_class(request, &named).ok_or_else(|| {
            ApiError::forbidden(
                request.kind,
                &request.name,
                format!("no PriorityClass with name {named} was found"),
            )
        })?
    };
    let given = pod["spec"].get("priority").and_then(Value::as_i64);
    if given.is_some_and(|given| given != value) {
        let why = format!(
            "the integer value of priority ({}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name",
            given.unwrap_or_default()
        );
        return Err(ApiError::forbidden(request.kind, &request.name, why));
    }
    let spec = object::object_mut(pod, "spec");
    if !name.is_empty() {
        spec.insert("priorityClassName".into(), name.into());
    }
    spec.insert("priority".into(), json!(value));
    spec.entry("preemptionPolicy").or_insert_with(|| policy.into());
    Ok(())
}

type Class = (String, i64, String);

fn class(object: &Value) -> Class {
    (
        object::name(object).to_owned(),
        object["value"].as_i64().unwrap_or(0),
        object["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority").to_owned(),
    )
}

fn find_class(request: &Request<'_>, name: &str) -> Option<Class> {
    if let Some((name, value)) = SYSTEM.iter().find(|(system, _)| *system == name) {
        return Some((name.to_string(), *value, "PreemptLowerPriority".to_owned()));
    }
    request.server.lookup("scheduling.k8s.io", "priorityclasses", "", name).map(|object| class(&object))
}

/// The class marked as the default (the lowest, should there be several), or none.
fn default_class(request: &Request<'_>) -> Class {
    let classes = request.server.registry.built_in("scheduling.k8s.io", "priorityclasses");
    classes
        .objects(None)
        .iter()
        .filter(|object| mentions(object.as_json(), "\"globalDefault\":true"))
        .filter_map(|object| serde_json::from_slice::<Value>(object.as_json()).ok())
        .filter(|object| object["globalDefault"] == json!(true))
        .map(|object| class(&object))
        .min_by_key(|(_, value, _)| *value)
        .unwrap_or_else(|| (String::new(), 0, "PreemptLowerPriority".to_owned()))
}
