//! RuntimeClass: a way to run containers that nodes may have.

use crate::equality;
use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec;
use crate::{meta, names, printing};
use k8s_openapi::api::node::v1::RuntimeClass;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Handler", "string", |class, _| printing::text(class, "handler").into()),
            printing::age_column(),
        ],
        unconditional_update: false,
        create_on_update: true,
        validate_name: names::dns_subdomain_name,
        validate,
        validate_update: |new, old, errors| new.get("handler").immutable(&old.get("handler"), errors),
        ..Kind::new::<RuntimeClass>()
    }
}

fn validate(class: &Field<'_>, errors: &mut Errors) {
    class.get("handler").conforms(names::is_dns1123_label, errors);
    let overhead = class.get("overhead");
    // Upstream calls the amounts limits.
    let amounts = overhead.get("podFixed");
    let limits = overhead.get("limits").with_value(amounts.value());
    pod_spec::resources::validate_overhead(&limits, errors);
    let scheduling = class.get("scheduling");
    meta::validate_labels(&scheduling.get("nodeSelector"), errors);
    let tolerations = scheduling.get("tolerations");
    pod_spec::validate_tolerations(&tolerations, errors);
    let mut seen: Vec<serde_json::Value> = Vec::new();
    for toleration in tolerations.items() {
        let mut key = toleration.value().clone();
        key.as_object_mut().map(|members| members.remove("tolerationSeconds"));
        if seen.iter().any(|other| equality::same(other, &key)) {
            toleration.duplicate(errors);
        }
        seen.push(key);
    }
}
