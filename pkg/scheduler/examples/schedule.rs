//! How many pods are placed in a second, in the shapes that upstream publishes: by the scheduler alone, and bound through a
//! real apiserver on the embedded store.
//!
//! ```text
//! cargo run --release -p scheduler --example schedule -- [--quick] [--shape NAME]
//! ```
//!
//! Alone means: events go in as decoded records, decisions come out, and the API that carries them out takes no time.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use scheduler::{Config, Decision, Event, Kind, Object, Outcome, Profile, Scheduler, run, run_with, wire};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// A shape: what is there before, and what is measured.
struct Shape {
    name: &'static str,
    /// Pods per second that upstream asks of itself.
    floor: f64,
    /// Pods that are there before, by the number of nodes.
    before: fn(usize) -> Vec<Value>,
    /// Pods that are measured, by the number of nodes.
    measured: fn(usize) -> Vec<Value>,
    /// Whether nodes, services and pods come and go meanwhile.
    churns: bool,
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "basic",
        floor: 680.0,
        before: |_| basic(1000, "before"),
        measured: |_| basic(10_000, "pod"),
        churns: false,
    },
    Shape {
        name: "node affinity",
        floor: 540.0,
        before: |_| Vec::new(),
        measured: |_| node_affinity(10_000),
        churns: false,
    },
    Shape {
        name: "pod affinity",
        floor: 70.0,
        before: |nodes| pod_affinity(nodes, "before"),
        measured: |nodes| pod_affinity(2 * nodes, "pod"),
        churns: false,
    },
    Shape {
        name: "pod anti-affinity",
        floor: 180.0,
        before: |nodes| anti_affinity(nodes / 5, "before"),
        measured: |nodes| anti_affinity(nodes * 2 / 5, "pod"),
        churns: false,
    },
    Shape {
        name: "topology spreading",
        floor: 460.0,
        before: |nodes| basic(nodes, "before"),
        measured: |_| spreading(10_000),
        churns: false,
    },
    Shape {
        name: "preemption",
        floor: 570.0,
        before: |nodes| lesser(4 * nodes),
        measured: greater,
        churns: false,
    },
    Shape {
        name: "unschedulable",
        floor: 590.0,
        before: |_| too_large(1000),
        measured: |_| basic(10_000, "pod"),
        churns: false,
    },
    Shape {
        name: "mixed churn",
        floor: 680.0,
        before: |_| basic(1000, "before"),
        measured: |_| basic(10_000, "pod"),
        churns: true,
    },
];

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    println!(
        "{:<22}{:>8}{:>9}{:>12}{:>10}{:>8}{:>14}",
        "scheduler alone", "nodes", "pods", "pods/s", "upstream", "times", "pods/cpu s"
    );
    let wanted = std::env::args().skip_while(|argument| argument != "--shape").nth(1);
    for nodes in [500, 5000] {
        if is_quick && nodes > 500 {
            continue;
        }
        let is_wanted = |shape: &&Shape| wanted.as_deref().is_none_or(|name| name == shape.name);
        for shape in SHAPES.iter().filter(is_wanted) {
            let (pods, took, cpu) = alone(shape, nodes);
            let rate = pods as f64 / took.as_secs_f64();
            let (name, floor) = (shape.name, shape.floor);
            println!(
                "{name:<22}{nodes:>8}{pods:>9}{rate:>12.0}{floor:>10.0}{:>8.1}{:>14.0}",
                rate / floor,
                pods as f64 / cpu
            );
        }
    }
    if wanted.is_some_and(|name| name != "bound") {
        return;
    }
    let (nodes, pods) = if is_quick { (100, 500) } else { (1000, 5000) };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (took, cpu, dropped) = runtime.block_on(bound(nodes, pods));
    let rate = pods as f64 / took.as_secs_f64();
    println!(
        "{:<22}{nodes:>8}{pods:>9}{rate:>12.0}{:>10}{:>8.1}{:>14.0}",
        "bound, embedded store",
        270,
        rate / 270.0,
        pods as f64 / cpu
    );
    println!("  with the apiserver in this process; {dropped} events were dropped");
}

