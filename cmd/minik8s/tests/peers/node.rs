//! Nodes of either kind in a cluster of the other, on a machine of the harness with a real containerd.

use crate::support::{Keys, Process, any_controller_manager, peer, upstreams_apiserver};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testing::{Machine, Switch};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);
const ADDRESS: &str = "10.89.0.1";
const SERVER: &str = "https://10.89.0.1:6443";
/// Where keys and kubeconfigs are on the machine.
const KEYS: &str = "/etc/kubernetes/pki";
/// Where programs are.
const PROGRAMS: &str = "/opt";

/// A machine that is a whole cluster.
struct Host {
    processes: Vec<Process>,
    machine: Machine,
    _switch: Arc<Switch>,
}

impl Host {
    /// With our program, these of upstream's, keys, and a kubeconfig for everybody.
    fn boot(peer: &Path, upstreams: &[&str]) -> Host {
        let switch = Switch::new();
        let machine = Machine::boot(&switch, "n1", 1);
        for name in upstreams.iter().chain(&["kubectl"]) {
            std::fs::copy(peer.join(name), machine.path(PROGRAMS).join(name)).expect("copy a program");
        }
        // Without what only debuggers read.
        let strip = Command::new("strip")
            .arg("-o")
            .arg(machine.path(PROGRAMS).join("minik8s"))
            .arg(env!("CARGO_BIN_EXE_minik8s"))
            .status();
        assert!(strip.expect("strip runs").success());
        let keys = Keys::make(&machine.path(KEYS), ADDRESS);
        keys.kubeconfig(SERVER, "admin", &["system:masters"]);
        keys.kubeconfig(SERVER, "system:node:n1", &["system:nodes"]);
        for user in ["system:kube-proxy", "system:kube-controller-manager", "system:kube-scheduler"] {
            keys.kubeconfig(SERVER, user, &[]);
        }
        Host { processes: Vec::new(), machine, _switch: switch }
    }

    /// Starts one of our programs.
    fn ours(&mut self, name: &str, arguments: &[&str]) {
        self.start(name, &format!("{PROGRAMS}/minik8s"), &[&[name], arguments].concat());
    }

    /// Starts one of upstream's.
    fn upstreams(&mut self, name: &str, arguments: &[&str]) {
        self.start(name, &format!("{PROGRAMS}/{name}"), arguments);
    }

    fn start(&mut self, name: &str, program: &str, arguments: &[&str]) {
        let mut command = self.machine.command(program);
        command.args(arguments);
        self.processes.push(Process::start(name, command, &self.machine.path("/var/log")));
    }

    /// Makes one of the images of `images/` and imports it.
    fn import(&self, image: &str) {
        let archive = self.machine.path("/opt/image.tar");
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/build");
        let status = Command::new(build).arg(image).arg(&archive).status();
        assert!(status.expect("images/build runs").success());
        self.eventually(&format!("{image} is imported"), || {
            let import = ["-n", "k8s.io", "images", "import", "/opt/image.tar"];
            self.machine.output("ctr", &import).status.success()
        });
    }

    /// Upstream's kubectl, whatever comes of it.
    fn kubectl(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.machine.command(&format!("{PROGRAMS}/kubectl"));
        command.arg("--kubeconfig").arg(format!("{KEYS}/admin.conf")).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl runs");
        // Whoever reads nothing is not told anything.
        let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        child.wait_with_output().expect("kubectl ends")
    }

    /// What it prints, where it must succeed.
    fn said(&self, arguments: &[&str], input: &str) -> String {
        let output = self.kubectl(arguments, input);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {}: {errors}", arguments.join(" "));
        String::from_utf8(output.stdout).expect("text")
    }

    fn eventually(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let ends = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < ends, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The page at an address, as this machine sees it; empty if there is none.
    fn fetch(&self, url: &str) -> String {
        let answer = self.machine.output("timeout", &["5", "busybox", "wget", "-qO-", url]);
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    }

    /// Pods run, and answer, talk and listen through the apiserver; a service leads to them.
    fn serves(&mut self) {
        self.eventually("the API is served", || {
            self.kubectl(&["get", "namespace", "default"], "").status.success()
        });
        self.eventually("the account of pods is there", || {
            self.kubectl(&["get", "serviceaccount", "default"], "").status.success()
        });
        self.eventually("the node is there", || self.kubectl(&["get", "node", "n1"], "").status.success());
        self.said(&["apply", "-f", "-"], WORK);
        self.said(&["wait", "--for=condition=Ready", "node/n1", "--timeout=120s"], "");
        self.said(&["wait", "--for=condition=Ready", "pod/talker", "--timeout=120s"], "");
        self.said(&["rollout", "status", "deployment/web", "--timeout=120s"], "");
        self.eventually("what it says is there", || self.said(&["logs", "talker"], "") == "hello\n");
        let failing = ["exec", "talker", "--", "sh", "-c", "echo out; echo problem >&2; exit 3"];
        let output = self.kubectl(&failing, "");
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"out\n"[..]));
        assert!(String::from_utf8_lossy(&output.stderr).contains("problem"));
        assert_eq!(self.said(&["exec", "-i", "talker", "--", "wc", "-c"], &"x".repeat(300_000)), "300000\n");
        let names =
            self.said(&["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.name}"], "");
        let names: Vec<&str> = names.split_whitespace().collect();
        assert_eq!(names.len(), 2);
        let mut answered = Vec::new();
        self.eventually("the service leads to both", || {
            answered.push(self.fetch("http://10.96.1.1/"));
            names.iter().all(|name| answered.iter().any(|answer| answer == name))
        });
        let pod = format!("pod/{}", names[0]);
        let config = format!("--kubeconfig={KEYS}/admin.conf");
        self.upstreams("kubectl", &[&config, "port-forward", &pod, "18080:80"]);
        self.eventually("a forwarded port leads to the pod", || {
            self.fetch("http://127.0.0.1:18080/") == names[0]
        });
        self.said(&["delete", "deployment/web", "pod/talker", "--wait=true", "--timeout=120s"], "");
    }
}

