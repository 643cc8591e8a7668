//! Admission webhooks, asked by a real server over TLS: who is asked about what, and what comes of the answer.

use crate::{CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, names, pod};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use pki::{Authority, San};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use std::sync::Arc;
use testing::{Http, TestServer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// Says what to answer to a request that came to a path.
type Judge = fn(&str, &Value) -> Value;

/// A webhook server, which remembers what it was asked.
pub struct Webhook {
    pub port: u16,
    pub bundle: String,
    asked: Arc<Mutex<Vec<Value>>>,
    _tasks: JoinSet<()>,
}

impl Webhook {
    pub async fn start(judge: Judge) -> Webhook {
        let (acceptor, bundle) = secured(&["localhost", "hook.default.svc"], None);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, acceptor, judge, asked.clone()));
        Webhook { port, bundle, asked, _tasks: tasks }
    }

    /// A webhook of this server, asked about `operation resource` of any group and version.
    pub fn hook(&self, name: &str, path: &str, about: &str) -> Value {
        let (operation, resource) = about.split_once(' ').unwrap();
        json!({
            "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://localhost:{}{path}", self.port), "caBundle": self.bundle},
            "rules": [{"operations": [operation], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}],
        })
    }

    /// What it was asked since the last time, as `OPERATION resource/subresource name`.
    fn asked(&self) -> Vec<String> {
        let text = |request: &Value, name: &str| request[name].as_str().unwrap_or_default().to_owned();
        let line = |request: Value| {
            let part = text(&request, "subResource");
            let part = if part.is_empty() { part } else { format!("/{part}") };
            let resource = text(&request["resource"], "resource");
            format!("{} {resource}{part} {}", text(&request, "operation"), text(&request, "name"))
        };
        std::mem::take(&mut *self.asked.lock()).into_iter().map(line).collect()
    }

    /// The last request.
    fn last(&self) -> Value {
        self.asked.lock().last().cloned().expect("somebody asked")
    }
}

/// TLS for a server of these names, which takes only clients of an authority if one is given; and what its own
/// certificate is verified by.
pub fn secured(names: &[&str], clients: Option<&str>) -> (TlsAcceptor, String) {
    let now = jiff::Timestamp::now();
    let authority = Authority::create("others", now).unwrap();
    let names: Vec<San> = names.iter().map(|name| San::parse(name)).collect();
    let identity = authority.server("other", &names, now).unwrap();
    let certificates =
        |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect::<Vec<_>>();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider.clone());
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = match clients {
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(pem));
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => config.with_no_client_auth(),
    };
    let config = config.with_single_cert(certificates(&identity.certificate), key).unwrap();
    (TlsAcceptor::from(Arc::new(config)), STANDARD.encode(authority.pem()))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, judge: Judge, asked: Arc<Mutex<Vec<Value>>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, asked) = (acceptor.clone(), asked.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let asked = asked.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    if path == "/slow" {
                        std::future::pending::<()>().await;
                    }
                    let review: Value = serde_json::from_slice(&body).unwrap();
                    let mut response = judge(&path, &review["request"]);
                    response["uid"] = review["request"]["uid"].clone();
                    if let Some(patch) = response.get("patch").cloned() {
                        response["patch"] = STANDARD.encode(patch.to_string()).into();
                        response["patchType"] = "JSONPatch".into();
                    }
                    asked.lock().push(review["request"].clone());
                    let answer = json!({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response});
                    Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(answer.to_string()))))
                }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

pub fn configuration(name: &str, hooks: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "webhooks": hooks})
}

pub fn allow(_: &str, _: &Value) -> Value {
    json!({"allowed": true})
}

fn deny(_: &str, _: &Value) -> Value {
    json!({"allowed": false, "warnings": ["think again"], "status": {"message": "not here", "reason": "Nope", "code": 409}})
}

async fn register(http: &Http, path: &str, name: &str, hooks: &[Value]) {
    http.post(path, &configuration(name, hooks)).await.expect(201);
}

