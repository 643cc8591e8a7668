//! Autoscalers on what simulated nodes say that pods use, through metrics.k8s.io.

use crate::work::{api, create, deployment, patch, pods, until};
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use testing::{Cluster, ClusterConfig};

fn autoscaler(name: &str, spec: Value) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    let half = json!([{"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]);
    let mut autoscaler = json!({"metadata": {"name": name}, "spec": {"scaleTargetRef": target, "maxReplicas": 4, "metrics": half}});
    for (key, value) in spec.as_object().expect("fields") {
        autoscaler["spec"][key] = value.clone();
    }
    autoscaler
}

/// Pods that ask for a tenth of a CPU and use so many thousandths.
fn using(name: &str, milli: u32) -> Value {
    let mut deployment = deployment(name, 1, json!({"type": "RollingUpdate"}));
    deployment["spec"]["template"]["metadata"]["annotations"] = json!({"sim/cpu": milli.to_string()});
    deployment
}

async fn until_replicas(client: &Client, name: &str, count: i32) {
    until(client, name, &format!("{name}: {count} replicas"), |it: &Deployment| {
        it.spec.as_ref().and_then(|spec| spec.replicas) == Some(count)
            && it.status.as_ref().and_then(|status| status.ready_replicas) == Some(count)
    })
    .await;
}

async fn until_condition(client: &Client, name: &str, ty: &str, reason: &str) {
    until(client, name, &format!("{name}: {ty} because of {reason}"), |it: &HorizontalPodAutoscaler| {
        let conditions = it.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.clone().any(|it| it.type_ == ty && it.reason.as_deref() == Some(reason))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn autoscalers_follow_use_at_the_pace_of_their_behavior() {
    let cluster = Cluster::start_with(ClusterConfig {
        configure: |config| {
            config.hpa_sync_period = Duration::from_millis(200);
            config.hpa_cpu_initialization_period = Duration::ZERO;
            config.hpa_initial_readiness_delay = Duration::ZERO;
        },
        ..ClusterConfig::default()
    })
    .await;
    let client = &cluster.admin;
    // By default it goes up at once; the seed's interval is one pod per so many seconds, both ways.
    create::<Deployment>(client, using("eager", 200)).await;
    create::<HorizontalPodAutoscaler>(client, autoscaler("eager", json!({}))).await;
    let seed = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "steady"},
        "spec": {
            "minReplicas": 1, "maxReplicas": 3, "scaleInterval": 600,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "steady"},
            "metrics": [{"resource": {"name": "cpu", "strategy": "average", "utilization": 50}}],
        },
    });
    let known = |kind: &str| (kind == "HorizontalPodAutoscaler").then(|| "autoscaling/v2".to_owned());
    let seed = api::dialect::translate(seed, known).expect("the seed's way to say it").value;
    create::<Deployment>(client, using("steady", 200)).await;
    create::<HorizontalPodAutoscaler>(client, seed).await;
    create::<HorizontalPodAutoscaler>(client, autoscaler("nobody", json!({}))).await;

    until_condition(client, "nobody", "AbleToScale", "FailedGetScale").await;
    until_replicas(client, "eager", 4).await;
    until_condition(client, "eager", "ScalingLimited", "TooManyReplicas").await;
    until_replicas(client, "steady", 2).await;
    until_condition(client, "steady", "ScalingLimited", "ScaleUpLimit").await;
    let found = api::<Deployment>(client).get("steady").await.expect("get");
    assert_eq!(found.spec.and_then(|spec| spec.replicas), Some(2), "one more, and no more before its time");
    cluster.clock.step(SignedDuration::from_secs(601));
    until_replicas(client, "steady", 3).await;

    // Less use: it waits for five minutes, in case it is needed again.
    let idle = async |app: &str| {
        for pod in pods(client, &format!("app={app}")).await {
            let idle = json!({"metadata": {"annotations": {"sim/cpu": "5"}}});
            patch::<Pod>(client, &pod.name_any(), idle).await;
        }
    };
    idle("eager").await;
    until_condition(client, "eager", "AbleToScale", "ScaleDownStabilized").await;
    let found = api::<Deployment>(client).get("eager").await.expect("get");
    assert_eq!(found.spec.and_then(|spec| spec.replicas), Some(4), "it may be needed again");

    // The other goes down one at a time. That it went up must be a while ago: what was added within the interval may be taken
    // back at once.
    cluster.clock.step(SignedDuration::from_secs(601));
    idle("steady").await;
    until_replicas(client, "steady", 2).await;
    until_condition(client, "steady", "ScalingLimited", "ScaleDownLimit").await;
    until_replicas(client, "eager", 1).await;
    let found = api::<Deployment>(client).get("steady").await.expect("get");
    assert_eq!(found.spec.and_then(|spec| spec.replicas), Some(2), "one less, and no less before its time");

    // Deleting one stops it, whatever its pods use. Who sees what was made later has seen that it is gone.
    api::<HorizontalPodAutoscaler>(client).delete("steady", &Default::default()).await.expect("delete");
    create::<HorizontalPodAutoscaler>(client, autoscaler("later", json!({}))).await;
    until_condition(client, "later", "AbleToScale", "FailedGetScale").await;
    cluster.clock.step(SignedDuration::from_secs(601));
    create::<HorizontalPodAutoscaler>(client, autoscaler("last", json!({}))).await;
    until_condition(client, "last", "AbleToScale", "FailedGetScale").await;
    let found = api::<Deployment>(client).get("steady").await.expect("get");
    assert_eq!(found.spec.and_then(|spec| spec.replicas), Some(2));
    cluster.stop().await;
}
