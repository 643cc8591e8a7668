//! The scheduler against a real apiserver, as the user that it is, with the role that it has.

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use scheduler::{Config, Error, run_with};
use serde_json::{Value, json};
use std::time::Duration;
use testing::{TestServer, eventually, in_time};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A scheduler of this test, ended with it.
struct Running {
    config: Config,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    fn start(server: &TestServer, configure: impl FnOnce(&mut Config)) -> Running {
        let mut config = Config::default();
        config.leader.elects = false;
        configure(&mut config);
        let stop = CancellationToken::new();
        let client = server.user("system:kube-scheduler", &[]);
        let task = tokio::spawn(run_with(config.clone(), client, stop.clone()));
        Running { config, stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        in_time("the scheduler ends", self.task).await.expect("it does not panic").expect("it ends well");
    }
}

fn node(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}, "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}})
}

/// A node that is ready: without the taint that a new one has.
async fn add_node(client: &Client, name: &str, cpu: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let object = serde_json::from_value(node(name, cpu)).expect("a node");
    nodes.create(&PostParams::default(), &object).await.expect("create the node");
    let status = json!({"status": node(name, cpu)["status"]});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.expect("its status");
    let untainted = json!({"spec": {"taints": null}});
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(&untainted)).await.expect("its taints");
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), "default")
}

