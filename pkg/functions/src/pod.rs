//! A function's pod: what the function's template says, with a container that runs it and nothing more rights than that
//! takes. Pure.

use crate::definition::{Definition, Program, hex};
use crate::runtimes::PORT;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

/// The label with the function's name.
pub const FUNCTION: &str = "minik8s.io/function";
/// The label with the function's revision.
pub const REVISION: &str = "minik8s.io/revision";
/// The container that runs the function.
pub const CONTAINER: &str = "function";
/// What a pod may use, unless the function's template says otherwise.
const MEMORY_LIMIT: &str = "256Mi";

/// By which the activator shows a pod that it is the activator. Only its hash is in the pod.
#[derive(Clone)]
pub struct PodKey(ring::hmac::Key);

impl PodKey {
    /// A key made of a secret that outlives this process.
    pub fn new(secret: &[u8]) -> PodKey {
        PodKey(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret))
    }

    /// The token of a pod.
    pub fn token(&self, namespace: &str, pod: &str) -> String {
        hex(ring::hmac::sign(&self.0, format!("function pod {namespace}/{pod}").as_bytes()).as_ref())
    }
}

/// The hash of a token, as its pod knows it.
pub fn token_hash(token: &str) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref())
}

/// The pod of this name. `ready` is where it tells that it listens.
///
/// # Errors
///
/// Why the function can have none.
pub fn pod(definition: &Definition, name: &str, token: &str, ready: &str) -> Result<Pod, String> {
    let function = &definition.function;
    let container = match definition.program()? {
        Program::Source(runtime) => json!({
            "image": runtime.image,
            "command": runtime.command,
            "env": [
                {"name": "FUNCTION_TOKEN_SHA256", "value": token_hash(token)},
                {"name": "FUNCTION_PORT", "value": PORT.to_string()},
                {"name": "FUNCTION_READY", "value": ready},
            ],
        }),
        Program::Image(port) => json!({
            "image": function.spec.image,
            "ports": [{"containerPort": port}],
            "env": [{"name": "PORT", "value": port.to_string()}],
        }),
    };
    let own = with(
        json!({
            "name": CONTAINER,
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": MEMORY_LIMIT}},
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
                "runAsUser": 65534, "runAsGroup": 65534,
            },
        }),
        container,
    );
    let base = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 10,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [own],
    });
    let template = serde_json::to_value(&function.spec.template).map_err(|error| error.to_string())?;
    let mut spec = with_list(base, template["spec"].clone());
    // A call that is answered is ended; whether a pod that has ended comes back is for scaling to say.
    spec["restartPolicy"] = json!("Never");
    let mut metadata = json!({
        "name": name,
        "namespace": definition.key.namespace,
        "labels": template["metadata"]["labels"],
        "annotations": template["metadata"]["annotations"],
        "ownerReferences": [{
            "apiVersion": "minik8s.io/v1", "kind": "Function", "name": definition.key.name,
            "uid": function.metadata.uid, "controller": true, "blockOwnerDeletion": true,
        }],
    });
    metadata["labels"][FUNCTION] = json!(definition.key.name);
    metadata["labels"][REVISION] = json!(definition.revision);
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).map_err(|error| error.to_string())
}

/// A pod's specification with what a template says: members of members are merged, and lists of named things by name.
fn with_list(base: Value, template: Value) -> Value {
    match (base, template) {
        (Value::Array(mut base), Value::Array(template)) if has_names(&base) && has_names(&template) => {
            for part in template {
                match base.iter_mut().find(|known| known["name"] == part["name"]) {
                    Some(known) => *known = with_list(known.take(), part),
                    None => base.push(part),
                }
            }
            Value::Array(base)
        }
        (Value::Object(base), Value::Object(template)) => merged(base, template, with_list),
        (base, Value::Null) => base,
        (_, template) => template,
    }
}

fn has_names(list: &[Value]) -> bool {
    list.iter().all(|part| part["name"].is_string())
}

fn with(base: Value, more: Value) -> Value {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => merged(base, more, |_, more| more),
        (_, more) => more,
    }
}

fn merged(mut base: Map<String, Value>, more: Map<String, Value>, merge: fn(Value, Value) -> Value) -> Value {
    for (name, value) in more {
        let known = base.remove(&name).unwrap_or(Value::Null);
        base.insert(name, merge(known, value));
    }
    Value::Object(base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn built(spec: Value) -> Value {
        let function = json!({"metadata": {"namespace": "a", "name": "f", "uid": "u"}, "spec": spec});
        let definition = Definition::new(Arc::new(serde_json::from_value(function).expect("a function")));
        serde_json::to_value(pod(&definition, "f-1", "secret", "192.0.2.1:10271").expect("a pod"))
            .expect("JSON")
    }

    #[test]
    fn a_template_adds_to_the_pod_and_to_the_functions_container() {
        let pod = built(json!({"code": "x", "runtime": "python", "template": {
            "metadata": {"labels": {"team": "a", FUNCTION: "other"}},
            "spec": {
                "nodeSelector": {"disk": "ssd"}, "restartPolicy": "Always",
                "containers": [
                    {"name": "function", "env": [{"name": "A", "value": "b"}],
                        "resources": {"limits": {"cpu": "1"}}},
                    {"name": "proxy", "image": "p"},
                ],
            },
        }}));
        assert_eq!(pod["metadata"]["labels"]["team"], "a");
        assert_eq!(pod["metadata"]["labels"][FUNCTION], "f", "it cannot pretend to be another's");
        let spec = &pod["spec"];
        assert_eq!((&spec["nodeSelector"]["disk"], &spec["restartPolicy"]), (&json!("ssd"), &json!("Never")));
        let [own, other] = spec["containers"].as_array().expect("containers").as_slice() else {
            panic!("{spec}")
        };
        assert_eq!(
            (&own["name"], &own["image"], &other["name"]),
            (&json!("function"), &json!("minik8s.io/python:3"), &json!("proxy"))
        );
        let names: Vec<&str> =
            own["env"].as_array().into_iter().flatten().filter_map(|env| env["name"].as_str()).collect();
        assert_eq!(names, ["FUNCTION_TOKEN_SHA256", "FUNCTION_PORT", "FUNCTION_READY", "A"]);
        assert_eq!(own["resources"]["limits"], json!({"cpu": "1", "memory": "256Mi"}));
        assert_eq!(own["securityContext"]["runAsNonRoot"], true);
    }

    #[test]
    fn a_pod_does_not_hold_its_token() {
        let pod = built(json!({"code": "x", "runtime": "python"}));
        assert!(!pod.to_string().contains("\"secret\""), "{pod}");
        let key = PodKey::new(b"key");
        assert_ne!(key.token("a", "f-1"), key.token("a", "f-2"));
        assert_eq!(key.token("a", "f-1"), PodKey::new(b"key").token("a", "f-1"));
    }
}
