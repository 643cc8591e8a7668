//! Which hosts and paths there are, and where they lead.

use super::holders::Holders;
use super::{Classes, Owner, Reserved, Services, ingress};
use api::domains::{GROUP, RECORD, RESOURCE, Record, VERB};
use api::kinds::minik8s::dns::{DNS, DNSStatus, DNSSubpath, DNSSubpathStatus};
use api::names::{is_dns1123_subdomain, is_wildcard_dns1123_subdomain};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use percent_encoding::percent_decode_str;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// No word of nginx's configuration may be longer than 4096 bytes; one that is would keep back everybody's changes.
const LONGEST_PATH: usize = 2000;

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// To a service.
    At(SocketAddr),
    /// To a headless service: a name for it, and where it is served, if anywhere.
    Among(String, BTreeSet<SocketAddr>),
    /// Nowhere: the reason, in one word and in a sentence.
    Missing(&'static str, String),
}

/// How a path matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// The path itself only.
    Exact,
    /// The path and everything below.
    Prefix,
    /// The same, and the service does not see the path.
    Stripped,
}

/// A path and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule {
    /// The path as it is compared: without `%20`, and without a slash at its end, unless that alone is meant.
    pub path: String,
    /// How it matches.
    pub matching: Match,
    /// Where it leads.
    pub backend: Backend,
    /// Who says so.
    pub owner: Owner,
}

impl PathRule {
    /// None, if nginx could not be told the path.
    pub fn new(path: &str, matching: Match, backend: Backend, owner: &Owner) -> Option<PathRule> {
        let path = percent_decode_str(path).decode_utf8().ok()?;
        let path = match matching {
            Match::Exact => &*path,
            Match::Prefix | Match::Stripped => path.trim_end_matches('/'),
        };
        let path = if path.is_empty() { "/" } else { path };
        let usable =
            path.starts_with('/') && path.len() <= LONGEST_PATH && !path.contains(|c: char| c.is_control());
        usable.then(|| PathRule { path: path.to_owned(), matching, backend, owner: owner.clone() })
    }

    /// Whether nginx would take both for the same.
    fn is_for(&self, path: &str, exact: bool) -> bool {
        self.path == path && (self.matching == Match::Exact) == exact
    }
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Its paths.
    pub paths: Vec<PathRule>,
    /// The secret with its certificate, (namespace, name).
    pub tls: Option<(String, String)>,
    /// Where goes what fits none of its paths, and who says so.
    pub default: Option<(Backend, Owner)>,
}

impl Site {
    /// Adds a path, unless somebody else has it: then that is who.
    fn add(&mut self, rule: PathRule) -> Option<Owner> {
        let exact = rule.matching == Match::Exact;
        match self.paths.iter().find(|other| other.is_for(&rule.path, exact)) {
            Some(other) => Some(other.owner.clone()),
            None => {
                self.paths.push(rule);
                None
            }
        }
    }

    /// Whether a path by itself, without what is below, leads elsewhere.
    pub fn has_exact(&self, path: &str) -> bool {
        self.paths.iter().any(|rule| rule.is_for(path, true))
    }
}

/// All hosts. The empty one is whatever has no other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// By name.
    pub hosts: BTreeMap<String, Site>,
    /// Whose they are.
    holders: Holders,
    /// Who wants which host or path, and what they are told of who has it.
    taken: BTreeMap<(Owner, String), Trouble>,
}

impl Sites {
    /// The names that lead to this node, of which `*.example.com` means every name right below.
    pub fn names(&self, reserved: &Reserved) -> impl Iterator<Item = &String> {
        self.hosts.keys().filter(|host| self.holders.is_claimed(host) && !reserved.holds(host))
    }

    /// Whether somebody in its namespace has a host; if not, they are told.
    pub(super) fn has_host(&mut self, host: &str, owner: &Owner) -> bool {
        if !is_host(host) {
            let trouble = ("HostUnusable", "it is not the name of a host".to_owned());
            self.taken.insert((owner.clone(), host.to_owned()), trouble);
            return false;
        }
        let Some(other) = self.holders.other(host, owner) else { return true };
        self.taken.insert((owner.clone(), host.to_owned()), other.has_host());
        false
    }

