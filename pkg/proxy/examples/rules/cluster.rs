//! A program beside an apiserver that is full of services.

use crate::probe::{self, NODE};
use crate::{
    ENDPOINTS, PODS, PORT, SERVICES, Scale, TARGET_PORT, Times, changed, cluster_ip, key, median, pod_ip,
};
use anyhow::Result;
use bench::process;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testing::{Http, TestServer};

/// So many requests are under way at once.
const AT_ONCE: usize = 16;
/// After this a program has put away what only its start needed.
const SETTLE: Duration = Duration::from_secs(15);
/// Changes come one at a time: upstream's program syncs once in a second at most, which is not what is measured.
const BETWEEN_CHANGES: Duration = Duration::from_millis(1500);

/// Whose command line a program understands.
#[derive(Clone, Copy)]
pub enum Kind {
    Ours,
    Upstream,
}

/// A program to measure.
pub struct Program {
    pub kind: Kind,
    pub path: PathBuf,
}

/// What it does and takes.
pub struct Figures {
    pub times: Times,
    /// CPU seconds from its start to all rules.
    pub cpu: f64,
    /// Megabytes, once everything is done.
    pub pss: f64,
    /// Megabytes, resident at most.
    pub peak: f64,
}

pub async fn measure(program: &Program, scale: &Scale) -> Result<Figures> {
    probe::serve()?;
    let server = TestServer::start().await;
    fill(&server.http(), scale.services).await;
    let folder = tempfile::tempdir()?;
    let kubeconfig = server.kubeconfig(server.address(), "proxy", &["system:masters"]);
    let mut command = match program.kind {
        Kind::Ours => ours(&program.path, folder.path(), &kubeconfig, &scale.iptables),
        Kind::Upstream => upstream(&program.path, folder.path(), &kubeconfig, &scale.iptables)?,
    };
    command.stdout(Stdio::null()).stderr(std::fs::File::create(folder.path().join("log"))?);
    let began = Instant::now();
    let running = process::Program::start(command)?;
    let services = scale.services;
    let served = outside(move || probe::wait_for_all(services)).await;
    // Whatever it complains of goes with its folder.
    let served = served.inspect_err(|_| eprintln!("{}", last_words(folder.path())))?;
    let (first, cpu) = (served - began, process::cpu_seconds(running.pid())?);
    let mut times = Vec::new();
    for n in 0..scale.changes {
        tokio::time::sleep(BETWEEN_CHANGES).await;
        times.push(change(&server.http(), changed(n, scale), n + 1).await?.as_secs_f64());
    }
    tokio::time::sleep(SETTLE).await;
    let (pss, peak) = process::memory(running.pid())?;
    let times = Times { first: first.as_secs_f64(), change: median(times) };
    Ok(Figures { times, cpu, pss: pss / 1e6, peak: peak / 1e6 })
}

/// Gives a service another endpoint in place of its last, and waits until it serves.
async fn change(http: &Http, n: usize, version: usize) -> Result<Duration> {
    let path = format!("{SLICES}/{}-x", key(n).name);
    let patch = json!({"endpoints": endpoints(n, version)});
    let began = Instant::now();
    http.patch(&path, "merge", &patch).await.expect(200);
    let served = outside(move || probe::wait_for(cluster_ip(n), pod_ip(n, ENDPOINTS - 1, version))).await?;
    Ok(served - began)
}

/// Waits on a thread that the apiserver does not need.
async fn outside<T: Send + 'static>(wait: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(wait).await?
}

fn last_words(folder: &Path) -> String {
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// As it is installed, but for nginx and the overlay, which a peer leaves to others.
fn ours(program: &Path, folder: &Path, kubeconfig: &Path, iptables: &str) -> Command {
    let mut command = Command::new(program);
    // By this name the one program of all acts as kubeproxy.
    command.arg0("kubeproxy").arg("--kubeconfig").arg(kubeconfig).args(["--hostname-override", "n1"]);
    command.args(["--service-cluster-ip-range", SERVICES, "--cluster-cidr", PODS, "--iptables", iptables]);
    command.args(["--overlay", "false", "--gateway-ports", "0,0"]);
    command.arg("--state-dir").arg(folder.join("state")).arg("--hosts-file").arg(folder.join("hosts"));
    command
}

fn upstream(program: &Path, folder: &Path, kubeconfig: &Path, iptables: &str) -> Result<Command> {
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
        "hostnameOverride": "n1", "clusterCIDR": PODS,
        "clientConnection": {"kubeconfig": kubeconfig, "contentType": "application/json"},
        // The kernel's tables of connections are the machine's, not this host's.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    });
    let file = folder.join("config.json");
    std::fs::write(&file, config.to_string())?;
    // It takes whatever iptables comes first.
    let programs = folder.join("bin");
    std::fs::create_dir(&programs)?;
    for family in ["iptables", "ip6tables"] {
        let wanted = iptables.replacen("iptables", family, 1);
        for more in ["", "-save", "-restore"] {
            symlink(format!("/usr/sbin/{wanted}"), programs.join(format!("{family}{more}")))?;
        }
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.arg("--config").arg(file).env("PATH", format!("{}:{path}", programs.display()));
    Ok(command)
}

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// The node, services, and slices as the controller writes them.
async fn fill(http: &Http, services: usize) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "spec": {"podCIDR": "10.128.0.0/24"}});
    http.post("/api/v1/nodes", &node).await.expect(201);
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": NODE}]}});
    http.patch("/api/v1/nodes/n1/status", "merge", &status).await.expect(200);
    let made = stream::iter(0..services).for_each_concurrent(AT_ONCE, |n| async move {
        http.post("/api/v1/namespaces/default/services", &service(n)).await.expect(201);
        http.post(SLICES, &slice(n)).await.expect(201);
    });
    made.await;
}

fn service(n: usize) -> Value {
    let name = key(n).name;
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"app": name}}, "spec": {
        "clusterIP": cluster_ip(n), "selector": {"app": name},
        "ports": [{"name": "http", "port": PORT, "targetPort": TARGET_PORT}]}})
}

fn slice(n: usize) -> Value {
    let name = key(n).name;
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{name}-x"), "generateName": format!("{name}-"), "labels": {
            "app": name, "kubernetes.io/service-name": name,
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
        "ports": [{"name": "http", "port": TARGET_PORT, "protocol": "TCP"}], "endpoints": endpoints(n, 0)})
}

fn endpoints(n: usize, version: usize) -> Vec<Value> {
    let endpoint = |m: usize| {
        let (address, node): (Ipv4Addr, usize) = (pod_ip(n, m, version), (n + m) % 100);
        json!({"addresses": [address], "nodeName": format!("node-{node}"),
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "namespace": "default", "name": format!("{}-{m}", key(n).name)}})
    };
    (0..ENDPOINTS).map(endpoint).collect()
}
