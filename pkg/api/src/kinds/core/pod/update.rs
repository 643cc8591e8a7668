//! What of a pod may change, by which door.
//!
//! | door                  | changes                                                                        |
//! |-----------------------|--------------------------------------------------------------------------------|
//! | the pod               | images, deadline (down), tolerations (more), gates (fewer); gated: node choice |
//! | `status`              | status; never back to running what has ended for good                          |
//! | `ephemeralcontainers` | more ephemeral containers                                                      |
//! | `resize`              | cpu and memory of containers                                                   |

use crate::equality::same;
use crate::field::{Errors, Field};
use crate::kinds::pod_spec::requests::qos_class;
use crate::kinds::pod_spec::{list_mut, validate_pod_annotations};
use crate::names;
use crate::printing::{at, items, text};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

const MIRROR: &str = "kubernetes.io/config.mirror";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

const OF_WHOLE_PODS: &str = "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";

/// Complains about a change of the pod itself.
pub(super) fn validate_update(pod: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    validate_annotations_update(pod, old, errors);
    let (spec, old_spec) = (pod.get("spec"), old.get("spec"));
    for list in ["containers", "initContainers"] {
        if spec.get(list).len() != old_spec.get(list).len() {
            spec.get(list).forbidden("pod updates may not add or remove containers", errors);
            return;
        }
    }
    validate_deadline(&spec, &old_spec, errors);
    validate_tolerations_only_added(&spec.get("tolerations"), &old_spec.get("tolerations"), errors);
    validate_gates_only_removed(&spec.get("schedulingGates"), &old_spec.get("schedulingGates"), errors);
    let mut expected = spec.value().clone();
    for list in ["containers", "initContainers"] {
        for (container, old) in list_mut(&mut expected, list).iter_mut().zip(items(old_spec.value(), list)) {
            keep(container, old, "image");
        }
    }
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        keep(&mut expected, old_spec.value(), name);
    }
    let old_grace = old_spec.get("terminationGracePeriodSeconds").int().unwrap_or(0);
    if old_grace < 0 && spec.get("terminationGracePeriodSeconds").int() == Some(1) {
        keep(&mut expected, old_spec.value(), "terminationGracePeriodSeconds");
    }
    if !old_spec.get("schedulingGates").is_empty() {
        validate_gated(&spec, &old_spec, &mut expected, errors);
    }
    if !same(&expected, old_spec.value()) {
        spec.forbidden(UPDATABLE, errors);
    }
}

/// Keeps what kubelets of old leave out of a status.
pub(super) fn prepare_status(pod: &mut Value, old: Option<&Value>) {
    let Some(old) = old else { return };
    keep(&mut pod["metadata"], &old["metadata"], "ownerReferences");
    let Some(old_status) = old.get("status") else { return };
    let Some(status) = pod.get_mut("status").filter(|status| status.is_object()) else { return };
    for name in ["qosClass", "observedGeneration"] {
        let missing = at(status, name).is_none_or(|value| value == "" || value == 0);
        if missing {
            keep(status, old_status, name);
        }
    }
    for condition in list_mut(status, "conditions") {
        let ty = text(condition, "type").to_owned();
        let old = items(old_status, "conditions").iter().find(|old| text(old, "type") == ty);
        if let Some(old) = old
            && at(condition, "observedGeneration").is_none_or(|generation| generation == 0)
        {
            keep(condition, old, "observedGeneration");
        }
    }
}

/// Complains about a change of status.
pub(super) fn validate_status(pod: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    validate_annotations_update(pod, old, errors);
    let (status, old_status) = (pod.get("status"), old.get("status"));
    for condition in status.get("conditions").items() {
        let generation = condition.get("observedGeneration");
        if generation.int().is_some_and(|generation| generation < 0) {
            generation.invalid("must be a non-negative integer", errors);
        }
        let ty = condition.get("type");
        if !matches!(ty.text(), "PodScheduled" | "Ready" | "Initialized") {
            condition.get("Type").with_value(ty.value()).conforms(names::is_qualified_name, errors);
        }
    }
    let nominated = status.get("nominatedNodeName");
    if nominated.text() != old_status.get("nominatedNodeName").text() && !nominated.text().is_empty() {
        nominated.conforms(names::is_dns1123_subdomain, errors);
        let old_spec = old.get("spec");
        if !old_spec.get("nodeName").text().is_empty() {
            nominated.forbidden("may not be set on pods that are already bound to a node", errors);
        }
    }
    let generation = status.get("observedGeneration");
    if generation.int().is_some_and(|generation| generation < 0) {
        generation.invalid("must be a non-negative integer", errors);
    }
    status.get("qosClass").immutable(&old_status.get("qosClass"), errors);
    let spec = old.get("spec");
    for (statuses, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ] {
        validate_transitions(&status.get(statuses), &old_status.get(statuses), &spec, containers, errors);
    }
    validate_addresses(&status.get("podIPs"), errors);
    let host_ips = status.get("hostIPs");
    for (index, address) in host_ips.items().enumerate() {
        let ip = address.get("ip");
        if index == 0 && ip.text() != status.get("hostIP").text() {
            ip.invalid("must be equal to `hostIP`", errors);
        }
    }
    validate_addresses(&host_ips, errors);
}

