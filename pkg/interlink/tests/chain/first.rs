//! The first generation of the protocol, in which programs speak that know no other.

use crate::world::World;
use axum::Router;
use axum::body::Bytes;
use axum::routing::any;
use http::{Method, StatusCode};
use interlink::caller::CallError;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use testing::{Port, eventually};
use tokio::net::TcpListener;

/// Somebody who knows arrays only, as an API server and as a plugin.
#[derive(Default)]
struct Old {
    pods: Mutex<BTreeMap<String, Value>>,
    kubeconfigs: Mutex<Vec<String>>,
    creates: Mutex<Vec<Value>>,
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn array(body: &Bytes) -> Result<Vec<Value>, (StatusCode, String)> {
    serde_json::from_slice(body).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

impl Old {
    /// Serves on a port until the test ends.
    async fn serve(self: &Arc<Old>, port: &Port) {
        let (created, deleted, asked, kubeconfigs) = (self.clone(), self.clone(), self.clone(), self.clone());
        let router = Router::new()
            .route("/ping", any(async || "pong"))
            .route(
                "/setKubeCFG",
                any(async move |body: Bytes| {
                    kubeconfigs.kubeconfigs.lock().push(String::from_utf8_lossy(&body).into_owned());
                    "OK"
                }),
            )
            .route(
                "/create",
                any(async move |body: Bytes| {
                    for given in array(&body)? {
                        created.creates.lock().push(given.clone());
                        let pod = if given.get("pod").is_some() { given["pod"].clone() } else { given };
                        created.pods.lock().insert(name(&pod), pod);
                    }
                    Ok::<_, (StatusCode, String)>("created")
                }),
            )
            .route(
                "/delete",
                any(async move |body: Bytes| {
                    for pod in array(&body)? {
                        deleted.pods.lock().remove(&name(&pod));
                    }
                    Ok::<_, (StatusCode, String)>("deleted")
                }),
            )
            .route(
                "/status",
                any(async move |body: Bytes| {
                    let known = asked.pods.lock().clone();
                    let states = array(&body)?.into_iter().filter(|pod| known.contains_key(&name(pod))).map(|pod| {
                        let state = json!({"running": {}, "terminated": null});
                        json!({"name": name(&pod), "namespace": "default", "containers": [{"name": "c", "state": state}]})
                    });
                    Ok::<_, (StatusCode, String)>(json!(states.collect::<Vec<_>>()).to_string())
                }),
            );
        let listener = TcpListener::bind(("127.0.0.1", port.number())).await.expect("a port");
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let router = router.clone();
                tokio::spawn(async move {
                    let service = hyper_util::service::TowerToHyperService::new(router);
                    let io = hyper_util::rt::TokioIo::new(socket);
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                });
            }
        });
    }
}

async fn client_of(kubeconfig: &str) -> Client {
    let read = kube::config::Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let config =
        kube::Config::from_custom_kubeconfig(read, &Default::default()).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_hands_over_what_its_pods_need_and_no_more() {
    let world = World::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(world.server.admin(), "default");
    for name in ["used", "other"] {
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "v"}})).unwrap();
        maps.create(&PostParams::default(), &map).await.expect("a ConfigMap");
    }
    let old = Arc::new(Old::default());
    old.serve(&world.api_port).await;
    let node = world.node_as("admin", &["system:masters"], "ServiceAccount: reader\nNamespace: default\n");
    world.node_is(true).await;
    let spec = json!({"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "configMap": {"name": "used"}}]});
    world.create("p", spec).await;
    world.phase("p", "Running").await;
    let handed = old.kubeconfigs.lock()[0].clone();
    let theirs = client_of(&handed).await;
    let maps: Api<ConfigMap> = Api::namespaced(theirs.clone(), "default");
    // Authorizers learn of a new role from their caches.
    eventually("what is used can be read", || async { maps.get("used").await.ok() }).await;
    let code = |error: kube::Error| match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    };
    assert_eq!(code(maps.get("other").await.unwrap_err()), 403);
    assert_eq!(code(maps.list(&ListParams::default()).await.unwrap_err()), 403);
    assert_eq!(code(maps.delete("used", &Default::default()).await.unwrap_err()), 403);
    let pods: Api<Pod> = Api::namespaced(theirs, "default");
    assert_eq!(code(pods.list(&ListParams::default()).await.unwrap_err()), 403);
    let token = serde_json::from_str::<Value>(&handed).unwrap()["users"][0]["user"]["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let claims = pki::unverified_claims(&token).expect("claims");
    let life = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert!(life <= 3607, "{life}");
    world.delete("p").await;
    assert!(old.pods.lock().is_empty());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_api_server_speaks_to_a_plugin_of_the_first_generation() {
    let world = World::start().await;
    let old = Arc::new(Old::default());
    old.serve(&world.plugin_port).await;
    let (api, node) = (world.api(world.config()), world.node());
    world.node_is(true).await;
    world.create_one("p", "c").await;
    world.create_one("q", "c").await;
    world.phase("p", "Running").await;
    world.phase("q", "Running").await;
    assert_eq!(old.creates.lock().len(), 2, "no pod is made twice by finding out");
    assert_eq!(old.creates.lock()[0]["container"][0]["name"], "c");
    world.delete("p").await;
    assert_eq!(old.pods.lock().len(), 1);
    node.stop().await;
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_first_generation_is_served() {
    let world = World::start().await;
    let (plugin, api) = (world.plugin(world.config()), world.api(world.config()));
    let client = world.caller(world.api_port.number());
    let patience = Duration::from_secs(20);
    let call = async |path, body: String| client.call(path, Method::POST, body.into_bytes(), patience).await;
    eventually("it serves", || async { call("/ping", String::new()).await.ok() }).await;
    let spec = json!({"containers": [{"name": "stays", "image": "i", "envFrom": [{"configMapRef": {"name": "m"}}]}]});
    let pod = json!({"metadata": {"name": "p", "namespace": "default", "uid": "u-1"}, "spec": spec});
    // Nobody has handed over anything to read the ConfigMap with.
    let error = call("/create", json!([pod]).to_string()).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Answered { code: 503, words } if words.contains("/setKubeCFG")),
        "{error}"
    );
    let maps: Api<ConfigMap> = Api::namespaced(world.server.admin(), "default");
    let map = serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"K": "v"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.expect("a ConfigMap");
    let kubeconfig = world.server.kubeconfig(world.server.address(), "admin", &["system:masters"]);
    let handed = call("/setKubeCFG", std::fs::read_to_string(kubeconfig).expect("a kubeconfig")).await;
    assert_eq!(&handed.expect("OK")[..], b"OK");
    for _ in 0..2 {
        call("/create", json!([pod]).to_string()).await.expect("created once, and known the second time");
    }
    let state = eventually("it runs", || async {
        let answer = call("/status", json!([pod]).to_string()).await.ok()?;
        let states: Value = serde_json::from_slice(&answer).ok()?;
        states[0]["containers"][0]["state"].get("running").cloned()
    });
    state.await;
    call("/delete", json!([pod]).to_string()).await.expect("deleted");
    call("/delete", json!([pod]).to_string()).await.expect("gone is deleted");
    api.stop().await;
    plugin.stop().await;
}
