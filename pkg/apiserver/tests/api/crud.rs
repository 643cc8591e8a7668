//! Single objects through kube-rs: created, read, changed and deleted.

use crate::{CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod, version};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret};
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use testing::{Engine, Http, TestServer};

/// The code and reason of a refusal.
fn refusal<T: Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason),
        other => panic!("not refused: {other:?}"),
    }
}

fn typed<K: DeserializeOwned>(object: &Value) -> K {
    serde_json::from_value(object.clone()).unwrap()
}

/// Creates, reads, changes, conflicts over and deletes one object of any namespaced kind.
async fn life_of<K>(server: &TestServer, object: Value)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(server.admin(), "default");
    let created = api.create(&PostParams::default(), &typed(&object)).await.unwrap();
    let name = created.name_any();
    assert!(created.uid().is_some() && created.creation_timestamp().is_some(), "{created:?}");
    assert_eq!(created.meta().namespace.as_deref(), Some("default"));
    let again = api.create(&PostParams::default(), &typed(&object)).await;
    assert_eq!(refusal(again), (409, "AlreadyExists".into()));

    let mut read = api.get(&name).await.unwrap();
    assert_eq!(read.resource_version(), created.resource_version());
    read.labels_mut().insert("changed".into(), "yes".into());
    let changed = api.replace(&name, &PostParams::default(), &read).await.unwrap();
    assert_ne!(changed.resource_version(), created.resource_version());
    assert_eq!((changed.uid(), changed.creation_timestamp()), (created.uid(), created.creation_timestamp()));
    let stale = api.replace(&name, &PostParams::default(), &read).await;
    assert_eq!(refusal(stale), (409, "Conflict".into()));
    let unchanged = api.replace(&name, &PostParams::default(), &changed).await.unwrap();
    assert_eq!(
        unchanged.resource_version(),
        changed.resource_version(),
        "nothing changed, nothing is written"
    );

    api.delete(&name, &DeleteParams::background()).await.unwrap();
    assert_eq!(refusal(api.get(&name).await), (404, "NotFound".into()));
    assert_eq!(refusal(api.delete(&name, &DeleteParams::default()).await), (404, "NotFound".into()));
}

#[tokio::test]
async fn objects_of_many_kinds_live_and_die() {
    for engine in Engine::both() {
        let server = TestServer::start_on(engine).await;
        life_of::<ConfigMap>(&server, config_map("one", "1")).await;
        life_of::<Pod>(&server, pod("one")).await;
        life_of::<Deployment>(&server, deployment("one", 1)).await;
        life_of::<Secret>(&server, json!({"metadata": {"name": "one"}, "stringData": {"a": "b"}})).await;
        life_of::<Lease>(&server, json!({"metadata": {"name": "one"}, "spec": {"holderIdentity": "me"}}))
            .await;
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        life_of::<Job>(&server, json!({"metadata": {"name": "one"}, "spec": {"template": template}})).await;
    }
}

#[tokio::test]
async fn a_secret_keeps_its_bytes() {
    let server = TestServer::start().await;
    let api: Api<Secret> = Api::namespaced(server.admin(), "default");
    let given = json!({"metadata": {"name": "s"}, "data": {"bin": "AP/+"}, "stringData": {"text": "plain"}});
    api.create(&PostParams::default(), &typed(&given)).await.unwrap();
    let secret = api.get("s").await.unwrap();
    let data = secret.data.unwrap();
    assert_eq!(data["bin"], ByteString(vec![0, 0xff, 0xfe]));
    assert_eq!(data["text"], ByteString(b"plain".to_vec()));
    assert_eq!((secret.string_data, secret.type_.as_deref()), (None, Some("Opaque")));
}

