//! Workflow: a graph of functions and jobs, with choices, branches, lists, pauses and people between them.
//!
//! ```text
//! startAt ──> Task a ──next──> Choice b ──first branch whose conditions hold──> Map c ──> (no next: the end)
//!                                                                                └─each──> Task d, for every item
//! ```
//!
//! One flat set of nodes: a branch of a Parallel or the body of a Map is named by its first node, and ends where there is no
//! `next`. What goes in and comes out is picked by JSON Pointers (RFC 6901).

use super::{ApiVersion, KindName, resource, workflow_rules};
use crate::kind::{Kind, column, wide};
use crate::object::{object_mut, set_default};
use crate::{names, printing};
use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Workflow is a graph of functions and jobs, where the output of one is the input of the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.Workflow")]
pub struct Workflow {
    /// APIVersion defines the versioned schema of this representation of an object.
    #[serde(default)]
    pub api_version: ApiVersion<Workflow>,
    /// Kind is a string value representing the REST resource this object represents.
    #[serde(default)]
    pub kind: KindName<Workflow>,
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The graph.
    pub spec: WorkflowSpec,
}

/// The graph, and how its runs are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowSpec")]
pub struct WorkflowSpec {
    /// The name of the first node.
    pub start_at: String,
    /// The input of the first node, unless a run brings its own.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub params: Value,
    /// The nodes, by name.
    pub nodes: BTreeMap<String, WorkflowNode>,
    /// After how many seconds a run that has not ended fails.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeout_seconds: i64,
    /// The service account that runs act as: what it may not call or create, their steps may not. Without it runs act as
    /// `default`, and may call the functions of their namespace besides.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service_account_name: String,
    /// When runs are started by themselves, as a CronJob says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schedule: String,
    /// The time zone of the schedule, such as `Europe/Zurich`; UTC unless it is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub time_zone: String,
    /// How much a run may be.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: WorkflowLimits,
    /// How long runs that have ended are kept.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retention: WorkflowRetention,
}

/// How much a run may be. What is not said has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowLimits")]
pub struct WorkflowLimits {
    /// How many steps a run makes at most.
    #[serde(default, skip_serializing_if = "is_default")]
    pub steps: i32,
    /// How many items a Map takes at most.
    #[serde(default, skip_serializing_if = "is_default")]
    pub items: i32,
    /// The largest value that goes from step to step, as JSON, in bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub value_bytes: i64,
    /// How many runs of the workflow go on at a time; others wait.
    #[serde(default, skip_serializing_if = "is_default")]
    pub parallel_runs: i32,
}

/// How long runs that have ended are kept. What is not said has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowRetention")]
pub struct WorkflowRetention {
    /// How many.
    #[serde(default, skip_serializing_if = "is_default")]
    pub runs: i32,
    /// For how many seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub seconds: i64,
}

/// One node of the graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowNode")]
pub struct WorkflowNode {
    /// `Task` calls a function or runs a job; `Choice` takes one of its branches, `Parallel` all of them, `Map` one for each
    /// item of a list; `Pass` gives a value on; `Wait` lets time pass, `Approval` waits for somebody's word; `Succeed` and
    /// `Fail` end the run, or the branch.
    #[serde(rename = "type", default = "default_node_type")]
    pub node_type: String,
    /// The function that a Task calls. Defaults to the node's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub function: String,
    /// The Job that a Task creates, instead of calling a function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobSpec>,
    /// The node after this one; empty at the end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
    /// What of the value that comes in the node works on: a JSON Pointer. All of it unless it is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input: String,
    /// The same, as an object made up of picks: JSON Pointers by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, String>,
    /// Where in the value that came in the result is put before it is given on: a JSON Pointer. The result takes its place
    /// unless it is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// The branches of a Choice. The first whose conditions all hold is taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<WorkflowChoice>,
    /// The node after a Choice of which no branch fits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub default: String,
    /// The first nodes of a Parallel's branches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<String>,
    /// The list of a Map: a JSON Pointer. The input itself unless it is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub items: String,
    /// The first node of what a Map does with each item.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub each: String,
    /// How many items of a Map are under way at a time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_concurrency: i32,
    /// How many items of a Map may fail; what they give is null.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tolerated_failures: i32,
    /// How many seconds a Wait lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// Until when a Wait lasts: a time (RFC 3339), or a JSON Pointer to one, or to a number of seconds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub until: String,
    /// The class of the error by which a Fail ends.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// What a Fail says, or what an Approval is asked for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What a Pass gives on, instead of its input.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
    /// How many seconds one attempt of a Task, or an Approval, may last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeout_seconds: i64,
    /// Whether a Task that failed is tried again. The first rule for its error counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retry: Vec<WorkflowRetry>,
    /// Where it goes on after an error. The first rule for it counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub catch: Vec<WorkflowCatch>,
}

