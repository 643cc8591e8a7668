//! Every workload controller converges.

use crate::work::{api, create, deployment, job, patch, pods, template, until, until_pods};
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testing::{Cluster, eventually};

fn has_condition(job: &Job, ty: &str) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.clone().any(|condition| condition.type_ == ty && condition.status == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_sets_and_replication_controllers_keep_their_pods() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    let spec =
        json!({"replicas": 3, "selector": {"matchLabels": {"app": "rs"}}, "template": template("rs", "v1")});
    create::<ReplicaSet>(client, json!({"metadata": {"name": "rs"}, "spec": spec})).await;
    let spec = json!({"replicas": 2, "selector": {"app": "rc"}, "template": template("rc", "v1")});
    create::<ReplicationController>(client, json!({"metadata": {"name": "rc"}, "spec": spec})).await;
    let ready =
        |set: &ReplicaSet| set.status.as_ref().and_then(|status| status.available_replicas) == Some(3);
    until(client, "rs", "three pods", ready).await;
    until(client, "rc", "two pods", |set: &ReplicationController| {
        set.status.as_ref().and_then(|status| status.available_replicas) == Some(2)
    })
    .await;
    let gone = pods(client, "app=rs").await[0].name_any();
    api::<Pod>(client).delete(&gone, &DeleteParams::default()).await.expect("delete");
    until_pods(client, "app=rs", "another pod instead", |pods| {
        pods.len() == 3 && pods.iter().all(|pod| pod.name_any() != gone)
    })
    .await;
    let orphan = pods(client, "app=rs").await[0].name_any();
    patch::<Pod>(client, &orphan, json!({"metadata": {"labels": {"app": "free"}}})).await;
    until_pods(client, "app=free", "it is released", |pods| {
        pods.len() == 1 && pods[0].owner_references().is_empty()
    })
    .await;
    until_pods(client, "app=rs", "and replaced", |pods| pods.len() == 3).await;
    patch::<Pod>(client, &orphan, json!({"metadata": {"labels": {"app": "rs"}}})).await;
    until(client, "rs", "it is adopted, and one is too many", ready).await;
    until_pods(client, "app=rs", "three again", |pods| {
        pods.len() == 3 && pods.iter().all(|pod| pod.owner_references().len() == 1)
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_roll_and_roll_back() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    create::<Deployment>(client, deployment("web", 4, json!({"type": "RollingUpdate"}))).await;
    let settled = |revision: &'static str| {
        move |deployment: &Deployment| {
            let Some(status) = &deployment.status else { return false };
            let condition =
                status.conditions.iter().flatten().find(|condition| condition.type_ == "Progressing");
            let is_done =
                condition.and_then(|condition| condition.reason.as_deref()) == Some("NewReplicaSetAvailable");
            is_done
                && status.observed_generation == deployment.metadata.generation
                && (status.updated_replicas, status.available_replicas, status.replicas)
                    == (Some(4), Some(4), Some(4))
                && deployment.annotations().get("deployment.kubernetes.io/revision").map(String::as_str)
                    == Some(revision)
        }
    };
    until(client, "web", "the first version", settled("1")).await;
    let image = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    let update = |image_name: &str| {
        let mut patch = image(image_name);
        patch["spec"]["template"]["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": "100m"}});
        patch
    };
    patch::<Deployment>(client, "web", update("v2")).await;
    until(client, "web", "the second version", settled("2")).await;
    // As kubectl rollout undo does it: the old template again.
    patch::<Deployment>(client, "web", update("v1")).await;
    until(client, "web", "the first version again", settled("3")).await;
    let sets = api::<ReplicaSet>(client).list(&ListParams::default()).await.expect("list").items;
    assert_eq!(sets.len(), 2, "the old ReplicaSet was used again");
    patch::<Deployment>(client, "web", json!({"spec": {"paused": true}})).await;
    patch::<Deployment>(client, "web", update("v3")).await;
    patch::<Deployment>(client, "web", json!({"spec": {"replicas": 2}})).await;
    until(client, "web", "scaled while paused", |deployment: &Deployment| {
        deployment.status.as_ref().is_some_and(|status| status.replicas == Some(2))
    })
    .await;
    let running = pods(client, "app=web").await;
    assert!(
        running
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .all(|pod| { pod.spec.as_ref().expect("a spec").containers[0].image.as_deref() == Some("v1") })
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_history_to_controllers_and_scheduler_they_list_again() {
    let mut cluster = Cluster::start().await;
    let client = &cluster.admin.clone();
    let available = |wanted: i32| {
        move |deployment: &Deployment| {
            deployment.status.as_ref().and_then(|status| status.available_replicas) == Some(wanted)
        }
    };
    create::<Deployment>(client, deployment("web", 2, json!({"type": "RollingUpdate"}))).await;
    until(client, "web", "two pods", available(2)).await;
    cluster.server.forget().await;
    patch::<Deployment>(client, "web", json!({"spec": {"replicas": 3}})).await;
    until(client, "web", "three pods", available(3)).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_recreate() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    create::<Deployment>(client, deployment("one", 2, json!({"type": "Recreate"}))).await;
    let available = |deployment: &Deployment| {
        deployment.status.as_ref().is_some_and(|status| {
            status.updated_replicas == Some(2)
                && status.available_replicas == Some(2)
                && status.observed_generation == deployment.metadata.generation
        })
    };
    until(client, "one", "the first version", available).await;
    let invariants = testing::Invariants::watch(client.clone()).await;
    invariants.never_more_than(("app", "one"), 2);
    let container = json!({"name": "c", "image": "v2", "resources": {"requests": {"cpu": "100m"}}});
    patch::<Deployment>(client, "one", json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
        .await;
    until(client, "one", "the second version", available).await;
    until_pods(client, "app=one", "only new pods", |pods| {
        pods.len() == 2
            && pods
                .iter()
                .all(|pod| pod.spec.as_ref().expect("a spec").containers[0].image.as_deref() == Some("v2"))
    })
    .await;
    invariants.hold();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_sets_go_in_order() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    let spec = json!({
        "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db", "v1"),
    });
    create::<StatefulSet>(client, json!({"metadata": {"name": "db"}, "spec": spec})).await;
    let ready = |set: &StatefulSet| {
        set.status.as_ref().is_some_and(|status| {
            status.ready_replicas == Some(3)
                && status.updated_replicas == Some(3)
                && status.current_revision == status.update_revision
                && status.observed_generation == set.metadata.generation
        })
    };
    let first = until(client, "db", "three pods", ready).await;
    let found = pods(client, "app=db").await;
    let created: Vec<_> = found
        .iter()
        .map(|pod| (pod.name_any(), pod.labels()["apps.kubernetes.io/pod-index"].clone()))
        .collect();
    assert_eq!(created, [0, 1, 2].map(|number| (format!("db-{number}"), number.to_string())));
    let container = json!({"name": "c", "image": "v2", "resources": {"requests": {"cpu": "100m"}}});
    patch::<StatefulSet>(client, "db", json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
        .await;
    let second = until(client, "db", "all updated", |set: &StatefulSet| {
        let (old, new) = (&first.status, &set.status);
        let revision = |status: &Option<_>| -> Option<String> {
            let status: &k8s_openapi::api::apps::v1::StatefulSetStatus = status.as_ref()?;
            status.current_revision.clone()
        };
        ready(set) && revision(old) != revision(new)
    })
    .await;
    assert!(second.status.expect("a status").collision_count == Some(0));
    patch::<StatefulSet>(client, "db", json!({"spec": {"replicas": 1}})).await;
    until_pods(client, "app=db", "only the first", |pods| pods.len() == 1 && pods[0].name_any() == "db-0")
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_sets_run_on_every_node() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    let spec = json!({"selector": {"matchLabels": {"app": "ds"}}, "template": template("ds", "v1")});
    create::<DaemonSet>(client, json!({"metadata": {"name": "ds"}, "spec": spec})).await;
    let ready = |set: &DaemonSet| {
        set.status.as_ref().is_some_and(|status| {
            status.number_available == Some(3)
                && status.updated_number_scheduled == Some(3)
                && status.observed_generation == set.metadata.generation
        })
    };
    until(client, "ds", "one on every node", ready).await;
    let mut nodes: Vec<_> = pods(client, "app=ds")
        .await
        .iter()
        .map(|pod| pod.spec.as_ref().expect("a spec").node_name.clone())
        .collect();
    nodes.sort();
    assert_eq!(nodes, [0, 1, 2].map(|number| Some(format!("node-{number}"))));
    let container = json!({"name": "c", "image": "v2", "resources": {"requests": {"cpu": "100m"}}});
    patch::<DaemonSet>(client, "ds", json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
        .await;
    until(client, "ds", "updated", ready).await;
    until_pods(client, "app=ds", "only new pods", |pods| {
        pods.len() == 3
            && pods
                .iter()
                .all(|pod| pod.spec.as_ref().expect("a spec").containers[0].image.as_deref() == Some("v2"))
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_to_their_end() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    create::<Job>(client, job("plain", json!({"completions": 5, "parallelism": 2}), json!({}))).await;
    let indexed = json!({"completions": 4, "parallelism": 4, "completionMode": "Indexed"});
    create::<Job>(client, job("indexed", indexed, json!({}))).await;
    create::<Job>(client, job("failing", json!({"backoffLimit": 0}), json!({"sim/exit": "3"}))).await;
    let done = until(client, "plain", "five ends", |job: &Job| has_condition(job, "Complete")).await;
    assert_eq!(done.status.expect("a status").succeeded, Some(5));
    let done = until(client, "indexed", "four indexes", |job: &Job| has_condition(job, "Complete")).await;
    assert_eq!(done.status.expect("a status").completed_indexes.as_deref(), Some("0-3"));
    let failed = until(client, "failing", "a failure", |job: &Job| has_condition(job, "Failed")).await;
    assert_eq!(failed.status.expect("a status").failed, Some(1));
    until_pods(client, "app=plain", "nothing is held back", |pods| {
        pods.len() == 5 && pods.iter().all(|pod| pod.finalizers().is_empty())
    })
    .await;
    let suspended = json!({"suspend": true, "ttlSecondsAfterFinished": 0});
    create::<Job>(client, job("later", suspended, json!({}))).await;
    until(client, "later", "suspended", |job: &Job| has_condition(job, "Suspended")).await;
    assert!(pods(client, "app=later").await.is_empty());
    patch::<Job>(client, "later", json!({"spec": {"suspend": false}})).await;
    let jobs = api::<Job>(client);
    eventually("it ran, and is on its way out", || async {
        let job = jobs.get_opt("later").await.expect("get");
        job.is_none_or(|job| job.metadata.deletion_timestamp.is_some()).then_some(())
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cron_jobs_start_jobs_on_time() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    let template = job("tick", json!({}), json!({}));
    let spec = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": template["spec"]}});
    create::<CronJob>(client, json!({"metadata": {"name": "tick"}, "spec": spec})).await;
    // A year passes at once; the next change is when it is looked at.
    cluster.clock.step(SignedDuration::from_hours(366 * 24));
    patch::<CronJob>(client, "tick", json!({"metadata": {"labels": {"looked": "at"}}})).await;
    let ran = until(client, "tick", "a job ran", |tick: &CronJob| {
        tick.status.as_ref().is_some_and(|status| status.last_schedule_time.is_some())
    })
    .await;
    assert!(ran.status.expect("a status").last_schedule_time.is_some());
    let jobs = api::<Job>(client);
    eventually("the job is complete", || async {
        let jobs = jobs.list(&ListParams::default()).await.expect("list").items;
        (jobs.len() == 1 && has_condition(&jobs[0], "Complete")).then_some(())
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disruption_budgets_follow_their_pods_and_idle_controllers_write_nothing() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    create::<Deployment>(client, deployment("web", 3, json!({"type": "RollingUpdate"}))).await;
    let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}});
    create::<PodDisruptionBudget>(client, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    until(client, "web", "one may go", |budget: &PodDisruptionBudget| {
        budget
            .status
            .as_ref()
            .is_some_and(|status| status.disruptions_allowed == 1 && status.expected_pods == 3)
    })
    .await;
    until(client, "web", "settled", |deployment: &Deployment| {
        deployment.status.as_ref().is_some_and(|status| status.available_replicas == Some(3))
    })
    .await;
    // Two looks at the same count, with every key planned again in between, show that nothing is written.
    let written = eventually("no more writes", || async {
        let before = cluster.metrics.writes();
        for name in ["a", "b", "c"] {
            patch::<Deployment>(client, "web", json!({"metadata": {"labels": {"poked": name}}})).await;
        }
        let after = cluster.metrics.writes();
        (before == after).then_some(after)
    })
    .await;
    assert!(written > 0);
    cluster.stop().await;
}
