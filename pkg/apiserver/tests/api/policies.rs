//! Validating admission policies: what they are asked about, what they see, and what comes of what they say.

use crate::webhooks::Webhook;
use crate::{CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, names, pod};
use serde_json::{Value, json};
use testing::{Answer, Http, TestServer};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

fn policies(name: &str) -> String {
    format!("{GROUP}/validatingadmissionpolicies{name}")
}

fn bindings(name: &str) -> String {
    format!("{GROUP}/validatingadmissionpolicybindings{name}")
}

/// A policy about `OPERATION resource` of any group and version.
fn policy(name: &str, about: &str, validations: &[Value]) -> Value {
    let (operation, resource) = about.split_once(' ').unwrap();
    json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"operations": [operation], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}]},
        "validations": validations,
    }})
}

fn demand(expression: &str) -> Value {
    json!({ "expression": expression })
}

fn binding(name: &str, policy: &str, action: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": [action]}})
}

/// Makes a policy, and a binding of the same name that denies.
async fn enact(http: &Http, policy: &Value) {
    http.post(&policies(""), policy).await.expect(201);
    let name = policy["metadata"]["name"].as_str().unwrap();
    http.post(&bindings(""), &binding(name, name, "Deny")).await.expect(201);
}

#[track_caller]
fn refused(answer: &Answer, expected: (u16, &str, &str)) {
    assert_eq!((answer.code, answer.reason().as_str(), answer.message().as_str()), expected);
}

#[tokio::test]
async fn a_policy_refuses_in_upstreams_words() {
    let server = TestServer::start().await;
    let http = server.http();
    let few = policy("p", "* deployments", &[demand("object.spec.replicas <= 5")]);
    http.post(&policies(""), &few).await.expect(201);
    http.post(DEPLOYMENTS, &deployment("unbound", 7)).await.expect(201);
    http.post(&bindings(""), &binding("b", "p", "Deny")).await.expect(201);

    let denied = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: object.spec.replicas <= 5";
    let answer = http.post(DEPLOYMENTS, &deployment("x", 6)).await;
    refused(&answer, (422, "Invalid", &format!("deployments.apps \"x\" is forbidden: {denied}")));
    let details =
        json!({"name": "x", "group": "apps", "kind": "deployments", "causes": [{"message": denied}]});
    assert_eq!(answer.json()["details"], details);
    http.post(DEPLOYMENTS, &deployment("x", 5)).await.expect(201);
    http.patch(&format!("{DEPLOYMENTS}/x"), "merge", &json!({"spec": {"replicas": 6}})).await.expect(422);
    let set = json!({"metadata": {"name": "x"}, "spec": {"replicas": 6, "selector": deployment("x", 1)["spec"]["selector"],
        "template": deployment("x", 1)["spec"]["template"]}});
    http.post("/apis/apps/v1/namespaces/default/replicasets", &set).await.expect(201);

    // A change of the policy is heeded at once, and so is its end.
    let more = json!({"spec": {"validations": [demand("object.spec.replicas <= 6")]}});
    http.patch(&policies("/p"), "merge", &more).await.expect(200);
    http.post(DEPLOYMENTS, &deployment("y", 6)).await.expect(201);
    http.post(DEPLOYMENTS, &deployment("z", 7)).await.expect(422);
    http.delete(&bindings("/b"), &Value::Null).await.expect(200);
    http.post(DEPLOYMENTS, &deployment("z", 7)).await.expect(201);
}

