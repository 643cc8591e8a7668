//! The status of a job: what a controller, ours or another (`spec.managedBy`), may say about it.
//!
//! A rule looks only at what changes: a status that once broke it does not keep other changes from being written.

use super::job_spec::{count_indexes, parse_interval};
use crate::equality;
use crate::field::{Errors, Field, Reason};
use crate::kinds::rules;
use crate::{object, printing};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashSet;

/// Complains about a change of status: new, then old.
pub(super) fn validate(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let status = new.get("status");
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        status.get(name).non_negative(errors);
    }
    validate_uncounted(&status, errors);
    let change = Change { new: new.value(), old: old.value() };
    validate_conditions(&change, &status, errors);
    validate_times(&change, &status, errors);
    validate_counters(&change, &status, errors);
    validate_indexes(&change, &status, errors);
}

/// The job before and after.
struct Change<'a> {
    new: &'a Value,
    old: &'a Value,
}

impl Change<'_> {
    /// Whether the new status has the condition.
    fn is(&self, ty: &str) -> bool {
        object::condition_is(self.new, ty, "True")
    }

    /// Whether the old status had the condition.
    fn was(&self, ty: &str) -> bool {
        object::condition_is(self.old, ty, "True")
    }

    /// Whether the condition came or went.
    fn flips(&self, ty: &str) -> bool {
        self.is(ty) != self.was(ty)
    }

    fn is_finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn flips_finished(&self) -> bool {
        self.is_finished() != (self.was("Complete") || self.was("Failed"))
    }

    /// Whether a member of the status changes.
    fn changes(&self, name: &str) -> bool {
        !equality::same(&self.new["status"][name], &self.old["status"][name])
    }

    /// Whether the job has indexes.
    fn is_indexed(&self) -> bool {
        printing::text(self.new, "spec.completionMode") == "Indexed"
    }
}

/// Pods that have ended but are not counted yet are named once each.
fn validate_uncounted(status: &Field<'_>, errors: &mut Errors) {
    let uncounted = status.get("uncountedTerminatedPods");
    let mut seen = HashSet::new();
    for name in ["succeeded", "failed"] {
        for uid in uncounted.get(name).items() {
            if uid.text().is_empty() {
                uid.invalid("must not be empty", errors);
            } else if !seen.insert(uid.text().to_owned()) {
                uid.duplicate(errors);
            }
        }
    }
}