const WORK: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "httpd:latest", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.1.1, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: talker}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "busybox:latest", imagePullPolicy: Never, command: [sh, -c, echo hello; exec sleep 100000]}
"#;

const POD_RANGES: [&str; 2] = ["--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16"];

fn kubeconfig(user: &str) -> String {
    format!("--kubeconfig={KEYS}/{user}.conf")
}

fn words(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

#[test]
fn our_kubelet_and_kube_proxy_serve_upstreams_cluster() {
    let Some(peer) = peer("our_kubelet_and_kube_proxy_serve_upstreams_cluster") else { return };
    let mut host = Host::boot(&peer, &["kube-apiserver", "kube-controller-manager", "kube-scheduler"]);
    host.import("busybox");
    host.import("httpd");
    host.start("etcd", "etcd", &["--data-dir=/var/lib/etcd"]);
    let flags = upstreams_apiserver(KEYS, "http://127.0.0.1:2379", ADDRESS, 6443);
    host.upstreams("kube-apiserver", &words(&flags));
    let flags = any_controller_manager(KEYS, &format!("{KEYS}/system-kube-controller-manager.conf"));
    let flags = [&words(&flags)[..], &POD_RANGES, &["--secure-port=0", "--leader-elect=false"]].concat();
    host.upstreams("kube-controller-manager", &flags);
    let scheduler = kubeconfig("system-kube-scheduler");
    host.upstreams("kube-scheduler", &[&scheduler, "--secure-port=0", "--leader-elect=false"]);
    let authority = format!("--client-ca-file={KEYS}/ca.crt");
    host.ours("kubelet", &[&kubeconfig("system-node-n1"), "--node-ip=10.89.0.1", &authority]);
    let proxy = kubeconfig("system-kube-proxy");
    host.ours("kubeproxy", &[&proxy, "--service-cluster-ip-range=10.96.0.0/16"]);
    host.serves();
}

#[test]
fn upstreams_kubelet_and_kube_proxy_serve_our_cluster() {
    let Some(peer) = peer("upstreams_kubelet_and_kube_proxy_serve_our_cluster") else { return };
    let mut host = Host::boot(&peer, &["kubelet", "kube-proxy"]);
    let write = |path: &str, text: &str| {
        let path = host.machine.path(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("its folder");
        std::fs::write(path, text).expect("written");
    };
    write("/etc/containerd/config.toml", CONTAINERD);
    write("/etc/cni/net.d/10-pods.conflist", CNI);
    write("/etc/kubernetes/kubelet.yaml", KUBELET);
    let again = "kill $(pidof containerd); while pidof containerd; do sleep 0.05; done; \
                 setsid containerd > /var/log/containerd.log 2>&1 < /dev/null &";
    host.machine.run("sh", &["-c", again]);
    host.machine.run("sh", &["-c", KERNEL]);
    // Upstream's kube-proxy leaves it to the node that there is a way to the services' addresses.
    host.machine.run("ip", &["route", "add", "default", "dev", "eth0"]);
    ["pause", "busybox", "httpd"].iter().for_each(|image| host.import(image));
    let advertise = format!("--advertise-address={ADDRESS}");
    host.ours("apiserver", &["--data-dir", KEYS, &advertise, "--service-cluster-ip-range=10.96.0.0/16"]);
    let flags = any_controller_manager(KEYS, &format!("{KEYS}/system-kube-controller-manager.conf"));
    host.ours("controller-manager", &[&words(&flags)[..], &POD_RANGES].concat());
    host.ours("scheduler", &[&kubeconfig("system-kube-scheduler")]);
    let config = ["--config=/etc/kubernetes/kubelet.yaml", "--hostname-override=n1", "--node-ip=10.89.0.1"];
    let kubelet = kubeconfig("system-node-n1");
    host.upstreams("kubelet", &[&config[..], &[&kubelet]].concat());
    let proxy = kubeconfig("system-kube-proxy");
    let mode = ["--proxy-mode=iptables", "--hostname-override=n1", "--cluster-cidr=10.244.0.0/16"];
    // What the kernel tracks is the whole machine's, and not ours to limit.
    let tracking = [
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
    ];
    host.upstreams("kube-proxy", &[&mode[..], &tracking, &[&proxy]].concat());
    host.serves();
}

/// With the CRI, an image for sandboxes that is there, and no wish to protect processes more than this machine allows.
const CONTAINERD: &str = r#"version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/pause:latest"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"#;

/// Upstream's kubelet sets what is the whole kernel's: it gets files of its own to write to. And it reads the kernel's log.
const KERNEL: &str = "set -e; mknod /dev/kmsg c 1 11; for name in vm/overcommit_memory vm/panic_on_oom kernel/panic \
    kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do \
    mkdir -p /run/sysctl/${name%/*}; cat /proc/sys/$name > /run/sysctl/$name; \
    mount --bind /run/sysctl/$name /proc/sys/$name; done";

const CNI: &str = r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "ipam": {
    "type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;

const KUBELET: &str = r#"
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization: {mode: Webhook}
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
"#;
