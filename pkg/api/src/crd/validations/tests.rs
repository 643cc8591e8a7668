use super::*;
use crate::crd::validate_schemas;
use crate::kind::CustomSchema;
use serde_json::json;

/// A schema with rules in `spec.a`; the rule's text alone stands for a rule.
fn with_rules(mut node: Value, rules: &Value) -> Value {
    node["x-kubernetes-validations"] = match rules {
        Value::String(_) => json!([{"rule": rules}]),
        rules => rules.clone(),
    };
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": node}}}})
}

#[track_caller]
fn check_schema(schema: Value, object: Value, old: Option<Value>, expected: &[&str]) {
    let mut errors = Errors::new();
    CustomSchema::new(schema).validate(&object, old.as_ref(), &mut errors);
    let found: Vec<String> = errors.into_vec().iter().map(FieldError::to_string).collect();
    assert_eq!(found, expected);
}

#[track_caller]
fn check(node: Value, rules: Value, value: Value, old: Option<Value>, expected: &[&str]) {
    let wrap = |value: Value| json!({"spec": {"a": value}});
    check_schema(with_rules(node, &rules), wrap(value), old.map(wrap), expected);
}

/// Rules that hold of a value.
#[track_caller]
fn hold(node: Value, value: Value, rules: &[&str]) {
    for rule in rules {
        assert_eq!(refusals(with_rules(node.clone(), &json!(rule))), Vec::<String>::new(), "{rule}");
        check(node.clone(), json!(rule), value.clone(), None, &[]);
    }
}

