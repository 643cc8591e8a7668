//! From client-side to server-side `kubectl apply` and back.
//!
//! Client-side apply keeps what it applied in an annotation. The first server-side apply by kubectl may take over
//! what that annotation says and nobody has changed since; afterwards the annotation is kept true.

use super::field_set::FieldSet;
use super::managed_fields::WriteContext;
use super::typed::{compare, field_set};
use super::typed_merge::validate;
use api::Schema;
use serde_json::Value;

/// The manager of `kubectl apply --server-side`: no other's conflicts and annotations are treated so.
pub(super) const MANAGER: &str = "kubectl";
/// Where client-side apply keeps what it applied.
pub(super) const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotations may take this much together.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

/// What client-side apply set and nobody has changed since: kubectl may take that over without a conflict.
pub(super) fn unchanged_fields(schema: &Schema, live: &Value, context: &WriteContext<'_>) -> FieldSet {
    let config: Option<Value> = annotation(live).and_then(|text| serde_json::from_str(text).ok());
    let Some(config) = config else { return FieldSet::default() };
    let same_version = config.get("apiVersion").is_some_and(|version| version == context.api_version);
    if !same_version || !validate(schema, &config).is_empty() {
        return FieldSet::default();
    }
    let mut fields = field_set(schema, &config);
    let comparison = compare(schema, &config, live);
    fields.subtract(&comparison.changed);
    fields.subtract(&comparison.removed);
    fields
}

/// Keeps the annotation true, so that client-side apply still works after server-side apply.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    let Some(annotations) = object["metadata"]["annotations"].as_object_mut() else { return };
    annotations.insert(ANNOTATION.into(), format!("{config}\n").into());
    let bytes: usize =
        annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > MOST_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}

fn annotation(object: &Value) -> Option<&str> {
    let annotation = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!annotation.is_empty()).then_some(annotation)
}
