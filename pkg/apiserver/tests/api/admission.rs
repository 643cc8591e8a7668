//! What the server puts into objects, or refuses of them, beyond what their kinds say.

use crate::{CONFIG_MAPS, PODS, config_map, pod};
use futures::future::join_all;
use serde_json::{Value, json};
use testing::{Engine, Http, TestServer};

#[tokio::test]
async fn limit_ranges_give_defaults_and_bounds() {
    let server = TestServer::start().await;
    let http = server.http();
    let range = json!({"metadata": {"name": "limits"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}},
        {"type": "Pod", "max": {"cpu": "1500m"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}},
    ]}});
    http.post("/api/v1/namespaces/default/limitranges", &range).await.expect(201);

    let made = http.post(PODS, &pod("plain")).await.expect(201);
    let resources = &made["spec"]["containers"][0]["resources"];
    assert_eq!(*resources, json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}));
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    assert_eq!(made["status"]["qosClass"], "Burstable", "the class follows from what was put in");

    let mut greedy = pod("greedy");
    greedy["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}});
    let refused = http.post(PODS, &greedy).await;
    assert_eq!((refused.code, refused.reason().as_str()), (403, "Forbidden"));
    assert_eq!(
        refused.message(),
        "pods \"greedy\" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, maximum cpu usage per Pod is 1500m, but limit is 2]"
    );

    // Nor may one become so.
    let more =
        |cpu: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}}}]}});
    let resize = format!("{PODS}/plain/resize");
    let refused = http.patch(&resize, "strategic-merge", &more("2")).await;
    assert_eq!(refused.code, 403);
    assert!(refused.message().contains("maximum cpu usage per Container is 1, but limit is 2"));
    let resized = http.patch(&resize, "strategic-merge", &more("900m")).await.expect(200);
    let limit = &resized["spec"]["containers"][0]["resources"]["limits"]["cpu"];
    assert_eq!((limit, &resized["metadata"]["generation"]), (&json!("900m"), &json!(2)));

    let claim = |size: &str| {
        json!({"metadata": {"name": "claim"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}})
    };
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let refused = http.post(claims, &claim("3Gi")).await;
    assert_eq!(refused.code, 403);
    assert!(
        refused
            .message()
            .contains("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi")
    );
    http.post(claims, &claim("1Gi")).await.expect(201);

    // Another namespace has no such limits.
    let elsewhere = "/api/v1/namespaces/kube-public/pods";
    assert_eq!(
        http.post(elsewhere, &pod("free")).await.expect(201)["spec"]["containers"][0]["resources"],
        json!({})
    );
}

#[tokio::test]
async fn volumes_and_claims_are_protected_while_they_may_be_in_use() {
    let server = TestServer::start().await;
    let http = server.http();
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp"}}});
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    for (collection, name, object, finalizer) in [
        ("/api/v1/persistentvolumes", "v", volume, "kubernetes.io/pv-protection"),
        ("/api/v1/namespaces/default/persistentvolumeclaims", "c", claim, "kubernetes.io/pvc-protection"),
    ] {
        let path = format!("{collection}/{name}");
        let made = http.post(collection, &object).await.expect(201);
        assert_eq!(made["metadata"]["finalizers"], json!([finalizer]));
        http.delete(&path, &Value::Null).await.expect(200);
        assert!(http.get(&path).await.expect(200)["metadata"].get("deletionTimestamp").is_some());
        http.patch(&path, "merge", &json!({"metadata": {"finalizers": null}})).await.expect(200);
        http.get(&path).await.expect(404);
    }
}

#[tokio::test]
async fn a_volume_remembers_when_its_phase_changed() {
    let server = TestServer::start().await;
    let http = server.http();
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp"}}});
    let made = http.post("/api/v1/persistentvolumes", &volume).await.expect(201);
    let since = made["status"]["lastPhaseTransitionTime"].as_str().expect("a time").to_owned();
    assert_eq!(made["metadata"]["creationTimestamp"], since.as_str());
    let path = "/api/v1/persistentvolumes/v/status";
    let long_ago = "2020-01-01T00:00:00Z";
    let told = json!({"status": {"phase": "Available", "lastPhaseTransitionTime": long_ago}});
    let told = http.patch(path, "merge", &told).await.expect(200);
    assert_eq!(told["status"]["lastPhaseTransitionTime"], long_ago, "whoever changes it may say when");
    let same = http.patch(path, "merge", &json!({"status": {"message": "x"}})).await.expect(200);
    assert_eq!(same["status"]["lastPhaseTransitionTime"], long_ago);
    let next = http.patch(path, "merge", &json!({"status": {"phase": "Bound"}})).await.expect(200);
    let time = next["status"]["lastPhaseTransitionTime"].as_str().expect("a time");
    assert!(time >= since.as_str(), "{time} is now");
}

#[tokio::test]
async fn a_new_node_takes_no_pods_until_it_is_seen_to_be_ready() {
    let server = TestServer::start().await;
    let http = server.http();
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let other = json!({"key": "example.com/gpu", "effect": "NoExecute"});
    for (name, given, expected) in [
        ("plain", json!([]), json!([taint])),
        ("tainted", json!([other]), json!([other, taint])),
        ("already", json!([taint]), json!([taint])),
    ] {
        let node = json!({"metadata": {"name": name}, "spec": {"taints": given}});
        let made = http.post("/api/v1/nodes", &node).await.expect(201);
        assert_eq!(made["spec"]["taints"], expected);
        let path = format!("/api/v1/nodes/{name}");
        let ready = http.patch(&path, "merge", &json!({"spec": {"taints": null}})).await.expect(200);
        assert!(ready["spec"].get("taints").is_none(), "it comes only with the node");
    }
}