#[tokio::test]
async fn a_webhook_can_refuse_every_kind_of_write() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(deny).await;
    http.post(CONFIG_MAPS, &config_map("old", "1")).await.expect(201);
    register(&http, VALIDATING, "all", &[webhook.hook("a.b.c", "/", "* configmaps")]).await;

    let old = format!("{CONFIG_MAPS}/old");
    let apply = format!("{CONFIG_MAPS}/applied?fieldManager=x");
    let patch = json!({"data": {"key": "2"}});
    for (answer, what) in [
        (http.post(CONFIG_MAPS, &config_map("new", "1")).await, "create"),
        (http.put(&old, &config_map("old", "2")).await, "put"),
        (http.patch(&old, "merge", &patch).await, "patch"),
        (
            http.patch(&format!("{old}?fieldManager=x&force=true"), "apply", &config_map("old", "2")).await,
            "apply",
        ),
        (http.patch(&apply, "apply", &config_map("applied", "2")).await, "apply of a new one"),
        (http.delete(&old, &Value::Null).await, "delete"),
    ] {
        assert_eq!(
            (answer.code, answer.reason().as_str(), answer.message().as_str()),
            (409, "Nope", "admission webhook \"a.b.c\" denied the request: not here"),
            "{what}"
        );
    }
    let once = ["CREATE new", "UPDATE old", "UPDATE old", "UPDATE old", "CREATE applied", "DELETE old"];
    assert_eq!(webhook.asked(), once.map(|once| once.replace(' ', " configmaps ")), "each once only");
    assert_eq!(http.delete(CONFIG_MAPS, &Value::Null).await.code, 409, "a collection, too");
    assert_eq!(webhook.asked().len(), 1);
    assert_eq!(http.get(&old).await.expect(200)["data"]["key"], "1");
    http.get(&format!("{CONFIG_MAPS}/new")).await.expect(404);

    // The configuration itself is nobody's business but its writer's.
    let rules =
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    let path = format!("{VALIDATING}/all");
    http.patch(&path, "json", &json!([{"op": "replace", "path": "/webhooks/0/rules", "value": rules}]))
        .await
        .expect(200);
    http.delete(&path, &Value::Null).await.expect(200);
    http.post(CONFIG_MAPS, &config_map("new", "1")).await.expect(201);
    assert_eq!(webhook.asked(), [""; 0]);
}

#[tokio::test]
async fn a_review_says_all_there_is_to_know() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(|_, _| json!({"allowed": true, "warnings": ["mind the step"]})).await;
    register(&http, VALIDATING, "all", &[webhook.hook("a.b.c", "/", "* *")]).await;

    let answer = http.post(&format!("{CONFIG_MAPS}?dryRun=All&fieldManager=me"), &config_map("x", "1")).await;
    assert_eq!(answer.headers["warning"], "299 - \"mind the step\"");
    answer.expect(201);
    let asked = webhook.last();
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    for (member, expected) in [
        ("kind", &kind),
        ("requestKind", &kind),
        ("resource", &resource),
        ("requestResource", &resource),
        ("name", &json!("x")),
        ("namespace", &json!("default")),
        ("operation", &json!("CREATE")),
        ("dryRun", &json!(true)),
        ("oldObject", &Value::Null),
        (
            "options",
            &json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me", "dryRun": ["All"]}),
        ),
    ] {
        assert_eq!(asked[member], *expected, "{member}");
    }
    assert!(
        asked["userInfo"]["groups"].as_array().unwrap().contains(&json!("system:authenticated")),
        "{asked}"
    );
    assert_eq!(asked["object"]["data"]["key"], "1");
    assert!(asked["object"]["metadata"]["uid"].is_string());

    http.post(CONFIG_MAPS, &config_map("x", "1")).await.expect(201);
    http.patch(&format!("{CONFIG_MAPS}/x"), "merge", &json!({"data": {"key": "2"}})).await.expect(200);
    let asked = webhook.last();
    assert_eq!(
        (&asked["object"]["data"]["key"], &asked["oldObject"]["data"]["key"]),
        (&json!("2"), &json!("1"))
    );
    assert_eq!(asked["options"]["kind"], "PatchOptions");
    http.delete(
        &format!("{CONFIG_MAPS}/x"),
        &json!({"propagationPolicy": "Orphan", "gracePeriodSeconds": 0}),
    )
    .await
    .expect(200);
    let asked = webhook.last();
    assert_eq!((&asked["object"], &asked["oldObject"]["data"]["key"]), (&Value::Null, &json!("2")));
    assert_eq!(asked["options"]["propagationPolicy"], "Orphan");

    // A namespace is in itself, and in the scope of the cluster.
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await.expect(201);
    assert_eq!(webhook.last()["namespace"], "n");
}