#[tokio::test]
async fn a_policy_is_asked_about_everything_that_webhooks_are() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(CONFIG_MAPS, &config_map("old", "1")).await.expect(201);
    http.post(PODS, &pod("p")).await.expect(201);
    http.post(DEPLOYMENTS, &deployment("d", 1)).await.expect(201);
    let says = |operation: &str| {
        json!([{"expression": "request.operation == 'NONE'", "messageExpression": format!(
            "'{operation} ' + request.operation + ' ' + string(object == null) + ' ' + string(oldObject == null)")}])
    };
    let mut all = policy("all", "* configmaps", &[]);
    all["spec"]["validations"] = says("map");
    enact(&http, &all).await;
    let mut parts = policy("parts", "* */*", &[]);
    parts["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = json!([
        "pods/binding",
        "pods/eviction",
        "pods/attach",
        "pods/status",
        "serviceaccounts/token",
        "deployments/scale"
    ]);
    parts["spec"]["validations"] = json!([{"expression": "object == null", "messageExpression": "object.kind + ' ' + request.operation"}]);
    enact(&http, &parts).await;

    let old = format!("{CONFIG_MAPS}/old");
    let apply = format!("{CONFIG_MAPS}/applied?fieldManager=x");
    for (answer, expected) in [
        (http.post(CONFIG_MAPS, &config_map("new", "1")).await, "CREATE false true"),
        (http.put(&old, &config_map("old", "2")).await, "UPDATE false false"),
        (http.patch(&old, "merge", &json!({"data": {"key": "2"}})).await, "UPDATE false false"),
        (http.patch(&apply, "apply", &config_map("applied", "2")).await, "CREATE false true"),
        (http.delete(&old, &Value::Null).await, "DELETE true false"),
        (http.delete(CONFIG_MAPS, &Value::Null).await, "DELETE true false"),
    ] {
        assert_eq!(answer.code, 422, "{expected}");
        let message = answer.message();
        assert!(message.ends_with(&format!("denied request: map {expected}")), "{expected}: {message}");
    }
    let path = |part: &str| format!("{PODS}/p/{part}");
    let bound = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let scale = format!("{DEPLOYMENTS}/d/scale");
    for (answer, expected) in [
        (http.post(&path("binding"), &bound).await, "Binding CREATE"),
        (http.post(&path("eviction"), &json!({"metadata": {"name": "p"}})).await, "Eviction CREATE"),
        (http.get(&path("attach?stdin=true&container=c")).await, "PodAttachOptions CONNECT"),
        (http.patch(&path("status"), "merge", &json!({"status": {"message": "m"}})).await, "Pod UPDATE"),
        (http.patch(&scale, "merge", &json!({"spec": {"replicas": 3}})).await, "Scale UPDATE"),
        (
            http.post("/api/v1/namespaces/default/serviceaccounts/default/token", &json!({})).await,
            "TokenRequest CREATE",
        ),
    ] {
        assert_eq!(answer.code, 422, "{expected}");
        assert!(answer.message().ends_with(expected), "{expected}: {}", answer.message());
    }
    assert_eq!(http.get(&old).await.expect(200)["data"]["key"], "1");
    assert_eq!(names(&http.get(PODS).await.expect(200)), ["p"]);

    // Policies and bindings are nobody's business but their writer's; webhooks are theirs.
    let rules =
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    let everything =
        json!([{"op": "replace", "path": "/spec/matchConstraints/resourceRules", "value": rules}]);
    http.patch(&policies("/all"), "json", &everything).await.expect(200);
    http.post(PODS, &pod("q")).await.expect(422);
    http.post(&format!("{GROUP}/validatingwebhookconfigurations"), &json!({"metadata": {"name": "w"}}))
        .await
        .expect(422);
    http.delete(&policies("/all"), &Value::Null).await.expect(200);
    http.post(PODS, &pod("q")).await.expect(201);
}

#[tokio::test]
async fn variables_build_on_each_other() {
    let server = TestServer::start().await;
    let http = server.http();
    let mut odd = policy(
        "odd",
        "CREATE deployments",
        &[demand("variables.replicas > 1"), demand("variables.oddReplicas")],
    );
    odd["spec"]["variables"] = json!([
        {"name": "replicas", "expression": "object.spec.replicas"},
        {"name": "oddReplicas", "expression": "variables.replicas % 2 == 1"},
    ]);
    enact(&http, &odd).await;
    for (replicas, expected) in [(1, "variables.replicas > 1"), (2, "variables.oddReplicas"), (3, "")] {
        let answer = http.post(DEPLOYMENTS, &deployment("x", replicas)).await;
        assert_eq!(answer.code == 201, expected.is_empty(), "{replicas}: {}", answer.text());
        assert!(expected.is_empty() || answer.message().ends_with(expected), "{}", answer.message());
    }
    odd["metadata"]["name"] = "wrong".into();
    odd["spec"]["variables"][0]["expression"] = "variables.oddReplicas".into();
    refused(
        &http.post(&policies(""), &odd).await,
        (
            422,
            "Invalid",
            "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"wrong\" is invalid: \
             spec.variables[0].expression: Invalid value: \"variables.oddReplicas\": compilation failed: ERROR: \
             <input>:1:10: undefined field 'oddReplicas'\n | variables.oddReplicas\n | .........^",
        ),
    );
}

