//! The chain of interLink as it is built, three programs on a real containerd: killed at any time, measured, and asked for
//! everything that the protocol has.

#[path = "../../../kubelet/tests/node/command.rs"]
#[allow(dead_code)]
mod command;

use command::{ADDRESS, enter_a_network_of_its_own};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Api;
use kube::api::PostParams;
use kubelet::runtime::containerd::{Config, Containerd};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testing::{PATIENCE, Port, TestServer, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_minik8s");
const TOKEN: &str = "a-token-that-nobody-may-see";

/// The three programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Plugin,
    Api,
    Node,
}

struct Chain {
    containerd: testing::Containerd,
    server: TestServer,
    config: PathBuf,
    running: Vec<(Part, Child)>,
    _ports: [Port; 2],
}

impl Chain {
    async fn start() -> Chain {
        let containerd = testing::Containerd::start();
        let importing = Containerd::new(Config {
            socket: containerd.socket(),
            namespace: "interlink".into(),
            root_dir: containerd.dir().join("import"),
            state_dir: containerd.dir().join("import-run"),
            ..Config::default()
        });
        let archive = containerd.dir().join("busybox.tar");
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/build");
        assert!(Command::new(build).arg("busybox").arg(&archive).status().expect("images/build").success());
        importing.expect("a runtime").import(&archive).await.expect("busybox");
        let ports = [Port::reserve(), Port::reserve()];
        let token = containerd.dir().join("token");
        std::fs::write(&token, TOKEN).expect("a token");
        let config = containerd.dir().join("InterLinkConfig.yaml");
        let text = format!(
            "InterlinkURL: http://127.0.0.1\nInterlinkPort: {}\nSidecarURL: http://127.0.0.1\nSidecarPort: {}\n\
             VKTokenFile: {token}\nSidecarTokenFile: {token}\nExportPodData: true\nDataRootFolder: {}\n",
            ports[0].number(),
            ports[1].number(),
            containerd.dir().join("data").display(),
            token = token.display(),
        );
        std::fs::write(&config, text).expect("a configuration");
        let mut chain = Chain {
            containerd,
            server: TestServer::start().await,
            config,
            running: Vec::new(),
            _ports: ports,
        };
        for part in [Part::Plugin, Part::Api, Part::Node] {
            chain.begin(part);
        }
        chain
    }

    fn log(&self, part: Part) -> PathBuf {
        self.containerd.dir().join(format!("{part:?}.log"))
    }

    fn begin(&mut self, part: Part) {
        let mut command = Command::new(PROGRAM);
        match part {
            Part::Plugin => {
                command.args([
                    "interlink",
                    "plugin",
                    "container",
                    "--pod-cidr",
                    "10.78.0.0/24",
                    testing::ROOM_ENOUGH,
                ]);
                command.arg("--containerd").arg(self.containerd.socket());
                command.arg("--cgroup-root").arg(self.containerd.cgroup());
                command.arg("--state-dir").arg(self.containerd.dir().join("run"));
            }
            Part::Api => drop(command.args(["interlink", "api"])),
            Part::Node => {
                command.args([
                    "kubelet",
                    "--provider",
                    "interlink",
                    "--hostname-override",
                    "vk",
                    "--node-ip",
                    ADDRESS,
                ]);
                command.args(["--port", "0", "--address", ADDRESS]);
                let kubeconfig =
                    self.server.kubeconfig(self.server.address(), "system:node:vk", &["system:nodes"]);
                command.arg("--kubeconfig").arg(kubeconfig);
            }
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log(part)).expect("a log");
        command
            .arg("--config")
            .arg(&self.config)
            .env("LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.running.push((part, command.spawn().expect("minik8s starts")));
    }

    /// Kills a program as a crash would.
    fn kill(&mut self, part: Part) {
        let at = self.running.iter().position(|(running, _)| *running == part).expect("it runs");
        let (_, mut child) = self.running.swap_remove(at);
        child.kill().expect("killed");
        child.wait().expect("waited for");
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.server.admin(), "default")
    }

