//! Seeded faults: components restart, connections are cut, the API is slow, others write too, clocks jump. What must never be
//! is looked for at every revision.
//!
//! `SOAK=1` runs many more seeds; `SEED=n` runs one.

use crate::work::{api, create, deployment, job, patch, until, until_pods};
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use serde_json::json;
use std::time::Duration;
use testing::{Cluster, ClusterConfig, Invariants};

const SEEDS: u64 = 3;
const SOAK_SEEDS: u64 = 500;

/// A small generator of numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_converge_under_faults_and_stay_within_their_limits() {
    let seeds: Vec<u64> = match (std::env::var("SEED"), std::env::var("SOAK")) {
        (Ok(seed), _) => vec![seed.parse().expect("a number")],
        (_, Ok(_)) => (0..SOAK_SEEDS).collect(),
        _ => (0..SEEDS).collect(),
    };
    for seed in seeds {
        println!("seed {seed}");
        run(seed).await;
    }
}

async fn run(seed: u64) {
    let mut dice = Dice(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut cluster = Cluster::start_with(ClusterConfig { cpus: 1, ..ClusterConfig::default() }).await;
    let client = cluster.admin.clone();
    let invariants = Invariants::watch(client.clone()).await;
    let (replicas, surge, unavailable) = (6, 1 + dice.roll(2) as usize, dice.roll(2) as usize);
    invariants.never_more_than(("app", "web"), replicas + surge);
    invariants.no_node_over(1);
    invariants.no_completed_index_runs_twice();
    let rolling =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
    create::<Deployment>(&client, deployment("web", replicas, rolling)).await;
    until(&client, "web", "the first version", is_settled(replicas)).await;
    invariants.never_fewer_ready_than(("app", "web"), replicas - unavailable);
    let indexed = json!({"completions": 6, "parallelism": 3, "completionMode": "Indexed"});
    create::<Job>(&client, job("work", indexed, json!({}))).await;
    for version in ["v2", "v3"] {
        let container = json!({"name": "c", "image": version, "resources": {"requests": {"cpu": "100m"}}});
        patch::<Deployment>(
            &client,
            "web",
            json!({"spec": {"template": {"spec": {"containers": [container]}}}}),
        )
        .await;
        for _ in 0..3 {
            fault(&mut cluster, &mut dice).await;
        }
        cluster.proxy.slow(Duration::ZERO);
        until(&client, "web", &format!("seed {seed}: version {version}"), is_settled(replicas)).await;
        until_pods(&client, "app=web", "only new pods", |pods| {
            pods.iter()
                .all(|pod| pod.spec.as_ref().expect("a spec").containers[0].image.as_deref() == Some(version))
        })
        .await;
    }
    until(&client, "work", &format!("seed {seed}: the job ends"), |job: &Job| {
        job.status.as_ref().is_some_and(|status| {
            status.completed_indexes.as_deref() == Some("0-5") && status.completion_time.is_some()
        })
    })
    .await;
    invariants.hold();
    cluster.stop().await;
}

async fn fault(cluster: &mut Cluster, dice: &mut Dice) {
    match dice.roll(7) {
        0 => cluster.restart_controllers().await,
        1 => cluster.restart_scheduler().await,
        2 => cluster.restart_kubelets().await,
        3 => cluster.proxy.cut(),
        4 => cluster.proxy.slow(Duration::from_millis(1 + dice.roll(30))),
        5 => cluster.clock.step(SignedDuration::from_secs(dice.roll(120) as i64 - 60)),
        _ => meddle(cluster, dice).await,
    }
}

/// Somebody else writes to what the controllers write to, so that they meet conflicts.
async fn meddle(cluster: &Cluster, dice: &mut Dice) {
    let sets = api::<k8s_openapi::api::apps::v1::ReplicaSet>(&cluster.admin);
    let note = json!({"metadata": {"annotations": {"meddler": dice.roll(1000).to_string()}}});
    for set in sets.list(&Default::default()).await.expect("list").items {
        let name = set.metadata.name.expect("a name");
        patch::<k8s_openapi::api::apps::v1::ReplicaSet>(&cluster.admin, &name, note.clone()).await;
    }
    patch::<Deployment>(&cluster.admin, "web", note).await;
}

fn is_settled(replicas: usize) -> impl Fn(&Deployment) -> bool {
    let wanted = i32::try_from(replicas).ok();
    move |deployment| {
        deployment.status.as_ref().is_some_and(|status| {
            status.observed_generation == deployment.metadata.generation
                && status.updated_replicas == wanted
                && status.available_replicas == wanted
                && status.replicas == wanted
        })
    }
}
