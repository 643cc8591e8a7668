//! Workflow: functions called one after the other, with choices between them.
//!
//! ```text
//! startAt ──> Task a ──next──> Choice b ──first branch whose conditions hold──> Task c ──> (no next: the end)
//! ```

use super::{ApiVersion, KindName, resource};
use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::object::set_default;
use crate::{names, printing};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Workflow is a graph of functions, where the output of one is the input of the next.
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

/// The graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowSpec")]
pub struct WorkflowSpec {
    /// The name of the first node.
    pub start_at: String,
    /// The input of the first node, unless a run brings its own.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub params: Value,
    /// The nodes by name.
    pub nodes: BTreeMap<String, WorkflowNode>,
}

/// One node of the graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowNode")]
pub struct WorkflowNode {
    /// `Task` calls a function; `Choice` takes one of its branches.
    #[serde(rename = "type", default = "default_node_type")]
    pub node_type: String,
    /// The function that a Task calls. Defaults to the node's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub function: String,
    /// The node after a Task; empty at the end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
    /// The branches of a Choice. The first whose conditions all hold is taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<WorkflowChoice>,
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

/// One comparison of a member of the input.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.WorkflowCondition")]
pub struct WorkflowCondition {
    /// The name of a member of the input.
    pub variable: String,
    /// How it is compared: `eq`, `ne`, `gt`, `lt`, `ge` or `le`.
    #[serde(default = "default_operator")]
    pub operator: String,
    /// What it is compared with.
    pub value: Value,
}

fn default_node_type() -> String {
    "Task".into()
}

fn default_operator() -> String {
    "eq".into()
}

resource!(Workflow, "workflows");

/// The comparisons there are.
pub const OPERATORS: [&str; 6] = ["eq", "ne", "gt", "lt", "ge", "le"];

/// More nodes than this are no workflow for people.
const MOST_NODES: usize = 1000;

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
        ],
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        ..Kind::new::<Workflow>().short(&["wf"]).with_generation()
    }
}

fn default(workflow: &mut Value) {
    let Some(nodes) = workflow.pointer_mut("/spec/nodes").and_then(Value::as_object_mut) else { return };
    for (name, node) in nodes {
        set_default(node, "type", default_node_type());
        if node["type"] == "Task" {
            set_default(node, "function", name.as_str());
        }
        for choice in node.get_mut("choices").and_then(Value::as_array_mut).into_iter().flatten() {
            for condition in choice.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten()
            {
                set_default(condition, "operator", default_operator());
            }
        }
    }
}

fn validate(workflow: &Field<'_>, errors: &mut Errors) {
    let spec = workflow.get("spec");
    let nodes = spec.get("nodes");
    if nodes.required(errors) && nodes.len() > MOST_NODES {
        nodes.too_many(MOST_NODES, errors);
        return;
    }
    let start = spec.get("startAt");
    if start.required(errors) {
        leads_to_a_node(&start, &nodes, errors);
    }
    for (_, node) in nodes.entries() {
        validate_node(&node, &nodes, errors);
    }
}

fn validate_node(node: &Field<'_>, nodes: &Field<'_>, errors: &mut Errors) {
    let (node_type, function) = (node.get("type"), node.get("function"));
    let (next, choices) = (node.get("next"), node.get("choices"));
    node_type.one_of(&["Task", "Choice"], errors);
    if node_type.text() == "Choice" {
        if !function.text().is_empty() {
            function.forbidden("only a node of type 'Task' calls a function", errors);
        }
        if !next.text().is_empty() {
            next.forbidden("a node of type 'Choice' goes on with the `next` of one of its `choices`", errors);
        }
        choices.required(errors);
    } else {
        if function.required(errors) {
            function.conforms(names::is_dns1123_label, errors);
        }
        if !choices.is_empty() {
            choices.forbidden("only a node of type 'Choice' has choices", errors);
        }
        leads_to_a_node(&next, nodes, errors);
    }
    for choice in choices.items() {
        leads_to_a_node(&choice.get("next"), nodes, errors);
        for condition in choice.get("conditions").items() {
            condition.get("variable").required(errors);
            condition.get("operator").one_of(&OPERATORS, errors);
            let value = condition.get("value");
            if !value.exists() {
                value.complain(Reason::Required, "", errors);
            }
        }
    }
}

/// Complains if a name is given and no node has it.
fn leads_to_a_node(name: &Field<'_>, nodes: &Field<'_>, errors: &mut Errors) {
    if !name.text().is_empty() && !nodes.object().is_some_and(|nodes| nodes.contains_key(name.text())) {
        name.complain(Reason::NotFound, "", errors);
    }
}
