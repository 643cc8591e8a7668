//! Collections: pages, moments, selectors, and deleting many at once.

use crate::{CONFIG_MAPS, PODS, config_map, names, pod, version};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testing::{Engine, Http, TestServer, eventually};

async fn with_config_maps(http: &Http, count: usize) -> Vec<Value> {
    let mut made = Vec::new();
    for index in 0..count {
        let mut object = config_map(&format!("c{index:02}"), "1");
        object["metadata"]["labels"] = json!({"parity": if index % 2 == 0 { "even" } else { "odd" }});
        made.push(http.post(CONFIG_MAPS, &object).await.expect(201));
    }
    made
}

#[tokio::test]
async fn all_pages_show_the_moment_of_the_first() {
    for engine in Engine::both() {
        let server = TestServer::start_on(engine).await;
        let http = server.http();
        with_config_maps(&http, 10).await;
        let first = http.get(&format!("{CONFIG_MAPS}?limit=4")).await.expect(200);
        assert_eq!(names(&first), ["c00", "c01", "c02", "c03"]);
        assert_eq!(first["metadata"]["remainingItemCount"], 6);

        http.delete(&format!("{CONFIG_MAPS}/c05"), &Value::Null).await.expect(200);
        http.post(CONFIG_MAPS, &config_map("c045", "new")).await.expect(201);
        http.patch(&format!("{CONFIG_MAPS}/c06"), "merge", &json!({"data": {"key": "2"}})).await.expect(200);
        let token = first["metadata"]["continue"].as_str().unwrap();
        let second = http.get(&format!("{CONFIG_MAPS}?limit=4&continue={token}")).await.expect(200);
        assert_eq!(names(&second), ["c04", "c05", "c06", "c07"]);
        assert_eq!(version(&second), version(&first));
        assert_eq!(second["items"][2]["data"]["key"], "1");
        let token = second["metadata"]["continue"].as_str().unwrap();
        let last = http.get(&format!("{CONFIG_MAPS}?limit=4&continue={token}")).await.expect(200);
        assert_eq!(names(&last), ["c08", "c09"]);
        assert!(
            last["metadata"].get("continue").is_none()
                && last["metadata"].get("remainingItemCount").is_none()
        );

        let both =
            http.get(&format!("{CONFIG_MAPS}?continue={token}&resourceVersion={}", version(&first))).await;
        assert_eq!(both.code, 400, "{}", both.text());
    }
}

#[tokio::test]
async fn a_page_of_a_forgotten_moment_says_how_to_go_on() {
    let server = TestServer::start_with(Engine::Embedded, |config| {
        config.compaction_interval = Duration::from_millis(20);
    })
    .await;
    let http = server.http();
    with_config_maps(&http, 3).await;
    let first = http.get(&format!("{CONFIG_MAPS}?limit=1")).await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let expired = eventually("the token expires", || async {
        // Time goes on only where something is written.
        http.patch(
            &format!("{CONFIG_MAPS}/c00"),
            "merge",
            &json!({"data": {"key": format!("{:?}", Instant::now())}}),
        )
        .await
        .expect(200);
        let answer = http.get(&format!("{CONFIG_MAPS}?limit=1&continue={token}")).await;
        (answer.code == 410).then(|| answer.json())
    })
    .await;
    assert_eq!(expired["reason"], "Expired", "{expired}");
    let token = expired["metadata"]["continue"].as_str().expect("a token for what is left");
    http.delete(&format!("{CONFIG_MAPS}/c01"), &Value::Null).await.expect(200);
    let rest = http.get(&format!("{CONFIG_MAPS}?continue={token}")).await.expect(200);
    assert_eq!(names(&rest), ["c02"], "what is left, as it is now");
}

