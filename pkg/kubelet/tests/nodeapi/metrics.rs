//! `metrics.k8s.io`, and what it is made of.

use crate::node::{Cluster, NODE};
use testing::eventually;

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_shown_while_it_is_asked_for() {
    let cluster = Cluster::start().await;
    cluster.run("busy", "while :; do :; done").await;
    cluster.run("idle", "cat").await;
    let http = cluster.server.http();
    let node = http.get(&format!("{METRICS}/nodes/{NODE}")).await.expect(200);
    assert_eq!((&node["kind"], &node["metadata"]["name"]), (&"NodeMetrics".into(), &NODE.into()));
    assert!(node["usage"]["memory"].as_str().unwrap().ends_with("Ki"), "{node}");
    assert!(node["window"].as_str().unwrap().ends_with('s'), "{node}");
    // A process that is never idle uses some CPU time, however busy the machine is.
    eventually("the busy pod is seen to be", || async {
        let pod = http.get(&format!("{METRICS}/namespaces/default/pods/busy")).await.expect(200);
        (pod["containers"][0]["usage"]["cpu"] != "0").then_some(())
    })
    .await;
    let list = http.get(&format!("{METRICS}/pods?labelSelector=app%3Didle")).await.expect(200);
    assert_eq!(list["kind"], "PodMetricsList");
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(items[0]["metadata"]["labels"]["app"], "idle");
    assert_eq!(items[0]["containers"][0]["name"], "c");
    assert_eq!(http.get(&format!("{METRICS}/namespaces/default/pods/nobody")).await.code, 404);
    assert_eq!(http.get(&format!("{METRICS}/pods?watch=true")).await.code, 405);
    assert_eq!(http.delete(&format!("{METRICS}/nodes/{NODE}"), &().into()).await.code, 405);
    let found = http.get(METRICS).await.expect(200);
    assert_eq!(found["resources"][0]["verbs"], serde_json::json!(["get", "list"]));
    let document = http.get(&format!("/openapi/v3{METRICS}")).await.expect(200);
    let paths = document["paths"].as_object().unwrap();
    let one = &paths[&format!("{METRICS}/namespaces/{{namespace}}/pods/{{name}}")];
    assert!(one["get"].is_object() && one["put"].is_null() && one["delete"].is_null(), "{one}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubelet_tells_usage_in_both_forms() {
    let cluster = Cluster::start().await;
    cluster.run("web", "cat").await;
    let http = cluster.server.http();
    let summary = http.get(&format!("/api/v1/nodes/{NODE}/proxy/stats/summary")).await.expect(200);
    assert_eq!(summary["node"]["nodeName"], NODE);
    assert!(summary["node"]["cpu"]["usageNanoCores"].is_u64(), "{summary}");
    assert!(summary["node"]["fs"]["capacityBytes"].is_u64(), "{summary}");
    let pod = &summary["pods"][0];
    assert_eq!(pod["podRef"]["name"], "web");
    assert!(pod["containers"][0]["memory"]["workingSetBytes"].as_u64().unwrap() > 0, "{pod}");
    let text = http.get(&format!("/api/v1/nodes/{NODE}/proxy/metrics/resource")).await.text();
    assert!(
        text.contains(
            "container_memory_working_set_bytes{container=\"c\",namespace=\"default\",pod=\"web\"} "
        ),
        "{text}"
    );
    assert!(
        text.contains("# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total "),
        "{text}"
    );
}
