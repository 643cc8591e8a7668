//! WorkflowRun: one walk through a workflow, with what came of it.

use super::{ApiVersion, KindName, resource};
use crate::field::{Errors, Field};
use crate::kind::{Kind, column, wide};
use crate::{names, printing};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
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
}

/// What came of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowRunStatus")]
pub struct WorkflowRunStatus {
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    #[serde(default)]
    pub phase: String,
    /// The nodes walked so far, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<WorkflowStep>,
    /// The output of the last node, once the run has succeeded.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub output: Value,
    /// Why the run failed; names the node and the value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// When the first node was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub start_time: Option<Time>,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub completion_time: Option<Time>,
}

/// One node that a run came through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowStep")]
pub struct WorkflowStep {
    /// The node's name.
    pub node: String,
    /// `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// What the node was given.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input: Value,
    /// What it gave on.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub output: Value,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub completion_time: Option<Time>,
}

resource!(WorkflowRun, "workflowruns");

/// The states of a run.
const PHASES: [&str; 4] = ["Pending", "Running", "Succeeded", "Failed"];

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Workflow", "string", |run, _| run["spec"]["workflow"].clone()),
            column("Status", "string", |run, _| run["status"]["phase"].as_str().unwrap_or("Pending").into()),
            column("Steps", "integer", |run, _| run["status"]["steps"].as_array().map_or(0, Vec::len).into()),
            printing::age_column(),
            wide("Output", "string", |run, _| json_cell(&run["status"]["output"])),
            wide("Error", "string", |run, _| run["status"]["error"].as_str().unwrap_or_default().into()),
        ],
        validate_name: names::dns_subdomain_name,
        validate,
        validate_update: |new, old, errors| {
            new.get("spec").immutable(&old.get("spec"), errors);
        },
        validate_status,
        ..Kind::new::<WorkflowRun>()
            .short(&["wfr"])
            .with_status()
            .with_generation()
            .selectable(&["spec.workflow", "status.phase"])
    }
}

fn validate(run: &Field<'_>, errors: &mut Errors) {
    let spec = run.get("spec");
    let workflow = spec.get("workflow");
    if workflow.required(errors) {
        workflow.conforms(names::is_dns1123_subdomain, errors);
    }
}

/// A run that has ended stays ended.
fn validate_status(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    let (phase, phase_before) = (status.get("phase"), before.get("phase"));
    phase.one_of(&PHASES, errors);
    if matches!(phase_before.text(), "Succeeded" | "Failed") {
        phase.immutable(&phase_before, errors);
    }
}

fn json_cell(value: &Value) -> Value {
    if value.is_null() { "".into() } else { value.to_string().into() }
}
