//! Plans of CronJobs, by tables.

use super::*;
use jiff::tz::offset;
use serde_json::{Value, json};
use std::path::Path;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn cron_job(spec: Value, status: Value) -> Arc<CronJob> {
    let mut cron_job = json!({
        "metadata": {"namespace": "default", "name": "tick", "uid": "c", "creationTimestamp": "2026-01-01T00:30:00Z"},
        "spec": {"schedule": "0 * * * *", "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {}}}},
        "status": status,
    });
    for (key, value) in spec.as_object().expect("fields") {
        cron_job["spec"][key] = value.clone();
    }
    Arc::new(serde_json::from_value(cron_job).expect("a cron job"))
}

fn job(name: &str, end: Option<&str>) -> Arc<Job> {
    let conditions = end.map(|ty| json!([{"type": ty, "status": "True"}])).unwrap_or(json!([]));
    let job = json!({
        "metadata": {"namespace": "default", "name": name, "uid": name},
        "status": {"conditions": conditions, "startTime": "2026-01-01T00:00:00Z"},
    });
    Arc::new(serde_json::from_value(job).expect("a job"))
}

fn plan_at(now: &str, cron_job: Arc<CronJob>, jobs: &[Arc<Job>]) -> Plan {
    plan(&View { cron_job, jobs: jobs.to_vec(), zone: Ok(TimeZone::UTC) }, at(now))
}

fn done(plan: &Plan) -> Vec<String> {
    plan.writes.iter().map(|write| format!("{:?} {}", write.verb, write.target.key.name)).collect()
}

fn minute(text: &str) -> i64 {
    at(text).as_second() / 60
}

#[test]
fn a_job_is_started_when_its_time_has_come() {
    let plan = plan_at("2026-01-01T00:59:59Z", cron_job(json!({}), Value::Null), &[]);
    assert_eq!(done(&plan), Vec::<String>::new());
    assert_eq!(plan.look_again.expect("a time").as_secs(), 1);
    let plan = plan_at("2026-01-01T01:00:00Z", cron_job(json!({}), Value::Null), &[]);
    assert_eq!(done(&plan), [format!("Create tick-{}", minute("2026-01-01T01:00:00Z"))]);
    let body = &plan.writes[0].body;
    assert_eq!(body["metadata"]["annotations"][SCHEDULED], "2026-01-01T01:00:00Z");
    assert_eq!(body["metadata"]["labels"]["a"], "b");
    assert_eq!(plan.status.expect("a status").body["status"]["lastScheduleTime"], "2026-01-01T01:00:00Z");
}

#[test]
fn of_missed_times_only_the_last_is_started() {
    let plan = plan_at("2026-01-01T05:10:00Z", cron_job(json!({}), Value::Null), &[]);
    assert_eq!(done(&plan), [format!("Create tick-{}", minute("2026-01-01T05:00:00Z"))]);
    let late = cron_job(json!({"startingDeadlineSeconds": 60}), Value::Null);
    assert_eq!(done(&plan_at("2026-01-01T05:10:00Z", late, &[])), Vec::<String>::new());
    let months = plan_at("2026-03-01T05:10:00Z", cron_job(json!({}), Value::Null), &[]);
    assert_eq!(done(&months), [format!("Create tick-{}", minute("2026-03-01T05:00:00Z"))]);
    assert_eq!(months.events[0].reason, "TooManyMissedTimes");
}

#[test]
fn a_time_is_not_started_twice() {
    let status = json!({"lastScheduleTime": "2026-01-01T01:00:00Z"});
    assert_eq!(
        done(&plan_at("2026-01-01T01:00:05Z", cron_job(json!({}), status), &[])),
        Vec::<String>::new()
    );
    let started = job(&format!("tick-{}", minute("2026-01-01T01:00:00Z")), None);
    let plan = plan_at("2026-01-01T01:00:05Z", cron_job(json!({}), Value::Null), &[started]);
    assert_eq!(done(&plan), Vec::<String>::new(), "the status was lost, the job was not");
    assert_eq!(
        plan.status.expect("it is made up for").body["status"]["lastScheduleTime"],
        "2026-01-01T01:00:00Z"
    );
}

#[test]
fn concurrency_is_as_asked() {
    let new = format!("Create tick-{}", minute("2026-01-01T01:00:00Z"));
    let cases =
        [("Allow", vec![new.clone()]), ("Forbid", vec![]), ("Replace", vec!["Delete old".to_owned(), new])];
    for (policy, expected) in cases {
        let cron_job = cron_job(json!({"concurrencyPolicy": policy}), Value::Null);
        assert_eq!(
            done(&plan_at("2026-01-01T01:00:00Z", cron_job, &[job("old", None)])),
            expected,
            "{policy}"
        );
    }
    let suspended = cron_job(json!({"suspend": true}), Value::Null);
    assert_eq!(done(&plan_at("2026-01-01T01:00:00Z", suspended, &[])), Vec::<String>::new());
}

#[test]
fn old_jobs_go_and_running_ones_are_active() {
    let jobs: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| job(name, Some("Complete")))
        .chain([job("run", None)])
        .collect();
    let plan = plan_at("2026-01-01T00:40:00Z", cron_job(json!({}), Value::Null), &jobs);
    assert_eq!(done(&plan), ["Delete a"]);
    let active = plan.status.expect("a status").body["status"]["active"].clone();
    assert_eq!(active.as_array().map(Vec::len), Some(1));
    assert_eq!(active[0]["name"], "run");
}

#[test]
fn time_zones_and_their_changes_count() {
    let nowhere = Path::new("/nonexistent");
    let zone = times::zone_in(nowhere, "Europe/Berlin").expect("it is compiled in");
    let times = Times::new("30 2 * * *", zone.clone()).expect("a schedule");
    assert_eq!(times.after(at("2026-01-01T00:00:00Z")), Some(at("2026-01-01T01:30:00Z")));
    // Clocks go forward on March 29th at two, and back on October 25th at three.
    assert_eq!(times.after(at("2026-03-28T12:00:00Z")), Some(at("2026-03-29T01:30:00Z")));
    assert_eq!(times.after(at("2026-10-24T12:00:00Z")), Some(at("2026-10-25T00:30:00Z")));
    assert_eq!(times.after(at("2026-10-25T01:30:00Z")), Some(at("2026-10-26T01:30:00Z")));
    assert_eq!(times.written(at("2026-01-01T01:30:00Z")), "2026-01-01T02:30:00+01:00");
    assert_eq!(
        times::zone("Europe/Berlin").map(|zone| zone.to_offset(at("2026-07-01T00:00:00Z"))),
        Ok(offset(2))
    );
    assert!(times::zone("europe/berlin").is_err(), "as the API takes names");
    assert!(times::zone("../../etc/passwd").is_err());
    assert!(times::zone("Nowhere/Town").is_err());
}
