//! Packets walked through rendered rules, as the kernel would.

use super::*;
use crate::record::More;
use crate::services::{Endpoint, PortName};
use network::Protocol;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// Led to an endpoint; whether it gets another source address.
    To(SocketAddr, bool),
    Rejected,
    Dropped,
    /// Left as it was.
    Untouched,
}

#[derive(Clone, Copy)]
struct Packet {
    source: IpAddr,
    to: SocketAddr,
    udp: bool,
}

struct Walker {
    rules: Rules,
    local: HashSet<IpAddr>,
    /// How often a rule with a counter was looked at.
    nth: RefCell<HashMap<String, u64>>,
    /// Who was seen by which list.
    recent: RefCell<HashSet<(String, IpAddr)>>,
}

const NODE: &str = "192.168.1.1";

impl Walker {
    fn new(ports: &[ServicePort], settings: &Settings) -> Walker {
        let local = [NODE, "127.0.0.1", "10.244.1.1"].map(|address| address.parse().unwrap());
        let rules = render(ports, settings);
        for line in rules.nat.values().chain(rules.filter.values()).flatten() {
            let target = line.split("-j ").nth(1).unwrap().split(' ').next().unwrap();
            let known = ["DNAT", "MARK", "RETURN", "MASQUERADE", "SNAT", "REJECT", "DROP", "ACCEPT"];
            let chains = rules.nat.contains_key(target) || rules.filter.contains_key(target);
            assert!(known.contains(&target) || chains, "{line}: leads nowhere");
        }
        Walker { rules, local: local.into(), nth: RefCell::default(), recent: RefCell::default() }
    }

    fn send(&self, source: &str, to: &str) -> Fate {
        self.walk(Packet { source: source.parse().unwrap(), to: to.parse().unwrap(), udp: false })
    }

    fn walk(&self, packet: Packet) -> Fate {
        let mut marked = false;
        if let Some(fate) = self.chain(&self.rules.nat, SERVICES, packet, &mut marked) {
            return fate;
        }
        let chains: &[&str] =
            match (self.local.contains(&packet.source), self.local.contains(&packet.to.ip())) {
                (true, _) => &[SERVICES, FIREWALL, PROXY_FIREWALL],
                (false, true) => &[EXTERNAL_SERVICES, FIREWALL, PROXY_FIREWALL],
                (false, false) => &[PROXY_FIREWALL, EXTERNAL_SERVICES, SERVICES],
            };
        for chain in chains {
            if let Some(fate) = self.chain(&self.rules.filter, chain, packet, &mut marked) {
                return fate;
            }
        }
        Fate::Untouched
    }

    fn chain(&self, table: &Table, name: &str, packet: Packet, marked: &mut bool) -> Option<Fate> {
        for (n, rule) in table[name].iter().enumerate() {
            let words = words(rule);
            let Some(jump) = self.matches(&words, packet, &format!("{name} {n}")) else { continue };
            match jump.as_str() {
                "RETURN" => return None,
                "REJECT" => return Some(Fate::Rejected),
                "DROP" => return Some(Fate::Dropped),
                "ACCEPT" => return Some(Fate::Untouched),
                "MARK" => *marked = true,
                "DNAT" => {
                    let to = words.last().unwrap().parse().unwrap();
                    return Some(Fate::To(to, *marked));
                }
                chain => {
                    if let Some(fate) = self.chain(table, chain, packet, marked) {
                        return Some(fate);
                    }
                }
            }
        }
        None
    }

