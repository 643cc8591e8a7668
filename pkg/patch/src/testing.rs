//! What the tests of patches share: schemas of built-in kinds, and arbitrary JSON.

use api::Schema;
use api::schema::{raw_definitions_of, self_contained};
use proptest::prelude::*;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// The schema of a type with our facts, self-contained: it does not depend on which kinds are served.
pub(super) fn schema_of<T: JsonSchema>() -> Schema {
    let define: fn(&mut SchemaGenerator) = |generator| {
        generator.subschema_for::<T>();
    };
    let definitions = raw_definitions_of([define]);
    Schema::from_json(&self_contained(&T::schema_name(), &definitions))
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
