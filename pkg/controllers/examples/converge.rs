//! How long the controllers take for a thousand Deployments of ten pods, and for a rolling update of one with five hundred;
//! how much they ask of the API for each pod, and how much memory they take.
//!
//! ```text
//! cargo run --release -p controllers --example converge -- [--quick]
//! ```
//!
//! The apiserver, the scheduler and simulated nodes are in this process; the controllers are in another, so that their
//! memory and CPU time are their own. `others` is the CPU time of all the rest.

use client::{AnyCache, Cache, Informers, Key, LeaderConfig};
use controllers::Config;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use testing::{Cluster, ClusterConfig};
use tokio_util::sync::CancellationToken;

/// So many requests of this program are under way at once.
const AT_ONCE: usize = 16;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match arguments.iter().position(|argument| argument == "--controllers-of") {
        Some(position) => runtime.block_on(control(PathBuf::from(&arguments[position + 1]))),
        None => runtime.block_on(measure(arguments.iter().any(|argument| argument == "--quick"))),
    }
}

/// The other process: nothing but the controllers.
async fn control(kubeconfig: PathBuf) {
    let config = Config {
        kubeconfig: Some(kubeconfig),
        leader: LeaderConfig::alone(),
        ..controllers_of_the_cluster()
    };
    controllers::run(config, CancellationToken::new()).await.expect("the controllers run");
}

/// All, but those who would mind that simulated nodes send no heartbeats.
fn controllers_of_the_cluster() -> Config {
    let words = ["*", "-node-lifecycle-controller", "-taint-eviction-controller"];
    Config { controllers: words.map(str::to_owned).to_vec(), ..Config::default() }
}

struct Controllers(Child);

impl Drop for Controllers {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

impl Controllers {
    fn start(kubeconfig: &Path) -> Controllers {
        let program = std::env::current_exe().expect("this program");
        let child = Command::new(program).arg("--controllers-of").arg(kubeconfig).spawn();
        Controllers(child.expect("the controllers"))
    }

    fn megabytes(&self) -> f64 {
        let path = format!("/proc/{}/smaps_rollup", self.0.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Pss:")).unwrap_or_default();
        let kilobytes = line.split_whitespace().nth(1).and_then(|it| it.parse::<f64>().ok());
        kilobytes.unwrap_or(0.0) / 1024.0
    }

    fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.0.id())
    }
}

fn cpu_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

async fn measure(is_quick: bool) {
    let (deployments, replicas, large) = if is_quick { (100, 10, 100) } else { (1000, 10, 500) };
    let cluster = Cluster::start_with(ClusterConfig {
        nodes: 100,
        cpus: 64,
        controllers: Vec::new(),
        // The controllers of the cluster are those of the other process.
        configure: |config| config.leader.name = "none".to_owned(),
        ..ClusterConfig::default()
    })
    .await;
    let client = &cluster.admin;
    let address = cluster.server.address();
    let kubeconfig = cluster.server.kubeconfig(address, "system:kube-controller-manager", &[]);
    let controllers = Controllers::start(&kubeconfig);
    println!(
        "{:<44}{:>8}{:>8}{:>8}{:>8}{:>11}{:>8}",
        "controllers", "pods", "s", "cpu s", "others", "calls/pod", "MB"
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!("{:<44}{:>8}{:>8}{:>8}{:>8}{:>11}{:>8.1}", "idle", 0, "", "", "", "", controllers.megabytes());
    let watching = CancellationToken::new();
    let informers = Informers::new(client.clone(), watching.clone());
    let watched: Cache<Deployment> = informers.cache();

    let started = Start::now(client, &controllers).await;
    let creates = (0..deployments).map(|number| create(client, format!("web-{number}"), replicas));
    futures::stream::iter(creates).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    let all = deployments * replicas;
    let settled =
        |cache: &Cache<Deployment>| cache.list().iter().filter(|it| is_settled(it, replicas)).count();
    until(&watched, |cache| settled(cache) == deployments).await;
    started.tell(&format!("{deployments} Deployments x {replicas}"), all, client, &controllers).await;

    create(client, "large".into(), large).await;
    let at = Key::new("default", "large");
    // Its generation says that an update has been seen.
    let is_large = |generation: i64| {
        let at = at.clone();
        move |cache: &Cache<Deployment>| {
            cache
                .get(&at)
                .is_some_and(|it| it.metadata.generation >= Some(generation) && is_settled(&it, large))
        }
    };
    until(&watched, is_large(1)).await;
    let started = Start::now(client, &controllers).await;
    let api: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "v2"}]}}}});
    api.patch("large", &PatchParams::default(), &Patch::Merge(&image)).await.expect("update");
    until(&watched, is_large(2)).await;
    started.tell(&format!("rolling update of a Deployment of {large}"), large, client, &controllers).await;
    drop(controllers);
    watching.cancel();
    informers.join().await;
    cluster.stop().await;
}

/// What was when something began.
struct Start {
    at: Instant,
    cpu: f64,
    others_cpu: f64,
    calls: f64,
}

impl Start {
    async fn now(client: &Client, controllers: &Controllers) -> Start {
        let calls = calls(client).await;
        let others_cpu = cpu_seconds(std::process::id());
        Start { at: Instant::now(), cpu: controllers.cpu_seconds(), others_cpu, calls }
    }

    async fn tell(&self, what: &str, pods: usize, client: &Client, controllers: &Controllers) {
        let (took, cpu) = (self.at.elapsed().as_secs_f64(), controllers.cpu_seconds() - self.cpu);
        let others = cpu_seconds(std::process::id()) - self.others_cpu;
        let calls = (calls(client).await - self.calls) / pods as f64;
        println!(
            "{what:<44}{pods:>8}{took:>8.1}{cpu:>8.1}{others:>8.1}{calls:>11.1}{:>8.1}",
            controllers.megabytes()
        );
    }
}

/// How many requests the apiserver has had, of anybody: the controllers, the scheduler, the nodes and this program.
async fn calls(client: &Client) -> f64 {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let page = client.request_text(request).await.expect("metrics");
    let counts = page.lines().filter(|line| line.starts_with("apiserver_request_total{"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

async fn create(client: &Client, name: String, replicas: usize) {
    let api: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let object: Deployment = serde_json::from_value(deployment(&name, replicas)).expect("a Deployment");
    api.create(&PostParams::default(), &object).await.expect("create");
}

fn deployment(name: &str, replicas: usize) -> Value {
    let container =
        json!({"name": "c", "image": "v1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}});
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    })
}

fn is_settled(deployment: &Deployment, replicas: usize) -> bool {
    let wanted = i32::try_from(replicas).ok();
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation == deployment.metadata.generation
            && (status.available_replicas, status.updated_replicas, status.replicas)
                == (wanted, wanted, wanted)
    })
}

/// Waits by watching: to ask for a thousand Deployments again and again would take a third of a core.
async fn until(cache: &Cache<Deployment>, are: impl Fn(&Cache<Deployment>) -> bool) {
    let mut changes = cache.changes();
    while !are(cache) {
        changes.changed().await.expect("the cache is followed");
    }
}