    /// The rule's target, if the packet matches.
    fn matches(&self, words: &[String], packet: Packet, id: &str) -> Option<String> {
        let mut not = false;
        let mut list = String::new();
        let mut target = None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut next = || words.next().expect("an argument").as_str();
            let matched = match word.as_str() {
                "!" => {
                    not = true;
                    continue;
                }
                "-m" | "--mode" | "--packet" | "--seconds" | "--comment" | "--reap" | "--to-destination"
                | "--set-xmark" | "--reject-with" => {
                    if word != "--reap" {
                        next();
                    }
                    true
                }
                "-s" => net(next()).contains(&packet.source),
                "-d" => net(next()).contains(&packet.to.ip()),
                "-p" => next() == if packet.udp { "udp" } else { "tcp" },
                "--dport" => next().parse::<u16>().unwrap() == packet.to.port(),
                "--dst-type" => next() == "LOCAL" && self.local.contains(&packet.to.ip()),
                "--src-type" => next() == "LOCAL" && self.local.contains(&packet.source),
                "--ctstate" => next().contains("NEW"),
                "--every" => {
                    let every: u64 = next().parse().unwrap();
                    let mut nth = self.nth.borrow_mut();
                    let seen = nth.entry(id.to_owned()).or_default();
                    *seen += 1;
                    (*seen - 1).is_multiple_of(every)
                }
                "--name" => {
                    list = next().to_owned();
                    true
                }
                "--rcheck" => self.recent.borrow().contains(&(list.clone(), packet.source)),
                "--set" => {
                    self.recent.borrow_mut().insert((list.clone(), packet.source));
                    true
                }
                "-j" => {
                    target = Some(next().to_owned());
                    true
                }
                other => panic!("{other} in {id}: the walker does not know it"),
            };
            if matched == not {
                return None;
            }
            not = false;
        }
        target
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap_or_else(|_| IpNet::from(text.parse::<IpAddr>().unwrap()))
}

/// Split at spaces, but not within quotes.
fn words(rule: &str) -> Vec<String> {
    let parts = rule.split('"').enumerate().flat_map(|(n, part)| match n % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
        _ => vec![part.to_owned()],
    });
    parts.collect()
}

fn settings() -> Settings {
    Settings {
        pods: Some("10.244.0.0/16".parse().unwrap()),
        service_ranges: vec!["10.96.0.0/12".parse().unwrap()],
        cluster_dns: Some("10.96.0.10".parse().unwrap()),
        overlay: Some(("flannel.1".into(), "10.244.1.0".parse().unwrap())),
        ..Settings::new(false)
    }
}

fn endpoint(text: &str) -> Endpoint {
    let socket: SocketAddr = text.parse().unwrap();
    let local = text.starts_with("10.244.1.");
    let (address, port) = (socket.ip(), socket.port());
    Endpoint { address, port, ready: true, serving: true, terminating: false, local, hints: (None, None) }
}

fn service(endpoints: &[&str]) -> ServicePort {
    ServicePort {
        name: PortName { namespace: "default".into(), service: "web".into(), port: "http".into() },
        protocol: Protocol::Tcp,
        port: 80,
        node_port: None,
        cluster_ips: vec!["10.96.0.5".parse().unwrap()],
        more: More::default(),
        endpoints: endpoints.iter().map(|text| endpoint(text)).collect(),
    }
}

fn to(text: &str, marked: bool) -> Fate {
    Fate::To(text.parse().unwrap(), marked)
}

const POD: &str = "10.244.1.9";
const OUTSIDE: &str = "203.0.113.7";
const VIP: &str = "10.96.0.5:80";

#[test]
fn endpoints_take_turns_exactly() {
    let places = ["10.244.1.2:8080", "10.244.2.2:8080", "10.244.3.2:8080"];
    let walker = Walker::new(&[service(&places)], &settings());
    let mut counts: HashMap<String, u32> = HashMap::new();
    let mut order = Vec::new();
    for _ in 0..300 {
        let Fate::To(place, _) = walker.send(POD, VIP) else { panic!("not led anywhere") };
        *counts.entry(place.to_string()).or_default() += 1;
        order.push(place);
    }
    assert!(places.iter().all(|place| counts[*place] == 100), "{counts:?}");
    assert!(order.chunks(3).all(|turn| turn == &order[..3]), "in turn");
}

#[test]
fn who_asks_decides_who_is_seen() {
    let walker = Walker::new(&[service(&["10.244.1.2:8080"])], &settings());
    assert_eq!(walker.send(POD, VIP), to("10.244.1.2:8080", false), "a pod keeps its address");
    assert_eq!(walker.send(NODE, VIP), to("10.244.1.2:8080", true), "the node gets the overlay's");
    assert_eq!(walker.send("10.244.1.2", VIP), to("10.244.1.2:8080", true), "a pod that asks itself");
    let without = Settings { pods: None, ..settings() };
    let walker = Walker::new(&[service(&["10.244.1.2:8080"])], &without);
    assert_eq!(walker.send(POD, VIP), to("10.244.1.2:8080", false));
    assert_eq!(walker.send(NODE, VIP), to("10.244.1.2:8080", true));
}