#[tokio::test]
async fn a_generated_name_begins_as_asked_and_is_new_each_time() {
    let server = TestServer::start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.admin(), "default");
    let wish: ConfigMap = typed(&json!({"metadata": {"generateName": "made-"}}));
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let name = api.create(&PostParams::default(), &wish).await.unwrap().name_any();
        assert!(name.starts_with("made-") && name.len() == "made-".len() + 5, "{name}");
        assert!(seen.insert(name));
    }
}

#[tokio::test]
async fn a_dry_run_says_what_would_happen_and_changes_nothing() {
    let server = TestServer::start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.admin(), "default");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let shown = api.create(&dry, &typed(&config_map("a", "1"))).await.unwrap();
    assert!(shown.uid().is_some());
    assert_eq!(refusal(api.get("a").await).0, 404);

    let real = api.create(&PostParams::default(), &typed(&config_map("a", "1"))).await.unwrap();
    assert_eq!(refusal(api.create(&dry, &typed(&config_map("a", "1"))).await), (409, "AlreadyExists".into()));
    let shown = api.replace("a", &dry, &typed(&config_map("a", "2"))).await.unwrap();
    assert_eq!(shown.data.unwrap()["key"], "2");
    let patch = PatchParams { dry_run: true, ..PatchParams::default() };
    let shown = api.patch("a", &patch, &Patch::Merge(json!({"data": {"key": "3"}}))).await.unwrap();
    assert_eq!(shown.data.unwrap()["key"], "3");
    api.delete("a", &DeleteParams { dry_run: true, ..DeleteParams::default() }).await.unwrap();
    let kept = api.get("a").await.unwrap();
    assert_eq!((kept.resource_version(), kept.data), (real.resource_version(), real.data));

    let http = server.http();
    let answer = http.post(&format!("{CONFIG_MAPS}?dryRun=Some"), &config_map("b", "1")).await;
    assert_eq!((answer.code, answer.reason().as_str()), (422, "Invalid"), "{}", answer.text());
}

#[tokio::test]
async fn generation_counts_changes_of_the_wish_only() {
    let server = TestServer::start().await;
    let http = server.http();
    let path = format!("{DEPLOYMENTS}/web");
    let mut object = http.post(DEPLOYMENTS, &deployment("web", 1)).await.expect(201);
    assert_eq!(object["metadata"]["generation"], 1);
    object["metadata"]["labels"] = json!({"a": "b"});
    object = http.put(&path, &object).await.expect(200);
    assert_eq!(object["metadata"]["generation"], 1, "labels are not the wish");
    object["spec"]["replicas"] = 2.into();
    object["status"] = json!({"replicas": 7});
    object["metadata"]["generation"] = 40.into();
    object = http.put(&path, &object).await.expect(200);
    assert_eq!(object["metadata"]["generation"], 2);
    assert!(object["status"].get("replicas").is_none(), "the main resource does not write status");
    object["status"] = json!({"replicas": 7, "observedGeneration": 2});
    object["spec"]["replicas"] = 9.into();
    object = http.put(&format!("{path}/status"), &object).await.expect(200);
    assert_eq!((&object["metadata"]["generation"], &object["spec"]["replicas"]), (&json!(2), &json!(2)));
    assert_eq!(object["status"]["replicas"], 7);
}

#[tokio::test]
async fn a_door_to_a_part_of_a_pod_counts_as_well() {
    let server = TestServer::start().await;
    let http = server.http();
    assert_eq!(http.post(PODS, &pod("p")).await.expect(201)["metadata"]["generation"], 1);
    let looked_into = json!({"spec": {"ephemeralContainers": [{"name": "look", "image": "busybox"}]}});
    let path = format!("{PODS}/p/ephemeralcontainers");
    let changed = http.patch(&path, "strategic-merge", &looked_into).await.expect(200);
    assert_eq!(changed["metadata"]["generation"], 2);
    assert_eq!(
        http.patch(&path, "strategic-merge", &looked_into).await.expect(200)["metadata"]["generation"],
        2,
        "nothing changed"
    );
}

