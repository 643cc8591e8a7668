//! IPAddress: that an address is taken, and by whom. Those of services come and go with them, in the same commit; others
//! may be made by whoever uses addresses of the same ranges.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::{names, printing};
use k8s_openapi::api::networking::v1::IPAddress;
use serde_json::Value;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("ParentRef", "string", |address, _| parent_cell(address).into()),
        ],
        validate_name: |name| match names::is_ip(name).into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(()),
        },
        validate,
        validate_update: |new, old, errors| {
            let (spec, before) = (new.get("spec"), old.get("spec"));
            spec.get("parentRef").immutable(&before.get("parentRef"), errors);
        },
        ..Kind::new::<IPAddress>().short(&["ip"])
    }
}

fn parent_cell(address: &Value) -> String {
    let Some(parent) = printing::at(address, "spec.parentRef") else { return "<none>".into() };
    let text = |name: &str| printing::text(parent, name);
    let mut cell = text("resource").to_lowercase();
    for (mark, part) in [(".", text("group")), ("/", text("namespace")), ("/", text("name"))] {
        if !part.is_empty() {
            cell.push_str(mark);
            cell.push_str(part);
        }
    }
    cell
}

fn validate(address: &Field<'_>, errors: &mut Errors) {
    let spec = address.get("spec");
    let parent = spec.get("parentRef");
    if !parent.exists() {
        return parent.complain(Reason::Required, "", errors);
    }
    let group = parent.get("group");
    if !group.text().is_empty() {
        group.conforms(names::is_dns1123_subdomain, errors);
    }
    for name in ["resource", "name"] {
        let field = parent.get(name);
        if field.required(errors) {
            field.conforms(names::is_path_segment, errors);
        }
    }
    let namespace = parent.get("namespace");
    if !namespace.text().is_empty() {
        namespace.conforms(names::is_path_segment, errors);
    }
}
