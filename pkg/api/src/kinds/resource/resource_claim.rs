//! ResourceClaim: devices that pods ask for, and those that were given.

use super::devices;
use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec;
use crate::{equality, names, printing};
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::Value;

const MOST_CONSUMERS: usize = 256;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("State", "string", |claim, _| state(claim).into()),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        default: |claim| {
            if let Some(spec) = claim.get_mut("spec") {
                devices::default_claim(spec);
            }
        },
        validate_create: |claim, errors| devices::validate_claim(&claim.get("spec"), errors),
        validate_update: |new, old, errors| new.get("spec").immutable(&old.get("spec"), errors),
        validate_status,
        ..Kind::new::<ResourceClaim>().with_status()
    }
}

fn validate_status(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    let consumers = status.get("reservedFor");
    if consumers.len() > MOST_CONSUMERS {
        consumers.too_many(MOST_CONSUMERS, errors);
    }
    for consumer in consumers.items() {
        for name in ["resource", "name", "uid"] {
            consumer.get(name).required(errors);
        }
    }
    let (allocation, allocated) = (status.get("allocation"), before.get("allocation"));
    if !consumers.is_empty() && !allocation.exists() {
        consumers.forbidden("may not be specified when `allocated` is not set", errors);
    }
    let reserved = before.get("reservedFor");
    let is_new = |consumer: &Value| !reserved.items().any(|old| equality::same(old.value(), consumer));
    let is_going = new.get("metadata").get("deletionTimestamp").exists();
    if is_going && allocation.exists() && consumers.items().any(|consumer| is_new(consumer.value())) {
        let detail =
            "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        consumers.forbidden(detail, errors);
    }
    match (allocation.exists(), allocated.exists()) {
        (true, true) => allocation.immutable(&allocated, errors),
        (true, false) => validate_allocation(new, &allocation, errors),
        (false, _) => {}
    }
    for device in status.get("devices").items() {
        let given = allocation.get("devices").get("results").value().clone();
        let same = |result: &Value| {
            ["driver", "pool", "device"]
                .iter()
                .all(|name| equality::same(&result[*name], device.get(name).value()))
        };
        if !given.as_array().is_some_and(|given| given.iter().any(same)) {
            device.invalid("must be an allocated device in the claim", errors);
        }
    }
}

fn validate_allocation(claim: &Field<'_>, allocation: &Field<'_>, errors: &mut Errors) {
    let (spec, given) = (claim.get("spec"), allocation.get("devices"));
    let asked = spec.get("devices");
    let requests = asked.get("requests");
    for result in given.get("results").items() {
        devices::validate_reference(&result.get("request"), &requests, errors);
        pod_spec::validate_csi_driver_name(&result.get("driver"), errors);
        devices::validate_pool(&result.get("pool"), errors);
        result.get("device").conforms(names::is_dns1123_label, errors);
    }
    for config in given.get("config").items() {
        config.get("source").required_one_of(&["FromClaim", "FromClass"], errors);
        devices::validate_references(&config.get("requests"), &requests, errors);
        devices::validate_config(&config, errors);
    }
    if allocation.get("nodeSelector").exists() {
        pod_spec::validate_node_selector(&allocation.get("nodeSelector"), errors);
    }
}

fn state(claim: &Value) -> String {
    let is_deleted = printing::at(claim, "metadata.deletionTimestamp").is_some();
    let is_allocated = printing::at(claim, "status.allocation").is_some();
    let is_reserved = is_allocated && !printing::items(claim, "status.reservedFor").is_empty();
    let states = [
        (is_deleted, "deleted"),
        (!is_allocated && !is_deleted, "pending"),
        (is_allocated, "allocated"),
        (is_reserved, "reserved"),
    ];
    let states = states.iter().filter(|(is, _)| *is).map(|(_, state)| *state);
    states.collect::<Vec<_>>().join(",")
}
