//! The program as its user meets it: it leads, works, and lets go of its lease when it ends.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testing::{TestServer, eventually};

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(kubeconfig: &Path) -> (Program, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_controller-manager"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--health-port", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    BufReader::new(program.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    let address =
        line.trim().strip_prefix("Serving health and metrics on http://").expect("the line it promises");
    (Program(program), address.to_owned())
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it serves");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn it_leads_works_and_lets_go() {
    let server = TestServer::start().await;
    let kubeconfig = server.kubeconfig(server.address(), "system:kube-controller-manager", &[]);
    let (mut program, address) = start(&kubeconfig);
    let http = server.http();
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    http.post("/apis/apps/v1/namespaces/default/replicasets", &set).await.expect(201);
    eventually("two pods", || async {
        let pods = http.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb").await.expect(200);
        (pods["items"].as_array().map(Vec::len) == Some(2)).then_some(())
    })
    .await;
    assert!(get(&address, "/healthz").ends_with("ok"));
    assert!(
        get(&address, "/metrics").contains("controller_writes_total{controller=\"replicaset-controller\"}")
    );
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
    let holder = |lease: &Value| lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
    assert!(holder(&http.get(lease).await.expect(200)).is_some_and(|holder| !holder.is_empty()));
    let sent = Command::new("kill").args(["-TERM", &program.0.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    assert_eq!(program.0.wait().expect("it ends").code(), Some(0));
    assert_eq!(holder(&http.get(lease).await.expect(200)).as_deref(), Some(""), "another may lead at once");
}
