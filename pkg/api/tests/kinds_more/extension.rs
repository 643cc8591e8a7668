//! What extends the API server, or says how it works: webhooks, policies, flows of requests, ranges of addresses.

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
            "matchConditions[0].expression: Invalid value: \"authorizer.x\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer'",
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

fn policy() -> Value {
    object(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        json!({"spec": {
            "paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"},
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
            }]},
            "variables": [{"name": "replicas", "expression": "object.spec.replicas"}],
            "validations": [{"expression": "variables.replicas <= params.most"}],
            "auditAnnotations": [{"key": "k", "valueExpression": "string(variables.replicas)"}],
        }}),
    )
}

#[test]
fn policies_and_bindings_are_filled_in() {
    let policy = policy();
    assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    let constraints = &policy["spec"]["matchConstraints"];
    for (member, expected) in [
        ("matchPolicy", json!("Equivalent")),
        ("namespaceSelector", json!({})),
        ("objectSelector", json!({})),
    ] {
        assert_eq!(constraints[member], expected, "{member}");
    }
    assert_eq!(constraints["resourceRules"][0]["scope"], "*");
    assert_eq!(row(&policy), "Name=x | Validations=1 | ParamKind=example.com/v1/Limit | Age=5m");
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
        {"key": "c", "operator": "In", "values": ["d", "e"]}]});
    for (params, expected) in [
        (Value::Null, "<unset>"),
        (json!({"name": "p"}), "*/p"),
        (json!({"name": "p", "namespace": "n"}), "n/p"),
        (
            json!({"selector": selector}),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:c,Operator:In,Values:[d e],},},}",
        ),
    ] {
        let binding = with(&binding(), "/spec/paramRef", params);
        assert_eq!(row(&binding), format!("Name=x | PolicyName=p | ParamRef={expected} | Age=5m"));
    }
}

