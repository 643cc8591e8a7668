//! Takes away everything that a kubelet has made on this machine: pods, their networks, mounts and control groups, and
//! images of ours. For `kubeadm reset`; the kubelet itself must not run.

use crate::runtime::containerd::{self, Containerd};
use crate::runtime::{Error, Runtime};
use nix::mount::{MntFlags, umount2};
use std::path::{Path, PathBuf};

/// The control group of all pods.
const PODS_GROUP: &str = "/kubepods";

/// Removes everything. How many pods there were. `root_dir` is the kubelet's; `images` are names to be forgotten.
pub async fn cleanup(socket: &Path, root_dir: &Path, images: &[&str]) -> Result<usize, Error> {
    let config = containerd::Config {
        socket: socket.to_owned(),
        root_dir: root_dir.join("runtime"),
        ..containerd::Config::default()
    };
    let state_dir = config.state_dir.clone();
    let runtime = Containerd::new(config)?;
    let pods = runtime.pods().await?;
    for sandbox in pods.iter().flat_map(|pod| &pod.sandboxes) {
        runtime.remove_sandbox(&sandbox.id).await?;
    }
    for name in images {
        if let Some(image) = runtime.image(name).await? {
            runtime.remove_image(&image.id).await?;
        }
    }
    runtime.close().await;
    let failed = |doing: &str, source: Box<dyn std::error::Error + Send + Sync>| Error::Unavailable {
        doing: doing.to_owned(),
        source,
    };
    let network = network::Network::new(network::Config::default());
    let network = network.map_err(|error| failed("find the pods' network", error.into()))?;
    network.cleanup().await.map_err(|error| failed("remove the pods' network", error.into()))?;
    runtime
        .cgroups()
        .remove(PODS_GROUP)
        .map_err(|error| failed("remove the pods' control groups", error.into()))?;
    unmount_below(root_dir).map_err(|error| failed("unmount the pods' volumes", error.into()))?;
    // Not there is as good as removed.
    let _ = std::fs::remove_dir_all(state_dir);
    Ok(pods.len())
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
    paths.filter(|path| path.starts_with(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mounted_below_the_folder_is_unmounted() {
        let table = "1 2 8:1 / / rw - ext4 /dev/a rw\n\
                     3 1 0:5 / /var/lib/kubelet/pods/x/v\\0401 rw - tmpfs tmpfs rw\n\
                     4 1 0:6 / /var/lib/kubelet2 rw - tmpfs tmpfs rw\n";
        assert_eq!(
            mounts_below(table, Path::new("/var/lib/kubelet")),
            [PathBuf::from("/var/lib/kubelet/pods/x/v 1")]
        );
    }
}