#[test]
fn what_nobody_serves_is_refused_at_once() {
    let walker = Walker::new(&[service(&[])], &settings());
    for source in [POD, NODE] {
        assert_eq!(walker.send(source, VIP), Fate::Rejected, "no endpoints");
        assert_eq!(walker.send(source, "10.96.0.5:81"), Fate::Rejected, "no such port");
        assert_eq!(walker.send(source, "10.96.7.7:80"), Fate::Rejected, "no such service");
        assert_eq!(walker.send(source, "10.96.0.10:53"), Fate::Untouched, "the node answers names itself");
        assert_eq!(walker.send(source, "198.51.100.1:80"), Fate::Untouched, "not ours");
    }
}

#[test]
fn a_load_balancer_that_has_no_address_yet_guards_nothing() {
    let guarded = |addresses: &[&str]| {
        let more = More {
            source_ranges: vec!["203.0.113.0/24".parse().unwrap()],
            load_balancer_ips: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            ..More::default()
        };
        Walker::new(&[ServicePort { more, ..service(&["10.244.2.2:8080"]) }], &settings())
    };
    for addresses in [&[][..], &["fd00::8"]] {
        assert_eq!(guarded(addresses).send(POD, VIP), to("10.244.2.2:8080", false), "{addresses:?}");
    }
    let walker = guarded(&["198.51.100.8"]);
    assert_eq!(walker.send(OUTSIDE, "198.51.100.8:80"), to("10.244.2.2:8080", true));
    assert_eq!(walker.send("192.0.2.1", "198.51.100.8:80"), Fate::Dropped);
}

#[test]
fn load_balancers_may_ask_for_the_nodes_health() {
    let more = More { health_check_port: Some(31000), ..More::default() };
    let rules = render(&[ServicePort { more, ..service(&[]) }], &settings());
    let accepted = "-p tcp -m tcp --dport 31000 -m comment --comment \"default/web:http health check node port\" -j ACCEPT";
    assert_eq!(rules.filter[NODE_PORTS], [accepted]);
}

#[test]
fn neighbours_do_not_reach_the_loopback() {
    let walker = Walker::new(&[], &settings());
    for address in ["127.0.0.1:8080", "127.0.0.1:30080", "127.0.0.1:2379"] {
        assert_eq!(walker.send(OUTSIDE, address), Fate::Dropped, "{address}");
        assert_eq!(walker.send("127.0.0.1", address), Fate::Untouched, "{address}");
    }
}

#[test]
fn node_ports_and_external_addresses() {
    let web = ServicePort {
        node_port: Some(30080),
        more: More {
            external_ips: vec!["198.51.100.9".parse().unwrap()],
            load_balancer_ips: vec!["198.51.100.8".parse().unwrap()],
            ..More::default()
        },
        ..service(&["10.244.2.2:8080"])
    };
    let walker = Walker::new(std::slice::from_ref(&web), &settings());
    for address in ["192.168.1.1:30080", "198.51.100.9:80", "198.51.100.8:80"] {
        assert_eq!(walker.send(OUTSIDE, address), to("10.244.2.2:8080", true), "{address}");
    }
    assert_eq!(walker.send(NODE, "127.0.0.1:30080"), to("10.244.2.2:8080", true));
    assert_eq!(walker.send(OUTSIDE, "192.168.1.1:30081"), Fate::Untouched);

    let nobody = Walker::new(&[ServicePort { endpoints: vec![], ..web.clone() }], &settings());
    assert_eq!(nobody.send(OUTSIDE, "192.168.1.1:30080"), Fate::Rejected);
    assert_eq!(nobody.send(OUTSIDE, "198.51.100.9:80"), Fate::Rejected);

    let mut choosy = web;
    choosy.more.source_ranges = vec!["203.0.113.0/29".parse().unwrap()];
    let walker = Walker::new(&[choosy], &settings());
    assert_eq!(walker.send(OUTSIDE, "198.51.100.8:80"), to("10.244.2.2:8080", true));
    assert_eq!(walker.send("203.0.113.99", "198.51.100.8:80"), Fate::Dropped);
    assert_eq!(walker.send("203.0.113.99", "198.51.100.9:80"), to("10.244.2.2:8080", true));
}