#[tokio::test]
async fn a_webhook_can_change_what_is_written() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(|path, _| match path {
        "/container" => json!({"allowed": true, "patch": [
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "s"}},
            {"op": "add", "path": "/spec/nonsense", "value": 1},
            {"op": "replace", "path": "/metadata/uid", "value": "mine"},
        ]}),
        "/bad" => {
            json!({"allowed": true, "patch": [{"op": "replace", "path": "/spec/containers", "value": []}]})
        }
        _ => json!({"allowed": true, "patch": [{"op": "add", "path": "/data/added", "value": "yes"}]}),
    })
    .await;
    let hooks = [
        webhook.hook("data.b.c", "/data", "* configmaps"),
        webhook.hook("pods.b.c", "/container", "CREATE pods"),
        webhook.hook("sets.b.c", "/bad", "CREATE podtemplates"),
        webhook.hook("gone.b.c", "/data", "DELETE secrets"),
    ];
    register(&http, MUTATING, "all", &hooks).await;

    let made = http.post(CONFIG_MAPS, &config_map("x", "1")).await.expect(201);
    assert_eq!(made["data"], json!({"key": "1", "added": "yes"}));
    let fields = made["metadata"]["managedFields"][0]["fieldsV1"].to_string();
    assert!(!fields.contains("added"), "what a webhook adds is nobody's: {fields}");
    let path = format!("{CONFIG_MAPS}/x");
    let put = http.put(&path, &config_map("x", "2")).await.expect(200);
    assert_eq!(put["data"], json!({"key": "2", "added": "yes"}));
    let applied = http
        .patch(&format!("{path}?fieldManager=y&force=true"), "apply", &config_map("x", "3"))
        .await
        .expect(200);
    assert_eq!(applied["data"], json!({"key": "3", "added": "yes"}));
    assert_eq!(http.get(&path).await.expect(200)["data"]["added"], "yes");

    let made = http.post(PODS, &pod("p")).await.expect(201);
    let sidecar = &made["spec"]["containers"][1];
    assert_eq!(
        (&sidecar["name"], &sidecar["terminationMessagePath"]),
        (&json!("sidecar"), &json!("/dev/termination-log"))
    );
    assert_eq!(sidecar["volumeMounts"].as_array().map(Vec::len), Some(1), "plug-ins see it, too: {sidecar}");
    assert!(made["spec"].get("nonsense").is_none());
    assert_ne!(made["metadata"]["uid"], "mine");

    let template = json!({"metadata": {"name": "t"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}});
    let refused = http.post("/api/v1/namespaces/default/podtemplates", &template).await;
    assert_eq!(refused.code, 500, "it has no spec to change: {}", refused.message());
    http.post("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}})).await.expect(201);
    let refused = http.delete("/api/v1/namespaces/default/secrets/s", &Value::Null).await;
    assert_eq!(
        refused.message(),
        "Internal error occurred: admission webhook \"gone.b.c\" attempted to modify the object, which is not supported for this operation"
    );
}

