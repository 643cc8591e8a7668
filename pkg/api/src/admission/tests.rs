use super::*;

/// What a policy with this `spec` says of a deployment with three replicas.
fn denials(spec: Value) -> Vec<(String, String)> {
    let object = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "names": ["a", "b"]}});
    let request = json!({"operation": "CREATE", "userInfo": {"username": "me", "groups": ["g"]}});
    let namespace = json!({"metadata": {"name": "n", "labels": {"env": "prod"}}});
    let params = json!({"most": 2});
    let given = [
        ("object", &object),
        ("oldObject", &Value::Null),
        ("request", &request),
        ("namespaceObject", &namespace),
        ("params", &params),
    ];
    let said = Program::compile(&spec).evaluate(&given);
    said.into_iter().map(|denial| (denial.message, denial.reason)).collect()
}

fn messages(spec: Value) -> Vec<String> {
    denials(spec).into_iter().map(|(message, _)| message).collect()
}

#[test]
fn what_is_demanded_holds_or_is_denied_in_upstreams_words() {
    let cases = [
        (json!({"expression": "object.spec.replicas <= 5"}), None),
        (
            json!({"expression": " object.spec.replicas <= 2 "}),
            Some("failed expression: object.spec.replicas <= 2"),
        ),
        (json!({"expression": "oldObject != null", "message": " not new "}), Some("not new")),
        (
            json!({"expression": "request.operation == 'DELETE'", "message": "m",
                "messageExpression": "'got ' + request.operation"}),
            Some("got CREATE"),
        ),
        // Text and number do not add up; lines and nothing cannot be shown.
        (
            json!({"expression": "false", "messageExpression": "'got ' + object.spec.replicas"}),
            Some("failed expression: false"),
        ),
        (json!({"expression": "false", "message": "m", "messageExpression": "'a\\nb'"}), Some("m")),
        (json!({"expression": "false", "message": "m", "messageExpression": "' '"}), Some("m")),
        (json!({"expression": "namespaceObject.metadata.labels.env == 'prod'"}), None),
        (
            json!({"expression": "object.spec.names.exists(n, n == 'b') && 'g' in request.userInfo.groups"}),
            None,
        ),
        (
            json!({"expression": "object.spec.none > 1"}),
            Some("expression 'object.spec.none > 1' resulted in error: no such key: none"),
        ),
        (json!({"expression": "params.most > 2"}), Some("compilation error: compilation failed: ERROR")),
    ];
    for (validation, expected) in cases {
        let said = messages(json!({"validations": [validation]}));
        let expected: Vec<&str> = expected.into_iter().collect();
        assert_eq!(said.len(), expected.len(), "{validation}: {said:?}");
        assert!(said.iter().zip(expected).all(|(said, expected)| said.starts_with(expected)), "{said:?}");
    }
    let reasons =
        json!({"validations": [{"expression": "false", "reason": "Forbidden"}, {"expression": "1 == 2"}]});
    let said: Vec<String> = denials(reasons).into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(said, ["Forbidden", ""]);
}

#[test]
fn parameters_are_there_where_a_policy_has_their_kind() {
    let spec =
        json!({"paramKind": {}, "validations": [{"expression": "object.spec.replicas <= params.most"}]});
    assert_eq!(messages(spec), ["failed expression: object.spec.replicas <= params.most"]);
}

#[test]
fn failures_are_ignored_where_a_policy_says_so() {
    let spec = json!({"failurePolicy": "Ignore",
        "validations": [{"expression": "object.none == 1"}, {"expression": "object.spec.replicas == 1"}],
        "auditAnnotations": [{"key": "k", "valueExpression": "object.none + ''"}]});
    assert_eq!(messages(spec), ["failed expression: object.spec.replicas == 1"]);
}

