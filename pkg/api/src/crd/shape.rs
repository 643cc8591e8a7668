//! Making an object what its schema says, before anybody looks at it: pruning and defaults.

use super::OBJECT_META;
use super::structural::{Additional, Structural};
use crate::schema::{Schema, definitions};
use serde_json::{Map, Value};

/// Members that every object has, whatever its schema says.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// Pruned fields beyond this many are dropped without being listed.
const MOST_LISTED: usize = 100;

/// Removes members that the schema does not have, and those that the metadata of embedded objects does not. Returns
/// their paths: first these, then those, sorted.
/// `resource`: the value is an object of its own, whose kind and metadata stay.
pub(super) fn prune(schema: &Structural, value: &mut Value, resource: bool) -> Vec<String> {
    let mut pruned = Pruned { path: String::new(), paths: Vec::new(), in_metadata: Vec::new() };
    pruned.value(Some(schema), value, resource);
    pruned.paths.sort_unstable();
    pruned.in_metadata.sort_unstable();
    pruned.paths.append(&mut pruned.in_metadata);
    pruned.paths
}

/// Drops `null`s of members that may not be `null` and have no default, then fills in defaults.
pub(super) fn default(schema: &Structural, object: &mut Value) {
    drop_nulls(Some(schema), object);
    fill(schema, object);
}

struct Pruned {
    path: String,
    paths: Vec<String>,
    in_metadata: Vec<String>,
}

impl Pruned {
    /// `resource`: the value is an object of its own, with metadata.
    fn value(&mut self, schema: Option<&Structural>, value: &mut Value, resource: bool) {
        let resource = resource || schema.is_some_and(|schema| schema.embedded);
        let preserve = schema.is_some_and(|schema| schema.preserve_unknown);
        match value {
            Value::Object(members) => self.members(schema, members, resource, preserve),
            Value::Array(items) => {
                let element = schema.and_then(|schema| schema.items.as_deref());
                for (index, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    match element {
                        // A list that keeps what is unknown keeps its elements' too, down to the next schema.
                        Some(element) if preserve => self.preserved(element, item),
                        None if preserve => {}
                        element => self.value(element, item, false),
                    }
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn members(
        &mut self,
        schema: Option<&Structural>,
        members: &mut Map<String, Value>,
        resource: bool,
        preserve: bool,
    ) {
        members.retain(|name, member| {
            if resource && META.contains(&name.as_str()) {
                // The object's own metadata is checked with what all objects have.
                if name == "metadata" && !self.path.is_empty() {
                    let unknown = unknown_metadata(member).into_iter();
                    self.in_metadata.extend(unknown.map(|field| format!("{}.metadata.{field}", self.path)));
                }
                return true;
            }
            let (known, schema) = match schema {
                None => (false, None),
                Some(node) => match (node.properties.get(name.as_str()), &node.additional) {
                    (Some(property), _) => (true, Some(property)),
                    (None, Additional::Schema(schema)) => (true, Some(&**schema)),
                    (None, Additional::Anything | Additional::Forbidden) => (true, None),
                    (None, Additional::Unsaid) => (false, None),
                },
            };
            if !known && preserve {
                return true;
            }
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            if known {
                self.value(schema, member, false);
            } else if self.paths.len() < MOST_LISTED {
                self.paths.push(self.path.clone());
            }
            self.path.truncate(length);
            known
        });
    }

    /// As [`Pruned::value`] for a value inside one that keeps what is unknown.
    fn preserved(&mut self, schema: &Structural, value: &mut Value) {
        match value {
            Value::Object(members) => self.members(Some(schema), members, schema.embedded, true),
            Value::Array(items) => {
                if let Some(element) = schema.items.as_deref() {
                    for (index, item) in items.iter_mut().enumerate() {
                        let length = self.path.len();
                        self.path.push_str(&format!("[{index}]"));
                        self.preserved(element, item);
                        self.path.truncate(length);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Removes what metadata does not have, and lists it. What is of a wrong type is left to validation.
fn unknown_metadata(metadata: &mut Value) -> Vec<String> {
    let schema: Option<&Schema> = definitions().get(OBJECT_META);
    schema.and_then(|schema| schema.check(metadata).ok()).unwrap_or_default()
}

fn drop_nulls(schema: Option<&Structural>, value: &mut Value) {
    match value {
        Value::Object(members) => members.retain(|name, member| {
            let schema = schema.and_then(|schema| schema.member(name));
            let meaningless = |schema: &Structural| !schema.nullable && schema.default.is_none();
            if member.is_null() && schema.is_some_and(meaningless) {
                return false;
            }
            drop_nulls(schema, member);
            true
        }),
        Value::Array(items) => {
            let element = schema.and_then(|schema| schema.items.as_deref());
            items.iter_mut().for_each(|item| drop_nulls(element, item));
        }
        _ => {}
    }
}

fn fill(schema: &Structural, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                let missing = match members.get(&**name) {
                    None => true,
                    Some(member) => member.is_null() && !property.nullable,
                };
                if missing {
                    members.insert(name.to_string(), default.clone());
                }
            }
            for (name, member) in members.iter_mut() {
                if let Some(schema) = schema.member(name) {
                    fill_null(schema, member);
                    fill(schema, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(element) = schema.items.as_deref() {
                for item in items {
                    fill_null(element, item);
                    fill(element, item);
                }
            }
        }
        _ => {}
    }
}

fn fill_null(schema: &Structural, value: &mut Value) {
    if value.is_null() && !schema.nullable {
        *value = schema.default.clone().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Structural {
        Structural::compile(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer", "default": 1},
            "strategy": {"type": "object", "default": {}, "properties": {"kind": {"type": "string", "default": "x"}}},
            "note": {"type": "string", "nullable": true, "default": "n"},
            "plain": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string", "default": "v"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                     "properties": {"strict": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                         "properties": {"spec": {"type": "object"}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "integer", "default": 7}}}},
        }}}}))
    }

    #[test]
    fn unknown_members_are_dropped_and_listed() {
        let mut object = json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n", "anything": 1},
            "extra": 1,
            "spec": {"replicas": 2, "typo": {"x": 1}, "labels": {"any": "y"},
                     "free": {"whatever": {"deep": 1}, "strict": {"a": "", "b": 1}},
                     "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "junk": 1, "spec": {}},
                     "list": [{"b": 1}, {"c": 2}]}});
        let paths = prune(&schema(), &mut object, true);
        assert_eq!(
            paths,
            ["extra", "spec.free.strict.b", "spec.list[1].c", "spec.template.junk", "spec.typo"]
        );
        assert_eq!(
            object,
            json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n", "anything": 1},
                "spec": {"replicas": 2, "labels": {"any": "y"},
                     "free": {"whatever": {"deep": 1}, "strict": {"a": ""}},
                     "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}},
                     "list": [{"b": 1}, {}]}})
        );
    }

    #[test]
    fn defaults_fill_what_is_missing_at_every_depth() {
        let mut object =
            json!({"spec": {"note": null, "plain": null, "labels": {"a": null}, "list": [{}, {"b": 1}]}});
        default(&schema(), &mut object);
        assert_eq!(
            object,
            json!({"spec": {"replicas": 1, "strategy": {"kind": "x"}, "note": null, "labels": {"a": "v"},
                "list": [{"b": 7}, {"b": 1}]}})
        );
        let mut nothing = json!({});
        default(&schema(), &mut nothing);
        assert_eq!(nothing, json!({}), "a missing parent without a default gets none");
    }
}