    /// What is wrong with a host itself: others have it, it is nobody's, or it is resolved for nobody.
    pub(super) fn trouble_of_host(&self, host: &str, owner: &Owner, reserved: &Reserved) -> Option<Trouble> {
        if host.is_empty() {
            None
        } else if reserved.holds(host) {
            Some(reserved.trouble(host))
        } else if self.holders.other(host, owner).is_some() || self.holders.is_claimed(host) {
            None
        } else {
            let base = host.strip_prefix("*.").unwrap_or(host);
            let message = format!(
                "{host} is served, but resolved for nobody: who wrote this may not {VERB} {RESOURCE}.{GROUP} {base:?}"
            );
            Some(("HostNotClaimed", message))
        }
    }

    /// Adds a path of a host, unless somebody else has it.
    pub(super) fn add(&mut self, host: &str, path: &str, matching: Match, backend: Backend, owner: &Owner) {
        let host = host.to_ascii_lowercase();
        let Some(rule) = PathRule::new(path, matching, backend, owner) else { return };
        if !self.has_host(&host, owner) {
            return;
        }
        if let Some(other) = self.hosts.entry(host.clone()).or_default().add(rule)
            && other != *owner
        {
            self.taken.insert((owner.clone(), format!("{host}{path}")), other.has_it());
        }
    }

    /// Says where goes what fits no path of a host, unless somebody else has said so.
    pub(super) fn add_default(&mut self, host: String, backend: Backend, owner: &Owner) {
        if !self.has_host(&host, owner) {
            return;
        }
        let place = match host.as_str() {
            "" => "default backend of all other hosts".to_owned(),
            host => format!("default backend of {host}"),
        };
        let has = self.hosts.entry(host).or_default().default.get_or_insert_with(|| (backend, owner.clone()));
        if has.1 != *owner {
            self.taken.insert((owner.clone(), place), has.1.has_it());
        }
    }

    /// Where everything leads.
    pub fn backends(&self) -> impl Iterator<Item = &Backend> {
        self.hosts.values().flat_map(|site| {
            let paths = site.paths.iter().map(|rule| &rule.backend);
            paths.chain(site.default.iter().map(|(backend, _)| backend))
        })
    }

    /// What somebody wants and somebody else has: a host, or a host and path, and what is said of it.
    pub fn taken_from<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = (&'a str, &'a Trouble)> {
        let wanted = self.taken.iter().filter(move |((of, _), _)| of == owner);
        wanted.map(|((_, place), said)| (place.as_str(), said))
    }
}

