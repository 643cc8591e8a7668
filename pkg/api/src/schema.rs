//! What an object of a kind may look like: a compact tree compiled from OpenAPI schemas.
//!
//! Built-in kinds get theirs from k8s-openapi's types, overlaid with the [`facts`] that those do not carry;
//! custom kinds from their CustomResourceDefinition. Both are the same JSON and compile the same way. The JSON
//! itself, with its descriptions, is made again when somebody asks for OpenAPI: it is not kept.

mod check;
mod enums;
mod facts;
mod properties;

pub use check::{TypeError, UnknownField};
pub use properties::Properties;

use crate::kinds;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

/// What every custom resource has as its metadata; apart from [`definitions`], which custom kinds must not need.
static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
    let define: fn(&mut SchemaGenerator) = |generator| {
        generator.subschema_for::<ObjectMeta>();
    };
    let definitions = raw_definitions_of([define]);
    let schema = compile(&self_contained(&ObjectMeta::schema_name(), &definitions), &HashMap::new());
    Schema { embedded: true, ..schema }
});

/// One node of the tree.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// What the value is.
    pub ty: Type,
    /// How server-side apply merges a list.
    pub list: ListType,
    /// Whether server-side apply takes a map or struct as one value. `None`: as the definition it refers to says.
    pub atomic: Option<bool>,
    /// The key by which a strategic merge patch finds elements of a list.
    pub merge_key: Option<Box<str>>,
    /// What a strategic merge patch does with a list or struct.
    pub patch: PatchStrategy,
    /// Whether fields that the schema does not name are kept.
    pub preserve_unknown: bool,
    /// What stands in for a value that was left out. Built-in kinds have it for members that key a list only.
    pub default: Option<Value>,
    /// Whether the value counts as there, but empty, whenever its parent is there: a struct that upstream embeds
    /// by value, or a list that it never leaves out.
    pub embedded: bool,
    /// Whether the value must be given, as a member.
    pub required: bool,
}

/// The type of a value.
#[derive(Debug, Clone, Default)]
pub enum Type {
    /// Any JSON at all.
    #[default]
    Any,
    /// An object with named members, or with arbitrary keys of one type.
    Object {
        /// Members by name.
        properties: Properties,
        /// The type of all other members, where they are allowed.
        additional: Option<Box<Schema>>,
    },
    /// A list.
    Array(Box<Schema>),
    /// A string; the format is OpenAPI's (`byte`, `date-time`, …).
    String(Format),
    /// An integer of 32 or 64 bits.
    Integer {
        /// Whether it must fit 64 bits only.
        wide: bool,
    },
    /// Any number.
    Number,
    /// A boolean.
    Boolean,
    /// A number or a string, as ports and percentages are.
    IntOrString,
    /// A definition, by its place in [`definitions`].
    Ref(usize),
}

/// What a string must be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// Any string.
    #[default]
    Plain,
    /// Base64.
    Byte,
    /// RFC 3339.
    DateTime,
    /// A resource quantity; numbers are taken too.
    Quantity,
}

/// How server-side apply merges a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListType {
    /// As one value.
    #[default]
    Atomic,
    /// As a set of scalars.
    Set,
    /// As a map from the named members to elements; the names are sorted.
    Map(Vec<Box<str>>),
}

/// What a strategic merge patch does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PatchStrategy {
    /// Lists are replaced, structs merged.
    #[default]
    Default,
    /// A list is merged by its merge key (or as a set of scalars).
    Merge,
    /// As `Merge`, and members of an element that the patch does not name are dropped (one-of unions).
    MergeRetainKeys,
    /// A struct of which only the patch's members are kept.
    RetainKeys,
    /// A struct that is replaced.
    Replace,
}

/// All definitions that built-in kinds refer to.
pub struct Definitions {
    by_name: HashMap<String, usize>,
    names: Vec<String>,
    schemas: Vec<Schema>,
}

impl Definitions {
    /// The definition of that name, such as `io.k8s.api.core.v1.Pod`.
    pub fn get(&self, name: &str) -> Option<&Schema> {
        self.by_name.get(name).map(|&index| &self.schemas[index])
    }

    /// The name of the definition that a [`Type::Ref`] points to.
    pub fn name(&self, index: usize) -> &str {
        &self.names[index]
    }
}

/// The definitions of the built-in kinds, compiled when first needed.
pub fn definitions() -> &'static Definitions {
    static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(|| {
        let raw = raw_definitions();
        let names: Vec<String> = raw.keys().cloned().collect();
        let by_name: HashMap<String, usize> =
            names.iter().enumerate().map(|(index, name)| (name.clone(), index)).collect();
        let schemas = raw.values().map(|schema| compile(schema, &by_name)).collect();
        Definitions { by_name, names, schemas }
    });
    &DEFINITIONS
}

/// The definitions as OpenAPI v3 JSON with descriptions, overlaid with our facts; made anew at each call.
pub fn raw_definitions() -> Map<String, Value> {
    raw_definitions_of(kinds::all().iter().filter_map(|kind| kind.definition))
}

