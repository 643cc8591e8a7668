use super::*;
use proptest::prelude::*;

#[track_caller]
fn check(schema: Value, object: Value, expected: &[&str]) {
    check_update(schema, object, None, expected);
}

#[track_caller]
fn check_update(schema: Value, object: Value, old: Option<Value>, expected: &[&str]) {
    let schema = Structural::compile(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": schema}}}}),
    );
    let wrap = |value: Value| json!({"spec": {"a": value}});
    let mut errors = Errors::new();
    validate(&schema, &wrap(object), old.map(wrap).as_ref(), &mut errors);
    let found: Vec<String> = errors.into_vec().iter().map(FieldError::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn types_are_complained_about_as_upstream_does() {
    check(
        json!({"type": "integer"}),
        json!("x"),
        &[r#"spec.a: Invalid value: "string": spec.a in body must be of type integer: "string""#],
    );
    check(json!({"type": "integer"}), json!(1.0), &[]);
    check(json!({"type": "number"}), json!(1), &[]);
    check(json!({"type": "string", "nullable": true}), Value::Null, &[]);
    check(
        json!({"type": "string"}),
        Value::Null,
        &[r#"spec.a: Invalid value: "null": spec.a in body must be of type string: "null""#],
    );
    check(json!({"x-kubernetes-int-or-string": true}), json!("50%"), &[]);
    check(
        json!({"x-kubernetes-int-or-string": true}),
        json!(true),
        &[r#"spec.a: Invalid value: "boolean": spec.a in body must be of type integer,string: "boolean""#],
    );
}

#[test]
fn strings() {
    let schema = json!({"type": "string", "maxLength": 3, "minLength": 2, "pattern": "^[a-zé]+$"});
    check(schema.clone(), json!("ééé"), &[]);
    check(schema.clone(), json!("abcd"), &["spec.a: Too long: may not be more than 3 bytes"]);
    check(
        schema.clone(),
        json!("a"),
        &[r#"spec.a: Invalid value: "a": spec.a in body should be at least 2 chars long"#],
    );
    check(schema, json!("A1"), &[r#"spec.a: Invalid value: "A1": spec.a in body should match '^[a-zé]+$'"#]);
    check(
        json!({"type": "string", "format": "ipv4"}),
        json!("x"),
        &[r#"spec.a: Invalid value: "x": spec.a in body must be of type ipv4: "x""#],
    );
    check(
        json!({"type": "string", "enum": ["b", "a"]}),
        json!("c"),
        &[r#"spec.a: Unsupported value: "c": supported values: "b", "a""#],
    );
}

#[test]
fn numbers() {
    let schema =
        json!({"type": "integer", "minimum": 1, "maximum": 10, "exclusiveMaximum": true, "multipleOf": 3});
    check(schema.clone(), json!(9), &[]);
    check(
        schema.clone(),
        json!(0),
        &["spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1"],
    );
    check(
        schema,
        json!(10),
        &[
            "spec.a: Invalid value: 10: spec.a in body should be a multiple of 3",
            "spec.a: Invalid value: 10: spec.a in body should be less than 10",
        ],
    );
    check(json!({"type": "number", "multipleOf": 0.5}), json!(1.5), &[]);
}

#[test]
fn lists_and_maps() {
    check(
        json!({"type": "array", "maxItems": 1, "items": {"type": "integer"}}),
        json!([1, "x"]),
        &[
            r#"spec.a[1]: Invalid value: "string": spec.a[1] in body must be of type integer: "string""#,
            "spec.a: Too many: 2: must have at most 1 item",
        ],
    );
    check(
        json!({"type": "object", "minProperties": 2, "required": ["b"], "additionalProperties": {"type": "integer"}}),
        json!({"x.y": "s"}),
        &[
            "spec.a: Invalid value: 1: spec.a in body should have at least 2 properties",
            r#"spec.a.x.y: Invalid value: "string": spec.a.x.y in body must be of type integer: "string""#,
            "spec.a.b: Required value",
        ],
    );
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    check(set.clone(), json!(["a", "b", "a", "a"]), &[r#"spec.a[2]: Duplicate value: "a""#]);
    check_update(set, json!(["a", "a", "b"]), Some(json!(["a", "a"])), &[]);
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string"}}}});
    check(map, json!([{"k": "1"}, {"k": "1", "v": 2}]), &[r#"spec.a[1]: Duplicate value: {"k":"1"}"#]);
}

#[test]
fn alternatives() {
    let schema = json!({"type": "object", "oneOf": [{"required": ["b"]}, {"required": ["c"]}]});
    check(schema.clone(), json!({"b": 1}), &[]);
    check(
        schema.clone(),
        json!({}),
        &[
            r#"<nil>: Invalid value: "": "spec.a" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.a.b: Required value",
        ],
    );
    check(
        schema,
        json!({"b": 1, "c": 1}),
        &[
            r#"<nil>: Invalid value: "": "spec.a" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    check(
        json!({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}),
        json!(3),
        &[
            r#"<nil>: Invalid value: "": "spec.a" must validate at least one schema (anyOf)"#,
            "spec.a: Invalid value: 3: spec.a in body should be greater than or equal to 5",
        ],
    );
    check(
        json!({"type": "integer", "not": {"enum": [3]}}),
        json!(3),
        &[r#"<nil>: Invalid value: "": "spec.a" must not validate the schema (not)"#],
    );
    check(
        json!({"type": "integer", "allOf": [{"minimum": 5}, {"minimum": 1}]}),
        json!(3),
        &[
            "spec.a: Invalid value: 3: spec.a in body should be greater than or equal to 5",
            r#"<nil>: Invalid value: "": "spec.a" must validate all the schemas (allOf)"#,
        ],
    );
}

#[test]
fn what_is_unchanged_is_let_be() {
    let schema =
        json!({"type": "object", "properties": {"b": {"type": "integer"}, "c": {"type": "integer"}}});
    check_update(
        schema,
        json!({"b": "old", "c": "new"}),
        Some(json!({"b": "old", "c": 1})),
        &[r#"spec.a.c: Invalid value: "string": spec.a.c in body must be of type integer: "string""#],
    );
}

/// Schemas made of the keywords that the validator knows, with values that fit them or not.
fn any_schema() -> impl Strategy<Value = Value> {
    let keyword = prop_oneof![
        Just("type"),
        Just("format"),
        Just("enum"),
        Just("maximum"),
        Just("exclusiveMaximum"),
        Just("minimum"),
        Just("multipleOf"),
        Just("maxLength"),
        Just("minLength"),
        Just("pattern"),
        Just("maxItems"),
        Just("minItems"),
        Just("uniqueItems"),
        Just("required"),
        Just("properties"),
        Just("items"),
        Just("allOf"),
        Just("anyOf"),
        Just("not"),
        Just("additionalProperties"),
        Just("x-kubernetes-list-type"),
        Just("x-kubernetes-list-map-keys"),
        Just("default"),
        Just("nullable"),
        Just("a"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(json!(true)),
        Just(json!(0)),
        Just(json!(-1)),
        Just(json!(1.5)),
        Just(json!("object")),
        Just(json!("array")),
        Just(json!("string")),
        Just(json!("integer")),
        Just(json!("map")),
        Just(json!("set")),
        Just(json!("ipv4")),
        Just(json!("(a")),
    ];
    leaf.prop_recursive(5, 60, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keyword.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_schema_and_no_object_panic(schema in any_schema(), mut object in any_schema(), old in any_schema()) {
        let custom = crate::kind::CustomSchema::new(schema.clone());
        custom.prune(&mut object);
        custom.default(&mut object);
        custom.validate(&object, Some(&old), &mut Errors::new());
        let definition = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        crate::crd::validate_schemas(&crate::Field::root(&definition).get("spec"), &mut Errors::new());
        crate::crd::warnings(&definition);
    }
}