#[tokio::test]
async fn selectors_rules_and_conditions_say_where_a_policy_holds() {
    let server = TestServer::start().await;
    let http = server.http();
    for name in ["in", "out"] {
        let namespace = json!({"metadata": {"name": name, "labels": {"env": name}}});
        http.post("/api/v1/namespaces", &namespace).await.expect(201);
    }
    let mut never = policy("never", "CREATE configmaps", &[demand("namespaceObject.metadata.name != 'in'")]);
    let constraints = &mut never["spec"]["matchConstraints"];
    constraints["objectSelector"] =
        json!({"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]});
    constraints["excludeResourceRules"] = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["configmaps"], "resourceNames": ["excluded"]}]);
    never["spec"]["matchConditions"] =
        json!([{"name": "not-me", "expression": "object.metadata.name != 'unconditional'"}]);
    http.post(&policies(""), &never).await.expect(201);
    let mut bound = binding("b", "never", "Deny");
    bound["spec"]["matchResources"] = json!({"namespaceSelector": {"matchLabels": {"env": "in"}}});
    http.post(&bindings(""), &bound).await.expect(201);
    for (namespace, name, labels, code) in [
        ("in", "x", json!({}), 422),
        ("out", "x", json!({}), 201),
        ("in", "skipped", json!({"skip": "1"}), 201),
        ("in", "excluded", json!({}), 201),
        ("in", "unconditional", json!({}), 201),
    ] {
        let mut map = config_map(name, "1");
        map["metadata"]["labels"] = labels;
        http.post(&format!("/api/v1/namespaces/{namespace}/configmaps"), &map).await.expect(code);
    }

    // Another version of what is meant is shown as what is meant, unless only that is meant.
    let mut metrics = policy("v2", "CREATE horizontalpodautoscalers", &[demand("has(object.spec.none)")]);
    metrics["spec"]["matchConstraints"]["resourceRules"][0]["apiVersions"] = json!(["v2"]);
    metrics["spec"]["validations"][0]["messageExpression"] =
        "request.kind.version + ' for ' + request.requestKind.version + ': ' + string(object.spec.metrics.size())".into();
    enact(&http, &metrics).await;
    let scaler = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
        "scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}}});
    let scalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let answer = http.post(scalers, &scaler).await;
    assert!(answer.message().ends_with("denied request: v2 for v1: 1"), "{}", answer.message());
    let exact = json!({"spec": {"matchConstraints": {"matchPolicy": "Exact"}}});
    http.patch(&policies("/v2"), "merge", &exact).await.expect(200);
    http.post(scalers, &scaler).await.expect(201);
}

#[tokio::test]
async fn what_comes_of_a_failure_is_for_the_binding_and_the_policy_to_say() {
    let server = TestServer::start().await;
    let http = server.http();
    let mut large = demand("false");
    large["reason"] = "RequestEntityTooLarge".into();
    http.post(&policies(""), &policy("p", "CREATE configmaps", &[large])).await.expect(201);
    http.post(&bindings(""), &binding("b", "p", "Warn")).await.expect(201);
    let answer = http.post(CONFIG_MAPS, &config_map("warned", "1")).await;
    answer.expect(201);
    assert_eq!(
        answer.headers["warning"],
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: false\""
    );
    let act = async |action: &str| {
        let actions = json!({"spec": {"validationActions": [action]}});
        http.patch(&bindings("/b"), "merge", &actions).await.expect(200);
    };
    act("Audit").await;
    let answer = http.post(CONFIG_MAPS, &config_map("audited", "1")).await;
    answer.expect(201);
    assert!(answer.headers.get("warning").is_none());
    act("Deny").await;
    let answer = http.post(CONFIG_MAPS, &config_map("denied", "1")).await;
    assert_eq!((answer.code, answer.reason().as_str()), (413, "RequestEntityTooLarge"));
    let dry = http.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("denied", "1")).await;
    assert_eq!(dry.code, 413);

    let set = async |spec: Value| {
        http.patch(&policies("/p"), "merge", &json!({ "spec": spec })).await.expect(200);
    };
    let wrong = "object.none.such == 1";
    for (spec, text) in [
        (json!({"validations": [demand(wrong)]}), wrong),
        (json!({"matchConditions": [{"name": "c", "expression": wrong}]}), wrong),
        (
            json!({"matchConditions": [], "validations": [],
                "auditAnnotations": [{"key": "k", "valueExpression": "string(object.none.such == 1)"}]}),
            "string(object.none.such == 1)",
        ),
    ] {
        set(json!({"failurePolicy": "Fail"})).await;
        set(spec).await;
        let failed = format!(
            "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: expression \
             '{text}' resulted in error: no such key: none"
        );
        refused(&http.post(CONFIG_MAPS, &config_map("x", "1")).await, (422, "Invalid", &failed));
        set(json!({"failurePolicy": "Ignore"})).await;
        http.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("x", "1")).await.expect(201);
    }
}