/// The definitions of some types only, and of all that they refer to.
pub fn raw_definitions_of(types: impl IntoIterator<Item = fn(&mut SchemaGenerator)>) -> Map<String, Value> {
    let mut generator = schemars::generate::SchemaSettings::openapi3().into_generator();
    for define in types {
        define(&mut generator);
    }
    let mut raw: Map<String, Value> = generator.take_definitions(true);
    facts::overlay(&mut raw);
    enums::overlay(&mut raw);
    raw
}

/// A definition with those it refers to put in the places of the references; recursive ones end at some depth.
pub fn self_contained(name: &str, definitions: &Map<String, Value>) -> Value {
    definitions.get(name).map(|definition| inlined(definition, definitions, 0)).unwrap_or_default()
}

/// Recursive definitions are put into each other this often.
const MOST_INLINED: usize = 64;

fn inlined(schema: &Value, definitions: &Map<String, Value>, depth: usize) -> Value {
    let Value::Object(members) = schema else { return schema.clone() };
    let mut result = Map::new();
    if let Some(target) = reference(schema).and_then(|name| definitions.get(name))
        && depth < MOST_INLINED
        && let Value::Object(target) = inlined(target, definitions, depth + 1)
    {
        result = target;
    }
    for (name, member) in members {
        let member = match name.as_str() {
            "$ref" | "allOf" => continue,
            "properties" => {
                let members = member.as_object().into_iter().flatten();
                let inline = |(name, schema): (&String, &Value)| {
                    (name.clone(), inlined(schema, definitions, depth + 1))
                };
                Value::Object(members.map(inline).collect())
            }
            "items" | "additionalProperties" => inlined(member, definitions, depth + 1),
            _ => member.clone(),
        };
        result.insert(name.clone(), member);
    }
    Value::Object(result)
}

/// The name of the definition that a schema refers to.
fn reference(schema: &Value) -> Option<&str> {
    let target = schema.get("$ref").or_else(|| schema.get("allOf")?.get(0)?.get("$ref"));
    target?.as_str()?.rsplit('/').next()
}

impl Schema {
    /// Compiles a self-contained schema: that of a custom resource, whose metadata is what everybody's is.
    pub fn from_json(schema: &Value) -> Schema {
        let mut schema = compile(schema, &HashMap::new());
        if let Type::Object { properties, .. } = &mut schema.ty {
            add_identity(properties);
        }
        schema
    }

    /// The node that really describes the value: behind a reference, if this is one.
    pub fn resolve(&self) -> &Schema {
        match self.ty {
            Type::Ref(index) => definitions().schemas[index].resolve(),
            _ => self,
        }
    }

    /// The schema of a member, or `None` if there is no such member.
    pub fn property(&self, name: &str) -> Option<&Schema> {
        match &self.resolve().ty {
            Type::Object { properties, additional } => properties.get(name).or(additional.as_deref()),
            _ => None,
        }
    }

    /// The schema of a list's elements.
    pub fn element(&self) -> Option<&Schema> {
        match &self.resolve().ty {
            Type::Array(element) => Some(element),
            _ => None,
        }
    }

    /// Puts into an object what upstream's types always show: empty structs that they have by value, `status: {}`
    /// most of all, and scalars of a status that are not optional.
    pub fn embed(&self, object: &mut Value) {
        self.embed_in(object, false);
        if let (Some(schema), Some(status)) = (self.property("status"), object.get_mut("status")) {
            schema.embed_in(status, true);
        }
    }

    fn embed_in(&self, value: &mut Value, scalars: bool) {
        match (&self.resolve().ty, value) {
            (Type::Object { properties, additional }, Value::Object(members)) => {
                for (name, schema) in properties.iter() {
                    if let Some(member) = members.get_mut(name) {
                        schema.embed_in(member, scalars);
                    } else if let Some(mut member) = schema.always_shown(scalars) {
                        schema.embed_in(&mut member, scalars);
                        members.insert(name.to_owned(), member);
                    }
                }
                if let Some(schema) = additional {
                    let others =
                        members.iter_mut().filter(|(name, _)| !properties.contains_key(name.as_str()));
                    others.for_each(|(_, member)| schema.embed_in(member, scalars));
                }
            }
            (Type::Array(element), Value::Array(items)) => {
                items.iter_mut().for_each(|item| element.embed_in(item, scalars));
            }
            _ => {}
        }
    }

    /// What stands for a member that was left out, if it is shown nevertheless.
    fn always_shown(&self, scalars: bool) -> Option<Value> {
        match &self.resolve().ty {
            Type::Object { additional: None, .. } if self.embedded => Some(Value::Object(Map::new())),
            Type::Integer { .. } if (self.required || self.embedded) && scalars => Some(Value::from(0)),
            Type::Boolean if self.required && scalars => Some(Value::from(false)),
            Type::String(Format::Plain) if self.required && scalars => Some(Value::from("")),
            _ => None,
        }
    }

