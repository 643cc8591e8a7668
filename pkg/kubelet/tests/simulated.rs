//! Whole kubelets on a simulated runtime, against a real apiserver in this process.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kubelet::Config;
use kubelet::simulated::{Act, Simulated};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use testing::{TestServer, eventually, in_time};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

struct Kubelet {
    shutdown: CancellationToken,
    running: JoinHandle<Result<(), kubelet::Error>>,
}

impl Kubelet {
    fn start(server: &TestServer, name: &str, runtime: Arc<Simulated>) -> Kubelet {
        let shutdown = CancellationToken::new();
        let config = Config::simulated(name, server.node(name), runtime);
        Kubelet { running: tokio::spawn(kubelet::run(config, shutdown.clone())), shutdown }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        in_time("the kubelet ends", self.running).await.expect("no panic").expect("a clean end");
    }
}

struct Cluster {
    server: TestServer,
    pods: Api<Pod>,
    nodes: Api<Node>,
}

impl Cluster {
    async fn start() -> Cluster {
        let server = TestServer::start().await;
        let pods = Api::namespaced(server.admin(), "default");
        let nodes = Api::all(server.admin());
        Cluster { server, pods, nodes }
    }

    async fn ready(&self, node: &str) -> Node {
        eventually("the node is ready", || async {
            let node = self.nodes.get_opt(node).await.expect("an answer")?;
            let conditions = node.status.as_ref()?.conditions.clone()?;
            conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True").then_some(node)
        })
        .await
    }

