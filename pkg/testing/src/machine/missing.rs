//! What this machine lacks that others are made of, for the message of one that does not boot.

use std::path::{Path, PathBuf};

/// Programs, and the packages that have them.
const PROGRAMS: [(&str, &str); 9] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("pivot_root", "util-linux"),
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("iptables", "iptables"),
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
];
/// Where containerd looks for plug-ins of the network; `/usr` is all that a machine sees of this one.
const PLUGINS: &str = "/usr/lib/cni";
/// What machines' addresses begin with.
const ADDRESSES: &str = "10.89.0.";

/// What is missing or in the way, a line each.
pub fn said() -> String {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let addresses = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let lines = found(
        &|program| folders.iter().any(|folder| folder.join(program).exists()),
        Path::new(PLUGINS),
        &addresses,
    );
    match lines.is_empty() {
        true => "nothing that machines need is missing here".to_owned(),
        false => lines.join("\n"),
    }
}

fn found(has: &dyn Fn(&str) -> bool, plugins: &Path, addresses: &str) -> Vec<String> {
    let missing = PROGRAMS.iter().filter(|(program, _)| !has(program));
    let mut lines: Vec<String> = missing
        .map(|(program, package)| format!("{program} is missing: apt-get install {package}"))
        .collect();
    if !plugins.is_dir() {
        lines.push(format!(
            "{} is missing: networks of CNI plug-ins do not work (apt-get install containernetworking-plugins)",
            plugins.display()
        ));
    }
    if addresses.lines().any(|line| line.contains(&format!("-- {ADDRESSES}"))) {
        lines.push(format!("somebody else here uses addresses {ADDRESSES}*, as machines do (ip address)"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_brings_it() {
        let here = Path::new("/");
        assert_eq!(found(&|_| true, here, "  |-- 192.168.0.1\n"), Vec::<String>::new());
        let lines =
            found(&|program| program != "runc", Path::new("/no/such/folder"), "  |-- 10.89.0.1\n").join("\n");
        for expected in ["apt-get install runc", "containernetworking-plugins", "10.89.0."] {
            assert!(lines.contains(expected), "{lines}");
        }
    }
}
