//! A machine of the harness with the built program on it, and what every test here asks of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use testing::{Machine, Switch};

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The program without what only debuggers read: it is copied to every machine and into an image there.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (program, new) = (folder.join("minik8s"), folder.join(format!("minik8s-{}", std::process::id())));
    let status = Command::new("strip")
        .args(["-o".as_ref(), new.as_os_str(), env!("CARGO_BIN_EXE_minik8s").as_ref()])
        .status();
    assert!(status.expect("strip runs").success());
    // Whoever runs the one from before keeps it.
    std::fs::rename(&new, &program).expect("renamed");
    program
});

/// What a cluster keeps its objects in. What people do with a cluster is tried on both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Datastore {
    Embedded,
    Etcd,
}

impl Datastore {
    /// `kubeadm init` on it.
    pub fn init(self) -> &'static [&'static str] {
        match self {
            Datastore::Embedded => &["kubeadm", "init"],
            Datastore::Etcd => &["kubeadm", "init", "--datastore", "etcd"],
        }
    }

    /// How many pods are the control plane.
    pub fn pods(self) -> usize {
        match self {
            Datastore::Embedded => 3,
            Datastore::Etcd => 4,
        }
    }
}

/// A machine on which kubeadm, kubectl and the others are called.
pub struct Node {
    pub machine: Machine,
}

impl Node {
    /// Boots a machine; `number` is the last part of its address, 10.89.0.`number`.
    pub fn boot(switch: &Arc<Switch>, name: &str, number: u8) -> Node {
        Node { machine: Machine::boot(switch, name, number) }
    }

    /// The built program, at a path that every machine sees.
    pub fn program(&self) -> &'static str {
        PROGRAM.to_str().expect("a plain path")
    }

    /// Runs one of our programs on it, which must succeed. What it printed.
    pub fn run(&self, arguments: &[&str]) -> String {
        self.machine.run(self.program(), arguments)
    }

    /// Runs one of our programs on it, whatever comes of it.
    pub fn attempt(&self, arguments: &[&str]) -> Output {
        self.machine.output(self.program(), arguments)
    }

    /// Runs kubectl as the cluster's administrator, which must succeed. What it printed.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.run(&[&["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"], arguments].concat())
    }

    /// What kubectl printed, also if it failed: while an apiserver is away, say.
    pub fn try_kubectl(&self, arguments: &[&str]) -> String {
        let output =
            self.attempt(&[&["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"], arguments].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Applies a text of YAML.
    pub fn apply(&self, yaml: &str) {
        std::fs::write(self.machine.path("/etc/applied.yaml"), yaml).expect("written");
        self.kubectl(&["apply", "-f", "/etc/applied.yaml"]);
        std::fs::remove_file(self.machine.path("/etc/applied.yaml")).expect("removed");
    }

    /// Waits for a condition; if it never holds, the pods and the logs of the node are shown.
    pub fn eventually(&self, what: &str, mut condition: impl FnMut(&Node) -> bool) {
        let ends = Instant::now() + PATIENCE;
        while !condition(self) {
            if Instant::now() > ends {
                let log = |file: &str| std::fs::read_to_string(self.machine.path(file)).unwrap_or_default();
                let pods = self.try_kubectl(&["get", "pods", "-A", "-o", "yaml"]);
                panic!(
                    "waited in vain: {what}\n{}\n{}\n{}",
                    pods,
                    log("/var/log/minik8s/kubelet.log"),
                    log("/var/log/minik8s/kubeproxy.log")
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Nothing but these traces is left, once the kernel has taken network namespaces and processes apart.
    pub fn leaves_only(&self, before: &[String]) {
        let ends = Instant::now() + PATIENCE;
        while traces(self) != before && Instant::now() < ends {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(traces(self), before);
    }

    /// The page at an address, as this machine sees it; empty if there is none.
    pub fn fetch(&self, address: &str) -> String {
        let answer =
            self.machine.output("timeout", &["5", "busybox", "wget", "-qO-", &format!("http://{address}/")]);
        String::from_utf8_lossy(&answer.stdout).into_owned()
    }

    /// Makes one of the images of `images/` and imports it here.
    pub fn import(&self, image: &str) {
        let folder = tempfile::tempdir().expect("a folder");
        let archive = folder.path().join("image.tar");
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/build");
        let status = Command::new(build).arg(image).arg(&archive).status();
        assert!(status.expect("images/build runs").success());
        self.run(&["kubeadm", "image", "import", archive.to_str().expect("a plain path")]);
    }
}

/// What a cluster leaves on a machine: containers, snapshots, devices, rules, mounts, files, processes.
pub fn traces(node: &Node) -> Vec<String> {
    // Images that a person has imported are that person's; tables without rules are the kernel's. Processes are listed,
    // not counted: how many of this script's own are there is a matter of luck.
    let script = "ctr -n k8s.io containers ls -q; ctr -n k8s.io snapshots ls | tail -n +2 | grep -v Committed; \
        ip -o link | cut -d: -f2 | cut -d@ -f1; iptables-save | grep '^-A\\|^:KUBE\\|^:MINIK'; \
        grep ' /var/lib/kubelet\\| /run/kubelet\\| /run/containerd' /proc/mounts; \
        ls /etc/kubernetes /etc/minik8s /var/lib /var/log /usr/local/bin /usr/local/lib /run/netns 2>/dev/null; ip route; \
        ps -e -o comm=,args= | grep -v '^sh \\|^ps \\|^grep '";
    node.machine.run("sh", &["-c", script]).lines().map(str::to_owned).collect()
}
