//! IngressClass: who takes care of ingresses.

use super::ingress::validate_typed_reference;
use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::kinds::rules;
use crate::object::set_default;
use crate::{names, printing};
use k8s_openapi::api::networking::v1::IngressClass;
use serde_json::Value;

/// The class that every cluster of ours has.
pub const OWN_CLASS: &str = "minik8s";
/// Who takes care of its ingresses: nginx on every node.
pub const OWN_CONTROLLER: &str = "minik8s.io/ingress";

const MOST_CONTROLLER_BYTES: usize = 250;
/// By this a class is that of ingresses that name none.
pub const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Controller", "string", |class, _| printing::text(class, "spec.controller").into()),
            column("Parameters", "string", |class, _| parameters_cell(class).into()),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        default: |class| {
            if let Some(parameters) = class.pointer_mut("/spec/parameters") {
                set_default(parameters, "scope", "Cluster");
            }
        },
        validate,
        validate_update: |new, old, errors| {
            let (spec, before) = (new.get("spec"), old.get("spec"));
            spec.get("controller").immutable(&before.get("controller"), errors);
        },
        ..Kind::new::<IngressClass>().with_generation()
    }
}

/// Whether the class is taken when an ingress names none.
pub fn is_default(class: &Value) -> bool {
    class["metadata"]["annotations"][DEFAULT_CLASS] == "true"
}

fn validate(class: &Field<'_>, errors: &mut Errors) {
    let spec = class.get("spec");
    let controller = spec.get("controller");
    if controller.text().len() > MOST_CONTROLLER_BYTES {
        controller.too_long(MOST_CONTROLLER_BYTES, errors);
    }
    rules::validate_domain_prefixed_path(&controller, errors);
    let parameters = spec.get("parameters");
    if !parameters.exists() {
        return;
    }
    validate_typed_reference(&parameters, errors);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    match scope.text() {
        "Namespace" if !namespace.exists() => {
            namespace.complain(Reason::Required, "`parameters.scope` is set to 'Namespace'", errors);
        }
        "Namespace" => namespace.conforms(names::is_dns1123_label, errors),
        "Cluster" if namespace.exists() => {
            namespace.forbidden("`parameters.scope` is set to 'Cluster'", errors);
        }
        "Cluster" => {}
        _ if !scope.exists() => scope.complain(Reason::Required, "", errors),
        _ => scope.not_supported(&["Cluster", "Namespace"], errors),
    }
}

fn parameters_cell(class: &Value) -> String {
    let Some(parameters) = printing::at(class, "spec.parameters") else { return printing::NONE.into() };
    let (kind, name) = (printing::text(parameters, "kind"), printing::text(parameters, "name"));
    match printing::at(parameters, "apiGroup").and_then(Value::as_str) {
        Some(group) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}
