//! The seed's three ways to choose a node, by label, and the profile by flag and by `schedulerName`.

use crate::work::{create, until};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use testing::{Cluster, ClusterConfig};

async fn placed(client: &Client, name: &str, labels: Value, memory: &str, scheduler: &str) -> String {
    let pod = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"schedulerName": scheduler, "containers": [
            {"name": "c", "image": "v1", "resources": {"requests": {"memory": memory}}}]},
    });
    create::<Pod>(client, pod).await;
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let bound = until(client, name, &format!("{name} is placed"), |pod: &Pod| node(pod).is_some()).await;
    node(&bound).expect("placed")
}

async fn in_turn(client: &Client, prefix: &str, scheduler: &str) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..6 {
        let node = placed(client, &format!("{prefix}-{number}"), json!({}), "1Mi", scheduler).await;
        *counts.entry(node).or_default() += 1;
    }
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [2, 2, 2], "{prefix}: {counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_go_where_their_labels_and_their_scheduler_say() {
    let none = || vec!["garbage-collector-controller".to_owned()];
    let cluster =
        Cluster::start_with(ClusterConfig { controllers: none(), ..ClusterConfig::default() }).await;
    let client = &cluster.admin;
    let default = "default-scheduler";
    // Equals in turn, by the default profile too.
    in_turn(client, "equal", default).await;
    for (name, node, memory) in [("a", "node-0", "20Gi"), ("b", "node-1", "10Gi"), ("c", "node-1", "1Mi")] {
        assert_eq!(placed(client, name, json!({"node": node}), memory, default).await, node);
    }
    for name in ["d", "e"] {
        let node = placed(client, name, json!({"resourcePolicy": "on"}), "1Gi", default).await;
        assert_eq!(node, "node-2", "where most memory is free");
    }
    // In turn although they are not equal.
    in_turn(client, "turn", "round-robin-scheduler").await;
    cluster.stop().await;

    let cluster = Cluster::start_with(ClusterConfig {
        controllers: none(),
        // As --profile=round-robin does it.
        place: |config| {
            let in_turn = config.profiles["round-robin-scheduler"];
            config.profiles.insert("default-scheduler".to_owned(), in_turn);
        },
        ..ClusterConfig::default()
    })
    .await;
    let client = &cluster.admin;
    assert_eq!(placed(client, "heavy", json!({"node": "node-1"}), "20Gi", default).await, "node-1");
    in_turn(client, "flag", default).await;
    cluster.stop().await;
}
