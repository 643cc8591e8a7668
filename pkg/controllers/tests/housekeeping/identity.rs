//! Service accounts, the root authority, certificates, bootstrap tokens.

use crate::Cluster;
use pki::{BootstrapToken, PrivateKey};
use serde_json::{Value, json};
use testing::Http;

fn base64(text: String) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(text.into_bytes())).expect("bytes are JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_namespace_has_an_account_and_an_authority() {
    let controllers = ["serviceaccount-controller", "root-ca-certificate-publisher-controller"];
    let mut cluster = Cluster::start(&controllers).await;
    cluster.create("/api/v1/namespaces", json!({"metadata": {"name": "new"}})).await;
    let (account, root) = (
        "/api/v1/namespaces/new/serviceaccounts/default",
        "/api/v1/namespaces/new/configmaps/kube-root-ca.crt",
    );
    cluster.until("an account", account, Value::is_object).await;
    let authority = std::fs::read_to_string(cluster.server.data_dir().join("ca.crt")).expect("the authority");
    let is_right = |found: &Value| found["data"] == json!({"ca.crt": authority});
    cluster.until("an authority", root, is_right).await;
    cluster
        .until("also in kube-system", "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt", is_right)
        .await;
    // What is taken away or spoiled is made again.
    cluster.http.delete(account, &json!({})).await.expect(200);
    cluster.http.patch(root, "merge", &json!({"data": {"ca.crt": "spoiled"}})).await.expect(200);
    cluster.until("an account again", account, Value::is_object).await;
    cluster.until("an authority again", root, is_right).await;
    cluster.stop().await;
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn request(name: &str, signer: &str, user: &str, group: &str) -> Value {
    let key = PrivateKey::generate().expect("a key");
    let pem = pki::request(&key, user, &[group], &[]).expect("a request");
    json!({"metadata": {"name": name}, "spec": {"request": base64(pem), "signerName": signer, "usages": ["digital signature", "client auth"]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_nodes_are_approved_and_signed() {
    let controllers =
        ["certificatesigningrequest-approving-controller", "certificatesigningrequest-signing-controller"];
    let mut cluster = Cluster::start(&controllers).await;
    // As kubeadm sets it up: machines with a bootstrap token may ask, and nodes may renew.
    for (name, role, group) in [
        (
            "bootstrap",
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            "system:bootstrappers",
        ),
        ("renew", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
        ("ask", "system:node-bootstrapper", "system:bootstrappers"),
    ] {
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        });
        cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    }
    let kubelet = "kubernetes.io/kube-apiserver-client-kubelet";
    let joining = Http::new(cluster.server.user("system:bootstrap:abcdef", &["system:bootstrappers"]));
    let renewing = Http::new(cluster.server.node("n2"));
    let asked = [
        ("joins", &joining, request("joins", kubelet, "system:node:n1", "system:nodes")),
        ("renews", &renewing, request("renews", kubelet, "system:node:n2", "system:nodes")),
    ];
    for (name, http, request) in asked {
        http.post(REQUESTS, &request).await.expect(201);
        let signed = cluster
            .until("it is signed", &format!("{REQUESTS}/{name}"), |found| {
                found["status"]["certificate"].is_string()
            })
            .await;
        assert_eq!(signed["status"]["conditions"][0]["reason"], "AutoApproved", "{name}");
    }
    // Others wait for somebody to approve, and what does not fit its signer fails.
    let wrong = request("wrong", kubelet, "bob", "system:masters");
    cluster.create(REQUESTS, wrong).await;
    let good = request("good", "kubernetes.io/kube-apiserver-client", "bob", "people");
    cluster.create(REQUESTS, good).await;
    for name in ["wrong", "good"] {
        let path = format!("{REQUESTS}/{name}");
        let mut found = cluster.http.get(&path).await.expect(200);
        assert!(found["status"]["certificate"].is_null());
        found["status"]["conditions"] =
            json!([{"type": "Approved", "status": "True", "reason": "ByHand", "message": ""}]);
        cluster.http.put(&format!("{path}/approval"), &found).await.expect(200);
    }
    cluster
        .until("it is signed", &format!("{REQUESTS}/good"), |found| {
            found["status"]["certificate"].is_string()
        })
        .await;
    cluster
        .until("it failed", &format!("{REQUESTS}/wrong"), |found| {
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| {
                condition["type"] == "Failed"
                    && condition["message"] == "subject organization is not system:nodes"
            })
        })
        .await;
    cluster.stop().await;
}

fn token(token: &BootstrapToken, expiration: &str) -> Value {
    json!({"metadata": {"name": format!("bootstrap-token-{}", token.id())}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": token.id(), "token-secret": token.secret(), "expiration": expiration,
            "usage-bootstrap-signing": "true", "usage-bootstrap-authentication": "true"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn bootstrap_tokens_sign_and_expire() {
    let mut cluster = Cluster::start(&["bootstrap-signer-controller", "token-cleaner-controller"]).await;
    let info = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "apiVersion: v1"}});
    cluster.create("/api/v1/namespaces/kube-public/configmaps", info).await;
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let lasting: BootstrapToken = "abcdef.0123456789abcdef".parse().expect("a token");
    let past: BootstrapToken = "fedcba.0123456789abcdef".parse().expect("a token");
    cluster.create(secrets, token(&lasting, "2100-01-01T00:00:00Z")).await;
    cluster.create(secrets, token(&past, "2020-01-01T00:00:00Z")).await;
    let info = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    let signed =
        cluster.until("it is signed", info, |found| found["data"]["jws-kubeconfig-abcdef"].is_string()).await;
    let signature = signed["data"]["jws-kubeconfig-abcdef"].as_str().expect("a signature");
    assert!(lasting.verify("apiVersion: v1", signature));
    cluster.gone(&format!("{secrets}/bootstrap-token-fedcba")).await;
    cluster.http.delete(&format!("{secrets}/bootstrap-token-abcdef"), &json!({})).await.expect(200);
    cluster
        .until("the signature goes", info, |found| found["data"] == json!({"kubeconfig": "apiVersion: v1"}))
        .await;
    cluster.stop().await;
}
