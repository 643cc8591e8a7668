//! Subresources that are a part of an object with rules of its own: an update or patch through a narrow door.

use crate::write::Door;
use api::kinds::certificates::certificate_signing_request as csr;
use api::kinds::core::{namespace, pod};
use api::{Value, object};
use jiff::Timestamp;

/// The door of that name.
pub fn find(name: &str) -> Option<&'static Door> {
    DOORS.iter().find(|door| door.name == name)
}

static DOORS: [Door; 4] = [
    Door { name: "approval", prepare: prepare_approval, validate: csr::validate_approval },
    Door {
        name: "ephemeralcontainers",
        prepare: |pod, old, _| pod::prepare_ephemeral_containers(pod, old),
        validate: pod::validate_ephemeral_containers,
    },
    Door {
        name: "finalize",
        prepare: prepare_finalize,
        validate: |new, _, errors| namespace::validate_finalize(new, errors),
    },
    Door {
        name: "resize",
        prepare: |pod, old, _| pod::prepare_resize(pod, old),
        validate: pod::validate_resize,
    },
];

/// Conditions only, with the times that the approver left out.
fn prepare_approval(request: &mut Value, old: &Value, now: Timestamp) {
    csr::prepare_approval(request, old);
    let now = crate::time::rfc3339(now);
    for condition in request["status"]["conditions"].as_array_mut().into_iter().flatten() {
        for time in ["lastUpdateTime", "lastTransitionTime"] {
            object::set_default(condition, time, now.as_str());
        }
    }
}

/// The namespace controller's word that nothing is left: the finalizers, and nothing else.
fn prepare_finalize(namespace: &mut Value, old: &Value, _now: Timestamp) {
    let finalizers = namespace["spec"].get("finalizers").cloned();
    let metadata = namespace["metadata"].clone();
    *namespace = old.clone();
    namespace["metadata"] = metadata;
    let spec = object::object_mut(namespace, "spec");
    match finalizers {
        Some(finalizers) => spec.insert("finalizers".into(), finalizers),
        None => spec.remove("finalizers"),
    };
}
