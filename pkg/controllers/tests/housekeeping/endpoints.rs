//! EndpointSlices and Endpoints follow pods and services.

use crate::Cluster;
use serde_json::{Value, json};

const CONTROLLERS: [&str; 3] =
    ["endpoints-controller", "endpointslice-controller", "endpointslice-mirroring-controller"];
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const SERVICES: &str = "/api/v1/namespaces/default/services";

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 8080}]}]},
    })
}

/// Reports a pod's status as its kubelet would.
async fn report(cluster: &Cluster, name: &str, ip: &str, ready: &str) {
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": ready}]}});
    let path = format!("/api/v1/namespaces/default/pods/{name}/status");
    cluster.http.patch(&path, "merge", &status).await.expect(200);
}

/// The endpoints of the slices of a service: address and whether ready.
fn endpoints(slices: &Value, service: &str) -> Vec<(String, bool)> {
    let of_service = |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service;
    let slices = slices["items"].as_array().into_iter().flatten().filter(of_service);
    let all = slices.flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
    let mut all: Vec<(String, bool)> = all
        .map(|endpoint| {
            let address = endpoint["addresses"][0].as_str().unwrap_or_default().to_owned();
            (address, endpoint["conditions"]["ready"] == true)
        })
        .collect();
    all.sort();
    all
}

fn are(expected: &[(&str, bool)]) -> impl Fn(&Value) -> bool {
    let expected: Vec<(String, bool)> =
        expected.iter().map(|(ip, ready)| ((*ip).to_owned(), *ready)).collect();
    move |slices| endpoints(slices, "web") == expected
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_of_others_are_left_alone_until_their_service_goes() {
    let cluster = Cluster::start(&CONTROLLERS).await;
    let path = "/api/v1/namespaces/default/endpoints";
    let made_by_hand = json!({"metadata": {"name": "outside"},
        "subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]}]});
    cluster.create(path, made_by_hand).await;
    // What comes after it is dealt with, so it would be gone by then.
    let service =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    cluster.create(SERVICES, service).await;
    cluster
        .until("Endpoints of the service", &format!("{path}/web"), |found| found["kind"] == "Endpoints")
        .await;
    cluster.http.get(&format!("{path}/outside")).await.expect(200);
    cluster
        .create(SERVICES, json!({"metadata": {"name": "outside"}, "spec": {"ports": [{"port": 80}]}}))
        .await;
    cluster.http.delete(&format!("{SERVICES}/outside"), &json!({})).await.expect(200);
    cluster.until("gone with its service", &format!("{path}/outside"), Value::is_null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_follow_pods() {
    let mut cluster = Cluster::start(&CONTROLLERS).await;
    cluster.create("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}});
    cluster.create(SERVICES, service).await;
    for (name, ip, ready) in [("a", "10.0.0.1", "True"), ("b", "10.0.0.2", "False")] {
        cluster.create("/api/v1/namespaces/default/pods", pod(name)).await;
        report(&cluster, name, ip, ready).await;
    }
    cluster.until("both pods", SLICES, are(&[("10.0.0.1", true), ("10.0.0.2", false)])).await;
    let legacy = "/api/v1/namespaces/default/endpoints/web";
    cluster
        .until("both addresses", legacy, |found| {
            found["subsets"][0]["addresses"][0]["ip"] == "10.0.0.1"
                && found["subsets"][0]["notReadyAddresses"][0]["ip"] == "10.0.0.2"
                && found["subsets"][0]["ports"][0]["port"] == 8080
        })
        .await;
    report(&cluster, "b", "10.0.0.2", "True").await;
    cluster.until("b is ready", SLICES, are(&[("10.0.0.1", true), ("10.0.0.2", true)])).await;
    // Deleted gracefully: it serves, but is not ready.
    cluster.http.delete("/api/v1/namespaces/default/pods/a", &json!({})).await.expect(200);
    let terminating = |slices: &Value| {
        let endpoints = slices["items"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
        endpoints.into_iter().any(|endpoint| {
            endpoint["conditions"] == json!({"ready": false, "serving": true, "terminating": true})
        })
    };
    cluster.until("a terminates", SLICES, terminating).await;
    cluster
        .http
        .delete("/api/v1/namespaces/default/pods/a", &json!({"gracePeriodSeconds": 0}))
        .await
        .expect(200);
    cluster.until("a is gone", SLICES, are(&[("10.0.0.2", true)])).await;
    // A restart changes nothing.
    cluster.stop().await;
    let before = cluster.http.get(SLICES).await.expect(200);
    cluster.run();
    report(&cluster, "b", "10.0.0.3", "True").await;
    let after = cluster.until("b moved", SLICES, are(&[("10.0.0.3", true)])).await;
    let names = |list: &Value| list["items"][0]["metadata"]["name"].clone();
    assert_eq!(names(&before), names(&after), "the slice stays");
    // Without its service there are no Endpoints.
    cluster.http.delete(&format!("{SERVICES}/web"), &json!({})).await.expect(200);
    cluster.gone(legacy).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_follow_the_traffic_distribution() {
    let mut cluster = Cluster::start(&CONTROLLERS).await;
    let labels = json!({"topology.kubernetes.io/zone": "east"});
    cluster.create("/api/v1/nodes", json!({"metadata": {"name": "n1", "labels": labels}})).await;
    let service =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    cluster.create(SERVICES, service).await;
    cluster.create("/api/v1/namespaces/default/pods", pod("a")).await;
    report(&cluster, "a", "10.0.0.1", "True").await;
    cluster.until("the pod", SLICES, are(&[("10.0.0.1", true)])).await;
    let zone = json!([{"name": "east"}]);
    for (distribution, hints) in [
        (json!("PreferClose"), json!({"forZones": zone})),
        (json!("PreferSameNode"), json!({"forNodes": [{"name": "n1"}], "forZones": zone})),
        (json!(null), json!(null)),
    ] {
        let change = json!({"spec": {"trafficDistribution": distribution}});
        cluster.http.patch(&format!("{SERVICES}/web"), "merge", &change).await.expect(200);
        let hinted = |found: &Value| found["items"][0]["endpoints"][0]["hints"] == hints;
        cluster.until("hints", SLICES, hinted).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_by_hand_are_mirrored() {
    let mut cluster = Cluster::start(&CONTROLLERS).await;
    cluster.create(SERVICES, json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})).await;
    let by_hand = json!({"metadata": {"name": "web"}, "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]});
    cluster.create("/api/v1/namespaces/default/endpoints", by_hand).await;
    cluster.until("it is mirrored", SLICES, are(&[("192.0.2.1", true)])).await;
    cluster.http.delete("/api/v1/namespaces/default/endpoints/web", &json!({})).await.expect(200);
    cluster.until("the mirror is gone", SLICES, |found| endpoints(found, "web").is_empty()).await;
    cluster.stop().await;
}
