//! The kinds of `metrics.k8s.io/v1beta1`: read-only, computed when somebody asks.

use api::Kind;
use api::kind::Verbs;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// NodeMetrics and PodMetrics.
pub fn kinds() -> Vec<Arc<Kind>> {
    static KINDS: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(make);
    KINDS.clone()
}

fn make() -> Vec<Arc<Kind>> {
    let resources = json!({
        "type": "object",
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
        },
    });
    let container = json!({
        "type": "object",
        "required": ["name", "usage"],
        "properties": {"name": {"type": "string"}, "usage": resources},
    });
    let node = json!({"usage": resources});
    let pod = json!({"containers": {
        "type": "array", "items": container, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
    }});
    let definitions = [
        definition("NodeMetrics", "nodes", "Cluster", &node),
        definition("PodMetrics", "pods", "Namespaced", &pod),
    ];
    let kinds = definitions.iter().flat_map(api::crd::kinds);
    kinds.map(|kind| Arc::new(Kind { verbs: Verbs::ReadOnly, ..kind })).collect()
}

fn definition(kind: &str, plural: &str, scope: &str, own: &Value) -> Value {
    let mut properties = json!({
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "timestamp": {"type": "string", "format": "date-time"},
        "window": {"type": "string"},
    });
    for (name, schema) in own.as_object().into_iter().flatten() {
        properties[name.as_str()] = schema.clone();
    }
    let schema = json!({"type": "object", "properties": properties});
    let columns = json!([
        {"name": "Window", "type": "string", "jsonPath": ".window"},
        {"name": "Timestamp", "type": "date", "jsonPath": ".timestamp"},
    ]);
    json!({"spec": {
        "group": "metrics.k8s.io", "scope": scope, "names": {"plural": plural, "kind": kind, "singular": ""},
        "versions": [{
            "name": "v1beta1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": columns,
        }],
    }})
}