#[tokio::test]
async fn a_list_shows_the_moment_that_is_asked_for() {
    let server = TestServer::start().await;
    let http = server.http();
    let made = with_config_maps(&http, 3).await;
    let moment = version(&made[1]);
    let exact = http.get(&format!("{CONFIG_MAPS}?resourceVersion={moment}&resourceVersionMatch=Exact")).await;
    let exact = exact.expect(200);
    assert_eq!((names(&exact), version(&exact)), (vec!["c00", "c01"], moment));
    let last = version(&made[2]);
    let newer =
        http.get(&format!("{CONFIG_MAPS}?resourceVersion={last}&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!(names(&newer.expect(200)).len(), 3);
    assert_eq!(names(&http.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.expect(200)).len(), 3);

    let future = http.get(&format!("{CONFIG_MAPS}?resourceVersion=999999999")).await;
    assert_eq!((future.code, future.reason().as_str()), (504, "Timeout"), "{}", future.text());
    assert!(future.message().contains("Too large resource version: 999999999"), "{}", future.message());
    assert_eq!(future.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    let cases = [
        ("resourceVersion=abc", 400),
        ("resourceVersionMatch=Exact", 422),
        ("resourceVersionMatch=Sometimes&resourceVersion=1", 422),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422),
        ("limit=abc", 400),
    ];
    for (query, code) in cases {
        let answer = http.get(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(answer.code, code, "{query}: {}", answer.text());
        assert_eq!(answer.json()["kind"], "Status");
    }
}

#[tokio::test]
async fn selectors_select() {
    let server = TestServer::start().await;
    let http = server.http();
    with_config_maps(&http, 5).await;
    let api: Api<ConfigMap> = Api::namespaced(server.admin(), "default");
    let check = async |params: ListParams, expected: &[&str]| {
        let list = api.list(&params).await.unwrap();
        let names: Vec<String> = list.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, expected, "{params:?}");
    };
    check(ListParams::default().labels("parity=odd"), &["c01", "c03"]).await;
    check(ListParams::default().labels("parity!=odd"), &["c00", "c02", "c04"]).await;
    check(ListParams::default().labels("parity in (odd, none),parity"), &["c01", "c03"]).await;
    check(ListParams::default().labels("!parity"), &[]).await;
    check(ListParams::default().fields("metadata.name=c02"), &["c02"]).await;
    check(ListParams::default().fields("metadata.name!=c02").labels("parity=even"), &["c00", "c04"]).await;

    let page = http.get(&format!("{CONFIG_MAPS}?labelSelector=parity%3Deven&limit=2")).await.expect(200);
    assert_eq!(names(&page), ["c00", "c02"]);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = http.get(&format!("{CONFIG_MAPS}?labelSelector=parity%3Deven&limit=2&continue={token}")).await;
    assert_eq!(names(&rest.expect(200)), ["c04"]);

    http.post(PODS, &pod("p")).await.expect(201);
    let unbound =
        http.get("/api/v1/pods?fieldSelector=spec.nodeName%3D,status.phase%3DPending").await.expect(200);
    assert_eq!(names(&unbound), ["p"]);
    let unknown = http.get("/api/v1/pods?fieldSelector=spec.color%3Dred").await;
    assert_eq!(unknown.code, 400);
    assert!(unknown.message().contains("field label not supported: spec.color"), "{}", unknown.message());
}

#[tokio::test]
async fn lists_over_all_namespaces_and_of_one() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.expect(201);
    for namespace in ["default", "team"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        http.post(&path, &config_map("same", namespace)).await.expect(201);
    }
    let all = http.get("/api/v1/configmaps?fieldSelector=metadata.name%3Dsame").await.expect(200);
    assert_eq!(names(&all), ["same", "same"]);
    let one =
        http.get("/api/v1/configmaps?fieldSelector=metadata.namespace%3Dteam,metadata.name%3Dsame").await;
    assert_eq!(one.expect(200)["items"][0]["data"]["key"], "team");
}

#[tokio::test]
async fn a_collection_is_deleted_as_far_as_selected() {
    let server = TestServer::start().await;
    let http = server.http();
    with_config_maps(&http, 6).await;
    let api: Api<ConfigMap> = Api::namespaced(server.admin(), "default");
    let odd = ListParams::default().labels("parity=odd");
    api.delete_collection(&DeleteParams::default(), &odd).await.unwrap();
    let left = http.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(names(&left), ["c00", "c02", "c04"]);
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    api.delete_collection(&dry, &ListParams::default()).await.unwrap();
    assert_eq!(names(&http.get(CONFIG_MAPS).await.expect(200)).len(), 3);
    http.send("DELETE", "/api/v1/configmaps", &[], "").await.expect(405);
}

#[tokio::test]
async fn a_read_sees_every_write_that_was_acknowledged() {
    for engine in Engine::both() {
        let server = TestServer::start_on(engine).await;
        let api: Api<ConfigMap> = Api::namespaced(server.admin(), "default");
        for round in 0..50 {
            let name = format!("r{round}");
            let object: ConfigMap = serde_json::from_value(config_map(&name, "1")).unwrap();
            let created = api.create(&PostParams::default(), &object).await.unwrap();
            assert_eq!(api.get(&name).await.unwrap().resource_version(), created.resource_version());
            let list = api.list(&ListParams::default()).await.unwrap();
            assert!(list.iter().any(|item| item.name_any() == name));
            api.delete(&name, &DeleteParams::default()).await.unwrap();
            assert!(api.get_opt(&name).await.unwrap().is_none());
        }
    }
}
