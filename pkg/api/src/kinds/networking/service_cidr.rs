//! ServiceCIDR: where addresses of services come from. The one named `kubernetes` says what the server was started with.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::{names, printing};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use serde_json::Value;

/// The name of the one that every cluster has.
pub const DEFAULT: &str = "kubernetes";

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("CIDRs", "string", |range, _| {
                let ranges = printing::items(range, "spec.cidrs").iter().filter_map(Value::as_str);
                ranges.collect::<Vec<_>>().join(",").into()
            }),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        validate: |range, errors| validate(&range.get("spec").get("cidrs"), errors),
        validate_update,
        ..Kind::new::<ServiceCIDR>().with_status()
    }
}

fn validate(ranges: &Field<'_>, errors: &mut Errors) {
    if ranges.is_empty() {
        return ranges.complain(Reason::Required, "at least one CIDR required", errors);
    }
    if ranges.len() > 2 {
        return ranges.invalid("may only hold up to 2 values", errors);
    }
    for range in ranges.items() {
        range.conforms(names::is_cidr, errors);
    }
    let families: Vec<bool> = ranges.items().map(|range| range.text().contains(':')).collect();
    if families.len() == 2 && families[0] == families[1] {
        let detail =
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        ranges.invalid(detail, errors);
    }
}

/// A second family may join; nothing else changes.
fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let (ranges, before) = (spec.get("cidrs"), before.get("cidrs"));
    if ranges.len() != before.len() && (before.len(), ranges.len()) != (1, 2) {
        return ranges.invalid("field is immutable", errors);
    }
    for (range, before) in ranges.items().zip(before.items()) {
        range.immutable(&before, errors);
    }
}
