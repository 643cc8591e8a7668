//! ReplicaSet: a number of pods of one template.

use super::workload;
use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::object::set_default;
use crate::{names, printing};
use k8s_openapi::api::apps::v1::ReplicaSet;
use serde_json::Value;

/// The kind.
pub fn kind() -> Kind {
    let mut columns = vec![
        printing::name_column(),
        column("Desired", "integer", |set, _| printing::int(set, "spec.replicas").into()),
        column("Current", "integer", |set, _| printing::int(set, "status.replicas").into()),
        column("Ready", "integer", |set, _| printing::int(set, "status.readyReplicas").into()),
        printing::age_column(),
    ];
    columns.extend(workload::container_columns());
    columns.push(workload::selector_column());
    Kind {
        columns,
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        validate_update: |new, old, errors| {
            let (spec, before) = (new.get("spec"), old.get("spec"));
            spec.get("selector").immutable(&before.get("selector"), errors);
        },
        validate_status: |new, _, errors| validate_status(new, errors),
        ..Kind::new::<ReplicaSet>()
            .short(&["rs"])
            .in_all()
            .with_status()
            .with_scale("spec.replicas", "status.replicas", "spec.selector")
            .with_generation()
    }
}

fn default(set: &mut Value) {
    workload::default_template(set);
    set_default(&mut set["spec"], "replicas", 1);
}

fn validate(set: &Field<'_>, errors: &mut Errors) {
    let spec = set.get("spec");
    spec.get("replicas").non_negative(errors);
    spec.get("minReadySeconds").non_negative(errors);
    // Upstream says "deployment" here too.
    workload::validate_selector(&spec, "deployment", errors);
    workload::validate_template(&spec, errors);
    workload::validate_runs_for_ever(&spec, "ReplicaSet", errors);
}

fn validate_status(set: &Field<'_>, errors: &mut Errors) {
    let status = set.get("status");
    let counts = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    workload::validate_counts(&status, &counts, errors);
    for name in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        let detail = "cannot be greater than status.replicas";
        workload::validate_at_most(&status, name, "replicas", detail, errors);
    }
    let detail = "cannot be greater than readyReplicas";
    workload::validate_at_most(&status, "availableReplicas", "readyReplicas", detail, errors);
}