#[test]
fn policies_that_could_never_hold_are_refused() {
    let validation = |member: &str, value: &str| json!([{"expression": "true", member: value}]);
    let variable = |name: &str, expression: &str| json!([{"name": name, "expression": expression}]);
    let c = "spec.matchConstraints";
    let none = with(&policy(), "/spec/auditAnnotations", Value::Null);
    let none = complaints(&with(&none, "/spec/validations", Value::Null));
    for member in ["validations", "auditAnnotations"] {
        let said = format!(
            "spec.{member}: Required value: validations or auditAnnotations must contain at least one item"
        );
        assert_said(&said, &none, member);
    }
    check_invalid(
        &policy(),
        &[
            ("/spec/failurePolicy", json!("Panic"), "spec.failurePolicy: Unsupported value: \"Panic\""),
            ("/spec/matchConstraints", Value::Null, "spec.matchConstraints: Required value"),
            (
                "/spec/matchConstraints/resourceRules",
                json!([]),
                &format!("{c}.resourceRules: Required value"),
            ),
            (
                "/spec/matchConstraints/resourceRules/0/operations",
                json!([]),
                &format!("{c}.resourceRules[0].operations: Required value"),
            ),
            (
                "/spec/matchConstraints/resourceRules/0/resourceNames",
                json!(["a", "a"]),
                &format!("{c}.resourceRules[0].resourceNames[1]: Duplicate value: \"a\""),
            ),
            (
                "/spec/matchConstraints/matchPolicy",
                json!("Fuzzy"),
                &format!(
                    "{c}.matchPolicy: Unsupported value: \"Fuzzy\": supported values: \"Equivalent\", \"Exact\""
                ),
            ),
            ("/spec/paramKind/kind", Value::Null, "spec.paramKind.kind: Required value"),
            (
                "/spec/paramKind/apiVersion",
                json!("a/b/c"),
                "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            ),
            (
                "/spec/paramKind/kind",
                json!("A_B"),
                "spec.paramKind.kind: Invalid value: \"A_B\": may have mixed case, but should otherwise match: a DNS-1035",
            ),
            (
                "/spec/paramKind",
                Value::Null,
                "spec.validations[0].expression: Invalid value: \"variables.replicas <= params.most\": compilation failed: ERROR: <input>:1:23: undeclared reference to 'params'",
            ),
            (
                "/spec/variables",
                variable("a-b", "1"),
                "spec.variables[0].name: Invalid value: \"a-b\": must be a valid CEL identifier",
            ),
            ("/spec/variables", variable("for", "1"), "spec.variables[0].name: Invalid value: \"for\""),
            (
                "/spec/variables",
                variable("", "1"),
                "spec.variables[0].name: Required value: name is not specified",
            ),
            (
                "/spec/variables",
                variable("a", " "),
                "spec.variables[0].expression: Required value: expression is not specified",
            ),
            (
                "/spec/variables",
                variable("a", "variables.a"),
                "spec.variables[0].expression: Invalid value: \"variables.a\": compilation failed: ERROR: <input>:1:10: undefined field 'a'",
            ),
            (
                "/spec/validations",
                json!([{}]),
                "spec.validations[0].expression: Required value: expression is not specified",
            ),
            (
                "/spec/validations/0/expression",
                json!("object.spec"),
                "spec.validations[0].expression: Invalid value: \"object.spec\": must evaluate to bool but got dyn",
            ),
            (
                "/spec/validations",
                validation("messageExpression", "1"),
                "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
            ),
            (
                "/spec/validations",
                validation("message", "a\nb"),
                "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
            ),
            (
                "/spec/validations",
                validation("message", " "),
                "spec.validations[0].message: Invalid value: \" \": must be non-empty if specified",
            ),
            (
                "/spec/validations",
                validation("reason", "Conflict"),
                "spec.validations[0].reason: Unsupported value: \"Conflict\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"",
            ),
            (
                "/spec/auditAnnotations/0/valueExpression",
                json!("1"),
                "spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of [string null_type] but got int",
            ),
            (
                "/spec/auditAnnotations/0/key",
                json!("a b"),
                "spec.auditAnnotations[0].key: Invalid value: \"x/a b\"",
            ),
            (
                "/spec/matchConditions",
                json!([{"name": "c", "expression": "variables.replicas == 1"}]),
                "spec.matchConditions[0].expression: Invalid value: \"variables.replicas == 1\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables'",
            ),
        ],
    );
    check_valid(
        &policy(),
        &[
            ("/spec/paramKind/apiVersion", json!("v1")),
            ("/spec/matchConditions", json!([{"name": "c", "expression": "params.on == true"}])),
            ("/spec/matchConstraints/resourceRules/0/resources", json!(["*"])),
        ],
    );
    let warned =
        |place: &str, warning: &str| json!({"expressionWarnings": [{"fieldRef": place, "warning": warning}]});
    check_status(
        &policy(),
        &[
            ("/status", json!({"typeChecking": warned("spec.validations[0].expression", "w")}), ""),
            (
                "/status",
                json!({"typeChecking": warned("", "w")}),
                "status.typeChecking.expressionWarnings[0].fieldRef: Required value",
            ),
            (
                "/status",
                json!({"typeChecking": warned("spec", "")}),
                "status.typeChecking.expressionWarnings[0].warning: Required value",
            ),
            (
                "/status",
                json!({"conditions": [{"type": "A"}]}),
                "status.conditions[0].status: Unsupported value",
            ),
        ],
    );
}

fn binding() -> Value {
    object(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        json!({"spec": {"policyName": "p", "validationActions": ["Deny"],
            "paramRef": {"name": "p", "parameterNotFoundAction": "Deny"}}}),
    )
}

#[test]
fn bindings_say_what_is_done_and_with_what() {
    check_invalid(
        &binding(),
        &[
            ("/spec/policyName", Value::Null, "spec.policyName: Required value"),
            ("/spec/policyName", json!("A"), "spec.policyName: Invalid value: \"A\": a lowercase RFC 1123"),
            (
                "/spec/validationActions",
                json!([]),
                "spec.validationActions: Required value: at least one validation action is required",
            ),
            (
                "/spec/validationActions",
                json!(["Shout"]),
                "spec.validationActions[0]: Unsupported value: \"Shout\": supported values: \"Audit\", \"Deny\", \"Warn\"",
            ),
            (
                "/spec/validationActions",
                json!(["Audit", "Audit"]),
                "spec.validationActions[1]: Duplicate value: \"Audit\"",
            ),
            (
                "/spec/validationActions",
                json!(["Deny", "Warn"]),
                "spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
            ),
            (
                "/spec/paramRef/selector",
                json!({}),
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
            ),
            (
                "/spec/paramRef/name",
                Value::Null,
                "spec.paramRef: Required value: one of name or selector must be specified",
            ),
            (
                "/spec/paramRef/parameterNotFoundAction",
                json!("Shrug"),
                "spec.paramRef.parameterNotFoundAction: Unsupported value: \"Shrug\": supported values: \"Deny\", \"Allow\"",
            ),
            (
                "/spec/matchResources",
                json!({"matchPolicy": "Exact", "objectSelector": {"matchLabels": {"a/b/c": ""}}}),
                "spec.matchResources.objectSelector.matchLabels: Invalid value",
            ),
        ],
    );
}

const FLOWS: &str = "flowcontrol.apiserver.k8s.io/v1";

#[test]
fn what_every_cluster_has_of_flows_is_good_and_as_it_would_be_stored() {
    for wanted in kinds::flowcontrol::suggested() {
        assert_eq!(complaints(&wanted), Vec::<String>::new(), "{wanted}");
        let mut stored = created(wanted.clone());
        stored["metadata"] = wanted["metadata"].clone();
        assert_eq!(stored, wanted, "nothing is left to be filled in");
    }
    assert_eq!(kinds::flowcontrol::suggested().len(), 19);
}

#[test]
fn flow_schemas_say_which_requests_they_are_about() {
    let schema = object(
        FLOWS,
        "FlowSchema",
        json!({"spec": {"priorityLevelConfiguration": {"name": "system"}, "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [{"kind": "User", "user": {"name": "u"}}],
                "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/healthz"]}]}]}}),
    );
    assert_eq!(schema["spec"]["matchingPrecedence"], 1000);
    let row_of = "Name=x | PriorityLevel=system | MatchingPrecedence=1000 | DistinguisherMethod=ByUser | Age=5m | MissingPL=?";
    assert_eq!(row(&schema), row_of);
    check_invalid(
        &schema,
        &[
            (
                "/spec/matchingPrecedence",
                json!(-1),
                "spec.matchingPrecedence: Invalid value: -1: must be a positive value",
            ),
            (
                "/spec/matchingPrecedence",
                json!(10001),
                "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
            ),
            (
                "/spec/matchingPrecedence",
                json!(1),
                "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
            ),
            (
                "/spec/distinguisherMethod/type",
                json!("X"),
                "spec.distinguisherMethod.type: Unsupported value",
            ),
            (
                "/spec/priorityLevelConfiguration/name",
                json!(""),
                "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
            ),
            (
                "/spec/rules/0/subjects",
                json!([]),
                "spec.rules[0].subjects: Required value: subjects must contain at least one value",
            ),
            (
                "/spec/rules/0/subjects/0/kind",
                json!("X"),
                "spec.rules[0].subjects[0].kind: Unsupported value: \"X\": supported values: \"Group\", \"ServiceAccount\", \"User\"",
            ),
            (
                "/spec/rules/0/subjects/0/group",
                json!({"name": "g"}),
                "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
            ),
            (
                "/spec/rules/0/resourceRules/0/verbs",
                json!(["get", "*"]),
                "spec.rules[0].resourceRules[0].verbs: Invalid value: [\"get\",\"*\"]: if '*' is present, must not specify other verbs",
            ),
            (
                "/spec/rules/0/resourceRules/0/verbs",
                json!(["eat"]),
                "spec.rules[0].resourceRules[0].verbs: Unsupported value",
            ),
            (
                "/spec/rules/0/resourceRules/0/namespaces",
                json!([]),
                "spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped",
            ),
            (
                "/spec/rules/0/nonResourceRules/0/nonResourceURLs",
                json!(["a"]),
                "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"a\": must start with slash",
            ),
            ("/metadata/name", json!("catch-all"), "spec: Invalid value: {"),
        ],
    );
    check_status(
        &schema,
        &[("/status", json!({"conditions": [{"type": ""}]}), "status.conditions[0].type: Required value")],
    );
}

