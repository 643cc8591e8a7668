//! Objects changed through their schema, as server-side apply changes them: [`merge`] lays a configuration over an
//! object, [`remove`] takes fields out of it, [`validate`] says why a configuration cannot be applied.

use super::display;
use super::field_set::{FieldSet, Node};
use super::typed::{Items, Members, Shape, shape};
use api::Schema;
use api::schema::{Format, Type};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Lays `config` over `live`: what the configuration does not say stays as it is.
pub(super) fn merge(schema: &Schema, live: &Value, config: &Value) -> Value {
    merge_values(Some(schema), live, config)
}

fn merge_values(schema: Option<&Schema>, live: &Value, config: &Value) -> Value {
    match (schema.map_or(Shape::Deduced, shape), live, config) {
        // For maps and lists, `null` in a configuration claims the field but says nothing about its contents.
        (Shape::Members(_) | Shape::Deduced, Value::Object(_), Value::Null) => live.clone(),
        (Shape::Items(_), Value::Array(_), Value::Null) => live.clone(),
        (Shape::Members(members), Value::Object(live), Value::Object(config)) => {
            merge_members(members, live, config)
        }
        (Shape::Deduced, Value::Object(live), Value::Object(config)) => {
            merge_members(Members::DEDUCED, live, config)
        }
        (Shape::Items(items), Value::Array(live), Value::Array(config)) => {
            Value::Array(merge_items(items, live, config))
        }
        _ => config.clone(),
    }
}

fn merge_members(members: Members<'_>, live: &Map<String, Value>, config: &Map<String, Value>) -> Value {
    let mut merged = live.clone();
    for (name, value) in config {
        let value = match live.get(name) {
            Some(live) => merge_values(members.get(name), live, value),
            None => value.clone(),
        };
        merged.insert(name.clone(), value);
    }
    Value::Object(merged)
}

/// Merges two lists item by item. Items that only one side has keep their neighbours, items that both have stand in
/// the configuration's order.
fn merge_items(items: Items<'_>, live: &[Value], config: &[Value]) -> Vec<Value> {
    let index = |list: &[Value]| list.iter().map(|item| items.element(item).ok()).collect::<Vec<_>>();
    let (live_elements, config_elements) = (index(live), index(config));
    let mut live_items: HashMap<&str, Option<&Value>> = HashMap::with_capacity(live.len());
    for (element, item) in live_elements.iter().zip(live) {
        if let Some(element) = element {
            // Of items with the same key, none is merged with.
            live_items.entry(element).and_modify(|item| *item = None).or_insert(Some(item));
        }
    }
    let in_config: HashSet<&str> = config_elements.iter().flatten().map(String::as_str).collect();
    let mut shared =
        config_elements.iter().flatten().filter(|element| live_items.contains_key(element.as_str()));
    let mut next_shared = shared.next();

    let take_config = |index: usize| -> Value {
        let live =
            config_elements[index].as_deref().and_then(|element| live_items.get(element).copied().flatten());
        live.map_or_else(
            || config[index].clone(),
            |live| merge_values(Some(items.item), live, &config[index]),
        )
    };
    let mut merged = Vec::with_capacity(live.len().max(config.len()));
    let mut done: HashSet<&str> = HashSet::with_capacity(config.len());
    let (mut l, mut c) = (0, 0);
    while l < live.len() || c < config.len() {
        if let Some(element) = live_elements.get(l) {
            let element = element.as_deref().unwrap_or_default();
            if !in_config.contains(element) {
                merged.push(live[l].clone());
                l += 1;
                continue;
            }
            let later = next_shared.is_some_and(|next| next != element);
            if config_elements.get(c).and_then(Option::as_deref) == Some(element) {
                l += 1;
            } else if later && c < config.len() {
                l += 1;
                continue;
            } else if done.contains(element) {
                l += 1;
            }
        }
        if c < config.len() {
            merged.push(take_config(c));
            if let Some(element) = &config_elements[c] {
                done.insert(element);
                if next_shared == Some(element) {
                    next_shared = shared.next();
                }
            }
            c += 1;
        }
    }
    merged
}

/// Takes the fields of a set out of an object, and with them the maps and lists that become empty.
pub(super) fn remove(schema: &Schema, object: &Value, fields: &FieldSet) -> Value {
    remove_below(Some(schema), object, fields.nodes()).unwrap_or_else(|| Value::Object(Map::new()))
}

fn remove_below(schema: Option<&Schema>, value: &Value, nodes: &Node) -> Option<Value> {
    match (schema.map_or(Shape::Deduced, shape), value) {
        (Shape::Members(members), Value::Object(object)) => remove_members(members, object, nodes),
        (Shape::Deduced, Value::Object(object)) => remove_members(Members::DEDUCED, object, nodes),
        (Shape::Items(items), Value::Array(list)) => {
            let left: Vec<Value> = list
                .iter()
                .filter_map(|item| {
                    let element = items.element(item).unwrap_or_default();
                    remove_child(Some(items.item), item, nodes, &element)
                })
                .collect();
            (!left.is_empty()).then_some(Value::Array(left))
        }
        _ => Some(value.clone()),
    }
}

