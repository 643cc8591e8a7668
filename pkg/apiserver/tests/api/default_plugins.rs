//! The plug-ins that upstream has on by default, as clients notice them.

use crate::{PODS, deployment, pod};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use testing::{Answer, Http, TestServer, eventually};

const NAMESPACES: &str = "/api/v1/namespaces";
const PLAIN: &str = "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";

fn warnings(answer: &Answer) -> Vec<String> {
    let text = |value: &str| {
        let quoted = value.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"')).unwrap();
        quoted.replace("\\\"", "\"")
    };
    answer.headers.get_all("warning").iter().map(|value| text(value.to_str().unwrap())).collect()
}

/// A namespace with labels of PodSecurity, once there is the account that its pods run as.
async fn namespace(http: &Http, name: &str, labels: &[(&str, &str)]) -> String {
    let labels: Value = labels
        .iter()
        .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), json!(value)))
        .collect();
    http.post(NAMESPACES, &json!({"metadata": {"name": name, "labels": labels}})).await.expect(201);
    let account = format!("{NAMESPACES}/{name}/serviceaccounts/default");
    eventually("an account", async || (http.get(&account).await.code == 200).then_some(())).await;
    format!("{NAMESPACES}/{name}/pods")
}

#[tokio::test]
async fn pods_keep_to_the_level_of_their_namespace() {
    let server = TestServer::start().await;
    let http = server.http();
    let pods = namespace(&http, "guarded", &[("enforce", "baseline"), ("warn", "restricted")]).await;

    let made = http.post(&pods, &pod("plain")).await;
    made.expect(201);
    let would = format!("would violate PodSecurity \"restricted:latest\": {PLAIN}");
    assert_eq!(warnings(&made), [would.as_str()]);

    let mut bad = pod("bad");
    bad["spec"]["hostNetwork"] = true.into();
    bad["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    let refused = http.post(&pods, &bad).await;
    assert_eq!((refused.code, refused.reason().as_str(), warnings(&refused).len()), (403, "Forbidden", 0));
    assert_eq!(
        refused.message(),
        "pods \"bad\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true), privileged (container \"c\" must not set securityContext.privileged=true)"
    );
    http.post(&format!("{pods}?dryRun=All"), &bad).await.expect(403);
    http.post(PODS, &bad).await.expect(201);

    // Of changes only those that matter are looked at.
    let path = format!("{pods}/plain");
    let labelled = http.patch(&path, "merge", &json!({"metadata": {"labels": {"a": "b"}}})).await;
    labelled.expect(200);
    assert_eq!(warnings(&labelled).len(), 0);
    let image = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    let changed = http.patch(&path, "strategic-merge", &image).await;
    changed.expect(200);
    assert_eq!(warnings(&changed), [would.as_str()]);
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "securityContext": {"privileged": true}}]}});
    let refused = http.patch(&format!("{path}/ephemeralcontainers"), "strategic-merge", &debug).await;
    assert_eq!(refused.code, 403, "{}", refused.text());
    assert!(refused.message().contains("privileged (container \"e\" must not"), "{}", refused.message());
}

#[tokio::test]
async fn writers_of_what_makes_pods_are_warned() {
    let server = TestServer::start().await;
    let http = server.http();
    namespace(&http, "guarded", &[("enforce", "baseline"), ("enforce-version", "v1.30")]).await;
    let mut web = deployment("web", 1);
    web["spec"]["template"]["spec"]["hostPID"] = true.into();
    let deployments = "/apis/apps/v1/namespaces/guarded/deployments";
    let would = "would violate PodSecurity \"baseline:v1.30\": host namespaces (hostPID=true)";
    let made = http.post(deployments, &web).await;
    made.expect(201);
    assert_eq!(warnings(&made), [would]);
    let scaled =
        http.patch(&format!("{deployments}/web/scale"), "merge", &json!({"spec": {"replicas": 2}})).await;
    scaled.expect(200);
    assert_eq!(warnings(&scaled).len(), 0);
    let mut template = web["spec"]["template"].clone();
    template["spec"]["restartPolicy"] = "Never".into();
    let cron = json!({"metadata": {"name": "c"}, "spec": {"schedule": "0 * * * *",
        "jobTemplate": {"spec": {"template": template}}}});
    let made = http.post("/apis/batch/v1/namespaces/guarded/cronjobs", &cron).await;
    made.expect(201);
    assert_eq!(warnings(&made), [would]);
}

