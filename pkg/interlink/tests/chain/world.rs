//! What the tests of the chain share: its parts, each of which can be ended and started again.

use interlink::api;
use interlink::caller::Caller;
use interlink::config::{Config, TlsFiles};
use interlink::node::{self, NodeOptions};
use interlink::plugin::{self, container};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::PostParams;
use kubelet::config::{ApiConfig, ServerConfig};
use kubelet::simulated::{Act, Simulated};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use testing::{PATIENCE, Port, TestServer, eventually, in_time};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The node's name.
pub const NODE: &str = "vk";

/// A part of the chain.
pub struct Part {
    shutdown: CancellationToken,
    running: JoinHandle<()>,
}

impl Part {
    fn start<Running>(run: impl FnOnce(CancellationToken) -> Running) -> Part
    where
        Running: Future<Output = ()> + Send + 'static,
    {
        let shutdown = CancellationToken::new();
        Part { running: tokio::spawn(run(shutdown.clone())), shutdown }
    }

    /// Ends it.
    pub async fn stop(self) {
        self.shutdown.cancel();
        in_time("a part of the chain ends", self.running).await.expect("no panic");
    }
}

/// The cluster, the ports and the folders of a chain.
pub struct World {
    /// The apiserver.
    pub server: TestServer,
    /// Where all parts keep what they keep.
    pub dir: TempDir,
    /// The API server's port.
    pub api_port: Port,
    /// The plugin's port.
    pub plugin_port: Port,
    /// What the plugin runs pods on.
    pub runtime: Arc<Simulated>,
    pods: Api<Pod>,
}