fn remove_members(members: Members<'_>, object: &Map<String, Value>, nodes: &Node) -> Option<Value> {
    let left: Map<String, Value> = object
        .iter()
        .filter_map(|(name, value)| {
            let value = remove_child(members.get(name), value, nodes, &format!("f:{name}"))?;
            Some((name.clone(), value))
        })
        .collect();
    (!left.is_empty()).then_some(Value::Object(left))
}

fn remove_child(schema: Option<&Schema>, value: &Value, nodes: &Node, element: &str) -> Option<Value> {
    match FieldSet::child(nodes, element) {
        Some((true, _)) => None,
        Some((false, below)) => remove_below(schema, value, below),
        None => Some(value.clone()),
    }
}

/// More complaints than this about one configuration help nobody.
const MOST_ERRORS: usize = 20;

/// Why a configuration cannot be applied: one line for each reason, with its path.
pub(super) fn validate(schema: &Schema, config: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    Validation { errors: &mut errors }.value(schema, config, schema.preserve_unknown, &Path::Root);
    errors
}

/// Where validation stands; written out only for a complaint.
enum Path<'a> {
    Root,
    Below(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn text(&self) -> String {
        match self {
            Path::Root => String::new(),
            Path::Below(parent, element) => parent.text() + &display::path_element(element),
            Path::Index(parent, index) => format!("{}[{index}]", parent.text()),
        }
    }
}

struct Validation<'a> {
    errors: &'a mut Vec<String>,
}

impl Validation<'_> {
    fn complain(&mut self, path: &Path<'_>, message: impl std::fmt::Display) {
        if self.errors.len() < MOST_ERRORS {
            let path = path.text();
            let colon = if path.is_empty() { "" } else { ": " };
            self.errors.push(display::shortened(format!("{path}{colon}{message}")));
        }
    }

    /// `preserve` is whether somebody above keeps fields that the schema does not name. What has a definition of its own
    /// is what that says.
    fn value(&mut self, schema: &Schema, value: &Value, preserve: bool, path: &Path<'_>) {
        let target = schema.resolve();
        let preserve = preserve && !matches!(schema.ty, Type::Ref(_)) || target.preserve_unknown;
        let expected = match (&target.ty, value) {
            (_, Value::Null) => return,
            (Type::Any | Type::Ref(_), _) => return,
            (Type::Object { properties, additional }, Value::Object(members)) => {
                for (name, value) in members {
                    let element = format!("f:{name}");
                    let path = Path::Below(path, &element);
                    match properties.get(name.as_str()).or(additional.as_deref()) {
                        Some(schema) => self.value(schema, value, preserve, &path),
                        None if preserve => {}
                        None => self.complain(&path, "field not declared in schema"),
                    }
                }
                return;
            }
            (Type::Array(item), Value::Array(list)) => return self.items(schema, item, list, preserve, path),
            (Type::Integer { .. } | Type::Number, Value::Number(_)) => return,
            (Type::Boolean, Value::Bool(_)) | (Type::String(_), Value::String(_)) => return,
            (
                Type::IntOrString | Type::String(Format::Quantity | Format::DateTime),
                Value::String(_) | Value::Number(_) | Value::Bool(_),
            ) => return,
            (Type::Object { .. }, _) => format!("expected map, got &{{{}}}", display::go_value(value)),
            (Type::Array(_), _) => format!("expected list, got &{{{}}}", display::go_value(value)),
            (Type::Integer { .. } | Type::Number, _) => {
                format!("expected numeric (int or float), got {}", display::go_type(value))
            }
            (Type::Boolean, _) => format!("expected boolean, got &{{{}}}", display::go_value(value)),
            (Type::String(Format::Plain | Format::Byte), _) => {
                format!("expected string, got &value.valueUnstructured{{Value:{}}}", display::go_value(value))
            }
            (Type::String(_) | Type::IntOrString, _) => {
                format!("expected any scalar, got &{{{}}}", display::go_value(value))
            }
        };
        self.complain(path, expected);
    }

    fn items(&mut self, schema: &Schema, item: &Schema, list: &[Value], preserve: bool, path: &Path<'_>) {
        let Shape::Items(items) = shape(schema) else {
            for (index, value) in list.iter().enumerate() {
                self.value(item, value, preserve, &Path::Index(path, index));
            }
            return;
        };
        let mut seen = HashSet::with_capacity(list.len());
        for (index, value) in list.iter().enumerate() {
            let element = match items.element(value) {
                Ok(element) => element,
                Err(bad) => return self.complain(path, format!("element {index}: {bad}")),
            };
            self.value(item, value, preserve, &Path::Below(path, &element));
            if seen.contains(&element) {
                let key = display::path_element(&element);
                self.complain(path, format!("duplicate entries for key {key}"));
            }
            seen.insert(element);
        }
    }
}
