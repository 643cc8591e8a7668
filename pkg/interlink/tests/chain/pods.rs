//! Pods through our own three parts.

use crate::world::{NODE, World};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_ends_fails_and_is_deleted() {
    let world = World::start().await;
    let (plugin, api, node) = (world.plugin(world.config()), world.api(world.config()), world.node());
    let found = world.node_is(true).await;
    let labels = found.metadata.labels.expect("labels");
    assert_eq!(labels["virtual-node.interlink/type"], "virtual-kubelet");
    assert_eq!(labels["kubernetes.io/hostname"], NODE);
    let taint = &found.spec.expect("a spec").taints.expect("taints")[0];
    assert_eq!(
        (taint.key.as_str(), taint.effect.as_str()),
        ("virtual-node.interlink/no-schedule", "NoSchedule")
    );
    // Its size is the plugin's, which a ping tells.
    assert_eq!(found.status.expect("a status").capacity.expect("a capacity")["cpu"].0, "64");
    world.create_one("runs", "stays").await;
    world.create_one("well", "ends").await;
    world.create_one("badly", "fails").await;
    let runs = world.phase("runs", "Running").await;
    assert_eq!(runs["status"]["containerStatuses"][0]["ready"], true);
    world.phase("well", "Succeeded").await;
    let badly = world.phase("badly", "Failed").await;
    assert_eq!(badly["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    world.create("beyond", json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]})).await;
    let refused = world.phase("beyond", "Failed").await;
    assert_eq!(refused["status"]["reason"], "Refused");
    assert!(
        refused["status"]["message"].as_str().expect("a message").contains("spec.hostNetwork"),
        "{refused}"
    );
    for pod in ["runs", "well", "badly", "beyond"] {
        world.delete(pod).await;
    }
    let left = |folder: &str| std::fs::read_dir(world.dir.path().join(folder)).expect("a folder").count();
    assert_eq!((left("plugin/pods"), left("plugin/volumes"), left("data/.interlink/pods")), (0, 0, 0));
    node.stop().await;
    api.stop().await;
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_may_be_started_again_in_the_middle() {
    let world = World::start().await;
    let (mut plugin, mut api, mut node) =
        (world.plugin(world.config()), world.api(world.config()), world.node());
    world.node_is(true).await;
    world.create_one("stays", "stays").await;
    let before = world.phase("stays", "Running").await;
    for round in 0..3 {
        match round {
            0 => {
                plugin.stop().await;
                plugin = world.plugin(world.config());
            }
            1 => {
                api.stop().await;
                api = world.api(world.config());
            }
            _ => {
                node.stop().await;
                node = world.node();
            }
        }
        let name = format!("later-{round}");
        world.create_one(&name, "ends").await;
        world.phase(&name, "Succeeded").await;
        let now = world.phase("stays", "Running").await;
        let started = |pod: &serde_json::Value| {
            pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"].clone()
        };
        assert_eq!(started(&now), started(&before), "it is the same container after round {round}");
    }
    world.delete("stays").await;
    node.stop().await;
    api.stop().await;
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_wait_for_a_plugin_that_is_away() {
    let world = World::start().await;
    let (api, node) = (world.api(world.config()), world.node());
    world.create_one("early", "ends").await;
    let plugin = world.plugin(world.config());
    world.node_is(true).await;
    world.phase("early", "Succeeded").await;
    plugin.stop().await;
    world.create_one("waits", "ends").await;
    world.until("waits", "it says why it waits", |pod| pod["status"]["reason"] == "ProviderFailed").await;
    let plugin = world.plugin(world.config());
    world.phase("waits", "Succeeded").await;
    node.stop().await;
    api.stop().await;
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_pods_run_and_end() {
    let world = World::start().await;
    let (plugin, api, node) = (world.plugin(world.config()), world.api(world.config()), world.node());
    world.node_is(true).await;
    for number in 0..200 {
        world.create_one(&format!("p{number}"), "ends").await;
    }
    for number in 0..200 {
        world.phase(&format!("p{number}"), "Succeeded").await;
    }
    node.stop().await;
    api.stop().await;
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_uses_comes_along_for_nobody_else() {
    let world = World::start().await;
    let admin = world.server.admin();
    let made = json!({"metadata": {"name": "m"}, "data": {"k": "from-a-map"}});
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "default");
    maps.create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await.expect("a ConfigMap");
    let made = json!({"metadata": {"name": "s"}, "stringData": {"k": "very-secret"}});
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "default");
    secrets.create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await.expect("a Secret");
    let (plugin, api, node) = (world.plugin(world.config()), world.api(world.config()), world.node());
    world.node_is(true).await;
    let spec = json!({
        "containers": [{"name": "stays", "image": "i",
            "volumeMounts": [{"name": "m", "mountPath": "/m"}, {"name": "s", "mountPath": "/s"}, {"name": "e", "mountPath": "/e"}]}],
        "volumes": [{"name": "m", "configMap": {"name": "m"}}, {"name": "s", "secret": {"secretName": "s"}},
            {"name": "e", "emptyDir": {}}],
    });
    world.create("uses", spec).await;
    let pod = world.phase("uses", "Running").await;
    let volumes =
        world.dir.path().join("plugin/volumes").join(pod["metadata"]["uid"].as_str().expect("a uid"));
    let text = |path: &str| std::fs::read_to_string(volumes.join("volumes").join(path)).expect(path);
    assert_eq!((text("m/k").as_str(), text("s/k").as_str()), ("from-a-map", "very-secret"));
    assert_eq!(volumes.metadata().expect("a folder").permissions().mode() & 0o777, 0o700);
    // What the API server keeps has no values.
    let kept = world.dir.path().join("data/.interlink/pods");
    for entry in std::fs::read_dir(kept).expect("a folder").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("a file");
        assert!(!text.contains("very-secret") && !text.contains("a-token-of-the-test"));
    }
    let missing = json!({"containers": [{"name": "ends", "image": "i", "envFrom": [{"configMapRef": {"name": "none"}}]}]});
    world.create("lacks", missing).await;
    // At first its authorizer may not know yet that the pod is the node's.
    world
        .until("lacks", "it says what it lacks", |pod| {
            let message = pod["status"]["message"].as_str().unwrap_or_default();
            pod["status"]["reason"] == "CreateContainerConfigError"
                && message.contains("configmap \"none\" not found")
        })
        .await;
    node.stop().await;
    api.stop().await;
    plugin.stop().await;
}
