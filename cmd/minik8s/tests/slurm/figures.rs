//! Many jobs at once, and what they cost.

use crate::support::{Site, Way};
use serde_json::json;
use std::time::Instant;
use testing::SlurmConfig;

#[tokio::test(flavor = "multi_thread")]
async fn many_jobs_at_once_all_come_back() {
    let count = if std::env::var_os("SOAK").is_some() { 200 } else { 10 };
    let site = Site::start_with(Way::Local, &SlurmConfig { cpus: 256, ..SlurmConfig::default() }, "").await;
    let begun = Instant::now();
    for number in 0..count {
        site.pod(&format!("p{number}"), &format!("echo {number}"), json!({})).await;
    }
    for number in 0..count {
        let ended = site.ended(&format!("p{number}")).await;
        assert_eq!(ended["exitCode"], 0, "{ended}");
    }
    let jobs = site.jobs();
    assert_eq!(jobs.len(), count, "one job each: {jobs:?}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", site.kubelet())).unwrap_or_default();
    let memory = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    println!(
        "{count} jobs: {:.1} s from the first pod to the last end, kubelet {memory}",
        begun.elapsed().as_secs_f64()
    );
}
