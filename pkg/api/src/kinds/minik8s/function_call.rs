//! FunctionCall: a call of a function that was promised for later, and what came of it.

use super::{ApiVersion, KindName, resource};
use crate::field::{Errors, Field};
use crate::kind::{Kind, column, wide};
use crate::{names, printing};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// FunctionCall is a call of a Function that nobody waits for. It is made as soon as it can be, again if it fails, and says
/// for a while what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionCall")]
pub struct FunctionCall {
    /// APIVersion defines the versioned schema of this representation of an object.
    #[serde(default)]
    pub api_version: ApiVersion<FunctionCall>,
    /// Kind is a string value representing the REST resource this object represents.
    #[serde(default)]
    pub kind: KindName<FunctionCall>,
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// What is called.
    pub spec: FunctionCallSpec,
    /// What came of it so far.
    #[serde(default)]
    pub status: FunctionCallStatus,
}

/// What is called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionCallSpec")]
pub struct FunctionCallSpec {
    /// The name of a Function in the same namespace.
    pub function: String,
    /// Its parameters, as JSON.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub params: String,
    /// What else goes with it, such as `traceparent` and what a CloudEvent says of itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Who asked for it: a user, `schedule`, or the object that changed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
}

/// What came of a call so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionCallStatus")]
pub struct FunctionCallStatus {
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// How often it was made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: i32,
    /// What the function answered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// Why the last attempt failed, in a word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// It is not made again before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub next_attempt_time: Option<Time>,
    /// When it was made first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub completion_time: Option<Time>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

resource!(FunctionCall, "functioncalls");

/// The states of a call.
const PHASES: [&str; 4] = ["Pending", "Running", "Succeeded", "Failed"];
/// A cell of a table is no longer than this.
const LONGEST_CELL: usize = 60;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Function", "string", |call, _| call["spec"]["function"].clone()),
            column("Status", "string", |call, _| {
                call["status"]["phase"].as_str().unwrap_or("Pending").into()
            }),
            column("Attempts", "integer", |call, _| call["status"]["attempts"].as_i64().unwrap_or(0).into()),
            column("Result", "string", |call, _| cell(result(call))),
            printing::age_column(),
            wide("Cause", "string", |call, _| call["spec"]["cause"].as_str().unwrap_or_default().into()),
        ],
        validate_name: names::dns_subdomain_name,
        validate,
        validate_update: |new, old, errors| {
            new.get("spec").immutable(&old.get("spec"), errors);
        },
        validate_status,
        ..Kind::new::<FunctionCall>()
            .short(&["fcall"])
            .with_status()
            .with_generation()
            .selectable(&["spec.function", "status.phase"])
    }
}

fn validate(call: &Field<'_>, errors: &mut Errors) {
    let spec = call.get("spec");
    let function = spec.get("function");
    if function.required(errors) {
        function.conforms(names::is_dns1123_label, errors);
    }
}

/// A call that has ended stays ended.
fn validate_status(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    let (phase, phase_before) = (status.get("phase"), before.get("phase"));
    phase.one_of(&PHASES, errors);
    if matches!(phase_before.text(), "Succeeded" | "Failed") {
        phase.immutable(&phase_before, errors);
    }
}

fn result(call: &Value) -> &str {
    let status = &call["status"];
    let said = if status["phase"] == "Succeeded" { &status["result"] } else { &status["message"] };
    said.as_str().unwrap_or_default()
}

fn cell(text: &str) -> Value {
    let line = text.lines().next().unwrap_or_default();
    match line.chars().count() > LONGEST_CELL {
        true => format!("{}…", line.chars().take(LONGEST_CELL).collect::<String>()).into(),
        false => line.into(),
    }
}
