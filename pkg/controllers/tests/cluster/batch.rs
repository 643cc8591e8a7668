//! Jobs and CronJobs, beyond running to their end.

use crate::work::{api, create, job, patch, pods, until, until_pods};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::ListParams;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use testing::{Cluster, eventually};

fn why(job: &Job, ty: &str) -> Option<String> {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut found = conditions.filter(|condition| condition.type_ == ty && condition.status == "True");
    found.next().map(|condition| condition.reason.clone().unwrap_or_default())
}

async fn until_failed(client: &Client, name: &str, reason: &str) -> Job {
    until(client, name, reason, |job: &Job| why(job, "Failed").as_deref() == Some(reason)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_fail_wait_and_go_as_they_are_told() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    let on_exit = |action: &str, code: i32| {
        json!({"backoffLimit": 6, "podFailurePolicy": {"rules": [
            {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}]}})
    };
    create::<Job>(client, job("fatal", on_exit("FailJob", 42), json!({"sim/exit": "42"}))).await;
    let indexed =
        json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
    create::<Job>(client, job("indexes", indexed, json!({"sim/exit": "1"}))).await;
    let deadline = json!({"activeDeadlineSeconds": 1});
    create::<Job>(client, job("late", deadline, json!({"sim/runs": "on"}))).await;
    create::<Job>(client, job("retried", json!({"backoffLimit": 1}), json!({"sim/exit": "7"}))).await;
    create::<Job>(client, job("running", json!({"parallelism": 2}), json!({"sim/runs": "on"}))).await;
    create::<Job>(client, job("kept", json!({"ttlSecondsAfterFinished": 3600}), json!({}))).await;

    let fatal = until_failed(client, "fatal", "PodFailurePolicy").await;
    assert_eq!(fatal.status.and_then(|status| status.failed), Some(1), "no second try");
    let indexes = until_failed(client, "indexes", "FailedIndexes").await;
    assert_eq!(indexes.status.and_then(|status| status.failed_indexes).as_deref(), Some("0,1"));
    until_failed(client, "late", "DeadlineExceeded").await;
    until_pods(client, "app=late", "what ran is ended", |pods| {
        pods.iter().all(|pod| {
            pod.metadata.deletion_timestamp.is_some()
                || pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Failed")
        })
    })
    .await;

    // One that runs is suspended, and goes on later.
    let active = |count: i32| {
        move |job: &Job| job.status.as_ref().is_some_and(|status| status.active.unwrap_or(0) == count)
    };
    until(client, "running", "two run", active(2)).await;
    patch::<Job>(client, "running", json!({"spec": {"suspend": true}})).await;
    until(client, "running", "suspended", |job: &Job| active(0)(job) && why(job, "Suspended").is_some())
        .await;
    until_pods(client, "app=running", "its pods go", |pods| pods.is_empty()).await;
    patch::<Job>(client, "running", json!({"spec": {"suspend": false, "parallelism": 1}})).await;
    until(client, "running", "one runs again", |job: &Job| active(1)(job) && why(job, "Suspended").is_none())
        .await;
    assert_eq!(pods(client, "app=running").await.len(), 1);

    // The second try comes after ten seconds, the limit is one: both failed.
    cluster.clock.step(SignedDuration::from_secs(30));
    patch::<Job>(client, "retried", json!({"metadata": {"labels": {"looked": "at"}}})).await;
    let retried = until_failed(client, "retried", "BackoffLimitExceeded").await;
    assert_eq!(retried.status.and_then(|status| status.failed), Some(2));

    until(client, "kept", "complete", |job: &Job| why(job, "Complete").is_some()).await;
    cluster.clock.step(SignedDuration::from_hours(2));
    patch::<Job>(client, "kept", json!({"metadata": {"labels": {"looked": "at"}}})).await;
    let jobs = api::<Job>(client);
    eventually("its time is over", || async {
        let job = jobs.get_opt("kept").await.expect("get");
        job.is_none_or(|job| job.metadata.deletion_timestamp.is_some()).then_some(())
    })
    .await;
    until_pods(client, "app=kept", "its pods go with it", |pods| pods.is_empty()).await;
    cluster.stop().await;
}

fn cron(name: &str, more: Value, annotations: Value) -> Value {
    let template = job(name, json!({}), annotations);
    let labels = json!({"cron": name});
    let mut cron = json!({
        "metadata": {"name": name},
        "spec": {"schedule": "0 0 * * *", "jobTemplate": {"metadata": {"labels": labels}, "spec": template["spec"]}},
    });
    for (key, value) in more.as_object().expect("fields") {
        cron["spec"][key] = value.clone();
    }
    cron
}

async fn jobs_of(client: &Client, name: &str) -> Vec<Job> {
    let params = ListParams::default().labels(&format!("cron={name}"));
    let jobs = api::<Job>(client).list(&params).await.expect("list").items;
    jobs.into_iter().filter(|job| job.metadata.deletion_timestamp.is_none()).collect()
}

async fn until_jobs(client: &Client, name: &str, count: usize) -> BTreeSet<String> {
    eventually(&format!("{count} jobs of {name}"), || async {
        let names: BTreeSet<String> = jobs_of(client, name).await.iter().map(ResourceExt::name_any).collect();
        (names.len() == count).then_some(names)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn cron_jobs_keep_to_their_zone_policy_and_history() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    let runs = json!({"sim/runs": "on"});
    for policy in ["Allow", "Forbid", "Replace"] {
        let name = policy.to_lowercase();
        create::<CronJob>(client, cron(&name, json!({"concurrencyPolicy": policy}), runs.clone())).await;
    }
    let zone = json!({"schedule": "30 3 * * *", "timeZone": "Asia/Kolkata"});
    create::<CronJob>(client, cron("zoned", zone, json!({}))).await;
    create::<CronJob>(client, cron("brief", json!({"successfulJobsHistoryLimit": 1}), json!({}))).await;
    create::<CronJob>(client, cron("held", json!({"suspend": true}), json!({}))).await;
    let names = ["allow", "forbid", "replace", "zoned", "brief", "held"];
    let a_day_passes = async |day: &str| {
        cluster.clock.step(SignedDuration::from_hours(24));
        for name in names {
            patch::<CronJob>(client, name, json!({"metadata": {"labels": {"day": day}}})).await;
        }
    };
    a_day_passes("first").await;
    until_jobs(client, "allow", 1).await;
    let first = until_jobs(client, "forbid", 1).await;
    let replaced = until_jobs(client, "replace", 1).await;
    let zoned = until(client, "zoned", "it ran", |it: &CronJob| {
        it.status.as_ref().is_some_and(|status| status.last_schedule_time.is_some())
    })
    .await;
    // Half past three in India is ten in the evening before, in UTC.
    let at: Timestamp = zoned.status.and_then(|status| status.last_schedule_time).expect("a time").0;
    let at = at.to_zoned(TimeZone::UTC);
    assert_eq!((at.hour(), at.minute()), (22, 0));
    let brief = until_jobs(client, "brief", 1).await;
    let done = brief.first().expect("one").clone();
    until(client, &done, "the first is complete", |job: &Job| why(job, "Complete").is_some()).await;

    a_day_passes("second").await;
    until_jobs(client, "allow", 2).await;
    eventually("the old one is replaced", || async {
        let names: BTreeSet<String> =
            jobs_of(client, "replace").await.iter().map(ResourceExt::name_any).collect();
        (names.len() == 1 && names != replaced).then_some(())
    })
    .await;
    eventually("of those that completed only the last is kept", || async {
        let names: BTreeSet<String> =
            jobs_of(client, "brief").await.iter().map(ResourceExt::name_any).collect();
        (names.len() == 1 && names != brief).then_some(())
    })
    .await;
    until(client, "forbid", "the first goes on alone", |it: &CronJob| {
        it.status
            .as_ref()
            .is_some_and(|status| status.active.as_ref().is_some_and(|active| active.len() == 1))
    })
    .await;
    assert_eq!(until_jobs(client, "forbid", 1).await, first);
    assert!(jobs_of(client, "held").await.is_empty(), "suspended");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_counted_where_there_is_no_room_for_more_pods() {
    let cluster = Cluster::start().await;
    let client = &cluster.admin;
    let quota = json!({"metadata": {"name": "one"}, "spec": {"hard": {"count/pods": "1"}}});
    create::<ResourceQuota>(client, quota).await;
    let is_known = |quota: &ResourceQuota| quota.status.as_ref().is_some_and(|status| status.used.is_some());
    until(client, "one", "known", is_known).await;
    create::<Job>(client, job("two", json!({"parallelism": 2, "completions": 2}), json!({}))).await;
    let counted = |job: &Job| job.status.as_ref().and_then(|status| status.succeeded) == Some(1);
    until(client, "two", "the end of the one that there was room for", counted).await;
    cluster.stop().await;
}