/// How many seconds of CPU time this process has used: on a machine that does other things too, a better measure than time.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Places all pods of a shape; how many, how long it took, and how much CPU time.
fn alone(shape: &Shape, nodes: usize) -> (usize, Duration, f64) {
    let profiles = HashMap::from([("default-scheduler".to_owned(), Profile::Default)]);
    let mut world =
        World { scheduler: Scheduler::new(profiles, 0, 7), pods: HashMap::new(), now_ms: 1, bound: 0 };
    for index in 0..nodes {
        world.set(Object::Node(decode(node(&format!("node-{index}"), index))));
    }
    (shape.before)(nodes).into_iter().for_each(|pod| world.add(decode(pod)));
    world.work();
    let measured: Vec<(wire::Pod, wire::Pod)> = (shape.measured)(nodes)
        .into_iter()
        .map(|pod| {
            let pod: wire::Pod = decode(pod);
            (pod.clone(), pod)
        })
        .collect();
    let churn: Vec<wire::Node> =
        (0..100).map(|index| decode(node(&format!("churn-{index}"), index))).collect();
    let (count, before) = (measured.len(), world.bound);
    let (began, cpu) = (Instant::now(), cpu_seconds());
    for (index, (pod, copy)) in measured.into_iter().enumerate() {
        world.keep(copy);
        world.set(Object::Pod(Box::new(pod)));
        if index % 64 == 0 {
            world.work();
        }
        if shape.churns && index % 100 == 0 {
            let node = &churn[index / 100 % churn.len()];
            match index / 100 % 2 {
                0 => world.set(Object::Node(Box::new(node.clone()))),
                _ => world.delete(Kind::Node, "", &churn[index / 100 % churn.len() - 1].metadata.name),
            }
        }
    }
    world.work();
    // Ticks are a hundredth of a second: of a short run the time is the better measure.
    let (took, cpu) = (began.elapsed(), (cpu_seconds() - cpu).max(0.01));
    assert_eq!(world.bound - before, count, "{}: all measured pods are placed", shape.name);
    (count, took, cpu)
}

/// A scheduler whose API is this program.
struct World {
    scheduler: Scheduler,
    /// What the API would send again once a pod is bound.
    pods: HashMap<String, wire::Pod>,
    now_ms: u64,
    bound: usize,
}

impl World {
    fn set(&mut self, object: Object) {
        self.scheduler.apply(Event::Set(object), self.now_ms);
    }

    fn delete(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.scheduler.apply(Event::Delete(kind, namespace.to_owned(), name.to_owned()), self.now_ms);
    }

    fn keep(&mut self, pod: wire::Pod) {
        self.pods.insert(pod.metadata.name.clone(), pod);
    }

    fn add(&mut self, pod: wire::Pod) {
        self.keep(pod.clone());
        self.set(Object::Pod(Box::new(pod)));
    }

    fn work(&mut self) {
        while let Some(decision) = self.scheduler.next(self.now_ms) {
            match decision {
                Decision::Bind { target, node, claims } => {
                    self.scheduler.bound(&target, &claims, Outcome::Bound, self.now_ms);
                    let mut pod = self.pods.remove(&target.name).expect("every pod is kept");
                    pod.spec.node_name = node;
                    self.set(Object::Pod(Box::new(pod)));
                    self.bound += 1;
                }
                Decision::Refuse { victims, .. } => {
                    for victim in victims {
                        self.delete(Kind::Pod, &victim.namespace, &victim.name);
                    }
                }
            }
        }
    }
}

