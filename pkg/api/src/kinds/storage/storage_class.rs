//! StorageClass: a kind of storage that claims can ask for.

use crate::equality;
use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::object::{self, set_default};
use crate::{names, printing};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const MOST_PARAMETERS: usize = 512;
const MOST_PARAMETER_BYTES: usize = 256 * 1024;
/// Which of the classes is taken when a claim names none. The second is older.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            crate::Column { format: "name", ..column("Name", "string", |class, _| name_cell(class).into()) },
            column("Provisioner", "string", |class, _| printing::text(class, "provisioner").into()),
            column("ReclaimPolicy", "string", |class, _| {
                class.get("reclaimPolicy").and_then(Value::as_str).unwrap_or("Delete").into()
            }),
            column("VolumeBindingMode", "string", |class, _| {
                class.get("volumeBindingMode").and_then(Value::as_str).unwrap_or("Immediate").into()
            }),
            column("AllowVolumeExpansion", "string", |class, _| {
                (class["allowVolumeExpansion"] == true).into()
            }),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        default: |class| {
            set_default(class, "reclaimPolicy", "Delete");
            set_default(class, "volumeBindingMode", "Immediate");
        },
        validate,
        validate_update,
        ..Kind::new::<StorageClass>().short(&["sc"])
    }
}

/// Whether the class is taken when a claim names none.
pub fn is_default(class: &Value) -> bool {
    DEFAULT_CLASS.iter().any(|&key| class["metadata"]["annotations"][key] == "true")
}

fn validate(class: &Field<'_>, errors: &mut Errors) {
    validate_provisioner(&class.get("provisioner"), errors);
    validate_parameters(&class.get("parameters"), errors);
    let policy = class.get("reclaimPolicy");
    if !policy.text().is_empty() {
        policy.one_of(&["Delete", "Retain"], errors);
    }
    let mode = class.get("volumeBindingMode");
    if mode.required(errors) {
        mode.one_of(&["Immediate", "WaitForFirstConsumer"], errors);
    }
    validate_topologies(&class.get("allowedTopologies"), errors);
}

/// Complains about the name of a driver.
pub(super) fn validate_provisioner(provisioner: &Field<'_>, errors: &mut Errors) {
    if provisioner.required(errors) {
        let lower = provisioner.text().to_ascii_lowercase();
        for fault in names::is_qualified_name(&lower) {
            provisioner.invalid_value(lower.as_str(), fault, errors);
        }
    }
}

/// Complains about what a driver is told.
pub(super) fn validate_parameters(parameters: &Field<'_>, errors: &mut Errors) {
    if parameters.len() > MOST_PARAMETERS {
        parameters.too_long(MOST_PARAMETERS, errors);
        return;
    }
    let mut bytes = 0;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            parameters.invalid_value(key, "field can not be empty.", errors);
        }
        bytes += key.len() + value.text().len();
    }
    if bytes > MOST_PARAMETER_BYTES {
        parameters.too_long(MOST_PARAMETER_BYTES, errors);
    }
}

/// No two terms say the same.
fn validate_topologies(topologies: &Field<'_>, errors: &mut Errors) {
    let mut terms: Vec<BTreeMap<String, BTreeSet<String>>> = Vec::new();
    for topology in topologies.items() {
        let expressions = topology.get("matchLabelExpressions");
        let mut term = BTreeMap::new();
        for expression in expressions.items() {
            let (key, values) = (expression.get("key"), expression.get("values"));
            values.required(errors);
            let mut set = BTreeSet::new();
            for value in values.items() {
                if !set.insert(value.text().to_owned()) {
                    value.duplicate(errors);
                }
            }
            key.conforms(names::is_qualified_name, errors);
            if term.insert(key.text().to_owned(), set).is_some() {
                key.duplicate(errors);
            }
        }
        if terms.contains(&term) {
            expressions.with_value(&Value::from("")).duplicate(errors);
        }
        terms.push(term);
    }
}

fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    for name in ["parameters", "provisioner", "reclaimPolicy"] {
        let field = new.get(name);
        if !equality::same(field.value(), old.get(name).value()) {
            field.forbidden(format!("updates to {name} are forbidden."), errors);
        }
    }
    new.get("volumeBindingMode").immutable(&old.get("volumeBindingMode"), errors);
}

fn name_cell(class: &Value) -> String {
    format!("{}{}", object::name(class), if is_default(class) { " (default)" } else { "" })
}