fn validate_conditions(change: &Change<'_>, status: &Field<'_>, errors: &mut Errors) {
    let conditions = status.get("conditions");
    let mut refuse = |refused: bool, detail: &str| {
        if refused {
            rules::invalid_without_value(&conditions, detail, errors);
        }
    };
    let (complete, failed) = (change.is("Complete"), change.is("Failed"));
    let (failure_target, success) = (change.is("FailureTarget"), change.is("SuccessCriteriaMet"));
    let (complete_flips, failed_flips) = (change.flips("Complete"), change.flips("Failed"));
    refuse(
        (complete_flips || failed_flips) && complete && failed,
        "cannot set Complete=True and Failed=true conditions",
    );
    refuse(
        (complete_flips || change.flips("FailureTarget")) && complete && failure_target,
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    refuse(
        (failed_flips || change.changes("failedIndexes")) && failed && !failure_target,
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    refuse(
        (complete_flips || change.flips("SuccessCriteriaMet")) && complete && !success,
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    refuse(success && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    refuse(success && failure_target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    refuse(
        printing::at(change.new, "spec.successPolicy").is_some() && !success && complete,
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
    );
    for ty in ["Failed", "Complete", "FailureTarget"] {
        let detail = format!("cannot disable the terminal {ty}=True condition");
        refuse(change.was(ty) && !change.is(ty), &detail);
    }
    let had_success = change.was("SuccessCriteriaMet");
    refuse(had_success && !success, "cannot disable the SuccessCriteriaMet=True condition");
    refuse(
        change.was("Complete") && !had_success && success,
        "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
    );
}

fn validate_times(change: &Change<'_>, status: &Field<'_>, errors: &mut Errors) {
    let (start, end) = (status.get("startTime"), status.get("completionTime"));
    let before = |name: &str| printing::at(&change.old["status"], name).is_some();
    let complete = change.is("Complete");
    if change.flips("Complete") || change.changes("completionTime") {
        if end.exists() && !complete {
            end.invalid("cannot set completionTime when there is no Complete=True condition", errors);
        }
        if !end.exists() && complete {
            end.complain(Reason::Required, "completionTime is required for Complete jobs", errors);
        }
    }
    let time = |field: &Field<'_>| field.text().parse::<Timestamp>().ok();
    if (change.changes("startTime") || change.changes("completionTime"))
        && let (Some(started), Some(ended)) = (time(&start), time(&end))
        && ended < started
    {
        end.invalid("must be equal to or after `startTime`", errors);
    }
    // A job with nothing to do may end without ever having started.
    let nothing_to_do = change.new["spec"]["suspend"] == true && change.new["spec"]["completions"] == 0;
    if (change.flips_finished() || change.changes("startTime"))
        && !nothing_to_do
        && change.is_finished()
        && !start.exists()
    {
        start.complain(Reason::Required, "startTime is required for finished job", errors);
    }
    if end.exists() && before("completionTime") && change.changes("completionTime") {
        end.invalid("field is immutable", errors);
    }
    let resuming = change.was("Suspended") && object::condition_is(change.new, "Suspended", "False");
    if before("startTime")
        && change.changes("startTime")
        && !resuming
        && change.new["spec"]["suspend"] != true
    {
        start.complain(Reason::Required, "startTime cannot be removed for unsuspended job", errors);
    }
}

fn validate_counters(change: &Change<'_>, status: &Field<'_>, errors: &mut Errors) {
    let finished = change.is_finished();
    let number = |job: &Value, name: &str| job["status"][name].as_i64().unwrap_or(0);
    let active = number(change.new, "active");
    for name in ["active", "terminating"] {
        let field = status.get(name);
        if (change.flips_finished() || change.changes(name)) && finished && field.int().unwrap_or(0) > 0 {
            field.invalid(format!("{name}>0 is invalid for finished job"), errors);
        }
    }
    let uncounted = status.get("uncountedTerminatedPods");
    let left = uncounted.get("failed").len() + uncounted.get("succeeded").len();
    if (change.flips_finished() || change.changes("uncountedTerminatedPods")) && finished && left > 0 {
        uncounted.invalid("must be empty for finished job", errors);
    }
    if (change.changes("ready") || change.changes("active")) && number(change.new, "ready") > active {
        status.get("ready").invalid("cannot set more ready pods than active", errors);
    }
    let spec = &change.new["spec"];
    // Jobs of as many indexes as run at once can be scaled down, which takes succeeded ones away.
    let scalable = change.is_indexed() && spec["completions"] == spec["parallelism"];
    for (name, may_fall) in [("failed", false), ("succeeded", scalable)] {
        let count = number(change.new, name);
        if !may_fall && count < number(change.old, name) {
            status.get(name).invalid_value(count, format!("cannot decrease the {name} counter"), errors);
        }
    }
}

fn validate_indexes(change: &Change<'_>, status: &Field<'_>, errors: &mut Errors) {
    let (completed, failed) = (status.get("completedIndexes"), status.get("failedIndexes"));
    let (completed_changes, failed_changes) =
        (change.changes("completedIndexes"), change.changes("failedIndexes"));
    let completions = printing::at(change.new, "spec.completions").and_then(Value::as_i64);
    let per_index = printing::at(change.new, "spec.backoffLimitPerIndex").is_some();
    if completed_changes {
        if let Some(Err(fault)) = completions.map(|most| count_indexes(completed.text(), most)) {
            completed.invalid(format!("error parsing completedIndexes: {fault}"), errors);
        }
        if !completed.text().is_empty() && !change.is_indexed() {
            completed
                .invalid("cannot set non-empty completedIndexes when non-indexed completion mode", errors);
        }
    }
    if failed_changes {
        if let Some(Err(fault)) =
            completions.filter(|_| per_index).map(|most| count_indexes(failed.text(), most))
        {
            failed.invalid(format!("error parsing failedIndexes: {fault}"), errors);
        }
        if failed.exists() && !per_index {
            failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null", errors);
        }
    }
    if (completed_changes || failed_changes)
        && let Some(index) = completions.and_then(|most| overlap(completed.text(), failed.text(), most))
    {
        failed.invalid(format!("failedIndexes and completedIndexes overlap at index: {index}"), errors);
    }
}

/// The first index in both lists. What cannot be read is complained about elsewhere.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let parse = |list: &str| -> Vec<(i64, i64)> {
        list.split(',').filter_map(|interval| parse_interval(interval, completions).ok()).collect()
    };
    let (completed, failed) = (parse(completed), parse(failed));
    let mut failed = failed.into_iter().peekable();
    for (first, last) in completed {
        while failed.next_if(|&(_, end)| end < first).is_some() {}
        if let Some(&(start, _)) = failed.peek().filter(|&&(start, _)| start <= last) {
            return Some(first.max(start));
        }
    }
    None
}
