//! Lease: something held for a while by one of many.

use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::{names, printing};
use k8s_openapi::api::coordination::v1::Lease;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Holder", "string", |lease, _| printing::text(lease, "spec.holderIdentity").into()),
            printing::age_column(),
        ],
        unconditional_update: false,
        create_on_update: true,
        validate_name: names::dns_subdomain_name,
        validate,
        ..Kind::new::<Lease>()
    }
}

fn validate(lease: &Field<'_>, errors: &mut Errors) {
    let spec = lease.get("spec");
    let duration = spec.get("leaseDurationSeconds");
    if duration.int().is_some_and(|seconds| seconds <= 0) {
        duration.invalid("must be greater than 0", errors);
    }
    spec.get("leaseTransitions").non_negative(errors);
    let strategy = spec.get("strategy");
    if strategy.exists() {
        // Upstream names the field twice.
        let place = strategy.get("strategy").with_value(strategy.value());
        if strategy.text().contains('/') {
            place.conforms(names::is_qualified_name, errors);
        } else {
            place.one_of(&["OldestEmulationVersion"], errors);
        }
    }
    let preferred = spec.get("preferredHolder");
    if !preferred.text().is_empty() && strategy.text().is_empty() {
        preferred.forbidden("may only be specified if `strategy` is defined", errors);
    }
}
