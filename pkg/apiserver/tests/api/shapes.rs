//! How answers look: tables, metadata only, YAML, compressed; and what is said about fields nobody knows.

use crate::{CONFIG_MAPS, PODS, config_map, pod};
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use std::io::Read;
use testing::TestServer;

const TABLE: [(&str, &str); 1] =
    [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];

#[tokio::test]
async fn a_table_has_the_columns_that_kubectl_shows() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(PODS, &pod("p")).await.expect(201);
    let list = http.send("GET", PODS, &TABLE, "").await.expect(200);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns = list["columnDefinitions"].as_array().unwrap();
    let shown: Vec<&str> =
        columns.iter().filter(|c| c["priority"] == 0).map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(shown, ["Name", "Ready", "Status", "Restarts", "Age"]);
    let cells = &list["rows"][0]["cells"];
    assert_eq!((&cells[0], &cells[1], &cells[2]), (&json!("p"), &json!("0/1"), &json!("Pending")));
    assert_eq!(list["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert!(list["metadata"]["resourceVersion"].is_string());

    let one = http.send("GET", &format!("{PODS}/p?includeObject=Object"), &TABLE, "").await.expect(200);
    assert_eq!(one["rows"][0]["object"]["spec"]["containers"][0]["name"], "c");
    let none = http.send("GET", &format!("{PODS}?includeObject=None"), &TABLE, "").await.expect(200);
    assert!(none["rows"][0]["object"].is_null(), "{none}");
    http.send("GET", &format!("{PODS}?includeObject=Half"), &TABLE, "").await.expect(400);
}

/// Older clients ask for them by the name that they had first.
#[tokio::test]
async fn tables_and_metadata_are_answered_in_the_older_version_too() {
    const BETA: &str = "meta.k8s.io/v1beta1";
    let server = TestServer::start().await;
    let http = server.http();
    http.post(PODS, &pod("p")).await.expect(201);
    let accept = |shape: &str| format!("application/json;as={shape};v=v1beta1;g=meta.k8s.io");
    let get = async |shape: &str, path: &str| http.send("GET", path, &[("accept", &accept(shape))], "").await;

    let table = get("Table", PODS).await.expect(200);
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!(BETA)));
    let object = &table["rows"][0]["object"];
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("PartialObjectMetadata"), &json!(BETA)));
    let whole = get("Table", &format!("{PODS}/p?includeObject=Object")).await.expect(200);
    assert_eq!(
        (&whole["apiVersion"], &whole["rows"][0]["object"]["apiVersion"]),
        (&json!(BETA), &json!("v1"))
    );
    let list = get("PartialObjectMetadataList", PODS).await.expect(200);
    assert_eq!((&list["apiVersion"], &list["items"][0]["apiVersion"]), (&json!(BETA), &json!(BETA)));
    let one = get("PartialObjectMetadata", &format!("{PODS}/p")).await.expect(200);
    assert_eq!((&one["kind"], &one["apiVersion"]), (&json!("PartialObjectMetadata"), &json!(BETA)));

    let watch = format!("{PODS}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion=0");
    for (shape, kinds) in
        [("Table", ["Table", "Table"]), ("PartialObjectMetadata", ["PartialObjectMetadata"; 2])]
    {
        let events = get(shape, &watch).await.text();
        let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told: Vec<&Value> = events.iter().map(|event| &event["object"]["kind"]).collect();
        assert_eq!(told, kinds, "one pod and the last bookmark");
        assert!(events.iter().all(|event| event["object"]["apiVersion"] == BETA), "{events:?}");
    }
}

