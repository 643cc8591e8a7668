//! How many requests a minute a virtual node and an API server make, and the memory that each takes, with no pod, some and many.
//!
//! ```text
//! kubelet --provider interlink ──> counted ──> interlink api ──> counted: a plugin that runs nothing and answers for all
//! ```
//!
//! `cargo run -p interlink --example requests -- bin/minik8s`

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::any;
use bench::table::{Row, render};
use clap::Parser;
use http::{Method, StatusCode};
use interlink::caller::Caller;
use interlink::config::TlsFiles;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use testing::{Port, TestServer, eventually};
use tokio::net::TcpListener;

const PATHS: [&str; 8] =
    ["/create", "/delete", "/status", "/getLogs", "/ping", "/pinglink", "/setKubeCFG", "/updateCache"];
const PATIENCE: Duration = Duration::from_secs(120);

/// Counts the requests of a virtual node and of an API server.
#[derive(Parser)]
struct Flags {
    /// The minik8s program.
    program: PathBuf,
    /// A third of a minute each instead of a whole one, and fewer pods.
    #[arg(long)]
    quick: bool,
}

/// Passes requests on, and counts them.
struct Hop {
    to: Caller,
    count: AtomicU64,
}

async fn serve(port: u16, router: Router) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a port");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            tokio::spawn(async move {
                let io = hyper_util::rt::TokioIo::new(socket);
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
            });
        }
    });
}

async fn pass_on(hop: Arc<Hop>, path: &'static str, body: Bytes) -> (StatusCode, Bytes) {
    hop.count.fetch_add(1, Relaxed);
    match hop.to.call(path, Method::POST, body.to_vec(), PATIENCE).await {
        Ok(answer) => (StatusCode::OK, answer),
        Err(error) => {
            let code = error.code().and_then(|code| StatusCode::from_u16(code).ok());
            (code.unwrap_or(StatusCode::BAD_GATEWAY), error.to_string().into())
        }
    }
}

/// A hop that goes on to that port.
async fn hop(from: &Port, to: u16) -> Arc<Hop> {
    let to = Caller::new("http://127.0.0.1", to, &TlsFiles::default(), None).expect("a caller");
    let hop = Arc::new(Hop { to, count: AtomicU64::new(0) });
    let router = PATHS.into_iter().fold(Router::new(), |router, path| {
        router.route(path, any(move |State(hop): State<Arc<Hop>>, body: Bytes| pass_on(hop, path, body)))
    });
    serve(from.number(), router.with_state(hop.clone())).await;
    hop
}

/// A plugin that runs nothing.
async fn plugin(port: &Port) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let status = async move |body: Bytes| {
        counted.fetch_add(1, Relaxed);
        let pods: Vec<Value> = serde_json::from_slice(&body).unwrap_or_default();
        let states = pods.iter().map(|pod| {
            let meta = &pod["metadata"];
            json!({"name": meta["name"], "UID": meta["uid"], "namespace": meta["namespace"], "JID": "1",
                "containers": [{"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}], "initContainers": []})
        });
        json!(states.collect::<Vec<_>>()).to_string()
    };
    let create = async |body: Bytes| {
        let given: Value = serde_json::from_slice(&body).unwrap_or_default();
        json!({"PodUID": given["pod"]["metadata"]["uid"], "PodJID": "1"}).to_string()
    };
    serve(port.number(), Router::new().route("/status", any(status)).route("/create", any(create))).await;
    count
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(program: &Path, arguments: &[&str], config: &Path) -> Running {
        let mut command = Command::new(program);
        command.args(arguments).arg("--config").arg(config).stdin(Stdio::null()).stdout(Stdio::null());
        Running(command.env("LOG", "warn").spawn().expect("the program starts"))
    }

    fn memory_mb(&self) -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.0.id())).ok()?;
        let line = text.lines().find(|line| line.starts_with("Pss:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1000.0)
    }
}

#[tokio::main]
async fn main() {
    let flags = Flags::parse();
    let (window, most) =
        if flags.quick { (Duration::from_secs(20), 100) } else { (Duration::from_secs(60), 1000) };
    let server = TestServer::start().await;
    let dir = tempfile::tempdir().expect("a folder");
    let ports: Vec<Port> = (0..4).map(|_| Port::reserve()).collect();
    let plugin = plugin(&ports[3]).await;
    let hop = hop(&ports[0], ports[1].number()).await;
    let config = |name: &str, api: u16| {
        let path = dir.path().join(name);
        let text = format!(
            "InterlinkURL: http://127.0.0.1\nInterlinkPort: {api}\nSidecarURL: http://127.0.0.1\nSidecarPort: {}\n\
             ExportPodData: true\nDataRootFolder: {}\n",
            ports[3].number(),
            dir.path().join("data").display()
        );
        std::fs::write(&path, text).expect("a configuration");
        path
    };
    let api = Running::start(&flags.program, &["interlink", "api"], &config("api.yaml", ports[1].number()));
    let kubeconfig =
        server.kubeconfig(server.address(), "system:node:vk", &["system:nodes"]).display().to_string();
    let arguments =
        ["kubelet", "--provider", "interlink", "--hostname-override", "vk", "--kubeconfig", &kubeconfig];
    let arguments = [&arguments[..], &["--port", "0", "--max-pods", "5000"]].concat();
    let node = Running::start(&flags.program, &arguments, &config("node.yaml", ports[0].number()));
    let pods: Api<Pod> = Api::namespaced(server.admin(), "default");
    let (mut rows, mut made) = (Vec::new(), 0);
    for wanted in [0, 10, most] {
        for number in made..wanted {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{number}")}, "spec": {
                "nodeName": "vk", "automountServiceAccountToken": false, "restartPolicy": "Never",
                "containers": [{"name": "c", "image": "i"}]}});
            let pod = serde_json::from_value(pod).expect("a pod");
            eventually("a pod is made", || async { pods.create(&PostParams::default(), &pod).await.ok() })
                .await;
        }
        made = wanted;
        while {
            let running = ListParams::default().fields("status.phase=Running");
            pods.list(&running).await.expect("a list").items.len() < wanted
        } {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        tokio::time::sleep(Duration::from_secs(12)).await;
        let before = (hop.count.load(Relaxed), plugin.load(Relaxed));
        tokio::time::sleep(window).await;
        let minutes = window.as_secs_f64() / 60.0;
        let rate = |now: u64, before: u64| Some((now - before) as f64 / minutes);
        let row = |what: &str, unit, ours| Row {
            what: format!("{what}, {wanted} pods"),
            unit,
            ours,
            floor: None,
            peer: None,
        };
        rows.push(row("node to API server", "requests/min", rate(hop.count.load(Relaxed), before.0)));
        rows.push(row("API server to plugin", "requests/min", rate(plugin.load(Relaxed), before.1)));
        rows.push(row("virtual node, memory", "MB", node.memory_mb()));
        rows.push(row("API server, memory", "MB", api.memory_mb()));
    }
    println!("{}", render(&rows));
}
