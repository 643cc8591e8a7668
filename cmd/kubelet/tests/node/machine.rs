//! A machine for a test: a network namespace of its own, a containerd of its own, the kubelet as it is built, and an
//! apiserver if it wants one. Nothing of it is left behind.

use crate::command::{enter_a_network_of_its_own, kubelet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kubelet::runtime::containerd::{Config, Containerd};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testing::{PATIENCE, TestServer, eventually};

const NAME: &str = "n1";

/// Runs a test in a network of its own. Threads and processes that it starts are in it too; it goes with the last.
pub fn on_a_network_of_its_own<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    enter_a_network_of_its_own();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test());
}

/// The machine.
pub struct Machine {
    kubelet: Option<Child>,
    pub server: Option<TestServer>,
    pub containerd: testing::Containerd,
    starts: RefCell<u32>,
}

impl Machine {
    /// With the image busybox, no kubelet yet.
    pub async fn new(with_apiserver: bool) -> Machine {
        let containerd = testing::Containerd::start();
        let config = Config {
            socket: containerd.socket(),
            root_dir: containerd.dir().join("import"),
            state_dir: containerd.dir().join("import-run"),
            ..Config::default()
        };
        let runtime = Containerd::new(config).expect("a runtime");
        runtime.import(&archive(containerd.dir())).await.expect("busybox");
        let server = if with_apiserver { Some(TestServer::start().await) } else { None };
        let machine = Machine { kubelet: None, server, containerd, starts: RefCell::new(0) };
        std::fs::create_dir_all(machine.manifests()).expect("a folder");
        machine
    }

    /// With an apiserver and a kubelet whose node is ready.
    pub async fn ready() -> Machine {
        Machine::ready_with(&[]).await
    }

    /// The same, with more flags.
    pub async fn ready_with(flags: &[&str]) -> Machine {
        let mut machine = Machine::new(true).await;
        machine.start_with(flags);
        machine.until_node("Ready", "True").await;
        machine
    }

    /// Waits until a condition of the node is as wanted.
    pub async fn until_node(&self, condition: &str, status: &str) {
        let nodes: Api<Node> = Api::all(self.server().admin());
        eventually(&format!("the node's {condition} is {status}"), || async {
            let node = nodes.get_opt(NAME).await.ok()??;
            let conditions = node.status?.conditions?;
            conditions.iter().any(|c| c.type_ == condition && c.status == status).then_some(())
        })
        .await;
    }

