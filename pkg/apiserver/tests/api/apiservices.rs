//! Other servers behind this one: a real one, over TLS, that believes nobody but us.

use crate::webhooks::secured;
use crate::{fairness, names};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testing::{Engine, Http, TestServer, eventually, in_time};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const WARDLE: &str = "/apis/wardle.example.com/v1alpha1";
const AUTHORITIES: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A server of its own group; it goes with this.
struct Other {
    port: u16,
    bundle: String,
    manner: Arc<Manner>,
    _tasks: JoinSet<()>,
}

/// How it answers.
#[derive(Default)]
struct Manner {
    /// How many questions for what it serves it fails, after each that it answers.
    failures: usize,
    questions: AtomicUsize,
    /// Told when a request has come that it will not answer.
    held: Notify,
}

impl Other {
    /// It takes requests from whom the cluster says it should.
    async fn start(http: &Http) -> Other {
        Other::start_with(http, Manner::default()).await
    }

    async fn start_with(http: &Http, manner: Manner) -> Other {
        let trust = eventually("the cluster says whom to believe", async || {
            let found = http.get(AUTHORITIES).await;
            (found.code == 200).then(|| found.json())
        })
        .await;
        let clients = trust["data"]["requestheader-client-ca-file"].as_str().unwrap();
        let (acceptor, bundle) = secured(&["wardle.default.svc"], Some(clients));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (manner, mut tasks) = (Arc::new(manner), JoinSet::new());
        let own = manner.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, manner) = (acceptor.clone(), manner.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request| answer(request, port, &manner));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Other { port, bundle, manner: own, _tasks: tasks }
    }
}

