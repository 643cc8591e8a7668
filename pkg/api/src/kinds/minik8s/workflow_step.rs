//! WorkflowStep and WorkflowValue: what a run leaves behind, so that the run itself stays small. Both belong to their run,
//! go with it, and never change.

use super::workflow::is_default;
use super::{ApiVersion, KindName, resource};
use crate::kind::{Kind, column, wide};
use crate::{names, printing};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The label by which steps, values and jobs name their run.
pub const RUN_LABEL: &str = "minik8s.io/workflow-run";

/// WorkflowStep is one step that a WorkflowRun has made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowStep")]
pub struct WorkflowStep {
    /// APIVersion defines the versioned schema of this representation of an object.
    #[serde(default)]
    pub api_version: ApiVersion<WorkflowStep>,
    /// Kind is a string value representing the REST resource this object represents.
    #[serde(default)]
    pub kind: KindName<WorkflowStep>,
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// What was done.
    pub spec: WorkflowStepSpec,
}

/// What was done at one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowStepSpec")]
pub struct WorkflowStepSpec {
    /// Which step of the run, from 1.
    pub number: i32,
    /// The node's name.
    pub node: String,
    /// The node's type.
    #[serde(rename = "type")]
    pub node_type: String,
    /// In which branches and items: `2/0` is the first branch of the third item.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// `Succeeded`, `Failed`, `Caught` (failed, and it goes on elsewhere) or `Cancelled`.
    pub phase: String,
    /// How many attempts there were.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempts: i32,
    /// What the node was given.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input: Value,
    /// The WorkflowValue that has it, if it is not small.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input_ref: String,
    /// What it gave on.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub output: Value,
    /// The WorkflowValue that has it, if it is not small.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output_ref: String,
    /// The class of its error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Why attempts failed, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// The next node, if it was chosen.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub chose: String,
    /// Who approved or refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Whether a pod was started for it, if it called a function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_cold: Option<bool>,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MicroTime")]
    pub start_time: Option<MicroTime>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MicroTime")]
    pub completion_time: Option<MicroTime>,
}

/// WorkflowValue is a value of a WorkflowRun that is too large to stand in the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowValue")]
pub struct WorkflowValue {
    /// APIVersion defines the versioned schema of this representation of an object.
    #[serde(default)]
    pub api_version: ApiVersion<WorkflowValue>,
    /// Kind is a string value representing the REST resource this object represents.
    #[serde(default)]
    pub kind: KindName<WorkflowValue>,
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// What it is.
    pub spec: WorkflowValueSpec,
}

/// A value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowValueSpec")]
pub struct WorkflowValueSpec {
    /// As JSON.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

resource!(WorkflowStep, "workflowsteps");
resource!(WorkflowValue, "workflowvalues");

/// The kind WorkflowStep.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Node", "string", |step, _| step["spec"]["node"].clone()),
            column("Type", "string", |step, _| step["spec"]["type"].clone()),
            column("Status", "string", |step, _| step["spec"]["phase"].clone()),
            column("Attempts", "integer", |step, _| step["spec"]["attempts"].as_i64().unwrap_or(1).into()),
            printing::age_column(),
            wide("Error", "string", |step, _| step["spec"]["error"].as_str().unwrap_or_default().into()),
        ],
        validate_name: names::dns_subdomain_name,
        validate: |step, errors| {
            for name in ["node", "type", "phase"] {
                step.get("spec").get(name).required(errors);
            }
        },
        validate_update: |new, old, errors| new.get("spec").immutable(&old.get("spec"), errors),
        ..Kind::new::<WorkflowStep>().short(&["wfs"])
    }
}

/// The kind WorkflowValue.
pub fn value_kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Bytes", "integer", |value, _| value["spec"]["value"].to_string().len().into()),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        validate_update: |new, old, errors| new.get("spec").immutable(&old.get("spec"), errors),
        ..Kind::new::<WorkflowValue>()
    }
}
