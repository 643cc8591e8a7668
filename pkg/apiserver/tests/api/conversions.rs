//! Versions of custom objects between which a webhook converts.

use crate::names;
use crate::webhooks::Webhook;
use serde_json::{Value, json};
use testing::{Http, TestServer, eventually};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/places";
const V2: &str = "/apis/example.com/v2/namespaces/default/places";

/// Version 1 has `hostPort`, version 2 has `host` and `port`.
fn convert(path: &str, request: &Value) -> Value {
    if path == "/broken" {
        return json!({"result": {"status": "Failed", "message": "cannot"}});
    }
    let converted = |object: &Value| {
        let mut object = object.clone();
        let wanted = request["desiredAPIVersion"].clone();
        let members = object.as_object_mut().unwrap();
        if wanted == "example.com/v1" {
            let mut text = |name: &str| members.remove(name).and_then(|it| it.as_str().map(str::to_owned));
            let (host, port) = (text("host").unwrap_or_default(), text("port").unwrap_or_default());
            members.insert("hostPort".into(), format!("{host}:{port}").into());
        } else {
            let both = members.remove("hostPort").unwrap_or_default();
            let (host, port) = both.as_str().and_then(|text| text.split_once(':')).unwrap_or_default();
            members.insert("host".into(), host.into());
            members.insert("port".into(), port.into());
            members.insert("unknown".into(), 1.into());
        }
        members.insert("apiVersion".into(), wanted);
        object
    };
    let objects: Vec<Value> = request["objects"].as_array().unwrap().iter().map(converted).collect();
    json!({"result": {"status": "Success"}, "convertedObjects": objects})
}

fn definition(webhook: &Webhook, path: &str) -> Value {
    let version = |name: &str, storage: bool, fields: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
        let selectable: Vec<Value> =
            fields.iter().map(|field| json!({"jsonPath": format!(".{field}")})).collect();
        json!({
            "name": name, "served": true, "storage": storage, "selectableFields": selectable,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        })
    };
    let client =
        json!({"url": format!("https://localhost:{}{path}", webhook.port), "caBundle": webhook.bundle});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "places.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "places", "kind": "Place"},
            "versions": [version("v1", true, &["hostPort"]), version("v2", false, &["host", "port"])],
            "conversion": {
                "strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
            },
        },
    })
}

fn place(name: &str, host: &str, port: &str) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Place", "metadata": {"name": name}, "host": host, "port": port})
}

async fn selected(http: &Http, path: &str, selector: &str) -> Vec<String> {
    let list = http.get(&format!("{path}?fieldSelector={selector}")).await.expect(200);
    names(&list).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_webhook_converts_what_is_written_read_selected_and_watched() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(convert).await;
    http.post(DEFINITIONS, &definition(&webhook, "/convert")).await.expect(201);
    eventually("it is served", async || (http.get(V2).await.code == 200).then_some(())).await;
    let mut of_host = http.watch(&format!("{V2}?watch=true&fieldSelector=host=host1")).await;
    let mut of_place = http.watch(&format!("{V1}?watch=true&fieldSelector=hostPort=host1:80")).await;
    for (name, host, port) in [("a", "host1", "80"), ("b", "host1", "8080"), ("c", "host2", "")] {
        let made = http.post(V2, &place(name, host, port)).await.expect(201);
        assert_eq!((&made["apiVersion"], &made["host"]), (&json!("example.com/v2"), &json!(host)));
    }
    let stored = http.get(&format!("{V1}/a")).await.expect(200);
    assert_eq!((&stored["hostPort"], stored.get("host")), (&json!("host1:80"), None), "{stored}");
    let read = http.get(&format!("{V2}/a")).await.expect(200);
    assert_eq!((&read["host"], &read["port"], read.get("unknown")), (&json!("host1"), &json!("80"), None));
    let list = http.get(V2).await.expect(200);
    assert!(
        list["items"].as_array().unwrap().iter().all(|item| item["apiVersion"] == "example.com/v2"),
        "{list}"
    );

    assert_eq!(selected(&http, V2, "host=host1").await, ["a", "b"]);
    assert_eq!(selected(&http, V2, "host=host1,port=80").await, ["a"]);
    assert_eq!(selected(&http, V1, "hostPort=host1:8080").await, ["b"]);
    for name in ["a", "b"] {
        let event = of_host.next().await.unwrap();
        assert_eq!((&*event.kind, event.name(), &event.object["host"]), ("ADDED", name, &json!("host1")));
    }
    assert_eq!(of_place.next().await.unwrap().name(), "a");

    http.delete(&format!("{V2}?fieldSelector=host=host1,port=80"), &Value::Null).await.expect(200);
    let mut moved = http.get(&format!("{V2}/b")).await.expect(200);
    moved["host"] = "host2".into();
    assert_eq!(http.put(&format!("{V2}/b"), &moved).await.expect(200)["host"], "host2");
    http.patch(&format!("{V2}/c"), "merge", &json!({"port": "1"})).await.expect(200);
    assert_eq!(http.get(&format!("{V1}/c")).await.expect(200)["hostPort"], "host2:1");
    assert_eq!(selected(&http, V2, "host=host1").await, [""; 0]);
    assert_eq!(selected(&http, V2, "host=host2").await, ["b", "c"]);
    for name in ["a", "b"] {
        let event = of_host.next().await.unwrap();
        assert_eq!((&*event.kind, event.name(), &event.object["host"]), ("DELETED", name, &json!("host1")));
    }
    let gone = of_place.next().await.unwrap();
    assert_eq!((&*gone.kind, gone.name()), ("DELETED", "a"));
}

#[tokio::test]
async fn what_a_webhook_cannot_convert_is_not_shown() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(convert).await;
    http.post(DEFINITIONS, &definition(&webhook, "/broken")).await.expect(201);
    eventually("it is served", async || (http.get(V1).await.code == 200).then_some(())).await;
    let mut object = place("a", "h", "1");
    let refused = http.post(V2, &object).await;
    assert_eq!(refused.code, 500);
    assert_eq!(refused.message(), "conversion webhook for example.com/v2, Kind=Place failed: cannot");
    object["apiVersion"] = "example.com/v1".into();
    object["hostPort"] = "h:1".into();
    http.post(V1, &object).await.expect(201);
    for path in [V2.to_owned(), format!("{V2}/a")] {
        let failed = http.get(&path).await;
        assert_eq!(failed.code, 500, "{path}");
        assert_eq!(failed.message(), "conversion webhook for example.com/v1, Kind=Place failed: cannot");
    }
    assert_eq!(http.get(&format!("{V1}/a")).await.expect(200)["hostPort"], "h:1");
}
