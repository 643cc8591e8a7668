//! Control groups of version 1, alone or beside version 2: a hierarchy for each controller.
//!
//! A process is put into its groups by itself: writing `0` to `tasks` moves whoever writes, and takes none of the locks
//! that moving another takes (some 12 ms while the kernel waits for a grace period).

use crate::oci::{Cpu, DeviceRule, Memory, Resources};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What every container may open, besides what its specification says, as with runc.
const ALWAYS_ALLOWED: [&str; 10] = [
    "c *:* m",
    "b *:* m",
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
];
/// What was killed leaves its group within this.
const LOOKS: u32 = 500;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its folder's name, such as `cpu,cpuacct`.
    pub name: String,
    /// Where it is mounted.
    pub mounted_at: PathBuf,
}

/// The hierarchies of a node.
#[derive(Debug, Clone, Default)]
pub struct Cgroups {
    hierarchies: Vec<Hierarchy>,
}

impl Cgroups {
    /// Those of this machine; none where there is only version 2.
    pub fn of_this_machine() -> Self {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Cgroups { hierarchies: hierarchies(&text) }
    }

    /// Whether there is a hierarchy for each controller that limits need.
    pub fn is_v1(&self) -> bool {
        ["cpu", "memory", "pids", "devices", "freezer"].iter().all(|controller| self.of(controller).is_some())
    }

    /// All of them.
    pub fn hierarchies(&self) -> &[Hierarchy] {
        &self.hierarchies
    }

    /// Makes a group, with its parents, in all hierarchies, and limits it.
    pub fn create(&self, group: &str, resources: &Resources) -> io::Result<()> {
        for hierarchy in &self.hierarchies {
            let folder = folder(hierarchy, group);
            fs::create_dir_all(&folder).map_err(|error| named(error, "make", &folder))?;
            if hierarchy.has("cpuset") {
                inherit_cpuset(hierarchy, group)?;
            }
        }
        self.limit_devices(group, &resources.devices)?;
        self.apply(group, resources)
    }

    /// Changes limits; those that are not named stay.
    pub fn apply(&self, group: &str, resources: &Resources) -> io::Result<()> {
        if let Some(cpu) = &resources.cpu {
            self.limit_cpu(group, cpu)?;
        }
        if let Some(memory) = &resources.memory {
            self.limit_memory(group, memory)?;
        }
        if let Some(pids) = &resources.pids {
            let most = if pids.limit > 0 { pids.limit.to_string() } else { "max".to_owned() };
            self.write("pids", group, "pids.max", &most)?;
        }
        Ok(())
    }

    /// The files by which a process joins a group: that of its share of processors last, so that what has next to none
    /// is set up as fast as others.
    pub fn doors(&self, group: &str) -> io::Result<Vec<OwnedFd>> {
        let mut ordered: Vec<&Hierarchy> = self.hierarchies.iter().collect();
        ordered.sort_by_key(|hierarchy| hierarchy.has("cpu"));
        ordered
            .into_iter()
            .map(|hierarchy| {
                let path = folder(hierarchy, group).join("tasks");
                let opened = fs::OpenOptions::new().write(true).open(&path);
                opened.map(OwnedFd::from).map_err(|error| named(error, "open", &path))
            })
            .collect()
    }

    /// The processes of a group and of those in it.
    pub fn processes(&self, group: &str) -> Vec<i32> {
        let Some(hierarchy) = self.of("pids") else { return Vec::new() };
        let (mut found, mut folders) = (Vec::new(), vec![folder(hierarchy, group)]);
        while let Some(folder) = folders.pop() {
            let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            found.extend(listed.lines().filter_map(|pid| pid.parse::<i32>().ok()).filter(|pid| *pid > 0));
            folders.extend(children(&folder));
        }
        found
    }

