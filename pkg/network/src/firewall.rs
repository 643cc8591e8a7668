//! The few rules that pods need from the packet filter, each in a chain of ours, edited one at a time.
//!
//! ```text
//! nat     POSTROUTING ──> MINIK8S-MASQ        pods to the outside: with the node's address
//! nat     PREROUTING, OUTPUT ──> MINIK8S-HOSTPORT    a port of the node ──> a port of a pod
//! filter  FORWARD ──> MINIK8S-FORWARD         pods may talk, also where the policy is DROP
//! ```
//!
//! Rules of others are never read, changed or removed. What services need is pkg/proxy's.

use crate::{Config, Error, HostPort, PodId, Result};
use ipnet::IpNet;
use std::net::IpAddr;
use std::process::{Output, Stdio};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const MASQ: &str = "MINIK8S-MASQ";
const HOSTPORT: &str = "MINIK8S-HOSTPORT";
const HAIRPIN: &str = "MINIK8S-HAIRPIN";
const FORWARD: &str = "MINIK8S-FORWARD";

/// A rule: table, chain, and the rest of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    table: &'static str,
    chain: &'static str,
    rest: Vec<String>,
}

impl Rule {
    fn new(table: &'static str, chain: &'static str, rest: &str) -> Rule {
        Rule { table, chain, rest: rest.split(' ').map(str::to_owned).collect() }
    }
}

/// The program for one family of addresses.
pub struct Iptables<'a> {
    program: &'a str,
}

/// The program for the family of an address.
pub fn for_family(config: &Config, ipv6: bool) -> Iptables<'_> {
    Iptables { program: if ipv6 { &config.ip6tables } else { &config.iptables } }
}

