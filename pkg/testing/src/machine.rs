//! Machines on one machine: each has its own network, processes, host name, control groups and files (of this machine it
//! sees `/usr`, but for `/usr/local`), its own containerd, and a cable to a switch that leads nowhere else.
//!
//! ```text
//! Switch (a network namespace with a bridge, 10.89.0.0/24, fd00:89::/64)
//!    ├── Machine "m1" 10.89.0.1, fd00:89::1: containerd, and whatever a test runs on it
//!    └── Machine "m2" 10.89.0.2, fd00:89::2
//! ```
//!
//! Its first process only waits, or is systemd. `/etc` begins as a copy of this machine's, without what a cluster puts there.
//! A machine can be cut off, slowed down, frozen, killed and booted again. Dropping it leaves nothing behind.

mod disk;
mod missing;

pub use disk::ROOM_ENOUGH;

use std::fs::{self, File};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Longer than a machine takes to do anything simple.
const PATIENCE: Duration = Duration::from_secs(60);

/// What connects machines, and nothing else.
pub struct Switch {
    namespace: String,
}

impl Switch {
    /// A new switch.
    pub fn new() -> Arc<Switch> {
        let namespace = unique("switch");
        run("ip", &["netns", "add", &namespace]);
        let switch = Switch { namespace };
        switch.ip(&["link", "add", "br0", "type", "bridge"]);
        switch.ip(&["link", "set", "br0", "up"]);
        Arc::new(switch)
    }

    fn ip(&self, arguments: &[&str]) {
        run("ip", &[&["-n", &self.namespace], arguments].concat());
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        try_run("ip", &["netns", "del", &self.namespace]);
    }
}

/// A machine that is running, unless it was killed.
pub struct Machine {
    name: String,
    number: u8,
    init: &'static str,
    switch: Arc<Switch>,
    cable: String,
    group: String,
    disk: TempDir,
    running: Option<Running>,
}

struct Running {
    child: Child,
    /// The number of its first process as this machine sees it.
    pid: u32,
}

impl Machine {
    /// Boots a new machine; `number` is the last part of its addresses. When this returns, its containerd serves.
    pub fn boot(switch: &Arc<Switch>, name: &str, number: u8) -> Machine {
        Machine::boot_as(switch, name, number, "wait")
    }

    /// As [`Machine::boot`]; its first process is systemd.
    pub fn boot_systemd(switch: &Arc<Switch>, name: &str, number: u8) -> Machine {
        assert!(Path::new("/lib/systemd/systemd").exists(), "there is no systemd: apt-get install systemd");
        Machine::boot_as(switch, name, number, "systemd")
    }

