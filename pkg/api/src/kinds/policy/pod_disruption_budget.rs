//! PodDisruptionBudget: how many pods of an application evictions must leave alone.

use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::kinds::rules;
use crate::{meta, names, printing};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::Value;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Min Available", "string", |budget, _| amount_cell(budget, "spec.minAvailable")),
            column("Max Unavailable", "string", |budget, _| amount_cell(budget, "spec.maxUnavailable")),
            column("Allowed Disruptions", "integer", |budget, _| {
                printing::int(budget, "status.disruptionsAllowed").into()
            }),
            printing::age_column(),
        ],
        unconditional_update: false,
        validate_name: names::path_segment_name,
        validate,
        validate_status: |new, _, errors| {
            let status = new.get("status");
            meta::validate_conditions(&status.get("conditions"), errors);
            for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                status.get(name).non_negative(errors);
            }
        },
        ..Kind::new::<PodDisruptionBudget>().short(&["pdb"]).with_status().with_generation()
    }
}

fn validate(budget: &Field<'_>, errors: &mut Errors) {
    let spec = budget.get("spec");
    let (min, max) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if min.exists() && max.exists() {
        spec.invalid("minAvailable and maxUnavailable cannot be both set", errors);
    }
    for amount in [&min, &max] {
        if amount.exists() {
            rules::validate_int_or_percent(amount, errors);
            rules::validate_at_most_100_percent(amount, errors);
        }
    }
    meta::validate_label_selector(&spec.get("selector"), errors);
    spec.get("unhealthyPodEvictionPolicy").one_of(&["AlwaysAllow", "IfHealthyBudget"], errors);
}

fn amount_cell(budget: &Value, path: &str) -> Value {
    match printing::at(budget, path) {
        None => "N/A".into(),
        Some(Value::String(percent)) => percent.as_str().into(),
        Some(number) => number.to_string().into(),
    }
}