    /// As if the power had failed: nothing runs any more, and what is kept in memory is gone. containerd is started
    /// again, the kubelet is not.
    pub fn reboot(&mut self) {
        self.kill();
        self.containerd.kill();
        let dir = self.containerd.dir().display().to_string();
        self.shims().into_iter().for_each(kill);
        let groups = self.containerd.cgroups();
        for group in &groups {
            let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            text.lines().filter_map(|pid| pid.parse().ok()).for_each(kill);
        }
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&command).starts_with(&dir) {
                kill(pid);
            }
        }
        let mut mounts = self.containerd.mounts();
        mounts.reverse();
        for mount in mounts {
            let _ = Command::new("umount").arg("-l").arg(mount).stderr(Stdio::null()).status();
        }
        for dir in ["kubelet-run", "state"] {
            let _ = std::fs::remove_dir_all(self.dir(dir));
        }
        for link in self.links() {
            let _ = Command::new("ip").args(["link", "del", &link]).stderr(Stdio::null()).status();
        }
        let mut left = groups;
        left.sort_by_key(|group| std::cmp::Reverse(group.components().count()));
        let ends = Instant::now() + PATIENCE;
        while left.iter().any(|group| std::fs::remove_dir(group).is_err() && group.exists()) {
            assert!(Instant::now() < ends, "control groups stay: {left:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.containerd.start_again();
    }

    /// The network devices that pods have brought.
    fn links(&self) -> Vec<String> {
        let listed = Command::new("ip").args(["-o", "link", "show"]).output().expect("ip");
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let names = text.lines().filter_map(|line| line.split(": ").nth(1));
        let names = names.map(|name| name.split('@').next().unwrap_or_default().to_owned());
        names.filter(|name| name != "lo" && name != "eth0").collect()
    }

    pub fn server(&self) -> &TestServer {
        self.server.as_ref().expect("a machine with an apiserver")
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        self.containerd.dir().join(name)
    }

    pub fn manifests(&self) -> PathBuf {
        self.dir("manifests")
    }

    /// Starts the kubelet.
    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    /// Starts the kubelet with more flags.
    pub fn start_with(&mut self, flags: &[&str]) {
        let number = self.starts.replace_with(|starts| *starts + 1);
        let log = File::create(self.dir(&format!("kubelet-{number}.log"))).expect("a log");
        let program = Path::new(env!("CARGO_BIN_EXE_kubelet"));
        let mut command = kubelet(program, NAME, &self.containerd, self.server.as_ref());
        command.arg("--pod-manifest-path").arg(self.manifests()).args(flags);
        command.env("LOG", "warn,kubelet=debug").stderr(log);
        self.kubelet = Some(command.spawn().expect("the kubelet starts"));
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut kubelet) = self.kubelet.take() {
            let _ = kubelet.kill();
            let _ = kubelet.wait();
        }
    }

    /// Asks it to end, and waits until it has. How long that took.
    pub fn terminate(&mut self) -> Duration {
        let began = Instant::now();
        if let Some(mut kubelet) = self.kubelet.take() {
            let pid = nix::unistd::Pid::from_raw(kubelet.id().try_into().expect("a pid"));
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
            assert!(kubelet.wait().expect("it ends").success(), "{}", self.log());
        }
        began.elapsed()
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.server().admin(), "default")
    }

    /// Makes a pod bound to the node; its containers are `busybox` unless they say otherwise.
    pub async fn create(&self, name: &str, spec: Value) {
        self.create_with(name, spec, "IfNotPresent").await;
    }

    /// The same, with images that are never pulled.
    pub async fn create_never(&self, name: &str, spec: Value) {
        self.create_with(name, spec, "Never").await;
    }

    async fn create_with(&self, name: &str, mut spec: Value, pull_policy: &str) {
        spec["nodeName"] = NAME.into();
        // The certificate that the token volume needs is published by the controller manager, which is not here.
        spec["automountServiceAccountToken"] = false.into();
        spec["terminationGracePeriodSeconds"] =
            spec.get("terminationGracePeriodSeconds").cloned().unwrap_or(1.into());
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if container["image"].is_null() {
                    container["image"] = "busybox".into();
                }
                container["imagePullPolicy"] = pull_policy.into();
            }
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let pods = self.pods();
        let last = RefCell::new(String::new());
        // Its service account is made by the cluster, a moment after the namespace.
        let made = tokio::time::timeout(PATIENCE, async {
            while let Err(error) = pods.create(&PostParams::default(), &pod).await {
                *last.borrow_mut() = error.to_string();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        made.await.unwrap_or_else(|_| panic!("create {name}: {}", last.borrow()));
    }

    /// Waits until a pod is as wanted; `null`: it is gone.
    pub async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let pods = self.pods();
        let last = RefCell::new(Value::Null);
        let waiting = tokio::time::timeout(PATIENCE, async {
            loop {
                let pod = pods.get_opt(name).await.expect("an answer");
                let pod = serde_json::to_value(pod).expect("JSON");
                if holds(&pod) {
                    return pod;
                }
                *last.borrow_mut() = pod;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        match waiting.await {
            Ok(pod) => pod,
            Err(_) => panic!("waited in vain: {name}: {what}: {:#}\n{}", last.borrow()["status"], self.log()),
        }
    }

    pub async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.expect("deleted");
        self.until(name, "it is gone", Value::is_null).await;
    }

    /// The end of what the kubelet has logged.
    pub fn log(&self) -> String {
        let number = self.starts.borrow().saturating_sub(1);
        let text = std::fs::read_to_string(self.dir(&format!("kubelet-{number}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// What a container has written, all of its runs.
    pub fn output(&self, pod: &str, container: &str) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(self.dir("logs")).into_iter().flatten().flatten() {
            if !entry.file_name().to_string_lossy().starts_with(&format!("default_{pod}_")) {
                continue;
            }
            for file in std::fs::read_dir(entry.path().join(container)).into_iter().flatten().flatten() {
                let lines = std::fs::read_to_string(file.path()).unwrap_or_default();
                for line in lines.lines() {
                    text.push_str(line.splitn(4, ' ').nth(3).unwrap_or_default());
                    text.push('\n');
                }
            }
        }
        text
    }

    /// Waits until nothing of pods is left on the machine: containers, snapshots, processes, network devices, addresses,
    /// mounts, cgroups, folders.
    pub async fn nothing_is_left(&self) {
        let left = RefCell::new(Vec::new());
        let waiting = tokio::time::timeout(PATIENCE, async {
            loop {
                let now = self.left();
                if now.is_empty() {
                    return;
                }
                *left.borrow_mut() = now;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        if waiting.await.is_err() {
            panic!("left behind: {:#?}\n{}", left.borrow(), self.log());
        }
    }

    /// The processes that containers run under.
    pub fn shims(&self) -> Vec<i32> {
        self.containerd.shims("k8s.io")
    }

    /// What containerd lists, such as its containers.
    fn listed(&self, what: &[&str]) -> Vec<String> {
        let socket = self.containerd.socket().display().to_string();
        let listed =
            Command::new("ctr").args(["--address", &socket, "--namespace", "k8s.io"]).args(what).output();
        let text = String::from_utf8_lossy(&listed.expect("ctr").stdout).into_owned();
        text.lines().map(|line| format!("{} {line}", what[0])).collect()
    }

    fn left(&self) -> Vec<String> {
        let mut left = self.listed(&["containers", "list", "-q"]);
        left.extend(self.listed(&["tasks", "list", "-q"]));
        // Those of images stay.
        let snapshots = self.listed(&["snapshots", "list"]);
        left.extend(snapshots.into_iter().filter(|line| line.ends_with("Active")));
        let list = |dir: PathBuf, left: &mut Vec<String>| {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| entry.path().display().to_string()));
        };
        list(self.dir("kubelet/pods"), &mut left);
        list(self.dir("kubelet/last-statuses"), &mut left);
        list(self.dir("logs"), &mut left);
        list(self.dir("container-logs"), &mut left);
        list(self.dir("kubelet-run/netns"), &mut left);
        list(self.dir("kubelet-run/runtime/io"), &mut left);
        list(self.dir("kubelet-run/runtime/sandboxes"), &mut left);
        // Each holds an address.
        list(self.dir("kubelet/network/pods"), &mut left);
        left.extend(self.shims().iter().map(|pid| {
            let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            format!("process {pid}: {}", command.replace('\0', " "))
        }));
        let inside = |path: &PathBuf| {
            // A test may have mounted a disk there.
            (path.starts_with(self.dir("kubelet")) && *path != self.dir("kubelet"))
                || path.starts_with(self.dir("kubelet-run"))
        };
        left.extend(
            self.containerd
                .mounts()
                .iter()
                .filter(|path| inside(path))
                .map(|path| path.display().to_string()),
        );
        let pods = |path: &&PathBuf| path.display().to_string().contains("/pod");
        left.extend(self.containerd.cgroups().iter().filter(pods).map(|path| path.display().to_string()));
        let links = Command::new("ip").args(["-o", "link", "show", "type", "veth"]).output().expect("ip");
        left.extend(String::from_utf8_lossy(&links.stdout).lines().map(Into::into));
        left
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
        // Namespaces that are mounted outlive their processes.
        for entry in std::fs::read_dir(self.dir("kubelet-run/netns")).into_iter().flatten().flatten() {
            let _ = Command::new("umount").arg("-l").arg(entry.path()).stderr(Stdio::null()).status();
        }
    }
}

fn kill(pid: i32) {
    // It may be gone already.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// The image busybox, in a file.
pub fn archive(dir: &Path) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/build");
    let archive = dir.join("busybox.tar");
    let made = Command::new(script).arg("busybox").arg(&archive).status().expect("images/build");
    assert!(made.success(), "images/build busybox");
    archive
}
