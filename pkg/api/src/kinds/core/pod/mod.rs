//! Pod: containers that run together on one node.
//!
//! The main resource is here; [`update`] says what of a pod may change and how its other doors (status,
//! ephemeral containers, resize) narrow that, [`columns`] how a pod reads in one line.

mod columns;
mod update;

pub use update::{
    prepare_ephemeral_containers, prepare_resize, validate_ephemeral_containers, validate_resize,
};

use crate::field::{Errors, Field};
use crate::kind::Kind;
use crate::kinds::pod_spec::requests::qos_class;
use crate::kinds::pod_spec::{
    Options, default_own_pod_spec, keep_service_account_names_alike, list_mut, round_resources,
    validate_pod_annotations, validate_pod_spec,
};
use crate::names;
use crate::object::object_mut;
use crate::printing::{items, text};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(crate) fn kind() -> Kind {
    let read_and_write: &[&str] = &["get", "patch", "update"];
    let stream: &[&str] = &["create", "get"];
    Kind {
        validate_name: names::dns_subdomain_name,
        default,
        prepare,
        prepare_status: update::prepare_status,
        validate,
        validate_create,
        validate_update: update::validate_update,
        validate_status: update::validate_status,
        columns: columns::columns(),
        ..Kind::new::<Pod>()
            .short(&["po"])
            .in_all()
            .with_status()
            .with_generation()
            .with_subresource("binding", ("", "", "Binding"), &["create"])
            .with_subresource("eviction", ("policy", "v1", "Eviction"), &["create"])
            .with_subresource("ephemeralcontainers", ("", "", "Pod"), read_and_write)
            .with_subresource("resize", ("", "", "Pod"), read_and_write)
            .with_subresource("log", ("", "", "Pod"), &["get"])
            .with_subresource("exec", ("", "", "PodExecOptions"), stream)
            .with_subresource("attach", ("", "", "PodAttachOptions"), stream)
            .with_subresource("portforward", ("", "", "PodPortForwardOptions"), stream)
            .with_subresource(
                "proxy",
                ("", "", "PodProxyOptions"),
                &["create", "delete", "get", "patch", "update"],
            )
            .selectable(&[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.podIPs",
                "status.nominatedNodeName",
            ])
    }
}

fn default(pod: &mut Value) {
    object_mut(pod, "spec");
    default_own_pod_spec(&mut pod["spec"]);
    // Only of pods: templates keep what their author wrote.
    if pod["spec"]["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
    }
    let Some(status) = pod.get_mut("status").filter(|status| status.is_object()) else { return };
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in list_mut(status, list) {
            round_resources(container.get_mut("allocatedResources"));
            round_resources(container.pointer_mut("/resources/limits"));
            round_resources(container.pointer_mut("/resources/requests"));
        }
    }
    // One address of old, a list of now: both are shown, and the one of old wins if they differ.
    let single = text(status, "podIP").to_owned();
    let first = items(status, "podIPs").first().map(|ip| text(ip, "ip")).unwrap_or_default().to_owned();
    if !single.is_empty() && single != first {
        status["podIPs"] = json!([{"ip": single}]);
    } else if single.is_empty() && !first.is_empty() {
        status["podIP"] = first.into();
    }
}

fn prepare(pod: &mut Value, old: Option<&Value>) {
    keep_service_account_names_alike(&mut pod["spec"]);
    if old.is_some() {
        return;
    }
    pod["status"] = json!({"phase": "Pending", "qosClass": qos_class(&pod["spec"])});
    if !items(pod, "spec.schedulingGates").is_empty() {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    let labels = pod.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default();
    apply_label_keys(&mut pod["spec"], &labels);
}

/// Puts the values of the pod's own labels where `matchLabelKeys` and `mismatchLabelKeys` ask for them.
fn apply_label_keys(spec: &mut Value, labels: &Map<String, Value>) {
    for affinity in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get_mut("affinity").and_then(|all| all.get_mut(affinity)) else { continue };
        for term in list_mut(affinity, REQUIRED) {
            apply_label_keys_to(term, labels);
        }
        for weighted in list_mut(affinity, PREFERRED) {
            if let Some(term) = weighted.get_mut("podAffinityTerm") {
                apply_label_keys_to(term, labels);
            }
        }
    }
    for constraint in list_mut(spec, "topologySpreadConstraints") {
        apply_label_keys_to(constraint, labels);
    }
}

fn apply_label_keys_to(term: &mut Value, labels: &Map<String, Value>) {
    let mut requirements = Vec::new();
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = items(term, keys).iter().filter_map(Value::as_str);
        requirements.extend(
            keys.filter_map(|key| {
                Some(json!({"key": key, "operator": operator, "values": [labels.get(key)?]}))
            }),
        );
    }
    // Without a selector nothing matches, whatever is added.
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    if !requirements.is_empty() {
        let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
        if let Some(expressions) = expressions.as_array_mut() {
            expressions.extend(requirements);
        }
    }
}

fn validate(pod: &Field<'_>, errors: &mut Errors) {
    let (metadata, spec) = (pod.get("metadata"), pod.get("spec"));
    validate_pod_annotations(&metadata.get("annotations"), &spec, errors);
    validate_pod_spec(&spec, Options { pod_name: Some(metadata.get("name").text()) }, errors);
}

fn validate_create(pod: &Field<'_>, errors: &mut Errors) {
    let spec = pod.get("spec");
    if !spec.get("ephemeralContainers").is_empty() {
        spec.get("ephemeralContainers").forbidden("cannot be set on create", errors);
    }
    if !spec.get("nodeName").text().is_empty() && !spec.get("schedulingGates").is_empty() {
        spec.get("nodeName").forbidden("cannot be set until all schedulingGates have been cleared", errors);
    }
}
