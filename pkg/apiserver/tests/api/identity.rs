//! Who somebody is, and what they may do.

use crate::{CONFIG_MAPS, PODS, config_map, pod};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use serde_json::{Value, json};
use testing::{Engine, Http, TestServer, eventually};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Gives a subject a ClusterRole in one namespace.
async fn bind(http: &Http, namespace: &str, name: &str, role: &str, subject: Value) {
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    });
    http.post(&format!("{RBAC}/namespaces/{namespace}/rolebindings"), &binding).await.expect(201);
}

/// Roles are looked at in the order they were written, but not in the same moment.
async fn comes_true(what: &str, client: &Client, path: &str, code: u16) {
    let http = Http::new(client.clone());
    eventually(what, async || (http.get(path).await.code == code).then_some(())).await;
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name})
}

#[tokio::test]
async fn each_may_do_what_is_theirs_and_nothing_else() {
    let server = TestServer::start().await;
    let admin = server.http();
    admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.expect(201);
    admin.post("/api/v1/nodes", &json!({"metadata": {"name": "n1"}})).await.expect(201);
    for name in ["mine", "other"] {
        let secret = json!({"metadata": {"name": name}, "stringData": {"a": "b"}});
        admin.post("/api/v1/namespaces/team/secrets", &secret).await.expect(201);
    }
    let mut here = pod("here");
    here["spec"]["nodeName"] = "n1".into();
    here["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "mine"}}]);
    admin.post("/api/v1/namespaces/team/pods", &here).await.expect(201);
    bind(&admin, "team", "jane", "edit", user("jane")).await;
    let account = json!({"kind": "ServiceAccount", "name": "default", "namespace": "team"});
    bind(&admin, "team", "account", "view", account).await;
    let token = eventually("the default service account", async || {
        let path = "/api/v1/namespaces/team/serviceaccounts/default";
        (admin.get(path).await.code == 200).then_some(())
    });
    token.await;
    let token = server.service_account_token("team", "default").await;

    let jane = server.user("jane", &["developers"]);
    let node = server.node("n1");
    let account = server.token(&token);
    comes_true("jane's role", &jane, "/api/v1/namespaces/team/pods", 200).await;
    comes_true("the account's role", &account, "/api/v1/namespaces/team/pods", 200).await;
    comes_true("the node's pod", &node, "/api/v1/namespaces/team/secrets/mine", 200).await;
    let who: [(&str, Http); 7] = [
        ("admin", admin),
        ("jane", Http::new(jane)),
        ("node", Http::new(node)),
        ("account", Http::new(account)),
        ("anonymous", Http::new(server.anonymous())),
        ("bad token", Http::new(server.token("nonsense"))),
        ("stranger", Http::new(server.stranger("jane", &["system:masters"]))),
    ];
    let lease = json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}});
    // Codes in the order of `who`.
    #[rustfmt::skip]
    let cases: &[(&str, &str, Value, [u16; 7])] = &[
        ("GET", "/version", Value::Null, [200, 200, 200, 200, 200, 401, 401]),
        ("GET", "/healthz", Value::Null, [200, 200, 200, 200, 200, 401, 401]),
        ("GET", "/metrics", Value::Null, [200, 403, 403, 403, 403, 401, 401]),
        ("GET", "/apis", Value::Null, [200, 200, 200, 200, 403, 401, 401]),
        ("GET", "/api/v1/namespaces/team/pods", Value::Null, [200, 200, 403, 200, 403, 401, 401]),
        ("GET", "/api/v1/pods", Value::Null, [200, 403, 403, 403, 403, 401, 401]),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", Value::Null, [200, 403, 200, 403, 403, 401, 401]),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2", Value::Null, [200, 403, 403, 403, 403, 401, 401]),
        ("GET", "/api/v1/namespaces/default/pods", Value::Null, [200, 403, 403, 403, 403, 401, 401]),
        ("GET", "/api/v1/namespaces/team/secrets/mine", Value::Null, [200, 200, 200, 403, 403, 401, 401]),
        ("GET", "/api/v1/namespaces/team/secrets/other", Value::Null, [200, 200, 403, 403, 403, 401, 401]),
        ("GET", "/api/v1/namespaces/team/secrets", Value::Null, [200, 200, 403, 403, 403, 401, 401]),
        ("GET", "/api/v1/nodes/n1", Value::Null, [200, 403, 200, 403, 403, 401, 401]),
        ("POST", "/api/v1/namespaces/team/configmaps?dryRun=All", config_map("x", "1"), [201, 201, 403, 403, 403, 401, 401]),
        ("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", config_map("x", "1"), [201, 403, 403, 403, 403, 401, 401]),
        ("POST", "/api/v1/nodes?dryRun=All", json!({"metadata": {"name": "n2"}}), [201, 403, 403, 403, 403, 401, 401]),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?dryRun=All", lease, [201, 403, 201, 403, 403, 401, 401]),
        ("PATCH", "/api/v1/nodes/n1/status?dryRun=All", json!({"status": {"phase": "Running"}}), [200, 403, 200, 403, 403, 401, 401]),
        ("DELETE", "/api/v1/namespaces/team?dryRun=All", Value::Null, [200, 403, 403, 403, 403, 401, 401]),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}), [201, 201, 201, 201, 403, 401, 401]),
    ];
    for (method, path, body, codes) in cases {
        for ((name, http), code) in who.iter().zip(codes) {
            let media_type =
                if *method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let answer = http.send(method, path, &[("content-type", media_type)], body).await;
            assert_eq!(answer.code, *code, "{method} {path} as {name}: {}", answer.text());
            match code {
                401 => assert_eq!(answer.reason(), "Unauthorized"),
                403 => assert!(
                    answer.reason() == "Forbidden" && answer.message().contains("forbidden"),
                    "{}",
                    answer.text()
                ),
                _ => {}
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_says_who_cannot_do_what_where() {
    let server = TestServer::start().await;
    let jane = Http::new(server.user("jane", &[]));
    let message = async |path: &str| jane.get(path).await.message();
    assert_eq!(
        message("/api/v1/namespaces/default/pods").await,
        "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!(
        message("/apis/apps/v1/namespaces/default/deployments/web").await,
        "deployments.apps \"web\" is forbidden: User \"jane\" cannot get resource \"deployments\" in API group \"apps\" in the namespace \"default\""
    );
    assert_eq!(message("/metrics").await, "forbidden: User \"jane\" cannot get path \"/metrics\"");
}

#[tokio::test]
async fn a_node_writes_only_what_is_its_own() {
    let server = TestServer::start().await;
    let admin = server.http();
    for node in ["n1", "n2"] {
        admin.post("/api/v1/nodes", &json!({"metadata": {"name": node}})).await.expect(201);
        let mut object = pod(&format!("on-{node}"));
        object["spec"]["nodeName"] = node.into();
        admin.post(PODS, &object).await.expect(201);
    }
    let client = server.node("n1");
    comes_true("the node's pod", &client, &format!("{PODS}/on-n1"), 200).await;
    let node = Http::new(client);
    let running = json!({"status": {"phase": "Running"}});
    let cases = [
        ("status of its pod", format!("{PODS}/on-n1/status"), running.clone(), 200),
        ("status of another's pod", format!("{PODS}/on-n2/status"), running.clone(), 403),
        ("spec of its pod", format!("{PODS}/on-n1"), json!({"metadata": {"labels": {"a": "b"}}}), 403),
        ("its own node", "/api/v1/nodes/n1/status".into(), json!({"status": {"nodeInfo": null}}), 200),
        ("another node", "/api/v1/nodes/n2/status".into(), json!({"status": {}}), 403),
        (
            "a label kept for admins",
            "/api/v1/nodes/n1".into(),
            json!({"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}}),
            403,
        ),
    ];
    for (what, path, patch, code) in cases {
        let answer = node.patch(&path, "strategic-merge", &patch).await;
        assert_eq!(answer.code, code, "{what}: {}", answer.text());
    }
    let token = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "on-n1"}}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let refused = node.post(path, &token).await;
    assert_eq!(
        refused.code,
        403,
        "a token must be bound to the uid of a pod of the node: {}",
        refused.text()
    );
    let uid = admin.get(&format!("{PODS}/on-n1")).await.expect(200)["metadata"]["uid"].clone();
    let mut bound = token;
    bound["spec"]["boundObjectRef"]["uid"] = uid;
    node.post(path, &bound).await.expect(201);
    let mirror = pod("not-a-mirror");
    assert_eq!(node.post(PODS, &mirror).await.code, 403, "a node creates mirror pods only");
}

#[tokio::test]
async fn a_token_is_good_for_what_it_is_bound_to() {
    let server = TestServer::start().await;
    let admin = server.http();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.post(accounts, &json!({"metadata": {"name": "robot"}})).await.expect(201);
    let made = admin.post(PODS, &pod("p")).await.expect(201);
    let request = json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": made["metadata"]["uid"]}, "expirationSeconds": 3600}});
    let refused =
        admin.post(&format!("{accounts}/default/token"), &json!({"spec": {"expirationSeconds": 5}})).await;
    assert_eq!(refused.code, 422, "{}", refused.text());
    let token = admin.post(&format!("{accounts}/default/token"), &request).await.expect(201);
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    let robot = server.service_account_token("default", "robot").await;

    let review = async |token: &str| {
        let review = json!({"spec": {"token": token}});
        admin.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.expect(201)["status"].clone()
    };
    let status = review(&token).await;
    assert_eq!(status["authenticated"], true, "{status}");
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:default");
    assert_eq!(status["user"]["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_ne!(review("nonsense").await["authenticated"], true);
    let elsewhere = json!({"spec": {"audiences": ["vault"]}});
    let other = admin.post(&format!("{accounts}/robot/token"), &elsewhere).await.expect(201);
    let other = other["status"]["token"].as_str().unwrap();
    Http::new(server.token(other)).get("/version").await.expect(401);

    let pods = Http::new(server.token(&token));
    pods.get("/version").await.expect(200);
    let who = pods.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await.expect(201);
    let groups = who["status"]["userInfo"]["groups"].as_array().unwrap().clone();
    assert!(groups.contains(&json!("system:serviceaccounts:default")), "{groups:?}");
    admin.delete(&format!("{PODS}/p?gracePeriodSeconds=0"), &Value::Null).await.expect(200);
    eventually("the token dies with its pod", async || {
        (pods.get("/version").await.code == 401).then_some(())
    })
    .await;
    admin.delete(&format!("{accounts}/robot"), &Value::Null).await.expect(200);
    let gone = Http::new(server.token(&robot));
    eventually("the token dies with its account", async || {
        (gone.get("/version").await.code == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_token_that_stands_in_a_secret_is_good_for_as_long_as_it_stands_there() {
    let server = TestServer::start().await;
    let admin = server.http();
    let (accounts, secrets) =
        ("/api/v1/namespaces/default/serviceaccounts", "/api/v1/namespaces/default/secrets");
    admin.post(accounts, &json!({"metadata": {"name": "robot"}})).await.expect(201);
    let secret = |name: &str, account: &str| {
        let annotations = json!({"kubernetes.io/service-account.name": account});
        json!({"metadata": {"name": name, "annotations": annotations}, "type": "kubernetes.io/service-account-token"})
    };
    let token = async |name: &str| {
        eventually("a secret that is filled", async || {
            let secret = admin.get(&format!("{secrets}/{name}")).await.expect(200);
            let token = secret["data"]["token"].as_str()?;
            assert!(secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"].is_string());
            assert_eq!(secret["data"]["namespace"], "ZGVmYXVsdA==");
            assert!(secret["data"]["ca.crt"].is_string());
            Some(String::from_utf8(BASE64_STANDARD.decode(token).unwrap()).unwrap())
        })
        .await
    };
    let gone = async |what: &str, path: &str| {
        eventually(what, async || (admin.get(path).await.code == 404).then_some(())).await;
    };
    admin.post(secrets, &secret("one", "robot")).await.expect(201);
    admin.post(secrets, &secret("two", "robot")).await.expect(201);
    let one = Http::new(server.token(&token("one").await));
    let two = Http::new(server.token(&token("two").await));
    let who = one.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await.expect(201);
    assert_eq!(who["status"]["userInfo"]["username"], "system:serviceaccount:default:robot");
    admin.delete(&format!("{secrets}/one"), &Value::Null).await.expect(200);
    eventually("the token dies with its secret", async || {
        (one.get("/version").await.code == 401).then_some(())
    })
    .await;
    two.get("/version").await.expect(200);
    admin.post(secrets, &secret("nobodys", "nobody")).await.expect(201);
    gone("a secret of an account that is not there", &format!("{secrets}/nobodys")).await;
    admin.delete(&format!("{accounts}/robot"), &Value::Null).await.expect(200);
    gone("the secret goes with its account", &format!("{secrets}/two")).await;
    assert_eq!(two.get("/version").await.code, 401);
}

#[tokio::test]
async fn nodes_read_the_certificates_of_ingresses_and_no_other_secret() {
    let server = TestServer::start().await;
    let admin = server.http();
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["shop", "private"] {
        admin.post(secrets, &json!({"metadata": {"name": name}, "stringData": {"a": "b"}})).await.expect(201);
    }
    let node = Http::new(server.node("n1"));
    for what in ["/apis/networking.k8s.io/v1/ingresses", "/apis/minik8s.io/v1/dnses"] {
        node.get(what).await.expect(200);
    }
    node.get(&format!("{secrets}/shop")).await.expect(403);
    let backend = json!({"service": {"name": "x", "port": {"number": 80}}});
    let spec =
        json!({"defaultBackend": backend, "tls": [{"hosts": ["shop.example.com"], "secretName": "shop"}]});
    let ingress = json!({"metadata": {"name": "shop"}, "spec": spec});
    admin.post("/apis/networking.k8s.io/v1/namespaces/default/ingresses", &ingress).await.expect(201);
    eventually("the certificate's secret can be read", async || {
        (node.get(&format!("{secrets}/shop")).await.code == 200).then_some(())
    })
    .await;
    node.get(&format!("{secrets}?fieldSelector=metadata.name%3Dshop")).await.expect(200);
    node.get(&format!("{secrets}?fieldSelector=metadata.name%3Dprivate")).await.expect(403);
    node.get(&format!("{secrets}/private")).await.expect(403);
    node.get(secrets).await.expect(403);
    let proxy = Http::new(server.user("system:kube-proxy", &[]));
    proxy.get(&format!("{secrets}/shop")).await.expect(200);
    proxy.get(&format!("{secrets}/private")).await.expect(403);
}

#[tokio::test]
async fn a_bootstrap_token_is_good_until_it_expires() {
    let server = TestServer::start().await;
    let admin = server.http();
    let secret = |id: &str, expires: jiff::Timestamp| {
        json!({
            "metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
                "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
                "expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            },
        })
    };
    let hour = jiff::SignedDuration::from_hours(1);
    let path = "/api/v1/namespaces/kube-system/secrets";
    admin.post(path, &secret("abcdef", jiff::Timestamp::now() + hour)).await.expect(201);
    admin.post(path, &secret("expire", jiff::Timestamp::now() - hour)).await.expect(201);
    let good = server.token("abcdef.0123456789abcdef");
    comes_true("the bootstrap token", &good, "/version", 200).await;
    let http = Http::new(good);
    let who = http.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await.expect(201);
    assert_eq!(who["status"]["userInfo"]["username"], "system:bootstrap:abcdef");
    http.get(PODS).await.expect(403);
    for token in ["expire.0123456789abcdef", "abcdef.0123456789abcdee", "nobody.0123456789abcdef"] {
        Http::new(server.token(token)).get("/version").await.expect(401);
    }
}

#[tokio::test]
async fn who_may_impersonate_is_taken_for_somebody_else() {
    let server = TestServer::start().await;
    let admin = server.http();
    bind(&admin, "default", "jane", "view", user("jane")).await;
    let jane = server.user("jane", &[]);
    comes_true("jane's role", &jane, CONFIG_MAPS, 200).await;
    let as_jane = [("impersonate-user", "jane"), ("impersonate-group", "developers")];
    admin.send("GET", CONFIG_MAPS, &as_jane, "").await.expect(200);
    admin.send("GET", "/api/v1/namespaces/kube-system/configmaps", &as_jane, "").await.expect(403);
    let who = [
        ("impersonate-user", "jane"),
        ("impersonate-extra-scopes", "a"),
        ("content-type", "application/json"),
    ];
    let who =
        admin.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", &who, "{}").await.expect(201);
    assert_eq!(who["status"]["userInfo"]["extra"]["scopes"], json!(["a"]));
    let refused = Http::new(jane).send("GET", CONFIG_MAPS, &[("impersonate-user", "admin")], "").await;
    assert_eq!(refused.code, 403);
    assert!(refused.message().contains("cannot impersonate resource \"users\""), "{}", refused.message());
    let nobody = admin.send("GET", CONFIG_MAPS, &[("impersonate-group", "developers")], "").await;
    assert_eq!(nobody.code, 400, "a group without a user: {}", nobody.text());
}

#[tokio::test]
async fn questions_about_permission_are_answered() {
    let server = TestServer::start().await;
    let admin = server.http();
    bind(&admin, "default", "jane", "view", user("jane")).await;
    let client = server.user("jane", &[]);
    comes_true("jane's role", &client, CONFIG_MAPS, 200).await;
    let jane = Http::new(client);
    let reviews = "/apis/authorization.k8s.io/v1";
    let attributes =
        |verb: &str, resource: &str| json!({"namespace": "default", "verb": verb, "resource": resource});
    for (verb, resource, allowed) in
        [("get", "pods", true), ("delete", "pods", false), ("get", "secrets", false)]
    {
        let own = json!({"spec": {"resourceAttributes": attributes(verb, resource)}});
        let answer = jane.post(&format!("{reviews}/selfsubjectaccessreviews"), &own).await.expect(201);
        assert_eq!(answer["status"]["allowed"], allowed, "{verb} {resource}: {answer}");
        let of_jane = json!({"spec": {"user": "jane", "resourceAttributes": attributes(verb, resource)}});
        let answer = admin.post(&format!("{reviews}/subjectaccessreviews"), &of_jane).await.expect(201);
        assert_eq!(answer["status"]["allowed"], allowed);
        let path = format!("{reviews}/namespaces/default/localsubjectaccessreviews");
        assert_eq!(admin.post(&path, &of_jane).await.expect(201)["status"]["allowed"], allowed);
        jane.post(&format!("{reviews}/subjectaccessreviews"), &of_jane).await.expect(403);
    }
    let rules = json!({"spec": {"namespace": "default"}});
    let rules = jane.post(&format!("{reviews}/selfsubjectrulesreviews"), &rules).await.expect(201);
    let lists = |rule: &Value, member: &str, value: &str| {
        rule[member].as_array().is_some_and(|list| list.contains(&json!(value)))
    };
    let all = rules["status"]["resourceRules"].as_array().unwrap();
    assert!(
        all.iter().any(|rule| lists(rule, "resources", "pods") && lists(rule, "verbs", "watch")),
        "{rules}"
    );
    admin.get(&format!("{reviews}/selfsubjectaccessreviews")).await.expect(405);
    let both = json!({"spec": {"resourceAttributes": {}, "nonResourceAttributes": {}}});
    admin.post(&format!("{reviews}/selfsubjectaccessreviews"), &both).await.expect(422);
}

#[tokio::test]
async fn nobody_gives_what_they_do_not_have() {
    let server = TestServer::start().await;
    let admin = server.http();
    bind(&admin, "default", "jane", "admin", user("jane")).await;
    let client = server.user("jane", &[]);
    comes_true("jane's role", &client, CONFIG_MAPS, 200).await;
    let jane = Http::new(client);
    let roles = format!("{RBAC}/namespaces/default/roles");
    let role = |name: &str, resource: &str| json!({"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]});
    jane.post(&roles, &role("reads-pods", "pods")).await.expect(201);
    let refused = jane.post(&roles, &role("reads-nodes", "nodes")).await;
    assert_eq!(refused.code, 403);
    assert!(
        refused.message().contains("is attempting to grant RBAC permissions not currently held"),
        "{}",
        refused.message()
    );
    let binding = |name: &str, role: &str| {
        json!({
            "metadata": {"name": name}, "subjects": [user("jane")],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        })
    };
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    jane.post(&bindings, &binding("ok", "view")).await.expect(201);
    jane.post(&bindings, &binding("too-much", "cluster-admin")).await.expect(403);
    let changed = json!({"roleRef": {"name": "edit"}});
    let refused = jane.patch(&format!("{bindings}/ok"), "merge", &changed).await;
    assert_eq!(refused.code, 422, "roleRef never changes: {}", refused.text());
}

#[tokio::test]
async fn an_aggregated_role_gathers_the_rules_of_others() {
    let server = TestServer::start().await;
    let admin = server.http();
    bind(&admin, "default", "jane", "view", user("jane")).await;
    let jane = server.user("jane", &[]);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    comes_true("jane's role", &jane, CONFIG_MAPS, 200).await;
    Http::new(jane.clone()).get(leases).await.expect(403);
    let more = json!({
        "metadata": {"name": "leases-view", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list"]}],
    });
    admin.post(&format!("{RBAC}/clusterroles"), &more).await.expect(201);
    comes_true("view gathers it", &jane, leases, 200).await;
    admin.delete(&format!("{RBAC}/clusterroles/leases-view"), &Value::Null).await.expect(200);
    comes_true("view lets it go", &jane, leases, 403).await;
}

#[tokio::test]
async fn secrets_are_not_readable_where_they_are_kept() {
    let etcd = Engine::etcd();
    let Engine::Etcd(process) = &etcd else { unreachable!() };
    let etcd_dir = process.data_dir().to_owned();
    for engine in [Engine::Embedded, etcd.clone()] {
        let mut server = TestServer::start_on(engine.clone()).await;
        let http = server.http();
        let path = "/api/v1/namespaces/default/secrets";
        let secret =
            json!({"metadata": {"name": "s"}, "stringData": {"key": "correct-horse-battery-staple"}});
        http.post(path, &secret).await.expect(201);
        http.post(CONFIG_MAPS, &config_map("open", "plain-for-everybody")).await.expect(201);
        server.restart().await;
        let read = server.http().get(&format!("{path}/s")).await.expect(200);
        let encoded = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ==";
        assert_eq!(read["data"]["key"], encoded);
        server.stop().await;
        let dir =
            if matches!(engine, Engine::Embedded) { server.data_dir().to_owned() } else { etcd_dir.clone() };
        assert!(contains(&dir, b"plain-for-everybody"), "the search finds what is plain");
        assert!(!contains(&dir, encoded.as_bytes()) && !contains(&dir, b"correct-horse"));
    }
}

fn contains(dir: &std::path::Path, needle: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return contains(&path, needle);
        }
        std::fs::read(path).unwrap().windows(needle.len()).any(|window| window == needle)
    })
}
