//! The v2 document in gnostic's protobuf (`openapi.v2.Document`), which kubectl and client-go ask for.
//!
//! Each message is a table of its members: name in JSON, number in protobuf, form. Members that begin with `x-` go
//! where the message keeps extensions; others that the table does not have are left out.

use serde_json::Value;

/// Encodes a Swagger document.
pub(super) fn encode(swagger: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    document(swagger, &mut out);
    out
}

/// Writes the members of one message.
type Message = fn(&Value, &mut Vec<u8>);

/// How a member is written.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Texts,
    Bool,
    Int,
    Double,
    /// Any JSON, as text.
    Any,
    /// A list of any JSON.
    Anys,
    One(Message),
    Many(Message),
}

type Table = &'static [(&'static str, u32, Form)];

fn document(value: &Value, out: &mut Vec<u8>) {
    const TABLE: Table = &[
        ("swagger", 1, Form::Text),
        ("info", 2, Form::One(info)),
        ("paths", 8, Form::One(paths)),
        ("definitions", 9, Form::One(schemas)),
        ("security", 12, Form::Many(security)),
        ("securityDefinitions", 13, Form::One(security_definitions)),
    ];
    members(value, TABLE, 16, out);
}

fn info(value: &Value, out: &mut Vec<u8>) {
    members(
        value,
        &[("title", 1, Form::Text), ("version", 2, Form::Text), ("description", 3, Form::Text)],
        7,
        out,
    );
}

fn paths(value: &Value, out: &mut Vec<u8>) {
    named(value, 2, path_item, out);
}

fn path_item(value: &Value, out: &mut Vec<u8>) {
    const TABLE: Table = &[
        ("get", 2, Form::One(operation)),
        ("put", 3, Form::One(operation)),
        ("post", 4, Form::One(operation)),
        ("delete", 5, Form::One(operation)),
        ("options", 6, Form::One(operation)),
        ("head", 7, Form::One(operation)),
        ("patch", 8, Form::One(operation)),
        ("parameters", 9, Form::Many(parameters_item)),
    ];
    members(value, TABLE, 10, out);
}

fn operation(value: &Value, out: &mut Vec<u8>) {
    const TABLE: Table = &[
        ("tags", 1, Form::Texts),
        ("summary", 2, Form::Text),
        ("description", 3, Form::Text),
        ("operationId", 5, Form::Text),
        ("produces", 6, Form::Texts),
        ("consumes", 7, Form::Texts),
        ("parameters", 8, Form::Many(parameters_item)),
        ("responses", 9, Form::One(responses)),
        ("schemes", 10, Form::Texts),
        ("deprecated", 11, Form::Bool),
    ];
    members(value, TABLE, 13, out);
}

/// `ParametersItem { Parameter { body or not { query or path } } }`.
fn parameters_item(value: &Value, out: &mut Vec<u8>) {
    message(1, out, |out| match value["in"].as_str() {
        Some("body") => message(1, out, |out| body_parameter(value, out)),
        Some("path") => message(2, out, |out| message(4, out, |out| path_parameter(value, out))),
        _ => message(2, out, |out| message(3, out, |out| query_parameter(value, out))),
    });
}

fn body_parameter(value: &Value, out: &mut Vec<u8>) {
    const TABLE: Table = &[
        ("description", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("required", 4, Form::Bool),
        ("schema", 5, Form::One(schema)),
    ];
    members(value, TABLE, 6, out);
}

fn path_parameter(value: &Value, out: &mut Vec<u8>) {
    const TABLE: Table = &[
        ("required", 1, Form::Bool),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 5, Form::Text),
        ("format", 6, Form::Text),
        ("uniqueItems", 19, Form::Bool),
    ];
    members(value, TABLE, 22, out);
}

fn query_parameter(value: &Value, out: &mut Vec<u8>) {
    const TABLE: Table = &[
        ("required", 1, Form::Bool),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 6, Form::Text),
        ("format", 7, Form::Text),
        ("uniqueItems", 20, Form::Bool),
    ];
    members(value, TABLE, 23, out);
}

fn responses(value: &Value, out: &mut Vec<u8>) {
    named(value, 1, |value, out| message(1, out, |out| response(value, out)), out);
}

fn response(value: &Value, out: &mut Vec<u8>) {
    const TABLE: Table = &[("description", 1, Form::Text), ("schema", 2, Form::One(schema_item))];
    members(value, TABLE, 5, out);
}

fn schema_item(value: &Value, out: &mut Vec<u8>) {
    message(1, out, |out| schema(value, out));
}

fn schemas(value: &Value, out: &mut Vec<u8>) {
    named(value, 1, schema, out);
}

