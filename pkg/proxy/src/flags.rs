//! What kubeproxy can be told.

use clap::Parser;
use client::duration;
use ipnet::IpNet;
use network::Tracking;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Makes services, names and other nodes' pods reachable from this node.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kubeproxy",
    version,
    after_help = "Example:\n  kubeproxy --kubeconfig /etc/kubernetes/kube-proxy.conf --service-cluster-ip-range 10.96.0.0/12"
)]
pub struct Flags {
    /// How to reach the apiserver; inside a pod it may be left out
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) redis: client::RedisFlags,
    /// This node's name, if it is not the host's
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,
    /// The addresses of all pods; if left out, those of this node's pods, as its Node object says
    #[arg(long, value_name = "CIDR[,CIDR]", value_delimiter = ',')]
    pub cluster_cidr: Vec<IpNet>,
    /// The addresses of all services: those that no service has are refused
    #[arg(long, value_name = "CIDR[,CIDR]", value_delimiter = ',')]
    pub service_cluster_ip_range: Vec<IpNet>,
    /// The address of the cluster's name server; if left out, the tenth of the services' addresses
    #[arg(long, value_name = "IP")]
    pub cluster_dns: Option<IpAddr>,
    /// The domain of the cluster's names
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub cluster_domain: String,
    /// Name servers for names outside the cluster; if left out, those of /etc/resolv.conf
    #[arg(long, value_name = "IP[,IP]", value_delimiter = ',')]
    pub upstream_dns: Vec<IpAddr>,
    /// Remove every rule, route and process of ours from this node, and end
    #[arg(long)]
    pub cleanup: bool,
    /// Where /healthz answers
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:10256")]
    pub healthz_bind_address: SocketAddr,
    /// Where /metrics answers
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:10249")]
    pub metrics_bind_address: SocketAddr,
    /// How often the rules are looked at, in case somebody else removed them
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = period)]
    pub iptables_sync_period: Duration,
    /// Addresses of this node at which node ports answer; all if left out
    #[arg(long, value_name = "CIDR[,CIDR]", value_delimiter = ',')]
    pub nodeport_addresses: Vec<IpNet>,
    /// Whether node ports also answer at 127.0.0.1
    #[arg(long, value_name = "BOOL", default_value = "true", action = clap::ArgAction::Set)]
    pub iptables_localhost_nodeports: bool,
    /// Connections that the kernel tracks at least, for each processor; 0 leaves its limit alone
    #[arg(long, value_name = "NUMBER", default_value = "32768")]
    pub conntrack_max_per_core: u64,
    /// Connections that the kernel tracks at least, however few processors there are
    #[arg(long, value_name = "NUMBER", default_value = "131072")]
    pub conntrack_min: u64,
    /// How long the kernel remembers a TCP connection on which nothing is said; 0s leaves that alone
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    pub conntrack_tcp_timeout_established: Duration,
    /// How long the kernel remembers a TCP connection that one side has closed; 0s leaves that alone
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub conntrack_tcp_timeout_close_wait: Duration,
    /// The program for rules: iptables, iptables-nft or iptables-legacy
    #[arg(long, value_name = "PROGRAM", default_value = "iptables")]
    pub iptables: String,
    /// Whether to connect this node's pods to other nodes' by an overlay; a CNI configuration does that by itself
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set)]
    pub overlay: Option<bool>,
    /// Ports of nginx for DNS objects and ingresses, plain and with TLS; 0,0 for none
    #[arg(long, value_name = "HTTP,HTTPS", default_value = "80,443", value_delimiter = ',', num_args = 1)]
    pub gateway_ports: Vec<u16>,
    /// Where the last known objects and nginx's files are kept
    #[arg(long, value_name = "DIR", default_value = "/var/lib/minik8s/proxy")]
    pub state_dir: PathBuf,
    /// The file in which hosts of DNS objects and ingresses lead to this node
    #[arg(long, value_name = "FILE", default_value = "/etc/hosts")]
    pub hosts_file: PathBuf,
}

