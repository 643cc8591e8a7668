//! The apiserver as its clients see it: a real one, over TLS, on both engines where the engine matters.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission;
mod apiservices;
mod bad_input;
mod catalogue;
mod connections;
mod control_plane;
mod conversions;
mod crds;
mod crud;
mod default_plugins;
mod domains;
mod events;
mod fairness;
mod hostile;
mod http2;
mod identity;
mod kinds;
mod kubectl;
mod lists;
mod merge_keys;
mod patches;
mod policies;
mod python;
mod scope;
mod secured;
mod service_addresses;
mod services;
mod shapes;
mod watches;
mod webhooks;

use serde_json::{Value, json};

/// A ConfigMap with one entry.
fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

/// A pod with one container.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    })
}

/// A Deployment of pods with one container.
fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx"}]},
            },
        },
    })
}

/// The resourceVersion of an object or list.
fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("no resourceVersion in {object}"))
}

/// The names of a list's items.
fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("not a list: {list}"));
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