fn schema(value: &Value, out: &mut Vec<u8>) {
    const TABLE: Table = &[
        ("$ref", 1, Form::Text),
        ("format", 2, Form::Text),
        ("title", 3, Form::Text),
        ("description", 4, Form::Text),
        ("default", 5, Form::Any),
        ("multipleOf", 6, Form::Double),
        ("maximum", 7, Form::Double),
        ("exclusiveMaximum", 8, Form::Bool),
        ("minimum", 9, Form::Double),
        ("exclusiveMinimum", 10, Form::Bool),
        ("maxLength", 11, Form::Int),
        ("minLength", 12, Form::Int),
        ("pattern", 13, Form::Text),
        ("maxItems", 14, Form::Int),
        ("minItems", 15, Form::Int),
        ("uniqueItems", 16, Form::Bool),
        ("maxProperties", 17, Form::Int),
        ("minProperties", 18, Form::Int),
        ("required", 19, Form::Texts),
        ("enum", 20, Form::Anys),
        ("additionalProperties", 21, Form::One(additional_properties)),
        ("type", 22, Form::One(type_item)),
        ("items", 23, Form::One(items_item)),
        ("properties", 25, Form::One(schemas)),
        ("example", 30, Form::Any),
    ];
    members(value, TABLE, 31, out);
}

fn additional_properties(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Bool(allowed) => number(2, u64::from(*allowed), out),
        _ => message(1, out, |out| schema(value, out)),
    }
}

fn type_item(value: &Value, out: &mut Vec<u8>) {
    write(value, 1, Form::Text, out);
}

fn items_item(value: &Value, out: &mut Vec<u8>) {
    message(1, out, |out| schema(value, out));
}

fn security(value: &Value, out: &mut Vec<u8>) {
    named(value, 1, |scopes, out| write(scopes, 1, Form::Texts, out), out);
}

fn security_definitions(value: &Value, out: &mut Vec<u8>) {
    named(value, 1, |value, out| message(2, out, |out| api_key(value, out)), out);
}

fn api_key(value: &Value, out: &mut Vec<u8>) {
    const TABLE: Table = &[
        ("type", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("description", 4, Form::Text),
    ];
    members(value, TABLE, 5, out);
}

/// Writes the members that the table has, and extensions as the field of that number.
fn members(value: &Value, table: Table, extensions: u32, out: &mut Vec<u8>) {
    for (name, member) in value.as_object().into_iter().flatten() {
        if name.starts_with("x-") {
            message(extensions, out, |out| {
                text(1, name, out);
                message(2, out, |out| any(member, out));
            });
        } else if let Some((_, field, form)) = table.iter().find(|(known, ..)| known == name) {
            write(member, *field, *form, out);
        }
    }
}

/// Writes a map: a repeated field of names and messages.
fn named(value: &Value, field: u32, of: Message, out: &mut Vec<u8>) {
    for (name, member) in value.as_object().into_iter().flatten() {
        message(field, out, |out| {
            text(1, name, out);
            message(2, out, |out| of(member, out));
        });
    }
}

fn write(value: &Value, field: u32, form: Form, out: &mut Vec<u8>) {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    match form {
        Form::Text => text(field, value.as_str().unwrap_or_default(), out),
        Form::Texts => list.iter().filter_map(Value::as_str).for_each(|item| text(field, item, out)),
        Form::Bool => number(field, u64::from(value.as_bool().unwrap_or(false)), out),
        Form::Int => number(field, value.as_i64().unwrap_or_default().cast_unsigned(), out),
        Form::Double => {
            varint(u64::from(field << 3 | 1), out);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Form::Any => message(field, out, |out| any(value, out)),
        Form::Anys => list.iter().for_each(|item| message(field, out, |out| any(item, out))),
        Form::One(of) => message(field, out, |out| of(value, out)),
        Form::Many(of) => list.iter().for_each(|item| message(field, out, |out| of(item, out))),
    }
}

/// `Any { yaml }`: JSON is YAML.
fn any(value: &Value, out: &mut Vec<u8>) {
    text(2, &value.to_string(), out);
}

fn text(field: u32, text: &str, out: &mut Vec<u8>) {
    varint(u64::from(field << 3 | 2), out);
    varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    varint(u64::from(field << 3), out);
    varint(value, out);
}

/// Writes what `fill` writes as one field; its length comes first, so it is filled apart.
fn message(field: u32, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    varint(u64::from(field << 3 | 2), out);
    varint(inner.len() as u64, out);
    out.extend_from_slice(&inner);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_written_field_by_field() {
        let mut out = Vec::new();
        schema(&json!({"type": "string", "maxLength": 300, "x-a": true}), &mut out);
        let expected: Vec<u8> = [
            &[11 << 3, 0xac, 0x02][..], // maxLength: 300
            &[0xb2, 0x01, 8, 0x0a, 6],  // type: TypeItem { "string" }
            b"string",
            &[0xfa, 0x01, 13, 0x0a, 3], // vendor_extension: NamedAny { "x-a", …
            b"x-a",
            &[0x12, 6, 0x12, 4], // … Any { yaml: "true" } }
            b"true",
        ]
        .concat();
        assert_eq!(out, expected);
    }
}
