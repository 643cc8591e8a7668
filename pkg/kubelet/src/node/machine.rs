//! What the machine is and has, read from the kernel.

use std::path::Path;

/// What is known of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Processors.
    pub cpus: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Memory that can be had.
    pub memory_available_bytes: u64,
    /// The disk of the kubelet's folder.
    pub disk_bytes: u64,
    /// What is free of it.
    pub disk_available_bytes: u64,
    /// Files that it can hold.
    pub inodes: u64,
    /// Files that it can hold yet.
    pub inodes_free: u64,
    /// Process numbers.
    pub pids: u64,
    /// Process numbers in use.
    pub pids_used: u64,
    /// Huge pages: size in kB, and how many.
    pub huge_pages: Vec<(u64, u64)>,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// The firmware's id.
    pub system_uuid: String,
    /// Changes with each boot.
    pub boot_id: String,
    /// The kernel's release.
    pub kernel: String,
    /// The name of the distribution.
    pub os_image: String,
}

impl Machine {
    /// Reads it. What cannot be read is empty.
    pub fn read(root: &Path) -> Machine {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let meminfo = text("/proc/meminfo");
        let memory = |name: &str| field(&meminfo, name).unwrap_or(0) * 1024;
        let disk = nix::sys::statvfs::statvfs(root).ok();
        let disk = disk.as_ref();
        let size = |blocks: u64| blocks * disk.map_or(0, |disk| disk.fragment_size());
        Machine {
            cpus: cpus(&text("/proc/cpuinfo")),
            memory_bytes: memory("MemTotal:"),
            memory_available_bytes: memory("MemAvailable:"),
            disk_bytes: size(disk.map_or(0, |disk| disk.blocks())),
            disk_available_bytes: size(disk.map_or(0, |disk| disk.blocks_available())),
            inodes: disk.map_or(0, |disk| disk.files()),
            inodes_free: disk.map_or(0, |disk| disk.files_available()),
            pids: text("/proc/sys/kernel/pid_max").trim().parse().unwrap_or(0),
            pids_used: processes(&text("/proc/loadavg")),
            huge_pages: huge_pages(),
            machine_id: text("/etc/machine-id").trim().to_owned(),
            system_uuid: text("/sys/class/dmi/id/product_uuid").trim().to_owned(),
            boot_id: text("/proc/sys/kernel/random/boot_id").trim().to_owned(),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            os_image: os_image(&text("/etc/os-release")),
        }
    }
}

fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn cpus(cpuinfo: &str) -> u64 {
    let listed = cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u64;
    if listed > 0 { listed } else { std::thread::available_parallelism().map_or(1, |n| n.get() as u64) }
}

/// The fourth field is `running/all`.
fn processes(loadavg: &str) -> u64 {
    let all = loadavg.split_whitespace().nth(3).and_then(|pair| pair.split_once('/'));
    all.and_then(|(_, all)| all.parse().ok()).unwrap_or(0)
}

fn huge_pages() -> Vec<(u64, u64)> {
    let entries = std::fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let mut found: Vec<(u64, u64)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count = std::fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
            Some((size, count.trim().parse().ok()?))
        })
        .collect();
    found.sort_unstable();
    found
}

fn os_image(os_release: &str) -> String {
    let line = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or("Linux").trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_something() {
        let machine = Machine::read(Path::new("/"));
        assert!(machine.cpus > 0 && machine.memory_bytes > 0 && machine.disk_bytes > 0 && machine.pids > 0);
        assert!(!machine.boot_id.is_empty() && !machine.kernel.is_empty());
    }

    #[test]
    fn fields_of_the_kernels_files() {
        assert_eq!(field("MemTotal:  16 kB\nMemFree: 3 kB\n", "MemFree:"), Some(3));
        assert_eq!(processes("0.1 0.2 0.3 2/345 6789"), 345);
        assert_eq!(os_image("NAME=x\nPRETTY_NAME=\"Debian 12\"\n"), "Debian 12");
    }
}
