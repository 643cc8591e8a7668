//! Packet filter rules read back, word by word as iptables-restore takes them, and by nobody's code that wrote them.

use ipnet::IpNet;
use proxy::rules::{Rules, Settings, Table};
use proxy::services::ServicePort;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Options that our rules have, and whether a word follows. Whatever else stood there would have come out of an object.
const OPTIONS: [(&str, bool); 28] = [
    ("-s", true),
    ("-d", true),
    ("-p", true),
    ("-m", true),
    ("-j", true),
    ("-o", true),
    ("!", false),
    ("--dport", true),
    ("--comment", true),
    ("--dst-type", true),
    ("--src-type", true),
    ("--ctstate", true),
    ("--mark", true),
    ("--set-xmark", true),
    ("--to-source", true),
    ("--to-destination", true),
    ("--random-fully", false),
    ("--mode", true),
    ("--every", true),
    ("--packet", true),
    ("--name", true),
    ("--rcheck", false),
    ("--seconds", true),
    ("--reap", false),
    ("--set", false),
    ("--reject-with", true),
    ("--probability", true),
    ("--limit", true),
];
/// No comment is longer, or the whole transaction fails.
const LONGEST_COMMENT: usize = 256;

/// The words of a rule.
pub fn words(rule: &str) -> Result<Vec<String>, String> {
    if rule.contains(|c: char| c.is_control()) {
        return Err(format!("{rule:?}: a line is one line"));
    }
    let mut words = Vec::new();
    let mut rest = rule.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ' ' => {}
            '"' => {
                let mut word = String::new();
                loop {
                    match rest.next().ok_or_else(|| format!("{rule}: a quote does not end"))? {
                        '"' => break,
                        '\\' => {
                            word.push(rest.next().ok_or_else(|| format!("{rule}: a quote does not end"))?)
                        }
                        inner => word.push(inner),
                    }
                }
                if rest.peek().is_some_and(|after| *after != ' ') {
                    return Err(format!("{rule}: a quote ends within a word"));
                }
                words.push(word);
            }
            first => {
                let mut word = String::from(first);
                while let Some(inner) = rest.next_if(|c| *c != ' ') {
                    word.push(inner);
                }
                if word.contains('"') {
                    return Err(format!("{rule}: a quote begins within a word"));
                }
                words.push(word);
            }
        }
    }
    Ok(words)
}

/// A rule as a map: what each option says.
fn options(rule: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    let mut words = words(rule)?.into_iter();
    let mut not = "";
    while let Some(option) = words.next() {
        let Some((_, takes)) = OPTIONS.iter().find(|(known, _)| *known == option) else {
            return Err(format!("{rule}: nobody should say {option:?}"));
        };
        if option == "!" {
            not = "! ";
            continue;
        }
        let value = if *takes {
            words.next().ok_or_else(|| format!("{rule}: {option} says nothing"))?
        } else {
            String::new()
        };
        if option == "--comment" && value.len() > LONGEST_COMMENT {
            return Err(format!("{rule}: too long"));
        }
        // Matches are named before what they say; the last of them is as good as any.
        found.insert(format!("{not}{option}"), value);
        not = "";
    }
    Ok(found)
}

/// Where a chain leads: every place that anything that comes to it may be sent to.
fn places(nat: &Table, chain: &str, depth: usize) -> Result<BTreeSet<SocketAddr>, String> {
    let rules = nat.get(chain).ok_or_else(|| format!("there is no chain {chain}"))?;
    let mut found = BTreeSet::new();
    if depth > 4 {
        return Err(format!("{chain}: goes round"));
    }
    for rule in rules {
        let options = options(rule)?;
        match options.get("-j").map(String::as_str) {
            Some("DNAT") => {
                let to = options.get("--to-destination").ok_or("no destination")?;
                found.insert(to.parse().map_err(|_| format!("{rule}: {to:?} is no place"))?);
            }
            Some("MARK" | "RETURN" | "KUBE-HOST-MARK") => {}
            Some(chain) => found.extend(places(nat, chain, depth + 1)?),
            None => return Err(format!("{rule}: leads nowhere")),
        }
    }
    Ok(found)
}