/// Binds pods through a real apiserver; how long it took, how much CPU time of both, and how many events were lost.
async fn bound(nodes: usize, pods: usize) -> (Duration, f64, u64) {
    let server = testing::TestServer::start().await;
    let client = server.admin();
    let api: Api<Node> = Api::all(client.clone());
    for index in 0..nodes {
        let name = format!("node-{index}");
        let params = PostParams::default();
        let mut version =
            api.create(&params, &decode(node(&name, index))).await.expect("a node").metadata.resource_version;
        // First without the taint of a new node, then with what it has.
        let mut ready: Node = decode(node(&name, index));
        ready.metadata.resource_version = version;
        version = api.replace(&name, &params, &ready).await.expect("untainted").metadata.resource_version;
        ready.metadata.resource_version = version;
        api.replace_status(&name, &params, &ready).await.expect("its status");
    }
    let api: Api<Pod> = Api::namespaced(client, "default");
    let objects = basic(pods, "pod");
    let chunks = objects.chunks(pods.div_ceil(16)).map(|chunk| {
        let (api, chunk) = (api.clone(), chunk.to_vec());
        tokio::spawn(async move {
            for pod in chunk {
                api.create(&PostParams::default(), &decode(pod)).await.expect("a pod");
            }
        })
    });
    for chunk in chunks.collect::<Vec<_>>() {
        chunk.await.expect("pods are created");
    }
    let kubeconfig = server.kubeconfig(server.address(), "system:kube-scheduler", &[]);
    let config =
        Config { kubeconfig: Some(kubeconfig), leader: client::LeaderConfig::alone(), ..Config::default() };
    let (metrics, stop) = (config.metrics.clone(), CancellationToken::new());
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let running = match std::env::args().any(|argument| argument == "--http1") {
        true => tokio::spawn(run_with(config, server.user("system:kube-scheduler", &[]), stop.clone())),
        false => tokio::spawn(run(config, stop.clone())),
    };
    while metrics.scheduled() < pods as u64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (took, cpu) = (began.elapsed(), cpu_seconds() - cpu);
    stop.cancel();
    running.await.expect("it does not panic").expect("it ends well");
    (took, cpu, metrics.events_dropped())
}

fn decode<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("the shapes are well-formed")
}

fn node(name: &str, index: usize) -> Value {
    let zone = format!("zone-{}", index % 3);
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}},
        "status": {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}, "capacity": {"cpu": "4", "memory": "32Gi", "pods": "110"}},
    })
}

fn pod(name: String, cpu: &str, labels: Value, mut spec: Value) -> Value {
    spec["schedulerName"] = "default-scheduler".into();
    spec["containers"] = json!([{"name": "pause", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}]);
    json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels}, "spec": spec})
}

fn basic(count: usize, prefix: &str) -> Vec<Value> {
    // Small, so that ten thousand fit on five hundred nodes.
    (0..count).map(|index| pod(format!("{prefix}-{index}"), "50m", json!({}), json!({}))).collect()
}

fn node_affinity(count: usize) -> Vec<Value> {
    let spec = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-0", "zone-1"]}]}]}}}});
    (0..count).map(|index| pod(format!("pod-{index}"), "50m", json!({}), spec.clone())).collect()
}

fn near(color: &str, key: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution":
        [{"labelSelector": {"matchLabels": {"color": color}}, "topologyKey": key}]})
}

fn pod_affinity(count: usize, prefix: &str) -> Vec<Value> {
    let spec = json!({"affinity": {"podAffinity": near("blue", "topology.kubernetes.io/zone")}});
    (0..count)
        .map(|index| pod(format!("{prefix}-{index}"), "50m", json!({"color": "blue"}), spec.clone()))
        .collect()
}

fn anti_affinity(count: usize, prefix: &str) -> Vec<Value> {
    let spec = json!({"affinity": {"podAntiAffinity": near("green", "kubernetes.io/hostname")}});
    (0..count)
        .map(|index| pod(format!("{prefix}-{index}"), "50m", json!({"color": "green"}), spec.clone()))
        .collect()
}

fn spreading(count: usize) -> Vec<Value> {
    let spec = json!({"topologySpreadConstraints": [{"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"color": "blue"}}}]});
    (0..count)
        .map(|index| pod(format!("pod-{index}"), "50m", json!({"color": "blue"}), spec.clone()))
        .collect()
}

fn lesser(count: usize) -> Vec<Value> {
    (0..count).map(|index| pod(format!("lesser-{index}"), "900m", json!({}), json!({}))).collect()
}

fn greater(nodes: usize) -> Vec<Value> {
    (0..nodes).map(|index| pod(format!("greater-{index}"), "3", json!({}), json!({"priority": 10}))).collect()
}

fn too_large(count: usize) -> Vec<Value> {
    (0..count).map(|index| pod(format!("large-{index}"), "9", json!({}), json!({}))).collect()
}
