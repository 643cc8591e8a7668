//! ResourceSlice: devices of one driver's pool, and the nodes that reach them.

use super::devices;
use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec;
use crate::{names, printing};
use k8s_openapi::api::resource::v1::ResourceSlice;
use std::collections::HashSet;

const MOST_DEVICES: usize = 128;
const MOST_ATTRIBUTES: usize = 32;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Node", "string", |slice, _| printing::text(slice, "spec.nodeName").into()),
            column("Driver", "string", |slice, _| printing::text(slice, "spec.driver").into()),
            column("Pool", "string", |slice, _| printing::text(slice, "spec.pool.name").into()),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        validate,
        validate_update: |new, old, errors| {
            let (spec, before) = (new.get("spec"), old.get("spec"));
            spec.get("pool").get("name").immutable(&before.get("pool").get("name"), errors);
            spec.get("driver").immutable(&before.get("driver"), errors);
            spec.get("nodeName").immutable(&before.get("nodeName"), errors);
        },
        ..Kind::new::<ResourceSlice>().with_generation().selectable(&["spec.nodeName", "spec.driver"])
    }
}

fn validate(slice: &Field<'_>, errors: &mut Errors) {
    let spec = slice.get("spec");
    pod_spec::validate_csi_driver_name(&spec.get("driver"), errors);
    let pool = spec.get("pool");
    devices::validate_pool(&pool.get("name"), errors);
    let count = pool.get("resourceSliceCount");
    if count.int().unwrap_or(0) <= 0 {
        count.invalid_value(count.int().unwrap_or(0), "must be greater than zero", errors);
    }
    if pool.get("generation").int().is_some_and(|generation| generation < 0) {
        pool.get("generation").invalid("must be greater than or equal to zero", errors);
    }
    validate_reach(&spec, errors);
    let offered = spec.get("devices");
    if !offered.is_empty() && !spec.get("sharedCounters").is_empty() {
        spec.invalid_value("", "only one of `sharedCounters` or `devices` is allowed", errors);
    }
    if offered.len() > MOST_DEVICES {
        offered.too_many(MOST_DEVICES, errors);
        return;
    }
    let mut seen = HashSet::new();
    for device in offered.items() {
        validate_device(&device, errors);
        if !seen.insert(device.get("name").text().to_owned()) {
            device.with_value(device.get("name").value()).duplicate(errors);
        }
    }
    for set in spec.get("sharedCounters").items() {
        validate_counters(&set.get("name"), &set.get("counters"), errors);
    }
}

/// Exactly one member says which nodes reach the devices.
fn validate_reach(spec: &Field<'_>, errors: &mut Errors) {
    let one_of =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut set = Vec::new();
    let (node, selector) = (spec.get("nodeName"), spec.get("nodeSelector"));
    if node.exists() {
        if node.text().is_empty() {
            node.invalid("must be either unset or set to a non-empty string", errors);
        } else {
            set.push("`nodeName`");
            node.conforms(names::is_dns1123_subdomain, errors);
        }
    }
    if selector.exists() {
        set.push("`nodeSelector`");
        pod_spec::validate_node_selector(&selector, errors);
        if selector.get("nodeSelectorTerms").len() > 1 {
            selector.get("nodeSelectorTerms").invalid("must have exactly one node selector term", errors);
        }
    }
    for (name, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        let flag = spec.get(name);
        if flag.exists() && !flag.bool() {
            flag.invalid("must be either unset or set to true", errors);
        } else if flag.exists() {
            set.push(shown);
        }
    }
    match set.len() {
        0 => spec.complain(Reason::Required, one_of, errors),
        1 => {}
        _ => spec.invalid_value(
            format!("{{{}}}", set.join(", ")),
            format!("{one_of}, but multiple fields are set"),
            errors,
        ),
    }
}

fn validate_device(device: &Field<'_>, errors: &mut Errors) {
    device.get("name").conforms(names::is_dns1123_label, errors);
    let (attributes, capacity) = (device.get("attributes"), device.get("capacity"));
    let total = attributes.len() + capacity.len();
    if total > MOST_ATTRIBUTES {
        let detail =
            format!("the total number of attributes and capacities must not exceed {MOST_ATTRIBUTES}");
        device.invalid_value(total, detail, errors);
    }
    for (name, attribute) in attributes.entries() {
        devices::validate_qualified(&attribute, name, errors);
        if attribute.len() != 1 {
            attribute.invalid("exactly one value must be specified", errors);
        }
    }
    for (name, amount) in capacity.entries() {
        devices::validate_qualified(&amount, name, errors);
        amount.get("value").required(errors);
    }
    for taint in device.get("taints").items() {
        taint.get("key").conforms(names::is_qualified_name, errors);
        taint.get("value").conforms(names::is_label_value, errors);
        taint.get("effect").required_one_of(&devices::EFFECTS, errors);
    }
    for consumed in device.get("consumesCounters").items() {
        validate_counters(&consumed.get("counterSet"), &consumed.get("counters"), errors);
    }
}

fn validate_counters(name: &Field<'_>, counters: &Field<'_>, errors: &mut Errors) {
    if name.required(errors) {
        name.conforms(names::is_dns1123_label, errors);
    }
    if counters.required(errors) {
        for (name, counter) in counters.entries() {
            for fault in names::is_dns1123_label(name) {
                counter.invalid_value(name, fault, errors);
            }
            counter.get("value").required(errors);
        }
    }
}
