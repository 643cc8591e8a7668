//! What the schema in a definition may look like: structural, and nothing that cannot be served.
//!
//! Two walks, as upstream has them. The one here looks at the form: every field is specified once, outside of
//! `allOf`, `anyOf`, `oneOf` and `not`, and those only restrict values. [`keywords`] looks at what each node says.
//! Both look at the JSON as it was given, since it is complained about by its paths.

use super::regexp::Pattern;
use super::structural::Structural;
use super::{check, keywords, shape, validations};
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
    keywords::validate(schema, errors);
    if formed && errors.is_empty() {
        let compiled = Structural::compile(schema.value());
        validations::check_definition(schema, &compiled, true, None, errors);
    }
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

/// The types that a schema may name.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

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
    if !ty.text().is_empty() {
        ty.one_of(&TYPES, errors);
    }
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
    if !pattern.text().is_empty()
        && let Some(reason) = Pattern::new(pattern.text()).error()
    {
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
        if complaints.is_empty() {
            validations::check_object(&compiled, default.value(), None, &mut complaints);
        }
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
