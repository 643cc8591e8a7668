//! A real SLURM for a test: munge, slurmctld and two slurmd on this machine, with a folder, ports and keys of their own, and
//! GPUs that are character devices. Nothing of it is left behind.
//!
//! ```text
//! SLURM_CONF ──> slurmctld ──> slurmd n1 (2 × a100, 1 × v100, 8 shards), slurmd n2
//!                    └── munged     [accounting: mariadbd <── slurmdbd]     [ssh: sshd on the loopback]
//! ```

mod accounting;
mod sshd;

pub use sshd::Sshd;

use crate::{PATIENCE, Port};
use accounting::Accounting;
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How a site differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct SlurmConfig {
    /// With slurmdbd on MariaDB.
    pub accounting: bool,
    /// Seconds that SLURM's commands wait for the controller; 0: as SLURM has it.
    pub message_timeout_s: u64,
    /// How many processors each node says to have; 0: eight.
    pub cpus: u32,
    /// Seconds after which the queue forgets a job that has ended; 0: as SLURM has it.
    pub min_job_age_s: u64,
    /// The partition of the GPUs, beside `cpu`; empty: `dgx2`.
    pub partition: String,
}

/// A site that ends, with all its jobs, when this is dropped.
pub struct Slurm {
    dir: TempDir,
    controller: Option<Child>,
    others: Vec<Child>,
    _accounting: Option<Accounting>,
    _ports: Vec<Port>,
}

impl Slurm {
    /// The usual one.
    pub fn start() -> Slurm {
        Slurm::start_with(&SlurmConfig::default())
    }

    /// Starts one, and waits until its nodes take jobs.
    pub fn start_with(config: &SlurmConfig) -> Slurm {
        let dir = tempfile::Builder::new().prefix("slurm").tempdir().expect("a temporary folder");
        let ports: Vec<Port> = (0..4).map(|_| Port::reserve()).collect();
        lay_out(dir.path(), config, &ports);
        let mut others = vec![munged(dir.path())];
        let accounting = config.accounting.then(|| Accounting::start(dir.path(), ports[3].number()));
        let mut slurm =
            Slurm { controller: None, others: Vec::new(), dir, _accounting: accounting, _ports: ports };
        if config.accounting {
            slurm.await_("the cluster's accounts", |slurm| {
                slurm.run(&["sacctmgr", "-i", "add", "cluster", "test"]).status.success()
            });
        }
        slurm.controller = Some(slurm.launch("slurmctld", &["-D"]));
        for node in ["n1", "n2"] {
            let slurmd = slurm.launch("slurmd", &["-D", "-N", node]);
            others.push(slurmd);
        }
        slurm.others = others;
        slurm.await_("its nodes", |slurm| {
            let said = slurm.run(&["sinfo", "-h", "-N", "-o", "%N %t"]);
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            // What starts as drained is taken up.
            for node in ["n1", "n2"] {
                if text.contains(&format!("{node} drain")) || text.contains(&format!("{node} down")) {
                    slurm.run(&["scontrol", "update", &format!("nodename={node}"), "state=resume"]);
                }
            }
            text.contains("n1 idle") && text.contains("n2 idle")
        });
        slurm
    }

    /// Where its configuration is: `SLURM_CONF`.
    pub fn conf(&self) -> PathBuf {
        self.dir.path().join("etc/slurm.conf")
    }

    /// A folder that goes with it, which everybody may enter.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs a command of SLURM.
    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// What a command of SLURM says.
    pub fn says(&self, words: &[&str]) -> String {
        String::from_utf8_lossy(&self.run(words).stdout).trim().to_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("SLURM_CONF", self.conf()).current_dir("/").stdin(Stdio::null());
        command
    }

    /// The controller's process.
    pub fn controller(&self) -> u32 {
        self.controller.as_ref().expect("it runs").id()
    }

    /// Kills the controller as a crash would.
    pub fn kill_controller(&mut self) {
        if let Some(mut controller) = self.controller.take() {
            let _ = controller.kill();
            let _ = controller.wait();
        }
    }

    /// Starts the controller again.
    pub fn start_controller(&mut self) {
        self.controller = Some(self.launch("slurmctld", &["-D"]));
        self.await_("the controller", |slurm| slurm.run(&["scontrol", "ping"]).status.success());
    }

    fn launch(&self, program: &str, arguments: &[&str]) -> Child {
        let log = std::fs::File::options().create(true).append(true).open(self.dir.path().join("log/said"));
        let log = log.expect("its log");
        let mut command = self.command(&[program]);
        command.args(arguments).stdout(log.try_clone().expect("its log")).stderr(log);
        command
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}: scripts/packages test installs it"))
    }

    fn await_(&self, what: &str, condition: impl Fn(&Slurm) -> bool) {
        await_that(
            what,
            || condition(self),
            || {
                let log = std::fs::read_to_string(self.dir.path().join("log/said")).unwrap_or_default();
                log.lines().rev().take(30).collect::<Vec<_>>().join("\n")
            },
        );
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Jobs first: their processes are slurmd's grandchildren, and go by its word.
        if self.controller.is_some() {
            self.run(&["scancel", "--signal=KILL", "--full", "--user=root"]);
            self.run(&["scancel", "--full", "--signal=KILL", "--me"]);
            self.run(&["scontrol", "shutdown", "slurmctld"]);
        }
        self.kill_controller();
        for child in self.others.iter_mut().rev() {
            let _ = nix_kill(child.id(), "TERM");
            let ends = Instant::now() + Duration::from_secs(5);
            while child.try_wait().ok().flatten().is_none() && Instant::now() < ends {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        // Whatever was started with its configuration, and has outlived it.
        let conf = format!("SLURM_CONF={}", self.conf().display());
        let dir = self.dir.path().display().to_string();
        for pid in processes_of(&conf, &dir) {
            let _ = nix_kill(pid, "KILL");
        }
    }
}

fn nix_kill(pid: u32, signal: &str) -> std::io::Result<()> {
    Command::new("kill").args(["-s", signal, &pid.to_string()]).stderr(Stdio::null()).status().map(drop)
}

/// Processes that have this in their environment, or this folder in their command line; not this one.
fn processes_of(variable: &str, folder: &str) -> Vec<u32> {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| {
            let has = |file: &str, what: &str| {
                let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                text.split(|byte| *byte == 0).any(|word| String::from_utf8_lossy(word).contains(what))
            };
            has("environ", variable) || has("cmdline", folder)
        })
        .collect()
}

