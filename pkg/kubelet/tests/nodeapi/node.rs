//! A node of a real apiserver: the kubelet's API over processes.

use crate::processes::Processes;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::config::AuthInfo;
use kube::{Client, Config};
use kubelet::local::Sessions;
use kubelet::provider::{Change, Described, Log, LogRequest, PodProvider, Running};
use kubelet::runtime::{ContainerState, Error, ExecSpec, PodRef, Runtime, Session, Usage};
use kubelet::server::{self, Serving};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use testing::{Http, TestServer};
use tokio_util::sync::CancellationToken;

pub const NODE: &str = "node-1";

/// An apiserver and a node.
pub struct Cluster {
    pub server: TestServer,
    pub node: Node,
}

pub struct Node {
    pub runtime: Arc<Processes>,
    pub pods: Arc<TestProvider>,
    served: Served,
    dir: tempfile::TempDir,
}

/// A kubelet's API, until it is dropped.
pub struct Served {
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: Option<tokio::task::JoinHandle<()>>,
    /// The node's own.
    _logs: tempfile::TempDir,
}

/// What is in the node's log.
pub const SYSLOG: &str = "a line of the node\n";

/// An address of this machine that is not the loopback's. Nothing is sent to find it.
fn own_address() -> std::net::IpAddr {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").expect("a route");
    socket.local_addr().unwrap().ip()
}

/// Serves the API of a node that the apiserver knows.
pub async fn serve(server: &TestServer, provider: Arc<TestProvider>) -> Served {
    let ca = std::fs::read_to_string(server.data_dir().join("ca.crt")).unwrap();
    // The API server's proxy leads nobody to its own loopback.
    let own = own_address();
    let serving = Serving::self_signed(NODE, &[own.to_string()], &ca, Timestamp::now()).unwrap();
    let listener = tokio::net::TcpListener::bind((own, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let object = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE},
        "status": {
            "addresses": [{"type": "InternalIP", "address": own.to_string()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}},
            "allocatable": {"cpu": "2", "memory": "4Gi"}, "capacity": {"cpu": "2", "memory": "4Gi"},
        },
    });
    server.http().post("/api/v1/nodes", &object).await.expect(201);
    let shutdown = CancellationToken::new();
    // The kubelet asks about others as the node that it is.
    let mut config = server::Config::new(NODE, serving, Some(server.node(NODE)));
    config.configz = json!({"kind": "KubeletConfiguration"});
    let logs = tempfile::tempdir().unwrap();
    std::fs::write(logs.path().join("syslog"), SYSLOG).unwrap();
    config.logs = logs.path().to_owned();
    let asked = provider.clone();
    config.health = Arc::new(move || asked.health());
    let serving = tokio::spawn(server::run(config, listener, provider, shutdown.clone()));
    Served { address, shutdown, serving: Some(serving), _logs: logs }
}

/// Gives a pod its present status.
type WithStatus = dyn Fn(&Pod) -> Pod + Send + Sync;

/// Pods that are as a runtime shows them: nobody looks after them.
pub struct TestProvider {
    pub pods: Mutex<Vec<Pod>>,
    with_status: Box<WithStatus>,
    sessions: Sessions,
    /// Why pods are not looked after.
    pub trouble: Mutex<Option<String>>,
}

impl TestProvider {
    pub fn new(
        runtime: Arc<dyn Runtime>,
        with_status: impl Fn(&Pod) -> Pod + Send + Sync + 'static,
    ) -> Arc<TestProvider> {
        Arc::new(TestProvider {
            pods: Mutex::default(),
            with_status: Box::new(with_status),
            sessions: Sessions::new(runtime),
            trouble: Mutex::default(),
        })
    }
}

#[async_trait::async_trait]
impl PodProvider for TestProvider {
    async fn run(self: Arc<Self>, _shutdown: CancellationToken) {}
    fn create(&self, pod: Arc<Pod>) {
        self.pods.lock().push((*pod).clone());
    }
    fn update(&self, _pod: Arc<Pod>) {}
    fn delete(&self, _pod: Arc<Pod>) {}
    fn retain(&self, _uids: BTreeSet<String>) {}
    fn list(&self) -> Vec<Arc<Pod>> {
        self.pods.lock().iter().map(|pod| Arc::new((self.with_status)(pod))).collect()
    }
    fn changes(&self) -> BoxStream<'static, Change> {
        futures::stream::pending().boxed()
    }
    fn health(&self) -> Result<(), String> {
        self.trouble.lock().clone().map_or(Ok(()), Err)
    }
    async fn describe(&self) -> Described {
        unreachable!("it is not registered")
    }
    async fn logs(&self, pod: &PodRef, container_id: &str, _asked: LogRequest) -> Result<Log, Error> {
        self.sessions.logs(pod, container_id).await.map(Log::File)
    }
    async fn exec(&self, pod: &PodRef, container: &str, spec: &ExecSpec) -> Result<Session, Error> {
        self.sessions.exec(pod, container, spec).await
    }
    async fn attach(&self, pod: &PodRef, container: &str, stdin: bool) -> Result<Session, Error> {
        self.sessions.attach(pod, container, stdin).await
    }
    async fn ports(&self, pod: &PodRef) -> Result<Option<PathBuf>, Error> {
        self.sessions.ports(pod).await
    }
    async fn usage(&self, pod: &PodRef) -> Result<BTreeMap<String, Usage>, Error> {
        self.sessions.usage(pod).await
    }
    async fn running(&self) -> Result<Vec<(PodRef, Vec<Running>)>, Error> {
        self.sessions.running().await
    }
}

