//! Programs that are killed and frozen: no job twice, none lost, and what is left over found.

use crate::support::{Site, Way};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::Command;
use testing::{SlurmConfig, eventually};

/// Whole with SOAK=1, a twentieth without.
fn times(whole: usize) -> usize {
    if std::env::var_os("SOAK").is_some() { whole } else { whole.div_ceil(20) }
}

/// What a job of these tests does: it leaves a line of its own.
fn leaves_a_line(site: &Site) -> (String, serde_json::Value) {
    let shared = site.slurm.dir().join("shared");
    std::fs::create_dir_all(&shared).expect("a folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(&shared, mode).expect("its mode");
    let runs = shared.join("runs");
    if !runs.exists() {
        std::fs::write(&runs, "").expect("written");
        std::fs::set_permissions(&runs, std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .expect("its mode");
    }
    (format!("echo $NAME >> {}; sleep 0.$((RANDOM % 5))", runs.display()), json!({}))
}

/// How often each pod has run.
fn runs(site: &Site) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(site.slurm.dir().join("shared/runs")).expect("the runs");
    let mut runs = BTreeMap::new();
    for name in text.lines() {
        *runs.entry(name.to_owned()).or_default() += 1;
    }
    runs
}

async fn killed(way: Way, kills: usize) {
    let mut site = Site::start_with(way, &SlurmConfig { cpus: 64, ..SlurmConfig::default() }, "").await;
    let (script, _) = leaves_a_line(&site);
    let mut names = Vec::new();
    for kill in 0..kills {
        for number in 0..4 {
            let name = format!("p{kill}-{number}");
            let more = json!({"spec": {"containers": [{"env": [{"name": "NAME", "value": name}]}]}});
            site.pod(&name, &script, more).await;
            names.push(name);
        }
        // Sooner and later after the pods were made, so that every step is hit.
        let pause = std::time::Duration::from_millis(37 * (kill as u64 % 29));
        tokio::time::sleep(pause).await;
        site.kill_kubelet();
        site.start_kubelet();
    }
    for name in &names {
        let ended = site.ended(name).await;
        assert_eq!(ended["exitCode"], 0, "{name}: {ended}");
    }
    let runs = runs(&site);
    for name in &names {
        assert_eq!(runs.get(name), Some(&1), "{name} has run once");
    }
    // Also those that did nothing.
    let jobs = site.slurm.says(&["squeue", "--states=all", "--noheader", "--format=%j"]);
    let twice = jobs.lines().count() - names.len();
    println!("{kills} kills, {} pods, {twice} jobs too many, which did nothing", names.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_is_killed_submits_nothing_twice_and_loses_nothing() {
    killed(Way::Local, times(100)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_frozen_or_dead_costs_time_and_nothing_else() {
    let config = SlurmConfig { message_timeout_s: 2, ..SlurmConfig::default() };
    let mut site = Site::start_with(Way::Local, &config, "").await;
    let (script, _) = leaves_a_line(&site);
    let signal = |site: &Site, signal: &str| {
        let status = Command::new("kill").args(["-s", signal, &site.slurm.controller().to_string()]).status();
        assert!(status.expect("kill runs").success());
    };
    let named = |name: &str| json!({"spec": {"containers": [{"env": [{"name": "NAME", "value": name}]}]}});
    // In the middle of sbatch.
    signal(&site, "STOP");
    site.pod("frozen", &script, named("frozen")).await;
    eventually("sbatch has given up", || async {
        let said = site.says(&["get", "events", "-o", "jsonpath={.items[*].reason}"]);
        said.contains("SlurmUnavailable").then_some(())
    })
    .await;
    signal(&site, "CONT");
    assert_eq!(site.ended("frozen").await["exitCode"], 0);

    site.slurm.kill_controller();
    site.pod("dead", &script, named("dead")).await;
    eventually("the node is not ready", || async {
        let said = site.says(&[
            "get",
            "node",
            crate::support::NODE,
            "-o",
            "jsonpath={.status.conditions[?(@.type=='Ready')].status}",
        ]);
        (said == "False").then_some(())
    })
    .await;
    site.slurm.start_controller();
    assert_eq!(site.ended("dead").await["exitCode"], 0);
    let runs = runs(&site);
    assert_eq!((runs.get("frozen"), runs.get("dead")), (Some(&1), Some(&1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_pods_that_went_meanwhile_are_ended() {
    let mut site = Site::start().await;
    site.pod("orphan", "sleep 600", json!({})).await;
    site.phase("orphan", "Running").await;
    site.kill_kubelet();
    site.http()
        .delete("/api/v1/namespaces/default/pods/orphan", &json!({"gracePeriodSeconds": 0}))
        .await
        .expect(200);
    // And one that carries our mark, of which nothing is on disk.
    let mark = std::fs::read_to_string(site.records().join("mark")).expect("the mark");
    let comment = format!("--comment=minik8s:{}:unheard-of", mark.trim());
    let stray = site.slurm.says(&[
        "runuser",
        "-u",
        "nobody",
        "--",
        "sbatch",
        "--parsable",
        "--mem=1",
        "--output=/dev/null",
        "--chdir=/",
        &comment,
        "--wrap=sleep 600",
    ]);
    assert!(!stray.is_empty());
    site.start_kubelet();
    eventually("both are gone", || async {
        let left = site.slurm.says(&["squeue", "--noheader", "--format=%i %T"]);
        left.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_vanished_from_the_queue_is_asked_of_accounting() {
    let config = SlurmConfig { accounting: true, min_job_age_s: 2, ..SlurmConfig::default() };
    let mut site = Site::start_with(Way::Local, &config, "").await;
    site.pod("gone", "sleep 600", json!({})).await;
    site.phase("gone", "Running").await;
    site.kill_kubelet();
    site.slurm.says(&["scancel", "--full", "--signal=KILL", "--user=nobody"]);
    eventually("the queue has forgotten it", || async {
        site.slurm.says(&["squeue", "--states=all", "--noheader"]).is_empty().then_some(())
    })
    .await;
    site.start_kubelet();
    let ended = site.ended("gone").await;
    assert_eq!((&ended["phase"], &ended["reason"]), (&json!("Failed"), &json!("Cancelled")), "{ended}");
    assert_eq!(ended["exitCode"], 143, "{ended}");
}
