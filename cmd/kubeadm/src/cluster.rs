//! What a cluster is told when it is made, and what its nodes must know of it.

use crate::redis;
use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};

/// The Kubernetes release whose API is spoken.
pub const KUBERNETES_VERSION: &str = "v1.35.0";

/// What every part of a cluster must agree on; kept in the ConfigMap `kubeadm-config`, in upstream's form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Where the API is reached: `host:port`.
    pub endpoint: String,
    /// Where pods' addresses come from: one range, or one of each family.
    pub pod_cidrs: Vec<IpNet>,
    /// Where services' addresses come from: one range, or one of each family.
    pub service_cidrs: Vec<IpNet>,
    /// The domain of services' names.
    pub dns_domain: String,
    /// What nodes are told of the cluster's Redis.
    pub redis: Vec<String>,
}

impl Cluster {
    /// The URL of the API.
    pub fn url(&self) -> String {
        format!("https://{}", self.endpoint)
    }

    /// Whether addresses can be given out of these ranges. Nodes reach each other's pods over IPv4.
    pub fn check(&self) -> Result<()> {
        for (flag, ranges) in
            [("--pod-network-cidr", &self.pod_cidrs), ("--service-cidr", &self.service_cidrs)]
        {
            match ranges.as_slice() {
                [IpNet::V4(_)] | [IpNet::V4(_), IpNet::V6(_)] => {}
                _ => bail!("{flag}: expected a range of IPv4, or one of IPv4 and one of IPv6 after a comma"),
            }
        }
        for range in &self.pod_cidrs {
            let part = if range.addr().is_ipv4() { 24 } else { 64 };
            if range.prefix_len() > part {
                bail!("--pod-network-cidr: each node takes a /{part}, and {range} has none");
            }
        }
        let services = self.service_cidrs.first().context("there is no range for services")?;
        let dns = self.dns_address()?;
        if !services.contains(&dns) {
            bail!("--service-cidr: the cluster's DNS takes the tenth address, and {services} has none");
        }
        if self.service_cidrs.len() > self.pod_cidrs.len() {
            bail!("--pod-network-cidr: services with two addresses need pods with two");
        }
        Ok(())
    }

    /// Whether pods have addresses of this one's family.
    pub fn has_family_of(&self, address: IpAddr) -> bool {
        self.pod_cidrs.iter().any(|range| range.addr().is_ipv6() == address.is_ipv6())
    }

    /// The address of the cluster's DNS: the tenth of the service range.
    pub fn dns_address(&self) -> Result<IpAddr> {
        match self.service_cidrs.first().context("there is no range for services")?.network() {
            IpAddr::V4(base) => Ok(Ipv4Addr::from_bits(base.to_bits() + 10).into()),
            IpAddr::V6(base) => Ok(std::net::Ipv6Addr::from_bits(base.to_bits() + 10).into()),
        }
    }

    /// As upstream's ClusterConfiguration.
    pub fn to_yaml(&self) -> Result<String> {
        let mut configuration = json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "clusterName": "kubernetes",
            "kubernetesVersion": KUBERNETES_VERSION,
            "controlPlaneEndpoint": self.endpoint,
            "networking": {
                "dnsDomain": self.dns_domain, "podSubnet": joined(&self.pod_cidrs),
                "serviceSubnet": joined(&self.service_cidrs),
            },
        });
        let arguments = self.redis.iter().filter_map(|argument| redis::is_for_nodes(argument));
        let arguments: Vec<Value> =
            arguments.map(|(name, value)| json!({"name": name, "value": value})).collect();
        if !arguments.is_empty() {
            configuration["apiServer"] = json!({"extraArgs": arguments});
        }
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
        let ranges = |name: &str| -> Result<Vec<IpNet>> {
            let parse = |range: &str| range.parse().with_context(|| format!("networking.{name}: {range:?}"));
            text(&["networking", name])?.split(',').map(parse).collect()
        };
        let redis = value["apiServer"]["extraArgs"].as_array().into_iter().flatten().filter_map(|argument| {
            let argument = format!("--{}={}", argument["name"].as_str()?, argument["value"].as_str()?);
            redis::is_for_nodes(&argument).is_some().then_some(argument)
        });
        let redis = redis.collect();
        Ok(Cluster {
            endpoint: text(&["controlPlaneEndpoint"])?,
            pod_cidrs: ranges("podSubnet")?,
            service_cidrs: ranges("serviceSubnet")?,
            dns_domain: text(&["networking", "dnsDomain"])?,
            redis,
        })
    }
}

/// As flags and upstream's configuration write them.
pub fn joined(ranges: &[IpNet]) -> String {
    ranges.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_in_the_cluster_is_read_again() {
        let cluster = Cluster {
            endpoint: "192.0.2.1:6443".into(),
            pod_cidrs: vec![
                "10.244.0.0/16".parse().expect("a range"),
                "fd00:10:244::/56".parse().expect("a range"),
            ],
            service_cidrs: vec!["222.222.0.0/16".parse().expect("a range")],
            dns_domain: "cluster.local".into(),
            redis: vec![
                "--redis-url=rediss://192.0.2.1:6379/minik8s".into(),
                "--redis-cafile=/ca.crt".into(),
            ],
        };
        let text = cluster.to_yaml().expect("YAML");
        assert_eq!(Cluster::from_yaml(&text).expect("readable"), cluster);
        assert_eq!(cluster.dns_address().expect("an address").to_string(), "222.222.0.10");
    }

    #[test]
    fn ranges_that_cannot_be_served_are_refused() {
        let check = |pods: &str, services: &str, expected: Option<&str>| {
            let parse = |text: &str| text.split(',').map(|range| range.parse().expect("a range")).collect();
            let cluster = Cluster {
                endpoint: "192.0.2.1:6443".into(),
                pod_cidrs: parse(pods),
                service_cidrs: parse(services),
                dns_domain: "cluster.local".into(),
                redis: Vec::new(),
            };
            let found = cluster.check().err().map(|error| error.to_string());
            match expected {
                Some(flag) => {
                    assert!(found.as_deref().is_some_and(|text| text.starts_with(flag)), "{found:?}")
                }
                None => assert_eq!(found, None),
            }
        };
        check("10.244.0.0/16", "10.96.0.0/12", None);
        check("10.244.0.0/16,fd00:10:244::/56", "10.96.0.0/12", None);
        check("10.244.0.0/16,fd00:10:244::/56", "10.96.0.0/12,fd00:10:96::/112", None);
        check("10.244.0.0/16", "10.96.0.0/12,fd00:10:96::/112", Some("--pod-network-cidr: services with"));
        check("fd00:10:244::/56", "fd00:10:96::/112", Some("--pod-network-cidr: expected"));
        check("10.244.0.0/16,10.245.0.0/16", "10.96.0.0/12", Some("--pod-network-cidr: expected"));
        check("10.244.0.0/16", "fd00:10:96::/112", Some("--service-cidr: expected"));
        check("10.244.0.0/16", "10.96.0.0/28", None);
        check("10.244.0.0/16", "10.96.0.0/29", Some("--service-cidr: the cluster's DNS takes the tenth"));
        check("10.244.0.0/25", "10.96.0.0/12", Some("--pod-network-cidr: each node takes a /24"));
        check("10.244.0.0/16,fd00::/112", "10.96.0.0/12", Some("--pod-network-cidr: each node takes a /64"));
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