    /// Kills all of a group's processes.
    pub fn kill(&self, group: &str) {
        for pid in self.processes(group) {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// Removes a group and those in it. Says whether it is gone: what has processes stays.
    pub fn remove(&self, group: &str) -> bool {
        let removed: Vec<bool> =
            self.hierarchies.iter().map(|hierarchy| remove(&folder(hierarchy, group))).collect();
        removed.iter().all(|is_gone| *is_gone)
    }

    /// Kills what is in a group until nothing is, and removes it.
    pub fn end(&self, group: &str) {
        for _ in 0..LOOKS {
            if self.remove(group) {
                return;
            }
            self.kill(group);
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Stops a group's processes where they are, or lets them go on.
    pub fn freeze(&self, group: &str, stops: bool) -> io::Result<()> {
        let wanted = if stops { "FROZEN" } else { "THAWED" };
        for _ in 0..LOOKS {
            self.write("freezer", group, "freezer.state", wanted)?;
            if self.read("freezer", group, "freezer.state").is_some_and(|state| state.trim() == wanted) {
                return Ok(());
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Err(io::Error::other(format!("control group {group} does not become {wanted}")))
    }

    /// A figure of a group.
    pub fn number(&self, controller: &str, group: &str, file: &str) -> Option<u64> {
        self.read(controller, group, file)?.trim().parse().ok()
    }

    /// A figure of a table such as `memory.stat`.
    pub fn entry(&self, controller: &str, group: &str, file: &str, key: &str) -> Option<u64> {
        let text = self.read(controller, group, file)?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
        value.trim().parse().ok()
    }

    fn read(&self, controller: &str, group: &str, file: &str) -> Option<String> {
        fs::read_to_string(folder(self.of(controller)?, group).join(file)).ok()
    }

    fn of(&self, controller: &str) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|hierarchy| hierarchy.has(controller))
    }

    fn write(&self, controller: &str, group: &str, file: &str, value: &str) -> io::Result<()> {
        let missing = || io::Error::other(format!("this machine has no control groups for {controller}"));
        let path = folder(self.of(controller).ok_or_else(missing)?, group).join(file);
        fs::write(&path, value).map_err(|error| named(error, &format!("write {value:?} to"), &path))
    }

    /// The plan has seen that it is all or nothing, and then what may be opened.
    fn limit_devices(&self, group: &str, rules: &[DeviceRule]) -> io::Result<()> {
        if rules.first().is_some_and(|rule| rule.allow) {
            return self.write("devices", group, "devices.allow", "a");
        }
        self.write("devices", group, "devices.deny", "a")?;
        for line in ALWAYS_ALLOWED {
            self.write("devices", group, "devices.allow", line)?;
        }
        for rule in rules.iter().skip(1) {
            let number = |number: Option<i64>| match number {
                Some(number) if number >= 0 => number.to_string(),
                _ => "*".to_owned(),
            };
            let line = format!("{} {}:{} {}", rule.kind, number(rule.major), number(rule.minor), rule.access);
            self.write("devices", group, "devices.allow", &line)?;
        }
        Ok(())
    }

    fn limit_cpu(&self, group: &str, cpu: &Cpu) -> io::Result<()> {
        let write = |file: &str, value: String| self.write("cpu", group, file, &value);
        if let Some(shares) = cpu.shares.filter(|shares| *shares > 0) {
            write("cpu.shares", shares.to_string())?;
        }
        let period = cpu.period.filter(|period| *period > 0);
        let quota = cpu.quota.filter(|quota| *quota != 0);
        let mut is_late = false;
        if let Some(period) = period {
            match write("cpu.cfs_period_us", period.to_string()) {
                // With the quota that it still has, the share would be more than its parent's.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && quota.is_some() => {
                    is_late = true
                }
                other => other?,
            }
        }
        if let Some(quota) = quota {
            write("cpu.cfs_quota_us", quota.to_string())?;
        }
        if let Some(period) = period.filter(|_| is_late) {
            write("cpu.cfs_period_us", period.to_string())?;
        }
        for (file, value) in [("cpuset.cpus", &cpu.cpus), ("cpuset.mems", &cpu.mems)] {
            if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
                self.write("cpuset", group, file, value)?;
            }
        }
        Ok(())
    }

    fn limit_memory(&self, group: &str, memory: &Memory) -> io::Result<()> {
        let write = |file: &str, value: i64| self.write("memory", group, file, &value.to_string());
        let limit = memory.limit.filter(|limit| *limit != 0);
        let swap = memory.swap.filter(|swap| *swap != 0);
        // Without a limit of memory there is none of both.
        let swap = swap.or(limit.filter(|limit| *limit < 0));
        match (limit, swap) {
            (Some(limit), Some(swap)) => {
                // Memory may never be more than both: which comes first depends on whether they rise.
                if write("memory.limit_in_bytes", limit).is_ok() {
                    write_if_there(&write, "memory.memsw.limit_in_bytes", swap, memory.swap.is_some())?;
                } else {
                    write_if_there(&write, "memory.memsw.limit_in_bytes", swap, memory.swap.is_some())?;
                    write("memory.limit_in_bytes", limit)?;
                }
            }
            (Some(limit), None) => write("memory.limit_in_bytes", limit)?,
            (None, Some(swap)) => write("memory.memsw.limit_in_bytes", swap)?,
            (None, None) => {}
        }
        match memory.reservation.filter(|reservation| *reservation != 0) {
            Some(reservation) => write("memory.soft_limit_in_bytes", reservation),
            None => Ok(()),
        }
    }
}

impl Hierarchy {
    fn has(&self, controller: &str) -> bool {
        self.name.split(',').any(|own| own == controller)
    }
}

/// What was not asked for is no failure where the machine does not have it.
fn write_if_there(
    write: &dyn Fn(&str, i64) -> io::Result<()>,
    file: &str,
    value: i64,
    is_asked_for: bool,
) -> io::Result<()> {
    match write(file, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_asked_for => Ok(()),
        other => other,
    }
}

/// A group's folder.
pub fn folder(hierarchy: &Hierarchy, group: &str) -> PathBuf {
    hierarchy.mounted_at.join(group.trim_start_matches('/'))
}

fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mountinfo.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let Some(place) = before.split(' ').nth(4).map(PathBuf::from) else { continue };
        let Some(name) = place.file_name().and_then(|name| name.to_str()).map(str::to_owned) else {
            continue;
        };
        let is_new = !found.iter().any(|known| known.name == name);
        if after.starts_with("cgroup ") && place.starts_with("/sys/fs/cgroup") && is_new {
            found.push(Hierarchy { name, mounted_at: place });
        }
    }
    found
}

