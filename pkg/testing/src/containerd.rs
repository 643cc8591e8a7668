//! A real containerd for a test: its own root, state, socket and plugins. Nothing of it is left behind.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

use crate::PATIENCE;

/// Where our own shim keeps what is not containerd's.
const SHIMS: &str = "/run/minik8s/shim";

/// A containerd that ends, with all its shims, containers, mounts and control groups, when this is dropped.
pub struct Containerd {
    dir: TempDir,
    process: Child,
    cgroup: String,
}

impl Containerd {
    /// Starts one and waits until it serves.
    pub fn start() -> Self {
        Self::start_as(|_| DISABLED.to_owned())
    }

    /// Starts one that serves upstream's kubelet too: its sandboxes are of this image, and the CNI configuration of their
    /// network is in the folder `cni`.
    pub fn start_with_cri(sandbox_image: &str) -> Self {
        Self::start_as(|dir| cri(dir, sandbox_image))
    }

    fn start_as(plugins: impl FnOnce(&Path) -> String) -> Self {
        let dir = tempfile::Builder::new().prefix("ctd").tempdir().expect("a temporary folder");
        let config = config(dir.path(), &plugins(dir.path()));
        std::fs::write(dir.path().join("config.toml"), config).expect("its configuration");
        let process = launch(dir.path());
        let cgroup = format!("/minik8s-test-{}", dir.path().file_name().expect("a name").to_string_lossy());
        Containerd { dir, process, cgroup }
    }

    /// Where clients connect.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("c.sock")
    }

    /// A folder that goes with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A control group that goes with it, for everything that runs on it.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it as a crash would; its shims go on.
    pub fn kill(&mut self) {
        // It may be dead already, which is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again on the same data.
    pub fn start_again(&mut self) {
        self.process = launch(self.dir.path());
    }

    /// The processes of its shims in one of its namespaces.
    pub fn shims(&self, namespace: &str) -> Vec<i32> {
        let is_in = format!("-namespace {namespace} ");
        self.all_shims().into_iter().filter(|pid| command_line(*pid).contains(&is_in)).collect()
    }

    fn all_shims(&self) -> Vec<i32> {
        let socket = self.socket().display().to_string();
        pids().filter(|pid| command_line(*pid).contains(&format!("-address {socket}"))).collect()
    }

    /// The mounts below its folder.
    pub fn mounts(&self) -> Vec<PathBuf> {
        let dir = self.dir.path().display().to_string();
        let text = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let targets = text.lines().filter_map(|line| line.split(' ').nth(1));
        targets.filter(|target| target.starts_with(&dir)).map(PathBuf::from).collect()
    }

    /// The control groups of what ran on it, without the one that goes with it.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for root in self.cgroup_roots() {
            collect(&root, &mut found);
            found.retain(|path| *path != root);
        }
        found
    }

    /// The folders that containerd keeps for its containers.
    fn bundles(&self) -> Vec<PathBuf> {
        let entries = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let namespaces = entries(self.dir.path().join("state/io.containerd.runtime.v2.task"));
        namespaces.flat_map(|namespace| entries(namespace.path())).map(|entry| entry.path()).collect()
    }

    fn cgroup_roots(&self) -> Vec<PathBuf> {
        let name = self.cgroup.trim_start_matches('/');
        let mounted = Path::new("/sys/fs/cgroup");
        let hierarchies =
            std::fs::read_dir(mounted).into_iter().flatten().flatten().map(|entry| entry.path());
        hierarchies
            .chain([mounted.to_owned()])
            .map(|path| path.join(name))
            .filter(|path| path.is_dir())
            .collect()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        self.kill();
        // The sockets of shims are not in our folder; where they are is written there.
        let mut folders = Vec::new();
        for bundle in self.bundles() {
            let address = std::fs::read_to_string(bundle.join("address")).unwrap_or_default();
            if let Some(socket) = address.trim().strip_prefix("unix://") {
                let _ = std::fs::remove_file(socket);
                // Our own shim has a folder of its own, which it removes when it ends by itself.
                if let Some(folder) = Path::new(socket).parent().filter(|path| path.starts_with(SHIMS)) {
                    folders.push(folder.to_owned());
                }
            }
        }
        // First what starts others, then all that is in the control groups, then whatever has our folder open.
        for pid in self.all_shims() {
            kill(pid);
        }
        let roots = self.cgroup_roots();
        let mut groups = roots.clone();
        roots.iter().for_each(|root| collect(root, &mut groups));
        for group in &groups {
            let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            text.lines().filter_map(|pid| pid.parse().ok()).for_each(kill);
        }
        let dir = self.dir.path().display().to_string();
        pids().filter(|pid| command_line(*pid).starts_with(&dir)).for_each(kill);
        let mut mounts = self.mounts();
        mounts.reverse();
        for mount in mounts {
            let _ = Command::new("umount").arg("-l").arg(mount).stderr(Stdio::null()).status();
        }
        for folder in folders {
            let _ = std::fs::remove_dir_all(folder);
        }
        // What was killed needs a moment to be gone.
        let ends = Instant::now() + PATIENCE;
        groups.sort_by_key(|group| std::cmp::Reverse(group.components().count()));
        while groups.iter().any(|group| std::fs::remove_dir(group).is_err() && group.exists())
            && Instant::now() < ends
        {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// Only what containers need: the plugin for Kubernetes takes the longest to start.
const DISABLED: &str = r#"disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.opt"]
"#;

fn cri(dir: &Path, sandbox_image: &str) -> String {
    let dir = dir.display();
    format!(
        r#"[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{dir}/cni"
"#
    )
}

fn config(dir: &Path, plugins: &str) -> String {
    let dir = dir.display();
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
oom_score = 0
{plugins}[grpc]
  address = "{dir}/c.sock"
[ttrpc]
  address = "{dir}/c.sock.ttrpc"
[plugins."io.containerd.gc.v1.scheduler"]
  startup_delay = "0ms"
  schedule_delay = "0ms"
"#
    )
}

fn launch(dir: &Path) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).expect("its log");
    // A socket of one that was killed would let us connect to nobody.
    let _ = std::fs::remove_file(dir.join("c.sock"));
    let mut process = Command::new("containerd")
        .arg("--config")
        .arg(dir.join("config.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("start containerd: {error}; apt-get install containerd"));
    let ends = Instant::now() + PATIENCE;
    while std::os::unix::net::UnixStream::connect(dir.join("c.sock")).is_err() {
        let is_over = process.try_wait().expect("a child").is_some() || Instant::now() > ends;
        assert!(
            !is_over,
            "containerd does not start:\n{}",
            std::fs::read_to_string(dir.join("log")).unwrap_or_default()
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    process
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn command_line(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn kill(pid: i32) {
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
}

fn collect(group: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
            collect(&entry.path(), found);
        }
    }
}