/// Keeps of a pod given to `ephemeralcontainers` only its ephemeral containers.
pub fn prepare_ephemeral_containers(pod: &mut Value, old: &Value) {
    let given = pod.pointer("/spec/ephemeralContainers").cloned();
    keep_metadata(pod, old);
    pod["spec"] = old["spec"].clone();
    pod["status"] = old["status"].clone();
    match given {
        Some(given) => pod["spec"]["ephemeralContainers"] = given,
        None => remove(&mut pod["spec"], "ephemeralContainers"),
    }
}

/// Complains about a change through `ephemeralcontainers`: there may only be more.
pub fn validate_ephemeral_containers(pod: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    if is_mirror(old) {
        pod.forbidden("static pods do not support ephemeral containers", errors);
        return;
    }
    let (spec, old_spec) = (pod.get("spec"), old.get("spec"));
    let containers = spec.get("ephemeralContainers");
    for old in old_spec.get("ephemeralContainers").items() {
        let name = old.get("name");
        match containers.items().find(|container| container.get("name").text() == name.text()) {
            None => {
                let detail = format!("existing ephemeral containers {:?} may not be removed\n", name.text());
                containers.forbidden(detail, errors);
            }
            Some(container) if !same(container.value(), old.value()) => {
                let detail = format!("existing ephemeral containers {:?} may not be changed\n", name.text());
                containers.forbidden(detail, errors);
            }
            Some(_) => {}
        }
    }
}

/// Keeps of a pod given to `resize` only resources and resize policies.
pub fn prepare_resize(pod: &mut Value, old: &Value) {
    let lists = ["containers", "initContainers"];
    let names = |pod: &Value, list: &str| -> Vec<String> {
        let path = format!("spec.{list}");
        items(pod, &path).iter().map(|container| text(container, "name").to_owned()).collect()
    };
    // Other containers than before are left as they are, for the rules to complain about.
    if lists.iter().any(|list| names(pod, list) != names(old, list)) {
        return;
    }
    keep_metadata(pod, old);
    let given = pod["spec"].take();
    pod["spec"] = old["spec"].clone();
    pod["status"] = old["status"].clone();
    for list in lists {
        for (container, given) in list_mut(&mut pod["spec"], list).iter_mut().zip(items(&given, list)) {
            keep(container, given, "resources");
            keep(container, given, "resizePolicy");
        }
    }
}

/// Complains about a change through `resize`: cpu and memory, more or less, but not in or out.
pub fn validate_resize(pod: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    if is_mirror(old) {
        pod.forbidden("static pods cannot be resized", errors);
        return;
    }
    let (spec, old_spec) = (pod.get("spec"), old.get("spec"));
    if old_spec.get("os").get("name").text() == "windows" {
        pod.forbidden("windows pods cannot be resized", errors);
        return;
    }
    super::validate(pod, errors);
    let old_class = old
        .get("status")
        .get("qosClass")
        .str()
        .map_or_else(|| qos_class(old_spec.value()).to_owned(), str::to_owned);
    if qos_class(spec.value()) != old_class {
        spec.invalid_value(old_class, "Pod QOS Class may not change as a result of resizing", errors);
    }
    // A kubelet that can resize says of what runs what is in force.
    let status = old.get("status");
    let statuses = status.get("containerStatuses");
    let running = statuses.items().find(|status| status.get("state").get("running").exists());
    if running.is_some_and(|status| !status.get("resources").exists()) {
        spec.forbidden("Pod running on node without support for resize", errors);
    }
    let of_pod = |spec: &Field<'_>| {
        let resources = spec.get("resources");
        !resources.get("requests").is_empty() || !resources.get("limits").is_empty()
    };
    if of_pod(&spec) || of_pod(&old_spec) {
        pod.forbidden(OF_WHOLE_PODS, errors);
        return;
    }
    if !has_same_containers(&spec, &old_spec, errors) {
        return;
    }
    for list in ["containers", "initContainers"] {
        for (container, old) in spec.get(list).items().zip(old_spec.get(list).items()) {
            validate_container_resize(&spec, &container, &old, list, errors);
        }
    }
}

