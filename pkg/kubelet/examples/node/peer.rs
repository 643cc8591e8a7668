//! Upstream's kubelet: what it needs besides what ours does, to run the same pods on the same kind of containerd.

use crate::alone::image;
use crate::command::ADDRESS;
use crate::{MOST_PODS, NAME};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testing::{Containerd, TestServer};

/// Some image whose process does not end: it stands for upstream's pause.
pub const SANDBOX_IMAGE: &str = "docker.io/library/httpd:latest";

/// What it changes of the kernel, for good.
const SYSCTLS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Lets whatever this process and all that it will start write to fixed places be nobody else's, and go with them.
pub fn enter_mounts_of_its_own() {
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace: this needs root");
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
    for folder in ["/run", "/var/lib", "/var/log"] {
        mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), none).expect("a tmpfs");
    }
}

/// The kernel's settings, which are put back when this is dropped.
pub struct Sysctls(Vec<(PathBuf, String)>);

impl Sysctls {
    /// As they are.
    pub fn keep() -> Sysctls {
        let paths = SYSCTLS.map(|name| Path::new("/proc/sys").join(name));
        let read = |path: PathBuf| std::fs::read_to_string(&path).ok().map(|value| (path, value));
        Sysctls(paths.into_iter().filter_map(read).collect())
    }
}

impl Drop for Sysctls {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            if let Err(error) = std::fs::write(path, value) {
                eprintln!("{} was {}: {error}", path.display(), value.trim());
            }
        }
    }
}

/// A kubelet of upstream's, with all that it has in containerd's folder.
pub fn kubelet(program: &Path, containerd: &Containerd, server: &TestServer) -> Command {
    let dir = containerd.dir();
    for name in ["busybox", "httpd"] {
        let imported = Command::new("ctr")
            .arg("--address")
            .arg(containerd.socket())
            .args(["--namespace", "k8s.io", "images", "import"])
            .arg(image(name, dir))
            .stdout(Stdio::null())
            .status();
        assert!(imported.expect("ctr").success(), "import {name}");
    }
    let bridge = json!({"cniVersion": "0.4.0", "name": "bench", "plugins": [{
        "type": "bridge", "bridge": "cni0", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }]});
    std::fs::create_dir_all(dir.join("cni")).expect("a folder");
    std::fs::write(dir.join("cni/10-bridge.conflist"), bridge.to_string()).expect("a network");
    make_control_group(containerd.cgroup());
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "address": "127.0.0.1", "contentType": "application/json", "maxPods": MOST_PODS,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}", containerd.socket().display()),
        "cgroupDriver": "cgroupfs", "cgroupRoot": containerd.cgroup(), "enforceNodeAllocatable": [],
        "failCgroupV1": false, "failSwapOn": false, "resolvConf": "/dev/null",
        // Nobody is put out because the machine is small or full.
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
        "podLogsDir": dir.join("logs"), "volumePluginDir": dir.join("plugins"),
    });
    std::fs::write(dir.join("kubelet.json"), config.to_string()).expect("its configuration");
    let user = format!("system:node:{NAME}");
    let mut command = Command::new(program);
    command.arg("--config").arg(dir.join("kubelet.json"));
    command.arg("--kubeconfig").arg(server.kubeconfig(server.address(), &user, &["system:nodes"]));
    command.args(["--hostname-override", NAME, "--node-ip", ADDRESS]);
    command.arg("--root-dir").arg(dir.join("kubelet")).arg("--cert-dir").arg(dir.join("pki"));
    command.stdout(Stdio::null());
    command
}

/// It does not make its own: one in each hierarchy, which goes with containerd.
fn make_control_group(name: &str) {
    let mounted = Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(mounted).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_second_version = mounted.join("cgroup.controllers").exists();
    let roots: Vec<PathBuf> = match is_second_version {
        true => vec![mounted.to_owned()],
        false => hierarchies.filter(|path| path.is_dir()).collect(),
    };
    for root in roots {
        let _ = std::fs::create_dir(root.join(name.trim_start_matches('/')));
    }
}
