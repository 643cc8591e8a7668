//! The few rules that pods need from the packet filter, each in a chain of ours, edited one at a time.
//!
//! ```text
//! nat     POSTROUTING ──> MINIK8S-MASQ        pods to the outside: with the node's address
//! nat     PREROUTING, OUTPUT ──> MINIK8S-HOSTPORT    a port of the node ──> a port of a pod
//! filter  FORWARD ──> MINIK8S-FORWARD         pods may talk, also where the policy is DROP
//! ```
//!
//! Rules of others are never read, changed or removed. What services need is pkg/proxy's.

use crate::iptables::{Iptables, Rule};
use crate::{Config, HostPort, PodId, Result};
use ipnet::IpNet;
use std::net::IpAddr;

const MASQ: &str = "MINIK8S-MASQ";
const HOSTPORT: &str = "MINIK8S-HOSTPORT";
const HAIRPIN: &str = "MINIK8S-HAIRPIN";
const FORWARD: &str = "MINIK8S-FORWARD";

/// Our chains, with their tables.
const CHAINS: [(&str, &str); 4] = [("nat", MASQ), ("nat", HOSTPORT), ("nat", HAIRPIN), ("filter", FORWARD)];

/// What pods need of the packet filter, for one family of addresses.
pub struct Firewall(Iptables);

/// The one for the family of an address.
pub fn for_family(config: &Config, ipv6: bool) -> Firewall {
    Firewall(Iptables::new(if ipv6 { &config.ip6tables } else { &config.iptables }))
}

impl Firewall {
    /// Chains and rules that all pods of a range share.
    pub async fn prepare(&self, bridge: &str, overlay: &str, range: IpNet) -> Result<()> {
        for (table, chain) in CHAINS {
            self.0.add_chain(table, chain).await?;
        }
        for rule in of_range(bridge, overlay, range) {
            self.0.append(&rule).await?;
        }
        Ok(())
    }

    /// Whether all that pods of a range share is there: somebody may have started a firewall anew.
    pub async fn is_prepared(&self, bridge: &str, overlay: &str, range: IpNet) -> Result<bool> {
        Ok(self.0.has_all(&of_range(bridge, overlay, range)).await?)
    }

    /// Leads the host ports to the pod.
    pub async fn open_ports(&self, pod: &PodId, address: IpAddr, ports: &[HostPort]) -> Result<()> {
        for rule in port_rules(pod, address, ports) {
            self.0.append(&rule).await?;
        }
        Ok(())
    }

    /// The reverse.
    pub async fn close_ports(&self, pod: &PodId, address: IpAddr, ports: &[HostPort]) -> Result<()> {
        for rule in port_rules(pod, address, ports) {
            self.0.delete(&rule).await?;
        }
        Ok(())
    }

    /// Removes every trace, so far as there is any.
    pub async fn cleanup(&self) -> Result<()> {
        for ipv6 in [false, true] {
            for rule in jumps(ipv6) {
                self.0.delete(&rule).await?;
            }
        }
        for (table, chain) in CHAINS {
            self.0.remove_chain(table, chain).await?;
        }
        Ok(())
    }
}

/// What pods of a range share: what leads to our chains, and what they say of it.
fn of_range(bridge: &str, overlay: &str, range: IpNet) -> Vec<Rule> {
    [shared_rules(bridge, overlay, range), jumps(range.addr().is_ipv6())].concat()
}

fn jumps(ipv6: bool) -> Vec<Rule> {
    let local = format!("-m addrtype --dst-type LOCAL -j {HOSTPORT}");
    // Connections to ::1 cannot be led elsewhere.
    let output = match ipv6 {
        true => format!("! -d ::1/128 {local}"),
        false => local.clone(),
    };
    vec![
        Rule::new("nat", "POSTROUTING", format!("-j {HAIRPIN}")),
        Rule::new("nat", "POSTROUTING", format!("-j {MASQ}")),
        Rule::new("nat", "PREROUTING", local),
        Rule::new("nat", "OUTPUT", output),
        Rule::new("filter", "FORWARD", format!("-j {FORWARD}")),
    ]
}