#[test]
fn variables_are_evaluated_when_they_are_named() {
    let spec = |validation: &str| {
        json!({
            "variables": [
                {"name": "replicas", "expression": "object.spec.replicas"},
                {"name": "odd", "expression": "variables.replicas % 2 == 1"},
                {"name": "broken", "expression": "object.none"},
                {"name": "above", "expression": "variables.broken + 1"},
            ],
            "validations": [{"expression": validation}],
        })
    };
    let broken = "composited variable \"broken\" fails to evaluate: no such key: none";
    for (validation, expected) in [
        ("variables.odd", None),
        ("variables.replicas > 1 && variables.odd", None),
        ("[1, 2].all(x, x < variables.replicas)", None),
        ("variables.odd || variables.broken", None),
        ("has(variables.replicas)", None),
        ("!variables.odd", Some("failed expression: !variables.odd".to_owned())),
        (
            "variables.broken > 1",
            Some(format!("expression 'variables.broken > 1' resulted in error: {broken}")),
        ),
        (
            "variables.above > 1",
            Some(format!(
                "expression 'variables.above > 1' resulted in error: composited variable \"above\" fails to evaluate: \
                 {broken}"
            )),
        ),
    ] {
        assert_eq!(messages(spec(validation)), Vec::from_iter(expected), "{validation}");
    }
}

