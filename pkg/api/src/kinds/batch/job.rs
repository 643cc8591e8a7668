//! Job: pods that run until enough of them have succeeded.

use super::{job_spec, job_status};
use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::kinds::apps::workload;
use crate::object::{self, object_mut, set_default};
use crate::{meta, names, printing};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

/// The labels that tie pods to their job, with whether the uid or the name is their value. Those without a prefix
/// are older.
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", CONTROLLER_UID];
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// The kind.
pub fn kind() -> Kind {
    let mut columns = vec![
        printing::name_column(),
        column("Status", "string", |job, _| status_cell(job).into()),
        column("Completions", "string", |job, _| completions_cell(job).into()),
        column("Duration", "string", |job, now| duration_cell(job, now).into()),
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
        validate_update,
        validate_status: job_status::validate,
        ..Kind::new::<Job>().in_all().with_status().with_generation()
    }
}

fn default(job: &mut Value) {
    object_mut(job, "spec");
    job_spec::default(&mut job["spec"]);
    let spec = &mut job["spec"];
    let given = |spec: &Value, name: &str| spec.get(name).is_some_and(|value| !value.is_null());
    if !given(spec, "completions") && !given(spec, "parallelism") {
        set_default(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    let limit = if given(spec, "backoffLimitPerIndex") { i32::MAX } else { 6 };
    set_default(spec, "backoffLimit", limit);
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    let replace = if given(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    set_default(spec, "podReplacementPolicy", replace);
    set_default(spec, "manualSelector", false);
    take_labels_of_template(job);
}

/// A job without labels has those of its pods.
fn take_labels_of_template(job: &mut Value) {
    let labels = printing::at(job, "spec.template.metadata.labels").cloned();
    let own = printing::at(job, "metadata.labels").and_then(Value::as_object);
    if let Some(labels) = labels.filter(|_| own.is_none_or(serde_json::Map::is_empty)) {
        object_mut(job, "metadata").insert("labels".into(), labels);
    }
}

/// Makes a selector that no other job has, unless the user insists on one of their own.
fn prepare(job: &mut Value, old: Option<&Value>) {
    if old.is_some() || job["spec"]["manualSelector"] == true {
        return;
    }
    let text = |name: &str| Value::from(object::meta(job, name).unwrap_or_default());
    let (name, uid) = (text("name"), text("uid"));
    // A job without labels of its own has those of its pods, the ones that are made here among them.
    let own = job["metadata"].get("labels").cloned();
    let shares = own.is_none() || own == job["spec"]["template"]["metadata"].get("labels").cloned();
    let spec = &mut job["spec"];
    object_mut(spec, "template");
    object_mut(&mut spec["template"], "metadata");
    let labels = object_mut(&mut spec["template"]["metadata"], "labels");
    // A label that the user set stays, and is refused by validation if it is another.
    for (keys, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
        for key in keys {
            labels.entry(key).or_insert_with(|| value.clone());
        }
    }
    let labels = Value::Object(labels.clone());
    object_mut(spec, "selector");
    object_mut(&mut spec["selector"], "matchLabels").entry(CONTROLLER_UID).or_insert(uid);
    if shares {
        object_mut(job, "metadata").insert("labels".into(), labels);
    }
}

fn validate(job: &Field<'_>, errors: &mut Errors) {
    let spec = job.get("spec");
    validate_generated_selector(job, errors);
    job_spec::validate(&spec, errors);
    let selector = spec.get("selector");
    if !selector.exists() {
        selector.required(errors);
    }
    meta::validate_label_selector(&selector, errors);
    workload::validate_template_is_selected(&spec, errors);
    let metadata = job.get("metadata");
    let name = metadata.get("name");
    let completions = spec.get("completions").int().filter(|&completions| completions > 0);
    if let Some(completions) = completions.filter(|_| spec.get("completionMode").text() == "Indexed") {
        let longest = format!("{}-{}", name.text(), completions - 1);
        if !names::is_dns1123_label(&longest).is_empty() {
            name.invalid(format!("will not able to create pod with invalid DNS label: {longest}"), errors);
        }
    }
}

/// The labels and the selector that [`prepare`] makes are still those of this job.
fn validate_generated_selector(job: &Field<'_>, errors: &mut Errors) {
    let (spec, metadata) = (job.get("spec"), job.get("metadata"));
    let selector = spec.get("selector");
    if spec.get("manualSelector").bool() || !selector.exists() {
        return;
    }
    let (name, uid) = (metadata.get("name"), metadata.get("uid"));
    uid.required(errors);
    let template = spec.get("template");
    let template_metadata = template.get("metadata");
    let labels = template_metadata.get("labels");
    let mut expected = json!({});
    for (key, value) in [
        (UID_LABELS[0], uid.text()),
        (NAME_LABELS[0], name.text()),
        (UID_LABELS[1], uid.text()),
        (NAME_LABELS[1], name.text()),
    ] {
        expected[key] = value.into();
        let label = labels.key(key);
        if !label.exists() {
            label.required_because(&format!("must be '{value}'"), errors);
        } else if label.text() != value {
            label.invalid_value(labels.value().clone(), format!("must be '{value}'"), errors);
        }
    }
    if !workload::selects(selector.value(), &expected) {
        selector.invalid("`selector` not auto-generated", errors);
    }
}

fn validate_update(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    validate_completions_update(&spec, &before, errors);
    spec.get("selector").immutable(&before.get("selector"), errors);
    let allowed = with_allowed_template_changes(new, old);
    let allowed = Field::root(&allowed);
    spec.get("template").immutable(&allowed, errors);
    for name in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        spec.get(name).immutable(&before.get(name), errors);
    }
}

/// Indexed jobs are scaled by changing both numbers together.
fn validate_completions_update(spec: &Field<'_>, before: &Field<'_>, errors: &mut Errors) {
    let completions = spec.get("completions");
    let (wanted, had) = (completions.int(), before.get("completions").int());
    if spec.get("completionMode").text() != "Indexed" {
        completions.immutable(&before.get("completions"), errors);
    } else if wanted.is_some() && wanted != had && wanted != spec.get("parallelism").int() {
        completions.invalid("can only be modified in tandem with spec.parallelism", errors);
    }
}

/// The old template with what of the new one may differ: where pods may go, for a job that has not started yet.
fn with_allowed_template_changes(new: &Field<'_>, old: &Field<'_>) -> Value {
    let (new, old) = (new.value(), old.value());
    let mut template = old["spec"]["template"].clone();
    let never_started = old["spec"]["suspend"] == true && printing::at(old, "status.startTime").is_none();
    if !never_started {
        return template;
    }
    let wanted = &new["spec"]["template"];
    for (part, names) in [
        ("metadata", ["annotations", "labels"].as_slice()),
        ("spec", ["nodeSelector", "tolerations", "schedulingGates"].as_slice()),
    ] {
        for &name in names {
            set_or_remove(
                object_mut(&mut template, part),
                name,
                wanted.get(part).and_then(|part| part.get(name)),
            );
        }
    }
    let affinity = wanted["spec"].get("affinity");
    let mut kept = template["spec"]["affinity"].as_object().cloned().unwrap_or_default();
    set_or_remove(&mut kept, "nodeAffinity", affinity.and_then(|affinity| affinity.get("nodeAffinity")));
    let kept = (affinity.is_some() || !kept.is_empty()).then_some(Value::Object(kept));
    set_or_remove(object_mut(&mut template, "spec"), "affinity", kept.as_ref());
    template
}

fn set_or_remove(members: &mut serde_json::Map<String, Value>, name: &str, value: Option<&Value>) {
    match value {
        Some(value) => members.insert(name.into(), value.clone()),
        None => members.remove(name),
    };
}

fn status_cell(job: &Value) -> &'static str {
    let has = |ty: &str| object::condition_is(job, ty, "True");
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if printing::at(job, "metadata.deletionTimestamp").is_some() {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
            .into_iter()
            .find(|ty| has(ty))
            .unwrap_or("Running")
    }
}

fn completions_cell(job: &Value) -> String {
    let succeeded = printing::int(job, "status.succeeded");
    match (printing::at(job, "spec.completions"), printing::int(job, "spec.parallelism")) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn duration_cell(job: &Value, now: Timestamp) -> String {
    let time = |path: &str| printing::text(job, path).parse::<Timestamp>().ok();
    match (time("status.startTime"), time("status.completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => printing::human_duration(end.unwrap_or(now).duration_since(start).as_secs()),
    }
}
