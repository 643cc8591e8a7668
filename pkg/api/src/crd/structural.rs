//! The schema of a custom kind, compiled: what [`super::shape`] and [`super::check`] walk.

use super::format::Format;
use super::regexp::Pattern;
use super::validations::{self, Rule};
use crate::schema::ListType;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One node of a structural schema: the value's shape, and the rules for it.
#[derive(Debug, Clone, Default)]
pub struct Structural {
    /// What the value is; `None` where anything goes.
    pub(super) ty: Option<Type>,
    pub(super) nullable: bool,
    pub(super) properties: BTreeMap<Box<str>, Structural>,
    pub(super) additional: Additional,
    pub(super) items: Option<Box<Structural>>,
    pub(super) default: Option<Value>,
    pub(super) preserve_unknown: bool,
    pub(super) embedded: bool,
    pub(super) list: ListType,
    /// Whether this node or one below is a list of type set or map.
    pub(super) has_keyed_lists: bool,
    /// Whether this node or one below has rules in CEL.
    pub(super) has_validations: bool,
    /// Most nodes have none.
    pub(super) rules: Option<Box<Rules>>,
}

/// The JSON type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// What a schema says of members that it does not name.
#[derive(Debug, Clone, Default)]
pub(super) enum Additional {
    /// Nothing: they are pruned.
    #[default]
    Unsaid,
    /// They are errors.
    Forbidden,
    /// They are kept.
    Anything,
    /// They are of this shape.
    Schema(Box<Structural>),
}

/// A bound of a number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) limit: f64,
    pub(super) exclusive: bool,
}

/// Rules beyond the shape.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    pub(super) format: Option<Format>,
    pub(super) one_of_values: Vec<Value>,
    pub(super) maximum: Option<Bound>,
    pub(super) minimum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
    pub(super) max_length: Option<u64>,
    pub(super) min_length: Option<u64>,
    pub(super) pattern: Option<Pattern>,
    pub(super) max_items: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) unique_items: bool,
    pub(super) max_properties: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) required: Vec<Box<str>>,
    pub(super) all_of: Vec<Structural>,
    pub(super) any_of: Vec<Structural>,
    pub(super) one_of: Vec<Structural>,
    pub(super) not: Option<Box<Structural>>,
    /// Rules in CEL.
    pub(super) validations: Arc<[Rule]>,
}

impl Type {
    /// The type's name, as complaints list it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
            Type::IntOrString => "integer,string",
        }
    }

    fn parse(name: &str) -> Option<Type> {
        Some(match name {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => return None,
        })
    }
}

impl Structural {
    /// Compiles a schema (`openAPIV3Schema`). What does not belong in one was refused when its definition was
    /// written, and is passed over here.
    pub fn compile(json: &Value) -> Structural {
        let flag = |name: &str| json.get(name).and_then(Value::as_bool).unwrap_or(false);
        let text = |name: &str| json.get(name).and_then(Value::as_str);
        let properties: BTreeMap<Box<str>, Structural> = json
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.as_str().into(), Structural::compile(schema)))
            .collect();
        let additional = match json.get("additionalProperties") {
            Some(Value::Bool(false)) => Additional::Forbidden,
            Some(Value::Bool(true)) => Additional::Anything,
            Some(schema @ Value::Object(_)) => Additional::Schema(Box::new(Structural::compile(schema))),
            _ => Additional::Unsaid,
        };
        let items = json
            .get("items")
            .filter(|items| items.is_object())
            .map(|items| Box::new(Structural::compile(items)));
        let list = match text("x-kubernetes-list-type") {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(strings(json.get("x-kubernetes-list-map-keys"))),
            _ => ListType::Atomic,
        };
        let has_keyed_lists = list != ListType::Atomic
            || items.iter().any(|items| items.has_keyed_lists)
            || properties.values().any(|property| property.has_keyed_lists)
            || matches!(&additional, Additional::Schema(schema) if schema.has_keyed_lists);
        let has_validations = items.iter().any(|items| items.has_validations)
            || properties.values().any(|property| property.has_validations)
            || matches!(&additional, Additional::Schema(schema) if schema.has_validations);
        let mut node = Structural {
            ty: if flag("x-kubernetes-int-or-string") {
                Some(Type::IntOrString)
            } else {
                text("type").and_then(Type::parse)
            },
            nullable: flag("nullable"),
            properties,
            additional,
            items,
            default: json.get("default").filter(|default| !default.is_null()).cloned(),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            list,
            has_keyed_lists,
            has_validations,
            rules: Rules::compile(json),
        };
        let validations = validations::compile(json, &node);
        if !validations.is_empty() {
            node.has_validations = true;
            node.rules.get_or_insert_default().validations = validations;
        }
        node
    }

    /// The name of the format that strings must have, if they must.
    pub(super) fn format(&self) -> Option<&str> {
        Some(&self.rules.as_ref()?.format.as_ref()?.name)
    }

    /// The rules in CEL of this node.
    pub(super) fn validations(&self) -> &[Rule] {
        self.rules.as_ref().map(|rules| &*rules.validations).unwrap_or_default()
    }

    /// The schema of a member.
    pub(super) fn member(&self, name: &str) -> Option<&Structural> {
        match (self.properties.get(name), &self.additional) {
            (Some(property), _) => Some(property),
            (None, Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    /// Whether a field selector may name a value of this type.
    pub(super) fn is_selectable(&self) -> bool {
        matches!(self.ty, Some(Type::String | Type::Boolean | Type::Integer))
    }

    /// The schema at a path of member names, as `spec.replicas` is.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Structural> {
        path.iter().try_fold(self, |node, name| node.properties.get(*name))
    }
}

impl Rules {
    fn compile(json: &Value) -> Option<Box<Rules>> {
        const RULES: [&str; 18] = [
            "format",
            "enum",
            "maximum",
            "minimum",
            "multipleOf",
            "maxLength",
            "minLength",
            "pattern",
            "maxItems",
            "minItems",
            "uniqueItems",
            "maxProperties",
            "minProperties",
            "required",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if !json.as_object()?.keys().any(|key| RULES.contains(&key.as_str())) {
            return None;
        }
        let number = |name: &str| json.get(name).and_then(Value::as_f64);
        let count = |name: &str| json.get(name).and_then(Value::as_u64);
        let flag = |name: &str| json.get(name).and_then(Value::as_bool).unwrap_or(false);
        let bound = |name: &str, exclusive: &str| {
            number(name).map(|limit| Bound { limit, exclusive: flag(exclusive) })
        };
        let schemas = |name: &str| -> Vec<Structural> {
            json.get(name).and_then(Value::as_array).into_iter().flatten().map(Structural::compile).collect()
        };
        Some(Box::new(Rules {
            format: json.get("format").and_then(Value::as_str).and_then(Format::parse),
            one_of_values: json.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            maximum: bound("maximum", "exclusiveMaximum"),
            minimum: bound("minimum", "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: json.get("pattern").and_then(Value::as_str).filter(|p| !p.is_empty()).map(Pattern::new),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            unique_items: flag("uniqueItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            required: strings(json.get("required")),
            all_of: schemas("allOf"),
            any_of: schemas("anyOf"),
            one_of: schemas("oneOf"),
            not: json.get("not").filter(|not| not.is_object()).map(|not| Box::new(Structural::compile(not))),
            validations: Arc::default(),
        }))
    }
}

fn strings(list: Option<&Value>) -> Vec<Box<str>> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
}