#[test]
fn priority_levels_are_limited_or_exempt() {
    let level = object(
        FLOWS,
        "PriorityLevelConfiguration",
        json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}}),
    );
    let row_of = "Name=x | Type=Limited | NominalConcurrencyShares=30 | Queues=64 | HandSize=8 | QueueLengthLimit=50 | Age=5m";
    assert_eq!(row(&level), row_of);
    check_invalid(
        &level,
        &[
            (
                "/spec/type",
                json!("Exempt"),
                "spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
            ),
            (
                "/spec/limited",
                Value::Null,
                "spec.limited: Required value: must not be empty when type is Limited",
            ),
            (
                "/spec/limited/lendablePercent",
                json!(101),
                "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
            ),
            (
                "/spec/limited/limitResponse/type",
                json!("Drop"),
                "spec.limited.limitResponse.type: Unsupported value",
            ),
            (
                "/spec/limited/limitResponse/queuing/handSize",
                json!(65),
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 65: should not be greater than queues (64)",
            ),
            (
                "/spec/limited/limitResponse/queuing/handSize",
                json!(11),
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 11: required entropy bits of deckSize 64 and handSize 11 should not be greater than 60",
            ),
            ("/metadata/name", json!("catch-all"), "spec: Invalid value: {"),
        ],
    );
}

