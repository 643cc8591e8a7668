//! Seeded faults: components restart and crash, connections are cut, the API is slow or away, others write too, clocks jump.
//! What must never be is looked for at every revision.
//!
//! Every seed has a cluster of its own; a few run at the same time, since most of a seed is waiting. `SOAK=1` runs many more
//! seeds; `SEED=n` runs one.

use crate::work::{api, job, template};
use futures::StreamExt;
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::time::Duration;
use testing::{Cluster, ClusterConfig, Invariants};
use tokio::time::Instant;

const SEEDS: u64 = 20;
const SOAK_SEEDS: u64 = 500;
/// So many clusters at once.
const AT_ONCE: usize = 4;
/// Longer than anything takes, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(240);

/// The controllers that these workloads need: a cluster starts and restarts faster with fewer.
const CONTROLLERS: &[&str] = &[
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
];

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
    let seeds: Vec<u64> = match (std::env::var("SEED"), std::env::var("SEEDS"), std::env::var("SOAK")) {
        (Ok(seed), _, _) => vec![seed.parse().expect("a number")],
        (_, Ok(seeds), _) => {
            let (from, to) = seeds.split_once('-').expect("SEEDS=from-to");
            (from.parse().expect("a number")..to.parse().expect("a number")).collect()
        }
        (_, _, Ok(_)) => (0..SOAK_SEEDS).collect(),
        _ => (0..SEEDS).collect(),
    };
    let runs = futures::stream::iter(seeds).map(|seed| async move {
        let began = Instant::now();
        // On a task of its own, so that one that fails says so and the others go on.
        let ended = tokio::spawn(run(seed)).await;
        println!("seed {seed}: {} after {:?}", if ended.is_ok() { "ok" } else { "FAILED" }, began.elapsed());
        (seed, ended.is_ok())
    });
    let failed: Vec<u64> = runs
        .buffer_unordered(AT_ONCE)
        .filter_map(|(seed, ok)| async move { (!ok).then_some(seed) })
        .collect()
        .await;
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
}

/// One seed's cluster, its numbers, and what was done to it.
struct Run {
    seed: u64,
    dice: Dice,
    cluster: Cluster,
    client: Client,
    /// What happened, told when it fails.
    story: Vec<String>,
}

const REPLICAS: usize = 5;

