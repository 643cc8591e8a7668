//! kube-rs: exec, attach, port-forward.

use crate::node::Cluster;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::AttachParams;
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;
use testing::in_time;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

async fn all(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut text = String::new();
    in_time("all output", stream.unwrap().read_to_string(&mut text)).await.unwrap();
    text
}

fn pods(cluster: &Cluster) -> Api<Pod> {
    Api::default_namespaced(cluster.server.admin())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_rs_executes() {
    let cluster = Cluster::start().await;
    cluster.run("web", "cat").await;
    let pods = pods(&cluster);
    let params = AttachParams::default().stderr(true);
    let mut process =
        pods.exec("web", ["sh", "-c", "echo to out; echo to err >&2; exit 3"], &params).await.unwrap();
    let (stdout, stderr) = (process.stdout(), process.stderr());
    let status = process.take_status().unwrap();
    let (out, err) = tokio::join!(all(stdout), all(stderr));
    assert_eq!((out.as_str(), err.as_str()), ("to out\n", "to err\n"));
    let status = in_time("how it ended", status).await.unwrap();
    assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"));
    assert_eq!(status.details.unwrap().causes.unwrap()[0].message.as_deref(), Some("3"));

    let params = AttachParams::default().stdin(true).stderr(false);
    let mut process = pods.exec("web", ["head", "-c", "100000"], &params).await.unwrap();
    let (mut stdin, stdout) = (process.stdin().unwrap(), process.stdout());
    let sent = "0123456789".repeat(10_000);
    let (written, out) = tokio::join!(stdin.write_all(sent.as_bytes()), all(stdout));
    written.unwrap();
    assert!(out == sent, "{} bytes came back", out.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_rs_attaches() {
    let cluster = Cluster::start().await;
    let id = cluster.run("web", "while read -r line; do echo \"got $line\"; done").await;
    let params = AttachParams::default().stdin(true).stderr(false);
    let mut attached = pods(&cluster).attach("web", &params).await.unwrap();
    let (mut stdin, mut stdout) = (attached.stdin().unwrap(), attached.stdout().unwrap());
    in_time("a word", stdin.write_all(b"hello\n")).await.unwrap();
    let mut answer = [0; 10];
    in_time("an answer", stdout.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"got hello\n");
    // Whoever goes does not end what was attached to; its end ends whoever stays.
    let status = attached.take_status().unwrap();
    cluster.node.runtime.kill(&id);
    let status = in_time("the end", status).await.unwrap();
    assert_eq!(status.status.as_deref(), Some("Success"));
}

/// A network of its own, with a server in it that says back what it hears; gone when dropped.
struct Network(String);

impl Network {
    fn new() -> Network {
        let name = format!("nodeapi-{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
        let run = |arguments: &[&str]| {
            assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
        };
        run(&["netns", "add", &name]);
        let network = Network(name);
        run(&["-n", &network.0, "link", "set", "lo", "up"]);
        network
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.0)
    }

    /// Listens in it; every connection is answered with what it sent, until it has said all.
    fn echo(&self) -> u16 {
        let path = self.path();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let file = std::fs::File::open(path).unwrap();
            nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            tell.send(listener).unwrap();
        });
        let listener: std::net::TcpListener = told.recv().unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
            }
        });
        port
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_rs_forwards_ports_into_the_pods_network() {
    let network = Network::new();
    let port = network.echo();
    let cluster = Cluster::start().await;
    cluster.run_in("web", "cat", Some(network.path()), json!({})).await;
    let nobody = if port == 1 { 2 } else { 1 };
    let mut forwarder = pods(&cluster).portforward("web", &[port, nobody]).await.unwrap();
    let mut stream = forwarder.take_stream(port).unwrap();
    in_time("a word", stream.write_all(b"hello")).await.unwrap();
    let mut answer = [0; 5];
    in_time("an answer", stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"hello");
    let error = in_time("an error", forwarder.take_error(nobody).unwrap()).await.unwrap();
    assert!(error.starts_with(&format!("error forwarding port {nobody} to pod web, uid ")), "{error}");
}
