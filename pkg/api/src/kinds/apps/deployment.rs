//! Deployment: pods of one template, replaced little by little when the template changes.

use super::workload;
use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec::fill;
use crate::kinds::rules;
use crate::object::{object_mut, set_default};
use crate::{equality, names, printing};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

/// The kind.
pub fn kind() -> Kind {
    let mut columns = vec![
        printing::name_column(),
        column("Ready", "string", |deployment, _| {
            let ready = printing::int(deployment, "status.readyReplicas");
            format!("{ready}/{}", printing::int(deployment, "spec.replicas")).into()
        }),
        column("Up-to-date", "string", |deployment, _| {
            printing::int(deployment, "status.updatedReplicas").into()
        }),
        column("Available", "string", |deployment, _| {
            printing::int(deployment, "status.availableReplicas").into()
        }),
        printing::age_column(),
    ];
    columns.extend(workload::container_columns());
    columns.push(workload::selector_column());
    Kind {
        columns,
        validate_name: names::dns_subdomain_name,
        default,
        prepare,
        validate,
        validate_update: |new, old, errors| {
            let (spec, before) = (new.get("spec"), old.get("spec"));
            spec.get("selector").immutable(&before.get("selector"), errors);
        },
        validate_status,
        ..Kind::new::<Deployment>()
            .short(&["deploy"])
            .in_all()
            .with_status()
            .with_scale("spec.replicas", "status.replicas", "spec.selector")
            .with_generation()
    }
}

fn default(deployment: &mut Value) {
    workload::default_template(deployment);
    let spec = &mut deployment["spec"];
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    set_default(spec, "progressDeadlineSeconds", 600);
    object_mut(spec, "strategy");
    let strategy = &mut spec["strategy"];
    fill(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        object_mut(strategy, "rollingUpdate");
        set_default(&mut strategy["rollingUpdate"], "maxUnavailable", "25%");
        set_default(&mut strategy["rollingUpdate"], "maxSurge", "25%");
    }
}

/// Annotations are copied to replica sets, so the controller has to see a change of them as one of the spec.
fn prepare(deployment: &mut Value, old: Option<&Value>) {
    let Some(old) = old else { return };
    let generation = printing::int(old, "metadata.generation");
    if !equality::same(&deployment["metadata"]["annotations"], &old["metadata"]["annotations"]) {
        deployment["metadata"]["generation"] = json!(generation + 1);
    }
}

fn validate(deployment: &Field<'_>, errors: &mut Errors) {
    let spec = deployment.get("spec");
    spec.get("replicas").non_negative(errors);
    workload::validate_selector(&spec, "deployment", errors);
    workload::validate_template(&spec, errors);
    workload::validate_runs_for_ever(&spec, "ReplicaSet", errors);
    validate_strategy(&spec.get("strategy"), errors);
    let min_ready = spec.get("minReadySeconds");
    min_ready.non_negative(errors);
    spec.get("revisionHistoryLimit").non_negative(errors);
    let deadline = spec.get("progressDeadlineSeconds");
    deadline.non_negative(errors);
    if deadline.int().is_some_and(|deadline| deadline <= min_ready.int().unwrap_or(0)) {
        deadline.invalid("must be greater than minReadySeconds", errors);
    }
}

fn validate_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "Recreate" if rolling.exists() => {
            rolling.forbidden("may not be specified when strategy `type` is 'Recreate'", errors);
        }
        "Recreate" => {}
        "RollingUpdate" if !rolling.exists() => {
            rolling.complain(Reason::Required, "this should be defaulted and never be nil", errors);
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            rules::validate_int_or_percent(&unavailable, errors);
            rules::validate_int_or_percent(&surge, errors);
            if rules::int_or_percent(&unavailable) == 0 && rules::int_or_percent(&surge) == 0 {
                unavailable.invalid("may not be 0 when `maxSurge` is 0", errors);
            }
            rules::validate_at_most_100_percent(&unavailable, errors);
        }
        _ => strategy.not_supported(&["Recreate", "RollingUpdate"], errors),
    }
}

fn validate_status(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let status = new.get("status");
    let counts = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    workload::validate_counts(&status, &counts, errors);
    for name in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
        let detail = "cannot be greater than status.replicas";
        workload::validate_at_most(&status, name, "replicas", detail, errors);
    }
    let detail = "cannot be greater than readyReplicas";
    workload::validate_at_most(&status, "availableReplicas", "readyReplicas", detail, errors);
    workload::validate_collision_count(new, old, errors);
}