/// The status that the runtime's view makes.
fn with_status(runtime: &Processes, pod: &Pod) -> Pod {
    let view = runtime.views().into_iter().find(|view| Some(&view.pod.uid) == pod.metadata.uid.as_ref());
    let statuses: Vec<Value> = view
        .iter()
        .flat_map(|view| &view.containers)
        .map(|container| {
            let id = format!("containerd://{}", container.id.0);
            let state = match &container.state {
                ContainerState::Running { started_at, .. } => {
                    json!({"running": {"startedAt": time(*started_at)}})
                }
                ContainerState::Exited { code, .. } => {
                    json!({"terminated": {"exitCode": code, "containerID": id}})
                }
                ContainerState::Created => json!({"waiting": {"reason": "ContainerCreating"}}),
            };
            json!({
                "name": container.name, "image": "sh", "imageID": "sh", "ready": true, "restartCount": 0,
                "containerID": id, "state": state,
            })
        })
        .collect();
    let status =
        json!({"phase": "Running", "startTime": time(Timestamp::now()), "containerStatuses": statuses});
    Pod { status: Some(serde_json::from_value(status).unwrap()), ..pod.clone() }
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl Cluster {
    pub async fn start() -> Cluster {
        let server = TestServer::start().await;
        let node = Node::start(&server).await;
        Cluster { server, node }
    }

    /// A pod that is there for clients and runs as a process; gives back its container's id.
    pub async fn run(&self, name: &str, script: &str) -> String {
        self.run_in(name, script, None, json!({})).await
    }

    /// The same in a network of its own, with more said of the container.
    pub async fn run_in(&self, name: &str, script: &str, network: Option<PathBuf>, more: Value) -> String {
        let mut container = json!({"name": "c", "image": "sh"});
        for (member, value) in more.as_object().unwrap() {
            container[member] = value.clone();
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"nodeName": NODE, "containers": [container]},
        });
        let http = self.server.http();
        let made = http.post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
        let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
        let reference = PodRef { namespace: "default".into(), name: name.into(), uid };
        let id = format!("{name}-id");
        if more["stdinOnce"] == true {
            self.node.runtime.once.lock().insert(id.clone());
        }
        self.node.runtime.add_pod(&reference, network);
        self.node.pods.pods.lock().push(serde_json::from_value(made).unwrap());
        self.node.runtime.run(&reference, "c", &id, script, &self.node.log(&id));
        let known = self.node.pods.list();
        let seen = known.iter().find(|pod| pod.metadata.name.as_deref() == Some(name)).unwrap();
        let path = format!("/api/v1/namespaces/default/pods/{name}/status");
        http.patch(&path, "merge", &json!({"status": seen.status})).await.expect(200);
        id
    }
}

impl Node {
    async fn start(server: &TestServer) -> Node {
        let runtime = Processes::new();
        let shown = runtime.clone();
        let pods = TestProvider::new(runtime.clone(), move |pod| with_status(&shown, pod));
        let served = serve(server, pods.clone()).await;
        Node { runtime, pods, served, dir: tempfile::tempdir().unwrap() }
    }

    /// Where a container's log is.
    pub fn log(&self, id: &str) -> PathBuf {
        self.dir.path().join(format!("{id}.log"))
    }

    /// Where the kubelet itself is.
    pub fn address(&self) -> SocketAddr {
        self.served.address
    }

    /// A client of the kubelet itself.
    pub fn client(&self, auth_info: AuthInfo) -> Http {
        let mut config = Config::new(format!("https://{}", self.served.address).parse().unwrap());
        config.accept_invalid_certs = true;
        config.auth_info = auth_info;
        config.default_retry = false;
        Http::new(Client::try_from(config).unwrap())
    }

    /// Ends it, and waits until it has.
    pub async fn stop(&mut self) {
        self.served.shutdown.cancel();
        testing::in_time("the kubelet's server ends", self.served.serving.take().unwrap()).await.unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