/// What it serves; anything else is told as it was heard. Whoever does not call it by its name is not answered.
async fn answer(
    request: Request<Incoming>,
    port: u16,
    manner: &Manner,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let all = |name: &str| -> Vec<String> {
        head.headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    let refusal = |code: u16| Response::builder().status(code).body(Full::default()).unwrap();
    if all("host") != [format!("localhost:{port}")] {
        return Ok(refusal(421));
    }
    if head.uri.query() == Some("hold") {
        manner.held.notify_one();
        std::future::pending::<()>().await;
    }
    let verbs = ["create", "get", "list"];
    let answer = match (head.method.clone(), head.uri.path()) {
        (Method::GET, WARDLE) => {
            let question = manner.questions.fetch_add(1, Ordering::Relaxed) + 1;
            if !question.is_multiple_of(manner.failures + 1) {
                return Ok(refusal(500));
            }
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1alpha1", "resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder", "verbs": verbs},
            {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder", "verbs": ["get"]}]})
        }
        (Method::GET, "/apis/wardle.example.com/v1beta1") => return Ok(refusal(404)),
        (Method::GET, "/openapi/v3") => json!({"paths": {
            "apis/wardle.example.com/v1alpha1": {"serverRelativeURL": format!("/openapi/v3{WARDLE}?hash=1")}}}),
        (method, path) => {
            let body = body.collect().await.unwrap().to_bytes();
            json!({"method": method.as_str(), "path": path, "query": head.uri.query(), "user": all("x-remote-user"),
                "groups": all("x-remote-group"), "authorization": all("authorization"),
                "body": String::from_utf8_lossy(&body)})
        }
    };
    let response = Response::new(Full::new(Bytes::from(answer.to_string())));
    Ok(response)
}

/// The service by which others are found here.
async fn make_service(http: &Http) {
    let service = json!({"metadata": {"name": "wardle"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    http.post("/api/v1/namespaces/default/services", &service).await.expect(201);
}

/// An APIService of that version, for whoever is at that port of the service.
fn api_service(group: &str, version: &str, service: &str, port: u16, bundle: &str) -> Value {
    json!({"metadata": {"name": format!("{version}.{group}")}, "spec": {
        "group": group, "version": version, "groupPriorityMinimum": 2000, "versionPriority": 200,
        "caBundle": bundle, "service": {"namespace": "default", "name": service, "port": port}}})
}

async fn register(http: &Http, other: &Other) {
    make_service(http).await;
    let api_service = api_service("wardle.example.com", "v1alpha1", "wardle", other.port, &other.bundle);
    http.post(SERVICES, &api_service).await.expect(201);
}

/// Whether one is available, where that is known.
async fn available(http: &Http, name: &str) -> Option<Value> {
    let service = http.get(&format!("{SERVICES}/{name}")).await.expect(200);
    let conditions = service["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Available").cloned()
}

async fn condition_of(http: &Http, name: &str, status: &str) -> Value {
    eventually(&format!("{name}'s Available is {status}"), async || {
        available(http, name).await.filter(|condition| condition["status"] == status)
    })
    .await
}

async fn condition(http: &Http, status: &str) -> Value {
    condition_of(http, "v1alpha1.wardle.example.com", status).await
}

/// The version's entry in the document that says everything.
async fn discovered(http: &Http) -> Value {
    let all = http.send("GET", "/apis", &[("accept", AGGREGATED)], "").await.expect(200);
    let groups = all["items"].as_array().unwrap();
    let group = groups.iter().find(|group| group["metadata"]["name"] == "wardle.example.com");
    group.map(|group| group["versions"][0].clone()).unwrap_or_default()
}

#[tokio::test]
async fn another_server_answers_for_its_versions() {
    let server = TestServer::start().await;
    let http = server.http();
    let other = Other::start(&http).await;
    http.get(&format!("{WARDLE}/namespaces/default/flunders")).await.expect(404);
    register(&http, &other).await;
    assert_eq!(condition(&http, "True").await["reason"], "Passed");

    let heard = http.get(&format!("{WARDLE}/namespaces/default/flunders?limit=5")).await.expect(200);
    assert_eq!(heard["path"], format!("{WARDLE}/namespaces/default/flunders"));
    assert_eq!((&heard["query"], &heard["authorization"]), (&json!("limit=5"), &json!([])));
    let flunder = json!({"kind": "Flunder", "metadata": {"name": "a"}});
    let heard = http.post(&format!("{WARDLE}/namespaces/default/flunders"), &flunder).await.expect(200);
    assert_eq!((&heard["method"], &heard["body"]), (&json!("POST"), &json!(flunder.to_string())));
    assert!(heard["groups"].as_array().unwrap().contains(&json!("system:masters")), "{heard}");
    let nobody = Http::new(server.user("nobody", &[]));
    nobody.get(&format!("{WARDLE}/namespaces/default/flunders")).await.expect(403);
    http.get(&format!("{WARDLE}/namespaces/default/flunders/a%2Fb")).await.expect(400);

    let group = http.get("/apis/wardle.example.com").await.expect(200);
    assert_eq!(group["preferredVersion"]["version"], "v1alpha1");
    assert_eq!(http.get(WARDLE).await.expect(200)["resources"][1]["name"], "flunders/status");
    let version = discovered(&http).await;
    assert_eq!(
        (&version["freshness"], &version["resources"][0]["resource"]),
        (&json!("Current"), &json!("flunders"))
    );
    assert_eq!(version["resources"][0]["subresources"][0]["subresource"], "status");
    let index = http.get("/openapi/v3").await.expect(200);
    let url = index["paths"]["apis/wardle.example.com/v1alpha1"]["serverRelativeURL"].as_str().unwrap();
    assert_eq!(http.get(url).await.expect(200)["path"], format!("/openapi/v3{WARDLE}"));
}

#[tokio::test]
async fn who_does_not_answer_is_unavailable_and_comes_back() {
    let server = TestServer::start().await;
    let http = server.http();
    let other = Other::start(&http).await;
    let wrong = Other { bundle: Other::start(&http).await.bundle, ..other };
    register(&http, &wrong).await;
    let fault = condition(&http, "False").await;
    assert_eq!(fault["reason"], "FailedDiscoveryCheck", "another authority's: {fault}");
    let refused = http.get(&format!("{WARDLE}/flunders")).await;
    assert_eq!((refused.code, refused.message().as_str()), (503, "service unavailable"));
    assert_eq!(discovered(&http).await["freshness"], "Stale");

    let insecure = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    http.patch(&format!("{SERVICES}/v1alpha1.wardle.example.com"), "merge", &insecure).await.expect(200);
    condition(&http, "True").await;
    http.get(&format!("{WARDLE}/flunders")).await.expect(200);
    http.delete("/api/v1/namespaces/default/services/wardle", &json!({})).await.expect(200);
    let label = json!({"metadata": {"labels": {"look": "again"}}});
    http.patch(&format!("{SERVICES}/v1alpha1.wardle.example.com"), "merge", &label).await.expect(200);
    assert_eq!(condition(&http, "False").await["reason"], "ServiceNotFound");
    http.delete(&format!("{SERVICES}/v1alpha1.wardle.example.com"), &json!({})).await.expect(200);
    eventually("its version is served no more", async || (http.get(WARDLE).await.code == 404).then_some(()))
        .await;
}

#[tokio::test]
async fn what_is_served_here_is_listed_as_local() {
    let server = TestServer::start().await;
    let http = server.http();
    let has = async |name: &str| names(&http.get(SERVICES).await.expect(200)).contains(&name);
    eventually("versions of built-in kinds are there", async || has("v1.apps").await.then_some(())).await;
    let apps = http.get(&format!("{SERVICES}/v1.apps")).await.expect(200);
    assert_eq!(apps["status"]["conditions"][0]["reason"], "Local");
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    http.post(definitions, &definition).await.expect(201);
    eventually("a custom one comes", async || has("v1.example.com").await.then_some(())).await;
    let path = format!("{SERVICES}/v1.example.com");
    let changed = json!({"spec": {"groupPriorityMinimum": 5}});
    http.patch(&path, "merge", &changed).await.expect(200);
    eventually("it is put back", async || {
        (http.get(&path).await.expect(200)["spec"]["groupPriorityMinimum"] == 1000).then_some(())
    })
    .await;
    http.delete(&format!("{definitions}/things.example.com"), &json!({})).await.expect(200);
    eventually("and goes", async || (!has("v1.example.com").await).then_some(())).await;
    http.delete(&format!("{SERVICES}/v1.apps"), &json!({})).await.expect(200);
    eventually("one that was deleted comes back", async || has("v1.apps").await.then_some(())).await;
}

#[tokio::test]
async fn one_that_does_not_answer_is_in_nobodys_way() {
    let server = TestServer::start().await;
    let http = server.http();
    let other = Other::start(&http).await;
    // It takes connections, and that is all.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    make_service(&http).await;
    let dead = api_service("dead.example.com", "v1", "wardle", port, &other.bundle);
    http.post(SERVICES, &dead).await.expect(201);
    let live = api_service("wardle.example.com", "v1alpha1", "wardle", other.port, &other.bundle);
    http.post(SERVICES, &live).await.expect(201);
    let live = condition(&http, "True").await;
    http.get("/apis/dead.example.com/v1/things").await.expect(503);
    http.delete(&format!("{SERVICES}/v1alpha1.wardle.example.com"), &json!({})).await.expect(200);
    eventually("it is served no more", async || (http.get(WARDLE).await.code == 404).then_some(())).await;
    let dead = condition_of(&http, "v1.dead.example.com", "False").await;
    assert_eq!(dead["reason"], "FailedDiscoveryCheck", "{dead}");
    assert!(live["lastTransitionTime"].as_str() < dead["lastTransitionTime"].as_str(), "{live} {dead}");
}

#[tokio::test]
async fn one_answer_of_five_is_enough() {
    let server = TestServer::start().await;
    let http = server.http();
    let manner = Manner { failures: 4, ..Manner::default() };
    let other = Other::start_with(&http, manner).await;
    register(&http, &other).await;
    let first = eventually("it is known whether it answers", async || {
        available(&http, "v1alpha1.wardle.example.com").await
    })
    .await;
    assert_eq!(first["reason"], "Passed", "{first}");
}

#[tokio::test]
async fn nobody_waits_for_ever() {
    let limit = |config: &mut apiserver::Config| {
        config.enable_priority_and_fairness = false;
        config.max_mutating_requests_in_flight = 1;
    };
    let server = TestServer::start_with(Engine::Embedded, limit).await;
    let http = server.http();
    let other = Other::start(&http).await;
    register(&http, &other).await;
    condition(&http, "True").await;
    let slow = in_time("what it serves", http.get(&format!("{WARDLE}?hold"))).await;
    assert_eq!((slow.code, slow.reason().as_str()), (504, "Timeout"));

    other.manner.held.notified().await;
    let jane = fairness::tenant(&server, "jane").await;
    let mut waiting = JoinSet::new();
    let client = jane.clone();
    waiting.spawn(async move { client.post(&format!("{WARDLE}/flunders?hold"), &json!({})).await.code });
    in_time("the request to come there", other.manner.held.notified()).await;
    let namespace = json!({"metadata": {"name": "a"}});
    jane.post("/api/v1/namespaces", &namespace).await.expect(429);
    waiting.shutdown().await;
    eventually("there is room again", async || {
        (jane.post("/api/v1/namespaces", &namespace).await.code == 201).then_some(())
    })
    .await;
}

#[tokio::test]
async fn why_one_is_unavailable_is_said_as_upstream_says_it() {
    let server = TestServer::start().await;
    let http = server.http();
    let other = Other::start(&http).await;
    make_service(&http).await;
    let beta = api_service("wardle.example.com", "v1beta1", "wardle", other.port, &other.bundle);
    http.post(SERVICES, &beta).await.expect(201);
    let fault = condition_of(&http, "v1beta1.wardle.example.com", "False").await;
    let url = format!("https://localhost:{}/apis/wardle.example.com/v1beta1", other.port);
    assert_eq!(
        fault["message"],
        format!("failing or missing response from {url}: bad status from {url}: 404")
    );

    let service =
        json!({"metadata": {"name": "lonely"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
    http.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    let lonely = api_service("lonely.example.com", "v1", "lonely", 443, &other.bundle);
    http.post(SERVICES, &lonely).await.expect(201);
    let fault = condition_of(&http, "v1.lonely.example.com", "False").await;
    assert_eq!(
        (fault["reason"].as_str(), fault["message"].as_str()),
        (Some("EndpointsNotFound"), Some("cannot find endpointslices for service/lonely in \"default\""))
    );
    let other = json!({"type": "Other", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let path = format!("{SERVICES}/v1.lonely.example.com");
    let all = json!({"status": {"conditions": [other, fault]}});
    http.patch(&format!("{path}/status"), "merge", &all).await.expect(200);
    let slice = json!({"metadata": {"name": "lonely", "labels": {"kubernetes.io/service-name": "lonely"}},
        "addressType": "IPv4", "endpoints": [], "ports": [{"name": "https", "port": 443}]});
    http.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await.expect(201);
    let found = eventually("its slice is found", async || {
        let found = http.get(&path).await.expect(200)["status"]["conditions"].clone();
        (found[1]["reason"] == "MissingEndpoints").then_some(found)
    })
    .await;
    assert_eq!(found[0], other, "conditions of others stay");
    assert_eq!(found[1]["lastTransitionTime"], fault["lastTransitionTime"]);
}

#[tokio::test]
async fn nobody_takes_the_apiservices_themselves_over() {
    let server = TestServer::start().await;
    let http = server.http();
    let own = json!({"metadata": {"name": "v1.apiregistration.k8s.io"}, "spec": {
        "group": "apiregistration.k8s.io", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 200,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "nobody"}}});
    http.post(SERVICES, &own).await.expect(201);
    let fault = condition_of(&http, "v1.apiregistration.k8s.io", "False").await;
    assert_eq!(fault["reason"], "ServiceNotFound");
    let group = http.get("/apis/apiregistration.k8s.io/v1").await.expect(200);
    assert_eq!(group["resources"][0]["name"], "apiservices");
    http.delete(&format!("{SERVICES}/v1.apiregistration.k8s.io"), &json!({})).await.expect(200);
}

#[tokio::test]
async fn nobody_says_themselves_whether_they_are_available() {
    let server = TestServer::start().await;
    let http = server.http();
    let status = json!({"conditions": [{"type": "Other", "status": "True", "lastTransitionTime": null}]});
    let local = json!({"metadata": {"name": "v1.nobody.example.com"}, "status": status, "spec": {
        "group": "nobody.example.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 200}});
    let made = http.post(SERVICES, &local).await.expect(201);
    let conditions = made["status"]["conditions"].as_array().unwrap();
    assert_eq!((conditions.len(), &conditions[0]["reason"]), (1, &json!("Local")));
    assert_eq!(conditions[0]["message"], "Local APIServices are always available");
    let mut remote = api_service("else.example.com", "v1", "nobody", 443, "");
    remote["status"] = status;
    let made = http.post(SERVICES, &remote).await.expect(201);
    assert_eq!(made["status"]["conditions"], Value::Null);
}

#[tokio::test]
async fn whom_to_believe_is_said_again_when_it_was_deleted() {
    let server = TestServer::start().await;
    let http = server.http();
    let uid = async || {
        let found = http.get(AUTHORITIES).await;
        (found.code == 200).then(|| found.json()["metadata"]["uid"].clone())
    };
    let mut last = eventually("it is said", uid).await;
    // More than once: while the server starts, it looks anyway.
    for _ in 0..3 {
        http.delete(AUTHORITIES, &json!({})).await.expect(200);
        last = eventually("it is said again", async || uid().await.filter(|uid| *uid != last)).await;
    }
}
