//! Takes away everything that a kubelet has made on this machine: pods, their networks, mounts and control groups, and
//! images of ours. For `kubeadm reset`; the kubelet itself must not run.

use crate::config::{NetworkConfig, RuntimeConfig};
use crate::run::containerd;
use crate::runtime::Runtime;
use crate::{Config, Error};
use nix::mount::{MntFlags, umount2};
use std::path::{Path, PathBuf};

/// The control group of all pods.
const PODS_GROUP: &str = "/kubepods";

/// Removes everything that a kubelet with this configuration has made. How many pods there were. `images` are names to
/// be forgotten.
pub async fn cleanup(config: &Config, images: &[&str]) -> Result<usize, Error> {
    let mut removed = 0;
    if let RuntimeConfig::Containerd { socket } = &config.runtime {
        let runtime = containerd(socket, config)?;
        let pods = runtime.pods().await.map_err(Error::Runtime)?;
        for sandbox in pods.iter().flat_map(|pod| pod.all_sandboxes()) {
            runtime.remove_sandbox(sandbox).await.map_err(Error::Runtime)?;
        }
        runtime.remove_orphans().await;
        for name in images {
            if let Some(image) = runtime.image(name).await.map_err(Error::Runtime)? {
                runtime.remove_image(&image.id).await.map_err(Error::Runtime)?;
            }
        }
        runtime.close().await;
        // Groups are files of the kernel: what is not empty stays, and says so.
        let cgroups = runtime.cgroups();
        let doing = "remove the control groups of";
        cgroups.remove(PODS_GROUP).map_err(|source| Error::File {
            doing,
            path: PODS_GROUP.into(),
            source,
        })?;
        removed = pods.len();
    }
    if let NetworkConfig::Node(network) = &config.network {
        let network =
            network::Network::new((**network).clone()).map_err(|error| Error::Network(error.into()))?;
        network.cleanup().await.map_err(|error| Error::Network(error.into()))?;
    }
    let root = &config.paths.root;
    unmount_below(root).map_err(|source| Error::File {
        doing: "unmount what is below",
        path: root.clone(),
        source,
    })?;
    // Not there is as good as removed.
    let _ = config.state_dir.parent().map(std::fs::remove_dir_all);
    Ok(removed)
}

/// Unmounts whatever is mounted below a folder, the last first.
fn unmount_below(folder: &Path) -> std::io::Result<()> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    for mounted in mounts_below(&table, folder).into_iter().rev() {
        umount2(&mounted, MntFlags::MNT_DETACH)?;
    }
    Ok(())
}

fn mounts_below(table: &str, folder: &Path) -> Vec<PathBuf> {
    let paths = table.lines().filter_map(|line| line.split(' ').nth(4));
    let paths = paths.map(|path| PathBuf::from(path.replace("\\040", " ").replace("\\011", "\t")));
    // The folder itself may be a file system of its own, which is not ours to unmount.
    paths.filter(|path| path.starts_with(folder) && path != folder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mounted_below_the_folder_is_unmounted() {
        let table = "1 2 8:1 / / rw - ext4 /dev/a rw\n\
                     3 1 0:5 / /var/lib/kubelet/pods/x/v\\0401 rw - tmpfs tmpfs rw\n\
                     4 1 0:6 / /var/lib/kubelet2 rw - tmpfs tmpfs rw\n\
                     5 1 8:2 / /var/lib/kubelet rw - ext4 /dev/b rw\n";
        assert_eq!(
            mounts_below(table, Path::new("/var/lib/kubelet")),
            [PathBuf::from("/var/lib/kubelet/pods/x/v 1")]
        );
    }
}