async fn add_pod(client: &Client, name: &str, mut spec: Value) {
    let cpu = spec.as_object_mut().and_then(|spec| spec.remove("cpu"));
    let resources = cpu.map_or(json!({}), |cpu| json!({"requests": {"cpu": cpu}}));
    spec["containers"] = json!([{"name": "c", "image": "i", "resources": resources}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let pod = serde_json::from_value(pod).expect("a pod");
    pods(client).create(&PostParams::default(), &pod).await.expect("create the pod");
}

async fn node_of(client: &Client, name: &str) -> Option<String> {
    pods(client).get_opt(name).await.ok()??.spec?.node_name
}

async fn bound(client: &Client, name: &str) -> String {
    eventually(&format!("{name} is bound"), async || node_of(client, name).await).await
}

/// The message of the condition `PodScheduled`, once it says no.
async fn refusal(client: &Client, name: &str) -> String {
    eventually(&format!("{name} is refused"), async || {
        let conditions = pods(client).get(name).await.ok()?.status?.conditions?;
        let said = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled")?;
        (said.status == "False" && said.reason.as_deref() == Some("Unschedulable")).then_some(said.message?)
    })
    .await
}

async fn event(client: &Client, reason: &str, pod: &str) -> Event {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    eventually(&format!("the event {reason} of {pod}"), async || {
        let list = events.list(&Default::default()).await.ok()?;
        list.items.into_iter().find(|event| {
            event.reason.as_deref() == Some(reason) && event.involved_object.name.as_deref() == Some(pod)
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_bound_and_an_event_says_so() {
    let server = TestServer::start().await;
    let client = server.admin();
    add_node(&client, "n1", "4").await;
    add_pod(&client, "before", json!({})).await;
    let scheduler = Running::start(&server, |_| {});
    assert_eq!(bound(&client, "before").await, "n1");
    add_pod(&client, "after", json!({"cpu": "1"})).await;
    assert_eq!(bound(&client, "after").await, "n1");
    let event = event(&client, "Scheduled", "after").await;
    assert_eq!(event.message.as_deref(), Some("Successfully assigned default/after to n1"));
    let source = event.source.and_then(|source| source.component);
    assert_eq!(source.as_deref(), Some("default-scheduler"));
    eventually("both are counted", async || (scheduler.config.metrics.scheduled() == 2).then_some(())).await;
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_does_not_fit_says_why_and_a_new_node_takes_it() {
    let server = TestServer::start().await;
    let client = server.admin();
    let scheduler = Running::start(&server, |_| {});
    add_node(&client, "small", "1").await;
    add_pod(&client, "large", json!({"cpu": "2"})).await;
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
        1 Preemption is not helpful for scheduling.";
    eventually("the reason is that of one node", async || {
        (refusal(&client, "large").await == message).then_some(())
    })
    .await;
    let event = event(&client, "FailedScheduling", "large").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    add_node(&client, "big", "4").await;
    assert_eq!(bound(&client, "large").await, "big");
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_hold_a_pod_until_they_are_removed() {
    let server = TestServer::start().await;
    let client = server.admin();
    add_node(&client, "n1", "4").await;
    let scheduler = Running::start(&server, |_| {});
    add_pod(&client, "gated", json!({"schedulingGates": [{"name": "example.com/wait"}]})).await;
    // What came after it is placed, so it has been seen.
    add_pod(&client, "free", json!({})).await;
    bound(&client, "free").await;
    assert_eq!(node_of(&client, "gated").await, None);
    let open = json!({"spec": {"schedulingGates": null}});
    pods(&client).patch("gated", &PatchParams::default(), &Patch::Merge(&open)).await.expect("open the gate");
    assert_eq!(bound(&client, "gated").await, "n1");
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_important_pod_takes_the_place_of_another() {
    let server = TestServer::start().await;
    let client = server.admin();
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "important"}, "value": 1000});
    server.http().post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.expect(201);
    add_node(&client, "n1", "2").await;
    let scheduler = Running::start(&server, |_| {});
    add_pod(&client, "lesser", json!({"cpu": "2", "terminationGracePeriodSeconds": 30})).await;
    bound(&client, "lesser").await;
    add_pod(&client, "greater", json!({"cpu": "2", "priorityClassName": "important"})).await;
    let condition = eventually("the lesser pod is told to go", async || {
        let pod = pods(&client).get("lesser").await.ok()?;
        pod.metadata.deletion_timestamp.as_ref()?;
        pod.status?.conditions?.into_iter().find(|condition| condition.type_ == "DisruptionTarget")
    })
    .await;
    assert_eq!(condition.reason.as_deref(), Some("PreemptionByScheduler"));
    let nominated = eventually("a place is reserved", async || {
        pods(&client).get("greater").await.ok()?.status?.nominated_node_name
    })
    .await;
    assert_eq!(nominated, "n1");
    let greater = pods(&client).get("greater").await.expect("the pod");
    let message = event(&client, "Preempted", "lesser").await.message;
    assert_eq!(message, Some(format!("Preempted by pod {} on node n1", greater.uid().expect("a uid"))));
    assert_eq!(node_of(&client, "greater").await, None);
    // Its kubelet would do this when it has ended.
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods(&client).delete("lesser", &now).await.expect("the lesser pod ends");
    assert_eq!(bound(&client, "greater").await, "n1");
    scheduler.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_scheduler_knows_what_the_old_one_did() {
    let mut server = TestServer::start().await;
    let client = server.admin();
    add_node(&client, "n1", "2").await;
    let first = Running::start(&server, |_| {});
    add_pod(&client, "one", json!({"cpu": "1"})).await;
    bound(&client, "one").await;
    first.stop().await;
    add_pod(&client, "two", json!({"cpu": "1"})).await;
    add_pod(&client, "three", json!({"cpu": "2"})).await;
    let second = Running::start(&server, |_| {});
    assert_eq!(bound(&client, "two").await, "n1");
    refusal(&client, "three").await;
    // The apiserver goes away for a moment; what happens after is seen.
    server.restart().await;
    let client = server.admin();
    add_node(&client, "n2", "2").await;
    assert_eq!(bound(&client, "three").await, "n2");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_replicas_one_places_pods_and_the_other_takes_over() {
    let server = TestServer::start().await;
    let client = server.admin();
    add_node(&client, "n1", "4").await;
    let quick = |config: &mut Config| {
        config.leader.elects = true;
        config.metrics = scheduler::Metrics::default();
        config.leader.retry_period = Duration::from_millis(200);
    };
    let first = Running::start(&server, quick);
    eventually("the first leads", async || first.config.metrics.is_leading().then_some(())).await;
    let second = Running::start(&server, quick);
    add_pod(&client, "one", json!({})).await;
    bound(&client, "one").await;
    assert!(!second.config.metrics.is_leading());
    first.stop().await;
    add_pod(&client, "two", json!({})).await;
    bound(&client, "two").await;
    assert!(second.config.metrics.is_leading());
    second.stop().await;
}