#[test]
fn traffic_that_stays_on_the_node() {
    let both = ["10.244.1.2:8080", "10.244.2.2:8080"];
    let more = More { external_local: true, ..More::default() };
    let web = ServicePort { more, node_port: Some(30080), ..service(&both) };
    let walker = Walker::new(std::slice::from_ref(&web), &settings());
    for _ in 0..4 {
        let fate = walker.send(OUTSIDE, "192.168.1.1:30080");
        assert_eq!(fate, to("10.244.1.2:8080", false), "served here, and its address is kept");
    }
    let Fate::To(..) = walker.send(POD, "192.168.1.1:30080") else { panic!("a pod may be served anywhere") };

    let elsewhere = Walker::new(&[ServicePort { endpoints: vec![endpoint(both[1])], ..web }], &settings());
    assert_eq!(elsewhere.send(OUTSIDE, "192.168.1.1:30080"), Fate::Dropped);
    assert_eq!(elsewhere.send(NODE, "192.168.1.1:30080"), to(both[1], true));
    assert_eq!(elsewhere.send(POD, "192.168.1.1:30080"), to(both[1], false));
    assert_eq!(elsewhere.send(POD, VIP), to(both[1], false), "inside, any node serves");

    let more = More { internal_local: true, ..More::default() };
    let inside = ServicePort { more, ..service(&both) };
    let walker = Walker::new(std::slice::from_ref(&inside), &settings());
    for _ in 0..4 {
        assert_eq!(walker.send(POD, VIP), to("10.244.1.2:8080", false));
    }
    let nobody_here = ServicePort { endpoints: vec![endpoint(both[1])], ..inside };
    assert_eq!(Walker::new(&[nobody_here], &settings()).send(POD, VIP), Fate::Dropped);
}

#[test]
fn a_client_stays_with_its_endpoint() {
    let places = ["10.244.1.2:8080", "10.244.2.2:8080", "10.244.3.2:8080"];
    let more = More { affinity_seconds: Some(600), ..More::default() };
    let sticky = ServicePort { more, ..service(&places) };
    let walker = Walker::new(&[sticky], &settings());
    let first = walker.send(POD, VIP);
    let other = walker.send("10.244.1.77", VIP);
    assert_ne!(first, other, "the next one is the next client's");
    for _ in 0..6 {
        assert_eq!(walker.send(POD, VIP), first);
        assert_eq!(walker.send("10.244.1.77", VIP), other);
    }
}

#[test]
fn protocols_do_not_mix() {
    let name = PortName { namespace: "kube-system".into(), service: "dns".into(), port: "dns".into() };
    let udp = ServicePort { name, protocol: Protocol::Udp, port: 53, ..service(&["10.244.2.2:53"]) };
    let walker = Walker::new(&[udp], &settings());
    let packet = Packet { source: POD.parse().unwrap(), to: "10.96.0.5:53".parse().unwrap(), udp: true };
    assert_eq!(walker.walk(packet), to("10.244.2.2:53", false));
    assert_eq!(walker.walk(Packet { udp: false, ..packet }), Fate::Rejected);
}

#[test]
fn the_chains_of_the_acceptance_list() {
    let rules = render(&[service(&["10.244.1.2:8080", "10.244.2.2:8080"])], &settings());
    assert_eq!(
        rules.nat[POSTROUTING],
        [
            "-m mark ! --mark 0x6000/0x6000 -j RETURN",
            "-j MARK --set-xmark 0x6000/0x0",
            "-o flannel.1 -j SNAT --to-source 10.244.1.0",
            "-m comment --comment \"kubernetes service traffic requiring SNAT\" -j MASQUERADE --random-fully",
        ]
    );
    assert_eq!(rules.nat[HOST_MARK], ["-j MARK --set-xmark 0x6000/0x6000"]);
    let svc = rules.nat.iter().find(|(name, _)| name.starts_with("KUBE-SVC-")).unwrap().1;
    assert!(svc[1].starts_with("-m statistic --mode nth --every 2 --packet 0 -j KUBE-SEP-"), "{svc:?}");
    assert!(svc[2].starts_with("-j KUBE-SEP-"), "{svc:?}");
}
