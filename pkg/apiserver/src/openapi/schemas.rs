//! The schemas of one group version: its kinds, their lists, and all they refer to.

use crate::discovery::served;
use api::kind::{Kind, Verbs};
use api::schema::raw_definitions_of;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{Binding, Pod};
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, ListMeta, ObjectMeta, Patch, Status,
    WatchEvent,
};
use k8s_openapi::apimachinery::pkg::version::Info;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where definitions are referred to.
pub(super) const PREFIX: &str = "#/components/schemas/";
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const GVK: &str = "x-kubernetes-group-version-kind";

/// The schemas of `kinds`; `all` is everything that is served.
pub(super) fn of_version(kinds: &[&Arc<Kind>], all: &[Arc<Kind>]) -> Map<String, Value> {
    let parts = kinds.iter().flat_map(|kind| served(kind));
    let taken = parts.filter_map(|part| TAKEN.iter().find(|(kind, ..)| *kind == part.takes.2));
    let types = SHARED
        .into_iter()
        .chain(kinds.iter().filter_map(|kind| kind.definition))
        .chain(taken.map(|(_, define, _)| *define));
    let mut schemas = raw_definitions_of(types);
    tidy(&mut schemas);
    for kind in kinds {
        add_kind(kind, &mut schemas);
    }
    mark_shared(&mut schemas, all);
    schemas
}

/// The schemas of `/api`, `/apis` and `/apis/{group}`.
pub(super) fn of_discovery() -> Map<String, Value> {
    let types: [Define; 3] = [define::<APIVersions>, define::<APIGroup>, define::<APIGroupList>];
    let mut schemas = raw_definitions_of(types);
    tidy(&mut schemas);
    mark_shared(&mut schemas, &[]);
    schemas
}

/// The schemas of `/version`.
pub(super) fn of_server_version() -> Map<String, Value> {
    raw_definitions_of([define::<Info> as Define])
}

/// The name of the definition of what a part of a kind takes; `None` for what is not JSON.
pub(super) fn taken(kind: &Kind, takes: &(&str, &str, String)) -> Option<String> {
    let (_, _, name) = takes;
    if *name == kind.kind {
        return Some(kind.definition_name.clone());
    }
    TAKEN.iter().find(|(taken, ..)| taken == name).map(|(_, _, definition)| (*definition).to_owned())
}

/// The name of the definition of a list of the kind's objects.
pub(super) fn list_name(kind: &Kind) -> String {
    match kind.definition_name.rsplit_once('.') {
        Some((module, _)) => format!("{module}.{}", kind.list_kind),
        None => kind.list_kind.clone(),
    }
}

type Define = fn(&mut SchemaGenerator);

/// What every group version needs.
const SHARED: [Define; 7] = [
    define::<DeleteOptions>,
    define::<Patch>,
    define::<Status>,
    define::<WatchEvent<Pod>>,
    define::<APIResourceList>,
    define::<ObjectMeta>,
    define::<ListMeta>,
];

/// What parts of kinds take that is no kind of its own.
const TAKEN: [(&str, Define, &str); 4] = [
    ("Scale", define::<Scale>, "io.k8s.api.autoscaling.v1.Scale"),
    ("Binding", define::<Binding>, "io.k8s.api.core.v1.Binding"),
    ("Eviction", define::<Eviction>, "io.k8s.api.policy.v1.Eviction"),
    ("TokenRequest", define::<TokenRequest>, "io.k8s.api.authentication.v1.TokenRequest"),
];

fn define<T: JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}

fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

/// References to objects by name: the name may be left out, which Rust's types do not say.
const NAMED: [&str; 8] = [
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "LocalObjectReference",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
];

/// Brings definitions into the form that clients of upstream know.
fn tidy(schemas: &mut Map<String, Value>) {
    for (name, schema) in schemas {
        let Value::Object(schema) = schema else { continue };
        let name = name.rsplit('.').next().unwrap_or_default();
        match name {
            "IntOrString" => {
                schema.remove("x-kubernetes-int-or-string");
                schema.insert("format".into(), "int-or-string".into());
                schema.insert("oneOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
            }
            "Quantity" => {
                schema.remove("x-kubernetes-int-or-string");
                schema.insert("oneOf".into(), json!([{"type": "string"}, {"type": "number"}]));
            }
            // Any JSON at all, though its Rust type is described as an object.
            "JSON" => {
                schema.remove("type");
            }
            _ => {}
        }
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            required.retain(|member| member != "metadata" && !(member == "name" && NAMED.contains(&name)));
            if required.is_empty() {
                schema.remove("required");
            }
        }
    }
}

