//! DeviceClass: a kind of devices that claims can ask for.

use super::devices;
use crate::field::{Errors, Field};
use crate::kind::Kind;
use crate::names;
use k8s_openapi::api::resource::v1::DeviceClass;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        validate,
        ..Kind::new::<DeviceClass>().with_generation()
    }
}

fn validate(class: &Field<'_>, errors: &mut Errors) {
    let spec = class.get("spec");
    devices::validate_selectors(&spec.get("selectors"), errors);
    for config in spec.get("config").items() {
        devices::validate_config(&config, errors);
    }
}
