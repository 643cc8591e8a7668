//! What of a container must be found when its shim is gone: one small file for each, in a folder that only root can
//! enter.

use crate::cgroups::Cgroups;
use crate::keeper::{self, Exit};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where shims keep what must not outlive the machine's run.
const BASE: &str = "/run/minik8s/shim";
/// A killed process is waited for by its keeper within this.
const WRITTEN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
const SIGKILL: i32 = 9;

/// The folder of one shim.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

/// A container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Its first process.
    pub pid: u32,
    /// The process was made after this.
    pub since_ns: u64,
    /// Its control group.
    pub group: String,
    /// The folder of its pod's keeper.
    pub keeper: PathBuf,
}

impl Folder {
    /// The shim's for a containerd and a namespace of it.
    pub fn of(containerd: &str, namespace: &str) -> io::Result<Self> {
        let path = Path::new(BASE).join(short(&format!("{containerd}\0{namespace}")));
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(path.join("containers"))?;
        Ok(Folder(path))
    }

    /// The lock that is held while a shim is started or ends.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Where it serves.
    pub fn socket(&self) -> PathBuf {
        self.0.join("s")
    }

    /// The folder of a pod's keeper.
    pub fn keeper(&self, pod: &str) -> PathBuf {
        self.0.join(short(pod))
    }

    /// Writes down a container.
    pub fn write(&self, id: &str, record: &Record) -> io::Result<()> {
        std::fs::write(self.file(id), serde_json::to_vec(record).map_err(io::Error::other)?)
    }

    /// Finds a container.
    pub fn read(&self, id: &str) -> Option<Record> {
        serde_json::from_slice(&std::fs::read(self.file(id)).ok()?).ok()
    }

    /// Forgets a container.
    pub fn forget(&self, id: &str) {
        // It is gone, or was never written.
        let _ = std::fs::remove_file(self.file(id));
    }

    /// Removes the folder, if no container is written down in it.
    pub fn remove(&self) {
        if std::fs::remove_dir(self.0.join("containers")).is_err() {
            return;
        }
        let _ = std::fs::remove_file(self.socket());
        let _ = std::fs::remove_file(self.lock());
        let _ = std::fs::remove_dir(&self.0);
    }

    /// Ends what is left of a container whose shim is gone, and tells how it ended.
    pub fn end(&self, id: &str, cgroups: &Cgroups) -> Option<(u32, Exit)> {
        let record = self.read(id)?;
        let written = || keeper::written_end(&record.keeper, record.pid, record.since_ns);
        let mut exit = written();
        if exit.is_none() && is_in(record.pid, &record.group) {
            // Its number cannot have become another's: that one would not be in its control group.
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(record.pid as i32),
                nix::sys::signal::Signal::try_from(SIGKILL).ok(),
            );
            let ends = Instant::now() + WRITTEN;
            while exit.is_none() && Instant::now() < ends {
                std::thread::sleep(LOOK_AGAIN);
                exit = written();
            }
        }
        cgroups.end(&record.group);
        self.forget(id);
        if !self.has_others(&record.keeper) {
            let _ = std::fs::remove_dir_all(&record.keeper);
        }
        Some((record.pid, exit.unwrap_or_else(keeper::lost)))
    }

    fn has_others(&self, keeper: &Path) -> bool {
        let entries = std::fs::read_dir(self.0.join("containers")).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| self.read(entry.file_name().to_str()?))
            .any(|record| record.keeper == keeper)
    }

    fn file(&self, id: &str) -> PathBuf {
        self.0.join("containers").join(id)
    }
}

fn is_in(pid: u32, group: &str) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().any(|line| line.ends_with(&format!(":{group}")))
}

/// A name for something long, short enough for the path of a socket.
fn short(text: &str) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
