//! What nobody should send: a clear answer, and the server goes on.

use crate::{CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, names, pod};
use serde_json::{Value, json};
use testing::{Http, TestServer};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

async fn goes_on(http: &Http) {
    let list = http.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(names(&list), [""; 0], "nothing is half written");
    assert_eq!(http.get("/readyz").await.text(), "ok");
}

#[tokio::test]
async fn bodies_that_are_no_objects() {
    let server = TestServer::start().await;
    let http = server.http();
    let deep_json = format!(
        "{{\"metadata\":{{\"name\":\"x\"}},\"data\":{}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let deep_objects = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let deep_yaml = "[".repeat(100_000);
    let bomb = format!(
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n{}",
        (b'b'..=b'j')
            .map(|c| format!(
                "{0}: &{0} [{1},{1},{1},{1},{1},{1},{1},{1},{1},{1}]\n",
                c as char,
                format!("*{}", (c - 1) as char)
            ))
            .collect::<String>()
    );
    let cases: &[(&str, &str, &str, u16)] = &[
        ("empty", "application/json", "", 400),
        ("cut off", "application/json", "{\"metadata\":", 400),
        ("a list", "application/json", "[]", 400),
        ("a number", "application/json", "1", 400),
        ("null", "application/json", "null", 400),
        ("text behind", "application/json", "{} x", 400),
        ("not UTF-8's idea", "application/json", "{\"metadata\":{\"name\":\"\\ud800\"}}", 400),
        ("wrong YAML", "application/yaml", "a: [1\nb: }", 400),
        ("tabs", "application/yaml", "a:\n\t- b", 400),
        ("deep lists", "application/json", &deep_json, 400),
        ("deep objects", "application/json", &deep_objects, 400),
        ("deep YAML", "application/yaml", &deep_yaml, 400),
        ("a YAML bomb", "application/yaml", &bomb, 400),
        ("XML", "application/xml", "<a/>", 415),
        ("protobuf of nothing", "application/vnd.kubernetes.protobuf", "k8s\0", 400),
        (
            "another kind",
            "application/json",
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}"#,
            400,
        ),
        (
            "another version",
            "application/json",
            r#"{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"x"}}"#,
            400,
        ),
        ("no name", "application/json", r#"{"metadata":{}}"#, 422),
        ("a number as name", "application/json", r#"{"metadata":{"name":1}}"#, 400),
        ("a list as metadata", "application/json", r#"{"metadata":[]}"#, 400),
        ("data of wrong type", "application/json", r#"{"metadata":{"name":"x"},"data":{"a":1}}"#, 400),
        ("a wrong name", "application/json", r#"{"metadata":{"name":"Not Right"}}"#, 422),
        ("a name with a slash", "application/json", r#"{"metadata":{"name":"../secrets/x"}}"#, 422),
        ("a wrong label", "application/json", r#"{"metadata":{"name":"x","labels":{"a b":"c"}}}"#, 422),
        (
            "a wrong time",
            "application/json",
            r#"{"metadata":{"name":"x","creationTimestamp":"yesterday"}}"#,
            400,
        ),
        ("a large number", "application/json", r#"{"metadata":{"name":"x","generation":1e400}}"#, 400),
    ];
    for (what, media_type, body, code) in cases {
        let answer = http.send("POST", CONFIG_MAPS, &[("content-type", media_type)], body.to_string()).await;
        assert_eq!(answer.code, *code, "{what}: {}", answer.text());
        let status = answer.json();
        assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")), "{what}");
        assert_eq!(status["code"], *code, "{what}");
        let reason = match code {
            415 => "UnsupportedMediaType",
            422 => "Invalid",
            _ => "BadRequest",
        };
        assert_eq!(status["reason"], reason, "{what}");
    }
    goes_on(&http).await;
}

#[tokio::test]
async fn complaints_name_the_field() {
    let server = TestServer::start().await;
    let http = server.http();
    let changed = |pointer: &str, value: Value| {
        let mut object = pod("p");
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[member] = value;
        object
    };
    let cases = [
        (changed("/metadata/name", "A".into()), "metadata.name", "FieldValueInvalid"),
        (changed("/spec/containers", json!([])), "spec.containers", "FieldValueRequired"),
        (changed("/spec/restartPolicy", "Sometimes".into()), "spec.restartPolicy", "FieldValueNotSupported"),
        (changed("/spec/containers/0/image", "".into()), "spec.containers[0].image", "FieldValueRequired"),
        (
            changed("/spec/containers/0/imagePullPolicy", "Maybe".into()),
            "spec.containers[0].imagePullPolicy",
            "FieldValueNotSupported",
        ),
        (
            changed("/spec/volumes", json!([{"name": "v"}, {"name": "v", "emptyDir": {}}])),
            "spec.volumes[1].name",
            "FieldValueDuplicate",
        ),
        (
            changed("/spec/containers/0/ports", json!([{"containerPort": 70000}])),
            "spec.containers[0].ports[0].containerPort",
            "FieldValueInvalid",
        ),
    ];
    for (object, field, reason) in cases {
        let answer = http.post(PODS, &object).await;
        assert_eq!((answer.code, answer.reason().as_str()), (422, "Invalid"), "{field}: {}", answer.text());
        let status = answer.json();
        let causes = status["details"]["causes"].as_array().unwrap();
        let found = causes.iter().any(|cause| cause["field"] == field && cause["reason"] == reason);
        assert!(found, "{field} {reason}: {causes:?}");
    }
    let wrong_type = http.post(PODS, &changed("/spec/terminationGracePeriodSeconds", "x".into())).await;
    assert_eq!(wrong_type.code, 400);
    assert!(wrong_type.message().contains("spec.terminationGracePeriodSeconds"), "{}", wrong_type.message());
    let names = |answer: &testing::Answer, field: &str| {
        let causes = answer.json()["details"]["causes"].clone();
        assert_eq!(causes[0]["field"], field, "{}", answer.text());
    };
    let env = json!([{"name": "a", "value": "x"}, {"name": "b", "value": true}]);
    let wrong = http.post(PODS, &changed("/spec/containers/0/env", env)).await;
    let message =
        "json: cannot unmarshal bool into Go struct field EnvVar.spec.containers.env.value of type string";
    assert_eq!((wrong.code, wrong.message().contains(message)), (400, true), "{}", wrong.text());
    names(&wrong, "spec.containers[0].env[1].value");
    let secret = json!({"metadata": {"name": "s"}, "data": {"key": "plain text"}});
    let wrong = http.post("/api/v1/namespaces/default/secrets", &secret).await;
    assert_eq!((wrong.code, wrong.message().contains("illegal base64 data at input byte 5")), (400, true));
    names(&wrong, "data.key");
    let quantity = json!({"requests": {"cpu": "lots"}});
    let wrong = http.post(PODS, &changed("/spec/containers/0/resources", quantity)).await;
    assert_eq!(wrong.code, 400);
    assert!(wrong.message().contains("quantities must match the regular expression"), "{}", wrong.message());
    names(&wrong, "spec.containers[0].resources.requests.cpu");
}

#[tokio::test]
async fn bodies_that_are_too_large() {
    let server = TestServer::start().await;
    let http = server.http();
    let large = config_map("large", &"x".repeat(3 * 1024 * 1024));
    let answer = http.post(CONFIG_MAPS, &large).await;
    assert_eq!((answer.code, answer.reason().as_str()), (413, "RequestEntityTooLarge"), "{}", answer.text());
    // Who is still sending learns it, too: a connection that is closed meanwhile would break before the answer is read.
    let larger = config_map("larger", &"x".repeat(16 * 1024 * 1024));
    for _ in 0..5 {
        http.post(CONFIG_MAPS, &larger).await.expect(413);
    }
    let over = config_map("over", &"x".repeat(1024 * 1024 + 1));
    let answer = http.post(CONFIG_MAPS, &over).await;
    assert_eq!(answer.code, 422, "a ConfigMap holds 1 MiB: {}", answer.message());
    goes_on(&http).await;

    let long: Vec<Value> = (0..100_000).map(|n| json!({"name": format!("E{n}"), "value": "1"})).collect();
    let mut object = pod("long");
    object["spec"]["containers"][0]["env"] = long.into();
    let answer = http.post(&format!("{PODS}?fieldManager=m"), &object).await;
    assert_eq!(answer.code, 413, "{}", answer.message());
    let unknown: serde_json::Map<String, Value> = (0..100_000).map(|n| (format!("f{n}"), json!(1))).collect();
    let mut object = pod("unknown");
    object["spec"] = unknown.into();
    let answer = http.post(&format!("{PODS}?fieldValidation=Strict"), &object).await;
    assert_eq!(answer.code, 400);
    assert!(answer.body.len() < 100_000, "a complaint is bounded: {}", answer.body.len());
    goes_on(&http).await;
}

#[tokio::test]
async fn patches_that_are_meant_badly() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(DEPLOYMENTS, &deployment("web", 1)).await.expect(201);
    let path = format!("{DEPLOYMENTS}/web");
    let deep = format!("{}1{}", "{\"a\":".repeat(5_000), "}".repeat(5_000));
    let copies: Vec<Value> =
        (0..10_001).map(|n| json!({"op": "copy", "from": "/spec", "path": format!("/spec/a{n}")})).collect();
    let doubling: Vec<Value> =
        (0..60).map(|n| json!({"op": "copy", "from": "/spec", "path": format!("/spec/a{n}")})).collect();
    let cases: Vec<(&str, &str, String, u16)> = vec![
        ("no list", "application/json-patch+json", "{}".into(), 400),
        ("no operation", "application/json-patch+json", r#"[{"op":"fly","path":"/a"}]"#.into(), 422),
        ("no path", "application/json-patch+json", r#"[{"op":"remove"}]"#.into(), 422),
        ("a wrong pointer", "application/json-patch+json", r#"[{"op":"remove","path":"spec"}]"#.into(), 422),
        (
            "a far index",
            "application/json-patch+json",
            r#"[{"op":"add","path":"/spec/template/spec/containers/99999999999","value":1}]"#.into(),
            422,
        ),
        ("the whole object", "application/json-patch+json", r#"[{"op":"remove","path":""}]"#.into(), 422),
        ("too many operations", "application/json-patch+json", Value::from(copies).to_string(), 413),
        ("doubling", "application/json-patch+json", Value::from(doubling).to_string(), 422),
        (
            "another name",
            "application/json-patch+json",
            r#"[{"op":"replace","path":"/metadata/name","value":"x"}]"#.into(),
            400,
        ),
        ("a list", "application/merge-patch+json", "[]".into(), 400),
        ("text", "application/merge-patch+json", "\"x\"".into(), 400),
        ("deep", "application/merge-patch+json", deep.clone(), 400),
        ("another kind", "application/merge-patch+json", r#"{"kind":"Pod"}"#.into(), 400),
        ("deep", "application/strategic-merge-patch+json", deep, 400),
        (
            "an unknown directive",
            "application/strategic-merge-patch+json",
            r#"{"spec":{"$patch":"explode"}}"#.into(),
            422,
        ),
        (
            "no merge key",
            "application/strategic-merge-patch+json",
            r#"{"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}}"#.into(),
            422,
        ),
        (
            "an order of nonsense",
            "application/strategic-merge-patch+json",
            r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[1,[],{}]}}}}"#.into(),
            422,
        ),
        ("no manager", "application/apply-patch+yaml", "{}".into(), 422),
        ("plain JSON", "application/json", "{}".into(), 415),
    ];
    let mut wrong = Vec::new();
    for (what, media_type, body, code) in cases {
        let answer = http.send("PATCH", &path, &[("content-type", media_type)], body).await;
        if answer.code != code {
            wrong.push(format!("{what} as {media_type}: {} {}", answer.code, answer.text()));
        }
        assert_eq!(answer.json()["kind"], "Status", "{what}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (what, body) in [
        ("a list", "[]"),
        ("text", "x: ["),
        ("another kind", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}"),
    ] {
        let yaml = [("content-type", "application/apply-patch+yaml")];
        let answer = http.send("PATCH", &format!("{path}?fieldManager=m"), &yaml, body).await;
        assert_eq!(answer.code, 400, "{what}: {}", answer.text());
    }
    assert_eq!(http.get(&path).await.expect(200)["metadata"]["generation"], 1);
    goes_on(&http).await;
}

#[tokio::test]
async fn paths_selectors_and_tokens_that_make_no_sense() {
    let server = TestServer::start().await;
    let http = server.http();
    let long = "a".repeat(20_000);
    let many = format!("a%20in%20({})", "b,".repeat(5_000));
    let cases: &[(&str, &str, u16)] = &[
        ("GET", "/nowhere", 404),
        ("GET", "/api/v9/pods", 404),
        ("GET", "/apis/nobody.io/v1/things", 404),
        ("GET", "/api/v1/namespaces/default/things", 404),
        ("GET", "/api/v1/namespaces/default/pods/p/nothing", 404),
        ("GET", "/api/v1/namespaces/default/pods/%2e%2e%2fsecrets", 404),
        ("GET", "/api/v1/namespaces/default/pods/..", 404),
        ("GET", "/api/v1/namespaces/default/pods/a%00b", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/pods?labelSelector=a%3D%3D%3Db", 400),
        ("GET", "/api/v1/pods?labelSelector=(((", 400),
        ("GET", "/api/v1/pods?labelSelector=a%20in%20(", 400),
        ("GET", &format!("/api/v1/pods?labelSelector={many}"), 200),
        ("GET", &format!("/api/v1/pods?labelSelector={long}"), 400),
        ("GET", "/api/v1/pods?fieldSelector=nonsense", 400),
        ("GET", "/api/v1/pods?fieldSelector=a.b%3Dc", 400),
        ("GET", "/api/v1/pods?continue=nonsense", 400),
        ("GET", "/api/v1/pods?continue=e30", 400),
        ("GET", "/api/v1/pods?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTUsInN0YXJ0IjoiLi4vIn0", 400),
        ("GET", "/api/v1/pods?limit=99999999999999999999", 400),
        ("GET", "/api/v1/pods?watch=true&timeoutSeconds=x", 400),
        ("GET", "/api/v1/pods?a=%zz", 400),
        ("PUT", "/api/v1/namespaces/default/pods", 405),
        ("PATCH", "/api/v1/namespaces/default/pods", 405),
        ("POST", "/api/v1/namespaces/default/pods/p", 405),
        ("POST", "/api/v1/pods", 405),
        ("DELETE", "/api/v1/pods", 405),
        ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews", 405),
        ("OPTIONS", "/api/v1/pods", 405),
        ("BREW", "/api/v1/pods", 405),
        ("POST", "/version", 404),
    ];
    for (method, path, code) in cases {
        let body = if *method == "GET" { "" } else { "{}" };
        let answer = http.send(method, path, &JSON, body).await;
        assert_eq!(answer.code, *code, "{method} {}: {}", &path[..path.len().min(200)], answer.text());
    }
    let missing = http.get(&format!("{PODS}/none")).await;
    assert_eq!(
        (missing.reason().as_str(), missing.message().as_str()),
        ("NotFound", "pods \"none\" not found")
    );
    assert_eq!(missing.json()["details"], json!({"name": "none", "kind": "pods"}));
    let nowhere = http.get("/nowhere").await;
    assert_eq!(nowhere.code, 404);
    let wrong = http.put("/api/v1/namespaces/default/pods", &json!({})).await;
    assert_eq!(wrong.reason(), "MethodNotAllowed");
    goes_on(&http).await;
}

#[tokio::test]
async fn options_of_deletion_that_make_no_sense() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(DEPLOYMENTS, &deployment("web", 1)).await.expect(201);
    let path = format!("{DEPLOYMENTS}/web");
    for (body, code) in [
        ("[]", 400),
        ("{\"gracePeriodSeconds\": \"soon\"}", 400),
        ("{\"preconditions\": []}", 400),
        ("{\"propagationPolicy\": 7}", 400),
        ("{\"propagationPolicy\": \"Up\"}", 422),
        ("{\"dryRun\": [\"Some\"]}", 422),
        ("{\"orphanDependents\": true, \"propagationPolicy\": \"Orphan\"}", 422),
    ] {
        let answer = http.send("DELETE", &path, &JSON, body).await;
        assert_eq!(answer.code, code, "{body}: {}", answer.text());
    }
    http.get(&path).await.expect(200);
}
