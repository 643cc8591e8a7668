//! What every node has, the first and the joined ones alike: the program, the kubelet's identity, and the services.

use crate::cluster::{Cluster, joined};
use crate::host::Host;
use crate::layout;
use crate::links::{self, Name};
use crate::supervisor::Service;
use anyhow::{Context, Result};
use pki::file::Mode;
use serde_json::json;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// What a node is told.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The address that others reach it at, and its address of the other family, if it has one.
    pub addresses: Vec<IpAddr>,
    /// containerd's socket.
    pub containerd_socket: PathBuf,
    /// Labels that it registers with.
    pub labels: Vec<String>,
    /// Taints that it registers with.
    pub taints: Vec<String>,
}

/// Installs the one program, and links people's programs to it where the machine has none of that name.
pub fn install_program(host: &Host, program: &Path) -> Result<String> {
    let installed = Path::new(layout::PROGRAM);
    let is_same = || std::fs::canonicalize(program).ok() == std::fs::canonicalize(installed).ok();
    if !is_same() && !host.would(&format!("install {}", installed.display())) {
        let folder = installed.parent().expect("it stands in a folder");
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        // Beside and renamed: the old one may be running.
        let beside = installed.with_extension("new");
        std::fs::copy(program, &beside).with_context(|| format!("copy {}", program.display()))?;
        std::fs::rename(&beside, installed).context("put the program in its place")?;
    }
    let names = links::names(program);
    let mut linked = Vec::new();
    for (name, _) in names.iter().filter(|(_, at)| *at == Name::Free) {
        let link = Path::new(layout::BIN).join(name);
        if !host.would(&format!("link {}", link.display())) {
            symlink(installed, &link).with_context(|| format!("link {}", link.display()))?;
            linked.push(*name);
        }
    }
    let linked = match linked.as_slice() {
        [] => String::new(),
        linked => format!(", linked {} in {}", linked.join(", "), layout::BIN),
    };
    Ok(format!("installed {}{linked}{}", layout::PROGRAM, links::told(&names)))
}

/// Takes away what [`install_program`] made.
pub fn remove_program(host: &Host) -> Result<()> {
    for name in layout::LINKS {
        let link = Path::new(layout::BIN).join(name);
        if std::fs::read_link(&link).is_ok_and(|target| target == Path::new(layout::PROGRAM)) {
            host.remove(&link)?;
        }
    }
    host.remove(Path::new(layout::PROGRAM).parent().expect("it stands in a folder"))?;
    Ok(())
}

/// The kubelet's identity that stands here already, if it is this node's in this cluster.
pub fn own_identity(name: &str, authority: &pki::Authority) -> Option<pki::Identity> {
    let text = pki::file::read(&layout::kubelet_identity()).ok()??;
    let (certificate, key) = text.split_once("-----BEGIN PRIVATE KEY")?;
    let identity =
        pki::Identity { certificate: certificate.to_owned(), key: format!("-----BEGIN PRIVATE KEY{key}") };
    let facts = pki::Facts::from_pem(&identity.certificate).ok()?;
    let is_ours = facts.common_name == format!("system:node:{name}")
        && authority.issued(&identity.certificate, &identity.key);
    is_ours.then_some(identity)
}

/// Writes the kubelet's identity and its kubeconfig, which refers to it, since the kubelet renews it.
pub fn write_identity(
    host: &Host,
    cluster: &Cluster,
    ca_pem: &str,
    node: &Node,
    identity: &pki::Identity,
) -> Result<()> {
    let file = layout::kubelet_identity();
    host.write(&file, &format!("{}{}", identity.certificate, identity.key), Mode::Secret)?;
    host.write(&layout::pki().join("ca.crt"), ca_pem, Mode::Public)?;
    let user = format!("system:node:{}", node.name);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kubernetes", "cluster": {
            "server": cluster.url(), "certificate-authority": layout::pki().join("ca.crt"),
        }}],
        "users": [{"name": user, "user": {"client-certificate": file, "client-key": file}}],
        "contexts": [{"name": "node", "context": {"cluster": "kubernetes", "user": user}}],
        "current-context": "node",
    });
    host.write(&layout::etc("kubelet.conf"), &serde_saphyr::to_string(&config)?, Mode::Secret)?;
    Ok(())
}

/// What whoever runs this machine adds to the kubelet's flags: `KUBELET_EXTRA_ARGS="--max-pods=50"`, as upstream has it.
fn extra_arguments(defaults: &str) -> impl Iterator<Item = String> {
    let line =
        defaults.lines().filter_map(|line| line.trim().strip_prefix("KUBELET_EXTRA_ARGS=")).next_back();
    let words = line.unwrap_or_default().trim().trim_matches(['"', '\'']).split_whitespace();
    words.map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// The services of a node.
pub fn services(cluster: &Cluster, node: &Node) -> Result<Vec<Service>> {
    let config = layout::etc("kubelet.conf");
    let mut kubelet = vec![
        layout::PROGRAM.to_owned(),
        "kubelet".to_owned(),
        format!("--kubeconfig={}", config.display()),
        format!("--pod-manifest-path={}", layout::manifests().display()),
        format!("--hostname-override={}", node.name),
        format!("--container-runtime-endpoint=unix://{}", node.containerd_socket.display()),
        format!("--cluster-dns={}", cluster.dns_address()?),
        format!("--cluster-domain={}", cluster.dns_domain),
        format!("--client-ca-file={}", layout::pki().join("ca.crt").display()),
        "--rotate-certificates".to_owned(),
    ];
    let own = node.addresses.iter().enumerate();
    let own = own.filter(|(index, address)| *index == 0 || cluster.has_family_of(**address));
    let own: Vec<String> = own.map(|(_, address)| address.to_string()).collect();
    if !own.is_empty() {
        kubelet.push(format!("--node-ip={}", own.join(",")));
    }
    if !node.labels.is_empty() {
        kubelet.push(format!("--node-labels={}", node.labels.join(",")));
    }
    if !node.taints.is_empty() {
        kubelet.push(format!("--register-with-taints={}", node.taints.join(",")));
    }
    kubelet.extend(cluster.redis.iter().cloned());
    let own = std::fs::read_to_string(layout::KUBELET_DEFAULTS).unwrap_or_default();
    kubelet.extend(extra_arguments(&own));
    // kube-proxy reads what every node may read, as the node that it runs on.
    let mut kubeproxy = vec![
        layout::PROGRAM.to_owned(),
        "kubeproxy".to_owned(),
        format!("--kubeconfig={}", config.display()),
        format!("--hostname-override={}", node.name),
        format!("--cluster-cidr={}", joined(&cluster.pod_cidrs)),
        format!("--service-cluster-ip-range={}", joined(&cluster.service_cidrs)),
        format!("--cluster-domain={}", cluster.dns_domain),
    ];
    kubeproxy.extend(cluster.redis.iter().cloned());
    Ok(vec![
        Service { name: "kubelet".to_owned(), command: kubelet },
        Service { name: "kubeproxy".to_owned(), command: kubeproxy },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_flags_of_its_own() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(extra_arguments(text).collect::<Vec<_>>(), expected, "{text}");
        };
        check("", &[]);
        check("# KUBELET_EXTRA_ARGS=--v=1\nOTHER=x\n", &[]);
        check("KUBELET_EXTRA_ARGS=\"--max-pods=50 --v=2\"\n", &["--max-pods=50", "--v=2"]);
        check("KUBELET_EXTRA_ARGS=--a\nKUBELET_EXTRA_ARGS='--b'\n", &["--b"]);
    }
}