/// Whether the containers are the same in the same order; complains if not.
fn has_same_containers(spec: &Field<'_>, old_spec: &Field<'_>, errors: &mut Errors) -> bool {
    let mut are_same = true;
    for list in ["containers", "initContainers"] {
        let (containers, old_containers) = (spec.get(list), old_spec.get(list));
        if containers.len() != old_containers.len() {
            containers.forbidden(format!("{list} may not be added or removed on resize"), errors);
            are_same = false;
            continue;
        }
        for (container, old) in containers.items().zip(old_containers.items()) {
            let name = container.get("name");
            if name.text() != old.get("name").text() {
                name.forbidden(format!("{list} may not be renamed or reordered on resize"), errors);
                are_same = false;
            }
        }
    }
    are_same
}

fn validate_container_resize(
    spec: &Field<'_>,
    container: &Field<'_>,
    old: &Field<'_>,
    list: &str,
    errors: &mut Errors,
) {
    let init = list == "initContainers";
    let sidecar = init && old.get("restartPolicy").text() == "Always";
    if init && !sidecar {
        if !same(container.value(), old.value()) {
            spec.forbidden("resources for non-sidecar init containers are immutable", errors);
        }
        return;
    }
    let (resources, old_resources) = (container.get("resources"), old.get("resources"));
    let mut expected = container.value().clone();
    for kind in ["requests", "limits"] {
        let (amounts, old_amounts) = (resources.get(kind), old_resources.get(kind));
        if old_amounts.entries().any(|(name, _)| !amounts.key(name).exists()) {
            amounts.forbidden(format!("resource {kind} cannot be removed"), errors);
        }
        let merged = with_old_compute(&amounts, &old_amounts);
        if !merged.is_empty() || expected.pointer(&format!("/resources/{kind}")).is_some() {
            crate::object::object_mut(&mut expected, "resources").insert(kind.into(), merged.into());
        }
    }
    if !same(&expected, old.value()) {
        let whose = if sidecar { " for sidecar containers" } else { "" };
        spec.forbidden(format!("only cpu and memory resources{whose} are mutable"), errors);
    }
}

/// The new amounts with cpu and memory as they were.
fn with_old_compute(new: &Field<'_>, old: &Field<'_>) -> Map<String, Value> {
    let is_compute = |name: &str| matches!(name, "cpu" | "memory");
    let others = new.object().into_iter().flatten().filter(|(name, _)| !is_compute(name));
    let compute = old.object().into_iter().flatten().filter(|(name, _)| is_compute(name));
    others.chain(compute).map(|(name, amount)| (name.clone(), amount.clone())).collect()
}

fn is_mirror(pod: &Field<'_>) -> bool {
    pod.value().get("metadata").and_then(|metadata| metadata.get("annotations")?.get(MIRROR)).is_some()
}

fn remove(object: &mut Value, name: &str) {
    if let Some(members) = object.as_object_mut() {
        members.remove(name);
    }
}

/// Makes a member what it is in `old`, or absent as there.
fn keep(object: &mut Value, old: &Value, name: &str) {
    match old.get(name) {
        Some(value) => object[name] = value.clone(),
        None => remove(object, name),
    }
}

/// Keeps of the metadata what a door to a part of the pod does not change.
fn keep_metadata(pod: &mut Value, old: &Value) {
    for name in ["deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"]
    {
        keep(&mut pod["metadata"], &old["metadata"], name);
    }
}

fn validate_annotations_update(pod: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (metadata, old_metadata) = (pod.get("metadata"), old.get("metadata"));
    let (annotations, old_annotations) = (metadata.get("annotations"), old_metadata.get("annotations"));
    let guarded = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        _ if key.starts_with(APP_ARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, old) in old_annotations.entries() {
        if let Some(what) = guarded(key)
            && annotations.key(key).value() != old.value()
        {
            annotations.key(key).forbidden(format!("may not remove or update {what}"), errors);
        }
    }
    for (key, value) in annotations.entries() {
        if let Some(what) = guarded(key)
            && !old_annotations.key(key).exists()
        {
            value.forbidden(format!("may not add {what}"), errors);
        }
    }
    validate_pod_annotations(&annotations, &pod.get("spec"), errors);
}

fn validate_deadline(spec: &Field<'_>, old_spec: &Field<'_>, errors: &mut Errors) {
    let (deadline, old) = (spec.get("activeDeadlineSeconds"), old_spec.get("activeDeadlineSeconds"));
    match (deadline.int(), old.int()) {
        (Some(new), Some(old)) if new > old => {
            deadline.invalid("must be less than or equal to previous value", errors);
        }
        (None, Some(_)) => deadline.invalid_value(
            Value::Null,
            "must not update from a positive integer to nil value",
            errors,
        ),
        _ => {}
    }
}

fn validate_tolerations_only_added(tolerations: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        remove(&mut toleration, "tolerationSeconds");
        toleration
    };
    for old in old.items() {
        let old = without_seconds(old.value());
        if !tolerations.items().any(|new| same(&without_seconds(new.value()), &old)) {
            let detail = "existing toleration can not be modified except its tolerationSeconds";
            tolerations.forbidden(detail, errors);
            return;
        }
    }
}

