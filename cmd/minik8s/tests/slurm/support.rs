//! A cluster whose one node is a SLURM site.

use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use testing::{Cluster, ClusterConfig, Http, Slurm, SlurmConfig, Sshd, eventually};

pub const NODE: &str = "hpc";

/// How the site is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Local,
    Ssh,
}

/// All of it, until this is dropped.
pub struct Site {
    kubelet: Option<Child>,
    pub cluster: Cluster,
    pub slurm: Slurm,
    _sshd: Option<Sshd>,
    dir: tempfile::TempDir,
    http: Http,
}

impl Site {
    /// On this machine, with the usual SLURM.
    pub async fn start() -> Site {
        Site::start_with(Way::Local, &SlurmConfig::default(), "").await
    }

    /// With more said in the site's file.
    pub async fn start_with(way: Way, config: &SlurmConfig, more: &str) -> Site {
        let config = config.clone();
        let slurm = tokio::task::spawn_blocking(move || Slurm::start_with(&config)).await.expect("a SLURM");
        // Also those that say whether a node is ready: this one sends heartbeats.
        let controllers = vec!["*".to_owned()];
        let cluster =
            Cluster::start_with(ClusterConfig { nodes: 0, controllers, ..ClusterConfig::default() }).await;
        let dir = tempfile::tempdir().expect("a folder");
        let sshd = (way == Way::Ssh).then(|| Sshd::start(slurm.dir()));
        let ssh = sshd.as_ref().map(|sshd| {
            format!(
                "ssh: {{destination: root@127.0.0.1, port: {}, identityFile: {}, knownHostsFile: {}}}\n",
                sshd.port(),
                sshd.identity().display(),
                sshd.known_hosts().display()
            )
        });
        let data = slurm.dir().join("data");
        let text = format!(
            "dataRoot: {}/{{user}}\nslurmConf: {}\nnamespaces: {{default: {{user: nobody}}, admin: {{user: root}}}}\n\
             gpus: {{nvidia.com/gpu: gpu, minik8s.io/shard: shard}}\nmessageTimeoutSeconds: 2\n\
             hostPaths: [{}/shared]\ncompilers: {{cu: 'cc -x c {{source}} -o {{program}} && ./{{program}}'}}\n{}{more}",
            data.display(),
            slurm.conf().display(),
            slurm.dir().display(),
            ssh.unwrap_or_default(),
        );
        std::fs::write(dir.path().join("site.yaml"), text).expect("the site's file");
        std::fs::create_dir(dir.path().join("root")).expect("a folder");
        let http = cluster.server.http();
        let mut site = Site { kubelet: None, cluster, slurm, _sshd: sshd, dir, http };
        site.start_kubelet();
        let ready = || async {
            let node = site.http.get(&format!("/api/v1/nodes/{NODE}")).await.json();
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True").then_some(())
        };
        eventually("the node is ready", ready).await;
        site
    }

    /// Where the kubelet keeps what it remembers.
    pub fn records(&self) -> PathBuf {
        self.dir.path().join("root/slurm").join(NODE)
    }

