//! A container: what was decided about it, its keeper, its processes.

use crate::cgroups::Cgroups;
use crate::io;
use crate::keeper::Keeper;
use crate::plan::{self, Decision, Facts, Setup};
use crate::process::Process;
use crate::setup::{self, Inside, Parts, RootMount};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// By these annotations containers belong to one pod.
const GROUPS: [&str; 2] = ["io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"];

/// A container.
pub struct Container {
    /// Its name.
    pub id: String,
    /// Its folder, by containerd.
    pub bundle: PathBuf,
    /// The pod that it belongs to.
    pub pod: String,
    /// The parent of its processes.
    pub keeper: Arc<Keeper>,
    /// Its control group.
    pub group: String,
    /// Its first process.
    pub first: Arc<Process>,
    /// Whether its processes end with the first, by the kernel.
    pub has_own_pids: bool,
    /// Whether its processes are stopped where they are.
    pub is_paused: Mutex<bool>,
    told_out_of_memory: AtomicBool,
    execs: Mutex<HashMap<String, Arc<Process>>>,
    namespaces: libc::c_int,
    filter: Option<Vec<u64>>,
}

/// What containerd asks a container to be made of.
pub struct Wanted {
    /// Its name.
    pub id: String,
    /// Its folder.
    pub bundle: PathBuf,
    /// What its root is.
    pub rootfs: Vec<RootMount>,
    /// Where its streams are.
    pub paths: io::Paths,
}

/// What this node is.
pub fn facts(cgroups: &Cgroups) -> Facts {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Facts { is_cgroup_v1: cgroups.is_v1(), moves_mounts: version >= (5, 12) }
}

/// Reads a bundle's specification and decides.
pub fn decide(bundle: &Path, cgroups: &Cgroups) -> std::io::Result<Decision> {
    let config = std::fs::read(bundle.join("config.json"))?;
    Ok(plan::decide(&config, facts(cgroups)))
}

/// The pod of a container: itself, where none is named.
pub fn pod_of(setup: &Setup, id: &str) -> String {
    let annotations = &setup.spec.annotations;
    GROUPS.iter().find_map(|name| annotations.get(*name)).cloned().unwrap_or_else(|| id.to_owned())
}

impl Container {
    /// Sets a container up, to the point where it waits for its start.
    pub async fn create(
        wanted: Wanted,
        setup: &Setup,
        keeper: Arc<Keeper>,
        cgroups: &Cgroups,
    ) -> Result<(Self, crate::keeper::Exits), String> {
        let linux = &setup.spec.linux;
        let group = linux.cgroups_path.clone();
        let paths = io::Paths { terminal: setup.spec.process.terminal, ..wanted.paths };
        let first = Process::new(paths, None);
        cgroups.create(&group, &linux.resources).map_err(|error| error.to_string())?;
        let made = async {
            let streams = io::open(&first.paths, &first.held).map_err(|error| error.to_string())?;
            let (news, status) = pipe()?;
            let (start, go) = pipe()?;
            let parts = Parts {
                rootfs: wanted.bundle.join(&setup.spec.root.path),
                root_mounts: wanted.rootfs,
                cgroups,
                streams,
                status,
                start,
            };
            let script = setup::container(setup, parts).map_err(|error| error.to_string())?;
            let prepared = keeper.run(script, news).await?;
            let pid = prepared.pid;
            let exits = first.prepared(prepared, File::from(go)).map_err(|error| error.to_string())?;
            match setup.spec.process.oom_score_adj {
                Some(score) => adjust_oom_score(pid, score).map(|()| exits),
                None => Ok(exits),
            }
        };
        let exits = match made.await {
            Ok(exits) => exits,
            Err(error) => {
                let (cgroups, group) = (cgroups.clone(), group.clone());
                first.held.close();
                let _ = tokio::task::spawn_blocking(move || cgroups.end(&group)).await;
                return Err(error);
            }
        };
        let own_pids = |namespace: &crate::oci::Namespace| {
            namespace.kind == "pid" && namespace.path.as_os_str().is_empty()
        };
        let container = Container {
            id: wanted.id,
            bundle: wanted.bundle,
            pod: String::new(),
            keeper,
            group,
            first: Arc::new(first),
            has_own_pids: linux.namespaces.iter().any(own_pids),
            is_paused: Mutex::new(false),
            told_out_of_memory: AtomicBool::new(false),
            execs: Mutex::default(),
            namespaces: setup::flags_of(&linux.namespaces),
            filter: setup.filter.clone(),
        };
        Ok((container, exits))
    }

    /// Its first process, or one that is executed in it.
    pub fn process(&self, exec: &str) -> Option<Arc<Process>> {
        if exec.is_empty() {
            return Some(self.first.clone());
        }
        self.execs.lock().ok()?.get(exec).cloned()
    }

    /// Whether this is the first that is told of its being out of memory.
    pub fn first_out_of_memory(&self) -> bool {
        !self.told_out_of_memory.swap(true, Ordering::Relaxed)
    }

    /// Knows of a process that is to be executed; false: there is one of this name.
    pub fn add(&self, exec: &str, process: Process) -> bool {
        let Ok(mut execs) = self.execs.lock() else { return false };
        let is_new = !execs.contains_key(exec);
        if is_new {
            execs.insert(exec.to_owned(), Arc::new(process));
        }
        is_new
    }

    /// Forgets a process that was executed.
    pub fn forget(&self, exec: &str) {
        if let Ok(mut execs) = self.execs.lock() {
            execs.remove(exec);
        }
    }

    /// Makes a process in the container, to the point where it waits for its start.
    pub async fn prepare(
        &self,
        process: &Process,
        cgroups: &Cgroups,
    ) -> Result<crate::keeper::Exits, String> {
        let text = |error: std::io::Error| error.to_string();
        let program = process.program.as_ref().ok_or("it has no program")?;
        let streams = io::open(&process.paths, &process.held).map_err(text)?;
        let (news, status) = pipe()?;
        let (start, go) = pipe()?;
        let inside = Inside {
            container: crate::keeper::pidfd(self.first.pid()).map_err(text)?,
            namespaces: self.namespaces,
            cgroups,
            group: &self.group,
            filter: self.filter.as_deref(),
            streams,
            status,
            start,
        };
        let script = setup::exec(program, inside).map_err(text)?;
        let prepared = self.keeper.run(script, news).await?;
        let pid = prepared.pid;
        let exits = process.prepared(prepared, File::from(go)).map_err(text)?;
        match program.oom_score_adj {
            Some(score) => adjust_oom_score(pid, score).map(|()| exits),
            None => Ok(exits),
        }
    }
}

/// By the node's own procfs, while the process waits.
fn adjust_oom_score(pid: u32, score: i32) -> Result<(), String> {
    std::fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string())
        .map_err(|error| format!("set oom_score_adj to {score}: {error}"))
}

fn pipe() -> Result<(OwnedFd, OwnedFd), String> {
    pipe2(OFlag::O_CLOEXEC).map_err(|error| format!("make a pipe: {error}"))
}