#[tokio::test]
async fn a_deployment_is_scaled_through_its_scale() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(DEPLOYMENTS, &deployment("web", 1)).await.expect(201);
    let api: Api<Deployment> = Api::namespaced(server.admin(), "default");
    let mut scale = api.get_scale("web").await.unwrap();
    assert_eq!(scale.spec.as_ref().unwrap().replicas, Some(1));
    assert_eq!(scale.status.as_ref().unwrap().selector.as_deref(), Some("app=web"));
    scale.spec.as_mut().unwrap().replicas = Some(4);
    let scaled = api.replace_scale("web", &PostParams::default(), &scale).await.unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(4));
    assert_eq!(refusal(api.replace_scale("web", &PostParams::default(), &scale).await).1, "Conflict");
    let merge = Patch::Merge(json!({"spec": {"replicas": 6}}));
    api.patch_scale("web", &PatchParams::default(), &merge).await.unwrap();
    assert_eq!(api.get("web").await.unwrap().spec.unwrap().replicas, Some(6));
    let negative =
        http.patch(&format!("{DEPLOYMENTS}/web/scale"), "merge", &json!({"spec": {"replicas": -1}})).await;
    assert_eq!(negative.code, 422, "{}", negative.text());
}

#[tokio::test]
async fn deletion_heeds_preconditions() {
    let server = TestServer::start().await;
    let api: Api<ConfigMap> = Api::namespaced(server.admin(), "default");
    let created = api.create(&PostParams::default(), &typed(&config_map("a", "1"))).await.unwrap();
    let with = |uid: Option<String>, resource_version: Option<String>| {
        DeleteParams::default().preconditions(Preconditions { uid, resource_version })
    };
    let wrong = [with(Some("other".into()), None), with(None, Some("1".into()))];
    for params in wrong {
        assert_eq!(refusal(api.delete("a", &params).await), (409, "Conflict".into()));
    }
    // The query may say it too, where there is no body.
    let http = server.http();
    for query in ["uid=other", "resourceVersion=1"] {
        http.delete(&format!("{CONFIG_MAPS}/a?{query}"), &Value::Null).await.expect(409);
    }
    let right = with(created.uid(), created.resource_version());
    api.delete("a", &right).await.unwrap();
    assert_eq!(refusal(api.get("a").await).0, 404);
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let server = TestServer::start().await;
    let http = server.http();
    let path = format!("{CONFIG_MAPS}/held");
    let mut object = config_map("held", "1");
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    http.post(CONFIG_MAPS, &object).await.expect(201);
    let marked = http.delete(&path, &Value::Null).await.expect(200);
    assert_eq!(marked["kind"], "ConfigMap", "an object that stays is answered as itself");
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let since = marked["metadata"]["deletionTimestamp"].clone();
    let again = http.delete(&path, &Value::Null).await.expect(200);
    assert_eq!(again["metadata"]["deletionTimestamp"], since);

    let added = json!({"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}});
    let refused = http.patch(&path, "merge", &added).await;
    assert_eq!(refused.code, 422);
    assert!(
        refused.message().contains("metadata.finalizers: Forbidden: no new finalizers"),
        "{}",
        refused.message()
    );
    http.patch(&path, "merge", &json!({"metadata": {"finalizers": ["example.com/b"]}})).await.expect(200);
    http.get(&path).await.expect(200);
    http.patch(&path, "merge", &json!({"metadata": {"finalizers": null}})).await.expect(200);
    http.get(&path).await.expect(404);
}

#[tokio::test]
async fn propagation_is_left_as_a_finalizer_for_the_garbage_collector() {
    let server = TestServer::start().await;
    let http = server.http();
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        http.post(DEPLOYMENTS, &deployment("web", 1)).await.expect(201);
        let path = format!("{DEPLOYMENTS}/web");
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
        let marked = http.delete(&path, &options).await.expect(200);
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]), "{marked}");
        assert_eq!(marked["metadata"]["generation"], 2);
        http.patch(&path, "merge", &json!({"metadata": {"finalizers": []}})).await.expect(200);
        http.get(&path).await.expect(404);
    }
    let api: Api<Deployment> = Api::namespaced(server.admin(), "default");
    http.post(DEPLOYMENTS, &deployment("web", 1)).await.expect(201);
    let background =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    api.delete("web", &background).await.unwrap();
    http.get(&format!("{DEPLOYMENTS}/web")).await.expect(404);
    let answer = http.delete(&format!("{DEPLOYMENTS}/web?propagationPolicy=Sideways"), &Value::Null).await;
    assert_eq!(answer.code, 422, "{}", answer.text());
}