    pub fn start_kubelet(&mut self) {
        let kubeconfig = self.cluster.server.kubeconfig(
            self.cluster.server.address(),
            &format!("system:node:{NODE}"),
            &["system:nodes"],
        );
        let log =
            std::fs::File::options().create(true).append(true).open(self.dir.path().join("kubelet.log"));
        let log = log.expect("its log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_minik8s"));
        command.arg("kubelet").arg("--kubeconfig").arg(kubeconfig);
        command.args(["--provider", "slurm", "--hostname-override", NODE, "--port", "0"]);
        command.arg("--config").arg(self.dir.path().join("site.yaml"));
        command.arg("--root-dir").arg(self.dir.path().join("root"));
        command.arg("--cert-dir").arg(self.dir.path().join("pki"));
        command.arg("--node-ip").arg(own_address().to_string());
        command.env("LOG", "kubelet=debug");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("its log")).stderr(log);
        self.kubelet = Some(command.spawn().expect("the kubelet"));
    }

    /// Ends the kubelet as a crash would.
    pub fn kill_kubelet(&mut self) {
        if let Some(mut kubelet) = self.kubelet.take() {
            let _ = kubelet.kill();
            let _ = kubelet.wait();
        }
    }

    pub fn kubelet(&self) -> u32 {
        self.kubelet.as_ref().expect("it runs").id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("kubelet.log")).unwrap_or_default()
    }

    /// A folder for the test's own files.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// kubectl, as people call it.
    pub fn kubectl(&self, arguments: &[&str]) -> Output {
        let kubeconfig = self.dir.path().join("admin.kubeconfig");
        if !kubeconfig.exists() {
            let made =
                self.cluster.server.kubeconfig(self.cluster.server.address(), "admin", &["system:masters"]);
            std::fs::copy(made, &kubeconfig).expect("the kubeconfig");
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_minik8s"));
        command
            .arg("kubectl")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(arguments)
            .current_dir(self.dir.path());
        command.stdin(Stdio::null()).output().expect("kubectl runs")
    }

    /// What kubectl says where it must succeed.
    pub fn says(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {errors}\n{}", self.log());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Makes a pod that tolerates the node, with more in its spec and its metadata.
    pub async fn pod(&self, name: &str, script: &str, more: Value) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "tolerations": [{"key": "virtual-node.interlink/no-schedule", "operator": "Exists"}],
                "nodeSelector": {"kubernetes.io/hostname": NODE},
                "containers": [{"name": "c", "image": "none", "command": ["bash", "-c", script]}],
            },
        });
        merge(&mut pod, &more);
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        self.http.post(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).await.expect(201)
    }

    pub async fn get(&self, name: &str) -> Value {
        self.http.get(&format!("/api/v1/namespaces/default/pods/{name}")).await.json()
    }

    pub fn http(&self) -> &Http {
        &self.http
    }

    /// Waits until a pod is so.
    pub async fn pod_is(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let found = tokio::time::timeout(testing::PATIENCE, async {
            eventually(what, || async {
                let pod = self.get(name).await;
                is(&pod).then_some(pod)
            })
            .await
        });
        match found.await {
            Ok(pod) => pod,
            Err(_) => panic!(
                "pod {name} is not {what}: {:#}\n{}\n{}",
                self.get(name).await["status"],
                self.log(),
                self.slurm.says(&["squeue", "--states=all"])
            ),
        }
    }

    pub async fn phase(&self, name: &str, phase: &str) -> Value {
        self.pod_is(name, phase, |pod| pod["status"]["phase"] == phase).await
    }

    /// How a pod's first container ended.
    pub async fn ended(&self, name: &str) -> Value {
        let is_over = |pod: &Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let pod = self.pod_is(name, "over", is_over).await;
        let mut ended = pod["status"]["containerStatuses"][0]["state"]["terminated"].clone();
        ended["phase"] = pod["status"]["phase"].clone();
        ended["message"] = pod["status"]["message"].clone();
        ended
    }

    /// The jobs of this SLURM: name and state of each.
    pub fn jobs(&self) -> Vec<(String, String)> {
        let said = self.slurm.says(&["squeue", "--states=all", "--noheader", "--format=%j|%T"]);
        let pair = |line: &str| line.split_once('|').map(|(name, state)| (name.to_owned(), state.to_owned()));
        said.lines().filter_map(pair).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("kubelet:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
        self.kill_kubelet();
    }
}

/// Adds members to an object, deeply.
fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(more)) => {
            for (index, value) in more.iter().enumerate() {
                match into.get_mut(index) {
                    Some(slot) => merge(slot, value),
                    None => into.push(value.clone()),
                }
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// An address of this machine that is not the loopback's. Nothing is sent to find it.
fn own_address() -> IpAddr {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect("192.0.2.1:9").expect("a route");
    socket.local_addr().expect("an address").ip()
}