/// To which address and port of which protocol.
type To = (IpAddr, u16, String);

fn to(options: &BTreeMap<String, String>) -> Option<To> {
    let address: IpNet = match options.get("-d")?.parse() {
        Ok(net) => net,
        Err(_) => options.get("-d")?.parse::<IpAddr>().ok()?.into(),
    };
    Some((address.addr(), options.get("--dport")?.parse().ok()?, options.get("-p")?.clone()))
}

/// Complains if the rules say anything else than the services do.
pub fn says_the_same(ports: &[ServicePort], settings: &Settings, rules: &Rules) -> Result<(), String> {
    for (table, chains) in [("nat", &rules.nat), ("filter", &rules.filter)] {
        for (name, chain) in chains {
            let plain = name.len() <= 28
                && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-');
            if !plain {
                return Err(format!("{table}: a chain called {name:?}"));
            }
            chain.iter().try_for_each(|rule| options(rule).map(drop))?;
        }
    }
    // The first rule for an address and port is the one that counts; two services cannot have the same.
    let mut said: BTreeMap<To, BTreeSet<SocketAddr>> = BTreeMap::new();
    for rule in &rules.nat["KUBE-SERVICES"] {
        let options = options(rule)?;
        if let Some(to) = to(&options) {
            let chain = options.get("-j").ok_or("it leads nowhere")?;
            let places = places(&rules.nat, chain, 0)?;
            said.entry(to).or_insert(places);
        }
    }
    let mut refused: BTreeSet<To> = BTreeSet::new();
    for rule in rules.filter["KUBE-SERVICES"].iter().chain(&rules.filter["KUBE-EXTERNAL-SERVICES"]) {
        refused.extend(to(&options(rule)?));
    }
    let mut seen: BTreeSet<To> = BTreeSet::new();
    let mut meant: BTreeMap<To, BTreeSet<SocketAddr>> = BTreeMap::new();
    for port in ports {
        let chosen = port.choose(settings.ipv6);
        let set = |endpoints: &[&proxy::services::Endpoint]| -> BTreeSet<SocketAddr> {
            endpoints.iter().map(|endpoint| SocketAddr::new(endpoint.address, endpoint.port)).collect()
        };
        let (cluster, local) = (set(&chosen.cluster), set(&chosen.local));
        let everywhere: BTreeSet<SocketAddr> = cluster.union(&local).copied().collect();
        let inside = if port.more.internal_local { local.clone() } else { cluster.clone() };
        let own = port.cluster_ips.iter().map(|address| (address, &inside, true));
        let outside = port.more.external_ips.iter().chain(&port.more.load_balancer_ips);
        let outside = outside.map(|address| (address, &everywhere, false));
        for (address, places, is_exact) in own.chain(outside) {
            let key = (*address, port.port, port.protocol.lower().to_owned());
            if address.is_ipv6() != settings.ipv6 || !seen.insert(key.clone()) {
                continue;
            }
            match (said.get(&key), places.is_empty()) {
                (None, true) if refused.contains(&key) => {}
                (None, true) => return Err(format!("{key:?}: nobody is there, and nobody says so")),
                (None, false) => return Err(format!("{key:?}: not led to {places:?}")),
                // Whom outsiders reach depends on where they come from.
                (Some(found), _) if is_exact && found == places => {}
                (Some(found), _) if !is_exact && found.is_subset(places) => {}
                (Some(found), _) => return Err(format!("{key:?}: led to {found:?}, not {places:?}")),
            }
            meant.insert(key, places.clone());
        }
    }
    match said.keys().find(|key| !meant.contains_key(*key)) {
        Some(odd) => Err(format!("{odd:?} is nobody's")),
        None => Ok(()),
    }
}
