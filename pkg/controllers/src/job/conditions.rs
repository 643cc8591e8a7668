//! A Job's conditions.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The condition of a type, if it is true.
pub fn is_true<'a>(status: &'a JobStatus, ty: &str) -> Option<&'a JobCondition> {
    get(status, ty).filter(|condition| condition.status == "True")
}

/// The condition of a type.
pub fn get<'a>(status: &'a JobStatus, ty: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == ty)
}

/// Whether it has ended, well or not.
pub fn is_finished(job: &Job) -> bool {
    finished(job).is_some()
}

/// The condition that says that it has ended.
pub fn finished(job: &Job) -> Option<&JobCondition> {
    let status = job.status.as_ref()?;
    is_true(status, "Complete").or_else(|| is_true(status, "Failed"))
}

/// A condition that holds from now on.
pub fn new(ty: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: ty.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Sets the status of a condition; says whether it was another. One that was never there is not made to say no.
pub fn ensure(
    status: &mut JobStatus,
    ty: &str,
    is: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let wanted = if is { "True" } else { "False" };
    match get(status, ty) {
        Some(found) if found.status == wanted => return false,
        None if !is => return false,
        _ => {}
    }
    let condition = JobCondition { status: wanted.into(), ..new(ty, reason, message, now) };
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == ty) {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
    true
}
