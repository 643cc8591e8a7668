//! Where the objects of a kind can be reached: who has one namespace has nothing of the cluster, whatever path they try.

use crate::{config_map, pod};
use serde_json::{Value, json};
use testing::{Http, TestServer, eventually};
use tokio::net::TcpListener;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const NOWHERE: &str = "the server could not find the requested resource";

/// A server with a namespace whose owner may do everything there, and nothing elsewhere.
async fn owned() -> (TestServer, Http) {
    let server = TestServer::start().await;
    let admin = server.http();
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.expect(201);
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    allow(&admin, "team", "owner", &all).await;
    let owner = Http::new(server.user("owner", &[]));
    permitted(&owner, "/api/v1/namespaces/team/secrets").await;
    (server, owner)
}

/// A Role of these rules in a namespace, for the user of the same name.
async fn allow(admin: &Http, namespace: &str, user: &str, rules: &Value) {
    let role = json!({"metadata": {"name": user}, "rules": rules});
    admin.post(&format!("{RBAC}/namespaces/{namespace}/roles"), &role).await.expect(201);
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    });
    admin.post(&format!("{RBAC}/namespaces/{namespace}/rolebindings"), &binding).await.expect(201);
}

/// Roles count from a moment after they were written on.
async fn permitted(http: &Http, path: &str) {
    eventually("the role counts", async || (http.get(path).await.code != 403).then_some(())).await;
}

