//! Control groups: what pods and containers may use, and what they do use. Version 1 (also beside a version 2 mount
//! that controls nothing) and version 2.
//!
//! ```text
//! Resources ── writes(version) ──> [(controller, file, value)] ── apply ──> /sys/fs/cgroup/…/kubepods/burstable/pod<uid>/
//! ```
//!
//! What is written is decided by pure functions; the rest only touches files.

use super::{Resources, Usage};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const MOUNTED_AT: &str = "/sys/fs/cgroup";
/// The controllers that carry limits or figures of ours.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuacct", "memory", "pids"];
/// Version 1 says "no limit" by a number near the largest; nobody has that much.
const NO_LIMIT: u64 = 1 << 60;

/// Which version a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy per controller.
    V1,
    /// One hierarchy.
    V2,
}

/// The machine's control groups.
#[derive(Debug, Clone)]
pub struct Cgroups {
    root: PathBuf,
    version: Version,
}

/// One file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileWrite {
    /// The hierarchy in version 1.
    pub controller: &'static str,
    /// The file's name.
    pub file: String,
    /// What to write.
    pub value: String,
}

impl Cgroups {
    /// Looks at what is mounted.
    pub fn of_this_machine() -> Self {
        Self::at(Path::new(MOUNTED_AT))
    }

    fn at(root: &Path) -> Self {
        let is_v2 = root.join("cgroup.controllers").exists();
        Cgroups { root: root.to_owned(), version: if is_v2 { Version::V2 } else { Version::V1 } }
    }

    /// Which version it is.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Makes a group, such as `/kubepods/burstable/pod<uid>`, with its parents, and limits it.
    pub fn apply(&self, group: &str, resources: &Resources) -> io::Result<()> {
        match self.version {
            Version::V1 => {
                for controller in CONTROLLERS.iter().filter(|controller| self.root.join(controller).exists())
                {
                    std::fs::create_dir_all(self.folder(controller, group))?;
                }
            }
            Version::V2 => self.make_v2(group)?,
        }
        for FileWrite { controller, file, value } in writes(self.version, resources) {
            let path = self.folder(controller, group).join(file);
            std::fs::write(&path, value).map_err(|error| {
                io::Error::new(error.kind(), format!("write {}: {error}", path.display()))
            })?;
        }
        Ok(())
    }

    /// Removes a group and the empty groups in it, from every hierarchy. What has processes stays.
    pub fn remove(&self, group: &str) -> io::Result<()> {
        let hierarchies = match self.version {
            Version::V1 => std::fs::read_dir(&self.root)?.flatten().map(|entry| entry.path()).collect(),
            Version::V2 => vec![self.root.clone()],
        };
        // `cpu` is often a link to `cpu,cpuacct`: removed once, and gone the second time.
        for hierarchy in hierarchies {
            remove_empty(&hierarchy.join(group.trim_start_matches('/')))?;
        }
        Ok(())
    }

    /// Kills every process in a group and the groups in it.
    pub fn kill(&self, group: &str) {
        let group = group.trim_start_matches('/');
        let mut folders = match self.version {
            // Every hierarchy has the same processes; this one has no realtime or thread rules of its own.
            Version::V1 => vec![self.root.join("pids").join(group), self.root.join("memory").join(group)],
            Version::V2 => vec![self.root.join(group)],
        };
        while let Some(folder) = folders.pop() {
            let listed = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            for pid in listed.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0) {
                // It may have ended by itself.
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
            }
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            folders.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
    }

    /// What a group uses now; nothing if there is no such group.
    pub fn usage(&self, group: &str, at: Timestamp) -> Option<Usage> {
        let number = |controller: &str, file: &str| -> Option<u64> {
            std::fs::read_to_string(self.folder(controller, group).join(file)).ok()?.trim().parse().ok()
        };
        let table = |controller: &str, file: &str| -> Option<BTreeMap<String, u64>> {
            Some(numbers(&std::fs::read_to_string(self.folder(controller, group).join(file)).ok()?))
        };
        let of = |table: &BTreeMap<String, u64>, key: &str| table.get(key).copied().unwrap_or_default();
        let memory = table("memory", "memory.stat")?;
        let (cpu_ns, memory_bytes, inactive, rss_bytes) = match self.version {
            Version::V1 => (
                number("cpuacct", "cpuacct.usage")?,
                number("memory", "memory.usage_in_bytes")?,
                of(&memory, "total_inactive_file"),
                of(&memory, "total_rss"),
            ),
            Version::V2 => (
                of(&table("cpu", "cpu.stat")?, "usage_usec") * 1000,
                number("memory", "memory.current")?,
                of(&memory, "inactive_file"),
                of(&memory, "anon"),
            ),
        };
        Some(Usage {
            at,
            cpu_ns,
            memory_bytes,
            working_set_bytes: memory_bytes.saturating_sub(inactive),
            rss_bytes,
            pids: number("pids", "pids.current").unwrap_or_default(),
        })
    }

