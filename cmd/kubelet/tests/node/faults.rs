//! What may go wrong on a machine, and how it ends.

use crate::machine::{Machine, is_ready, on_a_network_of_its_own};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use testing::eventually;

const FOREVER: &str = "while true; do sleep 0.1; done";

fn runs(line: &str) -> Value {
    json!({"containers": [{"name": "c", "command": ["sh", "-c", line]}]})
}

fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}

#[test]
fn containers_that_misbehave() {
    on_a_network_of_its_own(|| async {
        let flags = ["--pod-max-pids=64", "--container-log-max-size=1Mi", "--container-log-max-files=2"];
        let machine = Machine::ready_with(&flags).await;
        machine.create("forks", runs("(while true; do sleep 1000 & done); exec tail -f /dev/null")).await;
        let mut eats = runs("exec tail /dev/zero");
        eats["restartPolicy"] = "Never".into();
        eats["containers"][0]["resources"] = json!({"limits": {"memory": "16Mi"}});
        machine.create("eats", eats).await;
        machine.create("deaf", runs("trap '' TERM; while true; do sleep 0.1; done")).await;
        // A gigabyte, if there is time.
        let log = if std::env::var_os("SOAK").is_some() { "1024m" } else { "64m" };
        let line = format!(
            "x=$(printf %0200d 0); yes $x | head -c {log}; while true; do echo the end; yes $x | head -c 1m; sleep 1; done"
        );
        machine.create("chatters", runs(&line)).await;
        let mut missing = runs(FOREVER);
        missing["containers"][0]["image"] = "127.0.0.1:1/missing:1".into();
        machine.create("missing", missing).await;
        machine
            .create("broken", json!({"containers": [{"name": "c", "command": ["/no/such/program"]}]}))
            .await;

        let eaten = machine.until("eats", "it has failed", |pod| pod["status"]["phase"] == "Failed").await;
        let ended = &container(&eaten)["state"]["terminated"];
        assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("OOMKilled"), &json!(137)));
        let reason = |pod: &Value| container(pod)["state"]["waiting"]["reason"].clone();
        machine.until("missing", "it waits for its image", |pod| reason(pod) == "ImagePullBackOff").await;
        machine
            .until("broken", "it cannot run", |pod| {
                let last = &container(pod)["lastState"]["terminated"];
                last["exitCode"] == 128 && last["reason"] == "StartError"
            })
            .await;
        machine.until("deaf", "it is ready", is_ready).await;
        // The others are not disturbed by the one that forks, and it has no more than its share.
        let forks = machine.until("forks", "it is ready", is_ready).await;
        let group = format!("pod{}", forks["metadata"]["uid"].as_str().expect("a uid"));
        let most = eventually("it has all that it may have", || async {
            let groups = machine.containerd.cgroups();
            let own = groups.iter().filter(|path| path.ends_with(&group));
            let counts = own.filter_map(|path| std::fs::read_to_string(path.join("pids.current")).ok());
            counts.filter_map(|count| count.trim().parse::<u64>().ok()).find(|count| *count > 50)
        })
        .await;
        assert!(most <= 64, "{most}");
        eventually("the long log is written, and what is kept of it is bounded", || async {
            let is_written = machine.output("chatters", "c").contains("the end");
            (is_written && bytes_below(&machine.dir("logs")) < 48 << 20).then_some(())
        })
        .await;
        for name in ["forks", "eats", "deaf", "chatters", "missing", "broken"] {
            machine.pods().delete(name, &Default::default()).await.expect("deleted");
        }
        for name in ["forks", "eats", "deaf", "chatters", "missing", "broken"] {
            machine.until(name, "it is gone", Value::is_null).await;
        }
        machine.nothing_is_left().await;
    });
}

