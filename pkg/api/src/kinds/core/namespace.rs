//! Namespace: a room for objects, emptied by its finalizer before it goes.

use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::object::{self, object_mut};
use crate::printing::{age_column, name_column, text};
use crate::{meta, names};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_label_name,
        default,
        prepare,
        validate,
        validate_status,
        delete_collection: false,
        columns: vec![
            name_column(),
            column("Status", "string", |namespace, _| text(namespace, "status.phase").into()),
            age_column(),
        ],
        ..Kind::new::<Namespace>()
            .short(&["ns"])
            .with_status()
            .with_subresource("finalize", ("", "", "Namespace"), &["update"])
            .selectable(&["status.phase"])
    }
}

/// Complains about what `finalize` is given.
pub fn validate_finalize(namespace: &Field<'_>, errors: &mut Errors) {
    let spec = namespace.get("spec");
    for finalizer in spec.get("finalizers").items() {
        finalizer.conforms(names::is_qualified_name, errors);
        meta::validate_kube_finalizer_name(&finalizer, errors);
    }
}

fn default(namespace: &mut Value) {
    let phase = object_mut(namespace, "status").entry("phase").or_insert(Value::Null);
    if phase.as_str().unwrap_or_default().is_empty() {
        *phase = "Active".into();
    }
    label_with_name(namespace);
}

fn prepare(namespace: &mut Value, old: Option<&Value>) {
    // Only `finalize` changes the finalizers.
    let old_finalizers = old.map(|old| old.pointer("/spec/finalizers").cloned().unwrap_or_default());
    let finalizers = object_mut(namespace, "spec").entry("finalizers").or_insert(Value::Null);
    match old_finalizers {
        Some(old) => *finalizers = old,
        None => {
            let mut list = finalizers.as_array().cloned().unwrap_or_default();
            if !list.contains(&"kubernetes".into()) {
                list.push("kubernetes".into());
            }
            *finalizers = list.into();
            namespace["status"] = json!({"phase": "Active"});
            label_with_name(namespace);
        }
    }
}

/// So that selectors of namespaces can name one.
fn label_with_name(namespace: &mut Value) {
    let name = object::name(namespace).to_owned();
    if !name.is_empty() {
        object_mut(&mut namespace["metadata"], "labels").insert(NAME_LABEL.into(), name.into());
    }
}

fn validate(namespace: &Field<'_>, errors: &mut Errors) {
    let spec = namespace.get("spec");
    let finalizers = spec.get("finalizers");
    for finalizer in finalizers.items() {
        // Upstream names the list, not the element, here.
        let finalizer = finalizers.with_value(finalizer.value());
        finalizer.conforms(names::is_qualified_name, errors);
        meta::validate_kube_finalizer_name(&finalizer, errors);
    }
}

fn validate_status(namespace: &Field<'_>, _old: &Field<'_>, errors: &mut Errors) {
    let (metadata, status) = (namespace.get("metadata"), namespace.get("status"));
    let phase = status.get("phase");
    let shown = status.get("Phase");
    let terminating = metadata.get("deletionTimestamp").exists();
    if !terminating && phase.text() != "Active" {
        shown.invalid_value(phase.text(), "may only be 'Active' if `deletionTimestamp` is empty", errors);
    } else if terminating && phase.text() != "Terminating" {
        shown.invalid_value(
            phase.text(),
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
            errors,
        );
    }
}
