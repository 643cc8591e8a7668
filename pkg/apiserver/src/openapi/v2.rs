//! The older document (Swagger 2.0), made of the newer ones.

use super::schemas::PREFIX;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// All v3 documents as one of v2.
pub(super) fn swagger(documents: impl Iterator<Item = Value>) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for mut document in documents {
        if let Some(Value::Object(found)) = document.get_mut("paths").map(Value::take) {
            paths.extend(found.into_iter().map(|(path, item)| (path, path_item(item))));
        }
        if let Some(Value::Object(found)) = document.pointer_mut("/components/schemas").map(Value::take) {
            for (name, schema) in found {
                merge_definition(&mut definitions, name, schema);
            }
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": {"description": "Bearer Token authentication", "type": "apiKey",
            "name": "authorization", "in": "header"}},
        "security": [{"BearerToken": []}],
    })
}

const GVK: &str = "x-kubernetes-group-version-kind";

/// A definition that several group versions serve is named by all of them.
fn merge_definition(definitions: &mut Map<String, Value>, name: String, mut schema: Value) {
    let added = schema.get(GVK).and_then(Value::as_array).cloned().unwrap_or_default();
    match definitions.get_mut(&name) {
        None => {
            convert_schema(&mut schema);
            definitions.insert(name, schema);
        }
        Some(Value::Object(known)) if !added.is_empty() => {
            if let Value::Array(list) = known.entry(GVK).or_insert_with(|| json!([])) {
                let missing: Vec<Value> = added.into_iter().filter(|gvk| !list.contains(gvk)).collect();
                list.extend(missing);
            }
        }
        Some(_) => {}
    }
}

fn path_item(item: Value) -> Value {
    let Value::Object(item) = item else { return item };
    item.into_iter()
        .map(|(method, mut operation)| {
            if method == "parameters" {
                parameters(&mut operation);
            } else {
                operation = convert_operation(operation);
            }
            (method, operation)
        })
        .collect::<Map<_, _>>()
        .into()
}

fn convert_operation(mut operation: Value) -> Value {
    let mut list = operation.get_mut("parameters").map(Value::take).unwrap_or_else(|| json!([]));
    parameters(&mut list);
    let mut consumes = BTreeSet::new();
    if let Some(body) = operation.get("requestBody") {
        let mut parameter = json!({"name": "body", "in": "body"});
        if body["required"] == true {
            parameter["required"] = true.into();
        }
        for (media_type, content) in body["content"].as_object().into_iter().flatten() {
            consumes.insert(media_type.clone());
            parameter["schema"] = content["schema"].clone();
        }
        convert_schema(&mut parameter["schema"]);
        list.as_array_mut().into_iter().for_each(|list| list.insert(0, parameter.clone()));
    }
    let mut produces = BTreeSet::new();
    for (_, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        let Some(Value::Object(content)) = response.as_object_mut().and_then(|r| r.remove("content")) else {
            continue;
        };
        for (media_type, mut content) in content {
            produces.insert(media_type);
            convert_schema(&mut content["schema"]);
            response["schema"] = content["schema"].take();
        }
    }
    if let Some(operation) = operation.as_object_mut() {
        operation.remove("requestBody");
        operation.remove("parameters");
        if list.as_array().is_some_and(|list| !list.is_empty()) {
            operation.insert("parameters".into(), list);
        }
        if consumes.is_empty() {
            consumes.insert("*/*".into());
        }
        operation.insert("consumes".into(), consumes.into_iter().collect());
        operation.insert("produces".into(), produces.into_iter().collect());
        operation.insert("schemes".into(), json!(["https"]));
    }
    operation
}

/// The schema of a parameter stands in the parameter itself.
fn parameters(list: &mut Value) {
    for parameter in list.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(Value::Object(schema)) = parameter.remove("schema") {
            parameter.extend(schema);
        }
    }
}

/// Keywords that Swagger 2.0 does not have.
const UNKNOWN: [&str; 5] = ["oneOf", "anyOf", "allOf", "not", "nullable"];

fn convert_schema(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    let reference =
        members.get("$ref").or_else(|| members.get("allOf")?.get(0)?.get("$ref")).and_then(Value::as_str);
    if let Some(name) = reference.and_then(|reference| reference.strip_prefix(PREFIX)) {
        let reference = format!("#/definitions/{name}");
        members.remove("allOf");
        members.insert("$ref".into(), reference.into());
        return;
    }
    if members.get("format").and_then(Value::as_str) == Some("int-or-string")
        || members.get("oneOf") == Some(&json!([{"type": "string"}, {"type": "number"}]))
    {
        members.insert("type".into(), "string".into());
    }
    let is = |name: &str, members: &Map<String, Value>| members.get(name) == Some(&Value::Bool(true));
    // Clients of this form refuse what they do not know: where anything may come, they are told nothing.
    let preserves = is("x-kubernetes-preserve-unknown-fields", members);
    match members.contains_key(GVK) {
        true if preserves => {
            members.retain(|keyword, _| keyword == GVK);
            members.insert("type".into(), "object".into());
        }
        false if preserves || is("nullable", members) => {
            for keyword in ["items", "properties", "additionalProperties", "required", "type"] {
                members.remove(keyword);
            }
        }
        _ => {}
    }
    if is("x-kubernetes-int-or-string", members) {
        members.remove("type");
    }
    UNKNOWN.iter().for_each(|keyword| {
        members.remove(*keyword);
    });
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.values_mut().for_each(convert_schema);
    }
    for below in ["items", "additionalProperties"] {
        if let Some(schema) = members.get_mut(below) {
            convert_schema(schema);
        }
    }
}