/// A group of processors is empty until it is told which; it gets its parent's.
fn inherit_cpuset(hierarchy: &Hierarchy, group: &str) -> io::Result<()> {
    let mut folder = hierarchy.mounted_at.clone();
    for part in group.split('/').filter(|part| !part.is_empty()) {
        let above = folder.clone();
        folder.push(part);
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if fs::read_to_string(folder.join(file))?.trim().is_empty() {
                let inherited = fs::read_to_string(above.join(file))?;
                fs::write(folder.join(file), inherited.trim())
                    .map_err(|error| named(error, "write", &folder.join(file)))?;
            }
        }
    }
    Ok(())
}

fn children(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

fn remove(folder: &Path) -> bool {
    match fs::remove_dir(folder) {
        Ok(()) => return true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
        Err(_) => {}
    }
    let are_gone: Vec<bool> = children(folder).map(|child| remove(&child)).collect();
    are_gone.iter().all(|is_gone| *is_gone)
        && !matches!(fs::remove_dir(folder), Err(error) if error.kind() != io::ErrorKind::NotFound)
}

fn named(error: io::Error, doing: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{doing} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_where_they_are_mounted() {
        let text = "30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:10 - cgroup cgroup rw,cpu,cpuacct\n\
            31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            32 24 0:28 / /elsewhere/memory rw - cgroup cgroup rw,memory\n";
        let found = Cgroups { hierarchies: hierarchies(text) };
        assert_eq!(found.hierarchies.len(), 1);
        assert!(found.of("cpu").is_some() && found.of("cpuacct").is_some() && found.of("memory").is_none());
        assert!(!found.is_v1());
    }

    #[test]
    fn limits_are_written_as_the_kernel_has_them() {
        let dir = tempfile::tempdir().expect("a folder");
        let hierarchies = ["cpu", "memory", "pids", "devices"]
            .map(|name| Hierarchy { name: name.to_owned(), mounted_at: dir.path().join(name) })
            .to_vec();
        let cgroups = Cgroups { hierarchies };
        let text = r#"{"cpu":{"shares":2,"quota":-1,"period":100000},"memory":{"limit":4096,"swap":4096},
            "pids":{"limit":0},"devices":[{"allow":false,"access":"rwm"},
            {"allow":true,"type":"c","major":10,"minor":229,"access":"rw"}]}"#;
        let resources: Resources = serde_json::from_str(text).expect("limits");
        cgroups.create("/a/b", &resources).expect("plain files take everything");
        for (file, expected) in [
            ("cpu/a/b/cpu.shares", "2"),
            ("cpu/a/b/cpu.cfs_quota_us", "-1"),
            ("memory/a/b/memory.limit_in_bytes", "4096"),
            ("memory/a/b/memory.memsw.limit_in_bytes", "4096"),
            ("pids/a/b/pids.max", "max"),
            ("devices/a/b/devices.deny", "a"),
            ("devices/a/b/devices.allow", "c 10:229 rw"),
        ] {
            assert_eq!(fs::read_to_string(dir.path().join(file)).expect(file), expected, "{file}");
        }
    }
}