/// Waits for something of this machine.
pub(crate) fn await_that(what: &str, condition: impl Fn() -> bool, log: impl Fn() -> String) {
    let ends = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < ends, "waited {PATIENCE:?} in vain: {what}\n{}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn munged(dir: &Path) -> Child {
    let path = |name: &str| dir.join("munge").join(name);
    let mut command = Command::new("munged");
    command.arg("--foreground").arg("--socket").arg(path("socket")).arg("--pid-file").arg(path("pid"));
    command.arg("--key-file").arg(dir.join("etc/munge.key")).arg("--seed-file").arg(path("seed"));
    command.arg("--log-file").arg(dir.join("log/munged")).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("munged: scripts/packages test installs it");
    await_that("munged", || path("socket").exists(), String::new);
    child
}

fn lay_out(dir: &Path, config: &SlurmConfig, ports: &[Port]) {
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
    };
    // Jobs run as other users.
    mode(dir, 0o755);
    for folder in ["etc", "munge", "state", "spool-n1", "spool-n2", "log", "dev", "data"] {
        std::fs::create_dir(dir.join(folder)).expect("a folder");
    }
    mode(&dir.join("data"), 0o1777);
    let mut key = vec![0u8; 1024];
    let mut random = std::fs::File::open("/dev/urandom").expect("random numbers");
    std::io::Read::read_exact(&mut random, &mut key).expect("random numbers");
    let path = dir.join("etc/munge.key");
    std::fs::write(&path, key).expect("the key");
    mode(&path, 0o400);
    for gpu in 0..3 {
        let device = dir.join(format!("dev/gpu{gpu}"));
        // As /dev/null: a device that is there and does nothing.
        let made = Command::new("mknod").arg(&device).args(["c", "1", "3"]).status();
        assert!(made.is_ok_and(|status| status.success()), "mknod needs root");
        mode(&device, 0o666);
    }
    let at = dir.display();
    let mut gres = String::new();
    for (gpu, kind) in ["a100", "a100", "v100"].iter().enumerate() {
        let _ = writeln!(gres, "NodeName=n1 Name=gpu Type={kind} File={at}/dev/gpu{gpu}");
    }
    gres.push_str("NodeName=n1 Name=shard Count=9\n");
    std::fs::write(dir.join("etc/gres.conf"), gres).expect("gres.conf");
    std::fs::write(dir.join("etc/cgroup.conf"), "CgroupPlugin=cgroup/v1\n").expect("cgroup.conf");
    let text = slurm_conf(dir, config, ports);
    std::fs::write(dir.join("etc/slurm.conf"), text).expect("slurm.conf");
}

fn slurm_conf(dir: &Path, config: &SlurmConfig, ports: &[Port]) -> String {
    let at = dir.display();
    let or = |given: u64, usual: u64| if given == 0 { usual } else { given };
    let (timeout, age) = (or(config.message_timeout_s, 10), or(config.min_job_age_s, 300));
    let cpus = or(u64::from(config.cpus), 8);
    let partition = if config.partition.is_empty() { "dgx2" } else { &config.partition };
    let mut text = format!(
        "ClusterName=test\nSlurmctldHost=localhost(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={at}/munge/socket\nCredType=cred/munge\n\
         SlurmctldPort={}\nStateSaveLocation={at}/state\nSlurmctldPidFile={at}/slurmctld.pid\n\
         SlurmdPidFile={at}/slurmd-%n.pid\nSlurmdSpoolDir={at}/spool-%n\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/linux\n\
         JobAcctGatherFrequency=1\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n\
         SchedulerType=sched/backfill\nSchedulerParameters=batch_sched_delay=0,sched_min_interval=10000,bf_interval=1\n\
         MpiDefault=none\nReturnToService=2\nSwitchType=switch/none\nGresTypes=gpu,shard\nMailProg=/bin/true\n\
         SlurmdParameters=config_overrides\nMessageTimeout={timeout}\nKillWait=2\nMinJobAge={age}\n\
         DefMemPerCPU=10\nMaxArraySize=2001\nMaxJobCount=20000\nPreemptType=preempt/partition_prio\n\
         PreemptMode=REQUEUE\n",
        ports[0].number(),
    );
    if config.accounting {
        let _ = writeln!(
            text,
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n\
             AccountingStoragePass={at}/munge/socket\nAccountingStoragePort={}\nAccountingStoreFlags=job_comment",
            ports[3].number()
        );
    }
    let _ = writeln!(
        text,
        "NodeName=DEFAULT CPUs={cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 \
         RealMemory=16000 State=UNKNOWN\n\
         NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={} Gres=gpu:a100:2,gpu:v100:1,shard:9\n\
         NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={}\n\
         PartitionName={partition} Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP\n\
         PartitionName=cpu Nodes=n2 State=UP",
        ports[1].number(),
        ports[2].number()
    );
    text
}