/// Packets of pods keep their address on the bridge and on the overlay; everywhere else they get the node's.
fn shared_rules(bridge: &str, overlay: &str, range: IpNet) -> Vec<Rule> {
    let (multicast, loopback) = match range.addr().is_ipv6() {
        true => ("ff00::/8", "::1/128"),
        false => ("224.0.0.0/4", "127.0.0.0/8"),
    };
    vec![
        Rule::new("nat", MASQ, format!("-s {range} -o {bridge} -j RETURN")),
        Rule::new("nat", MASQ, format!("-s {range} -o {overlay} -j RETURN")),
        Rule::new("nat", MASQ, format!("-s {range} -d {multicast} -j RETURN")),
        Rule::new("nat", MASQ, format!("-s {range} -j MASQUERADE")),
        // A host port reached through localhost.
        Rule::new("nat", MASQ, format!("-s {loopback} -o {bridge} -j MASQUERADE")),
        Rule::new("filter", FORWARD, format!("-s {range} -j ACCEPT")),
        Rule::new("filter", FORWARD, format!("-d {range} -j ACCEPT")),
    ]
}

fn port_rules(pod: &PodId, address: IpAddr, ports: &[HostPort]) -> Vec<Rule> {
    let mut rules = Vec::new();
    for port in ports {
        if port.host_ip.is_some_and(|ip| ip.is_ipv6() != address.is_ipv6() && !ip.is_unspecified()) {
            continue;
        }
        let to = std::net::SocketAddr::new(address, port.container_port);
        let mut rest = format!("-p {}", port.protocol.lower());
        if let Some(ip) = port.host_ip.filter(|ip| !ip.is_unspecified()) {
            rest += &format!(" -d {ip}");
        }
        rest += &format!(" -m {0} --dport {1}", port.protocol.lower(), port.host_port);
        rest += &format!(" -m comment --comment {}", pod.uid);
        rest += &format!(" -j DNAT --to-destination {to}");
        rules.push(Rule::new("nat", HOSTPORT, rest));
    }
    if !rules.is_empty() {
        // The pod that asks for its own host port must not see its own address as the one who asks.
        let comment = format!("-m comment --comment {}", pod.uid);
        rules.push(Rule::new("nat", HAIRPIN, format!("-s {address} -d {address} {comment} -j MASQUERADE")));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    #[test]
    fn host_ports_of_another_family_or_address() {
        let pod = PodId { namespace: "default".into(), name: "web".into(), uid: "u1".into() };
        let port = |host_ip: Option<&str>| HostPort {
            protocol: Protocol::Udp,
            host_ip: host_ip.map(|ip| ip.parse().unwrap()),
            host_port: 5353,
            container_port: 53,
        };
        let lines = |address: &str, port: HostPort| -> Vec<String> {
            let rules = port_rules(&pod, address.parse().unwrap(), &[port]);
            rules.iter().map(|rule| format!("{} {}", rule.chain, rule.rest)).collect()
        };
        let hairpin =
            "MINIK8S-HAIRPIN -s 10.0.0.5 -d 10.0.0.5 -m comment --comment u1 -j MASQUERADE".to_owned();
        let dnat = |from: &str| {
            format!(
                "MINIK8S-HOSTPORT -p udp{from} -m udp --dport 5353 -m comment --comment u1 -j DNAT --to-destination 10.0.0.5:53"
            )
        };
        assert_eq!(lines("10.0.0.5", port(None)), [dnat(""), hairpin.clone()]);
        assert_eq!(lines("10.0.0.5", port(Some("0.0.0.0"))), [dnat(""), hairpin.clone()]);
        assert_eq!(lines("10.0.0.5", port(Some("10.1.1.1"))), [dnat(" -d 10.1.1.1"), hairpin]);
        assert_eq!(lines("fd00::5", port(Some("10.1.1.1"))), [""; 0]);
    }
}