#[tokio::test]
async fn a_pod_on_a_node_is_given_time_to_end() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(PODS, &pod("p")).await.expect(201);
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
    let odd = json!({"metadata": {"labels": {"number": 1}}, "target": {"kind": "Node", "name": "n1"}});
    for odd in [odd, json!([])] {
        let refused = http.post(&format!("{PODS}/p/binding"), &odd).await;
        refused.expect(400);
        assert!(refused.message().contains("cannot be handled as a Binding"), "{}", refused.message());
    }
    http.post(&format!("{PODS}/p/binding"), &binding).await.expect(201);
    assert_eq!(http.get(&format!("{PODS}/p")).await.expect(200)["spec"]["nodeName"], "n1");
    let twice = http.post(&format!("{PODS}/p/binding"), &binding).await;
    assert_eq!(twice.code, 409, "{}", twice.text());

    let marked = http.delete(&format!("{PODS}/p"), &Value::Null).await.expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    let shorter = http.delete(&format!("{PODS}/p"), &json!({"gracePeriodSeconds": 5})).await.expect(200);
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let longer = http.delete(&format!("{PODS}/p"), &json!({"gracePeriodSeconds": 50})).await.expect(200);
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 5, "a grace period is never lengthened");
    http.delete(&format!("{PODS}/p?gracePeriodSeconds=0"), &Value::Null).await.expect(200);
    http.get(&format!("{PODS}/p")).await.expect(404);
}

#[tokio::test]
async fn an_evicted_pod_says_why_it_goes() {
    let server = TestServer::start().await;
    let http = server.http();
    let mut bound = pod("p");
    bound["spec"]["nodeName"] = "n1".into();
    let made = http.post(PODS, &bound).await.expect(201);
    let eviction = |version: &str| {
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
            "deleteOptions": {"preconditions": {"resourceVersion": version}}})
    };
    let path = format!("{PODS}/p/eviction");
    http.post(&path, &eviction("1")).await.expect(409);
    assert!(http.get(&format!("{PODS}/p")).await.expect(200)["status"].get("conditions").is_none());
    http.post(&path, &eviction(version(&made))).await.expect(201);
    let going = http.get(&format!("{PODS}/p")).await.expect(200);
    assert!(going["metadata"]["deletionTimestamp"].is_string(), "{going}");
    let condition = &going["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"]),
        (&json!("DisruptionTarget"), &json!("True"), &json!("EvictionByEvictionAPI"))
    );
}

#[tokio::test]
async fn a_namespace_takes_no_objects_while_it_goes() {
    let server = TestServer::start().await;
    let http = server.http();
    let namespaces: Api<Namespace> = Api::all(server.admin());
    namespaces.create(&PostParams::default(), &typed(&json!({"metadata": {"name": "team"}}))).await.unwrap();
    http.post("/api/v1/namespaces/team/configmaps", &config_map("a", "1")).await.expect(201);
    let going = http.delete("/api/v1/namespaces/team", &Value::Null).await.expect(200);
    assert_eq!(going["status"]["phase"], "Terminating");
    let refused = http.post("/api/v1/namespaces/team/configmaps", &config_map("b", "1")).await;
    assert_eq!(refused.code, 403);
    assert!(refused.message().contains("because it is being terminated"), "{}", refused.message());
    let mut namespace = http.get("/api/v1/namespaces/team").await.expect(200);
    namespace["spec"]["finalizers"] = json!([]);
    http.put("/api/v1/namespaces/team/finalize", &namespace).await.expect(200);
    http.get("/api/v1/namespaces/team").await.expect(404);
    let refused = http.post("/api/v1/namespaces/nowhere/configmaps", &config_map("b", "1")).await;
    assert_eq!((refused.code, refused.message().as_str()), (404, "namespaces \"nowhere\" not found"));
    let refused = http.delete("/api/v1/namespaces/kube-system", &Value::Null).await;
    assert_eq!(refused.code, 403, "{}", refused.text());
}