    fn boot_as(switch: &Arc<Switch>, name: &str, number: u8, init: &'static str) -> Machine {
        let disk = tempfile::Builder::new().prefix("machine-").tempdir().expect("a folder for its disk");
        disk::install(disk.path(), name).expect("its disk");
        let id = unique("m");
        let mut machine = Machine {
            name: name.to_owned(),
            number,
            init,
            switch: switch.clone(),
            cable: format!("v{}", id.trim_start_matches("mk-m-")),
            group: id,
            disk,
            running: None,
        };
        machine.start();
        machine
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the switch.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 89, 0, self.number)
    }

    /// Its other address on the switch.
    pub fn address_v6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0x89, 0, 0, 0, 0, 0, self.number.into())
    }

    /// Where a path of its own disk (not `/run`, `/usr`) is on this machine.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.disk.path().join("root").join(inside.trim_start_matches('/'))
    }

    /// A command that will run on it.
    pub fn command(&self, program: &str) -> Command {
        let pid = self.running.as_ref().expect("the machine runs").pid.to_string();
        let mut command = Command::new("nsenter");
        // Its root as its first process has it: a namespace has another one where this machine's `/` is mounted twice.
        command.args(["--target", &pid, "--all", "--root", "--wd", program]);
        command.env_remove("KUBECONFIG").stdin(Stdio::null());
        command
    }

    /// Runs a program on it, whatever comes of it.
    pub fn output(&self, program: &str, arguments: &[&str]) -> Output {
        self.command(program).args(arguments).output().expect("nsenter runs")
    }

    /// Runs a program on it that must succeed. What it printed.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.output(program, arguments);
        let (out, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(
            output.status.success(),
            "{}: {program} {}: {}\n{out}{errors}",
            self.name,
            arguments.join(" "),
            output.status
        );
        out.into_owned()
    }

    /// Pulls its cable, or puts it in again.
    pub fn connect(&self, connected: bool) {
        self.switch.ip(&["link", "set", &self.cable, if connected { "up" } else { "down" }]);
    }

    /// Lets no more through its cable, either way, than so many kilobits a second; `None` is as fast as it goes.
    pub fn slow(&self, kilobits_per_s: Option<u32>) {
        // What may pass at once: a packet, or a fiftieth of a second.
        let limits =
            kilobits_per_s.map(|rate| (format!("{rate}kbit"), (rate * 1000 / 8 / 50).max(2000).to_string()));
        let of = |device| match &limits {
            Some((rate, burst)) => {
                let shape = ["tbf", "rate", rate, "burst", burst, "latency", "1s"];
                [&["qdisc", "replace", "dev", device, "root"], &shape[..]].concat()
            }
            None => vec!["qdisc", "del", "dev", device, "root"],
        };
        self.run("tc", &of("eth0"));
        run("ip", &[vec!["netns", "exec", &self.switch.namespace, "tc"], of(&self.cable)].concat());
    }

    /// Stops every process on it where it stands, or lets them go on.
    pub fn freeze(&self, frozen: bool) {
        let state = if frozen { "FROZEN" } else { "THAWED" };
        let file = format!("/sys/fs/cgroup/freezer/{}/freezer.state", self.group);
        fs::write(&file, state).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    /// Cuts its power.
    pub fn kill(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        // With its first process, all the others of its namespace end.
        let _ = running.child.kill();
        try_run("kill", &["-KILL", &running.pid.to_string()]);
        let _ = running.child.wait();
        let ends = Instant::now() + PATIENCE;
        while Path::new(&format!("/proc/{}", running.pid)).exists() && Instant::now() < ends {
            std::thread::sleep(Duration::from_millis(10));
        }
        remove_groups(&self.group);
        try_run("ip", &["-n", &self.switch.namespace, "link", "del", &self.cable]);
    }

    /// Starts it again after [`Machine::kill`], with its disk as it was; what starts at boot is started.
    pub fn reboot(&mut self) {
        self.kill();
        self.start();
        self.run(
            "sh",
            &["-c", "for script in /etc/rc3.d/S*minik8s; do [ -e $script ] && $script start; done; true"],
        );
    }

    fn start(&mut self) {
        make_groups(&self.group);
        let disk = self.disk.path().display().to_string();
        let ready = self.path("/ready");
        let _ = fs::remove_file(&ready);
        let addresses = format!("{}/24 {}/64", self.address(), self.address_v6());
        let log = File::create(self.disk.path().join("boot.log")).expect("its log");
        let child = Command::new("bash")
            .args(["-c", BOOT, "boot", &disk, &self.group, &self.name, &addresses, self.init])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("its log"))
            .stderr(log)
            .spawn()
            .expect("bash runs");
        let mut running = Running { child, pid: 0 };
        self.wait("its first process", || ready.exists().then_some(()));
        running.pid = first_process(running.child.id());
        self.running = Some(running);
        self.check_root();
        let pid = self.running.as_ref().expect("just started").pid.to_string();
        self.switch.ip(&["link", "add", &self.cable, "type", "veth", "peer", "name", "eth0", "netns", &pid]);
        self.switch.ip(&["link", "set", &self.cable, "master", "br0", "up"]);
        self.wait("containerd", || self.output("ctr", &["version"]).status.success().then_some(()));
    }

    /// Whatever is done on it from now on is done to its own files. Nothing was before this.
    fn check_root(&self) {
        let own = fs::metadata(self.disk.path().join("root")).expect("its root");
        let own = format!("{}:{}", own.dev(), own.ino());
        let there = self.output("stat", &["--format", "%d:%i", "/"]);
        let there = String::from_utf8_lossy(&there.stdout).into_owned();
        assert!(
            there.trim() == own,
            "{}: it has no root of its own ({} instead of {own}): is / of this machine mounted twice (findmnt /)?\n{}",
            self.name,
            there.trim(),
            missing::said()
        );
    }

    fn wait<T>(&self, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
        let ends = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = condition() {
                return found;
            }
            let logs = || {
                let of = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
                let boot = of(self.disk.path().join("boot.log"));
                format!("{}\n{boot}\n{}", missing::said(), of(self.path("/var/log/containerd.log")))
            };
            assert!(Instant::now() < ends, "{}: waited in vain for {what}:\n{}", self.name, logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.running.is_some() {
            let file = format!("/sys/fs/cgroup/freezer/{}/freezer.state", self.group);
            let _ = fs::write(file, "THAWED");
        }
        self.kill();
    }
}

const BOOT: &str = include_str!("machine/boot.sh");

/// The first process of the namespace that a process has made: its only child.
fn first_process(parent: u32) -> u32 {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("unshare has a child")
}

fn controllers() -> Vec<PathBuf> {
    let folders = fs::read_dir("/sys/fs/cgroup").expect("control groups").flatten();
    folders.map(|folder| folder.path()).filter(|path| path.join("cgroup.procs").exists()).collect()
}

fn make_groups(group: &str) {
    for controller in controllers() {
        let path = controller.join(group);
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // A set of CPUs and memory nodes begins empty, and nothing can run in it.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(all) = fs::read_to_string(controller.join(file)) {
                let _ = fs::write(path.join(file), all);
            }
        }
        let _ = fs::write(path.join("cgroup.clone_children"), "1");
    }
}

fn remove_groups(group: &str) {
    fn remove(path: &Path) {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                remove(&entry.path());
            }
        }
        // A process that has just ended may count for a moment still.
        let ends = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(path).is_err() && path.exists() && Instant::now() < ends {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    controllers().iter().for_each(|controller| remove(&controller.join(group)));
}

/// A name that no other test has: interfaces' names have 15 letters at most.
fn unique(what: &str) -> String {
    format!("mk-{what}-{:x}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn try_run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {errors}", arguments.join(" "));
}