/// Why the flags make no sense.
#[derive(Debug, thiserror::Error)]
pub enum FlagsError {
    /// There is no name for this node.
    #[error("this host has no name: pass --hostname-override")]
    NoName,
    /// Not two ports.
    #[error("--gateway-ports needs two numbers, such as 80,443")]
    Ports,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// How to reach the apiserver.
    pub kubeconfig: Option<PathBuf>,
    /// Where changes are heard of, beside the apiserver.
    pub redis: Option<client::RedisConfig>,
    /// This node.
    pub node: String,
    /// All pods.
    pub cluster_cidrs: Vec<IpNet>,
    /// All services.
    pub service_ranges: Vec<IpNet>,
    /// The address of the name server; none: no name server.
    pub cluster_dns: Option<IpAddr>,
    /// The port of the name server.
    pub dns_port: u16,
    /// The domain of the cluster's names.
    pub cluster_domain: String,
    /// Name servers for other names; if none, those of /etc/resolv.conf.
    pub upstream_dns: Vec<IpAddr>,
    /// How often the rules are looked at.
    pub sync_period: Duration,
    /// Where node ports answer.
    pub node_port_addresses: Vec<IpNet>,
    /// Whether at 127.0.0.1 too.
    pub localhost_node_ports: bool,
    /// How the kernel tracks connections.
    pub tracking: Tracking,
    /// The program for rules.
    pub iptables: String,
    /// Whether to look after the overlay.
    pub overlay: bool,
    /// nginx's ports; none: no nginx.
    pub gateway_ports: Option<(u16, u16)>,
    /// Where the last known objects and nginx's files are.
    pub state_dir: PathBuf,
    /// The host's file of names; none: it is left alone.
    pub hosts_file: Option<PathBuf>,
}

impl Flags {
    /// What they mean.
    pub fn config(self) -> Result<Config, FlagsError> {
        let hostname = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let node = self.hostname_override.or_else(hostname).map(|name| name.trim().to_ascii_lowercase());
        let node = node.filter(|name| !name.is_empty()).ok_or(FlagsError::NoName)?;
        let &[http, https] = self.gateway_ports.as_slice() else { return Err(FlagsError::Ports) };
        let overlay = self.overlay.unwrap_or_else(|| !has_cni("/etc/cni/net.d"));
        let tenth = self.service_cluster_ip_range.first().and_then(|range| range.hosts().nth(9));
        Ok(Config {
            kubeconfig: self.kubeconfig,
            redis: self.redis.config(),
            node,
            cluster_cidrs: self.cluster_cidr,
            cluster_dns: self.cluster_dns.or(tenth),
            dns_port: 53,
            service_ranges: self.service_cluster_ip_range.iter().map(IpNet::trunc).collect(),
            cluster_domain: self.cluster_domain,
            upstream_dns: self.upstream_dns,
            sync_period: self.iptables_sync_period,
            node_port_addresses: self.nodeport_addresses,
            localhost_node_ports: self.iptables_localhost_nodeports,
            tracking: Tracking {
                most_per_core: self.conntrack_max_per_core,
                most_at_least: self.conntrack_min,
                established: self.conntrack_tcp_timeout_established,
                close_wait: self.conntrack_tcp_timeout_close_wait,
            },
            iptables: self.iptables,
            overlay,
            gateway_ports: (http != 0).then_some((http, https)),
            state_dir: self.state_dir,
            hosts_file: Some(self.hosts_file),
        })
    }
}

fn has_cni(dir: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    let known = ["conf", "conflist", "json"];
    entries
        .flatten()
        .any(|entry| entry.path().extension().is_some_and(|found| known.iter().any(|known| found == *known)))
}

/// A duration that is no less than a second.
fn period(text: &str) -> Result<Duration, String> {
    let period = duration(text)?;
    if period < Duration::from_secs(1) { Err("it must be a second or more".to_owned()) } else { Ok(period) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_server_is_the_tenth_address() {
        let config = |arguments: &[&str]| {
            let arguments = ["kubeproxy", "--hostname-override", "N1"].iter().chain(arguments);
            Flags::try_parse_from(arguments).unwrap().config().unwrap()
        };
        let range =
            config(&["--service-cluster-ip-range", "222.222.0.0/16", "--iptables-sync-period", "10s"]);
        assert_eq!(range.cluster_dns, Some("222.222.0.10".parse().unwrap()));
        assert_eq!((range.node.as_str(), range.sync_period), ("n1", Duration::from_secs(10)));
        assert_eq!(config(&["--gateway-ports", "0,0"]).gateway_ports, None);
        assert_eq!(config(&[]).cluster_dns, None);
    }
}
