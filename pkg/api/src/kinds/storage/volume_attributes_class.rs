//! VolumeAttributesClass: properties of volumes that can be changed while they are used.

use super::storage_class::{validate_parameters, validate_provisioner};
use crate::equality;
use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::{names, printing};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("DriverName", "string", |class, _| printing::text(class, "driverName").into()),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        validate,
        validate_update,
        ..Kind::new::<VolumeAttributesClass>().short(&["vac"])
    }
}

fn validate(class: &Field<'_>, errors: &mut Errors) {
    validate_provisioner(&class.get("driverName"), errors);
    let parameters = class.get("parameters");
    if parameters.required_because("must contain at least one key/value pair", errors) {
        validate_parameters(&parameters, errors);
    }
}

fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    for name in ["driverName", "parameters"] {
        let field = new.get(name);
        if !equality::same(field.value(), old.get(name).value()) {
            field.forbidden(format!("updates to {name} are forbidden."), errors);
        }
    }
}
