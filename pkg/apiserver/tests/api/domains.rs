//! Who may lead which host somewhere, and what is recorded of it.

use serde_json::{Value, json};
use testing::{Http, TestServer, eventually};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const RECORD: &str = "minik8s.io/hosts";

fn dnses(namespace: &str) -> String {
    format!("/apis/minik8s.io/v1/namespaces/{namespace}/dnses")
}

fn ingresses(namespace: &str) -> String {
    format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses")
}

fn dns(name: &str, host: &str) -> Value {
    json!({"apiVersion": "minik8s.io/v1", "kind": "DNS", "metadata": {"name": name},
        "spec": {"host": host, "subpaths": [{"path": "/", "service": "web", "port": 80}]}})
}

fn ingress(name: &str, hosts: &[&str]) -> Value {
    let rule = |host: &&str| {
        json!({"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix",
        "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}})
    };
    let rules: Vec<Value> = hosts.iter().map(rule).collect();
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name}, "spec": {"rules": rules}})
}

/// The hosts of an object that are recorded as claimed, and those that are not.
fn recorded(object: &Value) -> (Vec<String>, Vec<String>) {
    let text = object["metadata"]["annotations"][RECORD].as_str().unwrap_or("[]");
    let entries: Vec<Value> = serde_json::from_str(text).expect("a record");
    let of = |claimed: bool| {
        let entries = entries.iter().filter(|entry| entry["claimed"] == claimed);
        let hosts = entries.flat_map(|entry| entry["hosts"].as_array().expect("hosts"));
        let mut hosts: Vec<String> = hosts.map(|host| host.as_str().expect("a host").to_owned()).collect();
        hosts.sort();
        hosts
    };
    (of(true), of(false))
}

fn is_recorded(object: &Value, claimed: &[&str], unclaimed: &[&str]) {
    assert_eq!(recorded(object), (list(claimed), list(unclaimed)), "{object}");
}

fn list(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(|host| (*host).to_owned()).collect()
}

/// Two namespaces with an owner each, of whom the first may claim shop.example.com and what is below it.
struct Tenants {
    server: TestServer,
    admin: Http,
    a: Http,
    b: Http,
}

impl Tenants {
    async fn new() -> Tenants {
        let server = TestServer::start().await;
        let admin = server.http();
        let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        let claims = json!([{"apiGroups": ["minik8s.io"], "resources": ["domains"], "verbs": ["claim"],
            "resourceNames": ["shop.example.com"]}]);
        for namespace in ["a", "b"] {
            admin.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.expect(201);
            let role = json!({"metadata": {"name": "owner"}, "rules": everything});
            admin.post(&format!("{RBAC}/namespaces/{namespace}/roles"), &role).await.expect(201);
            let path = format!("{RBAC}/namespaces/{namespace}/rolebindings");
            admin.post(&path, &binding("owner", "Role", "owner", namespace)).await.expect(201);
        }
        let role = json!({"metadata": {"name": "claims-shop"}, "rules": claims});
        admin.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
        let path = format!("{RBAC}/clusterrolebindings");
        admin.post(&path, &binding("claims-shop", "ClusterRole", "claims-shop", "a")).await.expect(201);
        let [a, b] = ["a", "b"].map(|name| Http::new(server.user(name, &[])));
        for (http, namespace) in [(&a, "a"), (&b, "b")] {
            eventually("the owner's role", async || {
                (http.get(&dnses(namespace)).await.code == 200).then_some(())
            })
            .await;
        }
        let tenants = Tenants { server, admin, a, b };
        eventually("the right to claim", async || {
            let review = json!({"spec": {"resourceAttributes": {"verb": "claim", "group": "minik8s.io",
                "resource": "domains", "name": "shop.example.com"}}});
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            (tenants.a.post(path, &review).await.expect(201)["status"]["allowed"] == true).then_some(())
        })
        .await;
        tenants
    }
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]})
}

