//! A cluster with nothing to do does nothing, and one that lost a replica does not mind.

use crate::work::{api, create, deployment, job, template, until, until_pods};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ResourceQuota, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::time::Duration;
use testing::{Cluster, ClusterConfig, PATIENCE};

/// So many heartbeats are waited for while nothing else may be written.
const HEARTBEATS: u64 = 120;

async fn revision(client: &Client) -> u64 {
    let leases: Api<Lease> = Api::all(client.clone());
    let list = leases.list(&ListParams::default()).await.expect("list");
    list.metadata.resource_version.expect("a version").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_cluster_writes_nothing_but_heartbeats() {
    let cluster = Cluster::start_with(ClusterConfig {
        controllers: vec!["*".into()],
        configure: |config| {
            // What looks at regular times does so often here; nodes are silent and nobody minds.
            config.hpa_sync_period = Duration::from_millis(200);
            config.node_monitor_period = Duration::from_millis(200);
            config.node_monitor_grace_period = Duration::from_secs(3600);
            (config.cluster_cidr, config.allocate_node_cidrs) = (Some("10.244.0.0/16".into()), true);
        },
        ..ClusterConfig::default()
    })
    .await;
    let client = &cluster.admin;
    some_of_everything(client).await;
    // Every write has a revision of its own: between two revisions there are as many writes as numbers.
    let mut attempts = Vec::new();
    let ends = tokio::time::Instant::now() + PATIENCE;
    loop {
        let from = revision(client).await;
        let path = format!("/apis/coordination.k8s.io/v1/leases?watch=true&resourceVersion={from}");
        let mut watch = cluster.server.http().watch(&path).await;
        let (mut last, mut first_gap) = (from, None);
        for _ in 0..HEARTBEATS {
            let event = watch.next().await.expect("a heartbeat");
            let version = event.object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse().ok());
            let version: u64 = version.expect("a version");
            if version != last + 1 {
                first_gap.get_or_insert((last, version));
            }
            last = version;
        }
        if first_gap.is_none() {
            break;
        }
        // The last writes of what was begun above may still be on their way.
        attempts.push(first_gap);
        assert!(tokio::time::Instant::now() < ends, "others write as well, between revisions {attempts:?}");
    }
    cluster.stop().await;
}

async fn some_of_everything(client: &Client) {
    create::<Deployment>(client, deployment("web", 2, json!({"type": "RollingUpdate"}))).await;
    let workload = |name: &str, more: Value| {
        let mut spec = json!({"selector": {"matchLabels": {"app": name}}, "template": template(name, "v1")});
        for (key, value) in more.as_object().expect("fields") {
            spec[key] = value.clone();
        }
        json!({"metadata": {"name": name}, "spec": spec})
    };
    create::<StatefulSet>(client, workload("db", json!({"replicas": 2, "serviceName": "db"}))).await;
    create::<DaemonSet>(client, workload("ds", json!({}))).await;
    create::<Job>(client, job("done", json!({"completions": 2}), json!({}))).await;
    let cron =
        json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job("later", json!({}), json!({}))["spec"]}});
    create::<CronJob>(client, json!({"metadata": {"name": "later"}, "spec": cron})).await;
    let service = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    create::<Service>(client, json!({"metadata": {"name": "web"}, "spec": service})).await;
    let budget = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}});
    create::<PodDisruptionBudget>(client, json!({"metadata": {"name": "web"}, "spec": budget})).await;
    create::<ResourceQuota>(client, json!({"metadata": {"name": "all"}, "spec": {"hard": {"pods": "100"}}}))
        .await;
    let scaling = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 4,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
    });
    create::<HorizontalPodAutoscaler>(client, json!({"metadata": {"name": "web"}, "spec": scaling})).await;
    until(client, "web", "the Deployment", |it: &Deployment| {
        it.status.as_ref().is_some_and(|status| status.available_replicas == Some(2))
    })
    .await;
    until(client, "db", "the StatefulSet", |it: &StatefulSet| {
        it.status.as_ref().is_some_and(|status| status.available_replicas == Some(2))
    })
    .await;
    until(client, "ds", "the DaemonSet", |it: &DaemonSet| {
        it.status.as_ref().is_some_and(|status| status.number_available == Some(3))
    })
    .await;
    until(client, "done", "the Job", |it: &Job| {
        it.status.as_ref().is_some_and(|status| status.completion_time.is_some())
    })
    .await;
    until(client, "web", "the autoscaler", |it: &HorizontalPodAutoscaler| {
        it.status.as_ref().is_some_and(|status| status.current_metrics.is_some())
    })
    .await;
    let slices = api::<EndpointSlice>(client);
    testing::eventually("the endpoints", || async {
        (!slices.list(&ListParams::default()).await.expect("list").items.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_replicas_one_works_and_the_other_takes_over() {
    let mut cluster = Cluster::start().await;
    let client = cluster.admin.clone();
    let ready = |it: &Deployment| {
        it.status
            .as_ref()
            .is_some_and(|status| status.available_replicas == Some(2) && status.replicas == Some(2))
    };
    create::<Deployment>(&client, deployment("first", 2, json!({"type": "RollingUpdate"}))).await;
    until(&client, "first", "by the first replica", ready).await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let holder = async |name: &str| {
        let lease = leases.get(name).await.expect("the lease");
        lease.spec.and_then(|spec| spec.holder_identity).expect("a holder")
    };
    let before = (holder("kube-controller-manager").await, holder("kube-scheduler").await);
    cluster.start_twins();
    create::<Deployment>(&client, deployment("second", 2, json!({"type": "RollingUpdate"}))).await;
    until(&client, "second", "with both there", ready).await;
    until_pods(&client, "app=second", "no more than asked for", |pods| pods.len() == 2).await;
    cluster.kill_first().await;
    create::<Deployment>(&client, deployment("third", 2, json!({"type": "RollingUpdate"}))).await;
    until(&client, "third", "by the second replica", ready).await;
    assert_ne!(holder("kube-controller-manager").await, before.0);
    assert_ne!(holder("kube-scheduler").await, before.1);
    cluster.stop().await;
}
