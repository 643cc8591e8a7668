//! The load: the same for every server, from the same client.

use crate::http::{Connection, Endpoint, request};
use anyhow::{Context, Result, ensure};
use bench::process;
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How much of everything.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Connections of creates and GETs.
    pub connections: usize,
    /// Pods that are created, and that a LIST returns.
    pub pods: usize,
    /// Concurrent watches.
    pub watchers: usize,
    /// How long each measurement that has no other end takes.
    pub window: Duration,
}

/// What one server does.
#[derive(Clone, Copy)]
pub struct Figures {
    pub creates_per_second: f64,
    pub gets_per_second: f64,
    pub lists_per_second: f64,
    pub list_bytes: usize,
    pub changes_per_second: f64,
    pub watch_bytes_per_second: f64,
    /// Seconds of the server's CPU time for one of each, where its process is known: steadier than rates on a machine
    /// that does other things too.
    pub create_cpu: Option<f64>,
    /// The same of the process behind the server that keeps its objects.
    pub create_cpu_behind: Option<f64>,
    pub get_cpu: Option<f64>,
    pub list_cpu: Option<f64>,
}

/// What a server answered, for the floor to answer the same.
pub struct Samples {
    pub object: Vec<u8>,
    pub list: Vec<u8>,
}

/// Where the measured pods are.
const NAMESPACE: &str = "bench";
/// Pods of warm-ups and changes for watchers are somewhere else.
const OTHER_NAMESPACE: &str = "bench-other";
/// LISTs at once: one per core of the smallest machine that this is for.
const LISTS: usize = 2;
/// How many changes may be on their way before the next one is made: watchers are never dropped as slow.
const CHANGES_ON_THE_WAY: i64 = 64;
/// Connections that make those changes.
const WRITERS: usize = 4;
const SETTLE: Duration = Duration::from_secs(10);

/// Measures everything. `behind` is the process that keeps the server's objects, where that is another.
pub async fn run(server: &Endpoint, pid: Option<u32>, behind: Option<u32>, scale: Scale) -> Result<Figures> {
    prepare(server, scale).await.context("prepare namespaces")?;
    let (cpu, cpu_behind) = (Cpu::start(pid)?, Cpu::start(behind)?);
    let creates_per_second =
        creates(server, NAMESPACE, scale.pods, scale.connections).await.context("create pods")?;
    let create_cpu = cpu.per(scale.pods as f64)?;
    let create_cpu_behind = cpu_behind.per(scale.pods as f64)?;
    let cpu = Cpu::start(pid)?;
    let (gets_per_second, gets, _) = gets(server, scale).await.context("GET pods")?;
    let get_cpu = cpu.per(gets)?;
    let cpu = Cpu::start(pid)?;
    let (lists_per_second, lists, list_bytes) = lists(server, scale).await.context("LIST pods")?;
    let list_cpu = cpu.per(lists)?;
    let (changes_per_second, watch_bytes_per_second) = watches(server, scale).await.context("watch pods")?;
    Ok(Figures {
        creates_per_second,
        gets_per_second,
        lists_per_second,
        list_bytes,
        changes_per_second,
        watch_bytes_per_second,
        create_cpu,
        create_cpu_behind,
        get_cpu,
        list_cpu,
    })
}

/// CPU time of a process from some moment on.
pub struct Cpu {
    pid: Option<u32>,
    before: f64,
}

impl Cpu {
    /// From now on.
    pub fn start(pid: Option<u32>) -> Result<Cpu> {
        Ok(Cpu { pid, before: pid.map_or(Ok(0.0), process::cpu_seconds)? })
    }

    /// Per one of what was done since.
    pub fn per(&self, count: f64) -> Result<Option<f64>> {
        self.pid.map(|pid| Ok((process::cpu_seconds(pid)? - self.before) / count)).transpose()
    }
}

/// One pod and the list of all, as the server answers them.
pub async fn samples(server: &Endpoint) -> Result<Samples> {
    let mut connection = server.connect().await?;
    let (mut object, mut list) = (Vec::new(), Vec::new());
    connection.exchange(&request("GET", &pod_path(0), &[]), Some(&mut object)).await?;
    connection.exchange(&request("GET", &pods_path(NAMESPACE), &[]), Some(&mut list)).await?;
    Ok(Samples { object, list })
}

