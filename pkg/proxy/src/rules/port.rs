//! The rules of one port of one service.

use super::{HOST_MARK, Settings, Table, names};
use crate::services::{Chosen, Endpoint, ServicePort};
use network::Protocol;
use std::net::{IpAddr, SocketAddr};

/// Of 255 characters that a comment may have. Namespace, service and port have 63, 63 and 15.
const LONGEST_NAME: usize = 200;

/// What one port contributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Its own chains, in nat.
    pub chains: Table,
    /// Its rules in chains that all services share.
    pub shared: Vec<SharedRule>,
}

/// A rule, and where it belongs.
pub type SharedRule = (Shared, Box<str>);

/// A chain that all services share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// KUBE-SERVICES of nat.
    Services,
    /// KUBE-NODEPORTS of nat.
    NodePorts,
    /// KUBE-SERVICES of filter.
    Refused,
    /// KUBE-EXTERNAL-SERVICES of filter.
    RefusedOutside,
    /// KUBE-PROXY-FIREWALL of filter.
    Firewall,
    /// KUBE-NODEPORTS of filter.
    HealthChecks,
}

impl Rendered {
    fn share(&mut self, chain: Shared, rule: String) {
        self.shared.push((chain, rule.into()));
    }
}

/// Renders one port, for one family of addresses.
pub fn port(service: &ServicePort, settings: &Settings) -> Rendered {
    let mut out = Rendered::default();
    let chosen = service.choose(settings.ipv6);
    let context = Context { service, settings, chosen: &chosen };
    let inside = if service.more.internal_local { &chosen.local } else { &chosen.cluster };
    let outside = if service.more.external_local { &chosen.local } else { &chosen.cluster };
    context.cluster_addresses(&mut out, !inside.is_empty());
    context.external_addresses(&mut out, !outside.is_empty());
    context.health_check(&mut out);
    context.own_chains(&mut out, !inside.is_empty(), !outside.is_empty());
    out
}

struct Context<'a> {
    service: &'a ServicePort,
    settings: &'a Settings,
    chosen: &'a Chosen<'a>,
}

