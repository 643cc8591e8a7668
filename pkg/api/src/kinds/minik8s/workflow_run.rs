//! WorkflowRun: one walk through a workflow, with what came of it.
//!
//! ```text
//! spec: workflow, params        suspend, cancel, redrive: what people want of it
//! status: phase, nodes ── threads: where it is now ── steps: the last ones that ended ── graph: what it walks through
//! ```
//!
//! The status is all that the engine knows of a run. It stays small: every step that has ended becomes a WorkflowStep, and a
//! value that is not small a WorkflowValue, which is named here.

use super::workflow::is_default;
use super::workflow_rules::validate_params;
use super::{ApiVersion, KindName, WorkflowSpec, WorkflowStepSpec, resource};
use crate::field::{Errors, Field};
use crate::kind::{Kind, column, wide};
use crate::{names, printing};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// WorkflowRun is one run of a Workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowRun")]
pub struct WorkflowRun {
    /// APIVersion defines the versioned schema of this representation of an object.
    #[serde(default)]
    pub api_version: ApiVersion<WorkflowRun>,
    /// Kind is a string value representing the REST resource this object represents.
    #[serde(default)]
    pub kind: KindName<WorkflowRun>,
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// What is run.
    pub spec: WorkflowRunSpec,
    /// What came of it so far.
    #[serde(default)]
    pub status: WorkflowRunStatus,
}

/// What is run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowRunSpec")]
pub struct WorkflowRunSpec {
    /// The name of a Workflow in the same namespace.
    pub workflow: String,
    /// The input of its first node. Defaults to the workflow's own.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub params: Value,
    /// Whether no further step begins. What is under way goes on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspend: bool,
    /// Whether the run is to end now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cancel: bool,
    /// How often the run is to go on after it has failed: one more than before lets it begin again where it failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub redrive: i32,
}

/// What came of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowRunStatus")]
pub struct WorkflowRunStatus {
    /// `Pending`, `Running`, `Suspended`, `Succeeded`, `Failed` or `Cancelled`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The nodes where the run is now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Why the run failed: the class of the error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why the run failed; names the node and the value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The output of the last node, once the run has succeeded.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub output: Value,
    /// The WorkflowValue that has it, if it is not small.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output_ref: String,
    /// When the first node was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MicroTime")]
    pub start_time: Option<MicroTime>,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MicroTime")]
    pub completion_time: Option<MicroTime>,
    /// When the run fails if it has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MicroTime")]
    pub deadline: Option<MicroTime>,
    /// How many steps have begun.
    #[serde(default, skip_serializing_if = "is_default")]
    pub step_count: i32,
    /// How many steps had begun when all that had ended had a WorkflowStep each: set when the run has ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recorded: i32,
    /// How often the run has gone on after it had failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub redrives: i32,
    /// The last steps that ended, in the order of their ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<WorkflowStepSpec>,
    /// Where the run is now: the main thread, and one for each branch and item.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<WorkflowThread>,
    /// The graph that the run walks through, whatever became of its Workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<WorkflowSpec>,
}

/// One place where a run is: in the main thread, a branch of a Parallel or an item of a Map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowThread")]
pub struct WorkflowThread {
    /// Which.
    pub id: i32,
    /// The thread that waits for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<i32>,
    /// Which branch or item of its parent it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub index: i32,
    /// The node it is at.
    pub node: String,
    /// The number of the step that it makes there; 0 before it has begun.
    #[serde(default, skip_serializing_if = "is_default")]
    pub step: i32,
    /// Which attempt.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt: i32,
    /// `Held`, `Running`, `Retrying`, `Waiting`, `Approving`, `Joining`, `Failed` or `Stopped`.
    pub state: String,
    /// When the step began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MicroTime")]
    pub since: Option<MicroTime>,
    /// When something is to be done although nothing happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MicroTime")]
    pub until: Option<MicroTime>,
    /// The value that came in.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input: Value,
    /// The WorkflowValue that has it, if it is not small.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input_ref: String,
    /// Why attempts failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// How many attempts were made again because of a `retry`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: i32,
    /// Whether a pod was started for the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_cold: Option<bool>,
    /// Who approved or refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// What it waits for, at a Parallel or a Map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<WorkflowJoin>,
}