    /// Whether a process of this group was killed for want of memory.
    pub fn was_out_of_memory(&self, group: &str) -> bool {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        std::fs::read_to_string(self.folder("memory", group).join(file))
            .is_ok_and(|text| numbers(&text).get("oom_kill").is_some_and(|kills| *kills > 0))
    }

    /// The memory that a group may use, where there is a limit.
    pub fn memory_limit_bytes(&self, group: &str) -> Option<u64> {
        let file = match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        let text = std::fs::read_to_string(self.folder("memory", group).join(file)).ok()?;
        text.trim().parse().ok().filter(|limit| *limit < NO_LIMIT)
    }

    /// A group's folder in a controller's hierarchy.
    pub fn folder(&self, controller: &str, group: &str) -> PathBuf {
        let group = group.trim_start_matches('/');
        match self.version {
            Version::V1 => self.root.join(controller).join(group),
            Version::V2 => self.root.join(group),
        }
    }

    /// In version 2 a group's controllers are switched on by its parent.
    fn make_v2(&self, group: &str) -> io::Result<()> {
        let mut folder = self.root.clone();
        for part in group.split('/').filter(|part| !part.is_empty()) {
            for controller in ["cpu", "memory", "pids"] {
                // One that the machine does not have, or that is on already.
                let _ = std::fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"));
            }
            folder.push(part);
            match std::fs::create_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What to write to limit a group so. Zeros are written as "no limit", so that a limit can be taken away again.
pub fn writes(version: Version, resources: &Resources) -> Vec<FileWrite> {
    let write =
        |controller, file: &str, value: String| FileWrite { controller, file: file.to_owned(), value };
    let limit = |value: i64, none: &str| if value > 0 { value.to_string() } else { none.to_owned() };
    let period_us = if resources.cpu_period_us == 0 { 100_000 } else { resources.cpu_period_us };
    let mut writes = match version {
        Version::V1 => vec![
            write("cpu", "cpu.cfs_period_us", period_us.to_string()),
            write("cpu", "cpu.cfs_quota_us", limit(resources.cpu_quota_us, "-1")),
            write("memory", "memory.limit_in_bytes", limit(resources.memory_limit_bytes, "-1")),
        ],
        Version::V2 => vec![
            write("cpu", "cpu.max", format!("{} {period_us}", limit(resources.cpu_quota_us, "max"))),
            write("memory", "memory.max", limit(resources.memory_limit_bytes, "max")),
        ],
    };
    writes.push(write("pids", "pids.max", limit(resources.pids_limit, "max")));
    match version {
        Version::V1 if resources.cpu_shares > 0 => {
            writes.push(write("cpu", "cpu.shares", resources.cpu_shares.to_string()));
        }
        Version::V2 if resources.cpu_shares > 0 => {
            writes.push(write("cpu", "cpu.weight", weight_of_shares(resources.cpu_shares).to_string()));
        }
        _ => {}
    }
    if version == Version::V2 {
        writes.extend(resources.unified.iter().map(|(file, value)| write("", file, value.clone())));
    }
    writes
}

/// The weight of version 2 (1 to 10000) that stands for the shares of version 1 (2 to 262144), as runc converts it.
pub fn weight_of_shares(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// Files of lines such as `oom_kill 1`.
fn numbers(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(key, value)| Some((key.to_owned(), value.trim().parse().ok()?)))
        .collect()
}

fn remove_empty(folder: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_empty(&entry.path())?;
    }
    match std::fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: Version, resources: &Resources) -> Vec<(String, String)> {
        writes(version, resources).into_iter().map(|write| (write.file, write.value)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(file, value)| ((*file).to_owned(), (*value).to_owned())).collect()
    }

    fn limited() -> Resources {
        Resources {
            cpu_shares: 512,
            cpu_quota_us: 50_000,
            cpu_period_us: 100_000,
            memory_limit_bytes: 1 << 26,
            pids_limit: 100,
            unified: [("memory.oom.group".to_owned(), "1".to_owned())].into(),
            ..Resources::default()
        }
    }

    #[test]
    fn version_1_has_a_file_for_each_limit() {
        let expected = [
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "50000"),
            ("memory.limit_in_bytes", "67108864"),
            ("pids.max", "100"),
            ("cpu.shares", "512"),
        ];
        assert_eq!(written(Version::V1, &limited()), pairs(&expected));
    }

