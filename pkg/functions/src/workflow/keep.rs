//! How a run's status stays small: values that are not small become WorkflowValues, named by what they are, and steps whose
//! record is written are forgotten but for the last ones.
//!
//! A value's name follows from its content, so that whoever writes it first, it is the same; a run only names it after it is
//! written.

use api::kinds::minik8s::{WorkflowRunStatus, WorkflowStepSpec};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

/// Values up to this stand in the run itself.
const SMALL: usize = 1024;
/// And up to this, where a run has become too large all the same.
const TINY: usize = 48;
/// No status is larger than this, so that the run with its parameters stays below 256 KiB.
pub const MOST_STATUS_BYTES: usize = 180 << 10;
/// So many steps that have a record are shown in the run.
const LAST_STEPS: usize = 8;

/// Takes values that are not small out of a status that is to be stored. What is to be stored before it, by name.
pub fn spill(run: &str, status: &mut WorkflowRunStatus) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    spill_above(SMALL, run, status, &mut values);
    if length(status) > MOST_STATUS_BYTES {
        spill_above(TINY, run, status, &mut values);
    }
    values
}

/// How large a status is.
pub fn length(status: &WorkflowRunStatus) -> usize {
    serde_json::to_vec(status).map_or(0, |bytes| bytes.len())
}

/// Forgets steps that have a record, but for the last ones.
pub fn trim(status: &mut WorkflowRunStatus, recorded: &HashSet<i32>) {
    let mut surplus = status.steps.iter().filter(|step| recorded.contains(&step.number)).count();
    status.steps.retain(|step: &WorkflowStepSpec| {
        let goes = surplus > LAST_STEPS && recorded.contains(&step.number);
        surplus -= usize::from(goes);
        !goes
    });
}

/// Puts values back in the place of their names, as far as the engine needs them. `value` finds a WorkflowValue, `output` what
/// came of a step.
pub fn fill(
    status: &mut WorkflowRunStatus,
    value: impl Fn(&str) -> Option<Value>,
    output: impl Fn(i32) -> Option<Value>,
) {
    for thread in &mut status.threads {
        if !thread.input_ref.is_empty() && thread.input.is_null() {
            thread.input = value(&thread.input_ref).unwrap_or_default();
        }
        if let Some(join) = &mut thread.join {
            let steps = join.ended.iter().map(|[_, step]| *step).filter(|step| *step > 0);
            join.outputs = steps.filter_map(|step| Some((step, output(step)?))).collect();
        }
    }
}

fn spill_above(most: usize, run: &str, status: &mut WorkflowRunStatus, values: &mut BTreeMap<String, Value>) {
    let mut slot = |value: &mut Value, name: &mut String| {
        let text = match *value {
            Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
            ref other => other.to_string(),
        };
        if text.len() > most {
            *name = value_name(run, &text);
            values.insert(name.clone(), value.take());
        } else if !value.is_null() {
            name.clear();
        }
    };
    for thread in &mut status.threads {
        slot(&mut thread.input, &mut thread.input_ref);
    }
    for step in &mut status.steps {
        slot(&mut step.input, &mut step.input_ref);
        slot(&mut step.output, &mut step.output_ref);
    }
    slot(&mut status.output, &mut status.output_ref);
}

fn value_name(run: &str, text: &str) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let mut name = format!("{run}-");
    hash.as_ref()[..10].iter().for_each(|byte| {
        let _ = write!(name, "{byte:02x}");
    });
    name
}