#[tokio::test]
async fn shapes_that_upstream_has_by_its_types() {
    let server = TestServer::start().await;
    let http = server.http();
    let set = json!({"metadata": {"name": "s"}, "spec": {"serviceName": "s",
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let made = http.post("/apis/apps/v1/namespaces/default/statefulsets", &set).await.expect(201);
    assert_eq!(made["status"], json!({"replicas": 0, "availableReplicas": 0}));
    let job = json!({"spec": {"template": {"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i"}]}}}});
    let cron = |zone: &str| json!({"metadata": {"name": "c"}, "spec": {"schedule": "0 * * * *", "timeZone": zone, "jobTemplate": job}});
    let cron_jobs = "/apis/batch/v1/namespaces/default/cronjobs";
    let refused = http.post(cron_jobs, &cron("Europe/Atlantis")).await;
    assert_eq!(refused.code, 422);
    assert!(refused.message().contains("unknown time zone Europe/Atlantis"), "{}", refused.message());
    http.post(cron_jobs, &cron("Europe/Berlin")).await.expect(201);
}

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

/// A quota of which nothing is used yet, as its controller would leave it.
async fn quota(http: &Http, name: &str, hard: Value) {
    let object = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
    http.post(QUOTAS, &object).await.expect(201);
    let used: serde_json::Map<String, Value> =
        hard.as_object().unwrap().keys().map(|resource| (resource.clone(), json!("0"))).collect();
    let status = json!({"status": {"hard": hard, "used": used}});
    http.patch(&format!("{QUOTAS}/{name}/status"), "merge", &status).await.expect(200);
}

#[tokio::test]
async fn a_quota_is_never_exceeded_however_many_write_at_once() {
    for engine in Engine::both() {
        let server = TestServer::start_on(engine).await;
        let http = server.http();
        quota(&http, "maps", json!({"count/configmaps": "10"})).await;
        let answers = join_all((0..25).map(|index| {
            let http = http.clone();
            async move { http.post(CONFIG_MAPS, &config_map(&format!("c{index}"), "1")).await }
        }))
        .await;
        let made = answers.iter().filter(|answer| answer.code == 201).count();
        assert_eq!(made, 10);
        let refused = answers.iter().find(|answer| answer.code != 201).unwrap();
        assert_eq!(refused.code, 403, "{}", refused.text());
        assert!(
            refused.message().ends_with(
                "is forbidden: exceeded quota: maps, requested: count/configmaps=1, used: count/configmaps=10, limited: count/configmaps=10"
            ),
            "{}",
            refused.message()
        );
        let status = http.get(&format!("{QUOTAS}/maps")).await.expect(200)["status"].clone();
        assert_eq!(status["used"]["count/configmaps"], "10");
    }
}

#[tokio::test]
async fn quotas_count_what_pods_and_services_ask_for() {
    let server = TestServer::start().await;
    let http = server.http();
    quota(&http, "compute", json!({"requests.cpu": "1", "pods": "5", "services.nodeports": "1"})).await;
    let refused = http.post(PODS, &pod("silent")).await;
    assert_eq!(
        refused.message(),
        "pods \"silent\" is forbidden: failed quota: compute: must specify requests.cpu for: c"
    );
    let asking = |name: &str, cpu: &str| {
        let mut pod = pod(name);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        pod
    };
    http.post(&format!("{PODS}?dryRun=All"), &asking("dry", "1")).await.expect(201);
    http.post(PODS, &asking("a", "600m")).await.expect(201);
    let refused = http.post(PODS, &asking("b", "600m")).await;
    assert_eq!(
        refused.message(),
        "pods \"b\" is forbidden: exceeded quota: compute, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1"
    );
    let more =
        |cpu: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
    let refused = http.patch(&format!("{PODS}/a/resize"), "strategic-merge", &more("1100m")).await;
    assert_eq!(
        refused.message(),
        "pods \"a\" is forbidden: exceeded quota: compute, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
    );
    http.patch(&format!("{PODS}/a/resize"), "strategic-merge", &more("700m")).await.expect(200);
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
    http.post(services, &service).await.expect(201);
    let path = format!("{services}/s");
    let refused = http.patch(&path, "merge", &json!({"spec": {"type": "NodePort"}})).await;
    assert_eq!(refused.code, 403, "two node ports are too many: {}", refused.text());
    let fewer = json!({"spec": {"type": "NodePort", "ports": [{"name": "a", "port": 80}]}});
    http.patch(&path, "merge", &fewer).await.expect(200);
    let used = http.get(&format!("{QUOTAS}/compute")).await.expect(200)["status"]["used"].clone();
    assert_eq!(used, json!({"requests.cpu": "700m", "pods": "1", "services.nodeports": "1"}));

    let unknown = json!({"metadata": {"name": "new"}, "spec": {"hard": {"secrets": "1"}}});
    http.post(QUOTAS, &unknown).await.expect(201);
    let secret = json!({"metadata": {"name": "s"}});
    http.post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
    let status = json!({"status": {"hard": {"secrets": "1"}}});
    http.patch(&format!("{QUOTAS}/new/status"), "merge", &status).await.expect(200);
    let refused = http.post("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "t"}})).await;
    assert_eq!(
        refused.message(),
        "secrets \"t\" is forbidden: status unknown for quota: new, resources: secrets"
    );
}
