//! Claims in use by pods, and volumes in use by claims, do not go while they are: their finalizer is removed by the
//! protection controllers once nobody uses them.

use super::{Operation, Request};
use crate::error::Result;
use api::{Value, object};
use serde_json::json;

pub(super) fn admit(request: &Request<'_>, object: Option<&mut Value>) -> Result<()> {
    let Some(object) = object else { return Ok(()) };
    let finalizer = match () {
        () if request.operation != Operation::Create => return Ok(()),
        () if request.is_for("", "persistentvolumes") => "kubernetes.io/pv-protection",
        () if request.is_for("", "persistentvolumeclaims") => "kubernetes.io/pvc-protection",
        () => return Ok(()),
    };
    let finalizers = object::object_mut(object, "metadata").entry("finalizers").or_insert(Value::Null);
    if !finalizers.is_array() {
        *finalizers = json!([]);
    }
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|present| present == finalizer)
    {
        finalizers.push(finalizer.into());
    }
    Ok(())
}
