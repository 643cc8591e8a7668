//! How fast pods start and end on a node, and what the kubelet takes, beside containerd alone.
//!
//! ```text
//! cargo run --release -p kubelet --example node -- KUBELET [--quick]
//! ```
//!
//! KUBELET is the built program. Everything is in a network namespace of its own, on a containerd of its own; the
//! apiserver is in this process. "containerd alone" makes the same calls (pause, one container, one shim per pod) without
//! an apiserver, a network or volumes: nothing on this machine can be faster.

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kubelet::runtime::containerd::{Config, Containerd};
use kubelet::runtime::{ContainerSpec, ImageId, PodRef, Runtime, SandboxId, SandboxSpec};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use testing::{TestServer, eventually};

#[path = "../../../cmd/kubelet/tests/node/command.rs"]
mod command;

const NAME: &str = "bench";
const FOREVER: &str = "trap 'exit 0' TERM; while true; do sleep 1 & wait; done";
const TOGETHER: usize = 30;
const DELETED: usize = 34;
const MANY: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let Some(program) = arguments.iter().find(|argument| !argument.starts_with("--")) else {
        eprintln!("say which kubelet: cargo run --release -p kubelet --example node -- bin/kubelet");
        std::process::exit(2);
    };
    let program = std::fs::canonicalize(program).expect("the kubelet");
    command::enter_a_network_of_its_own();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(bench(&program, quick));
}

async fn bench(program: &Path, quick: bool) {
    let containerd = testing::Containerd::start();
    let alone = Alone::new(&containerd).await;
    let rounds = if quick { 3 } else { 10 };
    println!("{:<44} {:>10} {:>17} {:>8}", "", "ours", "containerd alone", "ratio");
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        starts.push(alone.start(&[format!("one{round}")]).await);
        ends.push(alone.remove(&[format!("one{round}")]).await);
    }
    let floor_one = median(starts);
    let names: Vec<String> = (0..TOGETHER).map(|number| format!("many{number}")).collect();
    let floor_many = alone.start(&names).await;
    let more: Vec<String> = (TOGETHER..DELETED).map(|number| format!("many{number}")).collect();
    alone.start(&more).await;
    let floor_delete = alone.remove(&[names.clone(), more].concat()).await;
    drop(alone);

    let node = BenchNode::start(program, &containerd).await;
    let idle = node.cpu_over(Duration::from_secs(if quick { 5 } else { 20 })).await;
    let empty = node.pss();
    let (mut one, mut exits) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let name = format!("one{round}");
        one.push(node.start_pods(std::slice::from_ref(&name)).await);
        exits.push(node.exit(&name).await);
        node.delete_pods(&[name]).await;
    }
    row("one pod, apply to Ready, s (median)", median(one), Some(floor_one));
    row("an exit, to the API, s (median)", median(exits), None);
    let many = node.start_pods(&names).await;
    row("30 pods, apply to all Ready, s", many, Some(floor_many));
    let more: Vec<String> = (TOGETHER..DELETED).map(|number| format!("many{number}")).collect();
    node.start_pods(&more).await;
    let deleted = node.delete_pods(&[names, more].concat()).await;
    row("34 pods that obey SIGTERM deleted, s", deleted, Some(floor_delete));
    row("kubelet, no pods: PSS, MB", empty, None);
    row("kubelet, no pods: CPU, % of a core", idle, None);
    if !quick {
        let names: Vec<String> = (0..MANY).map(|number| format!("hundred{number}")).collect();
        node.start_pods(&names).await;
        row("kubelet, 100 pods: PSS, MB", node.pss(), None);
        row("kubelet, 100 pods: CPU, % of a core", node.cpu_over(Duration::from_secs(20)).await, None);
        node.delete_pods(&names).await;
    }
}