/// Removes what was made: the server may be somebody's.
pub async fn clean_up(server: &Endpoint) -> Result<()> {
    let mut connection = server.connect().await?;
    for namespace in [NAMESPACE, OTHER_NAMESPACE] {
        let pods = format!("{}?gracePeriodSeconds=0", pods_path(namespace));
        connection.exchange(&request("DELETE", &pods, &[]), None).await?;
        connection
            .exchange(&request("DELETE", &format!("/api/v1/namespaces/{namespace}"), &[]), None)
            .await?;
    }
    Ok(())
}

/// Makes the namespaces, and their service accounts where nobody else does, and warms the server up.
async fn prepare(server: &Endpoint, scale: Scale) -> Result<()> {
    let mut connection = server.connect().await?;
    for namespace in [NAMESPACE, OTHER_NAMESPACE] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        post(&mut connection, "/api/v1/namespaces", &object).await?;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        post(&mut connection, &format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await?;
        // The account may take a moment to be seen by admission.
        let deadline = Instant::now() + SETTLE;
        while connection.exchange(&create_request(namespace, "first"), None).await?.status >= 400 {
            ensure!(Instant::now() < deadline, "{namespace} takes no pods");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let first = format!("{}/first?gracePeriodSeconds=0", pods_path(namespace));
        connection.exchange(&request("DELETE", &first, &[]), None).await?;
    }
    creates(server, OTHER_NAMESPACE, scale.pods / 20, scale.connections).await.map(|_| ())
}

async fn post(connection: &mut Connection, path: &str, object: &Value) -> Result<()> {
    let status =
        connection.exchange(&request("POST", path, object.to_string().as_bytes()), None).await?.status;
    ensure!(status < 300 || status == 409, "POST {path} was answered {status}");
    Ok(())
}

/// Creates so many pods; returns how many per second.
async fn creates(server: &Endpoint, namespace: &'static str, pods: usize, connections: usize) -> Result<f64> {
    let next = Arc::new(AtomicUsize::new(0));
    let connections = try_join_all((0..connections).map(|_| server.connect())).await?;
    let started = Instant::now();
    let tasks = connections.into_iter().map(|mut connection| {
        let next = next.clone();
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= pods {
                    return anyhow::Ok(());
                }
                let answer = connection.exchange(&create_request(namespace, &pod_name(number)), None).await?;
                answer.is_created()?;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(pods as f64 / started.elapsed().as_secs_f64())
}

async fn gets(server: &Endpoint, scale: Scale) -> Result<(f64, f64, usize)> {
    let requests: Arc<Vec<Vec<u8>>> =
        Arc::new((0..scale.pods.min(1000)).map(|number| request("GET", &pod_path(number), &[])).collect());
    repeat(server, scale.connections, scale.window, requests).await
}

async fn lists(server: &Endpoint, scale: Scale) -> Result<(f64, f64, usize)> {
    let requests = Arc::new(vec![request("GET", &pods_path(NAMESPACE), &[])]);
    repeat(server, LISTS, scale.window, requests).await
}

/// Sends the requests over and over; returns answers per second, how many there were in all, warm-up included, and
/// the bytes of the last one.
async fn repeat(
    server: &Endpoint,
    connections: usize,
    window: Duration,
    requests: Arc<Vec<Vec<u8>>>,
) -> Result<(f64, f64, usize)> {
    let counting = Arc::new(AtomicBool::new(false));
    let over = Arc::new(AtomicBool::new(false));
    let connections = try_join_all((0..connections).map(|_| server.connect())).await?;
    let tasks = connections.into_iter().enumerate().map(|(offset, mut connection)| {
        let (counting, over, requests) = (counting.clone(), over.clone(), requests.clone());
        tokio::spawn(async move {
            let (mut count, mut all, mut bytes) = (0u64, 0u64, 0);
            for request in requests.iter().cycle().skip(offset * 61) {
                let answer = connection.exchange(request, None).await?;
                ensure!(answer.status == 200, "a GET was answered {}", answer.status);
                count += u64::from(counting.load(Relaxed));
                all += 1;
                bytes = answer.bytes;
                if over.load(Relaxed) {
                    break;
                }
            }
            anyhow::Ok((count, all, bytes))
        })
    });
    let tasks: Vec<_> = tasks.collect();
    tokio::time::sleep(window / 5).await;
    counting.store(true, Relaxed);
    let started = Instant::now();
    tokio::time::sleep(window).await;
    over.store(true, Relaxed);
    let (mut count, mut all, mut bytes) = (0, 0, 0);
    for task in tasks {
        let (counted, answered, size) = task.await??;
        count += counted;
        all += answered;
        bytes = size;
    }
    Ok((count as f64 / started.elapsed().as_secs_f64(), all as f64, bytes))
}

/// Lets many watch while pods are created; returns changes per second that reached each, and bytes per second in all.
async fn watches(server: &Endpoint, scale: Scale) -> Result<(f64, f64)> {
    let watch =
        format!("{}?watch=true&resourceVersion={}", pods_path(OTHER_NAMESPACE), revision(server).await?);
    let watch = Arc::new(request("GET", &watch, &[]));
    let (events, bytes) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..scale.watchers {
        let mut connection = server.connect().await?;
        connection.watch(&watch).await?;
        let (events, bytes) = (events.clone(), bytes.clone());
        tasks.push(tokio::spawn(async move {
            while let Ok((size, ended)) = connection.events().await {
                bytes.fetch_add(size, Relaxed);
                events.fetch_add(ended, Relaxed);
            }
        }));
    }
    let over = Arc::new(AtomicBool::new(false));
    let made = Arc::new(AtomicI64::new(0));
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let changes = Changes { made: made.clone(), told: events.clone(), watchers: scale.watchers as i64 };
        writers.push(tokio::spawn(changes.run(server.connect().await?, over.clone())));
    }
    tokio::time::sleep(scale.window / 5).await;
    let (events_before, bytes_before, started) = (events.load(Relaxed), bytes.load(Relaxed), Instant::now());
    tokio::time::sleep(scale.window).await;
    let seconds = started.elapsed().as_secs_f64();
    let changes = (events.load(Relaxed) - events_before) as f64 / scale.watchers as f64;
    let bytes = (bytes.load(Relaxed) - bytes_before) as f64;
    over.store(true, Relaxed);
    for writer in writers {
        writer.await??;
    }
    ensure!(tasks.iter().all(|task| !task.is_finished()), "the server ended a watch");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    Ok((changes / seconds, bytes / seconds))
}

/// Changes that are made as fast as all watchers together take them.
struct Changes {
    made: Arc<AtomicI64>,
    told: Arc<AtomicI64>,
    watchers: i64,
}

impl Changes {
    async fn run(self, mut writer: Connection, over: Arc<AtomicBool>) -> Result<()> {
        while !over.load(Relaxed) {
            if self.made.load(Relaxed) > self.told.load(Relaxed) / self.watchers + CHANGES_ON_THE_WAY {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            let name = format!("change-{}", self.made.fetch_add(1, Relaxed));
            let answer = writer.exchange(&create_request(OTHER_NAMESPACE, &name), None).await?;
            answer.is_created()?;
        }
        Ok(())
    }
}

/// The present resourceVersion.
async fn revision(server: &Endpoint) -> Result<String> {
    let mut list = Vec::new();
    let path = format!("{}?limit=1", pods_path(OTHER_NAMESPACE));
    server.connect().await?.exchange(&request("GET", &path, &[]), Some(&mut list)).await?;
    let list: Value = serde_json::from_slice(&list)?;
    Ok(list["metadata"]["resourceVersion"].as_str().context("a list without resourceVersion")?.to_owned())
}

fn pods_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

fn pod_path(number: usize) -> String {
    format!("{}/{}", pods_path(NAMESPACE), pod_name(number))
}

fn pod_name(number: usize) -> String {
    format!("web-6d4cf56db6-{number:05}")
}

fn create_request(namespace: &str, name: &str) -> Vec<u8> {
    request("POST", &pods_path(namespace), pod(name).to_string().as_bytes())
}

/// A pod such as a Deployment of a web server makes.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "6d4cf56db6"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
        },
        "spec": {
            "containers": [{
                "name": "web", "image": "registry.example.com/shop/web:1.27.4",
                "args": ["--listen=:8080", "--metrics=:9090", "--log-level=info"],
                "env": [
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "BACKEND", "value": "http://catalogue.shop.svc.cluster.local:8080"},
                ],
                "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
                "volumeMounts": [{"name": "config", "mountPath": "/etc/web", "readOnly": true}],
            }],
            "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": "config", "configMap": {"name": "web"}}],
        },
    })
}
