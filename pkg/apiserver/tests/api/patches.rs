//! Four languages of change, and who owns which field.

use crate::{CONFIG_MAPS, DEPLOYMENTS, config_map, deployment, version};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use testing::{Http, TestServer};

async fn apply(http: &Http, path: &str, manager: &str, more: &str, object: Value) -> testing::Answer {
    http.patch(&format!("{path}?fieldManager={manager}{more}"), "apply", &object).await
}

fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let mut names: Vec<String> = entries
        .iter()
        .map(|entry| {
            format!("{} {}", entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap())
        })
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_json_patch_is_all_or_nothing() {
    let server = TestServer::start().await;
    let http = server.http();
    let before = http.post(CONFIG_MAPS, &config_map("a", "1")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let patch = json!([
        {"op": "test", "path": "/data/key", "value": "1"},
        {"op": "add", "path": "/data/more", "value": "2"},
        {"op": "move", "from": "/data/key", "path": "/data/moved"},
    ]);
    assert_eq!(
        http.patch(&path, "json", &patch).await.expect(200)["data"],
        json!({"more": "2", "moved": "1"})
    );
    let failing =
        json!([{"op": "remove", "path": "/data/more"}, {"op": "test", "path": "/data/moved", "value": "9"}]);
    let refused = http.patch(&path, "json", &failing).await;
    assert_eq!(refused.code, 422, "{}", refused.text());
    let missing = http.patch(&path, "json", &json!([{"op": "remove", "path": "/data/none"}])).await;
    assert_eq!(missing.code, 422, "{}", missing.text());
    let kept = http.get(&path).await.expect(200);
    assert_eq!(kept["data"]["more"], "2");
    assert_ne!(version(&kept), version(&before));
    http.patch(&format!("{CONFIG_MAPS}/none"), "json", &json!([])).await.expect(404);
}

#[tokio::test]
async fn a_merge_patch_removes_with_null_and_replaces_lists() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(DEPLOYMENTS, &deployment("web", 1)).await.expect(201);
    let path = format!("{DEPLOYMENTS}/web");
    let containers = json!([{"name": "other", "image": "busybox"}]);
    let patch = json!({"spec": {"replicas": null, "template": {"spec": {"containers": containers}}}});
    let patched = http.patch(&path, "merge", &patch).await.expect(200);
    assert_eq!(patched["spec"]["replicas"], 1, "what is removed is defaulted again");
    let names = &patched["spec"]["template"]["spec"]["containers"];
    assert_eq!((names.as_array().unwrap().len(), &names[0]["name"]), (1, &json!("other")));

    let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}});
    let refused = http.patch(&path, "merge", &stale).await;
    assert_eq!((refused.code, refused.reason().as_str()), (409, "Conflict"));
    let wrong = http.patch(&path, "merge", &json!({"spec": {"replicas": "two"}})).await;
    assert_eq!(wrong.code, 422, "{}", wrong.text());
}

#[tokio::test]
async fn a_strategic_patch_merges_lists_by_their_keys() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(DEPLOYMENTS, &deployment("web", 1)).await.expect(201);
    let api: Api<Deployment> = Api::namespaced(server.admin(), "default");
    let patch = |containers: Value| {
        Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": containers}}}}))
    };
    let params = PatchParams::default();
    let added =
        api.patch("web", &params, &patch(json!([{"name": "side", "image": "busybox"}]))).await.unwrap();
    let containers = added.spec.unwrap().template.spec.unwrap().containers;
    assert_eq!(containers.len(), 2);
    let changed =
        api.patch("web", &params, &patch(json!([{"name": "c", "image": "nginx:2"}]))).await.unwrap();
    let containers = changed.spec.unwrap().template.spec.unwrap().containers;
    let image = |name: &str| containers.iter().find(|c| c.name == name).unwrap().image.clone().unwrap();
    assert_eq!((image("c").as_str(), image("side").as_str()), ("nginx:2", "busybox"));
    let gone =
        api.patch("web", &params, &patch(json!([{"name": "side", "$patch": "delete"}]))).await.unwrap();
    assert_eq!(gone.spec.unwrap().template.spec.unwrap().containers.len(), 1);
}