fn row(what: &str, ours: f64, floor: Option<f64>) {
    let (floor, ratio) = match floor {
        Some(floor) => (format!("{floor:.3}"), format!("{:.2}", ours / floor)),
        None => ("–".into(), "–".into()),
    };
    println!("{what:<44} {ours:>10.3} {floor:>17} {ratio:>8}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// containerd without a kubelet.
struct Alone {
    runtime: Containerd,
    image: ImageId,
    cgroup: String,
    logs: PathBuf,
}

impl Alone {
    async fn new(containerd: &testing::Containerd) -> Alone {
        let config = Config {
            socket: containerd.socket(),
            root_dir: containerd.dir().join("alone"),
            state_dir: containerd.dir().join("alone-run"),
            ..Config::default()
        };
        let runtime = Containerd::new(config).expect("a runtime");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/build");
        let archive = containerd.dir().join("busybox.tar");
        let made = Command::new(script).arg("busybox").arg(&archive).status().expect("images/build");
        assert!(made.success(), "images/build busybox");
        let image = runtime.import(&archive).await.expect("busybox").remove(0).id;
        let logs = containerd.dir().join("alone-logs");
        Alone { runtime, image, cgroup: containerd.cgroup().to_owned(), logs }
    }

    async fn start(&self, names: &[String]) -> f64 {
        let began = Instant::now();
        join_all(names.iter().map(|name| async move {
            let pod = PodRef { namespace: "default".into(), name: name.clone(), uid: name.clone() };
            let cgroup_parent = format!("{}/pod{name}", self.cgroup);
            let sandbox = SandboxSpec { hostname: name.clone(), cgroup_parent, ..SandboxSpec::default() };
            let sandbox = self.runtime.start_sandbox(&pod, &sandbox).await.expect("a sandbox").id;
            let spec = ContainerSpec {
                name: "c".into(),
                image: self.image.clone(),
                command: ["sh", "-c", FOREVER].map(str::to_owned).into(),
                log_path: self.logs.join(format!("{name}.log")),
                ..ContainerSpec::default()
            };
            self.runtime.start_container(&pod, &sandbox, &spec).await.expect("a container");
        }))
        .await;
        began.elapsed().as_secs_f64()
    }

    async fn remove(&self, names: &[String]) -> f64 {
        let views = self.runtime.pods().await.expect("pods");
        let began = Instant::now();
        join_all(views.iter().filter(|view| names.contains(&view.pod.name)).map(|view| async {
            for container in &view.containers {
                self.runtime.stop_container(&container.id, Duration::from_secs(30)).await.expect("stopped");
            }
            let sandboxes: Vec<&SandboxId> = view.sandboxes.iter().map(|sandbox| &sandbox.id).collect();
            for sandbox in sandboxes {
                self.runtime.remove_sandbox(sandbox).await.expect("removed");
            }
        }))
        .await;
        began.elapsed().as_secs_f64()
    }
}

/// The kubelet as it is built, and an apiserver.
struct BenchNode {
    kubelet: Child,
    server: TestServer,
}

impl BenchNode {
    async fn start(program: &Path, containerd: &testing::Containerd) -> BenchNode {
        let server = TestServer::start().await;
        let log = std::fs::File::create(containerd.dir().join("kubelet.log")).expect("a log");
        let mut command = command::kubelet(program, NAME, containerd, Some(&server));
        // By this name the one program of all acts as the kubelet.
        std::os::unix::process::CommandExt::arg0(&mut command, "kubelet");
        command.args(["--max-pods", "200"]).env("LOG", "warn").stderr(log);
        let kubelet = command.spawn().expect("the kubelet starts");
        let nodes: Api<Node> = Api::all(server.admin());
        eventually("the node is ready", || async {
            let conditions = nodes.get_opt(NAME).await.ok()??.status?.conditions?;
            conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True").then_some(())
        })
        .await;
        BenchNode { kubelet, server }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.server.admin(), "default")
    }

    /// Makes pods at once and waits until all are ready.
    async fn start_pods(&self, names: &[String]) -> f64 {
        let pods = self.pods();
        let mut changes = watcher(pods.clone(), watcher::Config::default()).default_backoff().boxed();
        // The watch stands before anything is made.
        while !matches!(changes.try_next().await.expect("a watch"), Some(watcher::Event::InitDone)) {}
        let began = Instant::now();
        let made = join_all(names.iter().map(|name| {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"nodeName": NAME, "automountServiceAccountToken": false, "containers": [{
                    "name": "c", "image": "busybox", "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", FOREVER],
                }]},
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let pods = pods.clone();
            async move {
                while let Err(error) = pods.create(&PostParams::default(), &pod).await {
                    // Its service account is made a moment after the namespace.
                    assert!(error.to_string().contains("serviceaccount"), "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }));
        let mut waited: BTreeSet<&String> = names.iter().collect();
        let ready = async {
            while !waited.is_empty() {
                let Some(change) = changes.try_next().await.expect("a watch") else { break };
                let (watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) = change else { continue };
                if is_ready(&pod) {
                    waited.remove(&pod.metadata.name.unwrap_or_default());
                }
            }
        };
        tokio::join!(made, ready);
        began.elapsed().as_secs_f64()
    }

    /// Kills a pod's process and waits until the API says so.
    async fn exit(&self, name: &str) -> f64 {
        let pods = self.pods();
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut changes = watcher(pods.clone(), only).default_backoff().boxed();
        while !matches!(changes.try_next().await.expect("a watch"), Some(watcher::Event::InitDone)) {}
        let id = status(&pods.get(name).await.expect("the pod")).container_id.clone().unwrap_or_default();
        let id = id.trim_start_matches("containerd://").to_owned();
        let pid = container_pid(&id).expect("its process");
        let began = Instant::now();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
            .expect("killed");
        while let Some(change) = changes.try_next().await.expect("a watch") {
            let watcher::Event::Apply(pod) = change else { continue };
            let ended = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
                state.as_ref().is_some_and(|state| state.terminated.is_some())
            };
            let status = status(&pod);
            if ended(&status.state) || ended(&status.last_state) {
                break;
            }
        }
        began.elapsed().as_secs_f64()
    }

    /// Deletes pods at once and waits until all are gone.
    async fn delete_pods(&self, names: &[String]) -> f64 {
        let pods = self.pods();
        let mut changes = watcher(pods.clone(), watcher::Config::default()).default_backoff().boxed();
        while !matches!(changes.try_next().await.expect("a watch"), Some(watcher::Event::InitDone)) {}
        let began = Instant::now();
        let deleted = join_all(names.iter().map(|name| {
            let pods = pods.clone();
            async move { pods.delete(name, &DeleteParams::default()).await.expect("deleted") }
        }));
        let mut waited: BTreeSet<&String> = names.iter().collect();
        let gone = async {
            while !waited.is_empty() {
                let change = changes.try_next().await.expect("a watch");
                if let Some(watcher::Event::Delete(pod)) = change {
                    waited.remove(&pod.metadata.name.unwrap_or_default());
                }
            }
        };
        tokio::join!(deleted, gone);
        began.elapsed().as_secs_f64()
    }

    fn pss(&self) -> f64 {
        let path = format!("/proc/{}/smaps_rollup", self.kubelet.id());
        let text = std::fs::read_to_string(path).expect("its memory");
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).expect("its share");
        line.trim().trim_end_matches(" kB").trim().parse::<f64>().expect("a number") / 1024.0
    }

    async fn cpu_over(&self, time: Duration) -> f64 {
        let ticks = || {
            let text = std::fs::read_to_string(format!("/proc/{}/stat", self.kubelet.id())).expect("stat");
            let (_, rest) = text.rsplit_once(')').expect("a name");
            let fields: Vec<f64> =
                rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
            fields[11] + fields[12]
        };
        let before = ticks();
        tokio::time::sleep(time).await;
        // A tick is a hundredth of a second.
        (ticks() - before) / time.as_secs_f64()
    }
}

impl Drop for BenchNode {
    fn drop(&mut self) {
        let _ = self.kubelet.kill();
        let _ = self.kubelet.wait();
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn status(pod: &Pod) -> k8s_openapi::api::core::v1::ContainerStatus {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
    statuses.and_then(|statuses| statuses.into_iter().next()).unwrap_or_default()
}

/// The first process in the control group of a container.
fn container_pid(id: &str) -> Option<i32> {
    let found = std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        groups.contains(id).then_some(pid)
    });
    found.min()
}
