//! A machine of the harness with the built program on it, and what every test here asks of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use testing::{Machine, Switch};

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Where the program is on every machine before kubeadm installs it.
const PROGRAM: &str = "/opt/minik8s";

/// The program without what only debuggers read: it is copied to every machine and into an image there.
pub static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (program, new) = (folder.join("minik8s"), folder.join(format!("minik8s-{}", std::process::id())));
    let status = Command::new("strip")
        .args(["-o".as_ref(), new.as_os_str(), env!("CARGO_BIN_EXE_minik8s").as_ref()])
        .status();
    assert!(status.expect("strip runs").success());
    std::fs::rename(&new, &program).expect("renamed");
    program
});

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A name that nothing else in this run has.
pub fn unique(what: &str) -> String {
    format!("{what}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What a cluster keeps its objects in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Datastore {
    Embedded,
    Etcd,
}

impl Datastore {
    /// The one that this run is about: everything is tried on both, one after the other.
    pub fn of_this_run() -> Datastore {
        match std::env::var("DATASTORE").as_deref() {
            Ok("etcd") => Datastore::Etcd,
            Ok("embedded") | Err(_) => Datastore::Embedded,
            Ok(other) => panic!("DATASTORE={other}: it is embedded or etcd"),
        }
    }

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
            Datastore::Embedded => 4,
            Datastore::Etcd => 6,
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
        Node::on(Machine::boot(switch, name, number))
    }

    /// Machines `m1`, `m2`, … at once.
    pub fn boot_all(switch: &Arc<Switch>, count: u8) -> Vec<Node> {
        std::thread::scope(|scope| {
            let boot = |number| scope.spawn(move || Node::boot(switch, &format!("m{number}"), number));
            let booting: Vec<_> = (1..=count).map(boot).collect();
            booting.into_iter().map(|booting| booting.join().expect("it boots")).collect()
        })
    }

    /// Puts the program on a machine.
    pub fn on(machine: Machine) -> Node {
        std::fs::copy(&*BUILT, machine.path(PROGRAM)).expect("the program is copied");
        Node { machine }
    }

    /// The built program's path.
    pub fn program(&self) -> &'static str {
        PROGRAM
    }

    /// Makes it the control plane of a cluster on the store of this run. The words of the line by which others join.
    pub fn init(&self, flags: &[&str]) -> Vec<String> {
        self.init_on(Datastore::of_this_run(), flags)
    }

    /// As [`Node::init`], on a store of the test's choice.
    pub fn init_on(&self, datastore: Datastore, flags: &[&str]) -> Vec<String> {
        let said = self.run(&[datastore.init(), flags].concat());
        let line = said.lines().find(|line| line.trim().starts_with("kubeadm join"));
        line.expect("how to join").split_whitespace().map(str::to_owned).collect()
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

    /// What `kubectl get` finds at a path of JSON; empty if there is nothing, or nobody to ask.
    pub fn get(&self, words: &str, path: &str) -> String {
        let words: Vec<&str> = words.split_whitespace().collect();
        self.try_kubectl(&[&["get"], words.as_slice(), &["-o", &format!("jsonpath={path}")]].concat())
    }

    /// Waits until everything of a rollout is there; if it never is, the pods and the logs of the node are shown.
    pub fn rolled_out(&self, workload: &str) {
        let status = ["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "rollout", "status", workload];
        let output = self.attempt(&[&status[..], &["--timeout", "170s"]].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{workload}: {said}\n{}", self.state());
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
            assert!(Instant::now() <= ends, "waited in vain: {what}\n{}", self.state());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The pods and the logs of the node, wherever it keeps them.
    fn state(&self) -> String {
        let log = |unit: &str| {
            let file = self.machine.path(&format!("/var/log/minik8s/{unit}.log"));
            std::fs::read_to_string(file).unwrap_or_else(|_| {
                let journal = self.machine.output("journalctl", &["--no-pager", "-o", "cat", "-u", unit]);
                String::from_utf8_lossy(&journal.stdout).into_owned()
            })
        };
        let pods = self.try_kubectl(&["get", "pods", "-A", "-o", "yaml"]);
        format!("{pods}\n{}\n{}", log("kubelet"), log("kubeproxy"))
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
    pub fn fetch(&self, url: &str) -> String {
        let answer = self.machine.output("timeout", &["5", "busybox", "wget", "-qO-", url]);
        String::from_utf8_lossy(&answer.stdout).into_owned()
    }

    /// Makes one of the images of `images/` and imports it here.
    pub fn import(&self, image: &str) {
        let archive = self.machine.path("/opt/image.tar");
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/build");
        let status = Command::new(build).arg(image).arg(&archive).status();
        assert!(status.expect("images/build runs").success());
        self.run(&["kubeadm", "image", "import", "/opt/image.tar"]);
        std::fs::remove_file(archive).expect("removed");
    }
}

/// Machines that are a cluster; the first is the control plane.
pub struct Cluster {
    pub nodes: Vec<Node>,
    join: Vec<String>,
}

impl Cluster {
    /// So many machines, with the image of the web server.
    pub fn new(switch: &Arc<Switch>, machines: u8, flags: &[&str]) -> Cluster {
        Cluster::of(Node::boot_all(switch, machines), flags)
    }

    /// A cluster of these machines.
    pub fn of(nodes: Vec<Node>, flags: &[&str]) -> Cluster {
        let join = nodes[0].init(flags);
        let cluster = Cluster { nodes, join };
        cluster.nodes.iter().skip(1).for_each(|node| cluster.join(node));
        cluster.nodes.iter().for_each(|node| node.import("httpd"));
        cluster
    }

    pub fn join(&self, node: &Node) {
        node.run(&self.join.iter().map(String::as_str).collect::<Vec<_>>());
    }

    pub fn first(&self) -> &Node {
        &self.nodes[0]
    }

    /// The pods with a label, by the machine that they run on.
    pub fn pods(&self, selector: &str) -> Vec<Pod<'_>> {
        let path = "{range .items[*]}{.spec.nodeName} {.metadata.name} {.status.containerStatuses[0].containerID} \
                    {.status.podIPs[*].ip}{\"\\n\"}{end}";
        let text = self.first().get(&format!("pods -l {selector}"), path);
        let mut pods: Vec<Pod<'_>> = text
            .lines()
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [node, name, container, addresses @ ..] = words.as_slice() else { return None };
                let node = self.nodes.iter().find(|found| found.machine.name() == *node)?;
                let container = container.strip_prefix("containerd://")?.to_owned();
                let addresses: Vec<String> = addresses.iter().map(|address| (*address).to_owned()).collect();
                let address = addresses.first()?.clone();
                Some(Pod { node, name: (*name).to_owned(), address, addresses, container })
            })
            .collect();
        pods.sort_by_key(|pod| pod.node.machine.name().to_owned());
        pods
    }

    /// The address of a service.
    pub fn address_of(&self, service: &str) -> String {
        self.first().get(&format!("service {service}"), "{.spec.clusterIP}")
    }

    /// Every machine and every pod with a label gets this from there.
    pub fn everybody_gets(&self, selector: &str, url: &str, expected: impl Fn(&str) -> bool) {
        for node in &self.nodes {
            node.eventually(&format!("{} gets {url}", node.machine.name()), |node| {
                expected(&node.fetch(url))
            });
        }
        for pod in self.pods(selector) {
            pod.node.eventually(&format!("{} gets {url}", pod.name), |_| expected(&pod.fetch(url)));
        }
    }
}

/// A pod, as far as programs are run in it.
pub struct Pod<'a> {
    pub node: &'a Node,
    pub name: String,
    /// The first of its addresses.
    pub address: String,
    pub addresses: Vec<String>,
    container: String,
}