#[test]
fn what_cannot_be_right_is_refused_when_it_is_written() {
    let mut compiler = Compiler::new(false, true);
    let first = compiler.variable("first", "object.spec.replicas + variables.later").map(|_| ());
    assert!(first.expect_err("it comes later").contains("undefined field 'later'"));
    compiler.variable("count", "size(object.items)").expect("it is right");
    compiler.variable("any", "object.spec").expect("it is right");
    for (text, wanted, expected) in [
        ("object.spec.replicas > 1", "bool", ""),
        ("variables.count > 1 && variables.first == 2", "bool", ""),
        ("object.spec.x", "bool", "must evaluate to bool but got dyn"),
        ("variables.any.x", "bool", "must evaluate to bool but got dyn"),
        ("variables.count", "bool", "must evaluate to bool but got int"),
        ("object.list.map(x, x)", "bool", "must evaluate to bool but got list(dyn)"),
        ("1 == 1", "string", "must evaluate to string but got bool"),
        ("'got ' + object.spec.replicas", "string", ""),
        ("request.name == 'x' && request.userInfo.username != 'y'", "bool", ""),
        (
            "request.names == 'x'",
            "bool",
            "compilation failed: ERROR: <input>:1:8: undefined field 'names'\n | request.names == 'x'\n | .......^",
        ),
        (
            "variables.none",
            "bool",
            "compilation failed: ERROR: <input>:1:10: undefined field 'none'\n | variables.none\n | .........^",
        ),
        (
            "size([variables]) == 1",
            "bool",
            "compilation failed: ERROR: <input>:1:7: undeclared reference to 'variables'",
        ),
        (
            "variables.count > 'a'",
            "bool",
            "compilation failed: ERROR: <input>:1:17: found no matching overload for '_>_' applied to '(int, string)'",
        ),
        ("params.x == 1", "bool", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'"),
        (
            "authorizer.path('/').check('get') == null",
            "bool",
            "compilation failed: ERROR: <input>:1:27: undeclared reference to 'check'",
        ),
        ("ip('1.2.3.4') == null", "bool", "compilation failed: undeclared reference to 'ip'"),
    ] {
        match compiler.expression(text, &[wanted]) {
            Ok(_) => assert_eq!(expected, "", "{text}"),
            Err(said) => assert!(!expected.is_empty() && said.starts_with(expected), "{text}\n{said}"),
        }
    }
    let said = compiler.expression("1", &["string", "null_type"]).map(|_| ());
    assert_eq!(said, Err("must evaluate to one of [string null_type] but got int".to_owned()));
}

#[test]
fn what_does_not_suit_the_types_of_a_kind_is_warned_of() {
    let kind = crate::kinds::all().iter().find(|kind| kind.kind == "Deployment").expect("it is built in");
    let kinds = [("apps/v1, Kind=Deployment".to_owned(), kind.schema())];
    let check = |expression: &str, expected: &str| {
        let spec = json!({
            "variables": [{"name": "replicas", "expression": "object.spec.replicas"}],
            "validations": [{"expression": expression}],
        });
        let said = type_check(&spec, &kinds, None);
        let said = said.first().map_or("", |warning| warning["warning"].as_str().expect("text"));
        assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{expression}: {said}");
    };
    check("object.spec.replicas > 1 && object.metadata.labels['a'] == 'b'", "");
    check(
        "object.spec.template.spec.containers.all(c, c.image.startsWith('x') && has(c.resources.limits))",
        "",
    );
    check("variables.replicas > 1 && object.metadata.creationTimestamp != null", "");
    check("object.spec.strategy.rollingUpdate.maxSurge == 1 || object.metadata.annotations.x == 'y'", "");
    check("object.spec.replicas > '1'", "found no matching overload for '_>_' applied to '(int, string)'");
    check("variables.replicas > '1'", "found no matching overload for '_>_' applied to '(int, string)'");
    check("'n: ' + object.spec.replicas", "found no matching overload for '_+_' applied to '(string, int)'");
    check(
        "object.spec.maxRetries < 10",
        "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'maxRetries'",
    );
    check("object.spec.template.spec.containers.all(c, c.picture == '')", "undefined field 'picture'");
    check("oldObject.spec.replicas.x == 1", "type 'int' does not support field selection");
}

/// A policy that demands that the last of a chain of variables is above zero.
fn chain(length: usize, step: &str) -> Value {
    let variable = |n: usize| match n {
        0 => json!({"name": "v0", "expression": "1"}),
        n => json!({"name": format!("v{n}"), "expression": format!("variables.v{}{step}", n - 1)}),
    };
    let variables: Vec<Value> = (0..length).map(variable).collect();
    json!({"variables": variables, "validations": [{"expression": format!("variables.v{} > 0", length - 1)}]})
}

#[test]
fn chains_of_variables_are_no_deeper_than_expressions() {
    let [said] = messages(chain(600, " + 1")).try_into().expect("one denial");
    assert!(said.contains("expression recursion limit exceeded: 250"), "{said}");
    // The longest that are let through do not fill the stack.
    for (length, step) in [(240, ""), (120, " + 1"), (120, " + [1].map(x, x)[0]")] {
        let spec = chain(length, step);
        let evaluation = std::thread::Builder::new().stack_size(1 << 20).spawn(move || messages(spec));
        let said = evaluation.expect("a thread").join().expect("it ends");
        assert_eq!(said, [""; 0], "{length} {step}");
    }
}

#[test]
fn evaluations_are_bounded() {
    let list: Vec<u8> = (0..100).collect();
    let most =
        json!({"expression": format!("{list:?}.all(a, {list:?}.all(b, {list:?}.all(c, a + b + c >= 0)))")});
    let [said] = messages(json!({"validations": [most]})).try_into().expect("one denial");
    assert!(said.ends_with("resulted in error: operation cancelled: actual cost limit exceeded"), "{said}");
}

#[test]
fn annotations_are_texts_or_nothing() {
    let annotated = |value: &str| {
        let spec = json!({"auditAnnotations": [{"key": "k", "valueExpression": value}]});
        Program::compile(&spec).evaluate(&[("object", &json!({"a": 1}))])
    };
    assert_eq!(annotated("'a' + 'b'"), []);
    assert_eq!(annotated("true ? null : 'x'"), []);
    let [denial] = annotated("object.none + ''").try_into().expect("one denial");
    assert!(denial.is_final && denial.message.ends_with("no such key: none"), "{denial:?}");
    let [denial] = annotated("true ? object.a : object.a").try_into().expect("one denial");
    let expected = "valueExpression 'true ? object.a : object.a' resulted in unsupported return type: int. Return type \
                    must be either string or null.";
    assert_eq!(denial.message, expected);
}

#[test]
fn conditions_must_all_hold() {
    let check = |conditions: &[&str], policy: &str, expected: Result<bool, &str>| {
        let conditions: Vec<_> =
            conditions.iter().map(|text| json!({"name": "c", "expression": text})).collect();
        let of = json!({"matchConditions": conditions, "failurePolicy": policy});
        let said = Conditions::compile(&of).hold(&[("object", &json!({"a": 1}))]);
        assert_eq!(said, expected.map_err(str::to_owned), "{of}");
    };
    check(&[], "Fail", Ok(true));
    check(&["object.a == 1", "object.a < 2"], "Fail", Ok(true));
    check(&["object.a == 1", "object.a > 2"], "Fail", Ok(false));
    check(&["object.b == 1", "object.a > 2"], "Fail", Ok(false));
    let wrong = "expression 'object.b == 1' resulted in error: no such key: b";
    check(&["object.b == 1", "object.a == 1"], "Fail", Err(wrong));
    check(&["object.b == 1", "object.a == 1"], "Ignore", Ok(false));
    check(&["object.b == 1", "object.b == 1"], "Fail", Err(&format!("[{wrong}, {wrong}]")));
}