#[tokio::test]
async fn parameters_come_from_objects_of_any_kind() {
    let server = TestServer::start().await;
    let http = server.http();
    let limit = |name: &str, most: &str, team: &str| json!({"metadata": {"name": name, "labels": {"team": team}}, "data": {"most": most}});
    for (name, most, team) in [("a", "3", "x"), ("b", "4", "x"), ("c", "9", "y")] {
        http.post(CONFIG_MAPS, &limit(name, most, team)).await.expect(201);
    }
    let within = json!({"expression": "object.spec.replicas <= int(params.data.most)",
        "messageExpression": "'most ' + params.metadata.name"});
    let mut few = policy("few", "CREATE deployments", &[within]);
    few["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    http.post(&policies(""), &few).await.expect(201);
    let mut bound = binding("b", "few", "Deny");
    bound["spec"]["paramRef"] = json!({"name": "a", "parameterNotFoundAction": "Deny"});
    http.post(&bindings(""), &bound).await.expect(201);

    let dry = format!("{DEPLOYMENTS}?dryRun=All");
    let said = async |replicas: i64| {
        let answer = http.post(&dry, &deployment("x", replicas)).await;
        match answer.code {
            201 => String::new(),
            _ => answer.message().split_once("denied request: ").map(|(_, why)| why.to_owned()).unwrap(),
        }
    };
    let refer = async |reference: Value| {
        let mut now = http.get(&bindings("/b")).await.expect(200);
        now["spec"]["paramRef"] = reference;
        http.put(&bindings("/b"), &now).await.expect(200);
    };
    assert_eq!((said(3).await, said(4).await), (String::new(), "most a".to_owned()));
    http.patch(&format!("{CONFIG_MAPS}/a"), "merge", &json!({"data": {"most": "4"}})).await.expect(200);
    assert_eq!(said(4).await, "");
    let selected = |team: &str, action: &str| json!({"selector": {"matchLabels": {"team": team}}, "namespace": "default", "parameterNotFoundAction": action});
    refer(selected("x", "Deny")).await;
    assert_eq!((said(4).await, said(5).await), (String::new(), "most a".to_owned()));
    refer(selected("y", "Deny")).await;
    assert_eq!(said(5).await, "");
    let none =
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    refer(selected("z", "Deny")).await;
    assert_eq!(said(1).await, none);
    refer(selected("z", "Allow")).await;
    assert_eq!(said(100).await, "");
    refer(json!({"name": "a", "namespace": "kube-system", "parameterNotFoundAction": "Deny"})).await;
    assert_eq!(said(1).await, none);

    // A kind that nobody has; then one of the cluster, defined here.
    let kind = json!({"spec": {"paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"}}});
    http.patch(&policies("/few"), "merge", &kind).await.expect(200);
    let answer = http.post(&dry, &deployment("x", 1)).await;
    let unknown = "deployments.apps \"x\" is forbidden: ValidatingAdmissionPolicy 'few' denied request: failed to \
                   configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'";
    refused(&answer, (422, "Invalid", unknown));
    let any = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"metadata": {"name": "limits.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "limits", "kind": "Limit"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": any}]}});
    http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    let mut custom = limit("l", "2", "x");
    custom["kind"] = "Limit".into();
    custom["apiVersion"] = "example.com/v1".into();
    testing::eventually("the kind is served", async || {
        (http.post("/apis/example.com/v1/limits", &custom).await.code == 201).then_some(())
    })
    .await;
    assert_eq!(
        said(1).await,
        "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
    );
    refer(json!({"name": "l", "parameterNotFoundAction": "Deny"})).await;
    assert_eq!((said(2).await, said(3).await), (String::new(), "most l".to_owned()));
}