#[tokio::test]
async fn levels_of_namespaces_must_be_right_and_raising_them_warns() {
    let server = TestServer::start().await;
    let http = server.http();
    let labels = json!({"pod-security.kubernetes.io/enforce": "strict", "pod-security.kubernetes.io/audit-version": "v2"});
    let wrong = json!({"metadata": {"name": "wrong", "labels": labels}});
    let refused = http.post(NAMESPACES, &wrong).await;
    assert_eq!((refused.code, refused.reason().as_str()), (422, "Invalid"));
    assert_eq!(
        refused.message(),
        "Namespace \"wrong\" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/audit-version]: Invalid value: \"v2\": must be \"latest\" or \"v1.x\"]"
    );
    assert_eq!(
        refused.json()["details"]["causes"][0]["field"],
        "metadata.labels[pod-security.kubernetes.io/enforce]"
    );

    let pods = namespace(&http, "guarded", &[]).await;
    for name in ["b", "a", "c"] {
        let mut host = pod(name);
        host["spec"]["hostNetwork"] = (name != "c").into();
        let made = http.post(&pods, &host).await;
        made.expect(201);
        assert_eq!(warnings(&made).len(), 0);
    }
    let path = format!("{NAMESPACES}/guarded");
    let set = async |query: &str, level: &str| {
        let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
        http.patch(&format!("{path}{query}"), "merge", &labels).await
    };
    set("", "Baseline").await.expect(422);
    for query in ["?dryRun=All", ""] {
        let raised = set(query, "baseline").await;
        raised.expect(200);
        assert_eq!(
            warnings(&raised),
            [
                "existing pods in namespace \"guarded\" violate the new PodSecurity enforce level \"baseline:latest\"",
                "a (and 1 other pod): host namespaces"
            ]
        );
    }
    assert_eq!(warnings(&set("", "privileged").await).len(), 0);
    let mut host = pod("again");
    host["spec"]["hostNetwork"] = true.into();
    http.post(&pods, &host).await.expect(201);
    assert_eq!(warnings(&set("", "restricted").await).len(), 3);
    host["metadata"]["name"] = "never".into();
    http.post(&pods, &host).await.expect(403);
}

#[tokio::test]
async fn the_newest_default_class_is_taken_where_none_is_named() {
    let server = TestServer::start().await;
    let http = server.http();
    let (classes, ingresses) = (
        "/apis/networking.k8s.io/v1/ingressclasses",
        "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
    );
    let ingress = |name: &str| json!({"metadata": {"name": name}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}});
    let made = http.post(ingresses, &ingress("before")).await.expect(201);
    assert!(made["spec"].get("ingressClassName").is_none());
    for (name, is_default) in [("plain", "false"), ("nginx", "true")] {
        let annotations = json!({"ingressclass.kubernetes.io/is-default-class": is_default});
        let class = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"controller": "example.com/c"}});
        http.post(classes, &class).await.expect(201);
    }
    let made = http.post(ingresses, &ingress("after")).await.expect(201);
    assert_eq!(made["spec"]["ingressClassName"], "nginx");
    let mut old = ingress("old");
    old["metadata"]["annotations"] = json!({"kubernetes.io/ingress.class": "other"});
    assert!(http.post(ingresses, &old).await.expect(201)["spec"].get("ingressClassName").is_none());

    let (classes, claims) =
        ("/apis/storage.k8s.io/v1/storageclasses", "/api/v1/namespaces/default/persistentvolumeclaims");
    let claim = |name: &str, class: Value| {
        let mut spec =
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        if !class.is_null() {
            spec["storageClassName"] = class;
        }
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let made = http.post(claims, &claim("before", Value::Null)).await.expect(201);
    assert!(made["spec"].get("storageClassName").is_none());
    // The annotation of old counts as well; made in the same second, the first by name is taken.
    for (name, key) in [("b", "storageclass.kubernetes.io"), ("a", "storageclass.beta.kubernetes.io")] {
        let annotations = json!({format!("{key}/is-default-class"): "true"});
        let class =
            json!({"metadata": {"name": name, "annotations": annotations}, "provisioner": "example.com/p"});
        http.post(classes, &class).await.expect(201);
    }
    let made = http.post(claims, &claim("after", Value::Null)).await.expect(201);
    assert!(["a", "b"].contains(&made["spec"]["storageClassName"].as_str().unwrap()), "{made}");
    let made = http.post(claims, &claim("none", json!(""))).await.expect(201);
    assert_eq!(made["spec"]["storageClassName"], "");
}

