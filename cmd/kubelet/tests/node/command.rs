//! How a kubelet is started beside others on one machine: in a network of its own, with a containerd of its own.

use nix::sched::{CloneFlags, unshare};
use std::path::Path;
use std::process::{Command, Stdio};
use testing::{Containerd, TestServer};

/// The address of that network's host.
pub const ADDRESS: &str = "192.168.77.1";

/// Puts this thread, and all threads and processes that it will start, into a network that goes with the last of them.
pub fn enter_a_network_of_its_own() {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace: this needs root");
    for line in [
        "link set lo up",
        "link add eth0 type bridge",
        &format!("addr add {ADDRESS}/24 dev eth0"),
        "link set eth0 up",
        "route add default via 192.168.77.254",
    ] {
        let done = Command::new("ip").args(line.split(' ')).status().expect("ip");
        assert!(done.success(), "ip {line}");
    }
}

/// A kubelet of this name, with all that it has in containerd's folder.
pub fn kubelet(program: &Path, name: &str, containerd: &Containerd, server: Option<&TestServer>) -> Command {
    let mut command = Command::new(program);
    command.args([
        "--hostname-override",
        name,
        "--node-ip",
        ADDRESS,
        "--port",
        "0",
        "--address",
        "127.0.0.1",
    ]);
    command.args(["--pod-cidr", "10.77.0.0/24", "--resolv-conf", "/dev/null", testing::ROOM_ENOUGH]);
    command.arg(format!("--container-runtime-endpoint=unix://{}", containerd.socket().display()));
    command.arg("--cgroup-root").arg(containerd.cgroup());
    for (flag, folder) in [
        ("--root-dir", "kubelet"),
        ("--state-dir", "kubelet-run"),
        ("--pod-logs-dir", "logs"),
        ("--container-logs-dir", "container-logs"),
        ("--cert-dir", "pki"),
        ("--cni-conf-dir", "cni"),
    ] {
        command.arg(flag).arg(containerd.dir().join(folder));
    }
    if let Some(server) = server {
        let user = format!("system:node:{name}");
        command.arg("--kubeconfig").arg(server.kubeconfig(server.address(), &user, &["system:nodes"]));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