#[tokio::test]
async fn a_policy_sees_what_webhooks_have_made_of_an_object() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(
        |_, _| json!({"allowed": true, "patch": [{"op": "add", "path": "/data/added", "value": "yes"}]}),
    )
    .await;
    let hook = json!({
        "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://localhost:{}/", webhook.port), "caBundle": webhook.bundle},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    });
    enact(&http, &policy("p", "CREATE configmaps", &[demand("has(object.data.added)")])).await;
    http.post(CONFIG_MAPS, &config_map("x", "1")).await.expect(422);
    let configuration = json!({"metadata": {"name": "w"}, "webhooks": [hook]});
    http.post(&format!("{GROUP}/mutatingwebhookconfigurations"), &configuration).await.expect(201);
    http.post(CONFIG_MAPS, &config_map("x", "1")).await.expect(201);
}

#[tokio::test]
async fn a_policy_has_a_status_of_its_own() {
    let server = TestServer::start().await;
    let http = server.http();
    let mut made = policy("p", "CREATE deployments", &[demand("object.spec.replicas <= 100")]);
    made["status"] = json!({"observedGeneration": 7});
    let made = http.post(&policies(""), &made).await.expect(201);
    let checked = |generation: i64| json!({"observedGeneration": generation, "typeChecking": {}});
    assert_eq!((&made["status"], &made["metadata"]["generation"]), (&checked(1), &json!(1)));
    let ignore =
        json!({"metadata": {"annotations": {"patched": "true"}}, "spec": {"failurePolicy": "Ignore"}});
    let patched = http.patch(&policies("/p"), "merge", &ignore).await.expect(200);
    assert_eq!(
        (&patched["spec"]["failurePolicy"], &patched["metadata"]["generation"]),
        (&json!("Ignore"), &json!(2))
    );
    assert_eq!(patched["status"], checked(2));
    let condition = |name: &str| {
        json!({"type": name, "status": "False", "reason": "e2e", "message": "Set from an e2e test",
            "lastTransitionTime": "2024-01-01T00:00:00Z"})
    };
    let status = json!({"status": {"conditions": [condition("PatchStatusFailed")]}});
    let mut now = http.patch(&policies("/p/status"), "merge", &status).await.expect(200);
    assert_eq!(now["status"]["conditions"][0]["type"], "PatchStatusFailed");
    now["status"]["conditions"].as_array_mut().unwrap().push(condition("StatusUpdateFailed"));
    now["spec"]["failurePolicy"] = "Fail".into();
    let now = http.put(&policies("/p/status"), &now).await.expect(200);
    assert_eq!(now["status"]["conditions"][1]["type"], "StatusUpdateFailed");
    assert_eq!(
        (&now["spec"]["failurePolicy"], &now["metadata"]["generation"]),
        (&json!("Ignore"), &json!(2))
    );
    assert_eq!(http.get(&policies("/p/status")).await.expect(200), now);
}

