//! A new node takes no pods until somebody has seen that it is ready: the node lifecycle controller removes the taint.

use super::{Operation, Request};
use crate::error::Result;
use api::{Value, object};
use serde_json::json;

const KEY: &str = "node.kubernetes.io/not-ready";
const EFFECT: &str = "NoSchedule";

pub(super) fn admit(request: &Request<'_>, node: Option<&mut Value>) -> Result<()> {
    let Some(node) = node else { return Ok(()) };
    if !request.is_for("", "nodes") || request.operation != Operation::Create {
        return Ok(());
    }
    let taints = object::object_mut(node, "spec").entry("taints").or_insert(Value::Null);
    if !taints.is_array() {
        *taints = json!([]);
    }
    if let Some(taints) = taints.as_array_mut()
        && !taints.iter().any(|taint| taint["key"] == KEY && taint["effect"] == EFFECT)
    {
        taints.push(json!({"key": KEY, "effect": EFFECT}));
    }
    Ok(())
}
