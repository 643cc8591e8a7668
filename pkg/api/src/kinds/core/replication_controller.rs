//! ReplicationController: what a ReplicaSet is, with a plain map for a selector.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column, wide};
use crate::kinds::pod_spec::{default_template, validate_template};
use crate::names;
use crate::object::{object_mut, set_default};
use crate::printing::{age_column, at, container_names_and_images, int, labels, name_column};
use k8s_openapi::api::core::v1::ReplicationController;
use serde_json::Value;

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        validate_status: |object, _, errors| validate_replica_counts(&object.get("status"), errors),
        columns: vec![
            name_column(),
            column("Desired", "integer", |object, _| int(object, "spec.replicas").into()),
            column("Current", "integer", |object, _| int(object, "status.replicas").into()),
            column("Ready", "integer", |object, _| int(object, "status.readyReplicas").into()),
            age_column(),
            wide("Containers", "string", |object, _| {
                container_names_and_images(at(object, "spec.template.spec")).0.into()
            }),
            wide("Images", "string", |object, _| {
                container_names_and_images(at(object, "spec.template.spec")).1.into()
            }),
            wide("Selector", "string", |object, _| labels(at(object, "spec.selector")).into()),
        ],
        ..Kind::new::<ReplicationController>()
            .short(&["rc"])
            .in_all()
            .with_status()
            .with_scale("spec.replicas", "status.replicas", "spec.selector")
            .with_generation()
            .selectable(&["status.replicas"])
    }
}

/// Complains about counts of replicas that cannot be: negative, or more of a part than of the whole.
pub fn validate_replica_counts(status: &Field<'_>, errors: &mut Errors) {
    let count = |name: &str| status.get(name).int().unwrap_or(0);
    let names =
        ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    for name in names {
        status.get(name).non_negative(errors);
    }
    for name in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if count(name) > count("replicas") {
            status.get(name).invalid("cannot be greater than status.replicas", errors);
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        status.get("availableReplicas").invalid("cannot be greater than readyReplicas", errors);
    }
}

fn default(object: &mut Value) {
    object_mut(object, "spec");
    set_default(&mut object["spec"], "replicas", 1);
    let template_labels = object.pointer("/spec/template/metadata/labels").cloned().filter(|l| l.is_object());
    if let Some(template_labels) = template_labels {
        if object_mut(&mut object["spec"], "selector").is_empty() {
            object["spec"]["selector"] = template_labels.clone();
        }
        if object_mut(&mut object["metadata"], "labels").is_empty() {
            object["metadata"]["labels"] = template_labels;
        }
    }
    if let Some(template) = object.pointer_mut("/spec/template").filter(|template| template.is_object()) {
        default_template(template);
    }
}

fn validate(object: &Field<'_>, errors: &mut Errors) {
    let spec = object.get("spec");
    spec.get("minReadySeconds").non_negative(errors);
    let (selector, template) = (spec.get("selector"), spec.get("template"));
    selector.required(errors);
    spec.get("replicas").required(errors);
    spec.get("replicas").non_negative(errors);
    if !template.exists() {
        template.complain(Reason::Required, "", errors);
        return;
    }
    let metadata = template.get("metadata");
    let template_labels = metadata.get("labels");
    if selector.entries().any(|(key, value)| template_labels.key(key).value() != value.value()) {
        template_labels.invalid("`selector` does not match template `labels`", errors);
    }
    validate_template(&template, errors);
    let pod = template.get("spec");
    let policy = pod.get("restartPolicy");
    if policy.text() != "Always" {
        policy.not_supported(&["Always"], errors);
    }
    let deadline = pod.get("activeDeadlineSeconds");
    if deadline.exists() {
        deadline.forbidden("activeDeadlineSeconds in ReplicationController is not Supported", errors);
    }
}