/// What a Parallel or a Map waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowJoin")]
pub struct WorkflowJoin {
    /// How many branches or items there are.
    pub count: i32,
    /// How many have begun.
    #[serde(default, skip_serializing_if = "is_default")]
    pub begun: i32,
    /// How many items failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: i32,
    /// For each that has ended, which it was, and the step whose output is its own; 0 if it failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<[i32; 2]>,
    /// What came of those, by the number of the step: known while the run is worked on, and otherwise in the steps' records.
    #[serde(skip)]
    pub outputs: std::collections::BTreeMap<i32, Value>,
}

resource!(WorkflowRun, "workflowruns");

/// The longest name of a run.
const LONGEST_NAME: usize = 200;
/// The states of a run.
pub const PHASES: [&str; 6] = ["Pending", "Running", "Suspended", "Succeeded", "Failed", "Cancelled"];
/// Those in which it has ended.
pub const ENDED: [&str; 3] = ["Succeeded", "Failed", "Cancelled"];

impl WorkflowRunStatus {
    /// Whether the run has ended.
    pub fn has_ended(&self) -> bool {
        ENDED.contains(&self.phase.as_str())
    }
}

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Workflow", "string", |run, _| run["spec"]["workflow"].clone()),
            column("Status", "string", |run, _| run["status"]["phase"].as_str().unwrap_or("Pending").into()),
            column("Node", "string", |run, _| node_cell(&run["status"]["nodes"])),
            column("Steps", "integer", |run, _| run["status"]["stepCount"].as_i64().unwrap_or(0).into()),
            printing::age_column(),
            wide("Output", "string", |run, _| json_cell(&run["status"]["output"])),
            wide("Error", "string", |run, _| run["status"]["error"].as_str().unwrap_or_default().into()),
        ],
        validate_name: run_name,
        validate,
        validate_update: |new, old, errors| {
            let (new, old) = (new.get("spec"), old.get("spec"));
            for field in ["workflow", "params"] {
                new.get(field).immutable(&old.get(field), errors);
            }
            let (more, before) =
                (new.get("redrive").int().unwrap_or(0), old.get("redrive").int().unwrap_or(0));
            if old.get("cancel").bool() && !new.get("cancel").bool() && more <= before {
                new.get("cancel").invalid("a run that was cancelled stays so, unless it is redriven", errors);
            }
            if more < before {
                new.get("redrive").invalid("may not become less", errors);
            }
        },
        validate_status,
        ..Kind::new::<WorkflowRun>()
            .short(&["wfr"])
            .with_status()
            .with_subresource("approve", ("", "", "WorkflowRun"), &["create"])
            .with_generation()
            .selectable(&["spec.workflow", "status.phase"])
    }
}

/// Its steps' and values' names begin with it.
fn run_name(name: &str) -> Result<(), String> {
    match name.len() > LONGEST_NAME {
        true => Err(format!("must be no more than {LONGEST_NAME} bytes")),
        false => names::dns_subdomain_name(name),
    }
}

fn validate(run: &Field<'_>, errors: &mut Errors) {
    let spec = run.get("spec");
    let workflow = spec.get("workflow");
    if workflow.required(errors) {
        workflow.conforms(names::is_dns1123_subdomain, errors);
    }
    validate_params(&spec.get("params"), errors);
    spec.get("redrive").non_negative(errors);
}

/// A run that has ended stays ended, unless it goes on where it failed.
fn validate_status(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    let (phase, phase_before) = (status.get("phase"), before.get("phase"));
    phase.one_of(&PHASES, errors);
    let goes_on = status.get("redrives").int().unwrap_or(0) > before.get("redrives").int().unwrap_or(0);
    if ENDED.contains(&phase_before.text()) && !(goes_on && phase_before.text() != "Succeeded") {
        phase.immutable(&phase_before, errors);
    }
}

/// The nodes where a run is, as far as there is room.
fn node_cell(nodes: &Value) -> Value {
    let nodes: Vec<&str> = nodes.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match nodes.as_slice() {
        [] => "".into(),
        [one] => (*one).into(),
        [first, rest @ ..] => format!("{first} + {} more", rest.len()).into(),
    }
}

fn json_cell(value: &Value) -> Value {
    if value.is_null() { "".into() } else { value.to_string().into() }
}