#[tokio::test]
async fn a_node_reports_its_status_apart() {
    let server = TestServer::start().await;
    let nodes: Api<Node> = Api::all(server.admin());
    nodes.create(&PostParams::default(), &typed(&json!({"metadata": {"name": "n1"}}))).await.unwrap();
    let status = json!({"status": {"capacity": {"cpu": "2000m", "memory": "1024Ki"}}});
    let params = PatchParams::default();
    let node = nodes.patch_status("n1", &params, &Patch::Strategic(&status)).await.unwrap();
    let capacity = node.status.unwrap().capacity.unwrap();
    assert_eq!(
        (capacity["cpu"].0.as_str(), capacity["memory"].0.as_str()),
        ("2", "1Mi"),
        "amounts are canonical"
    );
}

#[tokio::test]
async fn the_name_and_namespace_in_the_body_must_be_those_of_the_path() {
    let server = TestServer::start().await;
    let http: Http = server.http();
    let mut elsewhere = config_map("a", "1");
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    http.post(CONFIG_MAPS, &elsewhere).await.expect(400);
    let created = http.post(CONFIG_MAPS, &config_map("a", "1")).await.expect(201);
    http.put(&format!("{CONFIG_MAPS}/a"), &config_map("b", "1")).await.expect(400);
    http.put(&format!("{CONFIG_MAPS}/b"), &config_map("b", "1")).await.expect(404);
    let mut with_version = config_map("c", "1");
    with_version["metadata"]["resourceVersion"] = version(&created).into();
    http.post(CONFIG_MAPS, &with_version).await.expect(400);
    let mut other_uid = created.clone();
    other_uid["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    let refused = http.put(&format!("{CONFIG_MAPS}/a"), &other_uid).await;
    assert_eq!((refused.code, refused.reason().as_str()), (409, "Conflict"));
}

#[tokio::test]
async fn pods_that_are_not_ready_are_evicted_as_their_budget_says() {
    let server = TestServer::start().await;
    let http = server.http();
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    for (n, (policy, healthy, is_ready, code)) in [
        (json!(null), 0, false, 429),
        (json!("IfHealthyBudget"), 0, false, 429),
        (json!("IfHealthyBudget"), 1, false, 201),
        (json!("AlwaysAllow"), 0, false, 201),
        (json!("AlwaysAllow"), 0, true, 429),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("p{n}");
        let labels = json!({"app": name});
        let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        http.post(PODS, &pod).await.expect(201);
        let ready = if is_ready { "True" } else { "False" };
        let status =
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
        http.patch(&format!("{PODS}/{name}/status"), "merge", &status).await.expect(200);
        let budget = json!({"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels},
            "unhealthyPodEvictionPolicy": policy}});
        http.post(budgets, &budget).await.expect(201);
        let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "expectedPods": 1,
            "currentHealthy": healthy, "desiredHealthy": 1}});
        http.patch(&format!("{budgets}/{name}/status"), "merge", &status).await.expect(200);
        let answer =
            http.post(&format!("{PODS}/{name}/eviction"), &json!({"metadata": {"name": name}})).await;
        assert_eq!(answer.code, code, "{policy} {healthy} {is_ready}: {}", answer.text());
    }
}
