//! CSIStorageCapacity: how much a driver can still provide, seen from some nodes.

use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec::resources::quantity;
use crate::{meta, names, printing};
use k8s_openapi::api::storage::v1::CSIStorageCapacity;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("StorageClassName", "string", |capacity, _| {
                printing::text(capacity, "storageClassName").into()
            }),
            column("Capacity", "string", |capacity, _| {
                capacity.get("capacity").and_then(|amount| amount.as_str()).unwrap_or("<unset>").into()
            }),
        ],
        unconditional_update: false,
        validate_name: names::dns_subdomain_name,
        validate,
        validate_update: |new, old, errors| {
            new.get("nodeTopology").immutable(&old.get("nodeTopology"), errors);
            new.get("storageClassName").immutable(&old.get("storageClassName"), errors);
        },
        ..Kind::new::<CSIStorageCapacity>()
    }
}

fn validate(capacity: &Field<'_>, errors: &mut Errors) {
    meta::validate_label_selector(&capacity.get("nodeTopology"), errors);
    capacity.get("storageClassName").conforms(names::is_dns1123_subdomain, errors);
    let amount = capacity.get("capacity");
    if quantity(&amount).is_some_and(|amount| amount.is_negative()) {
        amount.invalid("must be greater than or equal to 0", errors);
    }
}
