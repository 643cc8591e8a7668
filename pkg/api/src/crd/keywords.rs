//! The keywords of each node of a definition's schema: those that can be served, and that go together.

use super::structural::Structural;
use super::validations::field_path;
use crate::field::{Errors, Field, Reason};
use serde_json::Value;

/// Complains about keywords of the schema and of all nodes below it.
pub(super) fn validate(schema: &Field<'_>, errors: &mut Errors) {
    openapi(schema, &Context { root: true, inside_meta: false, no_defaults: None }, errors);
}

/// What holds of a node because of where it stands.
struct Context {
    root: bool,
    inside_meta: bool,
    /// Why defaults may not be given here.
    no_defaults: Option<String>,
}

/// Complains about keywords of this node and those below it.
fn openapi(schema: &Field<'_>, context: &Context, errors: &mut Errors) {
    supported(schema, context, errors);
    map_and_list_types(schema, errors);
    cel_rules(schema, errors);
    let below =
        |no_defaults: Option<String>, inside_meta: bool| Context { root: false, inside_meta, no_defaults };
    let same = || below(context.no_defaults.clone(), context.inside_meta);
    let additional = schema.get("additionalProperties");
    if additional.object().is_some() {
        let reason = "inside additionalProperties applying to object metadata".to_owned();
        let no_defaults = if context.inside_meta { Some(reason) } else { context.no_defaults.clone() };
        openapi(&additional, &below(no_defaults, context.inside_meta), errors);
    }
    let resource = context.root || schema.get("x-kubernetes-embedded-resource").bool();
    for (name, property) in schema.get("properties").entries() {
        if resource && matches!(name, "metadata" | "kind" | "apiVersion") {
            let top = context.root.then(|| format!("in top-level {name}"));
            openapi(&property, &below(top.or_else(|| context.no_defaults.clone()), true), errors);
        } else {
            openapi(&property, &same(), errors);
        }
    }
    if schema.get("not").exists() {
        openapi(&schema.get("not"), &same(), errors);
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        for clause in schema.get(name).items() {
            openapi(&clause, &same(), errors);
        }
    }
    if schema.get("items").object().is_some() {
        openapi(&schema.get("items"), &same(), errors);
    }
}

const TYPES: [&str; 6] = ["string", "number", "integer", "boolean", "array", "object"];

fn supported(schema: &Field<'_>, context: &Context, errors: &mut Errors) {
    let ty = schema.get("type");
    if ty.text() == "null" {
        ty.forbidden("type cannot be set to null, use nullable as an alternative", errors);
    } else if !ty.text().is_empty() {
        ty.one_of(&TYPES, errors);
    }
    if let (true, Some(reason)) = (schema.get("default").exists(), &context.no_defaults) {
        schema.get("default").forbidden(format!("must not be set {reason}"), errors);
    }
    for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if schema.get(name).exists() {
            schema.get(name).forbidden(format!("{name} is not supported"), errors);
        }
    }
    if schema.get("items").value().is_array() {
        schema.get("items").forbidden("items must be a schema object and not an array", errors);
    }
    if context.inside_meta && schema.get("x-kubernetes-embedded-resource").bool() {
        schema
            .get("x-kubernetes-embedded-resource")
            .forbidden("must not be used inside of resource meta", errors);
    }
    if schema.get("uniqueItems").bool() {
        schema.get("uniqueItems").forbidden(
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            errors,
        );
    }
    let additional = schema.get("additionalProperties");
    if additional.exists() && !schema.get("properties").is_empty() && *additional.value() != Value::Bool(true)
    {
        additional.forbidden("additionalProperties and properties are mutual exclusive", errors);
    }
    let preserve = schema.get("x-kubernetes-preserve-unknown-fields");
    if *preserve.value() == Value::Bool(false) {
        preserve.invalid("must be true or undefined", errors);
    }
}

