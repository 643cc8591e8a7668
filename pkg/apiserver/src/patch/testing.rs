//! What the tests of patches share: schemas of built-in kinds, and arbitrary JSON.

use api::Schema;
use api::schema::raw_definitions_of;
use proptest::prelude::*;
use schemars::JsonSchema;
use serde_json::{Map, Value};

/// The schema of a type with our facts, self-contained: it does not depend on which kinds are served.
pub(super) fn schema_of<T: JsonSchema>() -> Schema {
    let definitions = raw_definitions_of(|generator| {
        generator.subschema_for::<T>();
    });
    Schema::from_json(&inlined(&definitions[&*T::schema_name()], &definitions, 0))
}

/// Puts definitions in the place of references. Recursive ones end where they get deep.
fn inlined(schema: &Value, definitions: &Map<String, Value>, depth: usize) -> Value {
    let Value::Object(members) = schema else { return schema.clone() };
    let mut result = Map::new();
    let target = members.get("$ref").or_else(|| members.get("allOf")?.get(0)?.get("$ref"));
    if let Some(name) = target.and_then(Value::as_str).and_then(|target| target.rsplit('/').next())
        && depth < 64
        && let Value::Object(target) = inlined(&definitions[name], definitions, depth + 1)
    {
        result = target;
    }
    for (name, member) in
        members.iter().filter(|(name, _)| !matches!(name.as_str(), "$ref" | "allOf" | "description"))
    {
        let member = match name.as_str() {
            "properties" => member
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), inlined(schema, definitions, depth + 1)))
                .collect::<Map<_, _>>()
                .into(),
            "items" | "additionalProperties" => inlined(member, definitions, depth + 1),
            _ => member.clone(),
        };
        result.insert(name.clone(), member);
    }
    Value::Object(result)
}

/// Any JSON, small enough to shrink well.
pub(super) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            members(inner).prop_map(Value::Object),
        ]
    })
}

/// Any JSON object.
pub(super) fn object() -> impl Strategy<Value = Value> {
    members(json()).prop_map(Value::Object)
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("[a-c]{1,2}", value, 0..4).prop_map(|members| members.into_iter().collect())
}
