//! DaemonSet: one pod on every node that fits.

use super::workload;
use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec::fill;
use crate::kinds::rules;
use crate::object::{object_mut, set_default};
use crate::{equality, meta, names, printing};
use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};

/// Older than ControllerRevisions: a count of the template's changes, which must not be lost.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The kind.
pub fn kind() -> Kind {
    let mut columns = vec![
        printing::name_column(),
        column("Desired", "integer", |set, _| printing::int(set, "status.desiredNumberScheduled").into()),
        column("Current", "integer", |set, _| printing::int(set, "status.currentNumberScheduled").into()),
        column("Ready", "integer", |set, _| printing::int(set, "status.numberReady").into()),
        column("Up-to-date", "integer", |set, _| printing::int(set, "status.updatedNumberScheduled").into()),
        column("Available", "integer", |set, _| printing::int(set, "status.numberAvailable").into()),
        column("Node Selector", "string", |set, _| {
            printing::labels(printing::at(set, "spec.template.spec.nodeSelector")).into()
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
        ..Kind::new::<DaemonSet>().short(&["ds"]).in_all().with_status().with_generation()
    }
}

fn default(set: &mut Value) {
    workload::default_template(set);
    let spec = &mut set["spec"];
    set_default(spec, "revisionHistoryLimit", 10);
    object_mut(spec, "updateStrategy");
    let strategy = &mut spec["updateStrategy"];
    fill(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        object_mut(strategy, "rollingUpdate");
        set_default(&mut strategy["rollingUpdate"], "maxUnavailable", 1);
        set_default(&mut strategy["rollingUpdate"], "maxSurge", 0);
    }
}

/// Counts changes of the template in an annotation, as clients from before ControllerRevisions expect.
fn prepare(set: &mut Value, old: Option<&Value>) {
    let count = |set: &Value| -> i64 {
        let count = set["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    let count = match old {
        None => count(set).max(1),
        Some(old) => {
            count(old) + i64::from(!equality::same(&set["spec"]["template"], &old["spec"]["template"]))
        }
    };
    object_mut(set, "metadata");
    object_mut(&mut set["metadata"], "annotations")
        .insert(TEMPLATE_GENERATION.into(), json!(count.to_string()));
}

fn validate(set: &Field<'_>, errors: &mut Errors) {
    let spec = set.get("spec");
    let selector = spec.get("selector");
    meta::validate_label_selector(&selector, errors);
    if selector.exists()
        && selector.get("matchLabels").is_empty()
        && selector.get("matchExpressions").is_empty()
    {
        selector.invalid("empty selector is invalid for daemonset", errors);
    }
    workload::validate_template(&spec, errors);
    workload::validate_runs_for_ever(&spec, "DaemonSet", errors);
    spec.get("minReadySeconds").non_negative(errors);
    validate_update_strategy(&spec.get("updateStrategy"), errors);
    spec.get("revisionHistoryLimit").non_negative(errors);
}

fn validate_update_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.exists() => rolling.complain(Reason::Required, "", errors),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            for field in [&unavailable, &surge] {
                rules::validate_int_or_percent(field, errors);
            }
            for field in [&unavailable, &surge] {
                rules::validate_at_most_100_percent(field, errors);
            }
            match (rules::int_or_percent(&unavailable) != 0, rules::int_or_percent(&surge) != 0) {
                (true, true) => surge.invalid("may not be set when maxUnavailable is non-zero", errors),
                (false, false) => {
                    unavailable.complain(Reason::Required, "cannot be 0 when maxSurge is 0", errors);
                }
                _ => {}
            }
        }
        _ => strategy.not_supported(&["RollingUpdate", "OnDelete"], errors),
    }
}

fn validate_status(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let counts = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    workload::validate_counts(&new.get("status"), &counts, errors);
    workload::validate_collision_count(new, old, errors);
}
