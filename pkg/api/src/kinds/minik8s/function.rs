//! Function: code that is called with JSON and answers with JSON, and runs only while it is called.

use super::{ApiVersion, KindName, resource};
use crate::field::{Errors, Field};
use crate::kind::{Kind, column, wide};
use crate::kinds::batch::{cron_job, schedule::Schedule};
use crate::object::{object_mut, set_default};
use crate::{meta, names, printing};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

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
    /// What becomes of calls that were promised for later.
    #[serde(default, rename = "async", skip_serializing_if = "is_default")]
    pub promised: FunctionAsync,
    /// What calls it without being asked: the clock, and changes of objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<FunctionTrigger>,
    /// Which share of the calls which revision takes; all of them the latest, unless it is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<FunctionTraffic>,
}

/// What becomes of calls that were promised for later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionAsync")]
pub struct FunctionAsync {
    /// How often a call that failed is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<i32>,
    /// After how many seconds for the first time; after twice as many each time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub backoff_seconds: i32,
    /// For how many seconds it can be read what came of a call.
    #[serde(default, skip_serializing_if = "is_default")]
    pub keep_seconds: i32,
}

/// What calls a function without being asked: a schedule, or changes of objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionTrigger")]
pub struct FunctionTrigger {
    /// When, as a CronJob says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schedule: String,
    /// The time zone of the schedule; UTC, unless it is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub time_zone: String,
    /// Whose changes, of the function's own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<FunctionEvents>,
    /// The parameters of a call by the clock.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub params: Value,
}

/// Objects whose changes call a function, of a kind that its service account may list and watch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionEvents")]
pub struct FunctionEvents {
    /// Their group and version; v1, unless it is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Their kind.
    pub kind: String,
    /// Their labels; all of them, unless it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// The share of a revision in the calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionTraffic")]
pub struct FunctionTraffic {
    /// The revision, as `status.revision` has called it; the latest, unless it is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// So many calls of a hundred.
    pub percent: i32,
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

/// As [`DEFAULTS`], of calls that were promised for later.
const ASYNC: [(&str, i32); 3] = [("retries", 3), ("backoffSeconds", 1), ("keepSeconds", 3600)];

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
    /// How many calls were answered; some seconds behind.
    #[serde(default, skip_serializing_if = "is_default")]
    pub calls: i64,
    /// How many of them failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub errors: i64,
    /// How many milliseconds the last start of a pod took.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_cold_start_milliseconds: i64,
    /// How far its triggers are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<FunctionTriggerStatus>,
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

/// How far a trigger is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "io.minik8s.v1.FunctionTriggerStatus")]
pub struct FunctionTriggerStatus {
    /// Which trigger: its schedule and zone, or its kind.
    pub trigger: String,
    /// Until when a schedule has called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_time: Option<Time>,
    /// Until which version of its objects it has called.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Why it does not call.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
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
            column("Calls", "integer", |function, _| printing::int(function, "status.calls").into()),
            column("Errors", "integer", |function, _| printing::int(function, "status.errors").into()),
            column("Cold Start", "string", |function, _| cold_start_cell(function)),
            column("Status", "string", |function, _| status_cell(function)),
            printing::age_column(),
            wide("Handler", "string", |function, _| {
                function["spec"]["handler"].as_str().unwrap_or_default().into()
            }),
            wide("Revision", "string", |function, _| printing::text(function, "status.revision").into()),
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
            .with_subresource("log", ("", "", "Function"), &["get"])
            .with_generation()
    }
}

/// Code longer than this belongs into an image: an object has to fit the store.
const MOST_CODE_BYTES: usize = 1 << 20;
/// What calls a function without being asked is no more than this.
const MOST_TRIGGERS: usize = 16;
/// Calls are shared among no more revisions than this.
const MOST_SHARES: usize = 5;
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
    object_mut(spec, "async");
    for (field, value) in ASYNC {
        set_default(&mut spec["async"], field, value);
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
    let promised = spec.get("async");
    promised.get("retries").in_range(0..=100, errors);
    promised.get("backoffSeconds").in_range(1..=3600, errors);
    promised.get("keepSeconds").in_range(1..=30 * 86_400, errors);
    validate_triggers(&spec.get("triggers"), errors);
    validate_traffic(&spec.get("traffic"), errors);
}

fn validate_triggers(triggers: &Field<'_>, errors: &mut Errors) {
    if triggers.len() > MOST_TRIGGERS {
        triggers.too_many(MOST_TRIGGERS, errors);
    }
    for trigger in triggers.items() {
        let (schedule, zone, on) = (trigger.get("schedule"), trigger.get("timeZone"), trigger.get("on"));
        match (schedule.text().is_empty(), on.exists()) {
            (true, false) => drop(schedule.required_because("a trigger has a `schedule` or an `on`", errors)),
            (false, true) => on.forbidden("may not be given together with `schedule`", errors),
            (true, true) => {
                if on.get("kind").required(errors)
                    && !on.get("kind").text().chars().all(char::is_alphanumeric)
                {
                    on.get("kind").invalid("must be a kind, such as ConfigMap", errors);
                }
                if on.get("kind").text() == "FunctionCall" {
                    on.get("kind").forbidden("each call would call again", errors);
                }
                meta::validate_label_selector(&on.get("selector"), errors);
                if trigger.get("params").exists() {
                    trigger.get("params").forbidden("a change is the parameters of its call", errors);
                }
            }
            (false, false) => {
                if let Err(fault) = Schedule::parse(schedule.text()) {
                    schedule.invalid(fault.to_string(), errors);
                }
                cron_job::validate_time_zone(&zone, errors);
            }
        }
        if schedule.text().is_empty() && zone.exists() {
            zone.forbidden("may only be given with a `schedule`", errors);
        }
    }
}

fn validate_traffic(traffic: &Field<'_>, errors: &mut Errors) {
    if traffic.len() > MOST_SHARES {
        traffic.too_many(MOST_SHARES, errors);
    }
    let mut seen = BTreeSet::new();
    for share in traffic.items() {
        let (revision, percent) = (share.get("revision"), share.get("percent"));
        percent.in_range(0..=100, errors);
        if !seen.insert(revision.text().to_owned()) {
            revision.duplicate(errors);
        }
        if !revision.text().chars().all(|c| c.is_ascii_hexdigit()) {
            revision.invalid("must be a revision, as `status.revision` calls it", errors);
        }
    }
    let sum: i64 = traffic.items().filter_map(|share| share.get("percent").int()).sum();
    if !traffic.is_empty() && sum != 100 {
        traffic.invalid(format!("the shares must be 100 percent together, and are {sum}"), errors);
    }
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

fn cold_start_cell(function: &Value) -> Value {
    match printing::int(function, "status.lastColdStartMilliseconds") {
        0 => "".into(),
        milliseconds if milliseconds < 1000 => format!("{milliseconds}ms").into(),
        milliseconds => format!("{}.{:02}s", milliseconds / 1000, milliseconds % 1000 / 10).into(),
    }
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
