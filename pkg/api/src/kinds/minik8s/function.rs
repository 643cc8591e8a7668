//! Function: code that is called with JSON and answers with JSON, and runs only while it is called.

use super::{ApiVersion, KindName, resource};
use crate::field::{Errors, Field};
use crate::kind::{Kind, column, wide};
use crate::object::{object_mut, set_default};
use crate::{names, printing};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionSpec")]
pub struct FunctionSpec {
    /// What runs the code, such as `python` or `nodejs`. None with an image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub runtime: String,
    /// The source, where it is one file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The source, where it is several files: what is in them, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The function in the source that is called with the parameters; `module.function` if it is not in the main file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub handler: String,
    /// An image that serves HTTP, instead of a source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The port that the image serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// What else its pods are: merged into them. The code's container is called `function`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplateSpec>,
    /// How many replicas run even when nobody calls.
    #[serde(default)]
    pub min_replicas: i32,
    /// How many replicas run at most; as many as help, unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// How many calls one replica takes at a time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub concurrency: i32,
    /// After how many seconds without a call a replica goes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub idle_seconds: i32,
    /// After how many seconds a call that has not been answered is given up.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeout_seconds: i32,
    /// How much may come in, wait and go out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: FunctionLimits,
    /// Whether everybody inside of the cluster may call it, without a credential.
    #[serde(default, skip_serializing_if = "is_default")]
    pub public: bool,
}

/// How much of calls may come in, wait and go out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionLimits")]
pub struct FunctionLimits {
    /// The largest body of a call, in bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub request_bytes: i64,
    /// The largest answer, in bytes. Streams of images are not limited.
    #[serde(default, skip_serializing_if = "is_default")]
    pub response_bytes: i64,
    /// How many calls wait at most while all replicas are busy or start.
    #[serde(default, skip_serializing_if = "is_default")]
    pub queue_length: i32,
    /// How many seconds a call waits at most.
    #[serde(default, skip_serializing_if = "is_default")]
    pub queue_seconds: i32,
}

/// What is not said is left out, and so defaulted.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Fields that were left out, and what they then are.
const DEFAULTS: [(&str, i32); 4] =
    [("minReplicas", 0), ("concurrency", 1), ("idleSeconds", 30), ("timeoutSeconds", 60)];
/// As [`DEFAULTS`], of the limits.
const LIMITS: [(&str, i32); 4] =
    [("requestBytes", 6 << 20), ("responseBytes", 6 << 20), ("queueLength", 10_000), ("queueSeconds", 60)];

/// What runs now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionStatus")]
pub struct FunctionStatus {
    /// The generation this status is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// Which source runs: it changes with whatever needs other pods.
    #[serde(default)]
    pub revision: String,
    /// How many replicas there are.
    #[serde(default)]
    pub replicas: i32,
    /// How many of them take calls.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Where it is called, inside of the cluster.
    #[serde(default)]
    pub url: String,
    /// What went wrong last, other than in a call's own code.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_error: String,
    /// `Ready`: whether it can be called, and why not.
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
            column("Runtime", "string", |function, _| match function["spec"]["runtime"].as_str() {
                Some(runtime) => runtime.into(),
                None => function["spec"]["image"].clone(),
            }),
            column("Replicas", "integer", |function, _| {
                function["status"]["replicas"].as_i64().unwrap_or(0).into()
            }),
            column("Status", "string", |function, _| status_cell(function)),
            printing::age_column(),
            wide("Handler", "string", |function, _| {
                function["spec"]["handler"].as_str().unwrap_or_default().into()
            }),
            wide("URL", "string", |function, _| {
                function["status"]["url"].as_str().unwrap_or_default().into()
            }),
        ],
        // Its pods' names begin with it.
        validate_name: names::dns_label_name,
        default,
        validate,
        ..Kind::new::<Function>()
            .short(&["func", "fn"])
            .with_status()
            .with_subresource("invoke", ("", "", "Function"), &["create"])
            .with_generation()
    }
}

/// Code longer than this belongs into an image: an object has to fit the store.
const MOST_CODE_BYTES: usize = 1 << 20;
/// The longest path of a file.
const LONGEST_PATH: usize = 255;