impl World {
    /// A cluster without a node. Containers called `fails` end with 7, those called `ends` with 0.
    pub async fn start() -> World {
        let server = TestServer::start().await;
        let runtime = Simulated::with(|_, container, _| match container {
            "ends" => Act { ends: Some((Duration::ZERO, 0)), ..Act::default() },
            "fails" => Act { ends: Some((Duration::ZERO, 7)), ..Act::default() },
            _ => Act::default(),
        });
        let pods = Api::namespaced(server.admin(), "default");
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("token"), "a-token-of-the-test").expect("a token");
        World {
            server,
            dir,
            api_port: Port::reserve(),
            plugin_port: Port::reserve(),
            runtime: Arc::new(runtime),
            pods,
        }
    }

    /// The configuration of all three.
    pub fn config(&self) -> Config {
        self.config_with("")
    }

    /// The same, with more lines.
    pub fn config_with(&self, more: &str) -> Config {
        Config::load(Some(&self.config_file(more)), |_| None).expect("a configuration")
    }

    /// Where it is.
    pub fn config_file(&self, more: &str) -> PathBuf {
        let path = self.dir.path().join("InterLinkConfig.yaml");
        let text = format!(
            "InterlinkURL: http://127.0.0.1\nInterlinkPort: {}\nSidecarURL: http://127.0.0.1\nSidecarPort: {}\n\
             VKTokenFile: {token}\nSidecarTokenFile: {token}\nExportPodData: true\nDataRootFolder: {}\n{more}",
            self.api_port.number(),
            self.plugin_port.number(),
            self.dir.path().join("data").display(),
            token = self.dir.path().join("token").display(),
        );
        std::fs::write(&path, text).expect("a configuration");
        path
    }

    /// The API server.
    pub fn api(&self, config: Config) -> Part {
        let listen = SocketAddr::from(([127, 0, 0, 1], self.api_port.number()));
        Part::start(
            |shutdown| async move { api::run(config, listen, shutdown).await.expect("the API server") },
        )
    }

    /// The container plugin, on a simulated runtime.
    pub fn plugin(&self, config: Config) -> Part {
        let listen = SocketAddr::from(([127, 0, 0, 1], self.plugin_port.number()));
        let (folder, runtime) = (self.dir.path().join("plugin"), self.runtime.clone());
        Part::start(|shutdown| async move {
            let (site, mut tasks) = container::simulated(&folder, runtime, &shutdown).await.expect("a site");
            plugin::serve(&config, site, listen, shutdown.clone()).await.expect("the plugin");
            shutdown.cancel();
            while tasks.join_next().await.is_some() {}
        })
    }

    /// The virtual node.
    pub fn node(&self) -> Part {
        self.node_as("system:node:vk", &["system:nodes"], "")
    }

    /// The virtual node as somebody else.
    pub fn node_as(&self, user: &str, groups: &[&str], more: &str) -> Part {
        let mut config = kubelet::Config::new(NODE);
        config.api = ApiConfig::Kubeconfig(self.server.kubeconfig(self.server.address(), user, groups));
        config.node_ips = vec![[127, 0, 0, 1].into()];
        config.server = Some(ServerConfig {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            certificate: None,
            client_ca: None,
            cert_dir: self.dir.path().join("pki"),
        });
        let options = NodeOptions { config: Some(self.config_file(more)), server: None };
        Part::start(|shutdown| async move { node::run(config, options, shutdown).await.expect("the node") })
    }

    /// Waits until the node is ready, or is not.
    pub async fn node_is(&self, ready: bool) -> Node {
        let nodes: Api<Node> = Api::all(self.server.admin());
        let wanted = if ready { "True" } else { "False" };
        eventually(&format!("the node's Ready is {wanted}"), || async {
            let node = nodes.get_opt(NODE).await.expect("an answer")?;
            let conditions = node.status.as_ref()?.conditions.clone()?;
            conditions.iter().any(|c| c.type_ == "Ready" && c.status == wanted).then_some(node)
        })
        .await
    }

    /// Makes a pod on the node.
    pub async fn create(&self, name: &str, spec: Value) {
        let mut spec = spec;
        spec["nodeName"] = NODE.into();
        spec["restartPolicy"] = "Never".into();
        spec["terminationGracePeriodSeconds"] = 1.into();
        spec["automountServiceAccountToken"] = false.into();
        spec["tolerations"] = json!([{"key": "virtual-node.interlink/no-schedule", "operator": "Exists"}]);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        let pod = serde_json::from_value(pod).expect("a pod");
        eventually("the service account is there", || async {
            self.pods.create(&PostParams::default(), &pod).await.ok()
        })
        .await;
    }

    /// A pod of one container, which the runtime knows by its name.
    pub async fn create_one(&self, name: &str, container: &str) {
        self.create(name, json!({"containers": [{"name": container, "image": "busybox"}]})).await;
    }

    /// Waits until a pod is so.
    pub async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let last = parking(Value::Null);
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let pod =
                    serde_json::to_value(self.pods.get_opt(name).await.expect("an answer")).expect("JSON");
                if holds(&pod) {
                    return pod;
                }
                *last.lock().expect("one test") = pod;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        match found.await {
            Ok(found) => found,
            Err(_) => panic!("waited in vain: {what}: {:#}", last.lock().expect("one test")["status"]),
        }
    }

    /// Waits until a pod is in a phase.
    pub async fn phase(&self, name: &str, phase: &str) -> Value {
        self.until(name, &format!("{name} is {phase}"), |pod| pod["status"]["phase"] == phase).await
    }

    /// Deletes a pod and waits until it is gone.
    pub async fn delete(&self, name: &str) {
        self.pods.delete(name, &Default::default()).await.expect("deleted");
        self.until(name, "it is gone", Value::is_null).await;
    }

    /// Speaks to the API server or the plugin as anybody who knows the token.
    pub fn caller(&self, port: u16) -> Caller {
        let token = self.dir.path().join("token");
        Caller::new("http://127.0.0.1", port, &TlsFiles::default(), Some(&token)).expect("a caller")
    }

    /// What `kubectl logs` says.
    pub async fn logs(&self, name: &str, query: &str) -> (u16, String) {
        let path = format!("/api/v1/namespaces/default/pods/{name}/log{query}");
        let answer = self.server.http().get(&path).await;
        (answer.code, String::from_utf8_lossy(&answer.body).into_owned())
    }
}

fn parking(value: Value) -> std::sync::Mutex<Value> {
    std::sync::Mutex::new(value)
}