    async fn create(&self, name: &str, node: &str, mut spec: Value) {
        spec["nodeName"] = node.into();
        spec["automountServiceAccountToken"] = false.into();
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "c", "image": "busybox"}]);
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        let pod = serde_json::from_value(pod).expect("a pod");
        eventually("the service account is there", || async {
            self.pods.create(&PostParams::default(), &pod).await.ok()
        })
        .await;
    }

    async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let last = std::cell::RefCell::new(Value::Null);
        let found = tokio::time::timeout(testing::PATIENCE, async {
            loop {
                let pod = self.pods.get_opt(name).await.expect("an answer");
                let pod = serde_json::to_value(pod).expect("JSON");
                if holds(&pod) {
                    return pod;
                }
                *last.borrow_mut() = pod;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        found.await.unwrap_or_else(|_| panic!("waited in vain: {what}: {:#}", last.borrow()["status"]))
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_and_ends() {
    let cluster = Cluster::start().await;
    let kubelet = Kubelet::start(&cluster.server, "n1", Arc::new(Simulated::new()));
    let node = cluster.ready("n1").await;
    let status = node.status.expect("a status");
    assert_eq!(status.capacity.expect("capacity")["cpu"].0, "8");
    let leases: Api<Lease> = Api::namespaced(cluster.server.admin(), "kube-node-lease");
    eventually("the lease is there", || async { leases.get_opt("n1").await.expect("an answer") }).await;

    cluster.create("web", "n1", json!({})).await;
    let pod = cluster.until("web", "it is ready", is_ready).await;
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["containerStatuses"][0]["ready"], true);
    assert!(pod["status"]["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.")));
    assert_eq!(pod["status"]["hostIP"], "192.0.2.1");
    assert_eq!(pod["status"]["qosClass"], "BestEffort");
    let text = pod["status"]["containerStatuses"][0]["containerID"].as_str().expect("an id");
    assert!(text.starts_with("simulated://"), "{text}");

    cluster.pods.delete("web", &DeleteParams::default()).await.expect("deleted");
    cluster.until("web", "it is gone", Value::is_null).await;
    kubelet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_crashes_and_init_containers() {
    let cluster = Cluster::start().await;
    let runtime = Simulated::with(|pod, name, attempt| match (pod.name.as_str(), name, attempt) {
        ("job", "c", _) | (_, "init", _) => {
            Act { ends: Some((Duration::from_millis(10), 0)), ..Act::default() }
        }
        ("failing", "c", _) => Act { ends: Some((Duration::from_millis(10), 3)), ..Act::default() },
        ("crashing", "c", 0 | 1) => Act { ends: Some((Duration::from_millis(10), 1)), ..Act::default() },
        _ => Act::default(),
    });
    let kubelet = Kubelet::start(&cluster.server, "n1", Arc::new(runtime));
    cluster.ready("n1").await;

    cluster.create("job", "n1", json!({"restartPolicy": "Never"})).await;
    let done = cluster.until("job", "it has succeeded", |pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(done["status"]["containerStatuses"][0]["state"]["terminated"]["reason"], "Completed");

    cluster.create("failing", "n1", json!({"restartPolicy": "Never"})).await;
    let failed = cluster.until("failing", "it has failed", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);

    cluster.create("crashing", "n1", json!({})).await;
    let waits = cluster
        .until("crashing", "it waits", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        })
        .await;
    let status = &waits["status"]["containerStatuses"][0];
    assert_eq!(status["restartCount"], 1, "the first restart comes at once");
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 1);
    let message = status["state"]["waiting"]["message"].as_str().expect("a message");
    assert!(
        message.starts_with("back-off 10s restarting failed container=c pod=crashing_default("),
        "{message}"
    );
    let again = cluster.until("crashing", "it runs", is_ready).await;
    assert_eq!(again["status"]["containerStatuses"][0]["restartCount"], 2);

    let init = json!([{"name": "init", "image": "busybox"}]);
    cluster.create("prepared", "n1", json!({"initContainers": init})).await;
    let ready = cluster.until("prepared", "it is ready", is_ready).await;
    assert_eq!(ready["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    for name in ["job", "failing", "crashing", "prepared"] {
        cluster.pods.delete(name, &DeleteParams::default().grace_period(1)).await.expect("deleted");
        cluster.until(name, "it is gone", Value::is_null).await;
    }
    kubelet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_kubelet_takes_the_pods_up() {
    let cluster = Cluster::start().await;
    let runtime = Arc::new(Simulated::new());
    let kubelet = Kubelet::start(&cluster.server, "n1", runtime.clone());
    cluster.ready("n1").await;
    for name in ["stays", "goes"] {
        cluster.create(name, "n1", json!({})).await;
    }
    let before = cluster.until("stays", "it is ready", is_ready).await;
    cluster.until("goes", "it is ready", is_ready).await;
    kubelet.stop().await;

    cluster.pods.delete("goes", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    let again = Kubelet::start(&cluster.server, "n1", runtime.clone());
    eventually("what nobody wants is ended", || async {
        use kubelet::runtime::Runtime;
        let pods = runtime.pods().await.expect("pods");
        (pods.len() == 1).then_some(())
    })
    .await;
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    let after = cluster.until("stays", "it is ready", is_ready).await;
    assert_eq!(id(&after), id(&before), "the same container runs on");

    runtime.reboot();
    let rebooted = cluster
        .until("stays", "it runs again", |pod| {
            is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == 1
        })
        .await;
    assert_ne!(id(&rebooted), id(&before));
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_was_cut_off_until_all_was_history_hears_again() {
    let mut cluster = Cluster::start().await;
    let kubelet = Kubelet::start(&cluster.server, "n1", Arc::new(Simulated::new()));
    cluster.ready("n1").await;
    cluster.create("before", "n1", json!({})).await;
    cluster.until("before", "it is ready", is_ready).await;

    cluster.server.forget().await;
    // Its pods, those that come and those that go; and itself.
    cluster.create("after", "n1", json!({})).await;
    cluster.until("after", "it is ready", is_ready).await;
    cluster.pods.delete("before", &DeleteParams::default()).await.expect("deleted");
    cluster.until("before", "it is gone", Value::is_null).await;
    let label = kube::api::Patch::Merge(json!({"metadata": {"labels": {"disk": "fast"}}}));
    cluster.nodes.patch("n1", &Default::default(), &label).await.expect("a label");
    let picky = json!({"nodeSelector": {"disk": "fast"}});
    eventually("the kubelet knows its label", || async {
        let name = format!("picky-{}", fastrand::u32(..));
        cluster.create(&name, "n1", picky.clone()).await;
        let pod = cluster
            .until(&name, "it is taken or refused", |pod| is_ready(pod) || pod["status"]["phase"] == "Failed")
            .await;
        is_ready(&pod).then_some(())
    })
    .await;
    kubelet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_fit_is_refused() {
    let cluster = Cluster::start().await;
    let kubelet = Kubelet::start(&cluster.server, "n1", Arc::new(Simulated::new()));
    cluster.ready("n1").await;
    let huge = json!({"containers": [{"name": "c", "image": "a", "resources": {"requests": {"cpu": "9"}}}]});
    cluster.create("huge", "n1", huge).await;
    let failed = cluster.until("huge", "it is refused", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(failed["status"]["reason"], "OutOfcpu");
    let message = failed["status"]["message"].as_str().expect("a message");
    assert_eq!(
        message,
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 9000, used: 0, capacity: 8000"
    );
    cluster.create("late", "n1", json!({"activeDeadlineSeconds": 1})).await;
    let failed = cluster.until("late", "its time is over", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(failed["status"]["reason"], "DeadlineExceeded");
    kubelet.stop().await;
}

fn condition<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == name)
}

fn asks(cpu: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_grows_waits_for_room_and_a_restart_forgets_neither() {
    let cluster = Cluster::start().await;
    let runtime = Arc::new(Simulated::new());
    let kubelet = Kubelet::start(&cluster.server, "n1", runtime.clone());
    cluster.ready("n1").await;
    for (name, cpu) in [("a", "4"), ("b", "3"), ("c", "500m")] {
        cluster.create(name, "n1", asks(cpu)).await;
        cluster.until(name, "it is ready", is_ready).await;
    }
    let resize = async |cpu: &str| {
        let patch = kube::api::Patch::Strategic(json!({"spec": asks(cpu)}));
        cluster.pods.patch_subresource("resize", "c", &Default::default(), &patch).await.expect("resized");
    };
    let waits = |pod: &Value, reason: &str| {
        condition(pod, "PodResizePending").is_some_and(|condition| condition["reason"] == reason)
    };
    let of = |pod: &Value| {
        let status = &pod["status"]["containerStatuses"][0];
        (status["allocatedResources"]["cpu"].clone(), status["resources"]["requests"]["cpu"].clone())
    };

    resize("2").await;
    let pod = cluster.until("c", "it waits", |pod| waits(pod, "Deferred")).await;
    let said = condition(&pod, "PodResizePending").expect("it waits");
    let message = "Node didn't have enough resource: cpu, requested: 2000, used: 7000, capacity: 8000";
    assert_eq!((&said["message"], &said["observedGeneration"]), (&json!(message), &json!(2)));
    assert_eq!(of(&pod), (json!("500m"), json!("500m")), "it has what it had");

    kubelet.stop().await;
    let kubelet = Kubelet::start(&cluster.server, "n1", runtime.clone());
    // By the time the new kubelet has started another pod it has looked at this one.
    cluster.create("d", "n1", asks("400m")).await;
    cluster.until("d", "it is ready", is_ready).await;
    let pod = cluster.until("c", "it waits still", |pod| waits(pod, "Deferred")).await;
    assert_eq!(of(&pod), (json!("500m"), json!("500m")), "it has what it had");

    cluster.pods.delete("b", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    let grown =
        |pod: &Value| of(pod) == (json!("2"), json!("2")) && condition(pod, "PodResizeInProgress").is_none();
    let pod = cluster.until("c", "it has grown", grown).await;
    assert_eq!(condition(&pod, "PodResizePending"), None);
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    assert_eq!(pod["status"]["observedGeneration"], 2);

    resize("9").await;
    let pod = cluster.until("c", "it will never fit", |pod| waits(pod, "Infeasible")).await;
    let message = "Node didn't have enough capacity: cpu, requested: 9000, capacity: 8000";
    assert_eq!(condition(&pod, "PodResizePending").expect("it waits")["message"], message);
    assert_eq!(of(&pod), (json!("2"), json!("2")));
    resize("2").await;
    cluster.until("c", "it waits no more", |pod| condition(pod, "PodResizePending").is_none()).await;
    kubelet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_stays_away_until_a_kubelet_starts() {
    let cluster = Cluster::start().await;
    let runtime = Arc::new(Simulated::new());
    let kubelet = Kubelet::start(&cluster.server, "n1", runtime.clone());
    let first = cluster.ready("n1").await;
    cluster.nodes.delete("n1", &DeleteParams::default()).await.expect("deleted");
    let comes_back = async {
        while cluster.nodes.get_opt("n1").await.expect("an answer").is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // It would have been there within one.
    assert!(tokio::time::timeout(Duration::from_secs(3), comes_back).await.is_err(), "somebody deleted it");
    kubelet.stop().await;
    let kubelet = Kubelet::start(&cluster.server, "n1", runtime);
    assert_ne!(cluster.ready("n1").await.metadata.uid, first.metadata.uid);
    kubelet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_called_silent_says_that_it_is_not() {
    let cluster = Cluster::start().await;
    let kubelet = Kubelet::start(&cluster.server, "n1", Arc::new(Simulated::new()));
    cluster.ready("n1").await;
    // As the controllers do of a node whose cable was out for a minute.
    let conditions = json!([{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]);
    let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
    let node = cluster.nodes.patch_status("n1", &PatchParams::default(), &patch).await.expect("patched");
    let ready = |node: Node| {
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_ == "Ready").map(|ready| ready.status)
    };
    assert_eq!(ready(node).as_deref(), Some("Unknown"));
    cluster.ready("n1").await;
    kubelet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_given_back_is_taken_at_once() {
    use kubelet::node::{GIVEN_BACK, Holder, give_back, holder};
    let cluster = Cluster::start().await;
    let client = cluster.server.node("n1");
    let (here, elsewhere) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    // As a kubelet with a disk keeps it; a simulated one goes by its name.
    for (folder, id) in [(&here, "n1"), (&elsewhere, "another")] {
        std::fs::write(folder.path().join("kubelet-id"), id).expect("written");
    }
    let kubelet = Kubelet::start(&cluster.server, "n1", Arc::new(Simulated::new()));
    cluster.ready("n1").await;
    eventually("it has said that the node is its own", || async {
        (holder(&client, "n1", here.path()).await.expect("an answer") == Holder::Own).then_some(())
    })
    .await;
    kubelet.stop().await;
    // Another machine does not give away what is not its own.
    assert!(!give_back(&client, "n1", elsewhere.path(), "reset").await.expect("an answer"));
    assert!(give_back(&client, "n1", here.path(), "reset").await.expect("an answer"));
    let node = cluster.nodes.get("n1").await.expect("it is there");
    assert_eq!(node.metadata.annotations.expect("annotations")[GIVEN_BACK], "reset");
    let conditions = node.status.expect("a status").conditions.expect("conditions");
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").expect("a word");
    assert_eq!((ready.status.as_str(), ready.message.as_deref()), ("False", Some("reset")));
    assert_eq!(holder(&client, "n1", here.path()).await.expect("an answer"), Holder::Nobody);

    let kubelet = Kubelet::start(&cluster.server, "n1", Arc::new(Simulated::new()));
    let node = cluster.ready("n1").await;
    assert!(!node.metadata.annotations.expect("annotations").contains_key(GIVEN_BACK));
    kubelet.stop().await;
}

/// Another kubelet says on the lease that it has the node, again and again.
async fn claim(leases: &Api<Lease>, word: &str) {
    loop {
        let lease = json!({"metadata": {"annotations": {"minik8s.io/kubelet": word}}, "spec": {
            "holderIdentity": "n1", "leaseDurationSeconds": 40,
            "renewTime": MicroTime(jiff::Timestamp::now()),
        }});
        leases.patch("n1", &PatchParams::default(), &Patch::Merge(lease)).await.expect("patched");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn ends_as_taken(kubelet: Kubelet, leases: &Api<Lease>, by: &str) {
    let ended = in_time("the kubelet ends", async {
        tokio::select! {
            ended = kubelet.running => ended.expect("no panic"),
            () = claim(leases, by) => unreachable!("it goes on for ever"),
        }
    });
    let said = ended.await.expect_err("somebody else has the node").to_string();
    assert!(said.contains("another kubelet has node \"n1\""), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_kubelets_with_one_node_one_stops() {
    let cluster = Cluster::start().await;
    let runtime = Arc::new(Simulated::new());
    let leases: Api<Lease> = Api::namespaced(cluster.server.admin(), "kube-node-lease");
    let kubelet = Kubelet::start(&cluster.server, "n1", runtime.clone());
    cluster.ready("n1").await;
    eventually("the lease is there", || async { leases.get_opt("n1").await.expect("an answer") }).await;
    // One came while this one was not heard of, and is there.
    ends_as_taken(kubelet, &leases, "another.machine/1").await;
    // Whoever comes next neither registers nor runs a pod.
    cluster.create("web", "n1", json!({})).await;
    ends_as_taken(Kubelet::start(&cluster.server, "n1", runtime.clone()), &leases, "another.machine/1").await;
    let pod = cluster.pods.get("web").await.expect("it is there");
    assert!(pod.status.expect("a status").start_time.is_none(), "it was run");
    // When the other one is gone, it has the node.
    leases.delete("n1", &DeleteParams::default()).await.expect("deleted");
    let kubelet = Kubelet::start(&cluster.server, "n1", runtime);
    cluster.until("web", "it is ready", is_ready).await;
    kubelet.stop().await;
}