fn validate_gates_only_removed(gates: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let known: BTreeSet<String> = old.items().map(|gate| gate.get("name").text().to_owned()).collect();
    for gate in gates.items() {
        let name = gate.get("name");
        if !known.contains(name.text()) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", name.text());
            name.forbidden(detail, errors);
        }
    }
}

/// Until its gates are gone, a pod's choice of nodes may become narrower.
fn validate_gated(spec: &Field<'_>, old_spec: &Field<'_>, expected: &mut Value, errors: &mut Errors) {
    let (selector, old_selector) = (spec.get("nodeSelector"), old_spec.get("nodeSelector"));
    if old_selector.entries().any(|(key, old)| selector.key(key).value() != old.value()) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        selector.invalid(detail, errors);
    }
    keep(expected, old_spec.value(), "nodeSelector");
    let (affinity, old_affinity) = (spec.get("affinity"), old_spec.get("affinity"));
    let (node, old_node) = (affinity.get("nodeAffinity"), old_affinity.get("nodeAffinity"));
    if !same(node.value(), old_node.value()) {
        validate_narrower(&node, &old_node, errors);
        let affinity = crate::object::object_mut(expected, "affinity");
        match old_node.exists() {
            true => affinity.insert("nodeAffinity".into(), old_node.value().clone()),
            false => affinity.remove("nodeAffinity"),
        };
    }
}

fn validate_narrower(node: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let (required, old_required) = (node.get(REQUIRED), old.get(REQUIRED));
    let (terms, old_terms) = (required.get("nodeSelectorTerms"), old_required.get("nodeSelectorTerms"));
    if old_terms.is_empty() {
        return;
    }
    if terms.len() != old_terms.len() {
        terms.invalid("no additions/deletions to non-empty NodeSelectorTerms list are allowed", errors);
        return;
    }
    for (term, old) in terms.items().zip(old_terms.items()) {
        let only_added = |name: &str| {
            let (new, old) = (items(term.value(), name), items(old.value(), name));
            new.len() >= old.len() && new.iter().zip(old).all(|(new, old)| same(new, old))
        };
        let was_empty = old.get("matchExpressions").is_empty() && old.get("matchFields").is_empty();
        let is_empty = term.get("matchExpressions").is_empty() && term.get("matchFields").is_empty();
        if was_empty && !is_empty || !only_added("matchExpressions") || !only_added("matchFields") {
            term.invalid("only additions are allowed (no mutations or deletions)", errors);
        }
    }
}

/// A container that has ended runs again only if its restart policy says so.
fn validate_transitions(
    statuses: &Field<'_>,
    old: &Field<'_>,
    spec: &Field<'_>,
    containers: &str,
    errors: &mut Errors,
) {
    for (index, old) in old.value().as_array().into_iter().flatten().enumerate() {
        let Some(terminated) = at(old, "state.terminated") else { continue };
        let name = text(old, "name");
        let Some(new) = statuses.items().find(|status| status.get("name").text() == name) else { continue };
        if at(new.value(), "state.terminated").is_some() {
            continue;
        }
        let exit_code = at(terminated, "exitCode").and_then(Value::as_i64).unwrap_or(0);
        let container =
            items(spec.value(), containers).iter().find(|container| text(container, "name") == name);
        let allowed = container.is_some_and(|container| restarts(container, spec.value(), exit_code));
        if !allowed && let Some(place) = statuses.items().nth(index) {
            place.get("state").forbidden("may not be transitioned to non-terminated state", errors);
        }
    }
}

fn restarts(container: &Value, spec: &Value, exit_code: i64) -> bool {
    let own = text(container, "restartPolicy");
    for rule in items(container, "restartPolicyRules") {
        let listed = items(rule, "exitCodes.values").iter().any(|code| code == exit_code);
        let wanted = text(rule, "exitCodes.operator") == "In";
        if listed == wanted && text(rule, "action") == "Restart" {
            return true;
        }
    }
    match if own.is_empty() { text(spec, "restartPolicy") } else { own } {
        "Always" => true,
        "OnFailure" => exit_code != 0,
        _ => false,
    }
}

fn validate_addresses(addresses: &Field<'_>, errors: &mut Errors) {
    let (mut v4, mut v6) = (0, 0);
    for address in addresses.items() {
        let ip = address.get("ip");
        address.with_value(ip.value()).conforms(names::is_legacy_ip, errors);
        if ip.text().contains(':') { v6 += 1 } else { v4 += 1 }
    }
    if v4 > 1 || v6 > 1 {
        addresses.invalid("may specify no more than one IP for each IP family", errors);
    }
}