#[tokio::test]
async fn apply_creates_changes_and_takes_back() {
    let server = TestServer::start().await;
    let http = server.http();
    let path = format!("{CONFIG_MAPS}/a");
    let object = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let created = apply(&http, &path, "me", "", object(json!({"x": "1", "y": "1"}))).await.expect(201);
    assert_eq!(managers(&created), ["me Apply"]);
    let same = apply(&http, &path, "me", "", object(json!({"x": "1", "y": "1"}))).await.expect(200);
    assert_eq!(version(&same), version(&created), "applying the same again writes nothing");
    let less = apply(&http, &path, "me", "", object(json!({"x": "1"}))).await.expect(200);
    assert_eq!(less["data"], json!({"x": "1"}), "what is no longer applied goes");

    let conflict = apply(&http, &path, "you", "", object(json!({"x": "2"}))).await;
    assert_eq!((conflict.code, conflict.reason().as_str()), (409, "Conflict"));
    let cause = &conflict.json()["details"]["causes"][0];
    assert_eq!(
        (&cause["reason"], &cause["field"]),
        (&json!("FieldManagerConflict"), &json!(".data.x")),
        "{cause}"
    );
    assert!(
        conflict.message().contains("Apply failed with 1 conflict: conflict with \"me\": .data.x"),
        "{}",
        conflict.message()
    );
    let forced = apply(&http, &path, "you", "&force=true", object(json!({"x": "2"}))).await.expect(200);
    assert_eq!((&forced["data"]["x"], managers(&forced)), (&json!("2"), vec!["you Apply".to_owned()]));

    let shared = apply(&http, &path, "me", "", object(json!({"x": "2"}))).await.expect(200);
    assert_eq!(managers(&shared), ["me Apply", "you Apply"]);
    let left = apply(&http, &path, "you", "", object(json!({}))).await.expect(200);
    assert_eq!(left["data"], json!({"x": "2"}), "somebody else still wants it");

    let nameless = http.patch(&path, "apply", &object(json!({}))).await;
    assert_eq!(nameless.code, 422, "apply needs a field manager: {}", nameless.text());
    let with_fields =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": [{}]}});
    let refused = apply(&http, &path, "me", "", with_fields).await;
    assert_eq!(refused.code, 400, "{}", refused.text());
}

#[tokio::test]
async fn apply_and_scale_share_the_count() {
    let server = TestServer::start().await;
    let http = server.http();
    let path = format!("{DEPLOYMENTS}/web");
    apply(&http, &path, "me", "", deployment("web", 1)).await.expect(201);
    http.patch(&format!("{path}/scale?fieldManager=autoscaler"), "merge", &json!({"spec": {"replicas": 5}}))
        .await
        .expect(200);
    let conflict = apply(&http, &path, "me", "", deployment("web", 1)).await;
    assert_eq!(conflict.code, 409, "{}", conflict.text());
    assert_eq!(conflict.json()["details"]["causes"][0]["field"], ".spec.replicas");
    let mut without = deployment("web", 1);
    without["spec"].as_object_mut().unwrap().remove("replicas");
    let kept = apply(&http, &path, "me", "", without).await.expect(200);
    assert_eq!(kept["spec"]["replicas"], 5);
}

#[tokio::test]
async fn a_patch_survives_writers_in_between() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(CONFIG_MAPS, &config_map("a", "1")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let writers = (0..16).map(|writer| {
        let (http, path) = (http.clone(), path.clone());
        async move {
            for round in 0..5 {
                let patch = json!({"data": {format!("w{writer}-{round}"): "x"}});
                http.patch(&path, "merge", &patch).await.expect(200);
            }
        }
    });
    futures::future::join_all(writers).await;
    let all = http.get(&path).await.expect(200);
    assert_eq!(all["data"].as_object().unwrap().len(), 81, "no patch is lost");
}
