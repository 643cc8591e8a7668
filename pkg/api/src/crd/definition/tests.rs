use super::*;
use crate::field::FieldError;
use serde_json::json;

fn faults(versions: Value) -> Vec<String> {
    let definition = json!({"spec": {"versions": versions}});
    let mut errors = Errors::new();
    validate_schemas(&Field::root(&definition).get("spec"), &mut errors);
    errors.into_vec().iter().map(FieldError::to_string).collect()
}

/// A version with a schema.
fn version(name: &str, schema: Value) -> Value {
    json!({"name": name, "schema": {"openAPIV3Schema": schema}})
}

/// Complaints about the schema of the only version, without the path of the schema itself.
#[track_caller]
fn check_schema(schema: Value, expected: &[&str]) {
    let found = faults(json!([version("v1", schema)]));
    let short: Vec<String> =
        found.iter().map(|fault| fault.replace("spec.validation.openAPIV3Schema", "S")).collect();
    assert_eq!(short, expected);
}

#[test]
fn schemas_that_differ_are_complained_about_by_version() {
    let good = json!({"type": "object"});
    assert_eq!(
        faults(json!([version("v1", good.clone()), version("v2", json!({"type": "string"}))])),
        [
            r#"spec.versions[1].schema.openAPIV3Schema.type: Invalid value: "string": must be object at the root"#
        ]
    );
    let bad = json!({"type": "string"});
    assert_eq!(
        faults(json!([version("v1", bad.clone()), version("v2", bad)])),
        [r#"spec.validation.openAPIV3Schema.type: Invalid value: "string": must be object at the root"#]
    );
    assert_eq!(faults(json!([version("v1", good), {"name": "v2"}])), Vec::<String>::new());
}

#[test]
fn the_root_beside_a_status_is_a_plain_object() {
    let mut with_status = version("v1", json!({"type": "object", "maxProperties": 3}));
    with_status["subresources"] = json!({"status": {}});
    let found = faults(json!([with_status]));
    assert!(
        found[0]
            .contains("fields are allowed at the root of the schema if the status subresource is enabled")
    );
    assert_eq!(found.len(), 1);
}

#[test]
fn fields_to_select_by_are_scalars_of_the_schema() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "color": {"type": "string"}, "list": {"type": "array", "items": {"type": "string"}}}}}});
    let mut version = version("v1", schema);
    version["selectableFields"] = json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.none"}, {"jsonPath": ".spec.list"}, {"jsonPath": ".spec.color"}]);
    assert_eq!(
        faults(json!([version])),
        [
            r#"spec.selectableFields[1].jsonPath: Invalid value: ".spec.none": is an invalid path: does not refer to a valid field"#,
            r#"spec.selectableFields[2].jsonPath: Invalid value: ".spec.list": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."#,
            r#"spec.selectableFields[3].jsonPath: Duplicate value: ".spec.color""#,
        ]
    );
}

#[test]
fn schemas_are_structural() {
    check_schema(json!({}), &["S.type: Required value: must not be empty at the root"]);
    check_schema(
        json!({"type": "string"}),
        &[r#"S.type: Invalid value: "string": must be object at the root"#],
    );
    check_schema(
        json!({"type": "object", "properties": {"a": {}, "b": {"type": "array"}, "c": {"type": "array", "items": {}}}}),
        &[
            "S.properties[a].type: Required value: must not be empty for specified object fields",
            "S.properties[b].items: Required value: must be specified",
            "S.properties[c].items.type: Required value: must not be empty for specified array items",
        ],
    );
    check_schema(
        json!({"type": "object", "oneOf": [
            {"properties": {"b": {"type": "string"}}, "required": ["b"]}, {"description": "x"}]}),
        &[
            "S.oneOf[0].properties[b].type: Forbidden: must be empty to be structural",
            "S.oneOf[1].description: Forbidden: must be empty to be structural",
            "S.properties[b]: Required value: because it is defined in S.oneOf[0].properties[b]",
        ],
    );
    check_schema(
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
        &[
            "S.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but \
           metadata is implicitly specified",
        ],
    );
    check_schema(
        json!({"type": "object", "properties": {
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}},
            "free": {"x-kubernetes-preserve-unknown-fields": true}}}),
        &[],
    );
}

#[test]
fn keywords_are_those_that_can_be_served() {
    check_schema(
        json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}},
            "additionalProperties": {"type": "string"}}}}),
        &[
            "S.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ],
    );
    check_schema(
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(", "$ref": "x"}}}),
        &[
            r#"S.properties[a].pattern: Invalid value: "(": must be a valid regular expression, but isn't: unclosed group"#,
            "S.properties[a].$ref: Forbidden: $ref is not supported",
        ],
    );
    check_schema(
        json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}),
        &["S.properties[a].items.properties[k].default: Required value: this property is in \
           x-kubernetes-list-map-keys, so it must have a default or be a required property"],
    );
    check_schema(
        json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"},
            "b": {"type": "object", "default": {"c": 1}}}}),
        &[
            r#"S.properties[a].default: Invalid value: "string":  in body must be of type integer: "string""#,
            r#"S.properties[b].default: Invalid value: {"c":1}: must not have unknown fields"#,
        ],
    );
}

#[test]
fn what_is_not_evaluated_is_said() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "format": "colour",
        "x-kubernetes-validations": [{"rule": "self != ''"}, {"rule": "isIP(self)"}]}}});
    let versions = json!([version("v1", schema)]);
    assert_eq!(faults(versions.clone()), Vec::<String>::new());
    let definition = json!({"spec": {"versions": versions}});
    assert_eq!(
        warnings(&definition),
        [
            "unrecognized format \"colour\"",
            "spec.versions[0].schema.openAPIV3Schema: 1 x-kubernetes-validations rules are stored but not evaluated by \
             this server, which does not have their function isIP"
        ]
    );
}
