//! What the schema in a definition may look like: structural, and nothing that cannot be served.
//!
//! Two walks, as upstream has them. [`structural`] looks at the form: every field is specified once, outside of
//! `allOf`, `anyOf`, `oneOf` and `not`, and those only restrict values. [`openapi`] looks at each node's own
//! keywords. Both look at the JSON as it was given, since it is complained about by its paths.

use super::regexp::Pattern;
use super::structural::Structural;
use super::{check, shape};
use crate::field::{Errors, Field, FieldError, Reason};
use serde_json::Value;

/// Complains about the schema of one version. `status`: that version has a status of its own.
pub(super) fn validate(schema: &Field<'_>, status: bool, errors: &mut Errors) {
    if status {
        root_with_status(schema, errors);
    }
    if schema.get("nullable").bool() {
        schema.get("nullable").forbidden("nullable cannot be true at the root", errors);
    }
    let mut form = Errors::new();
    invariants(schema, Level::Root, &mut form);
    completeness(schema, schema, &mut form);
    let mut form = form.into_vec();
    form.sort_by_key(FieldError::to_string);
    let formed = form.is_empty();
    form.into_iter().for_each(|error| errors.push(error));
    openapi(schema, &Context { root: true, inside_meta: false, no_defaults: None }, errors);
    if formed && errors.is_empty() {
        defaults(schema, errors);
    }
}

/// Keywords that may stand at the root of a schema whose status is written apart, in upstream's (Go) spelling.
const ROOT_KEYWORDS: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

fn root_with_status(schema: &Field<'_>, errors: &mut Errors) {
    let type_field = schema.get("type");
    if type_field.exists() && type_field.text() != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        type_field.invalid(detail, errors);
        return;
    }
    let is_zero = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    let other = |(name, value): (&String, &Value)| {
        !is_zero(value) && !ROOT_KEYWORDS.iter().any(|(keyword, _)| keyword == name)
    };
    if schema.object().into_iter().flatten().any(other) {
        let allowed: Vec<&str> = ROOT_KEYWORDS.iter().map(|(_, go)| *go).collect();
        let list = allowed.join(" ");
        schema.invalid(
            format!("only [{list}] fields are allowed at the root of the schema if the status subresource is enabled"),
            errors,
        );
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What holds of every node that specifies a field.
fn invariants(schema: &Field<'_>, level: Level, errors: &mut Errors) {
    let ty = schema.get("type");
    let items = schema.get("items");
    if ty.text() == "array" && !items.exists() {
        items.complain(Reason::Required, "must be specified", errors);
    }
    if items.object().is_some() {
        invariants(&items, Level::Item, errors);
    }
    for (_, property) in schema.get("properties").entries() {
        invariants(&property, Level::Field, errors);
    }
    let additional = schema.get("additionalProperties");
    if additional.exists() {
        if level == Level::Root {
            additional.forbidden("must not be used at the root", errors);
        }
        if additional.object().is_some() {
            invariants(&additional, Level::Field, errors);
        }
    }
    extensions(schema, errors);
    let any_of = schema.get("anyOf");
    let first = schema.get("allOf").value().get(0).and_then(|first| first.get("anyOf"));
    value_validation(schema, is_int_or_string(any_of.value()), first.is_some_and(is_int_or_string), errors);
    node_type(schema, level, errors);
    metadata(schema, level, errors);
}

fn extensions(schema: &Field<'_>, errors: &mut Errors) {
    if !schema.get("x-kubernetes-int-or-string").bool() {
        return;
    }
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if schema.get(name).bool() {
            schema.get(name).invalid("must be false if x-kubernetes-int-or-string is true", errors);
        }
    }
}

fn node_type(schema: &Field<'_>, level: Level, errors: &mut Errors) {
    let ty = schema.get("type");
    let flag = |name: &'static str| schema.value().get(name).and_then(Value::as_bool).unwrap_or(false);
    let embedded = flag("x-kubernetes-embedded-resource");
    if embedded && ty.text() != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        ty.complain(if ty.text().is_empty() { Reason::Required } else { Reason::Invalid }, detail, errors);
    } else if ty.text().is_empty()
        && !flag("x-kubernetes-int-or-string")
        && !flag("x-kubernetes-preserve-unknown-fields")
    {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        ty.complain(Reason::Required, detail, errors);
    }
    if embedded {
        let additional = schema.get("additionalProperties");
        if additional.exists() {
            additional.forbidden("must not be used if x-kubernetes-embedded-resource is set", errors);
        }
        if !flag("x-kubernetes-preserve-unknown-fields") && schema.get("properties").is_empty() {
            schema.get("properties").complain(
                Reason::Required,
                "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
                errors,
            );
        }
    }
    if level == Level::Root && !ty.text().is_empty() && ty.text() != "object" {
        ty.invalid("must be object at the root", errors);
    }
}