#[tokio::test]
async fn whoever_names_parameters_may_read_them() {
    let server = TestServer::start().await;
    let http = server.http();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let writes = json!({"apiGroups": ["admissionregistration.k8s.io"], "verbs": ["create"],
        "resources": ["validatingadmissionpolicies", "validatingadmissionpolicybindings"]});
    let role = json!({"metadata": {"name": "writer"}, "rules": [writes]});
    http.post(&format!("{rbac}/clusterroles"), &role).await.expect(201);
    let given = json!({"metadata": {"name": "writer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]});
    http.post(&format!("{rbac}/clusterrolebindings"), &given).await.expect(201);
    let writer = Http::new(server.token(&server.service_account_token("default", "default").await));

    let mut few = policy("few", "CREATE deployments", &[demand("params.data.most == '1'")]);
    few["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let mut bound = binding("b", "few", "Deny");
    bound["spec"]["paramRef"] =
        json!({"name": "a", "namespace": "default", "parameterNotFoundAction": "Deny"});
    let answer = writer.post(&policies(""), &few).await;
    let subject = "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"few\" is invalid: spec.paramKind: Forbidden: \
                   user &{system:serviceaccount:default:default";
    let why = "must have \"get\" permission on all objects of the referenced paramKind (kind=ConfigMap, apiVersion=v1)";
    assert_eq!(answer.code, 422);
    assert!(answer.message().starts_with(subject) && answer.message().ends_with(why), "{}", answer.message());
    let unknown = writer.post(&bindings(""), &bound).await.message();
    assert!(unknown.contains("spec.paramRef: Forbidden: unable to get policy few"), "{unknown}");
    http.post(&policies(""), &few).await.expect(201);
    let denied = writer.post(&bindings(""), &bound).await.message();
    assert!(
        denied.ends_with("does not have \"get\" permission on the object referenced by paramRef"),
        "{denied}"
    );

    let reads = json!({"apiGroups": [""], "verbs": ["get"], "resources": ["configmaps"]});
    let role = json!({"rules": [writes, reads]});
    http.patch(&format!("{rbac}/clusterroles/writer"), "merge", &role).await.expect(200);
    testing::eventually("the permission is known", async || {
        (writer.post(&bindings(""), &bound).await.code == 201).then_some(())
    })
    .await;
    few["metadata"]["name"] = "other".into();
    writer.post(&policies(""), &few).await.expect(201);
}

#[tokio::test]
async fn types_that_do_not_fit_are_told_in_the_status() {
    let server = TestServer::start().await;
    let http = server.http();
    let about = |name: &str, group: &str, resource: &str, validations: &[Value]| {
        let mut policy = policy(name, &format!("CREATE {resource}"), validations);
        let rule = &mut policy["spec"]["matchConstraints"]["resourceRules"][0];
        (rule["apiGroups"], rule["apiVersions"]) = (json!([group]), json!(["v1"]));
        policy
    };
    let warned = async |policy: Value| {
        let status = http.post(&policies(""), &policy).await.expect(201)["status"].clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let warnings = status["typeChecking"]["expressionWarnings"].as_array().cloned().unwrap_or_default();
        warnings
            .iter()
            .map(|warning| (text(&warning["fieldRef"]), text(&warning["warning"])))
            .collect::<Vec<_>>()
    };
    let message = "'wants replicas > 1, got ' + object.spec.replicas";
    let confused = json!({"expression": "object.spec.replicas > '1'", "messageExpression": message});
    assert_eq!(
        warned(about("confused", "apps", "deployments", &[confused])).await,
        [
            (
                "spec.validations[0].expression".to_owned(),
                "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, \
                 string)'\n | object.spec.replicas > '1'\n | .....................^\n"
                    .to_owned()
            ),
            (
                "spec.validations[0].messageExpression".to_owned(),
                format!(
                    "apps/v1, Kind=Deployment: ERROR: <input>:1:28: found no matching overload for '_+_' applied to \
                     '(string, int)'\n | {message}\n | ...........................^\n"
                )
            ),
        ]
    );
    assert_eq!(
        warned(about("right", "apps", "deployments", &[demand("object.spec.replicas > 1")])).await,
        []
    );

    let spec = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let definition = json!({"metadata": {"name": "crontabs.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "crontabs", "kind": "CronTab"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.expect(201);
    testing::eventually("the kind is served", async || {
        (http.get("/apis/example.com/v1/crontabs").await.code == 200).then_some(())
    })
    .await;
    let wrong = ["object.spec.replicas > '1'", "object.spec.maxRetries < 10", "object.metadata.name != ''"]
        .map(demand);
    let said = warned(about("custom", "example.com", "crontabs", &wrong)).await;
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].1.contains("example.com/v1, Kind=CronTab: ERROR"), "{said:?}");
    assert!(said[1].1.contains("undefined field 'maxRetries'"), "{said:?}");
}