impl Iptables<'_> {
    /// Chains and rules that all pods of a range share.
    pub async fn prepare(&self, bridge: &str, overlay: &str, range: IpNet) -> Result<()> {
        for (table, chain) in [("nat", MASQ), ("nat", HOSTPORT), ("nat", HAIRPIN), ("filter", FORWARD)] {
            self.add_chain(table, chain).await?;
        }
        for rule in shared_rules(bridge, overlay, range) {
            self.add(&rule).await?;
        }
        for rule in jumps(range.addr().is_ipv6()) {
            self.add(&rule).await?;
        }
        Ok(())
    }

    /// Whether all that pods of a range share is there: somebody may have started a firewall anew.
    pub async fn is_prepared(&self, bridge: &str, overlay: &str, range: IpNet) -> Result<bool> {
        let rules = [shared_rules(bridge, overlay, range), jumps(range.addr().is_ipv6())].concat();
        let mut text = String::new();
        for table in ["nat", "filter"] {
            let checks = rules.iter().filter(|rule| rule.table == table);
            let checks: String = checks.map(|rule| arguments("-C", rule).join(" ") + "\n").collect();
            text += &format!("*{table}\n{checks}COMMIT\n");
        }
        // One process for all of them, since it is asked again and again.
        let program = format!("{}-restore", self.program);
        let what = format!("run {program}: is the package iptables installed?");
        Ok(restore(&program, &text).await.map_err(Error::io(what))?.status.success())
    }

    /// Leads the host ports to the pod.
    pub async fn open_ports(&self, pod: &PodId, address: IpAddr, ports: &[HostPort]) -> Result<()> {
        for rule in port_rules(pod, address, ports) {
            self.add(&rule).await?;
        }
        Ok(())
    }

    /// The reverse.
    pub async fn close_ports(&self, pod: &PodId, address: IpAddr, ports: &[HostPort]) -> Result<()> {
        for rule in port_rules(pod, address, ports) {
            self.delete(&rule).await?;
        }
        Ok(())
    }

    /// Removes every trace, so far as there is any.
    pub async fn cleanup(&self) -> Result<()> {
        for ipv6 in [false, true] {
            for rule in jumps(ipv6) {
                self.delete(&rule).await?;
            }
        }
        for (table, chain) in [("nat", MASQ), ("nat", HOSTPORT), ("nat", HAIRPIN), ("filter", FORWARD)] {
            if self.succeeds(table, &["-n", "-L", chain]).await? {
                self.run(table, &["-F", chain]).await?;
                self.run(table, &["-X", chain]).await?;
            }
        }
        Ok(())
    }

    async fn add_chain(&self, table: &str, chain: &str) -> Result<()> {
        if self.succeeds(table, &["-n", "-L", chain]).await? {
            return Ok(());
        }
        match self.run(table, &["-N", chain]).await {
            // Somebody was faster, most likely ourselves.
            Err(Error::Firewall { message, .. }) if message.contains("exists") => Ok(()),
            other => other,
        }
    }

    async fn add(&self, rule: &Rule) -> Result<()> {
        if self.check(rule).await? {
            return Ok(());
        }
        self.run(rule.table, &arguments("-A", rule)).await
    }

    async fn delete(&self, rule: &Rule) -> Result<()> {
        // A crash between looking and adding may have left it twice.
        while self.check(rule).await? {
            self.run(rule.table, &arguments("-D", rule)).await?;
        }
        Ok(())
    }

    async fn check(&self, rule: &Rule) -> Result<bool> {
        self.succeeds(rule.table, &arguments("-C", rule)).await
    }

    async fn succeeds(&self, table: &str, arguments: &[&str]) -> Result<bool> {
        Ok(self.output(table, arguments).await?.status.success())
    }

    async fn run(&self, table: &str, arguments: &[&str]) -> Result<()> {
        let output = self.output(table, arguments).await?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Firewall {
            command: format!("{} -t {table} {}", self.program, arguments.join(" ")),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    async fn output(&self, table: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(self.program);
        // Others edit rules too; the lock is held for milliseconds.
        command.args(["-w", "30", "-t", table]).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let what = format!("run {}: is the package iptables installed?", self.program);
        command.output().await.map_err(Error::io(what))
    }
}

/// Gives a text of tables, chains and rules to one of the programs for it, `iptables-restore` and the like. It happens as a
/// whole or not at all, and touches nothing that it does not name.
pub async fn restore(program: &str, text: &str) -> std::io::Result<Output> {
    let mut command = Command::new(program);
    command.args(["--wait", "30", "--noflush", "--counters"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut running = command.spawn()?;
    let mut stdin = running.stdin.take().expect("piped above");
    // It may complain before it has read everything, so both go on at once.
    let write = async {
        let _ = stdin.write_all(text.as_bytes()).await;
        drop(stdin);
    };
    let ((), output) = tokio::join!(write, running.wait_with_output());
    output
}

fn arguments<'a>(verb: &'a str, rule: &'a Rule) -> Vec<&'a str> {
    [verb, rule.chain].into_iter().chain(rule.rest.iter().map(String::as_str)).collect()
}

fn jumps(ipv6: bool) -> Vec<Rule> {
    let local = format!("-m addrtype --dst-type LOCAL -j {HOSTPORT}");
    // Connections to ::1 cannot be led elsewhere.
    let output = match ipv6 {
        true => format!("! -d ::1/128 {local}"),
        false => local.clone(),
    };
    vec![
        Rule::new("nat", "POSTROUTING", &format!("-j {HAIRPIN}")),
        Rule::new("nat", "POSTROUTING", &format!("-j {MASQ}")),
        Rule::new("nat", "PREROUTING", &local),
        Rule::new("nat", "OUTPUT", &output),
        Rule::new("filter", "FORWARD", &format!("-j {FORWARD}")),
    ]
}

/// Packets of pods keep their address on the bridge and on the overlay; everywhere else they get the node's.
fn shared_rules(bridge: &str, overlay: &str, range: IpNet) -> Vec<Rule> {
    let (multicast, loopback) = match range.addr().is_ipv6() {
        true => ("ff00::/8", "::1/128"),
        false => ("224.0.0.0/4", "127.0.0.0/8"),
    };
    vec![
        Rule::new("nat", MASQ, &format!("-s {range} -o {bridge} -j RETURN")),
        Rule::new("nat", MASQ, &format!("-s {range} -o {overlay} -j RETURN")),
        Rule::new("nat", MASQ, &format!("-s {range} -d {multicast} -j RETURN")),
        Rule::new("nat", MASQ, &format!("-s {range} -j MASQUERADE")),
        // A host port reached through localhost.
        Rule::new("nat", MASQ, &format!("-s {loopback} -o {bridge} -j MASQUERADE")),
        Rule::new("filter", FORWARD, &format!("-s {range} -j ACCEPT")),
        Rule::new("filter", FORWARD, &format!("-d {range} -j ACCEPT")),
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
        rules.push(Rule::new("nat", HOSTPORT, &rest));
    }
    if !rules.is_empty() {
        // The pod that asks for its own host port must not see its own address as the one who asks.
        let comment = format!("-m comment --comment {}", pod.uid);
        rules.push(Rule::new("nat", HAIRPIN, &format!("-s {address} -d {address} {comment} -j MASQUERADE")));
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
            rules.iter().map(|rule| format!("{} {}", rule.chain, rule.rest.join(" "))).collect()
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