    async fn create(&self, name: &str, mut spec: Value) {
        spec["nodeName"] = "vk".into();
        spec["restartPolicy"] = "Never".into();
        spec["automountServiceAccountToken"] = false.into();
        spec["terminationGracePeriodSeconds"] = 1.into();
        for container in spec["containers"].as_array_mut().into_iter().flatten() {
            container["image"] = "busybox".into();
            container["imagePullPolicy"] = "Never".into();
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let pods = self.pods();
        eventually("the service account is there", || async {
            pods.create(&PostParams::default(), &pod).await.ok()
        })
        .await;
    }

    async fn shell(&self, name: &str, script: &str) {
        self.create(name, json!({"containers": [{"name": "c", "command": ["sh", "-c", script]}]})).await;
    }

    async fn phase(&self, name: &str, phase: &str) -> Value {
        self.until(name, phase, |pod| pod["status"]["phase"] == phase).await
    }

    async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let pods = self.pods();
        let mut last = Value::Null;
        let ends = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < ends {
            last = serde_json::to_value(pods.get_opt(name).await.expect("an answer")).expect("JSON");
            if holds(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let tail = |part| {
            let text = std::fs::read_to_string(self.log(part)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().filter(|line| !line.contains("hyper")).collect();
            lines[lines.len().saturating_sub(25)..].join("\n")
        };
        let logs = [Part::Plugin, Part::Api, Part::Node].map(|part| format!("--- {part:?}\n{}", tail(part)));
        panic!("waited in vain: {name}: {what}: {:#}\n{}", last["status"], logs.join("\n"))
    }

    async fn logs(&self, name: &str, query: &str) -> (u16, String) {
        let path = format!("/api/v1/namespaces/default/pods/{name}/log?{query}");
        let answer = self.server.http().get(&path).await;
        (answer.code, String::from_utf8_lossy(&answer.body).into_owned())
    }

    async fn delete(&self, name: &str) {
        self.pods().delete(name, &Default::default()).await.expect("deleted");
        self.until(name, "it is gone", Value::is_null).await;
    }

    /// A program's own memory, in KiB.
    fn memory(&self, part: Part) -> u64 {
        let (_, child) = self.running.iter().find(|(running, _)| *running == part).expect("it runs");
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", child.id())).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Pss:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
        for entry in
            std::fs::read_dir(self.containerd.dir().join("run/netns")).into_iter().flatten().flatten()
        {
            let _ = Command::new("umount").arg("-l").arg(entry.path()).stderr(Stdio::null()).status();
        }
    }
}

#[test]
fn pods_outlive_each_program_of_the_chain() {
    enter_a_network_of_its_own();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(walk());
}

async fn walk() {
    let mut chain = Chain::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(chain.server.admin(), "default");
    let map = serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"k": "came-along"}}))
        .expect("a ConfigMap");
    maps.create(&PostParams::default(), &map).await.expect("a ConfigMap");
    let spec = json!({
        "containers": [{"name": "c", "command": ["sh", "-c", "cat /m/k; echo; echo $K; echo three; exit 5"],
            "env": [{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}],
            "volumeMounts": [{"name": "m", "mountPath": "/m"}]}],
        "volumes": [{"name": "m", "configMap": {"name": "m"}}],
    });
    chain.create("says", spec).await;
    let ended = chain.phase("says", "Failed").await;
    assert_eq!(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 5);
    let all = "came-along\ncame-along\nthree\n";
    assert_eq!(chain.logs("says", "").await, (200, all.to_owned()));
    assert_eq!(chain.logs("says", "follow=true").await, (200, all.to_owned()));
    assert_eq!(chain.logs("says", "tailLines=1").await, (200, "three\n".to_owned()));
    assert_eq!(chain.logs("says", "limitBytes=4").await, (200, "came".to_owned()));
    let (code, text) = chain.logs("says", "timestamps=true&tailLines=1").await;
    assert!(code == 200 && text.contains("Z three") && text.lines().count() == 1, "{text}");
    chain
        .shell("stays", "trap 'exit 0' TERM; n=0; while true; do n=$((n+1)); echo $n; sleep 0.1; done")
        .await;
    let before = chain.phase("stays", "Running").await;
    let started =
        |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"].clone();
    for part in [Part::Plugin, Part::Api, Part::Node, Part::Plugin, Part::Api, Part::Node] {
        chain.kill(part);
        let name = format!("while-{}-is-away", format!("{part:?}").to_lowercase());
        chain.shell(&name, "echo late; exit 3").await;
        chain.begin(part);
        let late = chain.phase(&name, "Failed").await;
        assert_eq!(late["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
        chain.delete(&name).await;
        let now = chain.phase("stays", "Running").await;
        assert_eq!(
            (started(&now), &now["status"]["containerStatuses"][0]["restartCount"]),
            (started(&before), &json!(0))
        );
    }
    let (code, text) = chain.logs("stays", "tailLines=1").await;
    assert!(code == 200 && text.trim().parse::<u32>().is_ok(), "{text}");
    for part in [Part::Plugin, Part::Api, Part::Node] {
        println!("memory of {part:?}: {} KiB", chain.memory(part));
        let text = std::fs::read_to_string(chain.log(part)).expect("a log");
        assert!(!text.contains(TOKEN), "{part:?} logs the token");
    }
    chain.delete("stays").await;
    chain.delete("says").await;
    let socket = chain.containerd.socket().display().to_string();
    let listed = Command::new("ctr")
        .args(["--address", &socket, "-n", "interlink", "containers", "list", "-q"])
        .output();
    assert_eq!(String::from_utf8_lossy(&listed.expect("ctr").stdout), "", "nothing is left in containerd");
    let nodes: Api<Node> = Api::all(chain.server.admin());
    nodes.get("vk").await.expect("the node");
}