/// What a schema may say of the members that all objects have.
fn metadata(schema: &Field<'_>, level: Level, errors: &mut Errors) {
    let resource = level == Level::Root || schema.get("x-kubernetes-embedded-resource").bool();
    let properties = schema.get("properties");
    for name in ["kind", "apiVersion"] {
        let property = properties.key(name);
        if resource && property.exists() && property.get("type").text() != "string" {
            property.get("type").invalid("must be string", errors);
        }
    }
    let metadata = properties.key("metadata");
    if !metadata.exists() {
        return;
    }
    if resource && metadata.get("type").text() != "object" {
        metadata.get("type").invalid("must be object", errors);
    }
    let names = metadata.get("properties");
    let only_names = names.entries().all(|(name, _)| matches!(name, "name" | "generateName"));
    let only_shape = metadata
        .object()
        .into_iter()
        .flatten()
        .all(|(keyword, _)| matches!(keyword.as_str(), "type" | "properties" | "default"));
    if level == Level::Root && !(only_names && only_shape) {
        metadata.forbidden(
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
            errors,
        );
    }
}

/// `anyOf: [{type: integer}, {type: string}]`: the one place where types may stand in alternatives.
fn is_int_or_string(any_of: &Value) -> bool {
    *any_of == serde_json::json!([{"type": "integer"}, {"type": "string"}])
}

fn value_validation(schema: &Field<'_>, skip_any_of: bool, skip_first_all_of: bool, errors: &mut Errors) {
    if !skip_any_of {
        for clause in schema.get("anyOf").items() {
            nested(&clause, false, errors);
        }
    }
    for (index, clause) in schema.get("allOf").items().enumerate() {
        nested(&clause, skip_first_all_of && index == 0, errors);
    }
    for clause in schema.get("oneOf").items() {
        nested(&clause, false, errors);
    }
    if schema.get("not").exists() {
        nested(&schema.get("not"), false, errors);
    }
    let pattern = schema.get("pattern");
    if let Some(reason) = Pattern::new(pattern.text()).error() {
        pattern.invalid(format!("must be a valid regular expression, but isn't: {reason}"), errors);
    }
}

/// What holds of a clause that only restricts values.
fn nested(clause: &Field<'_>, skip_any_of: bool, errors: &mut Errors) {
    value_validation(clause, skip_any_of, false, errors);
    if clause.get("items").object().is_some() {
        nested(&clause.get("items"), false, errors);
    }
    for (_, property) in clause.get("properties").entries() {
        nested(&property, false, errors);
    }
    const FORBIDDEN: [(&str, &str); 12] = [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
    ];
    for (name, must_be) in FORBIDDEN {
        let keyword = clause.get(name);
        let given = match must_be {
            "false" => keyword.bool(),
            "empty" => keyword.str().map_or(!keyword.is_empty(), |text| !text.is_empty()),
            _ => keyword.exists() && *keyword.value() != Value::Bool(false),
        };
        if given {
            keyword.forbidden(format!("must be {must_be} to be structural"), errors);
        }
    }
    if !clause.get("x-kubernetes-validations").is_empty() {
        clause.get("x-kubernetes-validations").forbidden("must be empty to be structural", errors);
    }
    if clause.get("properties").key("metadata").exists() {
        clause
            .get("properties")
            .key("metadata")
            .forbidden("must not be specified in a nested context", errors);
    }
}

/// Every field that a clause restricts is specified outside of it.
fn completeness(node: &Field<'_>, clauses_of: &Field<'_>, errors: &mut Errors) {
    if clauses_of.get("not").exists() {
        nested_completeness(node, &clauses_of.get("not"), errors);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for clause in clauses_of.get(name).items() {
            nested_completeness(node, &clause, errors);
        }
    }
}

fn nested_completeness(node: &Field<'_>, clause: &Field<'_>, errors: &mut Errors) {
    let because = |place: &Field<'_>| format!("because it is defined in {}", place.path());
    completeness(node, clause, errors);
    let items = clause.get("items");
    if items.exists() {
        if node.get("items").exists() {
            nested_completeness(&node.get("items"), &items, errors);
        } else {
            node.get("items").complain(Reason::Required, because(&items), errors);
        }
    }
    for (name, property) in clause.get("properties").entries() {
        let properties = node.get("properties");
        let specified = properties.key(name);
        if specified.exists() {
            nested_completeness(&specified, &property, errors);
        } else {
            specified.complain(Reason::Required, because(&property), errors);
        }
    }
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
    keywords(schema, context, errors);
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

fn keywords(schema: &Field<'_>, context: &Context, errors: &mut Errors) {
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
    }
}

/// Every default is what its schema says a value is.
fn defaults(schema: &Field<'_>, errors: &mut Errors) {
    let default = schema.get("default");
    if default.exists() {
        let compiled = Structural::compile(schema.value());
        let mut pruned = default.value().clone();
        shape::prune(&compiled, &mut pruned, false);
        if pruned != *default.value() {
            default.invalid("must not have unknown fields", errors);
        }
        let mut complaints = Errors::new();
        check::validate(&compiled, default.value(), None, &mut complaints);
        for complaint in complaints.into_vec() {
            let path = match (default.path(), complaint.path.as_str()) {
                (path, "") => path,
                (path, inner) => format!("{path}.{inner}"),
            };
            errors.push(FieldError { path, ..complaint });
        }
    }
    for (_, property) in schema.get("properties").entries() {
        defaults(&property, errors);
    }
    for name in ["items", "additionalProperties"] {
        if schema.get(name).object().is_some() {
            defaults(&schema.get(name), errors);
        }
    }
}