/// Adds a kind and the list of its objects, named as what they are.
fn add_kind(kind: &Kind, schemas: &mut Map<String, Value>) {
    if let Some(custom) = &kind.custom {
        schemas.insert(kind.definition_name.clone(), custom_schema(kind, &custom.json));
    }
    let own = gvk(&kind.group, &kind.version, &kind.kind);
    if let Some(Value::Object(schema)) = schemas.get_mut(&kind.definition_name) {
        // Some definitions are served in several group versions: Event, Scale.
        match schema.entry(GVK).or_insert_with(|| json!([])) {
            Value::Array(list) if !list.contains(&own) => list.push(own),
            _ => {}
        }
    }
    if kind.verbs != Verbs::CreateOnly {
        schemas.insert(list_name(kind), list_schema(kind));
    }
}

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should \
    convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer \
    this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const OBJECT_METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA: &str = "Standard list metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

fn refer(name: &str) -> Value {
    json!({"$ref": format!("{PREFIX}{name}")})
}

fn list_schema(kind: &Kind) -> Value {
    json!({
        "description": format!("{} is a list of {}", kind.list_kind, kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"description": API_VERSION, "type": "string"},
            "kind": {"description": KIND, "type": "string"},
            "metadata": {"description": LIST_METADATA, "allOf": [refer(&format!("{META}.ListMeta"))]},
            "items": {
                "description": format!("List of {}", kind.plural),
                "type": "array",
                "items": refer(&kind.definition_name),
            },
        },
        GVK: [gvk(&kind.group, &kind.version, &kind.list_kind)],
    })
}

/// A custom schema with what all objects have.
fn custom_schema(kind: &Kind, given: &Value) -> Value {
    let mut schema = given.clone();
    if !schema.is_object() {
        schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    add_resource_properties(&mut schema);
    embed(&mut schema);
    if !kind.selectable_fields.is_empty() {
        let fields: Vec<Value> =
            kind.selectable_fields.iter().map(|path| json!({"fieldPath": path})).collect();
        schema["x-kubernetes-selectable-fields"] = fields.into();
    }
    schema
}

fn add_resource_properties(schema: &mut Value) {
    let properties = api::object::object_mut(schema, "properties");
    properties.insert("apiVersion".into(), json!({"description": API_VERSION, "type": "string"}));
    properties.insert("kind".into(), json!({"description": KIND, "type": "string"}));
    properties.insert(
        "metadata".into(),
        json!({"description": OBJECT_METADATA, "allOf": [refer(&format!("{META}.ObjectMeta"))]}),
    );
}

/// Objects inside of objects have the same members.
fn embed(schema: &mut Value) {
    if schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        add_resource_properties(schema);
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(embed);
    }
    for below in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get_mut(below) {
            embed(schema);
        }
    }
}

/// Names the definitions that belong to no kind of ours, and those that belong to every group.
fn mark_shared(schemas: &mut Map<String, Value>, all: &[Arc<Kind>]) {
    let mut mark = |name: String, list: Vec<Value>| {
        if let Some(Value::Object(schema)) = schemas.get_mut(&name) {
            schema.entry(GVK).or_insert(list.into());
        }
    };
    for kind in ["Status", "APIResourceList", "APIGroup", "APIGroupList", "APIVersions"] {
        mark(format!("{META}.{kind}"), vec![gvk("", "v1", kind)]);
    }
    // Custom groups come and go; a document must not change with another group's.
    let versions: BTreeSet<(&str, &str)> = all
        .iter()
        .filter(|kind| kind.custom.is_none())
        .map(|kind| (kind.group.as_str(), kind.version.as_str()))
        .collect();
    for kind in ["DeleteOptions", "WatchEvent"] {
        let list = versions.iter().map(|(group, version)| gvk(group, version, kind)).collect();
        mark(format!("{META}.{kind}"), list);
    }
    mark("io.k8s.api.autoscaling.v1.Scale".into(), vec![gvk("autoscaling", "v1", "Scale")]);
    mark("io.k8s.api.core.v1.Binding".into(), vec![gvk("", "v1", "Binding")]);
    mark("io.k8s.api.policy.v1.Eviction".into(), vec![gvk("policy", "v1", "Eviction")]);
    let token_request = vec![gvk("authentication.k8s.io", "v1", "TokenRequest")];
    mark("io.k8s.api.authentication.v1.TokenRequest".into(), token_request);
}
