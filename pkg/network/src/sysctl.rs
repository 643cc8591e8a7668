//! Kernel settings of the network namespace that the calling thread is in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Sets `net.<name>` unless it is so already. `name` has slashes, since devices have dots in their names.
///
/// Where that is not permitted (a read-only `/proc/sys`, say) or does not exist, the administrator may have a reason:
/// it is logged, and everything goes on as far as it can.
pub fn set(name: &str, value: &str) {
    if let Err(error) = try_set(Path::new("/proc/sys/net"), name, value) {
        tracing::warn!(%error, setting = %format!("net/{name}"), value, "cannot be set; set it yourself if pods cannot be reached");
    }
}

/// The same for settings that not every kernel has; those that lack it do not need it.
pub fn set_if_present(name: &str, value: &str) {
    if Path::new("/proc/sys/net").join(name).exists() {
        set(name, value);
    }
}

/// What `net.<name>` is, if there is such a number.
pub fn number(name: &str) -> Option<u64> {
    fs::read_to_string(Path::new("/proc/sys/net").join(name)).ok()?.trim().parse().ok()
}

/// A node that forwards IPv6 no longer listens to routers, and so would lose its own way out, unless its devices insist.
pub fn keep_listening_to_routers() {
    for device in fs::read_dir("/proc/sys/net/ipv6/conf").into_iter().flatten().flatten() {
        if fs::read_to_string(device.path().join("accept_ra")).is_ok_and(|value| value.trim() == "1") {
            set(&format!("ipv6/conf/{}/accept_ra", device.file_name().to_string_lossy()), "2");
        }
    }
}

fn try_set(root: &Path, name: &str, value: &str) -> io::Result<()> {
    let path: PathBuf = root.join(name);
    if fs::read_to_string(&path).is_ok_and(|present| present.trim() == value) {
        return Ok(());
    }
    fs::write(path, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_already_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("forward");
        fs::write(&path, "1\n").unwrap();
        try_set(dir.path(), "forward", "1").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        try_set(dir.path(), "forward", "0").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "0");
        assert!(try_set(dir.path(), "no/such", "1").is_err());
    }
}