#[tokio::test]
async fn metadata_alone_is_enough_for_some() {
    let server = TestServer::start().await;
    server.http().post(PODS, &pod("p")).await.expect(201);
    let api: Api<Pod> = Api::namespaced(server.admin(), "default");
    assert_eq!(api.get_metadata("p").await.unwrap().name_any(), "p");
    assert_eq!(api.list_metadata(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn fields_nobody_knows_are_refused_warned_about_or_dropped() {
    let server = TestServer::start().await;
    let http = server.http();
    let mut object = pod("p");
    object["spec"]["colour"] = "red".into();
    object["spec"]["containers"][0]["comand"] = json!(["x"]);
    let strict = http.post(&format!("{PODS}?fieldValidation=Strict&dryRun=All"), &object).await;
    assert_eq!((strict.code, strict.reason().as_str()), (400, "BadRequest"));
    let message = strict.message();
    assert!(
        message.contains("strict decoding error: unknown field \"spec.colour\"")
            || message.contains("unknown field \"spec.containers[0].comand\""),
        "{message}"
    );
    let warned = http.post(&format!("{PODS}?fieldValidation=Warn&dryRun=All"), &object).await;
    assert!(warned.expect(201)["spec"].get("colour").is_none());
    let warnings: Vec<&str> = warned.headers.get_all("warning").iter().map(|w| w.to_str().unwrap()).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.contains(&"299 - \"unknown field \\\"spec.colour\\\"\""), "{warnings:?}");
    let ignored = http.post(&format!("{PODS}?fieldValidation=Ignore&dryRun=All"), &object).await;
    ignored.expect(201);
    assert!(ignored.headers.get("warning").is_none());

    let twice = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"d"},"data":{"a":"1","a":"2"}}"#;
    let json = [("content-type", "application/json")];
    let strict = http.send("POST", &format!("{CONFIG_MAPS}?fieldValidation=Strict"), &json, twice).await;
    assert_eq!(strict.code, 400);
    assert!(strict.message().contains("duplicate field \"data.a\""), "{}", strict.message());
    let warned = http.send("POST", CONFIG_MAPS, &json, twice).await;
    assert_eq!(warned.expect(201)["data"]["a"], "2", "the last one counts");
    let warning = warned.headers.get("warning").unwrap().to_str().unwrap();
    assert!(warning.contains("duplicate field"), "{warning}");

    let twice = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: twice}\ndata:\n  a: one\n  a: two\n";
    let yaml = [("content-type", "application/yaml")];
    let strict = http.send("POST", &format!("{CONFIG_MAPS}?fieldValidation=Strict"), &yaml, twice).await;
    assert_eq!(strict.code, 400);
    assert!(strict.message().contains("line 6: key \"a\" already set in map"), "{}", strict.message());
    let warned = http.send("POST", CONFIG_MAPS, &yaml, twice).await;
    assert_eq!(warned.expect(201)["data"]["a"], "two", "the last one counts");
    assert_eq!(warned.headers["warning"], "299 - \"line 6: key \\\"a\\\" already set in map\"");
    http.post(&format!("{CONFIG_MAPS}?fieldValidation=Maybe"), &config_map("e", "1")).await.expect(422);
    let patch = json!({"data": {"a": "3"}, "colour": "red"});
    let strict = http.patch(&format!("{CONFIG_MAPS}/d?fieldValidation=Strict"), "merge", &patch).await;
    assert_eq!(strict.code, 422, "{}", strict.text());
}

#[tokio::test]
async fn yaml_goes_both_ways() {
    let server = TestServer::start().await;
    let http = server.http();
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yes-please\ndata:\n  key: |\n    two\n    lines\n";
    let yaml = [("content-type", "application/yaml"), ("accept", "application/yaml")];
    let created = http.send("POST", CONFIG_MAPS, &yaml, text).await;
    created.expect(201);
    assert!(created.headers["content-type"].to_str().unwrap().starts_with("application/yaml"));
    assert!(created.text().contains("name: yes-please"), "{}", created.text());
    assert_eq!(
        http.get(&format!("{CONFIG_MAPS}/yes-please")).await.expect(200)["data"]["key"],
        "two\nlines\n"
    );
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_want_it() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(CONFIG_MAPS, &config_map("big", &"x".repeat(300_000))).await.expect(201);
    let answer = http.send("GET", &format!("{CONFIG_MAPS}/big"), &[("accept-encoding", "gzip")], "").await;
    assert_eq!(answer.headers["content-encoding"], "gzip");
    assert!(answer.body.len() < 30_000, "{}", answer.body.len());
    let mut text = String::new();
    GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
    let object: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(object["data"]["key"].as_str().unwrap().len(), 300_000);
    let plain = http.get(&format!("{CONFIG_MAPS}/big")).await;
    assert!(plain.headers.get("content-encoding").is_none() && plain.body.len() > 300_000);
    let small = http.send("GET", "/version", &[("accept-encoding", "gzip")], "").await;
    assert!(small.headers.get("content-encoding").is_none());
}

#[tokio::test]
async fn what_cannot_be_made_is_not_acceptable() {
    let server = TestServer::start().await;
    let http = server.http();
    let cases = [
        ("application/vnd.kubernetes.protobuf", 406),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("image/png", 406),
        ("*/*", 200),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", 200),
    ];
    for (accept, code) in cases {
        let answer = http.send("GET", PODS, &[("accept", accept)], "").await;
        assert_eq!(answer.code, code, "{accept}: {}", answer.text());
    }
    let question = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (accept, code) in [(table.to_owned(), 406), (format!("{table},application/json"), 201)] {
        let headers = [("accept", &*accept), ("content-type", "application/json")];
        let answer = http.send("POST", path, &headers, question.to_string()).await;
        assert_eq!(answer.code, code, "questions have no tables: {}", answer.text());
        assert_eq!(answer.json()["kind"], if code == 201 { "SelfSubjectAccessReview" } else { "Status" });
    }
}
