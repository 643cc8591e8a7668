use super::*;
use crate::field::FieldError;

/// A definition that is accepted as it is.
fn cron_tabs(schema: Value) -> Value {
    let mut definition = json!({
        "metadata": {"name": "crontabs.stable.example.com"},
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "crontabs", "kind": "CronTab"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    default(&mut definition);
    prepare(&mut definition, None);
    definition
}

fn faults(definition: &Value) -> Vec<String> {
    let mut errors = Errors::new();
    validate(&Field::root(definition), &mut errors);
    errors.into_vec().iter().map(FieldError::to_string).collect()
}

/// Complaints about a schema, without the path of the schema itself.
#[track_caller]
fn check_schema(schema: Value, expected: &[&str]) {
    let found = faults(&cron_tabs(schema));
    let short: Vec<String> =
        found.iter().map(|fault| fault.replace("spec.versions[0].schema.openAPIV3Schema", "S")).collect();
    assert_eq!(short, expected);
}

/// Complaints about a definition that `change` makes out of a good one.
#[track_caller]
fn check(change: impl FnOnce(&mut Value), expected: &[&str]) {
    let mut definition = cron_tabs(json!({"type": "object"}));
    change(&mut definition);
    assert_eq!(faults(&definition), expected);
}

#[test]
fn what_was_left_out_is_filled_in() {
    let definition = cron_tabs(json!({"type": "object"}));
    assert_eq!(
        definition["spec"]["names"],
        json!({"plural": "crontabs", "kind": "CronTab", "singular": "crontab", "listKind": "CronTabList"})
    );
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(faults(&definition), Vec::<String>::new());
}

#[test]
fn a_new_storage_version_is_added_to_the_stored_ones() {
    let old = cron_tabs(json!({"type": "object"}));
    let mut new = old.clone();
    new["spec"]["versions"][0]["storage"] = false.into();
    let second = json!({"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    new["spec"]["versions"].as_array_mut().unwrap().push(second);
    new["status"] = json!({"storedVersions": ["tampered"]});
    prepare(&mut new, Some(&old));
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(faults(&new), Vec::<String>::new());
    new["spec"]["versions"].as_array_mut().unwrap().remove(0);
    assert!(faults(&new)[0].starts_with(
        "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version"
    ));
}

#[test]
fn names_and_versions() {
    check(
        |d| d["metadata"]["name"] = "x.y.z".into(),
        &[r#"metadata.name: Invalid value: "x.y.z": must be spec.names.plural+"."+spec.group"#],
    );
    check(
        |d| {
            d["spec"]["group"] = "example".into();
            d["metadata"]["name"] = "crontabs.example".into();
        },
        &[r#"spec.group: Invalid value: "example": should be a domain with at least one dot"#],
    );
    check(
        |d| d["spec"]["scope"] = "X".into(),
        &[r#"spec.scope: Unsupported value: "X": supported values: "Cluster", "Namespaced""#],
    );
    check(
        |d| d["spec"]["names"]["listKind"] = "CronTab".into(),
        &[r#"spec.names.listKind: Invalid value: "CronTab": kind and listKind may not be the same"#],
    );
    check(
        |d| d["spec"]["versions"][0]["schema"] = json!({}),
        &["spec.versions[0].schema.openAPIV3Schema: Required value"],
    );
    let mut two = cron_tabs(json!({"type": "object"}));
    let first = two["spec"]["versions"][0].clone();
    two["spec"]["versions"].as_array_mut().unwrap().push(first);
    let found = faults(&two);
    assert!(found[0].ends_with("must contain unique version names"));
    assert!(found[1].ends_with("must have exactly one version marked as storage version"));
    check(
        |d| {
            d["spec"]["group"] = "stable.k8s.io".into();
            d["metadata"]["name"] = "crontabs.stable.k8s.io".into();
        },
        &[
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval \
           annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
        ],
    );
}

#[test]
fn columns_scale_and_conversion() {
    check(
        |d| {
            d["spec"]["versions"][0]["additionalPrinterColumns"] =
                json!([{"name": "", "type": "text", "jsonPath": "spec"}]);
        },
        &[
            "spec.versions[0].additionalPrinterColumns[0].name: Required value",
            r#"spec.versions[0].additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string"#,
            r#"spec.versions[0].additionalPrinterColumns[0].jsonPath: Invalid value: "spec": must be a simple json path starting with ."#,
        ],
    );
    check(
        |d| {
            d["spec"]["versions"][0]["subresources"] =
                json!({"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": ""}});
        },
        &[
            r#"spec.versions[0].subresources.scale.specReplicasPath: Invalid value: ".status.x": should be a json path under .spec"#,
            "spec.versions[0].subresources.scale.statusReplicasPath: Required value",
        ],
    );
    check(
        |d| d["spec"]["conversion"] = json!({"strategy": "Webhook"}),
        &[
            "spec.conversion.webhook.clientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.webhook.conversionReviewVersions: Required value",
        ],
    );
    check(
        |d| d["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.none"}]),
        &[
            r#"spec.versions[0].selectableFields[0].jsonPath: Invalid value: ".spec.none": is an invalid path: does not refer to a valid field"#,
        ],
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
fn what_objects_are_stored_by_does_not_change() {
    let mut old = cron_tabs(json!({"type": "object"}));
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    let mut new = old.clone();
    new["spec"]["scope"] = "Cluster".into();
    new["spec"]["names"]["plural"] = "others".into();
    let mut errors = Errors::new();
    validate_update(&Field::root(&new), &Field::root(&old), &mut errors);
    let found: Vec<String> = errors.into_vec().iter().map(FieldError::to_string).collect();
    assert_eq!(
        found,
        [
            r#"spec.scope: Invalid value: "Cluster": field is immutable"#,
            r#"spec.names.plural: Invalid value: "others": field is immutable"#
        ]
    );
}

#[test]
fn what_is_not_evaluated_is_said() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "format": "colour",
        "x-kubernetes-validations": [{"rule": "self != ''"}]}}});
    let definition = cron_tabs(schema);
    assert_eq!(faults(&definition), Vec::<String>::new());
    assert_eq!(
        warnings(&definition),
        [
            "unrecognized format \"colour\"",
            "spec.versions[0].schema.openAPIV3Schema.properties[a].x-kubernetes-validations: CEL rules are stored \
             but not evaluated by this server"
        ]
    );
}