/// One branch of a Choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowChoice")]
pub struct WorkflowChoice {
    /// What must hold for the branch to be taken. A branch without conditions is always taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<WorkflowCondition>,
    /// The node after the branch; empty at the end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
}

/// One comparison of a part of the input, or a combination of conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowCondition")]
pub struct WorkflowCondition {
    /// The name of a member of the input, or a JSON Pointer into it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variable: String,
    /// How it is compared: `eq`, `ne`, `gt`, `lt`, `ge`, `le`, `matches` (a regular expression) or `exists`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// What it is compared with.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
    /// Conditions that must all hold, instead of a comparison.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<WorkflowCondition>,
    /// Conditions of which one must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub any: Vec<WorkflowCondition>,
    /// A condition that must not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not: Option<Box<WorkflowCondition>>,
}

/// When, and how often, a Task that failed is tried again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowRetry")]
pub struct WorkflowRetry {
    /// The classes of errors; all of them if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// How many attempts are made, the first one counted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempts: i32,
    /// How many seconds pass before the second attempt.
    #[serde(default, skip_serializing_if = "is_default")]
    pub backoff_seconds: f64,
    /// By how much that grows with each further one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub factor: f64,
    /// More seconds than this never pass.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_backoff_seconds: f64,
    /// Whether any part of the pause is taken instead of all of it, so that many do not come back at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub jitter: bool,
}

/// Where a run goes on after an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowCatch")]
pub struct WorkflowCatch {
    /// The classes of errors; all of them if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// The node that goes on.
    pub next: String,
    /// Where in the value that came in the error is put: a JSON Pointer. It takes its place, and has it as `input`, unless it is
    /// said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub result: String,
}

impl WorkflowSpec {
    /// Fills in what was left out.
    pub fn with_defaults(&self) -> WorkflowSpec {
        let mut object = serde_json::json!({ "spec": self });
        default(&mut object);
        serde_json::from_value(object["spec"].take()).unwrap_or_else(|_| self.clone())
    }
}

/// What is not said is left out, and so defaulted.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn default_node_type() -> String {
    "Task".into()
}

resource!(Workflow, "workflows");

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Start", "string", |workflow, _| workflow["spec"]["startAt"].clone()),
            column("Nodes", "integer", |workflow, _| {
                workflow["spec"]["nodes"].as_object().map_or(0, |nodes| nodes.len()).into()
            }),
            printing::age_column(),
            wide("Schedule", "string", |workflow, _| {
                workflow["spec"]["schedule"].as_str().unwrap_or_default().into()
            }),
        ],
        // Its runs' names begin with it.
        validate_name: names::dns_subdomain_name,
        default,
        validate: workflow_rules::validate,
        ..Kind::new::<Workflow>()
            .short(&["wf"])
            .with_subresource("run", ("", "", "Workflow"), &["create"])
            .with_generation()
    }
}

/// Limits that were left out, and what they then are.
const LIMITS: [(&str, i64); 4] =
    [("steps", 10_000), ("items", 1_000), ("valueBytes", 1 << 20), ("parallelRuns", 1_000)];
/// As [`LIMITS`], of what is kept.
const RETENTION: [(&str, i64); 2] = [("runs", 100), ("seconds", 7 * 24 * 3600)];

fn default(workflow: &mut Value) {
    let spec = object_mut(workflow, "spec");
    for (name, defaults) in [("limits", &LIMITS[..]), ("retention", &RETENTION[..])] {
        let given = spec.entry(name).or_insert_with(|| serde_json::json!({}));
        defaults.iter().for_each(|(field, value)| set_default(given, field, *value));
    }
    let Some(nodes) = workflow.pointer_mut("/spec/nodes").and_then(Value::as_object_mut) else { return };
    for (name, node) in nodes {
        set_default(node, "type", default_node_type());
        match node["type"].as_str() {
            Some("Task") if node["job"].is_null() => set_default(node, "function", name.as_str()),
            Some("Map") => set_default(node, "maxConcurrency", 10),
            Some("Fail") => set_default(node, "error", "Failed"),
            _ => {}
        }
        for retry in node.get_mut("retry").and_then(Value::as_array_mut).into_iter().flatten() {
            set_default(retry, "attempts", 3);
            set_default(retry, "backoffSeconds", 1.0);
            set_default(retry, "factor", 2.0);
            set_default(retry, "maxBackoffSeconds", 60.0);
        }
        for choice in node.get_mut("choices").and_then(Value::as_array_mut).into_iter().flatten() {
            for condition in choice.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten()
            {
                default_condition(condition);
            }
        }
    }
}

fn default_condition(condition: &mut Value) {
    if condition.get("variable").is_some() {
        set_default(condition, "operator", "eq");
    }
    for list in ["all", "any"] {
        let inner = condition.get_mut(list).and_then(Value::as_array_mut);
        inner.into_iter().flatten().for_each(default_condition);
    }
    if let Some(inner) = condition.get_mut("not") {
        default_condition(inner);
    }
}
