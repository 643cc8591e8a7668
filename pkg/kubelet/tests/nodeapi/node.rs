//! A node of a real apiserver: the kubelet's API over processes.

use crate::processes::Processes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::config::AuthInfo;
use kube::{Client, Config};
use kubelet::runtime::{ContainerState, PodRef};
use kubelet::server::{self, Pods, Serving};
use parking_lot::Mutex;
use serde_json::{Value, json};
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
    pub address: SocketAddr,
    pub runtime: Arc<Processes>,
    pub pods: Arc<KnownPods>,
    dir: tempfile::TempDir,
    shutdown: CancellationToken,
    serving: Option<tokio::task::JoinHandle<()>>,
}

/// The pods of the node, with the status that the runtime's view makes.
pub struct KnownPods {
    pods: Mutex<Vec<Pod>>,
    runtime: Arc<Processes>,
    /// Why the loop that looks after pods is not well.
    pub trouble: Mutex<Option<String>>,
}

impl Pods for KnownPods {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.lock().iter().map(|pod| Arc::new(self.with_status(pod))).collect()
    }

    fn sync_loop(&self) -> Result<(), String> {
        self.trouble.lock().clone().map_or(Ok(()), Err)
    }

    fn config(&self) -> Value {
        json!({"kind": "KubeletConfiguration"})
    }
}

impl KnownPods {
    fn with_status(&self, pod: &Pod) -> Pod {
        let view =
            self.runtime.views().into_iter().find(|view| Some(&view.pod.uid) == pod.metadata.uid.as_ref());
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
        self.node.runtime.add_pod(&reference, network);
        self.node.pods.pods.lock().push(serde_json::from_value(made).unwrap());
        self.node.runtime.run(&reference, "c", &id, script, &self.node.log(&id));
        let seen = self.node.pods.pod("default", name).unwrap();
        let path = format!("/api/v1/namespaces/default/pods/{name}/status");
        http.patch(&path, "merge", &json!({"status": seen.status})).await.expect(200);
        id
    }
}

impl Node {
    async fn start(server: &TestServer) -> Node {
        let read = |file: &str| std::fs::read_to_string(server.data_dir().join(file)).unwrap();
        let ca = read("ca.crt");
        let serving = Serving::self_signed(NODE, &["127.0.0.1".to_owned()], &ca, Timestamp::now()).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let object = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}},
                "allocatable": {"cpu": "2", "memory": "4Gi"}, "capacity": {"cpu": "2", "memory": "4Gi"},
            },
        });
        server.http().post("/api/v1/nodes", &object).await.expect(201);
        let runtime = Processes::new();
        let trouble = Mutex::default();
        let pods = Arc::new(KnownPods { pods: Mutex::default(), runtime: runtime.clone(), trouble });
        let shutdown = CancellationToken::new();
        // The kubelet asks about others as the node that it is.
        let config = server::Config::new(NODE, serving, Some(server.node(NODE)));
        let serving =
            tokio::spawn(server::run(config, listener, runtime.clone(), pods.clone(), shutdown.clone()));
        let dir = tempfile::tempdir().unwrap();
        Node { address, runtime, pods, dir, shutdown, serving: Some(serving) }
    }

    /// Where a container's log is.
    pub fn log(&self, id: &str) -> PathBuf {
        self.dir.path().join(format!("{id}.log"))
    }

    /// A client of the kubelet itself.
    pub fn client(&self, auth_info: AuthInfo) -> Http {
        let mut config = Config::new(format!("https://{}", self.address).parse().unwrap());
        config.accept_invalid_certs = true;
        config.auth_info = auth_info;
        config.default_retry = false;
        Http::new(Client::try_from(config).unwrap())
    }

    /// Ends it, and waits until it has.
    pub async fn stop(&mut self) {
        self.shutdown.cancel();
        testing::in_time("the kubelet's server ends", self.serving.take().unwrap()).await.unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
