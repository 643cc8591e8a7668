//! What extends the API server: webhooks.

use super::*;

fn webhooks(kind: &str) -> Value {
    object(
        "admissionregistration.k8s.io/v1",
        kind,
        json!({"webhooks": [{
            "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "n"}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
        }]}),
    )
}

#[test]
fn webhooks_are_filled_in() {
    let mutating = webhooks("MutatingWebhookConfiguration");
    let hook = &mutating["webhooks"][0];
    for (member, expected) in [
        ("failurePolicy", json!("Fail")),
        ("matchPolicy", json!("Equivalent")),
        ("namespaceSelector", json!({})),
        ("objectSelector", json!({})),
        ("timeoutSeconds", json!(10)),
        ("reinvocationPolicy", json!("Never")),
    ] {
        assert_eq!(hook[member], expected, "{member}");
    }
    assert_eq!(
        (&hook["clientConfig"]["service"]["port"], &hook["rules"][0]["scope"]),
        (&json!(443), &json!("*"))
    );
    assert_eq!(row(&mutating), "Name=x | Webhooks=1 | Age=5m");
    assert!(webhooks("ValidatingWebhookConfiguration")["webhooks"][0].get("reinvocationPolicy").is_none());
}

#[test]
fn webhooks_that_nobody_could_ask_are_refused() {
    let w = "webhooks[0]";
    let cases = |cases: &[(&'static str, Value, &str)]| -> Vec<(&'static str, Value, String)> {
        cases.iter().map(|(at, value, said)| (*at, value.clone(), format!("{w}.{said}"))).collect()
    };
    let service = |path: &str| json!({"service": {"name": "s", "namespace": "n", "port": 443, "path": path}});
    let url = |url: &str| json!({ "url": url });
    let conditions = |expression: &str| json!([{"name": "c", "expression": expression}]);
    let all = cases(&[
        (
            "/webhooks/0/name",
            json!("short"),
            "name: Invalid value: \"short\": should be a domain with at least three segments separated by dots",
        ),
        (
            "/webhooks/0/name",
            json!("A.b.c"),
            "name: Invalid value: \"A.b.c\": a lowercase RFC 1123 subdomain",
        ),
        ("/webhooks/0/name", Value::Null, "name: Required value"),
        (
            "/webhooks/0/sideEffects",
            Value::Null,
            "sideEffects: Required value: must specify one of None, NoneOnDryRun",
        ),
        (
            "/webhooks/0/sideEffects",
            json!("Some"),
            "sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ),
        ("/webhooks/0/failurePolicy", json!("Panic"), "failurePolicy: Unsupported value"),
        (
            "/webhooks/0/timeoutSeconds",
            json!(31),
            "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            "/webhooks/0/admissionReviewVersions",
            json!([]),
            "admissionReviewVersions: Required value: must specify one of v1, v1beta1",
        ),
        (
            "/webhooks/0/admissionReviewVersions",
            json!(["v2"]),
            "admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
        ),
        (
            "/webhooks/0/namespaceSelector",
            json!({"matchLabels": {"a/b/c": ""}}),
            "namespaceSelector.matchLabels: Invalid value",
        ),
        (
            "/webhooks/0/rules/0/operations",
            json!(["CREATE", "*"]),
            "rules[0].operations: Invalid value: [\"CREATE\",\"*\"]: if '*' is present, must not specify other operations",
        ),
        (
            "/webhooks/0/rules/0/operations",
            json!(["MAKE"]),
            "rules[0].operations[0]: Unsupported value: \"MAKE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
        ),
        ("/webhooks/0/rules/0/apiVersions", json!([""]), "rules[0].apiVersions[0]: Required value"),
        (
            "/webhooks/0/rules/0/resources",
            json!(["pods/*", "pods/status"]),
            "rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status",
        ),
        (
            "/webhooks/0/rules/0/resources",
            json!(["*", "pods"]),
            "rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources without subresources",
        ),
        ("/webhooks/0/rules/0/scope", json!("Everywhere"), "rules[0].scope: Unsupported value"),
        (
            "/webhooks/0/clientConfig",
            json!({}),
            "clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            "/webhooks/0/clientConfig",
            service("x"),
            "clientConfig.service.path: Invalid value: \"x\": must start with a '/'",
        ),
        (
            "/webhooks/0/clientConfig",
            service("/a//b"),
            "clientConfig.service.path: Invalid value: \"/a//b\": segment[1] may not be empty",
        ),
        (
            "/webhooks/0/clientConfig",
            url("http://h"),
            "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (
            "/webhooks/0/clientConfig",
            url("https://"),
            "clientConfig.url: Invalid value: \"\": host must be specified",
        ),
        (
            "/webhooks/0/clientConfig",
            url("https://u@h/p"),
            "clientConfig.url: Invalid value: \"u\": user information is not permitted in the URL",
        ),
        (
            "/webhooks/0/clientConfig",
            url("https://h/p?q"),
            "clientConfig.url: Invalid value: \"q\": query parameters are not permitted in the URL",
        ),
        (
            "/webhooks/0/matchConditions",
            conditions("... [] bad"),
            "matchConditions[0].expression: Invalid value: \"... [] bad\": compilation failed",
        ),
        (
            "/webhooks/0/matchConditions",
            conditions("authorizer.x"),
            "matchConditions[0].expression: Invalid value: \"authorizer.x\": compilation failed: undeclared reference to 'authorizer'",
        ),
        (
            "/webhooks/0/matchConditions",
            json!([{"name": "", "expression": "true"}]),
            "matchConditions[0].name: Required value",
        ),
    ]);
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let object = webhooks(kind);
        let all: Vec<_> = all.iter().map(|(at, value, said)| (*at, value.clone(), said.as_str())).collect();
        check_invalid(&object, &all);
        let twice = with(&object, "/webhooks/1", object["webhooks"][0].clone());
        assert_said("webhooks[1].name: Duplicate value: \"a.example.com\"", &complaints(&twice), "twice");
        check_valid(
            &object,
            &[
                ("/webhooks/0/clientConfig", json!({"url": "https://[::1]:8443/a/b"})),
                ("/webhooks/0/clientConfig", service("/a.b/c/")),
                ("/webhooks/0/matchConditions", conditions("object.metadata.name != 'x'")),
                ("/webhooks/0/rules/0/resources", json!(["pods", "pods/status", "*/scale"])),
            ],
        );
    }
    let mutating = webhooks("MutatingWebhookConfiguration");
    check_invalid(
        &mutating,
        &[(
            "/webhooks/0/reinvocationPolicy",
            json!("Often"),
            "webhooks[0].reinvocationPolicy: Unsupported value",
        )],
    );
}