#[test]
fn a_full_disk_costs_who_filled_it() {
    on_a_network_of_its_own(|| async {
        let mut machine = Machine::new(true).await;
        // A disk of its own, so that it can be full.
        let disk = machine.dir("kubelet");
        std::fs::create_dir_all(&disk).expect("a folder");
        nix::mount::mount(Some("disk"), &disk, Some("tmpfs"), nix::mount::MsFlags::empty(), Some("size=64m"))
            .expect("a disk");
        machine.start_with(&[
            "--eviction-hard=nodefs.available<20%",
            "--eviction-pressure-transition-period=1s",
        ]);
        machine.until_node("Ready", "True").await;
        machine.create("modest", runs(FOREVER)).await;
        let in_volume = |line: &str, limit: Value| {
            let mut spec = runs(line);
            spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
            spec["volumes"] = json!([{"name": "v", "emptyDir": {"sizeLimit": limit}}]);
            spec
        };
        let write = |size: &str| format!("dd if=/dev/zero of=/v/file bs=1M count={size}; {FOREVER}");
        machine.create("limited", in_volume(&write("4"), "1Mi".into())).await;
        let before = machine.until("modest", "it is ready", is_ready).await;
        let is_evicted =
            |pod: &Value| pod["status"]["phase"] == "Failed" && pod["status"]["reason"] == "Evicted";
        let limited = machine.until("limited", "it is evicted", is_evicted).await;
        let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
        assert_eq!(limited["status"]["message"], message);

        machine.create("greedy", in_volume(&write("1000"), Value::Null)).await;
        let greedy = machine.until("greedy", "it is evicted", is_evicted).await;
        let said = greedy["status"]["message"].as_str().expect("a message");
        assert!(
            said.starts_with("The node was low on resource: ephemeral-storage. Threshold quantity: "),
            "{said}"
        );
        let conditions = greedy["status"]["conditions"].as_array().expect("conditions");
        let disrupted = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget");
        assert_eq!(disrupted.expect("a condition")["reason"], "TerminationByKubelet");
        // All is well again.
        machine.until_node("DiskPressure", "False").await;
        machine.create("next", runs(FOREVER)).await;
        machine.until("next", "it is ready", is_ready).await;
        let after = machine.until("modest", "it is ready", is_ready).await;
        assert_eq!(container(&after)["containerID"], container(&before)["containerID"]);
        for name in ["limited", "greedy", "modest", "next"] {
            machine.delete(name).await;
        }
        machine.nothing_is_left().await;
    });
}

