//! Node lifecycle, eviction by taints, pod ranges.

use crate::Cluster;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

async fn post_status(cluster: &Cluster, name: &str, ready: &str) {
    let heartbeat = jiff::Timestamp::now().to_string();
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat}]}});
    cluster.http.patch(&format!("/api/v1/nodes/{name}/status"), "merge", &status).await.expect(200);
}

fn taints(node: &Value) -> BTreeSet<String> {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| {
        value.as_str().unwrap_or_default().trim_start_matches("node.kubernetes.io/").to_owned()
    };
    taints.iter().map(|taint| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_is_tainted_and_its_pods_evicted() {
    let controllers = ["node-lifecycle-controller", "taint-eviction-controller"];
    let mut cluster = Cluster::start_with(&controllers, |config| {
        config.node_monitor_grace_period = Duration::from_secs(2);
    })
    .await;
    // One that is never heard of again, and one that reports all the time.
    for name in ["lost", "fine"] {
        cluster.create("/api/v1/nodes", json!({"metadata": {"name": name}})).await;
        post_status(&cluster, name, "True").await;
    }
    let pod = |name: &str, tolerations: Value| {
        json!({"metadata": {"name": name}, "spec": {"nodeName": "lost", "tolerations": tolerations,
            "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}})
    };
    let pods = "/api/v1/namespaces/default/pods";
    let always = json!([{"operator": "Exists"}]);
    let zero =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0});
    let never = json!([zero("node.kubernetes.io/unreachable"), zero("node.kubernetes.io/not-ready")]);
    cluster.create(pods, pod("stays", always)).await;
    cluster.create(pods, pod("goes", never)).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    cluster.http.patch(&format!("{pods}/stays/status"), "merge", &ready).await.expect(200);
    let alive = async {
        loop {
            post_status(&cluster, "fine", "True").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let seen = async {
        let lost = cluster
            .until("it is unreachable", "/api/v1/nodes/lost", |node| {
                taints(node).contains("unreachable:NoSchedule")
                    && taints(node).contains("unreachable:NoExecute")
            })
            .await;
        let condition = &lost["status"]["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("Unknown"), &json!("NodeStatusUnknown"))
        );
        cluster.gone(&format!("{pods}/goes")).await;
        cluster
            .until("the other is not ready", &format!("{pods}/stays"), |pod| {
                let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions
                    .iter()
                    .any(|condition| condition["type"] == "Ready" && condition["status"] == "False")
            })
            .await;
    };
    tokio::select! {
        () = alive => unreachable!("it never ends"),
        () = seen => {}
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_and_cordons_are_taints() {
    let mut cluster = Cluster::start_with(&["node-lifecycle-controller"], |config| {
        config.node_monitor_grace_period = Duration::from_secs(3600);
    })
    .await;
    cluster.create("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    post_status(&cluster, "n1", "True").await;
    let cordon = |on: bool| json!({"spec": {"unschedulable": on}});
    cluster.http.patch("/api/v1/nodes/n1", "merge", &cordon(true)).await.expect(200);
    let has = |expected: &'static [&'static str]| {
        move |node: &Value| {
            taints(node) == expected.iter().map(|taint| (*taint).to_owned()).collect::<BTreeSet<_>>()
        }
    };
    cluster.until("it is cordoned", "/api/v1/nodes/n1", has(&["unschedulable:NoSchedule"])).await;
    cluster.http.patch("/api/v1/nodes/n1", "merge", &cordon(false)).await.expect(200);
    cluster.until("it is not", "/api/v1/nodes/n1", has(&[])).await;
    post_status(&cluster, "n1", "False").await;
    // The only node of all: that is no reason to evict.
    cluster.until("it is not ready", "/api/v1/nodes/n1", has(&["not-ready:NoSchedule"])).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_get_ranges_that_nobody_else_has() {
    let mut cluster = Cluster::start_with(&["node-ipam-controller"], |config| {
        config.allocate_node_cidrs = true;
        config.cluster_cidr = Some("10.244.0.0/21".into());
    })
    .await;
    for number in 0..4 {
        cluster.create("/api/v1/nodes", json!({"metadata": {"name": format!("n{number}")}})).await;
    }
    let ranges = |list: &Value| -> BTreeSet<String> {
        let nodes = list["items"].as_array().cloned().unwrap_or_default();
        nodes.iter().filter_map(|node| node["spec"]["podCIDR"].as_str().map(str::to_owned)).collect()
    };
    let before =
        ranges(&cluster.until("all have one", "/api/v1/nodes", |list| ranges(list).len() == 4).await);
    cluster.stop().await;
    for number in 4..8 {
        cluster.create("/api/v1/nodes", json!({"metadata": {"name": format!("n{number}")}})).await;
    }
    cluster.run();
    let after = ranges(&cluster.until("all have one", "/api/v1/nodes", |list| ranges(list).len() == 8).await);
    assert!(after.is_superset(&before));
    // None is left; one that goes leaves its range to the next.
    cluster.create("/api/v1/nodes", json!({"metadata": {"name": "n8"}})).await;
    cluster.http.delete("/api/v1/nodes/n0", &json!({})).await.expect(200);
    cluster.until("it has one", "/api/v1/nodes/n8", |node| node["spec"]["podCIDR"].is_string()).await;
    cluster.stop().await;
}
