//! `pods/binding`: the scheduler's word on where a pod runs.

use crate::admission::question::{self, Question};
use crate::admission::{Operation, pod_topology_labels};
use crate::answer::{self, Answer};
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::Change;
use crate::write::invalid_if_any;
use crate::{decode, time};
use api::kinds::core::binding::validate;
use api::{Errors, Field, Value, object};
use http::StatusCode;
use serde_json::json;

/// Binds the pod in the path (or, for a POST of a Binding by itself, the pod of the same name) to a node.
pub async fn handle(server: &Server, pods: &Resource, call: &Call<'_>) -> Result<Answer> {
    let context = call.context()?;
    let mut binding = decode::object(&server.kind("", "bindings"), call.headers, &call.body, &context)?;
    let name = if call.target.subresource.is_empty() { object::name(&binding) } else { &*call.target.name };
    if !object::name(&binding).is_empty() && object::name(&binding) != name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let name = name.to_owned();
    pod_topology_labels::admit_binding(server, &mut binding);
    if !question::nobody_is_asked(server) {
        let question = Question {
            subresource: "binding",
            takes: Some(("", "v1", "Binding")),
            name: &name,
            namespace: call.target.namespace,
            ..Question::about(server, &context, Operation::Create, &pods.kind, &Value::Null)
        };
        Box::pin(question::ask_all(&question, Some(&mut binding), None)).await?;
    }
    let mut errors = Errors::new();
    validate(&Field::root(&binding), &mut errors);
    invalid_if_any(&server.kind("", "bindings"), &binding, errors)?;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let uid = object::meta(&binding, "uid").unwrap_or_default();
    let at = time::rfc3339(context.now);
    server
        .modify(pods, call.target.namespace, &name, context.dry_run, |pod| {
            check(pods, pod, uid)?;
            Ok(Change::Put(Box::new(bound(pod, &binding, node, &at)), Vec::new()))
        })
        .await?;
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(answer::json(StatusCode::CREATED, &status))
}

fn check(pods: &Resource, pod: &Value, uid: &str) -> Result<()> {
    let name = object::name(pod);
    let conflict = |why: String| {
        let mut error = ApiError::conflict(&pods.kind, name, why);
        error.message = error.message.replacen("pods", "pods/binding", 1);
        Err(error)
    };
    if !uid.is_empty() && object::meta(pod, "uid") != Some(uid) {
        let found = object::meta(pod, "uid").unwrap_or_default();
        return conflict(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"
        ));
    }
    if object::meta(pod, "deletionTimestamp").is_some() {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return conflict(format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

fn bound(pod: &Value, binding: &Value, node: &str, at: &str) -> Value {
    let mut pod = pod.clone();
    object::object_mut(&mut pod, "spec").insert("nodeName".into(), node.into());
    for map in ["annotations", "labels"] {
        if let Some(entries) = binding["metadata"].get(map).and_then(Value::as_object) {
            let slot = object::object_mut(&mut pod["metadata"], map);
            slot.extend(entries.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
    let status = object::object_mut(&mut pod, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": at}));
    }
    pod
}
