//! A pod that is given a node takes on where that node is: its zone and its region.

use super::{Operation, Request};
use crate::error::Result;
use crate::server::Server;
use api::{Value, object};

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

pub(super) fn admit(request: &Request<'_>, pod: Option<&mut Value>) -> Result<()> {
    let Some(pod) = pod else { return Ok(()) };
    if request.operation == Operation::Create && request.is_for("", "pods") {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        label(request.server, &node, pod);
    }
    Ok(())
}

/// The same for a Binding, whose labels become the pod's.
pub fn admit_binding(server: &Server, binding: &mut Value) {
    if binding["target"]["kind"] == "Node" {
        let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
        label(server, &node, binding);
    }
}

fn label(server: &Server, node: &str, object: &mut Value) {
    if node.is_empty() {
        return;
    }
    let Some(node) = server.registry.built_in("", "nodes").cache.get("", node) else { return };
    for key in LABELS {
        if let Some(value) = node.labels().get(key) {
            object::object_mut(object, "metadata");
            object::object_mut(&mut object["metadata"], "labels").insert(key.into(), value.into());
        }
    }
}