    #[test]
    fn version_2_has_weights_and_one_line_for_quota_and_period() {
        let expected = [
            ("cpu.max", "50000 100000"),
            ("memory.max", "67108864"),
            ("pids.max", "100"),
            ("cpu.weight", "20"),
            ("memory.oom.group", "1"),
        ];
        assert_eq!(written(Version::V2, &limited()), pairs(&expected));
    }

    #[test]
    fn no_limit_is_written_too() {
        let none = Resources::default();
        let v1 = [
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "-1"),
            ("memory.limit_in_bytes", "-1"),
            ("pids.max", "max"),
        ];
        assert_eq!(written(Version::V1, &none), pairs(&v1));
        let v2 = [("cpu.max", "max 100000"), ("memory.max", "max"), ("pids.max", "max")];
        assert_eq!(written(Version::V2, &none), pairs(&v2));
    }

    #[test]
    fn shares_become_weights_as_runc_converts_them() {
        for (shares, weight) in [(0, 1), (2, 1), (1024, 39), (102, 4), (262_144, 10_000), (1 << 40, 10_000)] {
            assert_eq!(weight_of_shares(shares), weight, "{shares}");
        }
    }

    fn fixture(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroups) {
        let dir = tempfile::tempdir().expect("a folder");
        for (file, text) in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let cgroups = Cgroups::at(dir.path());
        (dir, cgroups)
    }

    #[test]
    fn version_2_is_what_has_controllers_at_its_root() {
        let (_dir, hybrid) = fixture(&[("unified/cgroup.controllers", ""), ("memory/tasks", "")]);
        assert_eq!(hybrid.version(), Version::V1);
        let (dir, v2) = fixture(&[("cgroup.controllers", "cpu memory pids"), ("cgroup.subtree_control", "")]);
        assert_eq!(v2.version(), Version::V2);
        v2.apply("/kubepods/burstable/pod1", &limited()).expect("plain files take everything");
        let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).expect("written");
        assert_eq!(read("kubepods/burstable/pod1/cpu.max"), "50000 100000");
        assert_eq!(read("kubepods/burstable/cgroup.subtree_control"), "+pids");
    }

    #[test]
    fn usage_and_kills_are_read_in_both_versions() {
        let at = Timestamp::UNIX_EPOCH;
        let (_dir, v1) = fixture(&[
            ("cpuacct/pod1/cpuacct.usage", "1500\n"),
            ("memory/pod1/memory.usage_in_bytes", "1000\n"),
            ("memory/pod1/memory.stat", "cache 10\ntotal_rss 600\ntotal_inactive_file 300\n"),
            ("memory/pod1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
            ("pids/pod1/pids.current", "3\n"),
        ]);
        let expected =
            Usage { at, cpu_ns: 1500, memory_bytes: 1000, working_set_bytes: 700, rss_bytes: 600, pids: 3 };
        assert_eq!(v1.usage("/pod1", at), Some(expected));
        assert!(v1.was_out_of_memory("/pod1"));
        assert_eq!(v1.usage("/other", at), None);
        let (_dir, v2) = fixture(&[
            ("cgroup.controllers", ""),
            ("pod1/cpu.stat", "usage_usec 2\nuser_usec 1\n"),
            ("pod1/memory.current", "1000\n"),
            ("pod1/memory.stat", "anon 600\ninactive_file 300\n"),
            ("pod1/memory.events", "oom 0\noom_kill 0\n"),
            ("pod1/pids.current", "3\n"),
        ]);
        assert_eq!(v2.usage("/pod1", at), Some(Usage { cpu_ns: 2000, ..expected }));
        assert!(!v2.was_out_of_memory("/pod1"));
    }
}
