//! Services as packet filter rules: text, made without looking at the machine.
//!
//! ```text
//! nat  PREROUTING, OUTPUT ─> KUBE-SERVICES ─> KUBE-SVC-… ─nth─> KUBE-SEP-… ─> DNAT
//!                                 ├─ (external, load balancer) ─> KUBE-EXT-… ─> KUBE-SVC-… or KUBE-SVL-…
//!                                 └─ (addresses of the node) ──> KUBE-NODEPORTS ─> KUBE-EXT-…
//!      POSTROUTING ─> KUBE-POSTROUTING    what KUBE-HOST-MARK marked gets an address that answers come back to
//! filter  INPUT, FORWARD, OUTPUT ─> KUBE-SERVICES, KUBE-EXTERNAL-SERVICES    who has no endpoint is refused
//! ```
//!
//! [`port`] renders one port of one service, [`render`] all of them and what they share. Nothing here is applied.

mod names;
mod port;
#[cfg(test)]
mod walk;

pub use names::{PREFIXES, is_service_chain};
pub use port::{Rendered, Shared, SharedRule, port};

use crate::services::ServicePort;
use ipnet::IpNet;
use network::iptables::Rule;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The mark of packets that get another source address.
pub const MARK: &str = "0x6000/0x6000";
/// Marks them.
pub const HOST_MARK: &str = "KUBE-HOST-MARK";
/// All services.
pub const SERVICES: &str = "KUBE-SERVICES";
/// Services that are reached through a port of the node.
pub const NODE_PORTS: &str = "KUBE-NODEPORTS";
/// Gives marked packets another source address.
pub const POSTROUTING: &str = "KUBE-POSTROUTING";
/// Refuses what comes from outside for a service that has nobody.
pub const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
/// Lets translated packets pass.
pub const FORWARD: &str = "KUBE-FORWARD";
/// Keeps others away from 127.0.0.0/8, which host ports open.
pub const FIREWALL: &str = "KUBE-FIREWALL";
/// Keeps clients away from load balancers that are not for them.
pub const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";

/// Refuses a TCP connection by a reset: where the services' range is routed to the loopback, the node itself does not
/// hear of ICMP errors.
const REJECT_TCP: &str = "-j REJECT --reject-with tcp-reset";

/// The chains of a table: name to rules, each without `-A <chain>`.
pub type Table = BTreeMap<String, Vec<String>>;

/// What rules depend on besides services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which family of addresses.
    pub ipv6: bool,
    /// Where the pods are: what comes from there needs no other source address. `None`: what does not come from this
    /// node itself.
    pub pods: Option<IpNet>,
    /// Addresses that are services' or nobody's.
    pub service_ranges: Vec<IpNet>,
    /// An address of the service range that this node answers by itself.
    pub cluster_dns: Option<IpAddr>,
    /// The overlay's device, and its address.
    pub overlay: Option<(String, IpAddr)>,
    /// Addresses of the node that node ports listen on; all if empty.
    pub node_port_addresses: Vec<IpNet>,
    /// Whether node ports also listen on 127.0.0.1.
    pub localhost_node_ports: bool,
    /// Where this node is: endpoints that are meant for it are preferred.
    pub zone: Option<String>,
}

impl Settings {
    /// Nothing but a family.
    pub fn new(ipv6: bool) -> Settings {
        Settings {
            ipv6,
            pods: None,
            service_ranges: Vec::new(),
            cluster_dns: None,
            overlay: None,
            node_port_addresses: Vec::new(),
            localhost_node_ports: true,
            zone: None,
        }
    }

    /// What matches packets that do not come from a pod.
    fn not_from_pods(&self) -> String {
        match &self.pods {
            Some(pods) => format!("! -s {pods}"),
            None => "-m addrtype --src-type LOCAL".to_owned(),
        }
    }
}

/// Both tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Where to.
    pub nat: Table,
    /// Whether.
    pub filter: Table,
}

/// All rules of all services.
pub fn render<'a>(ports: impl IntoIterator<Item = &'a ServicePort>, settings: &Settings) -> Rules {
    let rendered: Vec<Rendered> = ports.into_iter().map(|service| port(service, settings)).collect();
    let mut rules = shared(rendered.iter().flat_map(|rendered| &rendered.shared), settings);
    rules.nat.extend(rendered.into_iter().flat_map(|rendered| rendered.chains));
    rules
}

/// The chains that all services share, with what each adds to them.
pub fn shared<'a>(rules: impl Iterator<Item = &'a SharedRule> + Clone, settings: &Settings) -> Rules {
    let gather = |chain: Shared| -> Vec<String> {
        rules.clone().filter(|(of, _)| *of == chain).map(|(_, rule)| rule.to_string()).collect()
    };
    let mut services = gather(Shared::Services);
    services.extend(node_port_jumps(settings));
    let mut refused = Vec::new();
    if let Some(dns) = settings.cluster_dns {
        refused.push(format!("-d {dns} -j RETURN"));
    }
    refused.extend(gather(Shared::Refused));
    for range in &settings.service_ranges {
        let comment = "-m comment --comment \"an address or port that no service has\"";
        refused.push(format!("-d {range} -p tcp {comment} {REJECT_TCP}"));
        refused.push(format!("-d {range} {comment} -j REJECT"));
    }
    let nat = [
        (SERVICES, services),
        (NODE_PORTS, gather(Shared::NodePorts)),
        (HOST_MARK, vec![format!("-j MARK --set-xmark {MARK}")]),
        (POSTROUTING, postrouting(settings)),
    ];
    let filter = [
        (SERVICES, refused),
        (EXTERNAL_SERVICES, gather(Shared::RefusedOutside)),
        (PROXY_FIREWALL, gather(Shared::Firewall)),
        (FORWARD, forward()),
        (FIREWALL, firewall(settings)),
        (NODE_PORTS, gather(Shared::HealthChecks)),
    ];
    let table = |chains: Vec<(&str, Vec<String>)>| -> Table {
        chains.into_iter().map(|(name, rules)| (name.to_owned(), rules)).collect()
    };
    Rules { nat: table(nat.into()), filter: table(filter.into()) }
}

