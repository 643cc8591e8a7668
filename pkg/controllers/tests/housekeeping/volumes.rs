//! Claims, volumes and quotas.

use crate::Cluster;
use serde_json::{Value, json};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn phase(expected: &'static str) -> impl Fn(&Value) -> bool {
    move |found| found["status"]["phase"] == expected
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_get_volumes_and_keep_them_while_used() {
    let controllers = [
        "persistentvolume-binder-controller",
        "persistentvolumeclaim-protection-controller",
        "persistentvolume-protection-controller",
        "ephemeral-volume-controller",
    ];
    let mut cluster = Cluster::start(&controllers).await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "resources": {"requests": {"storage": "1Gi"}}});
    let template = json!({"spec": spec});
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}]},
    });
    cluster.create(CLAIMS, json!({"metadata": {"name": "data"}, "spec": spec})).await;
    cluster.create(PODS, pod).await;
    cluster.until("the pod's own claim", &format!("{CLAIMS}/p-tmp"), Value::is_object).await;
    let volume = |name: &str, size: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
            "capacity": {"storage": size}, "hostPath": {"path": "/tmp/none"}, "persistentVolumeReclaimPolicy": "Retain"}})
    };
    for (name, size) in [("one", "2Gi"), ("two", "3Gi")] {
        cluster.create("/api/v1/persistentvolumes", volume(name, size)).await;
    }
    let data = cluster.until("it is bound", &format!("{CLAIMS}/data"), phase("Bound")).await;
    let tmp = cluster.until("it is bound", &format!("{CLAIMS}/p-tmp"), phase("Bound")).await;
    assert_ne!(data["spec"]["volumeName"], tmp["spec"]["volumeName"]);
    let volume =
        format!("/api/v1/persistentvolumes/{}", data["spec"]["volumeName"].as_str().expect("a volume"));
    cluster.until("the volume says so", &volume, phase("Bound")).await;
    // Deleted while in use, it stays until the pod is gone.
    cluster
        .until("it is protected", &format!("{CLAIMS}/data"), |found| {
            found["metadata"]["finalizers"] == json!(["kubernetes.io/pvc-protection"])
        })
        .await;
    cluster.http.delete(&format!("{CLAIMS}/data"), &json!({})).await.expect(200);
    cluster.http.get(&format!("{CLAIMS}/data")).await.expect(200);
    cluster.http.delete(&format!("{PODS}/p"), &json!({"gracePeriodSeconds": 0})).await.expect(200);
    cluster.gone(&format!("{CLAIMS}/data")).await;
    cluster.until("the volume is released", &volume, phase("Released")).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_say_what_is_used() {
    let mut cluster = Cluster::start(&["resourcequota-controller"]).await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"pods": "5", "requests.cpu": "2", "count/configmaps": "10"});
    cluster.create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}})).await;
    cluster.create(quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "250m"}}});
    cluster.create(PODS, json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}})).await;
    cluster
        .until("it is counted", &format!("{quotas}/q"), |found| {
            let used = &found["status"]["used"];
            used["pods"] == "1" && used["requests.cpu"] == "250m" && used["count/configmaps"].is_string()
        })
        .await;
    cluster.http.delete(&format!("{PODS}/p"), &json!({})).await.expect(200);
    cluster
        .until("it is free again", &format!("{quotas}/q"), |found| found["status"]["used"]["pods"] == "0")
        .await;
    cluster.stop().await;
}
