//! Takes away everything that a kubelet has made on this machine: pods, their networks, mounts and control groups, and
//! images of ours. For `kubeadm reset`; the kubelet itself must not run.

use crate::config::{NetworkConfig, RuntimeConfig};
use crate::run::containerd;
use crate::runtime::Runtime;
use crate::{Config, Error};

/// The control group of all pods.
const PODS_GROUP: &str = "/kubepods";

/// Removes everything that a kubelet with this configuration has made. How many pods there were. `images` are names to
/// be forgotten.
pub async fn cleanup(config: &Config, images: &[&str]) -> Result<usize, Error> {
    let mut removed = 0;
    if let RuntimeConfig::Containerd { socket, .. } = &config.runtime {
        let runtime = containerd(socket, &crate::config::PodRuntime::Runc, config)?;
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
    crate::volumes::unshare(root).map_err(|source| Error::File {
        doing: "unmount what is below",
        path: root.clone(),
        source,
    })?;
    // Not there is as good as removed.
    let _ = config.state_dir.parent().map(std::fs::remove_dir_all);
    Ok(removed)
}