/// A node whose kubelet is whoever listens there.
async fn node(admin: &Http, name: &str, kubelet: &TcpListener) {
    let port = kubelet.local_addr().unwrap().port();
    let node = json!({"metadata": {"name": name}, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    admin.post("/api/v1/nodes", &node).await.expect(201);
}

/// Whether nobody has connected.
async fn is_left_alone(listener: TcpListener) -> bool {
    let listener = listener.into_std().unwrap();
    listener.accept().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn the_owner_of_a_namespace_reaches_nothing_of_the_cluster_below_it() {
    let (server, owner) = owned().await;
    let kubelet = TcpListener::bind("127.0.0.1:0").await.unwrap();
    node(&server.http(), "n1", &kubelet).await;
    let spec = json!({"spec": {"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let namespace = json!({"metadata": {"name": "more"}});
    let cases: &[(&str, &str, &Value)] = &[
        ("GET", "/api/v1/namespaces/team/nodes/n1/proxy/pods", &Value::Null),
        ("POST", "/api/v1/namespaces/team/nodes/n1/proxy/run/kube-system/p/c", &Value::Null),
        ("OPTIONS", "/api/v1/namespaces/team/nodes/n1/proxy/", &Value::Null),
        ("GET", "/api/v1/namespaces/team/nodes/https:n1:10250/proxy/pods", &Value::Null),
        ("GET", "/api/v1/namespaces/team/nodes", &Value::Null),
        ("GET", "/api/v1/namespaces/team/nodes?watch=1", &Value::Null),
        ("GET", "/api/v1/namespaces/team/nodes/n1", &Value::Null),
        ("GET", "/api/v1/namespaces/team/nodes/n1/status", &Value::Null),
        ("GET", "/api/v1/watch/namespaces/team/nodes", &Value::Null),
        ("GET", "/api/v1/watch/namespaces/team/nodes/n1", &Value::Null),
        ("GET", "/api/v1/namespaces/team/namespaces", &Value::Null),
        ("GET", "/api/v1/namespaces/team/namespaces?watch=1", &Value::Null),
        ("GET", "/api/v1/namespaces/team/namespaces/default", &Value::Null),
        ("GET", "/api/v1/namespaces/team/namespaces/team", &Value::Null),
        ("GET", "/api/v1/watch/namespaces/team/namespaces", &Value::Null),
        ("POST", "/api/v1/namespaces/team/namespaces", &namespace),
        ("DELETE", "/api/v1/namespaces/team/namespaces/default", &Value::Null),
        ("PUT", "/api/v1/namespaces/team/namespaces/default/finalize", &namespace),
        ("GET", "/api/v1/namespaces/team/persistentvolumes", &Value::Null),
        ("GET", &format!("{RBAC}/namespaces/team/clusterroles"), &Value::Null),
        ("DELETE", &format!("{RBAC}/namespaces/team/clusterroles/view"), &Value::Null),
        ("POST", "/apis/authorization.k8s.io/v1/namespaces/team/subjectaccessreviews", &spec),
        ("POST", "/apis/authorization.k8s.io/v1/namespaces/team/selfsubjectaccessreviews", &spec),
        ("POST", "/apis/authorization.k8s.io/v1/namespaces/team/selfsubjectrulesreviews", &spec),
        (
            "POST",
            "/apis/authentication.k8s.io/v1/namespaces/team/tokenreviews",
            &json!({"spec": {"token": "x"}}),
        ),
        ("POST", "/apis/authentication.k8s.io/v1/namespaces/team/selfsubjectreviews", &json!({})),
        ("GET", "/apis/metrics.k8s.io/v1beta1/namespaces/team/nodes", &Value::Null),
        ("GET", "/apis/metrics.k8s.io/v1beta1/namespaces/team/nodes/n1", &Value::Null),
        // A name that only the selector says.
        ("GET", "/api/v1/namespaces/team/services//proxy/x?fieldSelector=metadata.name%3Ds1", &Value::Null),
        ("GET", "/api/v1/namespaces/team/pods//proxy/x?fieldSelector=metadata.name%3Dp1", &Value::Null),
    ];
    for (method, path, body) in cases {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = owner.send(method, path, &[("content-type", "application/json")], body).await;
        assert_eq!((answer.code, answer.message().as_str()), (404, NOWHERE), "{method} {path}");
        assert_eq!(answer.reason(), "NotFound");
    }
    assert!(is_left_alone(kubelet).await, "somebody spoke to the kubelet");
    // What is theirs is theirs still, and the namespace is an object that the role is about.
    owner.get("/api/v1/namespaces/team").await.expect(200);
    owner.get("/api/v1/namespaces/team/").await.expect(200);
    owner.get("/api/v1/namespaces/team/status").await.expect(200);
    owner.post("/api/v1/namespaces/team/configmaps", &config_map("own", "1")).await.expect(201);
    let review = json!({"spec": {"user": "x", "resourceAttributes":
        {"namespace": "team", "verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/namespaces/team/localsubjectaccessreviews";
    owner.post(path, &review).await.expect(201);
    owner.get("/apis/metrics.k8s.io/v1beta1/namespaces/team/pods").await.expect(200);
}

#[tokio::test]
async fn what_has_namespaces_is_made_and_found_in_one() {
    let server = TestServer::start().await;
    let http = server.http();
    let review = json!({"spec": {"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    for (method, path, body, code) in [
        ("POST", "/api/v1/pods", pod("p"), 405),
        ("DELETE", "/api/v1/pods", Value::Null, 405),
        ("DELETE", "/api/v1/namespaces//pods", Value::Null, 405),
        ("GET", "/api/v1/namespaces//pods", Value::Null, 200),
        ("GET", "/api/v1/pods/p", Value::Null, 404),
        ("PUT", "/api/v1/pods/p", pod("p"), 404),
        ("GET", "/api/v1/pods/p/log", Value::Null, 404),
        ("POST", "/api/v1/bindings", binding, 404),
        ("POST", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews", review.clone(), 404),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews/x", review.clone(), 404),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews/x/status", review.clone(), 404),
        ("PUT", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review, 405),
        ("GET", "/apis//v1/pods", Value::Null, 404),
        ("GET", "/api/v1/pods%2", Value::Null, 400),
        ("GET", "/%61pi/v1/namespaces%2Fdefault/pods", Value::Null, 200),
        ("HEAD", "/api/v1/pods", Value::Null, 405),
        ("HEAD", "/version", Value::Null, 405),
        ("HEAD", "/healthz", Value::Null, 200),
        ("GET", "/api/v1/nodes?fieldSelector=metadata.namespace%3Dx", Value::Null, 400),
        ("GET", "/api/v1/persistentvolumes?fieldSelector=metadata.namespace%3Dx", Value::Null, 200),
        ("GET", "/api/v1/namespaces//pods?fieldSelector=metadata.namespace%3Dx", Value::Null, 200),
        ("GET", "/healthz/", Value::Null, 404),
        ("GET", "/openapi/v2/", Value::Null, 404),
        ("GET", "//", Value::Null, 404),
        ("GET", "/apis/apps/", Value::Null, 200),
        ("GET", "/api/v1/pods?watch=1&limit=x", Value::Null, 400),
        ("DELETE", "/api/v1/namespaces/default/services/s/proxy/x?dryRun=All", Value::Null, 400),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = http.send(method, path, &[("content-type", "application/json")], body).await;
        assert_eq!(answer.code, code, "{method} {path}: {}", answer.text());
    }
}

#[tokio::test]
async fn who_may_watch_may_do_nothing_else_by_the_old_form() {
    let (server, _) = owned().await;
    let admin = server.http();
    let watch = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["watch"]}]);
    allow(&admin, "team", "watcher", &watch).await;
    let role = json!({"metadata": {"name": "watcher"}, "rules": watch});
    admin.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
    let binding = json!({
        "metadata": {"name": "watcher"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "watcher"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "watcher"}],
    });
    admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
    let kubelet = TcpListener::bind("127.0.0.1:0").await.unwrap();
    node(&admin, "n1", &kubelet).await;
    let watcher = Http::new(server.user("watcher", &[]));
    permitted(&watcher, "/api/v1/nodes?watch=1&timeoutSeconds=1").await;
    for (method, path, code) in [
        ("GET", "/api/v1/watch/nodes/n1/proxy/pods", 404),
        ("POST", "/api/v1/watch/nodes/n1/proxy/run/a/b/c", 404),
        ("GET", "/api/v1/watch/namespaces/team/pods/p/log", 404),
        ("POST", "/api/v1/watch/namespaces/team/configmaps", 405),
        ("DELETE", "/api/v1/watch/namespaces/team/configmaps/c", 405),
        ("GET", "/api/v1/namespaces/team/secrets/s?watch=1", 403),
    ] {
        let body = if method == "POST" { config_map("c", "1").to_string() } else { String::new() };
        let answer = watcher.send(method, path, &[("content-type", "application/json")], body).await;
        assert_eq!(answer.code, code, "{method} {path}: {}", answer.text());
    }
    assert!(is_left_alone(kubelet).await, "somebody spoke to the kubelet");
    assert_eq!(admin.get("/api/v1/namespaces/team/configmaps/c").await.code, 404);
}

const SECRETS: &str = "/api/v1/namespaces/team/secrets";
const ONE: &str = "/api/v1/watch/namespaces/team/secrets/allowed";

/// A server with two Secrets, and somebody who may do this to `allowed`.
async fn with_secrets(verbs: &Value) -> (TestServer, Http) {
    let (server, _) = owned().await;
    let admin = server.http();
    for name in ["allowed", "victim"] {
        let secret = json!({"metadata": {"name": name, "labels": {"metadata.name": "victim"}}});
        admin.post(SECRETS, &secret).await.expect(201);
    }
    let rule = json!([
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["allowed", "a/b"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    allow(&admin, "team", "holder", &rule).await;
    let holder = Http::new(server.user("holder", &[]));
    permitted(&holder, "/api/v1/namespaces/team/configmaps").await;
    (server, holder)
}

#[tokio::test]
async fn who_may_watch_one_secret_sees_exactly_that() {
    let (_server, holder) = with_secrets(&json!(["watch", "list", "get"])).await;
    let wrong = "fieldSelector metadata.name doesn't match requested name";
    for (path, code, message) in [
        (format!("{SECRETS}/allowed?watch=1&fieldSelector=metadata.name%3Dvictim"), 400, wrong),
        (format!("{SECRETS}/allowed?watch=1&fieldSelector=metadata.name==victim"), 400, wrong),
        (format!("{ONE}?fieldSelector=metadata.name%3Dvictim"), 400, wrong),
        (format!("{ONE}?fieldSelector=metadata.name=allowed,metadata.name=victim"), 400, wrong),
        (format!("{ONE}?fieldSelector=metadata.name!%3Dallowed"), 400, wrong),
        (format!("{ONE}?fieldSelector=type!%3Dmetadata.name\\%3Dallowed"), 400, wrong),
        (format!("{ONE}?fieldSelector=type%3D%22metadata.name%3D%22"), 400, ""),
        (format!("{SECRETS}?watch=1"), 403, ""),
        (format!("{SECRETS}?watch=1&fieldSelector=metadata.name%3Dvictim"), 403, ""),
        (format!("{SECRETS}?watch=1&fieldSelector=metadata.name!%3Dallowed"), 403, ""),
        (format!("{SECRETS}?watch=1&fieldSelector=&fieldSelector=metadata.name%3Dallowed"), 403, ""),
        (
            format!("{SECRETS}?fieldSelector=metadata.name%3Dvictim&fieldSelector=metadata.name%3Dallowed"),
            403,
            "",
        ),
        (format!("{SECRETS}?fieldSelector=metadata.name%3Dvictim,metadata.name%3Dallowed"), 403, ""),
        (format!("{SECRETS}?fieldSelector=metadata.name%3Da%2Fb"), 403, ""),
        (format!("{SECRETS}?labelSelector=metadata.name%3Dvictim"), 403, ""),
        (format!("{SECRETS}?FieldSelector=metadata.name%3Dallowed"), 403, ""),
        ("/api/v1/secrets?fieldSelector=metadata.name%3Dallowed".to_owned(), 403, ""),
        ("/api/v1/watch/namespaces/team/secrets?fieldSelector=metadata.name%3Dallowed".to_owned(), 403, ""),
    ] {
        let answer = holder.get(&path).await;
        assert_eq!(answer.code, code, "{path}: {}", answer.text());
        assert!(answer.message().contains(message), "{path}: {}", answer.text());
    }
    for query in [
        "fieldSelector=metadata.name%3Dallowed",
        "fieldSelector=metadata.name%3D%3Dallowed,metadata.namespace%3Dteam",
        "fieldSelector=metadata.name=allowed&fieldSelector=metadata.name=victim",
        "fieldSelector=metadata.name%3Dallowed&labelSelector=metadata.name%3Dvictim",
        "fieldSelector=%6detadata.name%3d%61llowed",
    ] {
        let list = holder.get(&format!("{SECRETS}?{query}")).await.expect(200);
        assert_eq!(crate::names(&list), ["allowed"], "{query}");
        let watched = holder.get(&format!("{SECRETS}?watch=1&timeoutSeconds=1&{query}")).await;
        let events = watched.text();
        assert!(
            watched.code == 200 && events.contains("\"allowed\"") && events.lines().count() == 1,
            "{events}"
        );
    }
    for query in ["", "&fieldSelector=metadata.name%3Dallowed", "&fieldSelector=metadata.name==allowed"] {
        let events = holder.get(&format!("{ONE}?timeoutSeconds=1{query}")).await.text();
        assert!(events.contains("\"name\":\"allowed\"") && events.lines().count() == 1, "{events}");
    }
    // A name in the path is read, not watched, whatever the query says.
    let one = holder.get(&format!("{SECRETS}/allowed?watch=1")).await.expect(200);
    assert_eq!(one["metadata"]["name"], "allowed");
    holder.get(&format!("{SECRETS}/victim?fieldSelector=metadata.name%3Dallowed")).await.expect(403);
}

#[tokio::test]
async fn names_in_rules_are_about_requests_that_say_one() {
    let (server, holder) = with_secrets(&json!(["*"])).await;
    for (method, path, body, code) in [
        ("DELETE", format!("{SECRETS}?fieldSelector=metadata.name%3Dallowed"), Value::Null, 403),
        ("DELETE", SECRETS.to_owned(), Value::Null, 403),
        ("POST", SECRETS.to_owned(), json!({"metadata": {"name": "allowed"}}), 403),
        ("POST", SECRETS.to_owned(), json!({"metadata": {"generateName": "allowed"}}), 403),
        (
            "POST",
            format!("{SECRETS}?fieldSelector=metadata.name%3Dallowed"),
            json!({"metadata": {"name": "x"}}),
            403,
        ),
        ("POST", format!("{SECRETS}/allowed"), json!({"metadata": {"name": "x"}}), 405),
        ("PUT", format!("{SECRETS}/allowed"), json!({"metadata": {"name": "victim"}}), 400),
        (
            "PUT",
            format!("{SECRETS}/allowed?fieldSelector=metadata.name%3Dvictim"),
            json!({"metadata": {"name": "allowed"}}),
            200,
        ),
        ("DELETE", format!("{SECRETS}/victim?fieldSelector=metadata.name%3Dallowed"), Value::Null, 403),
        ("DELETE", format!("{SECRETS}/allowed%2F..%2Fvictim"), Value::Null, 403),
        ("DELETE", format!("{SECRETS}/allowed"), Value::Null, 200),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = holder.send(method, &path, &[("content-type", "application/json")], body).await;
        assert_eq!(answer.code, code, "{method} {path}: {}", answer.text());
    }
    let left = server.http().get(SECRETS).await.expect(200);
    assert_eq!(crate::names(&left), ["victim"]);
}
