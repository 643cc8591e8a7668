//! Where everything lies on a machine. Upstream's places wherever upstream has them.

use std::path::{Path, PathBuf};

/// The configuration of the cluster on this machine.
pub const ETC: &str = "/etc/kubernetes";
/// What the kubelet keeps.
pub const KUBELET: &str = "/var/lib/kubelet";
/// What the API server keeps, the embedded store among it.
pub const DATA: &str = "/var/lib/minik8s";
/// What etcd keeps, where it is the store and ours to run.
pub const ETCD: &str = "/var/lib/minik8s/etcd";
/// Logs of pods.
pub const POD_LOGS: &str = "/var/log/pods";
/// Links to logs of containers.
pub const CONTAINER_LOGS: &str = "/var/log/containers";
/// Logs of the services, where there is no systemd.
pub const LOGS: &str = "/var/log/minik8s";
/// The supervisor's process and those of its services.
pub const RUN: &str = "/run/minik8s";
/// Which services the supervisor keeps running.
pub const SERVICES: &str = "/etc/minik8s/services";
/// The one program.
pub const PROGRAM: &str = "/usr/local/lib/minik8s/minik8s";
/// Where its names are linked.
pub const BIN: &str = "/usr/local/bin";
/// Programs that people call, by the names linked in [`BIN`].
/// Upstream's kubectl finds `kubectl-…` as its plug-ins.
pub const LINKS: [&str; 8] = [
    "minik8s",
    "kubeadm",
    "kubectl",
    "kubectl-register",
    "kubectl-trigger",
    "kubectl-update",
    "kubectl-workflow",
    "kubelet",
];
/// Where the kubelet's further flags stand, which kubeadm never writes.
pub const KUBELET_DEFAULTS: &str = "/etc/default/kubelet";
/// systemd's units.
pub const UNITS: &str = "/etc/systemd/system";

/// A file of the cluster's configuration.
pub fn etc(file: &str) -> PathBuf {
    Path::new(ETC).join(file)
}

/// The keys and certificates.
pub fn pki() -> PathBuf {
    etc("pki")
}

/// The static pods.
pub fn manifests() -> PathBuf {
    etc("manifests")
}

/// The kubelet's own client certificate and key, in one file that it renews.
pub fn kubelet_identity() -> PathBuf {
    Path::new(KUBELET).join("pki/kubelet-client-current.pem")
}

/// The embedded store.
pub fn embedded_store() -> PathBuf {
    Path::new(DATA).join("store")
}

/// The admin's kubeconfig.
pub fn admin() -> PathBuf {
    etc("admin.conf")
}
