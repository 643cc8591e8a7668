//! CSINode: the storage drivers on a node.

use crate::equality;
use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec;
use crate::{names, printing};
use k8s_openapi::api::storage::v1::CSINode;
use serde_json::Value;
use std::collections::HashSet;

const MOST_NODE_ID_BYTES: usize = 256;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Drivers", "integer", |node, _| printing::items(node, "spec.drivers").len().into()),
            printing::age_column(),
        ],
        unconditional_update: false,
        validate_name: names::dns_subdomain_name,
        validate,
        validate_update,
        ..Kind::new::<CSINode>()
    }
}

fn validate(node: &Field<'_>, errors: &mut Errors) {
    let spec = node.get("spec");
    let mut seen = HashSet::new();
    for driver in spec.get("drivers").items() {
        let (name, id) = (driver.get("name"), driver.get("nodeID"));
        pod_spec::validate_csi_driver_name(&name, errors);
        id.required(errors);
        if id.text().len() > MOST_NODE_ID_BYTES {
            id.invalid(format!("must be {MOST_NODE_ID_BYTES} characters or less"), errors);
        }
        driver.get("allocatable").get("count").non_negative(errors);
        if !seen.insert(name.text().to_owned()) {
            name.duplicate(errors);
        }
        let mut keys = HashSet::new();
        for key in driver.get("topologyKeys").items() {
            // Upstream names the driver, not the key.
            let place = driver.with_value(key.value());
            if key.text().is_empty() {
                place.complain(Reason::Required, "", errors);
            }
            if !keys.insert(key.text().to_owned()) {
                place.duplicate(errors);
            }
            place.conforms(names::is_qualified_name, errors);
        }
    }
}

/// A driver may come or go, but it does not change, except for how much it can hold.
fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let spec = new.get("spec");
    let drivers = spec.get("drivers");
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        driver.as_object_mut().map(|members| members.remove("allocatable"));
        driver
    };
    for before in printing::items(old.value(), "spec.drivers") {
        for driver in drivers.items().filter(|driver| driver.value()["name"] == before["name"]) {
            if !equality::same(&fixed(driver.value()), &fixed(before)) {
                drivers.invalid_value(fixed(driver.value()), "field is immutable", errors);
            }
        }
    }
}
