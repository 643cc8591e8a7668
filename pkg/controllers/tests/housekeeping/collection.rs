//! Garbage collection, namespace deletion, pods that nobody else removes.

use crate::Cluster;
use serde_json::{Value, json};
use testing::eventually;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, owners: &[&Value], blocks: bool) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|owner| {
            json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks})
        })
        .collect();
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

fn at(name: &str) -> String {
    format!("{MAPS}/{name}")
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_go_with_their_owners() {
    let mut cluster = Cluster::start(&["garbage-collector-controller"]).await;
    let owner = cluster.create(MAPS, map("owner", &[], false)).await;
    let other = cluster.create(MAPS, map("other", &[], false)).await;
    cluster.create(MAPS, map("child", &[&owner], false)).await;
    cluster.create(MAPS, map("shared", &[&owner, &other], false)).await;
    cluster.http.delete(&at("owner"), &json!({"propagationPolicy": "Background"})).await.expect(200);
    cluster.gone(&at("child")).await;
    let left = cluster
        .until("the reference goes", &at("shared"), |found| {
            found["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1)
        })
        .await;
    assert_eq!(left["metadata"]["ownerReferences"][0]["name"], "other");
    // An owner of that name but another uid is none.
    let mut stranger = other.clone();
    stranger["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    cluster.create(MAPS, map("mistaken", &[&stranger], false)).await;
    cluster.gone(&at("mistaken")).await;
    // Owners of kinds that nobody knows say nothing; those without owners are left alone.
    let unknown =
        json!({"apiVersion": "example.com/v1", "kind": "Nothing", "metadata": {"name": "x", "uid": "y"}});
    cluster.create(MAPS, map("puzzling", &[&unknown], false)).await;
    cluster.create(MAPS, map("late", &[&stranger], false)).await;
    cluster.gone(&at("late")).await;
    cluster.http.get(&at("puzzling")).await.expect(200);
    cluster.http.get(&at("other")).await.expect(200);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreground_and_orphan() {
    let mut cluster = Cluster::start(&["garbage-collector-controller"]).await;
    let owner = cluster.create(MAPS, map("owner", &[], false)).await;
    let mut held = map("held", &[&owner], true);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let held = cluster.create(MAPS, held).await;
    cluster.create(MAPS, map("grandchild", &[&held], true)).await;
    cluster.http.delete(&at("owner"), &json!({"propagationPolicy": "Foreground"})).await.expect(200);
    cluster.gone(&at("grandchild")).await;
    cluster
        .until("the child is marked", &at("held"), |found| found["metadata"]["deletionTimestamp"].is_string())
        .await;
    cluster.http.get(&at("owner")).await.expect(200);
    // Its own finalizer is somebody's business; then the owner may go.
    let free = json!([{"op": "remove", "path": "/metadata/finalizers/0"}]);
    let only_ours = |found: &Value| found["metadata"]["finalizers"] == json!(["example.com/hold"]);
    cluster.until("only its own finalizer holds it", &at("held"), only_ours).await;
    cluster.http.patch(&at("held"), "json", &free).await.expect(200);
    cluster.gone(&at("owner")).await;
    cluster.gone(&at("held")).await;

    let owner = cluster.create(MAPS, map("parent", &[], false)).await;
    cluster.create(MAPS, map("orphan", &[&owner], true)).await;
    cluster.http.delete(&at("parent"), &json!({"propagationPolicy": "Orphan"})).await.expect(200);
    cluster.gone(&at("parent")).await;
    let orphan = cluster.http.get(&at("orphan")).await.expect(200);
    assert!(orphan["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty));
    cluster.stop().await;
}

fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "metadata": {"name": "carts.shop.example"},
        "spec": {"group": "shop.example", "scope": "Namespaced",
            "names": {"plural": "carts", "singular": "cart", "kind": "Cart", "listKind": "CartList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_own_and_are_owned() {
    let mut cluster = Cluster::start(&["garbage-collector-controller"]).await;
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()).await;
    let carts = "/apis/shop.example/v1/namespaces/default/carts";
    let cart = eventually("the resource is served", || async {
        let cart = json!({"apiVersion": "shop.example/v1", "kind": "Cart", "metadata": {"name": "cart"}});
        let answer = cluster.http.post(carts, &cart).await;
        (answer.code == 201).then(|| answer.json())
    })
    .await;
    cluster.create(MAPS, map("owned", &[&cart], false)).await;
    let owner = cluster.create(MAPS, map("owner", &[], false)).await;
    let mut owned = map("owned", &[&owner], false);
    owned["apiVersion"] = json!("shop.example/v1");
    owned["kind"] = json!("Cart");
    cluster.create(carts, owned).await;
    cluster.http.delete(&format!("{carts}/cart"), &json!({})).await.expect(200);
    cluster.gone(&at("owned")).await;
    cluster.http.delete(&at("owner"), &json!({})).await.expect(200);
    cluster.gone(&format!("{carts}/owned")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_goes_with_everything_in_it() {
    let mut cluster = Cluster::start(&["namespace-controller", "pod-garbage-collector-controller"]).await;
    cluster.create("/api/v1/namespaces", json!({"metadata": {"name": "old"}})).await;
    let maps = "/api/v1/namespaces/old/configmaps";
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    cluster.create(maps, held).await;
    cluster.create(maps, json!({"metadata": {"name": "free"}})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.create("/api/v1/namespaces/old/pods", pod).await;
    cluster.http.delete("/api/v1/namespaces/old", &json!({})).await.expect(200);
    let namespace = cluster
        .until("it says what it waits for", "/api/v1/namespaces/old", |found| {
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| {
                condition["type"] == "NamespaceFinalizersRemaining"
                    && condition["status"] == "True"
                    && condition["message"] == "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
            })
        })
        .await;
    assert_eq!(namespace["status"]["phase"], "Terminating");
    cluster.gone(&format!("{maps}/free")).await;
    let free = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    cluster.http.patch(&format!("{maps}/held"), "json", &free).await.expect(200);
    cluster.gone("/api/v1/namespaces/old").await;
    cluster.stop().await;
}