async fn run(seed: u64) {
    let controllers = CONTROLLERS.iter().map(|name| (*name).to_owned()).collect();
    let config = ClusterConfig { cpus: 1, controllers, ..ClusterConfig::default() };
    let cluster = Cluster::start_with(config).await;
    let client = cluster.admin.clone();
    let dice = Dice(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut run = Run { seed, dice, cluster, client, story: Vec::new() };
    let invariants = Invariants::watch(run.client.clone()).await;
    let (surge, unavailable) = (1 + run.dice.roll(2) as usize, run.dice.roll(2) as usize);
    invariants.never_more_than(("app", "web"), REPLICAS + surge);
    invariants.never_more_than(("app", "db"), 3);
    invariants.never_more_than(("app", "work"), 3);
    invariants.no_node_over(1);
    invariants.no_completed_index_runs_twice();
    run.begin(surge, unavailable, &invariants).await;
    invariants.never_fewer_ready_than(("app", "web"), REPLICAS - unavailable);
    for version in ["v2", "v3"] {
        run.update(version).await;
        for _ in 0..3 {
            run.fault().await;
        }
        if version == "v2" {
            run.delete_owner().await;
        }
        run.cluster.proxy.slow(Duration::ZERO);
        run.settled(version).await;
    }
    run.until("work", "the job ends", |job: &Job| {
        job.status.as_ref().is_some_and(|status| {
            status.completed_indexes.as_deref() == Some("0-5") && status.completion_time.is_some()
        })
    })
    .await;
    invariants.no_pod_outlives_its_owner().await;
    println!("seed {}: {:?}", run.seed, run.story);
    invariants.hold();
    run.cluster.stop().await;
}

impl Run {
    /// Everything is there and runs, before anything goes wrong.
    async fn begin(&mut self, surge: usize, unavailable: usize, invariants: &Invariants) {
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        self.create::<Deployment>("web", json!({"replicas": REPLICAS, "strategy": rolling})).await;
        let policy = ["OrderedReady", "Parallel"][self.dice.roll(2) as usize];
        self.create::<StatefulSet>(
            "db",
            json!({"replicas": 3, "serviceName": "db", "podManagementPolicy": policy}),
        )
        .await;
        let surges = self.dice.roll(2) == 1;
        let (most, least) = if surges { (1, 0) } else { (0, 1) };
        let rolling =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": most, "maxUnavailable": least}});
        self.create::<DaemonSet>("ds", json!({"updateStrategy": rolling})).await;
        invariants.never_more_on_a_node_than(("app", "ds"), 1 + most);
        self.create::<ReplicaSet>("gone", json!({"replicas": 3})).await;
        self.settled("v1").await;
        self.until("gone", "the one to be deleted", |set: &ReplicaSet| {
            set.status.as_ref().is_some_and(|status| status.ready_replicas == Some(3))
        })
        .await;
        let indexed = json!({"completions": 6, "parallelism": 3, "completionMode": "Indexed"});
        let work: Job = serde_json::from_value(job("work", indexed, json!({}))).expect("a job");
        self.tried("create the job", || {
            let (jobs, work) = (api::<Job>(&self.client), work.clone());
            async move { jobs.create(&PostParams::default(), &work).await.map(drop) }
        })
        .await;
    }

    async fn update(&mut self, version: &str) {
        let patch = json!({"spec": {"template": {"spec": template("", version)["spec"]}}});
        self.patch::<Deployment>("web", &patch).await;
        self.patch::<StatefulSet>("db", &patch).await;
        self.patch::<DaemonSet>("ds", &patch).await;
        self.story.push(format!("updated to {version}"));
    }

    /// The ReplicaSet goes, in one of two ways, and its pods with it.
    async fn delete_owner(&mut self) {
        let policy = [PropagationPolicy::Background, PropagationPolicy::Foreground]
            [self.dice.roll(2) as usize]
            .clone();
        self.story.push(format!("deleted the ReplicaSet, {policy:?}"));
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.tried("delete the ReplicaSet", || {
            let (sets, params) = (api::<ReplicaSet>(&self.client), params.clone());
            async move {
                match sets.delete("gone", &params).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    deleted => deleted.map(drop),
                }
            }
        })
        .await;
    }

    async fn settled(&self, version: &str) {
        let same = |wanted: i32, counts: [Option<i32>; 3]| counts.iter().all(|count| *count == Some(wanted));
        self.until("web", "the Deployment settles", |it: &Deployment| {
            it.status.as_ref().is_some_and(|status| {
                status.observed_generation == it.metadata.generation
                    && same(
                        REPLICAS as i32,
                        [status.updated_replicas, status.available_replicas, status.replicas],
                    )
            })
        })
        .await;
        self.until("db", "the StatefulSet settles", |it: &StatefulSet| {
            it.status.as_ref().is_some_and(|status| {
                status.observed_generation == it.metadata.generation
                    && same(3, [status.updated_replicas, status.available_replicas, Some(status.replicas)])
                    && status.current_revision == status.update_revision
            })
        })
        .await;
        self.until("ds", "the DaemonSet settles", |it: &DaemonSet| {
            it.status.as_ref().is_some_and(|status| {
                status.observed_generation == it.metadata.generation
                    && same(
                        3,
                        [
                            status.updated_number_scheduled,
                            status.number_available,
                            Some(status.current_number_scheduled),
                        ],
                    )
            })
        })
        .await;
        let pods = api::<Pod>(&self.client);
        self.eventually("only pods of the new version", || async {
            let found = pods.list(&ListParams::default().labels("app in (web,db,ds)")).await.ok()?.items;
            let image = |pod: &Pod| pod.spec.as_ref()?.containers[0].image.clone();
            found.iter().all(|pod| image(pod).as_deref() == Some(version)).then_some(())
        })
        .await;
    }

    async fn fault(&mut self) {
        let what = self.dice.roll(10);
        let name = [
            "controllers restart",
            "scheduler restarts",
            "kubelets restart",
            "connections are cut",
            "the API is slow",
            "the clock jumps",
            "others write",
            "controllers crash",
            "scheduler crashes",
            "the apiserver restarts",
        ][what as usize];
        self.story.push(name.to_owned());
        match what {
            0 => self.cluster.restart_controllers().await,
            1 => self.cluster.restart_scheduler().await,
            2 => self.cluster.restart_kubelets().await,
            3 => self.cluster.proxy.cut(),
            4 => self.cluster.proxy.slow(Duration::from_millis(1 + self.dice.roll(30))),
            5 => self.cluster.clock.step(SignedDuration::from_secs(self.dice.roll(120) as i64 - 60)),
            6 => self.meddle().await,
            7 => self.cluster.crash_controllers().await,
            8 => self.cluster.crash_scheduler().await,
            _ => self.cluster.restart_server().await,
        }
        // The next one comes at some moment of what follows from this one.
        tokio::time::sleep(Duration::from_millis(self.dice.roll(150))).await;
    }

    /// Somebody else writes to what the controllers write to, so that they meet conflicts.
    async fn meddle(&mut self) {
        let note = json!({"metadata": {"annotations": {"meddler": self.dice.roll(1000).to_string()}}});
        let sets = api::<ReplicaSet>(&self.client).list(&ListParams::default()).await;
        for set in sets.map(|list| list.items).unwrap_or_default() {
            let _ = api::<ReplicaSet>(&self.client)
                .patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(&note))
                .await;
        }
        self.patch::<Deployment>("web", &note).await;
        self.patch::<StatefulSet>("db", &note).await;
        self.patch::<Job>("work", &note).await;
    }

    async fn create<K>(&self, name: &str, mut spec: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        spec["selector"] = json!({"matchLabels": {"app": name}});
        spec["template"] = template(name, "v1");
        let object: K =
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("an object");
        api::<K>(&self.client).create(&PostParams::default(), &object).await.expect("create");
    }

    async fn patch<K>(&self, name: &str, patch: &Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.tried("patch", || {
            let objects: Api<K> = api(&self.client);
            async move { objects.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop) }
        })
        .await;
    }

    /// Asks again while the apiserver is away.
    async fn tried<F: Future<Output = kube::Result<()>>>(&self, what: &str, ask: impl Fn() -> F) {
        self.eventually(what, || async {
            match ask().await {
                Ok(()) => Some(()),
                Err(kube::Error::Api(status)) if status.code == 409 || status.code >= 500 => None,
                Err(kube::Error::Api(status)) => panic!("{what}: {status:?}"),
                Err(_) => None,
            }
        })
        .await;
    }

    async fn until<K>(&self, name: &str, what: &str, is: impl Fn(&K) -> bool)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let objects: Api<K> = api(&self.client);
        self.eventually(what, || async {
            objects.get(name).await.ok().filter(|object| is(object)).map(drop)
        })
        .await;
    }

    async fn eventually<F: Future<Output = Option<()>>>(&self, what: &str, condition: impl Fn() -> F) {
        let ends = Instant::now() + PATIENCE;
        while condition().await.is_none() {
            if Instant::now() > ends {
                panic!("seed {}: in vain: {what}\n{:#?}\n{}", self.seed, self.story, self.state().await);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What there is, for whoever has to find out why.
    async fn state(&self) -> String {
        let pods = api::<Pod>(&self.client).list(&ListParams::default()).await.map(|list| list.items);
        let lines: Vec<String> = pods
            .unwrap_or_default()
            .iter()
            .map(|pod| {
                let (spec, status) =
                    (pod.spec.clone().unwrap_or_default(), pod.status.clone().unwrap_or_default());
                format!(
                    "{} {:?} on {:?} {:?}, going: {:?}, held by {:?}, {:?}",
                    pod.name_any(),
                    spec.containers[0].image,
                    spec.node_name,
                    status.phase,
                    pod.metadata.deletion_timestamp,
                    pod.finalizers(),
                    status
                        .conditions
                        .unwrap_or_default()
                        .iter()
                        .map(|it| (&it.type_, &it.status))
                        .collect::<Vec<_>>(),
                )
            })
            .collect();
        let status = |value: Option<Value>| value.map(|it| it["status"].to_string()).unwrap_or_default();
        let web = api::<Deployment>(&self.client).get("web").await.ok();
        let db = api::<StatefulSet>(&self.client).get("db").await.ok();
        let ds = api::<DaemonSet>(&self.client).get("ds").await.ok();
        format!(
            "{}\nweb {}\ndb {}\nds {}",
            lines.join("\n"),
            status(web.and_then(|it| serde_json::to_value(it).ok())),
            status(db.and_then(|it| serde_json::to_value(it).ok())),
            status(ds.and_then(|it| serde_json::to_value(it).ok())),
        )
    }
}
