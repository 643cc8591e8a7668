//! Plain pods: from kubectl to SLURM and back.

use crate::support::{NODE, Site};
use serde_json::json;
use testing::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_as_a_job_and_its_end_comes_back() {
    let site = Site::start().await;
    let node = site.http().get(&format!("/api/v1/nodes/{NODE}")).await.expect(200);
    assert_eq!(node["status"]["allocatable"]["nvidia.com/gpu"], "3");
    assert_eq!(node["status"]["capacity"]["cpu"], "16");
    assert_eq!(node["metadata"]["labels"]["slurm.minik8s.io/partition.dgx2"], "true");
    assert_eq!(node["metadata"]["labels"]["slurm.minik8s.io/gpu.a100"], "2");

    site.pod("well", "echo hello; echo to stderr >&2; id -un", json!({})).await;
    let ended = site.ended("well").await;
    assert_eq!((&ended["phase"], &ended["exitCode"]), (&json!("Succeeded"), &json!(0)), "{ended}");
    assert_eq!(site.says(&["logs", "well"]), "hello\nto stderr\nnobody\n");
    assert_eq!(site.says(&["logs", "well", "--tail=1"]), "nobody\n");

    site.pod("badly", "exit 7", json!({})).await;
    let ended = site.ended("badly").await;
    assert_eq!((&ended["phase"], &ended["exitCode"]), (&json!("Failed"), &json!(7)), "{ended}");

    site.pod("killed", "kill -9 $BASHPID", json!({})).await;
    let ended = site.ended("killed").await;
    assert_eq!((&ended["exitCode"], &ended["signal"]), (&json!(137), &json!(9)), "{ended}");

    site.pod("long", "trap 'echo term; exit 3' TERM; echo up; while :; do sleep 0.1; done", json!({})).await;
    site.phase("long", "Running").await;
    eventually("its log", || async { (site.says(&["logs", "long"]) == "up\n").then_some(()) }).await;
    let said = site.says(&["exec", "long", "--", "sh", "-c", "id -un; echo $SLURM_JOB_ID"]);
    assert!(said.starts_with("nobody\n") && said.lines().count() == 2, "{said}");
    let status = site.kubectl(&["exec", "long", "--", "sh", "-c", "exit 9"]).status;
    assert_eq!(status.code(), Some(9));
    site.says(&["delete", "pod", "long", "--timeout=60s"]);
    let is_gone = |jobs: Vec<(String, String)>| jobs.iter().all(|(_, state)| state != "RUNNING");
    eventually("its job is gone", || async { is_gone(site.jobs()).then_some(()) }).await;

    // What is done is gone at the site with its pod.
    site.says(&["delete", "pod", "well", "badly", "killed"]);
    let data = site.slurm.dir().join("data/nobody");
    eventually("nothing is left at the site", || async {
        let entries = std::fs::read_dir(&data).expect("the folder of jobs").flatten();
        let left = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count();
        (left == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_are_given_counted_and_waited_for() {
    let site = Site::start().await;
    let gpus =
        |count: &str| json!({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": count}}}]}});
    let show = "echo $SLURM_JOB_GPUS | tr , '\\n' | wc -l; scontrol show job $SLURM_JOB_ID | grep -o 'gres:.*'; \
                while [ ! -e $MINIK8S_ROOT/go/on ]; do sleep 0.1; done";
    // The shared folder is how the test tells the jobs to end.
    std::fs::create_dir(site.slurm.dir().join("shared")).expect("a folder");
    let mut two = gpus("2");
    two["spec"]["volumes"] = json!([{"name": "go", "hostPath": {"path": site.slurm.dir().join("shared")}}]);
    two["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "go", "mountPath": "/go"}]);
    let mut one = two.clone();
    one["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = json!("1");
    one["metadata"] = json!({"annotations": {"slurm.minik8s.io/gpu-type": "v100"}});
    site.pod("two", show, two).await;
    site.phase("two", "Running").await;
    site.pod("typed", show, one.clone()).await;
    site.phase("typed", "Running").await;
    let said = |name: &str| site.says(&["logs", name]);
    eventually("two GPUs", || async { (said("two") == "2\ngres:gpu:2\n").then_some(()) }).await;
    eventually("one of that type", || async { (said("typed") == "1\ngres:gpu:v100:1\n").then_some(()) })
        .await;

    // The scheduler knows how many there are, but not who else uses the site.
    let others =
        site.slurm.says(&["sbatch", "--parsable", "--mem=1", "--gres=gpu:1", "--wrap=true", "--hold"]);
    assert!(!others.is_empty());
    site.says(&["delete", "pod", "typed", "--grace-period=1"]);
    let taken = site.slurm.says(&[
        "sbatch",
        "--parsable",
        "--mem=1",
        "--gres=gpu:1",
        "--output=/dev/null",
        "--wrap=sleep 600",
    ]);
    eventually("it is taken", || async {
        (site.slurm.says(&["squeue", "-h", "-j", &taken, "-o", "%T"]) == "RUNNING").then_some(())
    })
    .await;
    site.pod("waits", "echo mine", gpus("1")).await;
    let waits = |pod: &serde_json::Value| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        waiting["reason"] == "Queued"
            && waiting["message"].as_str().is_some_and(|text| {
                text.contains("PENDING (Resources)") || text.contains("PENDING (Priority)")
            })
    };
    site.pod_is("waits", "queued, with SLURM's reason", waits).await;
    site.slurm.says(&["scancel", &taken]);
    assert_eq!(site.ended("waits").await["exitCode"], 0);
    std::fs::write(site.slurm.dir().join("shared/on"), "").expect("written");
    assert_eq!(site.ended("two").await["exitCode"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_slurm_does_to_a_job_shows_in_its_pod() {
    let site = Site::start().await;
    // Refused, in SLURM's own words.
    site.pod(
        "nowhere",
        "true",
        json!({"metadata": {"annotations": {"slurm.minik8s.io/partition": "nowhere"}}}),
    )
    .await;
    let pod = site.phase("nowhere", "Failed").await;
    let message = pod["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("invalid partition specified: nowhere"), "{message}");
    let events = || async {
        let said = site.says(&[
            "get",
            "events",
            "-o",
            "jsonpath={range .items[*]}{.reason}: {.message}{'\\n'}{end}",
        ]);
        said.contains("SlurmRefused: sbatch: error: invalid partition").then_some(())
    };
    eventually("an event", events).await;
    // What a job cannot be is refused before.
    site.pod("host", "true", json!({"spec": {"hostNetwork": true}})).await;
    let pod = site.phase("host", "Failed").await;
    assert_eq!(pod["status"]["reason"], "NotSupportedBySlurm");
    site.http()
        .post(
            "/api/v1/namespaces",
            &json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "other"}}),
        )
        .await
        .expect(201);
    eventually("its service account", || async {
        (site.http().get("/api/v1/namespaces/other/serviceaccounts/default").await.code == 200).then_some(())
    })
    .await;
    site.pod("nobody", "true", json!({"metadata": {"namespace": "other"}})).await;
    eventually("a namespace without a name at the site runs nothing", || async {
        let said = site.says(&["get", "pod", "-n", "other", "nobody", "-o", "jsonpath={.status.reason}"]);
        (said == "NamespaceNotMapped").then_some(())
    })
    .await;

    // Cancelled by somebody at the site.
    let endless = "echo up; sleep 600";
    site.pod("cancelled", endless, json!({})).await;
    site.phase("cancelled", "Running").await;
    let job = |name: &str| {
        site.slurm.says(&["squeue", "-h", "-o", "%A %j"]).lines().find_map(|line| {
            let (job, jobs_name) = line.split_once(' ')?;
            jobs_name.starts_with(&format!("{name}.")).then(|| job.to_owned())
        })
    };
    site.slurm.says(&["scancel", &job("cancelled").expect("its job")]);
    let ended = site.ended("cancelled").await;
    assert_eq!(
        (&ended["phase"], &ended["exitCode"], &ended["reason"]),
        (&json!("Failed"), &json!(143), &json!("Cancelled")),
        "{ended}"
    );
    assert!(ended["message"].as_str().is_some_and(|text| text.contains("CANCELLED")), "{ended}");
    assert_eq!(site.says(&["logs", "cancelled"]), "up\n");

    // Requeued: the same job once more.
    site.pod(
        "again",
        "echo run $SLURM_RESTART_COUNT; [ \"$SLURM_RESTART_COUNT\" = 1 ] || sleep 600",
        json!({}),
    )
    .await;
    site.phase("again", "Running").await;
    eventually("its first run says so", async || (site.says(&["logs", "again"]) == "run\n").then_some(()))
        .await;
    let number = job("again").expect("its job");
    site.slurm.says(&["scontrol", "requeue", &number]);
    let requeued = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1;
    site.pod_is("again", "requeued", requeued).await;
    // SLURM lets two minutes pass by itself.
    eventually("it may start", || async {
        site.slurm
            .run(&["scontrol", "update", &format!("jobid={number}"), "starttime=now"])
            .status
            .success()
            .then_some(())
    })
    .await;
    let ended = site.ended("again").await;
    assert_eq!(ended["exitCode"], 0, "{ended}");
    assert_eq!(site.says(&["logs", "again"]), "run 1\n");
    let pod = site.get("again").await;
    assert_eq!(pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"], "Requeued");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_its_objects_and_a_shell_over_ssh_too() {
    let site = Site::start_with(crate::support::Way::Ssh, &testing::SlurmConfig::default(), "").await;
    for (kind, name, value) in [
        ("secrets", "sec", json!({"stringData": {"key": "s3cr3t"}})),
        ("configmaps", "cfg", json!({"data": {"a.txt": "text"}})),
    ] {
        let mut object = value;
        object["metadata"] = json!({"name": name});
        object["apiVersion"] = json!("v1");
        object["kind"] = json!(if kind == "secrets" { "Secret" } else { "ConfigMap" });
        site.http().post(&format!("/api/v1/namespaces/default/{kind}"), &object).await.expect(201);
    }
    let script = "cat $MINIK8S_ROOT/etc/cfg/a.txt; echo; echo $KEY; stat -Lc %a $MINIK8S_ROOT/etc/sec/key; \
                  for i in 1 2 3; do echo line $i; sleep 0.3; done; trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let more = json!({"spec": {
        "volumes": [{"name": "cfg", "configMap": {"name": "cfg"}}, {"name": "sec", "secret": {"secretName": "sec", "defaultMode": 0o400}}],
        "containers": [{
            "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "key"}}}],
            "volumeMounts": [{"name": "cfg", "mountPath": "/etc/cfg"}, {"name": "sec", "mountPath": "/etc/sec"}],
        }],
    }});
    site.pod("p", script, more).await;
    site.phase("p", "Running").await;
    eventually("its log", || async {
        (site.says(&["logs", "p"]) == "text\ns3cr3t\n400\nline 1\nline 2\nline 3\n").then_some(())
    })
    .await;
    assert_eq!(site.says(&["exec", "p", "--", "sh", "-c", "echo $KEY; id -un"]), "s3cr3t\nnobody\n");
    assert_eq!(site.kubectl(&["exec", "p", "--", "false"]).status.code(), Some(1));
    eventually("its usage", || async {
        let output = site.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/stats/summary")]);
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let memory = summary["pods"][0]["containers"][0]["memory"]["workingSetBytes"].as_u64()?;
        (memory > 0).then_some(())
    })
    .await;
    site.says(&["delete", "pod", "p", "--timeout=60s"]);
}