fn refusals(schema: Value) -> Vec<String> {
    let spec = json!({"versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}}]});
    let mut errors = Errors::new();
    validate_schemas(&Field::root(&spec), &mut errors);
    errors.into_vec().iter().map(|e| e.to_string().replace("validation.openAPIV3Schema", "S")).collect()
}

#[track_caller]
fn refused(node: Value, rules: Value, expected: &[&str]) {
    assert_eq!(refusals(with_rules(node, &rules)), expected);
}

fn integer() -> Value {
    json!({"type": "integer"})
}

#[test]
fn a_broken_rule_is_complained_about_where_it_stands() {
    check(integer(), json!("self > 1"), json!(2), None, &[]);
    check(integer(), json!("self > 1"), json!(1), None, &["spec.a: Invalid value: 1: failed rule: self > 1"]);
    let object = json!({"type": "object", "properties": {"x": integer(), "y": integer()}});
    check(
        object.clone(),
        json!(" self.x < self.y "),
        json!({"x": 2, "y": 1}),
        None,
        &["spec.a: Invalid value: failed rule: self.x < self.y"],
    );
    check(
        object,
        json!("self.x < self.y"),
        json!({"x": 2}),
        None,
        &[r#"spec.a: Invalid value: "object": no such key: y evaluating rule: self.x < self.y"#],
    );
    let below = |node: Value| {
        json!({"type": "object", "properties": {"list": {"type": "array", "items": node.clone()},
            "map": {"type": "object", "additionalProperties": node}}})
    };
    let node = json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.startsWith('a')"}]});
    check_schema(
        below(node),
        json!({"list": ["a", "b"], "map": {"k": "c", "l": "a"}}),
        None,
        &[
            r#"list[1]: Invalid value: "b": failed rule: self.startsWith('a')"#,
            r#"map[k]: Invalid value: "c": failed rule: self.startsWith('a')"#,
        ],
    );
    // A null is nobody's to check but its parent's.
    check(json!({"type": "integer", "nullable": true}), json!("self > 1"), Value::Null, None, &[]);
}

#[test]
fn the_root_knows_its_names_and_no_other_metadata() {
    let schema = |rule: &str| json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
    let object =
        json!({"apiVersion": "g/v1", "kind": "Kind", "metadata": {"name": "web", "labels": {"a": "b"}}});
    check_schema(
        schema("self.metadata.name == 'db' || self.kind == 'Other'"),
        object.clone(),
        None,
        &["<nil>: Invalid value: failed rule: self.metadata.name == 'db' || self.kind == 'Other'"],
    );
    check_schema(schema("size(self.metadata) == 1 && self.apiVersion == 'g/v1'"), object, None, &[]);
    let found = refusals(schema("has(self.metadata.labels)"));
    assert!(found[0].contains("undefined field 'labels'"), "{found:?}");
}

#[test]
fn messages_reasons_and_paths() {
    let object = json!({"type": "object", "properties": {"x": integer(), "b.c": integer()}});
    let value = json!({"x": 1, "b.c": 2});
    for (rule, expected) in [
        (json!({"rule": "self.x > 1", "message": " too small "}), "spec.a: Invalid value: too small"),
        (
            json!({"rule": "self.x > 1", "message": "m", "messageExpression": "'x is ' + string(self.x)"}),
            "spec.a: Invalid value: x is 1",
        ),
        (
            json!({"rule": "self.x > 1", "message": "m", "messageExpression": "''"}),
            "spec.a: Invalid value: m",
        ),
        (
            json!({"rule": "self.x > 1", "messageExpression": "string(1 / 0)"}),
            "spec.a: Invalid value: failed rule: self.x > 1",
        ),
        (
            json!({"rule": "self.x > 1", "reason": "FieldValueForbidden", "fieldPath": ".x"}),
            "spec.a.x: Forbidden: failed rule: self.x > 1",
        ),
        (
            json!({"rule": "self.x > 1", "reason": "FieldValueRequired", "fieldPath": "['b.c']"}),
            "spec.a.b.c: Required value: failed rule: self.x > 1",
        ),
        (json!({"rule": "self.x > 1", "reason": "FieldValueDuplicate"}), "spec.a: Duplicate value"),
    ] {
        assert_eq!(refusals(with_rules(object.clone(), &json!([rule]))), Vec::<String>::new(), "{rule}");
        check(object.clone(), json!([rule]), value.clone(), None, &[expected]);
    }
    let map = json!({"type": "object", "additionalProperties": integer()});
    let rule = json!([{"rule": "self['k'] > 1", "fieldPath": ".k"}]);
    check(map, rule, json!({"k": 1}), None, &["spec.a.[k]: Invalid value: failed rule: self['k'] > 1"]);
}

#[test]
fn changes_are_checked_where_the_past_is_known() {
    let rule = json!("self >= oldSelf");
    check(integer(), rule.clone(), json!(1), None, &[]);
    check(integer(), rule.clone(), json!(2), Some(json!(1)), &[]);
    check(
        integer(),
        rule,
        json!(1),
        Some(json!(2)),
        &["spec.a: Invalid value: 1: failed rule: self >= oldSelf"],
    );
    let optional = json!([{"rule": "oldSelf.hasValue() || self == 1", "optionalOldSelf": true}]);
    check(integer(), optional.clone(), json!(1), None, &[]);
    check(
        integer(),
        optional.clone(),
        json!(2),
        None,
        &["spec.a: Invalid value: 2: failed rule: oldSelf.hasValue() || self == 1"],
    );
    check(integer(), optional, json!(2), Some(json!(5)), &[]);
    let element = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"},
        "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]}}});
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": element});
    check(
        list,
        json!([]),
        json!([{"k": "new", "v": 3}, {"k": "old", "v": 2}]),
        Some(json!([{"k": "old", "v": 1}])),
        &["spec.a[1].v: Invalid value: 2: immutable"],
    );
}

#[test]
fn what_was_so_before_the_rule_came_is_let_be() {
    let object = json!({"type": "object", "properties": {"x": integer(), "y": integer()}});
    check(object.clone(), json!("self.x > 1"), json!({"x": 1}), Some(json!({"x": 1})), &[]);
    check(
        object,
        json!("self.x > 1"),
        json!({"x": 1, "y": 1}),
        Some(json!({"x": 1})),
        &["spec.a: Invalid value: failed rule: self.x > 1"],
    );
    check(
        integer(),
        json!("self != oldSelf"),
        json!(1),
        Some(json!(1)),
        &["spec.a: Invalid value: 1: failed rule: self != oldSelf"],
    );
}

#[test]
fn an_object_that_is_not_of_the_schema_is_not_shown_to_rules() {
    check(
        integer(),
        json!("self > 1"),
        json!("x"),
        None,
        &[
            r#"spec.a: Invalid value: "string": spec.a in body must be of type integer: "string""#,
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
             correct the existing errors to complete validation",
        ],
    );
}

#[test]
fn values_are_of_the_types_that_the_schema_gives() {
    hold(json!({"type": "number"}), json!(2), &["self / 4.0 == 0.5", "type(self) == double"]);
    hold(integer(), json!(2.0), &["self % 2 == 0", "type(self) == int"]);
    let either = json!({"x-kubernetes-int-or-string": true});
    hold(either.clone(), json!("50%"), &["type(self) == string ? self == '50%' : self == 50"]);
    hold(either.clone(), json!(50), &["type(self) == string ? self == '50%' : self == 50"]);
    check(
        either,
        json!("self > 5"),
        json!("50%"),
        None,
        &[
            "spec.a: Invalid value: \"\": 'no such overload': call arguments did not match a supported operator, function \
           or macro signature for rule: self > 5",
        ],
    );
    hold(json!({"type": "string", "format": "byte"}), json!("aGk="), &["self == b'hi'", "size(self) == 2"]);
    hold(
        json!({"type": "string", "format": "duration"}),
        json!("90m"),
        &[
            "self > duration('1h')",
            "self + duration('30m') == duration('2h')",
            "self.getHours() == 1",
            "string(self) == '5400s'",
        ],
    );
    hold(
        json!({"type": "string", "format": "date-time"}),
        json!("2024-02-01T12:00:00+02:00"),
        &[
            "self < timestamp('2024-02-01T11:00:00Z')",
            "string(self) == '2024-02-01T10:00:00Z' && int(self) == 1706781600",
            "self - duration('10h') == timestamp('2024-02-01T00:00:00Z')",
            "self.getFullYear() == 2024 && self.getMonth() == 1 && self.getDate() == 1 && self.getDayOfWeek() == 4",
        ],
    );
    hold(json!({"type": "string", "format": "date"}), json!("2024-02-01"), &["self.getDayOfYear() == 31"]);
    let names = json!({"type": "object", "properties": {"a-b": integer(), "a.b/c": integer(), "a__b": integer(),
        "if": integer(), "namespace": integer(), "_x": integer()}});
    hold(
        names,
        json!({"a-b": 1, "a.b/c": 2, "a__b": 3, "if": 4, "namespace": 5, "_x": 6}),
        &[
            "self.a__dash__b == 1 && self.a__dot__b__slash__c == 2 && self.a__underscores__b == 3 && self.__if__ == 4 \
           && self.__namespace__ == 5 && self._x == 6",
        ],
    );
    let map = json!({"type": "object", "additionalProperties": integer()});
    hold(map, json!({"a-b": 1}), &["self['a-b'] == 1", "self.all(k, k.startsWith('a') && self[k] < 2)"]);
}

#[test]
fn functions_that_kubernetes_adds() {
    let numbers = json!({"type": "array", "items": integer()});
    hold(
        numbers,
        json!([1, 2, 2]),
        &[
            "self.isSorted() && ![2, 1].isSorted()",
            "self.sum() == 5 && [].sum() == 0 && [0.5, 0.25].sum() == 0.75",
            "self.min() == 1 && self.max() == 2",
            "self.indexOf(2) == 1 && self.lastIndexOf(2) == 2 && self.indexOf(7) == -1",
            "sets.contains(self, [2]) && sets.equivalent(self, [2, 1]) && !sets.intersects(self, [7])",
            "self.map(x, x * 2).filter(x, x > 2).size() == 2",
            "self.exists_one(x, x == 1) && optional.of(self).hasValue() && lists.range(2) == [0, 1]",
        ],
    );
    hold(
        json!({"type": "string"}),
        json!("a1 b22"),
        &[
            "self.find('[0-9]+') == '1' && self.findAll('[0-9]+') == ['1', '22'] && self.findAll('[0-9]+', 1) == ['1']",
            r"self.matches('^\\w+ \\w+$') && matches(self, 'b') && !self.matches('^b')",
            "quantity('1.5Gi').isGreaterThan(quantity('1Gi')) && quantity('500m').compareTo(quantity('0.5')) == 0",
            "quantity('2').add(1).asInteger() == 3 && !isQuantity('x') && sign(quantity('-1')) == -1",
            "isURL('https://h:8080/p?q=1') && !isURL('h:/ x y:') || isURL('/p') && !isURL('nowhere')",
            "url('https://u@h.example:80/a b?x=1&x=2').getHost() == 'h.example:80'",
            "url('https://[::1]:80/a').getHostname() == '::1' && url('https://[::1]:80/a').getPort() == '80'",
            "url('https://h/a b').getEscapedPath() == '/a%20b' && url('/p?x=1&x=a+b').getQuery()['x'] == ['1', 'a b']",
        ],
    );
    check(
        json!({"type": "array", "items": integer()}),
        json!("self.min() > 0"),
        json!([]),
        None,
        &[r#"spec.a: Invalid value: "array": min called on empty list evaluating rule: self.min() > 0"#],
    );
}

#[test]
fn evaluation_ends() {
    let list = json!({"type": "array", "items": integer()});
    let many = json!(vec![1; 725]);
    let rule = "self.all(x, self.all(y, y == x))";
    let expected = format!(
        "spec.a: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation \
         rules will be run due to call cost exceeds limit for rule: {rule}"
    );
    check(list.clone(), json!([{"rule": rule}, {"rule": "false"}]), many, None, &[&expected]);
    check(list.clone(), json!(rule), json!(vec![1; 100]), None, &[]);
    // Neither does a text grow without bounds.
    let doubled = format!("['0123456789']{}.size() == 1", ".map(x, x + x)".repeat(60));
    let mut errors = Errors::new();
    let schema = CustomSchema::new(with_rules(list, &json!(doubled)));
    schema.validate(&json!({"spec": {"a": []}}), None, &mut errors);
    assert!(errors.as_slice()[0].to_string().contains("call cost exceeds limit"), "{errors:?}");
}

#[test]
fn definitions_with_wrong_rules_are_refused() {
    let shown = |rule: &str| {
        let rule = json!(rule).to_string().replace('>', "\\u003e").replace('&', "\\u0026");
        format!(
            r#"{{"Rule":{rule},"Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}}"#
        )
    };
    let object = json!({"type": "object", "properties": {"x": integer(), "s": {"type": "string"},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "l": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}});
    for (rule, why) in [
        (
            "self.z == 100",
            "compilation failed: ERROR: <input>:1:5: undefined field 'z'\n | self.z == 100\n | ....^",
        ),
        (
            "self.l.all(e, e.k != '' && e.q > 1)",
            "compilation failed: ERROR: <input>:1:29: undefined field 'q'\n | self.l.all(e, e.k != '' && e.q > 1)\n | \
             ............................^",
        ),
        (
            "has(self.any)",
            "compilation failed: ERROR: <input>:1:4: undefined field 'any'\n | has(self.any)\n | ...^",
        ),
        (
            "self.s.t == 1",
            "compilation failed: ERROR: <input>:1:7: type 'string' does not support field selection\n | self.s.t == 1\n \
             | ......^",
        ),
        (
            "this.x > 1",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'this' (in container '')\n | this.x > 1\n \
             | ^",
        ),
        (
            "self.l.size() > 'a'",
            "compilation failed: ERROR: <input>:1:15: found no matching overload for '_>_' applied to '(int, string)'\n \
             | self.l.size() > 'a'\n | ..............^",
        ),
        ("self.x", "cel expression must evaluate to a bool"),
        ("'x' + 'y'", "cel expression must evaluate to a bool"),
    ] {
        let path = "S.properties[spec].properties[a].x-kubernetes-validations[0].rule";
        refused(object.clone(), json!(rule), &[&format!("{path}: Invalid value: {}: {why}", shown(rule))]);
    }
    let found = refusals(with_rules(object, &json!("self = 42")));
    let drawn = "compilation failed: ERROR: <input>:1:6: Syntax error: token recognition error at: '= '\n | self = 42\n | \
                 .....^\nERROR: <input>:1:8: Syntax error: extraneous input '42' expecting <EOF>\n | self = 42\n | \
                 .......^";
    assert!(found[0].ends_with(drawn), "{found:?}");
}

#[test]
fn definitions_with_wrong_parts_of_rules_are_refused() {
    let place = "S.properties[spec].properties[a]";
    let at = |end: &str| format!("{place}.x-kubernetes-validations[0].{end}");
    for (rule, expected) in [
        (json!({"rule": " "}), at("rule: Required value: rule is not specified")),
        (
            json!({"rule": "true", "reason": "Because"}),
            at("reason: Unsupported value: \"Because\": supported values: \"FieldValueDuplicate\", \
                \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\""),
        ),
        (
            json!({"rule": "true", "fieldPath": ".nowhere"}),
            at("fieldPath: Invalid value: \".nowhere\": must be a valid path"),
        ),
        (
            json!({"rule": "true", "messageExpression": " "}),
            at("messageExpression: Required value: messageExpression must be non-empty if specified"),
        ),
        (
            json!({"rule": "true", "messageExpression": "1"}),
            at(
                r#"messageExpression: Invalid value: {"Rule":"true","Message":"","MessageExpression":"1","Reason":null,"FieldPath":"","OptionalOldSelf":null}: messageExpression must evaluate to a string"#,
            ),
        ),
        (
            json!({"rule": "true", "optionalOldSelf": true}),
            at("optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"),
        ),
    ] {
        refused(json!({"type": "object", "properties": {"x": integer()}}), json!([rule]), &[&expected]);
    }
    let list = |kind: &str| {
        json!({"type": "array", "x-kubernetes-list-type": kind, "items": {"type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}})
    };
    for kind in ["set", "atomic"] {
        refused(
            list(kind),
            json!([]),
            &[&format!(
                "{place}.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be \
                 used on the uncorrelatable portion of the schema within {place}"
            )],
        );
    }
    let default = json!({"type": "integer", "default": 1});
    refused(
        default,
        json!("self > 1"),
        &[&format!("{place}.default: Invalid value: 1: failed rule: self > 1")],
    );
}

#[test]
fn rules_with_functions_that_are_not_here_are_kept_and_not_evaluated() {
    let text = json!({"type": "string"});
    for rule in
        ["ip(self).family() == 4", "!format.dns1123Label().validate(self).hasValue()", "isSemver(self)"]
    {
        refused(text.clone(), json!(rule), &[]);
        check(text.clone(), json!(rule), json!("x"), None, &[]);
    }
}
