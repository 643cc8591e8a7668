//! Node: a machine that runs pods.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column, wide};
use crate::kinds::pod_spec::resources::validate_amount;
use crate::kinds::pod_spec::round_resources;
use crate::names;
use crate::printing::{NONE, UNKNOWN, age_column, at, items, name_column, or_none, text};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        status_on_create: true,
        default,
        validate,
        validate_update,
        validate_status: validate_update,
        columns: vec![
            name_column(),
            column("Status", "string", |node, _| status(node).into()),
            column("Roles", "string", |node, _| roles(node).into()),
            age_column(),
            column("Version", "string", |node, _| text(node, "status.nodeInfo.kubeletVersion").into()),
            wide("Internal-IP", "string", |node, _| address(node, "InternalIP").into()),
            wide("External-IP", "string", |node, _| address(node, "ExternalIP").into()),
            wide("OS-Image", "string", |node, _| info(node, "osImage").into()),
            wide("Kernel-Version", "string", |node, _| info(node, "kernelVersion").into()),
            wide("Container-Runtime", "string", |node, _| info(node, "containerRuntimeVersion").into()),
        ],
        ..Kind::new::<Node>()
            .short(&["no"])
            .with_status()
            .with_subresource(
                "proxy",
                ("", "", "NodeProxyOptions"),
                &["create", "delete", "get", "patch", "update"],
            )
            // Who this node is at the cluster's Redis.
            .with_subresource("redis", ("minik8s.io", "v1", "RedisCredentials"), &["get"])
            .selectable(&["spec.unschedulable"])
    }
}

fn default(node: &mut Value) {
    if let Some(status) = node.get_mut("status").filter(|status| status.is_object()) {
        round_resources(status.get_mut("capacity"));
        round_resources(status.get_mut("allocatable"));
        if at(status, "allocatable").is_none()
            && let Some(capacity) = at(status, "capacity").cloned()
        {
            status["allocatable"] = capacity;
        }
    }
    let Some(spec) = node.get_mut("spec") else { return };
    // One range of old, a list of now: both are shown, and the one of old wins if they differ.
    let single = text(spec, "podCIDR").to_owned();
    let first = items(spec, "podCIDRs").first().and_then(Value::as_str).unwrap_or_default().to_owned();
    if !single.is_empty() && single != first {
        spec["podCIDRs"] = json!([single]);
    } else if single.is_empty() && !first.is_empty() {
        spec["podCIDR"] = first.into();
    }
}

fn validate(node: &Field<'_>, errors: &mut Errors) {
    validate_taints(node, errors);
    validate_resources(node, errors);
    let spec = node.get("spec");
    let ranges = spec.get("podCIDRs");
    for range in ranges.items() {
        range.conforms(names::is_legacy_cidr, errors);
    }
    let v6 = ranges.items().filter(|range| range.text().contains(':')).count();
    if ranges.len() > 2 || v6 > 1 || ranges.len() - v6 > 1 {
        ranges.invalid("may specify no more than one CIDR for each IP family", errors);
    }
}

fn validate_update(node: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    validate_resources(node, errors);
    let status = node.get("status");
    let mut seen = BTreeSet::new();
    for address in status.get("addresses").items() {
        if !seen.insert((address.get("type").text().to_owned(), address.get("address").text().to_owned())) {
            address.duplicate(errors);
        }
    }
    let (spec, old_spec) = (node.get("spec"), old.get("spec"));
    let (ranges, provider) = (spec.get("podCIDRs"), spec.get("providerID"));
    if !old_spec.get("podCIDRs").is_empty() && ranges.value() != old_spec.get("podCIDRs").value() {
        ranges.forbidden("node updates may not change podCIDR except from \"\" to valid", errors);
    }
    let old_provider = old_spec.get("providerID");
    if !old_provider.text().is_empty() && provider.text() != old_provider.text() {
        provider.forbidden("node updates may not change providerID except from \"\" to valid", errors);
    }
    validate_taints(node, errors);
}

fn validate_taints(node: &Field<'_>, errors: &mut Errors) {
    let (spec, metadata) = (node.get("spec"), node.get("metadata"));
    let taints = spec.get("taints");
    // Upstream's paths say metadata here.
    let taints = metadata.get("taints").with_value(taints.value());
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
        key.conforms(names::is_qualified_name, errors);
        let faults = names::is_label_value(value.text());
        if !faults.is_empty() {
            value.invalid(faults.join(";"), errors);
        }
        effect.required_one_of(&["NoExecute", "NoSchedule", "PreferNoSchedule"], errors);
        if !seen.insert((key.text().to_owned(), effect.text().to_owned())) {
            taint.complain(Reason::Duplicate, "taints must be unique by key and effect pair", errors);
        }
    }
}

fn validate_resources(node: &Field<'_>, errors: &mut Errors) {
    let status = node.get("status");
    for list in ["capacity", "allocatable"] {
        let list = status.get(list);
        for (name, amount) in list.entries() {
            validate_amount(name, &list.get(name).with_value(amount.value()), errors);
        }
    }
}

fn status(node: &Value) -> String {
    let ready = items(node, "status.conditions").iter().find(|condition| text(condition, "type") == "Ready");
    let mut status = match ready {
        Some(condition) if text(condition, "status") == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if at(node, "spec.unschedulable").and_then(Value::as_bool) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Value) -> String {
    let labels = at(node, "metadata.labels").and_then(Value::as_object).into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    or_none(&roles.into_iter().collect::<Vec<_>>().join(",")).into()
}

fn address(node: &Value, ty: &str) -> String {
    let found = items(node, "status.addresses").iter().find(|address| text(address, "type") == ty);
    found.map_or(NONE, |address| text(address, "address")).into()
}

fn info<'a>(node: &'a Value, name: &str) -> &'a str {
    let value = at(node, "status.nodeInfo").map(|info| text(info, name)).unwrap_or_default();
    if value.is_empty() { UNKNOWN } else { value }
}
