//! Addresses that services do not get from the cluster, and nodes' ranges: whoever chooses them chooses others' traffic.

use serde_json::{Value, json};
use testing::{Engine, Http, TestServer, eventually};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SERVICES: &str = "/api/v1/namespaces/team/services";

fn service(name: &str, external: &[&str]) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 443}], "externalIPs": external}})
}

/// The owner of a namespace: everything, in it.
async fn owner(server: &TestServer) -> Http {
    let admin = server.http();
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.expect(201);
    let role = json!({"metadata": {"name": "owner"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    admin.post(&format!("{RBAC}/namespaces/team/roles"), &role).await.expect(201);
    let binding = json!({"metadata": {"name": "owner"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "owner"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}]});
    admin.post(&format!("{RBAC}/namespaces/team/rolebindings"), &binding).await.expect(201);
    let node = json!({"metadata": {"name": "n1"}});
    admin.post("/api/v1/nodes", &node).await.expect(201);
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.168.7.1"}]}});
    admin.patch("/api/v1/nodes/n1/status", "merge", &addresses).await.expect(200);
    let jane = Http::new(server.user("jane", &[]));
    eventually("the owner's role", async || (jane.get(SERVICES).await.code == 200).then_some(())).await;
    jane
}

#[tokio::test]
async fn external_addresses_are_denied() {
    let server = TestServer::start().await;
    let (admin, jane) = (server.http(), owner(&server).await);
    let denied = |name: &str| {
        format!("services {name:?} is forbidden: Use of external IPs is denied by admission control.")
    };
    for http in [&admin, &jane] {
        let refused = http.post(SERVICES, &service("web", &["192.0.2.7"])).await;
        assert_eq!((refused.code, refused.message()), (403, denied("web")));
    }
    jane.post(SERVICES, &service("web", &[])).await.expect(201);
    let path = format!("{SERVICES}/web");
    for (kind, body) in [
        ("merge", json!({"spec": {"externalIPs": ["192.0.2.7"]}})),
        ("json", json!([{"op": "add", "path": "/spec/externalIPs", "value": ["192.0.2.7"]}])),
    ] {
        assert_eq!(jane.patch(&path, kind, &body).await.message(), denied("web"));
    }
}

#[tokio::test]
async fn where_they_are_allowed_nobody_takes_an_address_of_the_cluster() {
    let off = |config: &mut apiserver::Config| config.deny_service_external_ips = false;
    let server = TestServer::start_with(Engine::Embedded, off).await;
    let (admin, jane) = (server.http(), owner(&server).await);
    jane.post(SERVICES, &service("free", &["192.0.2.7", "192.0.2.8"])).await.expect(201);
    let fewer = json!({"spec": {"externalIPs": ["192.0.2.8"]}});
    jane.patch(&format!("{SERVICES}/free"), "merge", &fewer).await.expect(200);
    let cidr = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["203.0.113.0/24"]}});
    admin.post("/apis/networking.k8s.io/v1/servicecidrs", &cidr).await.expect(201);
    eventually("the range is known", async || {
        let refused = jane.post(&format!("{SERVICES}?dryRun=All"), &service("x", &["203.0.113.9"])).await;
        (refused.code == 403).then_some(())
    })
    .await;
    let slices = admin.get("/api/v1/namespaces/default/endpoints/kubernetes").await;
    let api = slices.json()["subsets"][0]["addresses"][0]["ip"].as_str().map(str::to_owned);
    for address in ["192.168.7.1", "10.96.0.1", "203.0.113.9"].into_iter().chain(api.as_deref()) {
        let refused = jane.post(SERVICES, &service("thief", &[address])).await;
        let why = format!(
            "services \"thief\" is forbidden: {address} is given by whoever may update services/status in the whole cluster only"
        );
        assert_eq!((refused.code, refused.message()), (403, why));
    }
    admin.post(SERVICES, &service("by-admin", &["192.168.7.1"])).await.expect(201);
}

#[tokio::test]
async fn load_balancers_addresses_are_given_by_the_clusters_own() {
    let server = TestServer::start().await;
    let (admin, jane) = (server.http(), owner(&server).await);
    jane.post(SERVICES, &service("web", &[])).await.expect(201);
    let path = format!("{SERVICES}/web/status");
    let point = |point: Value| json!({"status": {"loadBalancer": {"ingress": [point]}}});
    for address in ["192.168.7.1", "10.96.0.1", "8.8.8.8"] {
        let refused = jane.patch(&path, "merge", &point(json!({"ip": address}))).await;
        assert_eq!(refused.code, 403, "{}", refused.text());
        assert!(refused.message().contains("whoever may update services/status in the whole cluster only"));
    }
    // What leads nobody's packets anywhere is theirs to say.
    jane.patch(&path, "merge", &point(json!({"hostname": "lb.example.com"}))).await.expect(200);
    admin.patch(&path, "merge", &point(json!({"ip": "192.168.7.1"}))).await.expect(200);
    let kept = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Known", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let kept = jane.patch(&path, "merge", &kept).await.expect(200);
    assert_eq!(kept["status"]["loadBalancer"]["ingress"][0]["ip"], "192.168.7.1");
}

#[tokio::test]
async fn a_node_does_not_say_what_is_routed_to_it() {
    let server = TestServer::start().await;
    let node = Http::new(server.node("n1"));
    let ranged = json!({"metadata": {"name": "n1"}, "spec": {"podCIDR": "192.168.7.0/24", "podCIDRs": ["192.168.7.0/24"]}});
    let refused = node.post("/api/v1/nodes", &ranged).await;
    let why = "nodes \"n1\" is forbidden: node \"n1\" is not allowed to set podCIDR or podCIDRs";
    assert_eq!((refused.code, refused.message().as_str()), (403, why));
    node.post("/api/v1/nodes", &json!({"metadata": {"name": "n1"}})).await.expect(201);
    for path in ["/api/v1/nodes/n1", "/api/v1/nodes/n1/status"] {
        let answer = node.patch(path, "merge", &json!({"spec": ranged["spec"]})).await;
        let range = server.http().get("/api/v1/nodes/n1").await.expect(200)["spec"]["podCIDR"].clone();
        assert!(range.is_null(), "{path}: {}", answer.text());
    }
    server.http().patch("/api/v1/nodes/n1", "merge", &json!({"spec": ranged["spec"]})).await.expect(200);
}
