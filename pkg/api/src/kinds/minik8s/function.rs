//! Function: code that is called with JSON and answers with JSON, and runs only while it is called.

use super::{ApiVersion, KindName, resource};
use crate::field::{Errors, Field};
use crate::kind::{Kind, column, wide};
use crate::object::{object_mut, set_default};
use crate::{names, printing};
use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Function is code that is called over HTTP. Its pods come with the calls and go when there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.Function")]
pub struct Function {
    /// APIVersion defines the versioned schema of this representation of an object.
    #[serde(default)]
    pub api_version: ApiVersion<Function>,
    /// Kind is a string value representing the REST resource this object represents.
    #[serde(default)]
    pub kind: KindName<Function>,
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// What is run, and how.
    pub spec: FunctionSpec,
    /// What runs now.
    #[serde(default)]
    pub status: FunctionStatus,
}

/// What is run, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionSpec")]
pub struct FunctionSpec {
    /// The language: `python`, unless an image brings another.
    #[serde(default = "default_runtime")]
    pub runtime: String,
    /// The source.
    pub code: String,
    /// The function in the source that is called with the parameters.
    #[serde(default = "default_handler")]
    pub handler: String,
    /// An image to run the code in, instead of the runtime's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Environment variables of the code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"],
        "x-kubernetes-patch-merge-key" = "name", "x-kubernetes-patch-strategy" = "merge"))]
    pub env: Vec<EnvVar>,
    /// What one replica may use.
    #[serde(default)]
    pub resources: ResourceRequirements,
    /// How many replicas run even when nobody calls.
    #[serde(default)]
    pub min_replicas: i32,
    /// How many replicas run at most. At least `minReplicas`.
    #[serde(default = "default_max_replicas")]
    pub max_replicas: i32,
    /// How many calls one replica takes at a time.
    #[serde(default = "default_concurrency")]
    pub concurrency: i32,
    /// After how many seconds without a call a replica goes.
    #[serde(default = "default_idle_seconds")]
    pub idle_seconds: i32,
    /// After how many seconds a call that has not been answered is given up.
    #[serde(default = "default_timeout_seconds")]
    pub timeout_seconds: i32,
}

fn default_runtime() -> String {
    "python".into()
}

fn default_handler() -> String {
    "main".into()
}

fn default_max_replicas() -> i32 {
    10
}

fn default_concurrency() -> i32 {
    1
}

fn default_idle_seconds() -> i32 {
    30
}

fn default_timeout_seconds() -> i32 {
    60
}

impl Default for FunctionSpec {
    fn default() -> Self {
        FunctionSpec {
            runtime: default_runtime(),
            code: String::new(),
            handler: default_handler(),
            image: String::new(),
            env: Vec::new(),
            resources: ResourceRequirements::default(),
            min_replicas: 0,
            max_replicas: default_max_replicas(),
            concurrency: default_concurrency(),
            idle_seconds: default_idle_seconds(),
            timeout_seconds: default_timeout_seconds(),
        }
    }
}

/// What runs now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionStatus")]
pub struct FunctionStatus {
    /// The generation this status is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// How many replicas there are.
    #[serde(default)]
    pub replicas: i32,
    /// How many of them take calls.
    #[serde(default)]
    pub ready_replicas: i32,
    /// `Pending` until it can be called, then `Ready`; `Failed` when the code cannot run.
    #[serde(default)]
    pub phase: String,
    /// Where it is called.
    #[serde(default)]
    pub url: String,
    /// What else there is to say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"],
        "x-kubernetes-patch-merge-key" = "type", "x-kubernetes-patch-strategy" = "merge"))]
    pub conditions: Vec<Condition>,
}

resource!(Function, "functions");

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("Runtime", "string", |function, _| function["spec"]["runtime"].clone()),
            column("Replicas", "integer", |function, _| {
                function["status"]["replicas"].as_i64().unwrap_or(0).into()
            }),
            column("Status", "string", |function, _| phase_cell(function)),
            printing::age_column(),
            wide("Handler", "string", |function, _| function["spec"]["handler"].clone()),
            wide("URL", "string", |function, _| {
                function["status"]["url"].as_str().unwrap_or_default().into()
            }),
        ],
        validate_name: names::dns_label_name,
        default,
        validate,
        ..Kind::new::<Function>().short(&["func", "fn"]).with_status().with_generation()
    }
}

/// Code longer than this belongs into an image: an object has to fit the store.
const MOST_CODE_BYTES: usize = 1 << 20;

fn default(function: &mut Value) {
    object_mut(function, "spec");
    let spec = &mut function["spec"];
    set_default(spec, "runtime", default_runtime());
    set_default(spec, "handler", default_handler());
    set_default(spec, "minReplicas", 0);
    let min = spec["minReplicas"].as_i64().unwrap_or(0);
    set_default(spec, "maxReplicas", min.max(default_max_replicas().into()));
    set_default(spec, "concurrency", default_concurrency());
    set_default(spec, "idleSeconds", default_idle_seconds());
    set_default(spec, "timeoutSeconds", default_timeout_seconds());
}

fn validate(function: &Field<'_>, errors: &mut Errors) {
    let spec = function.get("spec");
    let code = spec.get("code");
    if code.required(errors) && code.text().len() > MOST_CODE_BYTES {
        code.too_long(MOST_CODE_BYTES, errors);
    }
    let runtime = spec.get("runtime");
    if runtime.required(errors) && spec.get("image").text().is_empty() {
        runtime.one_of(&["python"], errors);
    }
    let handler = spec.get("handler");
    if handler.required(errors) && !is_identifier(handler.text()) {
        handler.invalid(
            "must be the name of a function: letters, digits and '_', not starting with a digit",
            errors,
        );
    }
    let (min, max) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    min.non_negative(errors);
    max.in_range(1..=1000, errors);
    if max.int() < min.int() {
        max.invalid("must be greater than or equal to `minReplicas`", errors);
    }
    spec.get("concurrency").in_range(1..=10_000, errors);
    spec.get("idleSeconds").in_range(1..=86_400, errors);
    spec.get("timeoutSeconds").in_range(1..=86_400, errors);
    let env = spec.get("env");
    for variable in env.items() {
        variable.get("name").required(errors);
    }
}

fn is_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn phase_cell(function: &Value) -> Value {
    function["status"]["phase"].as_str().filter(|phase| !phase.is_empty()).unwrap_or("Pending").into()
}