    /// Whether server-side apply takes the map or struct here as one value.
    pub fn is_atomic(&self) -> bool {
        self.atomic.or(self.resolve().atomic).unwrap_or(false)
    }
}

fn compile(json: &Value, by_name: &HashMap<String, usize>) -> Schema {
    let text = |name: &str| json.get(name).and_then(Value::as_str);
    let flag = |name: &str| json.get(name).and_then(Value::as_bool).unwrap_or(false);
    let list = match text("x-kubernetes-list-type") {
        Some("set") => ListType::Set,
        Some("map") => {
            let mut keys = strings(json.get("x-kubernetes-list-map-keys"));
            keys.sort_unstable();
            ListType::Map(keys)
        }
        _ => ListType::Atomic,
    };
    let patch = match text("x-kubernetes-patch-strategy") {
        Some("merge") => PatchStrategy::Merge,
        Some("merge,retainKeys") => PatchStrategy::MergeRetainKeys,
        Some("retainKeys") => PatchStrategy::RetainKeys,
        Some("replace") => PatchStrategy::Replace,
        _ => PatchStrategy::Default,
    };
    Schema {
        ty: compile_type(json, by_name),
        list,
        atomic: text("x-kubernetes-map-type").map(|map_type| map_type == "atomic"),
        merge_key: text("x-kubernetes-patch-merge-key").map(Into::into),
        patch,
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: json.get("default").is_some_and(|default| default.as_object().is_some_and(Map::is_empty)),
        default: json.get("default").cloned(),
        required: false,
    }
}

fn compile_type(json: &Value, by_name: &HashMap<String, usize>) -> Type {
    if let Some(name) = reference(json) {
        if name.ends_with(".Quantity") {
            return Type::String(Format::Quantity);
        }
        // Defaults and examples of custom schemas: any JSON, though the definition says object.
        if name.ends_with(".v1.JSON") {
            return Type::Any;
        }
        return by_name.get(name).map_or(Type::Any, |&index| Type::Ref(index));
    }
    let format = json.get("format").and_then(Value::as_str).unwrap_or_default();
    if json.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) || format == "int-or-string" {
        return Type::IntOrString;
    }
    match json.get("type").and_then(Value::as_str) {
        Some("object") => {
            let required = strings(json.get("required"));
            let mut properties: Properties = json
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, schema)| {
                    let mut member = compile(schema, by_name);
                    let list = matches!(member.ty, Type::Array(_));
                    member.required = required.iter().any(|required| **required == **name);
                    member.embedded |= list && member.required;
                    (name.as_str().into(), member)
                })
                .collect();
            if json.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
                add_identity(&mut properties);
                // It is not always shown, and nobody around it decides what it may have.
                if let Some(&index) = definitions().by_name.get(&*ObjectMeta::schema_name()) {
                    properties.insert("metadata", Schema { ty: Type::Ref(index), ..Schema::default() });
                }
            }
            let additional = match json.get("additionalProperties") {
                Some(Value::Bool(true)) => Some(Box::default()),
                Some(schema @ Value::Object(_)) => Some(Box::new(compile(schema, by_name))),
                // An object of which nothing is said holds anything (RawExtension, FieldsV1).
                _ if properties.is_empty() => Some(Box::default()),
                _ => None,
            };
            Type::Object { properties, additional }
        }
        Some("array") => {
            Type::Array(Box::new(json.get("items").map(|items| compile(items, by_name)).unwrap_or_default()))
        }
        Some("string") => Type::String(match format {
            "byte" => Format::Byte,
            "date-time" => Format::DateTime,
            _ => Format::Plain,
        }),
        Some("integer") => Type::Integer { wide: format != "int32" },
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        _ => Type::Any,
    }
}

/// What every object has, whether or not its schema says so.
fn add_identity(properties: &mut Properties) {
    for name in ["apiVersion", "kind"] {
        if !properties.contains_key(name) {
            properties.insert(name, Schema { ty: Type::String(Format::Plain), ..Schema::default() });
        }
    }
    properties.insert("metadata", OBJECT_META.clone());
}

fn strings(list: Option<&Value>) -> Vec<Box<str>> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_upstream_always_shows_is_put_in() {
        let check = |definition: &str, object: Value, expected: Value| {
            let mut object = object;
            definitions().get(&format!("io.k8s.api.{definition}")).expect("a definition").embed(&mut object);
            assert_eq!(object, expected, "{definition}");
        };
        check(
            "core.v1.Service",
            json!({}),
            json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}),
        );
        check(
            "apps.v1.ReplicaSet",
            json!({"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}}),
            json!({"metadata": {}, "status": {"replicas": 0}, "spec": {"template": {"metadata": {}, "spec": {
                "containers": [{"name": "a", "resources": {}}]}}}}),
        );
        // Required scalars of a spec are the user's to give.
        check("rbac.v1.Role", json!({"rules": [{}]}), json!({"metadata": {}, "rules": [{}]}));
    }
}