#[tokio::test]
async fn hosts_are_claimed_by_who_may() {
    let Tenants { server: _server, admin, a, b } = Tenants::new().await;
    let made = admin.post(&dnses("default"), &dns("seed", "minik8s.io")).await.expect(201);
    is_recorded(&made, &["minik8s.io"], &[]);
    let hosts =
        ["shop.example.com", "*.shop.example.com", "a.b.shop.example.com", "example.com", "google.com"];
    let made = a.post(&ingresses("a"), &ingress("web", &hosts)).await;
    let warning =
        made.headers.get("warning").and_then(|text| text.to_str().ok()).unwrap_or_default().to_owned();
    let expected = "resolved for nobody: example.com, google.com; \\\"a\\\" may not claim domains.minik8s.io of these names";
    assert!(warning.contains(expected), "{warning}");
    is_recorded(
        &made.expect(201),
        &["*.shop.example.com", "a.b.shop.example.com", "shop.example.com"],
        &["example.com", "google.com"],
    );
    // The owner of a namespace may do everything in it, and claims nothing by that.
    let made = b.post(&dnses("b"), &dns("web", "google.com")).await.expect(201);
    is_recorded(&made, &[], &["google.com"]);
    let role = json!({"metadata": {"name": "claims"}, "rules": [{"apiGroups": ["minik8s.io"], "resources": ["domains"], "verbs": ["claim"]}]});
    b.post(&format!("{RBAC}/namespaces/b/roles"), &role).await.expect(201);
    b.post(&format!("{RBAC}/namespaces/b/rolebindings"), &binding("claims", "Role", "claims", "b"))
        .await
        .expect(201);
    let made = b.post(&dnses("b"), &dns("again", "google.com")).await.expect(201);
    is_recorded(&made, &[], &["google.com"]);
    // Without hosts there is nothing to record.
    let mut plain = ingress("plain", &[""]);
    plain["spec"]["rules"][0].as_object_mut().unwrap().remove("host");
    let made = b.post(&ingresses("b"), &plain).await.expect(201);
    assert!(made["metadata"].get("annotations").is_none(), "{made}");
    // What is named for TLS is served where there is a default backend.
    plain["metadata"]["name"] = "secured".into();
    plain["spec"]["tls"] = json!([{"hosts": ["google.com"]}]);
    is_recorded(&b.post(&ingresses("b"), &plain).await.expect(201), &[], &[]);
    let backend = json!({"spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}});
    let path = format!("{}/secured", ingresses("b"));
    is_recorded(&b.patch(&path, "merge", &backend).await.expect(200), &[], &["google.com"]);
}

#[tokio::test]
async fn nobody_writes_the_record() {
    let Tenants { server: _server, admin, a, b } = Tenants::new().await;
    let forged =
        json!([{"claimed": true, "since": "2020-01-01T00:00:00Z", "hosts": ["google.com"]}]).to_string();
    let forge = json!({"metadata": {"annotations": {RECORD: forged}}});
    let mut object = ingress("web", &["google.com"]);
    object["metadata"]["annotations"] = json!({RECORD: forged, "mine": "x"});
    let path = format!("{}/web", ingresses("b"));
    let made = b.post(&ingresses("b"), &object).await.expect(201);
    is_recorded(&made, &[], &["google.com"]);
    assert_eq!(made["metadata"]["annotations"]["mine"], "x");
    let record = made["metadata"]["annotations"][RECORD].clone();
    // By whatever verb, on the object or its status.
    let status = format!("{path}/status");
    for (path, kind, body) in [
        (&path, "merge", forge.clone()),
        (&path, "strategic-merge", forge.clone()),
        (
            &path,
            "json",
            json!([{"op": "replace", "path": "/metadata/annotations/minik8s.io~1hosts", "value": forged}]),
        ),
        (&status, "merge", forge.clone()),
        (&path, "merge", json!({"metadata": {"annotations": null}})),
        (&status, "merge", json!({"metadata": {"annotations": null}})),
    ] {
        let answer = b.patch(path, kind, &body).await.expect(200);
        assert_eq!(answer["metadata"]["annotations"][RECORD], record, "{path} {kind} {body}");
    }
    b.put(&path, &object).await.expect(200);
    let apply = format!("{path}?fieldManager=b&force=true");
    let applied = b
        .send("PATCH", &apply, &[("content-type", "application/apply-patch+yaml")], object.to_string())
        .await;
    is_recorded(&applied.expect(200), &[], &["google.com"]);
    // Nor does whoever may do everything, by and by: labels and statuses say nothing of hosts.
    let label = json!({"metadata": {"labels": {"seen": "yes"}, "finalizers": ["example.com/x"]}});
    is_recorded(&admin.patch(&path, "merge", &label).await.expect(200), &[], &["google.com"]);
    let reached = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    is_recorded(&admin.patch(&status, "merge", &reached).await.expect(200), &[], &["google.com"]);
    // Whoever replaces it stands for it.
    let mut whole = admin.get(&path).await.expect(200);
    whole["metadata"]["annotations"].as_object_mut().unwrap().remove(RECORD);
    is_recorded(&admin.put(&path, &whole).await.expect(200), &["google.com"], &[]);
    drop(a);
}

#[tokio::test]
async fn what_was_claimed_stays_with_the_object() {
    let Tenants { server: _server, admin, a, b: _b } = Tenants::new().await;
    let path = format!("{}/web", ingresses("a"));
    let made = a.post(&ingresses("a"), &ingress("web", &["shop.example.com"])).await.expect(201);
    let record = made["metadata"]["annotations"][RECORD].clone();
    // The right is taken back.
    admin.delete(&format!("{RBAC}/clusterrolebindings/claims-shop"), &Value::Null).await.expect(200);
    eventually("it may be claimed no more", async || {
        let made =
            a.post(&format!("{}?dryRun=All", ingresses("a")), &ingress("late", &["shop.example.com"])).await;
        (recorded(&made.expect(201)).0.is_empty()).then_some(())
    })
    .await;
    let both =
        a.put(&path, &ingress("web", &["shop.example.com", "other.shop.example.com"])).await.expect(200);
    is_recorded(&both, &["shop.example.com"], &["other.shop.example.com"]);
    let one = a.put(&path, &ingress("web", &["shop.example.com"])).await.expect(200);
    assert_eq!(one["metadata"]["annotations"][RECORD], record, "even its time");
    // Given up, it is asked for anew; so it is where the object is made again, here or elsewhere.
    a.put(&path, &ingress("web", &["other.example.com"])).await.expect(200);
    let again = a.put(&path, &ingress("web", &["shop.example.com"])).await.expect(200);
    is_recorded(&again, &[], &["shop.example.com"]);
    a.delete(&path, &Value::Null).await.expect(200);
    let mut copy = made.clone();
    copy["metadata"] = json!({"name": "web", "annotations": made["metadata"]["annotations"]});
    is_recorded(&a.post(&ingresses("a"), &copy).await.expect(201), &[], &["shop.example.com"]);
    // An administrator's word in somebody else's namespace holds.
    let path = format!("{}/given", dnses("a"));
    admin.post(&dnses("a"), &dns("given", "given.example")).await.expect(201);
    let changed = json!({"spec": {"subpaths": [{"path": "/x", "service": "web", "port": 80}]}});
    is_recorded(&a.patch(&path, "merge", &changed).await.expect(200), &["given.example"], &[]);
    is_recorded(
        &a.patch(&path, "merge", &json!({"spec": {"host": "google.com"}})).await.expect(200),
        &[],
        &["google.com"],
    );
}

#[tokio::test]
async fn a_service_account_claims_what_it_may() {
    let Tenants { server, admin, .. } = Tenants::new().await;
    let bound = json!({"metadata": {"name": "controller"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "a"}]});
    admin.post(&format!("{RBAC}/clusterrolebindings"), &bound).await.expect(201);
    eventually("its account", async || {
        (admin.get("/api/v1/namespaces/a/serviceaccounts/default").await.code == 200).then_some(())
    })
    .await;
    let token = server.service_account_token("a", "default").await;
    let account = Http::new(server.token(&token));
    eventually("its role", async || (account.get(&dnses("b")).await.code == 200).then_some(())).await;
    let made = account.post(&dnses("b"), &dns("web", "shop.example.com")).await.expect(201);
    is_recorded(&made, &[], &["shop.example.com"]);
    // Who speaks for somebody else has that one's rights.
    let as_a = [("content-type", "application/json"), ("impersonate-user", "a")];
    let made = admin.send("POST", &dnses("a"), &as_a, dns("web", "google.com").to_string()).await.expect(201);
    is_recorded(&made, &[], &["google.com"]);
}

#[tokio::test]
async fn odd_hosts_are_refused_and_many_are_bounded() {
    let Tenants { server: _server, admin, a, .. } = Tenants::new().await;
    for host in [
        "Shop.example.com",
        "shop.example.com.",
        "bücher.example",
        "10.0.0.1",
        "*.*.example",
        "shop..example",
        "-",
        " ",
    ] {
        let refused = a.post(&dnses("a"), &dns("odd", host)).await;
        assert_eq!(refused.code, 422, "{host}: {}", refused.text());
        let refused = a.post(&ingresses("a"), &ingress("odd", &[host])).await;
        assert_eq!(refused.code, 422, "{host}: {}", refused.text());
    }
    let idna = a.post(&dnses("a"), &dns("idna", "xn--bcher-kva.shop.example.com")).await.expect(201);
    is_recorded(&idna, &["xn--bcher-kva.shop.example.com"], &[]);
    let label = "x".repeat(63);
    let long = [label.as_str(), &label, &label, &label[..44], "shop.example.com"].join(".");
    assert_eq!(long.len(), 253);
    is_recorded(&a.post(&dnses("a"), &dns("long", &long)).await.expect(201), &[&long], &[]);
    let many: Vec<String> = (0..5_000).map(|n| format!("h{n}.shop.example.com")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for http in [&a, &admin] {
        let made =
            http.post(&format!("{}?dryRun=All", ingresses("a")), &ingress("many", &many)).await.expect(201);
        let (claimed, unclaimed) = recorded(&made);
        assert!((2_000..5_000).contains(&claimed.len()) && unclaimed.is_empty(), "{}", claimed.len());
    }
}
