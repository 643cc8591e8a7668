//! What a machine boots from: folders of its own, an `/etc` without what this machine's clusters put there, and units for
//! a systemd that leaves this machine's hardware alone.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// containerd without the CRI, which nobody here uses.
const CONTAINERD: &str = "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.snapshotter.v1.btrfs\", \"io.containerd.snapshotter.v1.zfs\", \"io.containerd.snapshotter.v1.devmapper\", \"io.containerd.snapshotter.v1.aufs\"]\n";

/// Its own folders, empty. What is below `/usr` is this machine's, and read-only; but for `/usr/local`.
const FOLDERS: [&str; 18] = [
    "local/bin",
    "local/lib",
    "root/usr",
    "root/proc",
    "root/sys",
    "root/run",
    "root/dev",
    "root/tmp",
    "root/root",
    "root/home",
    "root/mnt",
    "root/opt",
    "root/srv",
    "root/var/lib",
    "root/var/log",
    "root/var/tmp",
    "root/var/cache",
    "root/var/spool",
];

/// How full the disk is that all these machines share is not their kubelets' business.
pub const ROOM_ENOUGH: &str =
    "--eviction-hard=nodefs.available<1Mi,imagefs.available<1Mi,memory.available<1Mi";

/// What in `/etc` belongs to a cluster that this machine may be part of, or starts at its boot.
const NOT_ITS_OWN: [&str; 14] = [
    "kubernetes",
    "minik8s",
    "cni",
    "init.d/minik8s",
    "fstab",
    "systemd/system",
    "rc0.d",
    "rc1.d",
    "rc2.d",
    "rc3.d",
    "rc4.d",
    "rc5.d",
    "rc6.d",
    "rcS.d",
];

/// Writes what it boots from.
pub fn install(disk: &Path, name: &str) -> io::Result<()> {
    let (root, etc) = (disk.join("root"), disk.join("root/etc"));
    FOLDERS.iter().try_for_each(|folder| fs::create_dir_all(disk.join(folder)))?;
    for folder in ["tmp", "var/tmp"] {
        fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o1777))?;
    }
    for link in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        if let Ok(target) = fs::read_link(Path::new("/").join(link)) {
            symlink(target, root.join(link))?;
        }
    }
    symlink("/run", root.join("var/run"))?;
    super::run("cp", &["-a", "/etc", &etc.display().to_string()]);
    for path in NOT_ITS_OWN.iter().map(|path| etc.join(path)) {
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
    (2..=5).try_for_each(|level| fs::create_dir(etc.join(format!("rc{level}.d"))))?;
    fs::write(etc.join("hostname"), format!("{name}\n"))?;
    fs::write(etc.join("hosts"), format!("127.0.0.1 localhost\n127.0.1.1 {name}\n"))?;
    fs::write(etc.join("machine-id"), fs::read_to_string("/proc/sys/kernel/random/uuid")?.replace('-', ""))?;
    fs::create_dir_all(etc.join("containerd"))?;
    fs::write(etc.join("containerd/config.toml"), CONTAINERD)?;
    fs::create_dir_all(etc.join("default"))?;
    fs::write(etc.join("default/kubelet"), format!("KUBELET_EXTRA_ARGS={ROOM_ENOUGH}\n"))?;
    install_units(&etc.join("systemd/system"))
}

/// Its systemd starts containerd and keeps a journal. Whatever else a distribution starts at boot is about hardware, which
/// is not its own: this machine's kernel, disks and clock.
fn install_units(own: &Path) -> io::Result<()> {
    let distribution = Path::new("/lib/systemd/system");
    fs::create_dir_all(own.join("multi-user.target.wants"))?;
    symlink(distribution.join("multi-user.target"), own.join("default.target"))?;
    symlink(distribution.join("containerd.service"), own.join("multi-user.target.wants/containerd.service"))?;
    for wants in fs::read_dir(distribution).into_iter().flatten().flatten() {
        if wants.path().extension().is_none_or(|extension| extension != "wants") {
            continue;
        }
        for unit in fs::read_dir(wants.path())?.flatten() {
            let mask = own.join(unit.file_name());
            if !unit.file_name().to_string_lossy().starts_with("systemd-journald")
                && mask.symlink_metadata().is_err()
            {
                symlink("/dev/null", mask)?;
            }
        }
    }
    Ok(())
}
