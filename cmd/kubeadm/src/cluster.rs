//! What a cluster is told when it is made, and what its nodes must know of it.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};

/// The Kubernetes release whose API is spoken.
pub const KUBERNETES_VERSION: &str = "v1.35.0";

/// What every part of a cluster must agree on; kept in the ConfigMap `kubeadm-config`, in upstream's form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Where the API is reached: `host:port`.
    pub endpoint: String,
    /// Where pods' addresses come from.
    pub pod_cidr: String,
    /// Where services' addresses come from.
    pub service_cidr: String,
    /// The domain of services' names.
    pub dns_domain: String,
}

impl Cluster {
    /// The URL of the API.
    pub fn url(&self) -> String {
        format!("https://{}", self.endpoint)
    }

    /// The address of the cluster's DNS: the tenth of the service range.
    pub fn dns_address(&self) -> Result<IpAddr> {
        let (base, _) = self.service_cidr.split_once('/').context("the service range has no length")?;
        match base.parse().with_context(|| format!("{base:?} is not an address"))? {
            IpAddr::V4(base) => Ok(Ipv4Addr::from_bits(base.to_bits() + 10).into()),
            IpAddr::V6(base) => Ok(std::net::Ipv6Addr::from_bits(base.to_bits() + 10).into()),
        }
    }

    /// As upstream's ClusterConfiguration.
    pub fn to_yaml(&self) -> Result<String> {
        let configuration = json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "clusterName": "kubernetes",
            "kubernetesVersion": KUBERNETES_VERSION,
            "controlPlaneEndpoint": self.endpoint,
            "networking": {
                "dnsDomain": self.dns_domain, "podSubnet": self.pod_cidr, "serviceSubnet": self.service_cidr,
            },
        });
        Ok(serde_saphyr::to_string(&configuration)?)
    }

    /// From upstream's ClusterConfiguration.
    pub fn from_yaml(text: &str) -> Result<Cluster> {
        let value: Value = serde_saphyr::from_str(text).context("the cluster's configuration is not YAML")?;
        if value["kind"] != "ClusterConfiguration" {
            bail!("kind: expected ClusterConfiguration, found {}", value["kind"]);
        }
        let text = |path: &[&str]| {
            let found = path.iter().fold(&value, |value, key| &value[*key]);
            found.as_str().map(str::to_owned).with_context(|| format!("{} is missing", path.join(".")))
        };
        Ok(Cluster {
            endpoint: text(&["controlPlaneEndpoint"])?,
            pod_cidr: text(&["networking", "podSubnet"])?,
            service_cidr: text(&["networking", "serviceSubnet"])?,
            dns_domain: text(&["networking", "dnsDomain"])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_in_the_cluster_is_read_again() {
        let cluster = Cluster {
            endpoint: "192.0.2.1:6443".into(),
            pod_cidr: "10.244.0.0/16".into(),
            service_cidr: "222.222.0.0/16".into(),
            dns_domain: "cluster.local".into(),
        };
        let text = cluster.to_yaml().expect("YAML");
        assert_eq!(Cluster::from_yaml(&text).expect("readable"), cluster);
        assert_eq!(cluster.dns_address().expect("an address").to_string(), "222.222.0.10");
    }

    #[test]
    fn what_is_missing_is_named() {
        let error =
            Cluster::from_yaml("kind: ClusterConfiguration\ncontrolPlaneEndpoint: a:1\n").unwrap_err();
        assert_eq!(error.to_string(), "networking.podSubnet is missing");
        let error = Cluster::from_yaml("kind: Pod").unwrap_err();
        assert_eq!(error.to_string(), "kind: expected ClusterConfiguration, found \"Pod\"");
    }
}