/// Node ports come last: an address of the node may also be a service's external address.
fn node_port_jumps(settings: &Settings) -> Vec<String> {
    let addresses = settings.node_port_addresses.iter().filter(|net| net.addr().is_ipv6() == settings.ipv6);
    let comment = "-m comment --comment \"kubernetes service nodeports; NOTE: this must be the last rule in this chain\"";
    let to = match (settings.localhost_node_ports, settings.ipv6) {
        // Connections to ::1 cannot be led elsewhere.
        (_, true) => "! -d ::1/128 ",
        (false, false) => "! -d 127.0.0.0/8 ",
        (true, false) => "",
    };
    match settings.node_port_addresses.is_empty() {
        true => vec![format!("{to}{comment} -m addrtype --dst-type LOCAL -j {NODE_PORTS}")],
        false => addresses
            .map(|net| format!("-d {net} {comment} -m addrtype --dst-type LOCAL -j {NODE_PORTS}"))
            .collect(),
    }
}

fn postrouting(settings: &Settings) -> Vec<String> {
    let mut rules =
        vec![format!("-m mark ! --mark {MARK} -j RETURN"), "-j MARK --set-xmark 0x6000/0x0".to_owned()];
    if let Some((device, address)) = &settings.overlay {
        // Answers to this address come back through the overlay.
        rules.push(format!("-o {device} -j SNAT --to-source {address}"));
    }
    rules.push(
        "-m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully"
            .to_owned(),
    );
    rules
}

fn forward() -> Vec<String> {
    vec![
        "-m conntrack --ctstate INVALID -j DROP".to_owned(),
        format!("-m comment --comment \"kubernetes forwarding rules\" -m mark --mark {MARK} -j ACCEPT"),
        "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT".to_owned(),
    ]
}

fn firewall(settings: &Settings) -> Vec<String> {
    match settings.ipv6 {
        true => Vec::new(),
        false => vec![
            "! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" \
             -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
                .to_owned(),
        ],
    }
}

/// Rules that are always there: by one that is missing it shows that somebody has flushed a chain of ours, or one that
/// leads to ours.
pub fn signs(settings: &Settings) -> Vec<Rule> {
    let Rules { nat, filter } = shared(std::iter::empty(), settings);
    let mut signs = jumps();
    for (table, chains) in [("nat", nat), ("filter", filter)] {
        let last = |(chain, rules): (String, Vec<String>)| Some(Rule::new(table, &chain, rules.last()?));
        signs.extend(chains.into_iter().filter_map(last));
    }
    signs
}

/// Where packets come to our chains from.
pub fn jumps() -> Vec<Rule> {
    let portals = "-m comment --comment \"kubernetes service portals\"";
    let external =
        "-m conntrack --ctstate NEW -m comment --comment \"kubernetes externally-visible service portals\"";
    let new = "-m conntrack --ctstate NEW";
    let health = "-m comment --comment \"kubernetes health check service ports\"";
    let postrouting = "-m comment --comment \"kubernetes postrouting rules\"";
    let forwarding = "-m comment --comment \"kubernetes forwarding rules\"";
    vec![
        Rule::new("nat", "OUTPUT", format!("{portals} -j {SERVICES}")),
        Rule::new("nat", "PREROUTING", format!("{portals} -j {SERVICES}")),
        Rule::new("nat", "POSTROUTING", format!("{postrouting} -j {POSTROUTING}")),
        Rule::new("filter", "INPUT", format!("{external} -j {EXTERNAL_SERVICES}")),
        Rule::new("filter", "FORWARD", format!("{external} -j {EXTERNAL_SERVICES}")),
        Rule::new("filter", "FORWARD", format!("{new} {portals} -j {SERVICES}")),
        Rule::new("filter", "OUTPUT", format!("{new} {portals} -j {SERVICES}")),
        Rule::new("filter", "FORWARD", format!("{forwarding} -j {FORWARD}")),
        Rule::new("filter", "INPUT", format!("{health} -j {NODE_PORTS}")),
        Rule::new("filter", "INPUT", format!("-j {FIREWALL}")),
        Rule::new("filter", "OUTPUT", format!("-j {FIREWALL}")),
        Rule::new("filter", "INPUT", format!("{new} -j {PROXY_FIREWALL}")),
        Rule::new("filter", "OUTPUT", format!("{new} -j {PROXY_FIREWALL}")),
        Rule::new("filter", "FORWARD", format!("{new} -j {PROXY_FIREWALL}")),
    ]
}