impl Pod<'_> {
    /// What a program in the pod prints.
    pub fn run(&self, arguments: &[&str]) -> String {
        let exec = ["-n", "k8s.io", "tasks", "exec", "--exec-id", &unique("t"), &self.container];
        let output = self.node.machine.output("ctr", &[&exec[..], arguments].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The page at an address, as the pod gets it; empty if there is none.
    pub fn fetch(&self, url: &str) -> String {
        self.run(&["timeout", "5", "wget", "-qO-", url])
    }

    /// What the cluster's name server says of a name.
    pub fn look_up(&self, kind: &str, name: &str) -> String {
        self.run(&["nslookup", &format!("-type={kind}"), name])
    }
}

/// What a cluster leaves on a machine: containers, snapshots, devices, rules, mounts, files, processes.
pub fn traces(node: &Node) -> Vec<String> {
    // Images that a person has imported are that person's; tables without rules are the kernel's. Processes are listed,
    // not counted: how many of this script's own are there is a matter of luck.
    let script = "ctr -n k8s.io containers ls -q; ctr -n k8s.io snapshots ls | tail -n +2 | grep -v Committed; \
        ip -o link | cut -d: -f2 | cut -d@ -f1; { iptables-save; ip6tables-save; } | grep '^-A\\|^:KUBE\\|^:MINIK'; \
        grep ' /var/lib/kubelet\\| /run/kubelet\\| /run/containerd' /proc/mounts; \
        ls /etc/kubernetes /etc/minik8s /var/lib /var/log /usr/local/bin /usr/local/lib /run/netns 2>/dev/null; \
        ls -R /etc/systemd/system; ip route; ip -6 route; \
        ps -e -o comm=,args= | grep -v '^sh \\|^ps \\|^grep '";
    node.machine.run("sh", &["-c", script]).lines().map(str::to_owned).collect()
}
