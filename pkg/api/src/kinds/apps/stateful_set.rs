//! StatefulSet: pods with names, order and storage of their own.

use super::workload;
use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec::{fill, list_mut};
use crate::kinds::{pod_spec, rules};
use crate::object::{object_mut, set_default};
use crate::{equality, names, printing};
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};

/// What of the spec may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// The kind.
pub fn kind() -> Kind {
    let mut columns = vec![
        printing::name_column(),
        column("Ready", "string", |set, _| {
            let ready = printing::int(set, "status.readyReplicas");
            format!("{ready}/{}", printing::int(set, "spec.replicas")).into()
        }),
        printing::age_column(),
    ];
    columns.extend(workload::container_columns());
    Kind {
        columns,
        validate_name: names::dns_label_name,
        default,
        validate,
        validate_create,
        validate_update,
        validate_status,
        ..Kind::new::<StatefulSet>()
            .short(&["sts"])
            .in_all()
            .with_status()
            .with_scale("spec.replicas", "status.replicas", "spec.selector")
            .with_generation()
    }
}

fn default(set: &mut Value) {
    workload::default_template(set);
    let spec = &mut set["spec"];
    fill(spec, "podManagementPolicy", "OrderedReady");
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    object_mut(spec, "persistentVolumeClaimRetentionPolicy");
    let retention = &mut spec["persistentVolumeClaimRetentionPolicy"];
    fill(retention, "whenDeleted", "Retain");
    fill(retention, "whenScaled", "Retain");
    object_mut(spec, "updateStrategy");
    let strategy = &mut spec["updateStrategy"];
    if strategy["type"].as_str().unwrap_or_default().is_empty() {
        strategy["type"] = json!("RollingUpdate");
        object_mut(strategy, "rollingUpdate");
    }
    if strategy["type"] == "RollingUpdate"
        && let Some(rolling) = strategy.get_mut("rollingUpdate")
    {
        set_default(rolling, "partition", 0);
    }
    for claim in list_mut(spec, "volumeClaimTemplates") {
        set_default(claim, "apiVersion", "v1");
        set_default(claim, "kind", "PersistentVolumeClaim");
        object_mut(claim, "spec");
        pod_spec::default_claim_spec(&mut claim["spec"]);
        object_mut(claim, "status");
        set_default(&mut claim["status"], "phase", "Pending");
    }
}

fn validate(set: &Field<'_>, errors: &mut Errors) {
    let spec = set.get("spec");
    let policy = spec.get("podManagementPolicy");
    if policy.required(errors) && !matches!(policy.text(), "OrderedReady" | "Parallel") {
        policy.invalid("must be 'OrderedReady' or 'Parallel'", errors);
    }
    validate_update_strategy(&spec.get("updateStrategy"), errors);
    let retention = spec.get("persistentVolumeClaimRetentionPolicy");
    for name in ["whenDeleted", "whenScaled"] {
        retention.get(name).one_of(&["Retain", "Delete"], errors);
    }
    spec.get("replicas").non_negative(errors);
    spec.get("minReadySeconds").non_negative(errors);
    spec.get("ordinals").get("start").non_negative(errors);
    workload::validate_selector(&spec, "statefulset", errors);
    workload::validate_template_is_selected(&spec, errors);
    let pods = with_claims_as_volumes(set.value());
    let pods = Field::root(&pods);
    pod_spec::validate_template(&pods.get("spec").get("template"), errors);
    workload::validate_runs_for_ever(&spec, "StatefulSet", errors);
}

/// Rules for what never changes.
fn validate_create(set: &Field<'_>, errors: &mut Errors) {
    let spec = set.get("spec");
    for claim in spec.get("volumeClaimTemplates").items() {
        pod_spec::validate_claim_spec(&claim.get("spec"), errors);
    }
    let service_name = spec.get("serviceName");
    if !service_name.text().is_empty() {
        service_name.conforms(names::is_dns1123_label, errors);
    }
}

fn validate_update_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "" => {
            strategy.complain(Reason::Required, "", errors);
        }
        "OnDelete" if rolling.exists() => {
            rolling.invalid("only allowed for updateStrategy 'RollingUpdate'", errors);
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            rolling.get("partition").non_negative(errors);
            let unavailable = rolling.get("maxUnavailable");
            if unavailable.exists() {
                rules::validate_int_or_percent(&unavailable, errors);
                if rules::int_or_percent(&unavailable) == 0 {
                    unavailable.invalid("cannot be 0", errors);
                }
                rules::validate_at_most_100_percent(&unavailable, errors);
            }
        }
        _ => strategy.invalid("must be 'RollingUpdate' or 'OnDelete'", errors),
    }
}

/// The set as its pods will be: claims are volumes, and names that the controller sets are not the template's.
fn with_claims_as_volumes(set: &Value) -> Value {
    let mut set = set.clone();
    let claims: Vec<Value> = printing::items(&set, "spec.volumeClaimTemplates")
        .iter()
        .map(|claim| {
            let name = printing::text(claim, "metadata.name");
            json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
        })
        .collect();
    let Some(pod) = set.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) else { return set };
    pod.remove("subdomain");
    pod.remove("hostname");
    if !claims.is_empty() {
        let own = pod.remove("volumes").and_then(|volumes| match volumes {
            Value::Array(volumes) => Some(volumes),
            _ => None,
        });
        let shadowed = |volume: &Value| claims.iter().any(|claim| claim["name"] == volume["name"]);
        let kept: Vec<Value> = own.into_iter().flatten().filter(|volume| !shadowed(volume)).collect();
        // After the template's own, so that complaints about those carry the index the user knows.
        pod.insert("volumes".into(), kept.into_iter().chain(claims).collect());
    }
    set
}

fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let fixed = |set: &Field<'_>| {
        let mut spec = set.get("spec").object().cloned().unwrap_or_default();
        spec.retain(|name, _| !MUTABLE.contains(&name.as_str()));
        Value::Object(spec)
    };
    if !equality::same(&fixed(new), &fixed(old)) {
        new.get("spec").forbidden(
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            errors,
        );
    }
}

fn validate_status(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let status = new.get("status");
    let replicas = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    status.get("replicas").non_negative(errors);
    workload::validate_counts(&status, &replicas, errors);
    workload::validate_counts(&status, &["observedGeneration", "collisionCount"], errors);
    for name in replicas {
        let detail = "cannot be greater than status.replicas";
        workload::validate_at_most(&status, name, "replicas", detail, errors);
    }
    let detail = "cannot be greater than status.readyReplicas";
    workload::validate_at_most(&status, "availableReplicas", "readyReplicas", detail, errors);
    workload::validate_collision_count(new, old, errors);
}
