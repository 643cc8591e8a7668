//! `scale`: an object seen as a number of replicas.

use crate::answer::{self, Answer};
use crate::decode;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::verbs::update;
use crate::write::Part;
use api::kind::Subresource;
use api::selector::LabelSelector;
use api::{Kind, Value, object};
use http::StatusCode;
use patch::PatchType;
use serde_json::json;

/// Where the numbers are in the object: dotted paths.
pub struct Paths<'a> {
    /// The wanted number.
    pub spec_replicas: &'a str,
    /// The present number.
    pub status_replicas: &'a str,
    /// The selector, as text or as a label selector.
    pub selector: Option<&'a str>,
}

impl Paths<'_> {
    /// Those of a kind that can be scaled.
    fn of(kind: &Kind) -> Option<Paths<'_>> {
        kind.subresources.iter().find_map(|part| match part {
            Subresource::Scale { spec_replicas, status_replicas, selector } => {
                Some(Paths { spec_replicas, status_replicas, selector: selector.as_deref() })
            }
            _ => None,
        })
    }
}

/// Reads or writes the scale.
pub async fn handle(
    server: &Server,
    resource: &Resource,
    call: &Call<'_>,
    paths: &Paths<'_>,
) -> Result<Answer> {
    let namespace = update::namespace_of(&resource.kind, call.target.namespace);
    if call.info.verb == "get" {
        let current = server.read(resource, namespace, &call.target.name).await?.object;
        return answer::formatted(call, StatusCode::OK, &scale_of(&current, paths));
    }
    let context = call.context()?;
    let patch_type = match (call.info.verb, decode::media_type(call.headers)) {
        ("update", _) => None,
        (_, "application/json-patch+json") => Some(PatchType::Json),
        (
            _,
            "application/merge-patch+json"
            | "application/strategic-merge-patch+json"
            | "application/apply-patch+yaml",
        ) => Some(PatchType::Merge),
        _ => {
            return Err(ApiError::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json",
            ));
        }
    };
    let body = match patch_type {
        None => decode::document(call.headers, &call.body)?.value,
        Some(_) => decode::yaml(&call.body)?.value,
    };
    let (namespace, name) = (call.target.namespace, &*call.target.name);
    let updated = update::change(server, resource, namespace, name, Part::Scale, &context, |current| {
        let wanted = match patch_type {
            None => body.clone(),
            Some(patch_type) => {
                patch::apply_patch(patch_type, &api::Schema::default(), scale_of(current, paths), body.clone())?
            }
        };
        if let Some(version) = object::meta(&wanted, "resourceVersion").filter(|version| !version.is_empty())
            && Some(version) != object::meta(current, "resourceVersion")
        {
            return Err(ApiError::modified(&resource.kind, object::name(current)));
        }
        let replicas = match wanted["spec"].get("replicas") {
            None | Some(Value::Null) => 0,
            Some(value) => value
                .as_i64()
                .filter(|n| i32::try_from(*n).is_ok())
                .ok_or_else(|| ApiError::bad_request("Scale in version \"v1\" cannot be handled as a Scale: spec.replicas must be an integer"))?,
        };
        if replicas < 0 {
            return Err(ApiError::unprocessable(format!(
                "Scale.autoscaling {:?} is invalid: spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0",
                object::name(current)
            ))
            .with_cause("FieldValueInvalid", &format!("Invalid value: {replicas}: must be greater than or equal to 0"), "spec.replicas"));
        }
        let mut scaled = current.clone();
        set(&mut scaled, paths.spec_replicas, replicas.into());
        Ok(scaled)
    })
    .await?
    .into_object();
    answer::formatted(call, StatusCode::OK, &scale_of(&updated, paths))
        .map(|answer| answer.with_warnings(&context))
}

/// An object of a kind that can be scaled, seen so.
pub fn of(kind: &Kind, object: &Value) -> Value {
    Paths::of(kind).map(|paths| scale_of(object, &paths)).unwrap_or_default()
}

/// Gives an object of a kind that can be scaled this many replicas.
pub fn set_replicas(kind: &Kind, object: &mut Value, replicas: &Value) {
    if let Some(paths) = Paths::of(kind) {
        set(object, paths.spec_replicas, replicas.clone());
    }
}

fn scale_of(object: &Value, paths: &Paths<'_>) -> Value {
    let meta = |name: &str| object["metadata"].get(name).cloned().unwrap_or(Value::Null);
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": meta("name"), "namespace": meta("namespace"), "uid": meta("uid"),
            "resourceVersion": meta("resourceVersion"), "creationTimestamp": meta("creationTimestamp"),
        },
        "spec": {"replicas": get(object, paths.spec_replicas).and_then(Value::as_i64).unwrap_or(0)},
        "status": {"replicas": get(object, paths.status_replicas).and_then(Value::as_i64).unwrap_or(0)},
    });
    let selector = paths.selector.and_then(|path| get(object, path)).and_then(|value| match value {
        Value::String(text) => Some(text.clone()),
        // A plain map of labels (ReplicationController) is a selector too.
        Value::Object(map) if !map.contains_key("matchLabels") && !map.contains_key("matchExpressions") => {
            LabelSelector::from_json(&json!({ "matchLabels": map })).ok().map(|s| s.to_string())
        }
        other => LabelSelector::from_json(other).ok().map(|s| s.to_string()),
    });
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

fn get<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|part| !part.is_empty()).try_fold(object, |value, part| value.get(part))
}

fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        if !at[part].is_object() && !at[part].is_number() {
            at[part] = json!({});
        }
        at = &mut at[part];
    }
    *at = value;
}