#[tokio::test]
async fn claims_grow_where_their_class_lets_them() {
    let server = TestServer::start().await;
    let http = server.http();
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    for (name, lets) in [("fixed", false), ("elastic", true)] {
        let class =
            json!({"metadata": {"name": name}, "provisioner": "example.com/p", "allowVolumeExpansion": lets});
        http.post("/apis/storage.k8s.io/v1/storageclasses", &class).await.expect(201);
        let claim = json!({"metadata": {"name": name}, "spec": {"storageClassName": name,
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        http.post(claims, &claim).await.expect(201);
        let path = format!("{claims}/{name}");
        let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
        http.patch(&format!("{path}/status"), "merge", &bound).await.expect(200);
        let ask = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        let answer = http.patch(&path, "merge", &ask).await;
        if lets {
            assert_eq!(answer.expect(200)["spec"]["resources"]["requests"]["storage"], "2Gi");
        } else {
            answer.expect(403);
            assert_eq!(
                answer.message(),
                "persistentvolumeclaims \"fixed\" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
            );
        }
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        http.patch(&path, "merge", &label).await.expect(200);
    }
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn signing_request(name: &str, signer: &str, group: &str) -> Value {
    let key = pki::PrivateKey::generate().unwrap();
    let pem = pki::request(&key, "bob", &[group], &[]).unwrap();
    json!({"metadata": {"name": name}, "spec": {"request": BASE64_STANDARD.encode(pem), "signerName": signer,
        "usages": ["client auth"]}})
}

#[tokio::test]
async fn certificates_are_approved_and_signed_by_those_who_may_for_their_signer() {
    let server = TestServer::start().await;
    let http = server.http();
    let client = "kubernetes.io/kube-apiserver-client";
    let refused = http.post(REQUESTS, &signing_request("root", client, "system:masters")).await;
    refused.expect(403);
    assert_eq!(
        refused.message(),
        "certificatesigningrequests.certificates.k8s.io \"root\" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    );
    http.post(REQUESTS, &signing_request("bob", client, "people")).await.expect(201);
    http.post(REQUESTS, &signing_request("web", "example.com/web", "system:masters")).await.expect(201);

    let grant = async |user: &str, rules: Value| {
        let roles = "/apis/rbac.authorization.k8s.io/v1";
        http.post(&format!("{roles}/clusterroles"), &json!({"metadata": {"name": user}, "rules": rules}))
            .await
            .expect(201);
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user});
        let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
        let binding = json!({"metadata": {"name": user}, "roleRef": role, "subjects": [subject]});
        http.post(&format!("{roles}/clusterrolebindings"), &binding).await.expect(201);
    };
    let group = json!(["certificates.k8s.io"]);
    let parts = json!(["certificatesigningrequests/approval", "certificatesigningrequests/status"]);
    let writes = json!({"apiGroups": group, "resources": parts, "verbs": ["patch"]});
    let signers = |verbs: Value, name: &str| json!({"apiGroups": group, "resources": ["signers"], "verbs": verbs, "resourceNames": [name]});
    grant("jane", json!([writes, signers(json!(["approve", "sign"]), "example.com/*")])).await;
    let jane = Http::new(server.user("jane", &[]));
    let approve = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]}});
    eventually("jane may approve for her domain", async || {
        let answer = jane.patch(&format!("{REQUESTS}/web/approval"), "strategic-merge", &approve).await;
        (answer.code == 200).then_some(())
    })
    .await;
    let refused = jane.patch(&format!("{REQUESTS}/bob/approval"), "strategic-merge", &approve).await;
    refused.expect(403);
    assert_eq!(
        refused.message(),
        "certificatesigningrequests.certificates.k8s.io \"bob\" is forbidden: user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client\""
    );
    http.patch(&format!("{REQUESTS}/bob/approval"), "strategic-merge", &approve).await.expect(200);
    let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    let sign = json!({"status": {"certificate": BASE64_STANDARD.encode(pem)}});
    let refused = jane.patch(&format!("{REQUESTS}/bob/status"), "merge", &sign).await;
    refused.expect(403);
    assert_eq!(
        refused.message(),
        "certificatesigningrequests.certificates.k8s.io \"bob\" is forbidden: user not permitted to sign requests with signerName \"kubernetes.io/kube-apiserver-client\""
    );
    let label = json!({"metadata": {"annotations": {"a": "b"}}});
    jane.patch(&format!("{REQUESTS}/bob/status"), "merge", &label).await.expect(200);
    jane.patch(&format!("{REQUESTS}/web/status"), "merge", &sign).await.expect(200);
}

#[tokio::test]
async fn pods_take_on_where_their_node_is() {
    let server = TestServer::start().await;
    let http = server.http();
    let labels =
        json!({"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", "other": "x"});
    http.post("/api/v1/nodes", &json!({"metadata": {"name": "n1", "labels": labels}})).await.expect(201);
    http.post("/api/v1/nodes", &json!({"metadata": {"name": "n2"}})).await.expect(201);
    let expected = json!({"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"});
    http.post(PODS, &pod("bound")).await.expect(201);
    let binding = json!({"target": {"kind": "Node", "name": "n1"}});
    http.post(&format!("{PODS}/bound/binding"), &binding).await.expect(201);
    let bound = http.get(&format!("{PODS}/bound")).await.expect(200);
    assert_eq!(bound["metadata"]["labels"], expected);
    for (name, node, expected) in [("placed", "n1", &expected), ("elsewhere", "n2", &Value::Null)] {
        let mut placed = pod(name);
        placed["spec"]["nodeName"] = node.into();
        let made = http.post(PODS, &placed).await.expect(201);
        assert_eq!(made["metadata"]["labels"], *expected);
    }
}
