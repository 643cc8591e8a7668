//! Other servers behind this one: a real one, over TLS, that believes nobody but us.

use crate::names;
use crate::webhooks::secured;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use testing::{Http, TestServer, eventually};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const WARDLE: &str = "/apis/wardle.example.com/v1alpha1";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A server of its own group; it goes with this.
struct Other {
    port: u16,
    bundle: String,
    _tasks: JoinSet<()>,
}

impl Other {
    /// It takes requests from whom the cluster says it should.
    async fn start(http: &Http) -> Other {
        let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let trust = eventually("the cluster says whom to believe", async || {
            let found = http.get(path).await;
            (found.code == 200).then(|| found.json())
        })
        .await;
        let clients = trust["data"]["requestheader-client-ca-file"].as_str().unwrap();
        let (acceptor, bundle) = secured(&["wardle.default.svc"], Some(clients));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service_fn(answer))
                        .await;
                });
            }
        });
        Other { port, bundle, _tasks: tasks }
    }
}

/// What it serves; anything else is told as it was heard.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let verbs = ["create", "get", "list"];
    let answer = match (head.method.clone(), head.uri.path()) {
        (Method::GET, WARDLE) => {
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1alpha1", "resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder", "verbs": verbs},
            {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder", "verbs": ["get"]}]})
        }
        (Method::GET, "/openapi/v3") => json!({"paths": {
            "apis/wardle.example.com/v1alpha1": {"serverRelativeURL": format!("/openapi/v3{WARDLE}?hash=1")}}}),
        (method, path) => {
            let all = |name: &str| -> Vec<String> {
                head.headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
            };
            let body = body.collect().await.unwrap().to_bytes();
            json!({"method": method.as_str(), "path": path, "query": head.uri.query(), "user": all("x-remote-user"),
                "groups": all("x-remote-group"), "authorization": all("authorization"),
                "body": String::from_utf8_lossy(&body)})
        }
    };
    let response = Response::new(Full::new(Bytes::from(answer.to_string())));
    Ok(response)
}

async fn register(http: &Http, other: &Other) {
    let service = json!({"metadata": {"name": "wardle"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    http.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    let api_service = json!({"metadata": {"name": "v1alpha1.wardle.example.com"}, "spec": {
        "group": "wardle.example.com", "version": "v1alpha1", "groupPriorityMinimum": 2000, "versionPriority": 200,
        "caBundle": other.bundle, "service": {"namespace": "default", "name": "wardle", "port": other.port}}});
    http.post(SERVICES, &api_service).await.expect(201);
}

async fn condition(http: &Http, status: &str) -> Value {
    eventually(&format!("its Available is {status}"), async || {
        let service = http.get(&format!("{SERVICES}/v1alpha1.wardle.example.com")).await.expect(200);
        let condition = service["status"]["conditions"][0].clone();
        (condition["status"] == status).then_some(condition)
    })
    .await
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
    http.delete(&format!("{definitions}/things.example.com"), &json!({})).await.expect(200);
    eventually("and goes", async || (!has("v1.example.com").await).then_some(())).await;
    http.delete(&format!("{SERVICES}/v1.apps"), &json!({})).await.expect(200);
    eventually("one that was deleted comes back", async || has("v1.apps").await.then_some(())).await;
}