#[test]
fn whatever_dies_the_pods_are_back() {
    on_a_network_of_its_own(|| async {
        let mut machine = Machine::ready().await;
        let manifest = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static"},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
                "name": "c", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", FOREVER],
            }]},
        });
        std::fs::write(machine.manifests().join("static.yaml"), manifest.to_string()).expect("written");
        let mut done = manifest;
        done["metadata"]["name"] = "done".into();
        done["spec"]["restartPolicy"] = "Never".into();
        done["spec"]["containers"][0]["command"] = json!(["echo", "done"]);
        std::fs::write(machine.manifests().join("done.yaml"), done.to_string()).expect("written");
        let all = ["a", "b", "static-n1"];
        let mut keeps = runs(&format!("test -e /v/file && echo kept; touch /v/file; {FOREVER}"));
        keeps["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        keeps["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
        machine.create("a", keeps).await;
        machine.create("b", runs(FOREVER)).await;
        let mut once = runs("echo once");
        once["restartPolicy"] = "Never".into();
        machine.create("once", once).await;
        let go = machine.dir("go");
        let mut ends = runs("until [ -e /node/go ]; do sleep 0.1; done; echo went; exit 7");
        ends["restartPolicy"] = "Never".into();
        ends["containers"][0]["volumeMounts"] = json!([{"name": "node", "mountPath": "/node"}]);
        ends["volumes"] = json!([{"name": "node", "hostPath": {"path": machine.dir("")}}]);
        machine.create("ends", ends).await;
        for name in all.iter().chain(&["ends"]) {
            machine.until(name, "it is ready", is_ready).await;
        }
        for name in ["once", "done-n1"] {
            machine.until(name, "it is done", |pod| pod["status"]["phase"] == "Succeeded").await;
        }
        let id = |pod: &Value| container(pod)["containerID"].clone();
        let restarts = |pod: &Value| container(pod)["restartCount"].as_i64().unwrap_or(-1);

        // The apiserver is away: what happens meanwhile is told afterwards.
        let before = machine.until("a", "it is there", |pod| !pod.is_null()).await;
        let ends = machine.until("ends", "it is there", |pod| !pod.is_null()).await;
        let folder = machine.dir("kubelet/pods").join(ends["metadata"]["uid"].as_str().expect("a uid"));
        machine.server.as_mut().expect("a server").stop().await;
        std::fs::write(&go, "").expect("written");
        eventually("it ends meanwhile, and nothing of it is left", || async {
            (machine.output("ends", "c").contains("went") && !folder.exists()).then_some(())
        })
        .await;
        machine.kill();
        machine.start();
        machine.server.as_mut().expect("a server").restart().await;
        let ended = machine.until("ends", "its end is told", |pod| pod["status"]["phase"] == "Failed").await;
        assert_eq!(container(&ended)["state"]["terminated"]["exitCode"], 7);
        let after = machine.until("a", "it is ready", is_ready).await;
        assert_eq!(id(&after), id(&before), "it was not disturbed");

        // containerd dies, and a shim.
        machine.containerd.kill();
        machine.until_node("Ready", "False").await;
        machine.containerd.start_again();
        machine.until_node("Ready", "True").await;
        let after = machine.until("a", "it is ready", is_ready).await;
        assert_eq!(id(&after), id(&before), "it was not disturbed");
        for shim in machine.shims() {
            // Shims of pods that have ended may be going by themselves.
            let killed = kill(Pid::from_raw(shim), Signal::SIGKILL);
            assert!(matches!(killed, Ok(()) | Err(Errno::ESRCH)), "{killed:?}");
        }
        for name in all {
            machine.until(name, "it runs again", |pod| is_ready(pod) && restarts(pod) == 1).await;
        }

        // The power fails.
        machine.reboot();
        machine.start();
        let mut addresses = Vec::new();
        for name in all {
            let pod = machine.until(name, "it runs again", |pod| is_ready(pod) && restarts(pod) == 2).await;
            addresses.push(pod["status"]["podIP"].to_string());
        }
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), all.len(), "{addresses:?}");
        eventually("what it had is still there", || async {
            (machine.output("a", "c").matches("kept").count() >= 2).then_some(())
        })
        .await;
        let once = machine.until("once", "it is there", |pod| !pod.is_null()).await;
        assert_eq!((&once["status"]["phase"], restarts(&once)), (&json!("Succeeded"), 0));
        assert_eq!(machine.output("done-n1", "c"), "done\n", "it ran once");
        for file in ["static.yaml", "done.yaml"] {
            std::fs::remove_file(machine.manifests().join(file)).expect("removed");
        }
        for name in ["a", "b", "once", "ends"] {
            machine.delete(name).await;
        }
        machine.nothing_is_left().await;
    });
}

#[test]
fn a_containerd_that_does_not_answer_holds_up_nobody() {
    on_a_network_of_its_own(|| async {
        let mut machine = Machine::ready().await;
        machine.create("stays", runs(FOREVER)).await;
        let before = machine.until("stays", "it is ready", is_ready).await;
        let containerd = Pid::from_raw(machine.containerd.pid().try_into().expect("a pid"));
        kill(containerd, Signal::SIGSTOP).expect("stopped");
        machine.until_node("Ready", "False").await;
        // One that has worked with it ends, and one that never heard of it.
        let mut took = vec![machine.terminate()];
        machine.start();
        eventually("it runs", || async { machine.log().contains("kubelet runs").then_some(()) }).await;
        took.push(machine.terminate());
        kill(containerd, Signal::SIGCONT).expect("it goes on");
        assert!(took.iter().all(|took| *took < Duration::from_secs(5)), "{took:?}");
        machine.start();
        machine.until_node("Ready", "True").await;
        let after = machine.until("stays", "it is ready", is_ready).await;
        assert_eq!(container(&after)["containerID"], container(&before)["containerID"]);
        machine.delete("stays").await;
        machine.nothing_is_left().await;
    });
}
