//! A control plane that has come back at another address (a backup on another machine, say): the machines of before look
//! for it where it was, and nothing but joining again tells them.

use crate::cluster::Cluster;
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

/// Where a cluster was, and who looks for it there.
#[derive(Debug, PartialEq, Eq)]
pub struct Moved {
    from: String,
    nodes: Vec<String>,
}

/// The nodes that know another address than the cluster has now. They are marked as such: otherwise they would look Ready
/// until somebody misses them.
pub async fn machines_left_behind(client: &Client, now: &Cluster, own: &str) -> Result<Option<Moved>> {
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let config = configs.get_opt("kubeadm-config").await.context("read where the cluster was")?;
    let text = config.and_then(|config| config.data?.remove("ClusterConfiguration"));
    let Some(before) = text.and_then(|text| Cluster::from_yaml(&text).ok()) else { return Ok(None) };
    if before.endpoint == now.endpoint {
        return Ok(None);
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let all = nodes.list(&ListParams::default()).await.context("list the nodes")?;
    let left: Vec<String> = all.iter().map(ResourceExt::name_any).filter(|name| name != own).collect();
    let why = format!("the control plane has moved from {} to {}: join again", before.endpoint, now.endpoint);
    for name in &left {
        kubelet::node::leave_behind(client, name, "ControlPlaneMoved", &why)
            .await
            .with_context(|| format!("mark node {name}"))?;
    }
    Ok((!left.is_empty()).then_some(Moved { from: before.endpoint, nodes: left }))
}

impl Moved {
    /// What is to be done on which machine.
    pub fn told(&self, join: &str) -> String {
        let Moved { from, nodes } = self;
        let names = nodes.join(", ");
        format!(
            "\nThe control plane has moved. These machines look for it at {from}, where it was, and must join again:\n\n  \
             {names}\n\nOn each of them, as root:\n\n  kubeadm reset --force\n  {join}\n\nOf those that are gone for good:\n\n  \
             kubectl delete node NAME\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_must_join_again_is_told_by_name_and_how() {
        let moved = Moved { from: "192.0.2.1:6443".into(), nodes: vec!["m2".into(), "m3".into()] };
        let told = moved.told("kubeadm join 192.0.2.9:6443 --token t");
        for part in
            ["192.0.2.1:6443", "m2, m3", "reset --force\n  kubeadm join 192.0.2.9:6443", "delete node"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