#[tokio::test]
async fn what_others_change_is_shown_again_to_whoever_wants_it() {
    let server = TestServer::start().await;
    let http = server.http();
    // The first adds what it counts; the second adds one entry.
    let webhook = Webhook::start(|path, request| {
        let count = request["object"]["data"].as_object().map_or(0, serde_json::Map::len);
        match path {
            "/count" => json!({"allowed": true, "patch": [{"op": "add", "path": "/data/count", "value": count.to_string()}]}),
            _ => json!({"allowed": true, "patch": [{"op": "add", "path": "/data/more", "value": "yes"}]}),
        }
    })
    .await;
    let mut count = webhook.hook("count.b.c", "/count", "CREATE configmaps");
    let more = webhook.hook("more.b.c", "/more", "CREATE configmaps");
    register(&http, MUTATING, "b", &[more]).await;
    register(&http, MUTATING, "a", &[count.clone()]).await;
    let made = http.post(CONFIG_MAPS, &config_map("never", "1")).await.expect(201);
    assert_eq!(made["data"], json!({"key": "1", "count": "1", "more": "yes"}), "in the order of names");

    count["reinvocationPolicy"] = "IfNeeded".into();
    http.patch(&format!("{MUTATING}/a"), "merge", &json!({"webhooks": [count]})).await.expect(200);
    webhook.asked();
    let made = http.post(CONFIG_MAPS, &config_map("again", "1")).await.expect(201);
    assert_eq!(made["data"], json!({"key": "1", "count": "3", "more": "yes"}));
    assert_eq!(webhook.asked().len(), 3);
}

/// Gives a pod the host's network, or takes it away.
fn switch_network(_: &str, request: &Value) -> Value {
    let is_on = request["object"]["spec"]["hostNetwork"] == true;
    json!({"allowed": true, "patch": [{"op": "add", "path": "/spec/hostNetwork", "value": !is_on}]})
}

#[tokio::test]
async fn pods_are_held_to_their_level_as_webhooks_have_made_them() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(switch_network).await;
    register(&http, MUTATING, "all", &[webhook.hook("a.b.c", "/", "CREATE pods")]).await;
    let level = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    http.patch("/api/v1/namespaces/default", "merge", &level).await.expect(200);
    let mut healed = pod("healed");
    healed["spec"]["hostNetwork"] = true.into();
    http.post(PODS, &healed).await.expect(201);
    let refused = http.post(PODS, &pod("spoiled")).await;
    refused.expect(403);
    assert!(refused.message().contains("host namespaces (hostNetwork=true)"), "{}", refused.message());
}

#[tokio::test]
async fn who_cannot_be_asked_is_ignored_or_not() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(deny).await;
    let mut slow = webhook.hook("slow.b.c", "/slow", "CREATE configmaps");
    slow["timeoutSeconds"] = 1.into();
    let path = format!("{VALIDATING}/x");
    register(&http, VALIDATING, "x", &[slow.clone()]).await;
    let refused = http.post(CONFIG_MAPS, &config_map("x", "1")).await;
    assert_eq!((refused.code, refused.reason().as_str()), (500, "InternalError"));
    assert_eq!(
        refused.message(),
        format!(
            "Internal error occurred: failed calling webhook \"slow.b.c\": failed to call webhook: Post \"https://localhost:{}/slow?timeout=1s\": context deadline exceeded",
            webhook.port
        )
    );
    slow["failurePolicy"] = "Ignore".into();
    http.patch(&path, "merge", &json!({"webhooks": [slow]})).await.expect(200);
    http.post(CONFIG_MAPS, &config_map("x", "1")).await.expect(201);

    // Nobody listens there; another authority; a service that is not there.
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let stranger = Authority::create("stranger", jiff::Timestamp::now()).unwrap();
    let mut unreachable = webhook.hook("gone.b.c", "/", "CREATE configmaps");
    unreachable["clientConfig"]["url"] = format!("https://localhost:{nobody}/").into();
    let mut untrusted = webhook.hook("who.b.c", "/", "CREATE configmaps");
    untrusted["clientConfig"]["caBundle"] = STANDARD.encode(stranger.pem()).into();
    let mut missing = webhook.hook("svc.b.c", "/", "CREATE configmaps");
    missing["clientConfig"] = json!({"service": {"name": "hook", "namespace": "default", "path": "/p"}, "caBundle": webhook.bundle});
    for (hook, expected) in [
        (unreachable, "refused"),
        (untrusted, "invalid peer certificate"),
        (missing, "Post \"https://hook.default.svc:443/p?timeout=10s\": service \"hook\" not found"),
    ] {
        http.patch(&path, "merge", &json!({"webhooks": [hook]})).await.expect(200);
        let refused = http.post(CONFIG_MAPS, &config_map("y", "1")).await;
        assert_eq!(refused.code, 500);
        assert!(refused.message().contains(expected), "{}", refused.message());
    }
    assert_eq!(webhook.asked(), [""; 0]);
}