impl Context<'_> {
    fn of_family<'a>(&self, addresses: &'a [IpAddr]) -> impl Iterator<Item = &'a IpAddr> {
        let ipv6 = self.settings.ipv6;
        addresses.iter().filter(move |address| address.is_ipv6() == ipv6)
    }

    fn chain(&self, prefix: &str) -> String {
        names::of_port(prefix, &self.service.name, self.service.protocol)
    }

    /// `-p tcp -m tcp --dport 80`
    fn to_port(&self, port: u16) -> String {
        let protocol = self.service.protocol.lower();
        format!("-p {protocol} -m {protocol} --dport {port}")
    }

    /// Names as the API has them need no more; whatever else there is must not be taken for rules.
    fn comment(&self, what: &str) -> String {
        let name = self.service.name.to_string();
        let plain = |c: &char| c.is_ascii_graphic() && !matches!(c, '"' | '\\');
        let name: String = name.chars().filter(plain).take(LONGEST_NAME).collect();
        format!("-m comment --comment \"{name} {what}\"")
    }

    /// The chain for traffic from inside: all endpoints, or this node's.
    fn inside_chain(&self) -> String {
        self.chain(if self.service.more.internal_local { "KUBE-SVL-" } else { "KUBE-SVC-" })
    }

    fn cluster_addresses(&self, out: &mut Rendered, served: bool) {
        for address in self.of_family(&self.service.cluster_ips) {
            let to = format!("-d {address} {}", self.to_port(self.service.port));
            if served {
                let comment = self.comment("cluster IP");
                out.share(Shared::Services, format!("{to} {comment} -j {}", self.inside_chain()));
            } else {
                out.share(Shared::Refused, format!("{to} {} {}", self.comment(self.why()), self.refusal()));
            }
        }
    }

    fn external_addresses(&self, out: &mut Rendered, served: bool) {
        let (ext, fw) = (self.chain("KUBE-EXT-"), self.chain("KUBE-FW-"));
        let guarded = !self.service.more.source_ranges.is_empty()
            && self.of_family(&self.service.more.load_balancer_ips).next().is_some();
        let balancer_chain = if guarded { &fw } else { &ext };
        let external =
            self.of_family(&self.service.more.external_ips).map(|address| (address, "external IP", &ext));
        let balancers = self.of_family(&self.service.more.load_balancer_ips);
        let balancers = balancers.map(|address| (address, "loadbalancer IP", balancer_chain));
        for (address, kind, chain) in external.chain(balancers) {
            let to = format!("-d {address} {}", self.to_port(self.service.port));
            if self.reachable_from_outside() {
                out.share(Shared::Services, format!("{to} {} -j {chain}", self.comment(kind)));
            }
            if !served {
                out.share(
                    Shared::RefusedOutside,
                    format!("{to} {} {}", self.comment(self.why()), self.refusal()),
                );
            }
        }
        if guarded && self.reachable_from_outside() {
            self.source_ranges(out, fw, &ext);
        }
        let Some(node_port) = self.service.node_port else { return };
        let to = self.to_port(node_port);
        if self.reachable_from_outside() {
            out.share(Shared::NodePorts, format!("{to} {} -j {ext}", self.comment("nodeport")));
        }
        if !served {
            let comment = self.comment(self.why());
            let local = "-m addrtype --dst-type LOCAL";
            out.share(Shared::RefusedOutside, format!("{local} {to} {comment} {}", self.refusal()));
        }
    }

    /// Whether anything can be served of what comes to an external address: also by other nodes, for this node's own
    /// clients, where others are served by this node only.
    fn reachable_from_outside(&self) -> bool {
        !self.chosen.cluster.is_empty() || !self.chosen.local.is_empty()
    }

    fn why(&self) -> &'static str {
        if self.reachable_from_outside() { "has no local endpoints" } else { "has no endpoints" }
    }

    /// Who has endpoints elsewhere is silent, so that a load balancer tries another node.
    fn refusal(&self) -> &'static str {
        match (self.reachable_from_outside(), self.service.protocol) {
            (true, _) => "-j DROP",
            (false, Protocol::Tcp) => super::REJECT_TCP,
            (false, _) => "-j REJECT",
        }
    }

    /// Load balancers that are not for everybody: in nat, those who may pass go on to the service; the others stay
    /// untranslated, for filter to drop.
    fn source_ranges(&self, out: &mut Rendered, fw: String, ext: &str) {
        let of_family =
            self.service.more.source_ranges.iter().filter(|net| net.addr().is_ipv6() == self.settings.ipv6);
        let comment = self.comment("loadbalancer IP");
        out.chains.insert(fw, of_family.map(|net| format!("-s {net} {comment} -j {ext}")).collect());
        for address in self.of_family(&self.service.more.load_balancer_ips) {
            let to = format!("-d {address} {}", self.to_port(self.service.port));
            let dropped = self.comment("traffic not accepted by loadbalancer IP");
            out.share(Shared::Firewall, format!("{to} {dropped} -j DROP"));
        }
    }

    /// Load balancers may ask for this node's health, also where what is not allowed is dropped.
    fn health_check(&self, out: &mut Rendered) {
        if let Some(port) = self.service.more.health_check_port {
            let comment = self.comment("health check node port");
            out.share(Shared::HealthChecks, format!("-p tcp -m tcp --dport {port} {comment} -j ACCEPT"));
        }
    }

    fn own_chains(&self, out: &mut Rendered, inside: bool, outside: bool) {
        let everywhere = !self.chosen.cluster.is_empty();
        let external = (self.service.node_port.is_some()
            || !self.service.more.external_ips.is_empty()
            || !self.service.more.load_balancer_ips.is_empty())
            && self.reachable_from_outside();
        let uses_cluster = (inside && !self.service.more.internal_local) || external;
        let uses_local = (inside && self.service.more.internal_local)
            || (external && self.service.more.external_local && outside);
        if everywhere && uses_cluster {
            self.balanced(out, "KUBE-SVC-", &self.chosen.cluster);
        }
        if uses_local && !self.chosen.local.is_empty() {
            self.balanced(out, "KUBE-SVL-", &self.chosen.local);
        }
        if external {
            let rules = self.external_rules(everywhere, outside);
            out.chains.insert(self.chain("KUBE-EXT-"), rules);
        }
    }

    fn external_rules(&self, everywhere: bool, outside: bool) -> Vec<String> {
        let svc = self.chain("KUBE-SVC-");
        if !self.service.more.external_local {
            let comment = self.comment("external destinations");
            return match everywhere {
                true => vec![format!("{comment} -j {HOST_MARK}"), format!("-j {svc}")],
                false => Vec::new(),
            };
        }
        let mut rules = Vec::new();
        if everywhere {
            // Pods and the node itself may be served by anybody.
            if let Some(pods) = &self.settings.pods {
                rules.push(format!("-s {pods} {} -j {svc}", self.comment("pod traffic")));
            }
            let local = "-m addrtype --src-type LOCAL";
            rules.push(format!("{} {local} -j {HOST_MARK}", self.comment("local traffic")));
            rules.push(format!("{} {local} -j {svc}", self.comment("local traffic")));
        }
        if outside {
            rules.push(format!("-j {}", self.chain("KUBE-SVL-")));
        }
        rules
    }

    /// A chain that gives each endpoint its turn, and the endpoints' own chains. What leads here names the service:
    /// comments on these rules, of which there are thirty per service, would nearly double the time that the kernel takes
    /// for any change, since it checks all of them.
    fn balanced(&self, out: &mut Rendered, prefix: &str, endpoints: &[&Endpoint]) {
        let mut rules = Vec::new();
        let port = self.to_port(self.service.port);
        for address in self.of_family(&self.service.cluster_ips) {
            // Answers to a node's own address would not come back through the overlay.
            let host = self.settings.not_from_pods();
            rules.push(format!("{host} -d {address} {port} -j {HOST_MARK}"));
        }
        let chains: Vec<String> = endpoints.iter().map(|endpoint| self.endpoint_chain(endpoint)).collect();
        if let Some(seconds) = self.service.more.affinity_seconds {
            for chain in &chains {
                rules
                    .push(format!("-m recent --name {chain} --rcheck --seconds {seconds} --reap -j {chain}"));
            }
        }
        for (n, chain) in chains.iter().enumerate() {
            // The first takes one of all, the next one of the rest, the last what is left: each the same share, in turn.
            let turn = match chains.len() - n {
                1 => String::new(),
                rest => format!("-m statistic --mode nth --every {rest} --packet 0 "),
            };
            rules.push(format!("{turn}-j {chain}"));
        }
        out.chains.insert(self.chain(prefix), rules);
        for (chain, endpoint) in chains.into_iter().zip(endpoints) {
            let rules = self.endpoint_rules(&chain, endpoint);
            out.chains.insert(chain, rules);
        }
    }

    fn endpoint_chain(&self, endpoint: &Endpoint) -> String {
        names::of_endpoint(&self.service.name, self.service.protocol, &socket(endpoint).to_string())
    }

    fn endpoint_rules(&self, chain: &str, endpoint: &Endpoint) -> Vec<String> {
        let protocol = self.service.protocol.lower();
        // A pod that reaches itself must not see its own address as the one who asks.
        let hairpin = format!("-s {} -j {HOST_MARK}", endpoint.address);
        let affinity = match self.service.more.affinity_seconds {
            Some(_) => format!("-m recent --name {chain} --set "),
            None => String::new(),
        };
        let to = socket(endpoint);
        let dnat = format!("-p {protocol} {affinity}-j DNAT --to-destination {to}");
        vec![hairpin, dnat]
    }
}

fn socket(endpoint: &Endpoint) -> SocketAddr {
    SocketAddr::new(endpoint.address, endpoint.port)
}