/// The hosts of these objects. A host is one namespace's, and the oldest object keeps a path that several want. `trusted`:
/// what is recorded of hosts was recorded by our API server; another's lets everybody write it.
pub fn sites<'a>(
    dnses: impl Iterator<Item = &'a DNS>,
    ingresses: impl Iterator<Item = &'a Ingress>,
    classes: &Classes,
    services: &Services,
    trusted: bool,
) -> Sites {
    enum Source<'a> {
        Dns(&'a DNS),
        Ingress(&'a Ingress),
    }
    let ingresses = ingresses.filter(|ingress| classes.have(ingress));
    let ingresses =
        ingresses.map(|ingress| (Owner::of("Ingress", &ingress.metadata), Source::Ingress(ingress)));
    let dnses = dnses.map(|dns| (Owner::of("DNS", &dns.metadata), Source::Dns(dns)));
    let mut sources: Vec<(Owner, Source<'_>)> = dnses.chain(ingresses).collect();
    sources.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut all = Sites::default();
    for (owner, source) in &sources {
        let (metadata, hosts) = match source {
            Source::Dns(dns) => (&dns.metadata, [dns.spec.host.to_ascii_lowercase()].into()),
            Source::Ingress(it) => {
                (&it.metadata, it.spec.as_ref().map(ingress::own_hosts).unwrap_or_default())
            }
        };
        let record = metadata.annotations.as_ref().and_then(|all| all.get(RECORD)).filter(|_| trusted);
        let record = record.map(|text| Record::parse(text)).unwrap_or_default();
        let hosts = hosts.iter().filter(|host| is_host(host));
        hosts.for_each(|host| all.holders.add(host, owner, &record));
    }
    for (owner, source) in &sources {
        match source {
            Source::Dns(dns) => {
                for subpath in &dns.spec.subpaths {
                    let backend = services.find(&owner.namespace, &subpath.service, Some(subpath.port), None);
                    all.add(&dns.spec.host, &subpath.path, Match::Stripped, backend, owner);
                }
            }
            Source::Ingress(ingress) => ingress::add(&mut all, ingress, owner, services),
        }
    }
    all
}

/// Whether a text is the name of a host, of all right below one, or of whatever has no other. The API server takes nothing else;
/// to nginx, other texts are expressions or more than one name.
fn is_host(host: &str) -> bool {
    host.is_empty()
        || is_dns1123_subdomain(host).is_empty()
        || host.starts_with('*') && is_wildcard_dns1123_subdomain(host).is_empty()
}

/// What keeps an object from being served as it asks: reasons, each with a sentence.
pub type Troubles = BTreeSet<Trouble>;
/// A reason, and a sentence.
pub type Trouble = (&'static str, String);

/// Where each path of a DNS object leads, or why nowhere.
fn paths_of(dns: &DNS, services: &Services, sites: &Sites) -> Vec<(String, Result<String, Trouble>)> {
    let owner = Owner::of("DNS", &dns.metadata);
    let host = dns.spec.host.to_ascii_lowercase();
    let path = |subpath: &DNSSubpath| {
        let found = services.find(&owner.namespace, &subpath.service, Some(subpath.port), None);
        let place = format!("{host}{}", subpath.path);
        let taken = sites.taken_from(&owner).find(|(taken, _)| *taken == place || *taken == host);
        let leads = match (found, taken) {
            (Backend::Missing(reason, message), _) => Err((reason, message)),
            (_, Some((_, said))) => Err(said.clone()),
            (Backend::At(address), None) => Ok(address.ip().to_string()),
            (Backend::Among(..), None) => Ok("None".to_owned()),
        };
        (subpath.path.clone(), leads)
    };
    dns.spec.subpaths.iter().map(path).collect()
}

/// What is wrong with a DNS object: its host, and each of its paths. The first is what its condition says.
pub fn dns_troubles(dns: &DNS, services: &Services, sites: &Sites, reserved: &Reserved) -> Vec<Trouble> {
    troubles_of(dns, &paths_of(dns, services, sites), sites, reserved)
}

fn troubles_of(
    dns: &DNS,
    paths: &[(String, Result<String, Trouble>)],
    sites: &Sites,
    reserved: &Reserved,
) -> Vec<Trouble> {
    let host = dns.spec.host.to_ascii_lowercase();
    let of_host = sites.trouble_of_host(&host, &Owner::of("DNS", &dns.metadata), reserved);
    let of_paths = paths.iter().filter_map(|(path, leads)| {
        let (reason, message) = leads.as_ref().err()?;
        Some((*reason, format!("{path}: {message}")))
    });
    of_host.into_iter().chain(of_paths).collect()
}

/// What a DNS object's status should say. The time of a condition that stays is kept.
pub fn dns_status(
    dns: &DNS,
    services: &Services,
    sites: &Sites,
    reserved: &Reserved,
    now: Time,
) -> DNSStatus {
    let subpath = |(path, leads): (String, Result<String, Trouble>)| match leads {
        Ok(cluster_ip) => DNSSubpathStatus { path, cluster_ip, message: String::new() },
        Err((_, message)) => DNSSubpathStatus { path, cluster_ip: String::new(), message },
    };
    let paths = paths_of(dns, services, sites);
    let trouble = troubles_of(dns, &paths, sites, reserved).into_iter().next();
    let subpaths = paths.into_iter().map(subpath).collect();
    let (status, (reason, message)) = match trouble {
        None => ("True", ("AllPathsServed", "every path leads to a service".to_owned())),
        Some(trouble) => ("False", trouble),
    };
    let before = dns.status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let since =
        before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
    let generation = dns.metadata.generation.unwrap_or_default();
    let ready = Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: Some(generation),
        last_transition_time: since.unwrap_or(now),
    };
    let others = dns.status.conditions.iter().filter(|condition| condition.type_ != "Ready").cloned();
    let conditions = others.chain([ready]).collect();
    DNSStatus { observed_generation: generation, conditions, subpaths }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn dns(subpaths: Value) -> DNS {
        let object = json!({"apiVersion": "minik8s.io/v1", "kind": "DNS", "metadata": {"namespace": "default", "name": "shop"},
            "spec": {"host": "Shop.example.com", "subpaths": subpaths}});
        serde_json::from_value(object).unwrap()
    }

    fn claimed(subpaths: Value) -> DNS {
        let mut object = dns(subpaths);
        let record = r#"[{"claimed":true,"since":"2026-01-04T00:00:00Z","hosts":["shop.example.com"]}]"#;
        object.metadata.annotations = Some([(RECORD.to_owned(), record.to_owned())].into());
        object
    }

    fn services() -> Services {
        let service = json!({"metadata": {"namespace": "default", "name": "cart"},
            "spec": {"clusterIP": "10.96.0.5", "ports": [{"name": "http", "port": 80}]}});
        Services::new([serde_json::from_value(service).unwrap()].iter(), |_| Vec::new())
    }

    #[test]
    fn a_dns_object_says_what_is_missing_and_heals() {
        let now = Time(jiff::Timestamp::UNIX_EPOCH);
        let status = |object: &DNS, now: Time| {
            let all = sites([object.clone()].iter(), [].iter(), &Classes::default(), &services(), true);
            dns_status(object, &services(), &all, &Reserved::default(), now)
        };
        let mut object = claimed(json!([
            {"path": "/cart", "service": "cart", "port": 80},
            {"path": "/pay", "service": "pay", "port": 80},
            {"path": "/old", "service": "cart", "port": 81}]));
        let first = status(&object, now.clone());
        let ready = &first.conditions[0];
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "ServiceNotFound"));
        assert_eq!(ready.message, "/pay: service \"pay\" not found");
        let messages: Vec<&str> = first.subpaths.iter().map(|subpath| subpath.message.as_str()).collect();
        assert_eq!(messages, ["", "service \"pay\" not found", "service \"cart\" has no port 81"]);

        object.status = first;
        object.spec.subpaths.truncate(1);
        let later = Time(jiff::Timestamp::from_second(60).unwrap());
        let healed = status(&object, later.clone());
        assert_eq!(
            (healed.conditions[0].status.as_str(), &healed.conditions[0].last_transition_time),
            ("True", &later)
        );
        object.status = healed.clone();
        let latest = Time(jiff::Timestamp::from_second(120).unwrap());
        assert_eq!(status(&object, latest), healed, "nothing changes, not even the time");
    }

    fn ingress(namespace: &str) -> Ingress {
        serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": "i",
            "creationTimestamp": "2026-01-02T00:00:00Z"}, "spec": {"rules": [{"host": "shop.example.com", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "pay", "port": {"number": 80}}}}]}}]}}))
        .unwrap()
    }

    /// A DNS object and an ingress of that namespace, both for shop.example.com: who has which path, what the DNS object says
    /// of its own, and what is resolved.
    fn check(
        (created, record): (&str, Value),
        namespace: &str,
        expected: &[(&str, &str)],
        said: [(&str, &str); 2],
        resolved: bool,
    ) {
        let mut object = dns(
            json!([{"path": "/", "service": "cart", "port": 80}, {"path": "/x", "service": "cart", "port": 80}]),
        );
        object.metadata.creation_timestamp = Some(Time(created.parse().unwrap()));
        object.metadata.annotations = Some([(RECORD.to_owned(), record.to_string())].into());
        let all = sites(
            [object.clone()].iter(),
            [ingress(namespace)].iter(),
            &Classes::default(),
            &services(),
            true,
        );
        let paths = all.hosts["shop.example.com"].paths.iter();
        let mut paths: Vec<(String, &str)> =
            paths.map(|rule| (rule.owner.to_string(), rule.path.as_str())).collect();
        paths.sort_by_key(|(_, path)| path.to_string());
        let paths: Vec<(&str, &str)> = paths.iter().map(|(owner, path)| (owner.as_str(), *path)).collect();
        assert_eq!(paths, expected, "{created}");
        let reserved = Reserved::default();
        let status = dns_status(&object, &services(), &all, &reserved, Time(jiff::Timestamp::UNIX_EPOCH));
        let found = status.subpaths.iter().map(|path| (path.path.as_str(), path.message.as_str()));
        assert_eq!(found.collect::<Vec<_>>(), said, "{created}");
        assert_eq!(all.names(&reserved).any(|name| name == "shop.example.com"), resolved, "{created}");
    }

    #[test]
    fn the_oldest_who_wants_a_path_has_it() {
        let dns = "DNS default/shop";
        let free = [("/", ""), ("/x", "")];
        check(("2026-01-01T00:00:00Z", json!([])), "default", &[(dns, "/"), (dns, "/x")], free, false);
        let other = "it leads where Ingress default/i says, which is older";
        let late = [("Ingress default/i", "/"), (dns, "/x")];
        check(("2026-01-03T00:00:00Z", json!([])), "default", &late, [("/", other), ("/x", "")], false);
    }

    #[test]
    fn nobody_adds_paths_to_a_host_of_another_namespace() {
        let dns = "DNS default/shop";
        let other = r#"it is a host of namespace "other", by Ingress other/i"#;
        let none = [("/", other), ("/x", other)];
        check(("2026-01-03T00:00:00Z", json!([])), "other", &[("Ingress other/i", "/")], none, false);
        // Whoever may claim it has it, however late.
        let claimed =
            json!([{"claimed": true, "since": "2026-01-04T00:00:00Z", "hosts": ["shop.example.com"]}]);
        let free = [("/", ""), ("/x", "")];
        check(("2026-01-03T00:00:00Z", claimed), "other", &[(dns, "/"), (dns, "/x")], free, true);
    }

    #[test]
    fn records_of_another_api_server_claim_nothing() {
        let object = claimed(json!([{"path": "/", "service": "cart", "port": 80}]));
        for trusted in [true, false] {
            let all = sites([object.clone()].iter(), [].iter(), &Classes::default(), &services(), trusted);
            assert_eq!(all.names(&Reserved::default()).count(), usize::from(trusted));
            let troubles = dns_troubles(&object, &services(), &all, &Reserved::default());
            let said: Vec<&str> = troubles.iter().map(|(_, message)| message.as_str()).collect();
            let unclaimed = "shop.example.com is served, but resolved for nobody: who wrote this may not claim domains.minik8s.io \"shop.example.com\"";
            assert_eq!(said, [unclaimed][..usize::from(!trusted)]);
        }
    }

    #[test]
    fn paths_that_nginx_takes_for_the_same_are_there_once() {
        let mut all = Sites::default();
        let mut add = |path: &str, matching: Match| {
            all.add("h", path, matching, Backend::Missing("X", String::new()), &Owner::default());
            all.hosts["h"].paths.iter().map(|rule| rule.path.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(add("/a", Match::Prefix), "/a");
        assert_eq!(add("/a/", Match::Prefix), "/a", "the slash at the end says nothing");
        assert_eq!(add("/a", Match::Stripped), "/a");
        assert_eq!(add("/a", Match::Exact), "/a /a", "the path itself may lead elsewhere");
        assert_eq!(add("/a/", Match::Exact), "/a /a /a/");
        assert_eq!(add("/b%20c", Match::Exact), "/a /a /a/ /b c", "nginx compares what was decoded");
        assert_eq!(add("/b c", Match::Exact), "/a /a /a/ /b c");
        for bad in ["x", "/\n", "/%0a", "/%ff", &format!("/{}", "x".repeat(3000))] {
            assert_eq!(add(bad, Match::Exact), "/a /a /a/ /b c", "nginx cannot be told {bad:?}");
        }
    }
}