fn default(function: &mut Value) {
    object_mut(function, "spec");
    let spec = &mut function["spec"];
    if spec["image"].as_str().unwrap_or_default().is_empty() {
        set_default(spec, "runtime", "python");
        set_default(spec, "handler", "main");
    }
    for (field, value) in DEFAULTS {
        set_default(spec, field, value);
    }
    object_mut(spec, "limits");
    for (field, value) in LIMITS {
        set_default(&mut spec["limits"], field, value);
    }
}

fn validate(function: &Field<'_>, errors: &mut Errors) {
    let spec = function.get("spec");
    match spec.get("image").text() {
        "" => validate_source(&spec, errors),
        _ => validate_image(&spec, errors),
    }
    let (min, max) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    min.in_range(0..=1000, errors);
    if let Some(most) = max.int() {
        max.in_range(1..=1000, errors);
        if most < min.int().unwrap_or(0) {
            max.invalid("must be greater than or equal to `minReplicas`", errors);
        }
    }
    spec.get("concurrency").in_range(1..=1000, errors);
    spec.get("idleSeconds").in_range(1..=86_400, errors);
    spec.get("timeoutSeconds").in_range(1..=86_400, errors);
    let limits = spec.get("limits");
    limits.get("requestBytes").in_range(1..=64 << 20, errors);
    limits.get("responseBytes").in_range(1..=64 << 20, errors);
    limits.get("queueLength").in_range(1..=100_000, errors);
    limits.get("queueSeconds").in_range(1..=86_400, errors);
}

fn validate_source(spec: &Field<'_>, errors: &mut Errors) {
    let (code, files) = (spec.get("code"), spec.get("files"));
    let is_one = !code.text().is_empty();
    match (is_one, files.entries().next().is_some()) {
        (false, false) => drop(code.required(errors)),
        (true, true) => files.forbidden("may not be given together with `code`", errors),
        _ => {}
    }
    if code.text().len() > MOST_CODE_BYTES {
        code.too_long(MOST_CODE_BYTES, errors);
    }
    let size: usize = files.entries().map(|(name, file)| name.len() + file.text().len()).sum();
    if size > MOST_CODE_BYTES {
        files.too_long(MOST_CODE_BYTES, errors);
    }
    for (name, file) in files.entries() {
        if !is_relative_path(name) {
            let message = "must be a path of letters, digits, '.', '_' and '-' inside of the source's folder";
            file.invalid(message, errors);
        }
    }
    let runtime = spec.get("runtime");
    if runtime.required(errors) && !names::is_dns1123_label(runtime.text()).is_empty() {
        runtime.invalid("must be the name of a runtime, such as python or nodejs", errors);
    }
    let handler = spec.get("handler");
    if handler.required(errors) && !handler.text().split('.').all(is_identifier) {
        handler.invalid(
            "must be the name of a function, or module.function: letters, digits and '_', not starting with a digit",
            errors,
        );
    }
    if spec.get("port").int().is_some() {
        spec.get("port").forbidden("may only be given with an image", errors);
    }
}

fn validate_image(spec: &Field<'_>, errors: &mut Errors) {
    for name in ["runtime", "code", "handler"] {
        if !spec.get(name).text().is_empty() {
            spec.get(name).forbidden("may not be given together with `image`", errors);
        }
    }
    if spec.get("files").entries().next().is_some() {
        spec.get("files").forbidden("may not be given together with `image`", errors);
    }
    let port = spec.get("port");
    if port.required(errors) {
        port.in_range(1..=65_535, errors);
    }
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn is_relative_path(path: &str) -> bool {
    let is_segment = |segment: &str| {
        !matches!(segment, "" | "." | "..")
            && segment.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    };
    path.len() <= LONGEST_PATH && path.split('/').all(is_segment)
}

fn status_cell(function: &Value) -> Value {
    let conditions = function["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    match ready {
        None => "Pending".into(),
        Some(ready) if ready["status"] == "True" => "Ready".into(),
        Some(ready) => ready["reason"].clone(),
    }
}