#[tokio::test]
async fn a_webhook_may_be_a_service() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(deny).await;
    let service =
        json!({"metadata": {"name": "hook"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    http.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    let mut hook = webhook.hook("svc.b.c", "/", "CREATE configmaps");
    hook["clientConfig"] = json!({"service": {"name": "hook", "namespace": "default", "port": webhook.port}, "caBundle": webhook.bundle});
    register(&http, VALIDATING, "x", &[hook]).await;
    let refused = http.post(CONFIG_MAPS, &config_map("x", "1")).await;
    assert_eq!(refused.message(), "admission webhook \"svc.b.c\" denied the request: not here");
}

#[tokio::test]
async fn selectors_and_conditions_say_what_a_webhook_is_asked_about() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(allow).await;
    for name in ["in", "out"] {
        let namespace = json!({"metadata": {"name": name, "labels": {"hooks": name}}});
        http.post("/api/v1/namespaces", &namespace).await.expect(201);
    }
    let mut spaces = webhook.hook("a.b.c", "/", "* configmaps");
    spaces["namespaceSelector"] = json!({"matchLabels": {"hooks": "in"}});
    let mut labels = webhook.hook("d.b.c", "/", "* secrets");
    labels["objectSelector"] = json!({"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]});
    let mut conditions = webhook.hook("g.b.c", "/", "* endpoints");
    conditions["matchConditions"] = json!([
        {"name": "not-me", "expression": "object.metadata.name != 'skip-me'"},
        {"name": "create", "expression": "request.operation == 'CREATE' && oldObject == null"},
    ]);
    register(&http, VALIDATING, "x", &[spaces, labels, conditions]).await;

    for name in ["in", "out"] {
        http.post(&format!("/api/v1/namespaces/{name}/configmaps"), &config_map(name, "1")).await.expect(201);
    }
    assert_eq!(webhook.asked(), ["CREATE configmaps in"]);
    let secrets = "/api/v1/namespaces/default/secrets";
    http.post(secrets, &json!({"metadata": {"name": "seen"}})).await.expect(201);
    http.post(secrets, &json!({"metadata": {"name": "skipped", "labels": {"skip": "1"}}})).await.expect(201);
    let unskip = json!({"metadata": {"labels": {"skip": null}}});
    http.patch(&format!("{secrets}/skipped"), "merge", &unskip).await.expect(200);
    assert_eq!(webhook.asked(), ["CREATE secrets seen", "UPDATE secrets skipped"]);
    let endpoints = "/api/v1/namespaces/default/endpoints";
    for name in ["me", "skip-me"] {
        http.post(endpoints, &json!({"metadata": {"name": name}})).await.expect(201);
    }
    http.patch(&format!("{endpoints}/me"), "merge", &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect(200);
    assert_eq!(webhook.asked(), ["CREATE endpoints me"]);

    // What cannot be evaluated closes, as failures do.
    let broken = json!([{"op": "replace", "path": "/webhooks/2/matchConditions", "value": [{"name": "broken", "expression": "object.none.such == 1"}]}]);
    http.patch(&format!("{VALIDATING}/x"), "json", &broken).await.expect(200);
    let refused = http.post(endpoints, &json!({"metadata": {"name": "other"}})).await;
    assert_eq!((refused.code, refused.reason().as_str()), (403, "Forbidden"), "{}", refused.message());
    let nonsense = json!([{"op": "replace", "path": "/webhooks/2/matchConditions", "value": [{"name": "bad", "expression": "... [] bad expression"}]}]);
    let refused = http.patch(&format!("{VALIDATING}/x"), "json", &nonsense).await;
    assert_eq!(refused.code, 422);
    assert!(refused.message().contains("compilation failed"), "{}", refused.message());
}

#[tokio::test]
async fn other_versions_of_what_is_meant_are_shown_as_what_is_meant() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(|_, request| {
        let is_v2 = request["object"]["spec"]["metrics"].is_array();
        json!({"allowed": true, "patch": [{"op": "add", "path": "/metadata/labels", "value": {"v2": is_v2.to_string()}}]})
    })
    .await;
    let mut hook = webhook.hook("a.b.c", "/", "CREATE horizontalpodautoscalers");
    hook["rules"][0]["apiVersions"] = json!(["v2"]);
    register(&http, MUTATING, "x", &[hook.clone()]).await;
    let scaler = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
            "scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}}})
    };
    let scalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let made = http.post(scalers, &scaler("a")).await.expect(201);
    assert_eq!(made["metadata"]["labels"]["v2"], "true");
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 50);
    let asked = webhook.last();
    assert_eq!((&asked["kind"]["version"], &asked["requestKind"]["version"]), (&json!("v2"), &json!("v1")));

    hook["matchPolicy"] = "Exact".into();
    http.patch(&format!("{MUTATING}/x"), "merge", &json!({"webhooks": [hook]})).await.expect(200);
    let made = http.post(scalers, &scaler("b")).await.expect(201);
    assert!(made["metadata"].get("labels").is_none());
}

#[tokio::test]
async fn parts_of_objects_and_connections_are_asked_about() {
    let server = TestServer::start().await;
    let http = server.http();
    let webhook = Webhook::start(|path, _| match path {
        "/scale" => {
            json!({"allowed": true, "patch": [{"op": "replace", "path": "/spec/replicas", "value": 7}]})
        }
        _ => json!({"allowed": false, "status": {"message": "no"}}),
    })
    .await;
    http.post(PODS, &pod("p")).await.expect(201);
    http.post(DEPLOYMENTS, &deployment("d", 1)).await.expect(201);
    register(&http, MUTATING, "x", &[webhook.hook("s.b.c", "/scale", "UPDATE deployments/scale")]).await;
    let hooks = ["binding", "eviction", "attach", "status"]
        .map(|part| webhook.hook(&format!("{part}.b.c"), "/", &format!("* pods/{part}")));
    register(&http, VALIDATING, "x", &hooks).await;
    register(&http, VALIDATING, "y", &[webhook.hook("t.b.c", "/", "CREATE serviceaccounts/token")]).await;

    let scaled = http
        .patch(&format!("{DEPLOYMENTS}/d/scale"), "merge", &json!({"spec": {"replicas": 3}}))
        .await
        .expect(200);
    assert_eq!(scaled["spec"]["replicas"], 7);
    let asked = webhook.last();
    assert_eq!(asked["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!(
        (&asked["object"]["spec"]["replicas"], &asked["oldObject"]["spec"]["replicas"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(http.get(&format!("{DEPLOYMENTS}/d")).await.expect(200)["spec"]["replicas"], 7);

    let path = |part: &str| format!("{PODS}/p/{part}");
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    for (answer, kind) in [
        (http.post(&path("binding"), &binding).await, "Binding"),
        (http.post(&path("eviction"), &json!({"metadata": {"name": "p"}})).await, "Eviction"),
        (http.get(&path("attach?stdin=true&container=c")).await, "PodAttachOptions"),
        (http.patch(&path("status"), "merge", &json!({"status": {"message": "m"}})).await, "Pod"),
        (
            http.post("/api/v1/namespaces/default/serviceaccounts/default/token", &json!({})).await,
            "TokenRequest",
        ),
    ] {
        assert_eq!(answer.code, 400, "{kind}");
        assert!(answer.message().ends_with("denied the request: no"), "{kind}: {}", answer.message());
        let asked = webhook.asked.lock();
        let is_it = |asked: &&Value| asked["kind"]["kind"] == kind && asked["object"]["kind"] == kind;
        assert_eq!(asked.iter().filter(is_it).count(), 1, "{kind}");
    }
    let attach = webhook.asked.lock().iter().find(|asked| asked["operation"] == "CONNECT").cloned().unwrap();
    assert_eq!(
        attach["object"],
        json!({"kind": "PodAttachOptions", "apiVersion": "v1", "stdin": true, "container": "c"})
    );
    assert_eq!(names(&http.get(PODS).await.expect(200)), ["p"]);
}