#[test]
fn ranges_of_services_grow_by_a_family_only() {
    let range = object("networking.k8s.io/v1", "ServiceCIDR", json!({"spec": {"cidrs": ["10.0.0.0/16"]}}));
    assert_eq!(row(&range), "Name=x | CIDRs=10.0.0.0/16 | Age=5m");
    check_invalid(
        &range,
        &[
            ("/spec/cidrs", json!([]), "spec.cidrs: Required value: at least one CIDR required"),
            (
                "/spec/cidrs",
                json!(["10.0.0.1/16"]),
                "spec.cidrs[0]: Invalid value: \"10.0.0.1/16\": must not have bits set beyond the prefix length",
            ),
            (
                "/spec/cidrs",
                json!(["10.0.0.0/16", "10.1.0.0/16"]),
                "spec.cidrs: Invalid value: [\"10.0.0.0/16\",\"10.1.0.0/16\"]: may specify no more than one IP for each IP family",
            ),
        ],
    );
    check_update(
        &range,
        &[
            ("/spec/cidrs", json!(["10.0.0.0/16", "fd00::/112"]), ""),
            (
                "/spec/cidrs",
                json!(["10.1.0.0/16"]),
                "spec.cidrs[0]: Invalid value: \"10.1.0.0/16\": field is immutable",
            ),
        ],
    );
}

#[test]
fn addresses_say_whose_they_are() {
    let address = object(
        "networking.k8s.io/v1",
        "IPAddress",
        json!({"spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}}),
    );
    assert_eq!(row(&address), "Name=x | ParentRef=services/n/s");
    check_invalid(
        &address,
        &[
            ("/spec/parentRef", Value::Null, "spec.parentRef: Required value"),
            ("/spec/parentRef/name", json!(""), "spec.parentRef.name: Required value"),
            ("/spec/parentRef/group", json!("A"), "spec.parentRef.group: Invalid value"),
        ],
    );
    check_update(&address, &[("/spec/parentRef/name", json!("t"), "spec.parentRef: Invalid value")]);
    assert!((kind_of(&address).validate_name)("10.0.0.1").is_ok());
    assert!((kind_of(&address).validate_name)("x").is_err());
}

#[test]
fn an_api_service_is_named_after_what_it_serves() {
    let service = created(json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": metadata("v1alpha1.wardle.example.com"),
        "spec": {"group": "wardle.example.com", "version": "v1alpha1", "groupPriorityMinimum": 2000,
            "versionPriority": 200, "caBundle": "Q0E=", "service": {"namespace": "wardle", "name": "api"}}}));
    assert_eq!(service["spec"]["service"]["port"], 443);
    check_invalid(
        &service,
        &[
            (
                "/spec/version",
                json!("v2"),
                "metadata.name: Invalid value: \"v1alpha1.wardle.example.com\": must be `spec.version+\".\"+spec.group`: \"v2.wardle.example.com\"",
            ),
            (
                "/spec/groupPriorityMinimum",
                json!(0),
                "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
            ),
            (
                "/spec/versionPriority",
                json!(1001),
                "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
            ),
            ("/spec/service/name", json!(""), "spec.service.name: Required value"),
            (
                "/spec/service/port",
                json!(70000),
                "spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
            ),
            (
                "/spec/insecureSkipTLSVerify",
                json!(true),
                "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
            ),
            (
                "/spec/service",
                Value::Null,
                "spec.caBundle: Invalid value: \"Q0E=\": local APIServices may not have a caBundle",
            ),
        ],
    );
    assert_eq!(
        row(&service),
        "Name=v1alpha1.wardle.example.com | Service=wardle/api | Available=Unknown | Age=5m"
    );
    let down = json!([{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]);
    let down = with(&service, "/status", json!({"conditions": down}));
    assert!(row(&down).contains("Available=False (MissingEndpoints)"), "{}", row(&down));
}
