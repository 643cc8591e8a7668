//! The same on a real containerd: what processes cannot show.

use crate::containerd_node;
use crate::node::{NODE, Served, TestProvider, serve};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, LogParams, TerminalSize};
use kubelet::runtime::{PodRef, Runtime};
use serde_json::json;
use std::sync::Arc;
use testing::{TestServer, in_time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_of_containerd_are_reached() {
    let node = containerd_node::Node::start().await;
    let server = TestServer::start().await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "real"},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "busybox", "stdin": true}]},
    });
    let mut made = server.http().post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
    let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
    let reference = PodRef { namespace: "default".into(), name: "real".into(), uid };
    let script = "while read -r line; do echo \"got $line\"; test \"$line\" = stop && exit 0; done";
    let mut spec = node.shell(&reference, "c", script);
    spec.stdin = true;
    let (sandbox, container) = node.run(&reference, &spec).await;
    made["status"] = json!({"phase": "Running", "containerStatuses": [{
        "name": "c", "image": "busybox", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": format!("containerd://{}", container.id.0), "state": {"running": {}},
    }]});
    let runtime = Arc::new(node.runtime);
    // As it was when it was started.
    let known = TestProvider::new(runtime.clone(), Pod::clone);
    known.pods.lock().push(serde_json::from_value(made).unwrap());
    let _served: Served = serve(&server, known).await;
    let pods: Api<Pod> = Api::default_namespaced(server.admin());

    // Its own files, its own end.
    let params = AttachParams::default().stdin(true).stderr(true);
    let command = ["sh", "-c", "cat; busybox | head -n 1 >&2; exit 5"];
    let mut process = in_time("exec", pods.exec("real", command, &params)).await.unwrap();
    let (mut stdin, mut stdout) = (process.stdin().unwrap(), process.stdout().unwrap());
    let (mut stderr, status) = (process.stderr().unwrap(), process.take_status().unwrap());
    stdin.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    in_time("what was said", stdout.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"hello");
    // Shutting it down is what ends it; in kube-rs, dropping it tells nobody.
    stdin.shutdown().await.unwrap();
    let mut complaint = String::new();
    in_time("the other output", stderr.read_to_string(&mut complaint)).await.unwrap();
    assert!(complaint.starts_with("BusyBox"), "{complaint}");
    let status = in_time("how it ended", status).await.unwrap();
    assert_eq!(status.details.unwrap().causes.unwrap()[0].message.as_deref(), Some("5"));

    // A terminal that can be resized.
    let params = AttachParams::interactive_tty();
    let command =
        ["sh", "-c", "until [ \"$(stty size 2>/dev/null)\" = '37 91' ]; do sleep 0.1; done; echo resized"];
    let mut process = in_time("exec", pods.exec("real", command, &params)).await.unwrap();
    let mut resize = process.terminal_size().unwrap();
    let mut stdout = process.stdout().unwrap();
    futures::SinkExt::send(&mut resize, TerminalSize { width: 91, height: 37 }).await.unwrap();
    let mut heard = String::new();
    in_time("the new size", stdout.read_to_string(&mut heard)).await.unwrap();
    assert_eq!(heard.trim(), "resized");

    // Attached to, followed, and seen to its end.
    let follow = LogParams { follow: true, ..LogParams::default() };
    let mut lines = in_time("the log", pods.log_stream("real", &follow)).await.unwrap().lines();
    let params = AttachParams::default().stdin(true).stderr(false);
    let mut attached = in_time("attach", pods.attach("real", &params)).await.unwrap();
    let (mut stdin, mut stdout) = (attached.stdin().unwrap(), attached.stdout().unwrap());
    stdin.write_all(b"one\nstop\n").await.unwrap();
    let mut heard = String::new();
    in_time("the end of what it says", stdout.read_to_string(&mut heard)).await.unwrap();
    assert_eq!(heard, "got one\ngot stop\n");
    for expected in [Some("got one"), Some("got stop"), None] {
        assert_eq!(in_time("a line", lines.try_next()).await.unwrap().as_deref(), expected);
    }
    runtime.remove_sandbox(&sandbox).await.unwrap();
    runtime.close().await;
}