fn map_and_list_types(schema: &Field<'_>, errors: &mut Errors) {
    let ty = schema.get("type");
    for (keyword, needs) in [("x-kubernetes-map-type", "object"), ("x-kubernetes-list-type", "array")] {
        if schema.get(keyword).exists() && ty.text() != needs {
            let reason = if ty.text().is_empty() { Reason::Required } else { Reason::Invalid };
            ty.complain(reason, format!("must be {needs} if {keyword} is specified"), errors);
        }
    }
    schema.get("x-kubernetes-map-type").one_of(&["atomic", "granular"], errors);
    let list = schema.get("x-kubernetes-list-type");
    list.one_of(&["atomic", "set", "map"], errors);
    let items = schema.get("items");
    if ty.text() == "array" && list.text() == "set" {
        set_items(&items, errors);
    }
    if !schema.get("x-kubernetes-list-map-keys").is_empty() && list.text() != "map" {
        let reason = if list.exists() { Reason::Invalid } else { Reason::Required };
        list.complain(reason, "must be map if x-kubernetes-list-map-keys is non-empty", errors);
    }
    if list.text() == "map" {
        map_items(schema, errors);
    }
    if matches!(list.text(), "set" | "map") && items.get("nullable").bool() {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {}", list.text());
        items.get("nullable").forbidden(detail, errors);
    }
}

fn set_items(items: &Field<'_>, errors: &mut Errors) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list = items.get("x-kubernetes-list-type");
    let map = items.get("x-kubernetes-map-type");
    match items.get("type").text() {
        "array" if list.exists() && list.text() != "atomic" => list.invalid(detail, errors),
        "object" if map.text() != "atomic" => map.invalid(detail, errors),
        _ => {}
    }
}

fn map_items(schema: &Field<'_>, errors: &mut Errors) {
    let keys = schema.get("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        keys.complain(Reason::Required, "must not be empty if x-kubernetes-list-type is map", errors);
    }
    let items = schema.get("items");
    if !items.exists() {
        items.complain(Reason::Required, "must have a schema if x-kubernetes-list-type is map", errors);
        return;
    }
    if items.get("type").text() != "object" {
        items.get("type").invalid("must be object if parent array's x-kubernetes-list-type is map", errors);
        return;
    }
    let properties = items.get("properties");
    let required = items.get("required");
    let mut seen = Vec::new();
    for key in keys.items().filter_map(|key| key.str()) {
        let property = properties.key(key);
        if !property.exists() {
            keys.invalid("entries must all be names of item properties", errors);
        } else if matches!(property.get("type").text(), "array" | "object") {
            property
                .get("type")
                .invalid("must be a scalar type if parent array's x-kubernetes-list-type is map", errors);
        }
        if seen.contains(&key) {
            keys.invalid("must not contain duplicate entries", errors);
        }
        seen.push(key);
        let is_required = required.items().any(|name| name.str() == Some(key));
        if property.exists() && !is_required && !property.get("default").exists() {
            property.get("default").complain(
                Reason::Required,
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                errors,
            );
        }
        if property.get("nullable").bool() {
            property.get("nullable").forbidden(
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
                errors,
            );
        }
    }
}

/// What a rule may give as the reason of its complaints.
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

fn cel_rules(schema: &Field<'_>, errors: &mut Errors) {
    for rule in schema.get("x-kubernetes-validations").items() {
        let message = rule.get("message");
        if rule.get("rule").text().trim().is_empty() {
            rule.get("rule").complain(Reason::Required, "rule is not specified", errors);
        } else if !message.text().is_empty() && message.text().trim().is_empty() {
            message.invalid("must be non-empty if specified", errors);
        } else if message.text().trim().contains(['\n', '\r']) {
            message.invalid("must not contain line breaks", errors);
        } else if rule.get("rule").text().trim().contains(['\n', '\r']) && message.text().trim().is_empty() {
            message.complain(
                Reason::Required,
                "message must be specified if rule contains line breaks",
                errors,
            );
        }
        let expression = rule.get("messageExpression");
        if !expression.text().is_empty() && expression.text().trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            expression.complain(Reason::Required, detail, errors);
        }
        rule.get("reason").one_of(&REASONS, errors);
        let path = rule.get("fieldPath");
        if path.text().is_empty() {
            continue;
        }
        if path.text().trim().is_empty() {
            path.invalid("must be non-empty if specified", errors);
        }
        if path.text().contains(['\n', '\r']) {
            path.invalid("must not contain line breaks", errors);
        }
        if field_path(path.text(), &Structural::compile(schema.value())).is_none() {
            path.invalid("must be a valid path", errors);
        }
    }
}
