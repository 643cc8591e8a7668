//! Which hosts and paths there are, and where they lead.

use super::Services;
use api::kinds::minik8s::dns::{DNS, DNSStatus, DNSSubpathStatus};
use k8s_openapi::api::networking::v1::{Ingress, IngressBackend};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The class of ingresses that are ours besides those without one.
const CLASS: &str = "minik8s";

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// To a service.
    At(SocketAddr),
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
    /// The path.
    pub path: String,
    /// How it matches.
    pub matching: Match,
    /// Where it leads.
    pub backend: Backend,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Its paths.
    pub paths: Vec<PathRule>,
    /// The secret with its certificate, (namespace, name).
    pub tls: Option<(String, String)>,
}

/// All hosts. The empty one is whatever has no other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// By name.
    pub hosts: BTreeMap<String, Site>,
    /// Where goes what fits nothing.
    pub default: Option<Backend>,
}

impl Sites {
    /// The names that lead to this node.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.hosts.keys().filter(|host| !host.is_empty() && !host.starts_with('*'))
    }
}

/// The hosts of these objects. The older object keeps a path that both want.
pub fn sites<'a>(
    dnses: impl Iterator<Item = &'a DNS>,
    ingresses: impl Iterator<Item = &'a Ingress>,
    services: &Services,
) -> Sites {
    let mut all = Sites::default();
    let mut dnses: Vec<&DNS> = dnses.collect();
    dnses.sort_by_key(|dns| age(&dns.metadata));
    for dns in dnses {
        let namespace = dns.metadata.namespace.as_deref().unwrap_or_default();
        let site = all.hosts.entry(dns.spec.host.to_ascii_lowercase()).or_default();
        for subpath in &dns.spec.subpaths {
            let backend = services.find(namespace, &subpath.service, Some(subpath.port), None);
            add(site, PathRule { path: subpath.path.clone(), matching: Match::Stripped, backend });
        }
    }
    let mut ingresses: Vec<&Ingress> = ingresses.filter(|ingress| is_ours(ingress)).collect();
    ingresses.sort_by_key(|ingress| age(&ingress.metadata));
    for ingress in ingresses {
        add_ingress(&mut all, ingress, services);
    }
    all
}

type Age = (Option<String>, Option<String>, Option<String>);

fn age(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Age {
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0.to_string());
    (created, metadata.namespace.clone(), metadata.name.clone())
}

fn is_ours(ingress: &Ingress) -> bool {
    let class = ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.as_deref());
    class.is_none_or(|class| class == CLASS)
}

fn add(site: &mut Site, rule: PathRule) {
    let exact = |matching: Match| matching == Match::Exact;
    let taken = site
        .paths
        .iter()
        .any(|other| other.path == rule.path && exact(other.matching) == exact(rule.matching));
    // A path that nginx could not be told is left out; validation lets no such path through.
    if !taken && rule.path.starts_with('/') && !rule.path.contains(|c: char| c.is_control()) {
        site.paths.push(rule);
    }
}

fn add_ingress(all: &mut Sites, ingress: &Ingress, services: &Services) {
    let Some(spec) = &ingress.spec else { return };
    let namespace = ingress.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(backend) = &spec.default_backend {
        all.default.get_or_insert_with(|| backend_of(namespace, backend, services));
    }
    for rule in spec.rules.iter().flatten() {
        let host = rule.host.as_deref().unwrap_or_default().to_ascii_lowercase();
        let site = all.hosts.entry(host).or_default();
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            let matching = if path.path_type == "Exact" { Match::Exact } else { Match::Prefix };
            let backend = backend_of(namespace, &path.backend, services);
            add(
                site,
                PathRule { path: path.path.clone().unwrap_or_else(|| "/".to_owned()), matching, backend },
            );
        }
    }
    for tls in spec.tls.iter().flatten() {
        let Some(secret) = &tls.secret_name else { continue };
        for host in tls.hosts.iter().flatten() {
            if let Some(site) = all.hosts.get_mut(&host.to_ascii_lowercase()) {
                site.tls.get_or_insert_with(|| (namespace.to_owned(), secret.clone()));
            }
        }
    }
}

fn backend_of(namespace: &str, backend: &IngressBackend, services: &Services) -> Backend {
    let Some(service) = &backend.service else {
        return Backend::Missing("Unsupported", "only services can be backends".to_owned());
    };
    let port = service.port.as_ref();
    services.find(
        namespace,
        &service.name,
        port.and_then(|port| port.number),
        port.and_then(|port| port.name.as_deref()),
    )
}

/// What a DNS object's status should say. The time of a condition that stays is kept.
pub fn dns_status(dns: &DNS, services: &Services, now: Time) -> DNSStatus {
    let namespace = dns.metadata.namespace.as_deref().unwrap_or_default();
    let mut trouble: Option<(&'static str, String)> = None;
    let mut subpaths = Vec::new();
    for subpath in &dns.spec.subpaths {
        let (cluster_ip, message) = match services.find(namespace, &subpath.service, Some(subpath.port), None)
        {
            Backend::At(address) => (address.ip().to_string(), String::new()),
            Backend::Missing(reason, message) => {
                trouble.get_or_insert((reason, format!("{}: {message}", subpath.path)));
                (String::new(), message)
            }
        };
        subpaths.push(DNSSubpathStatus { path: subpath.path.clone(), cluster_ip, message });
    }
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

    fn services() -> Services {
        let service = json!({"metadata": {"namespace": "default", "name": "cart"},
            "spec": {"clusterIP": "10.96.0.5", "ports": [{"name": "http", "port": 80}]}});
        Services::new([serde_json::from_value(service).unwrap()].iter())
    }

    #[test]
    fn a_dns_object_says_what_is_missing_and_heals() {
        let now = Time(jiff::Timestamp::UNIX_EPOCH);
        let mut object = dns(json!([
            {"path": "/cart", "service": "cart", "port": 80},
            {"path": "/pay", "service": "pay", "port": 80},
            {"path": "/old", "service": "cart", "port": 81}]));
        let status = dns_status(&object, &services(), now.clone());
        let ready = &status.conditions[0];
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "ServiceNotFound"));
        assert_eq!(ready.message, "/pay: service \"pay\" not found");
        let messages: Vec<&str> = status.subpaths.iter().map(|subpath| subpath.message.as_str()).collect();
        assert_eq!(messages, ["", "service \"pay\" not found", "service \"cart\" has no port 81"]);

        object.status = status;
        object.spec.subpaths.truncate(1);
        let later = Time(jiff::Timestamp::from_second(60).unwrap());
        let healed = dns_status(&object, &services(), later.clone());
        assert_eq!(
            (healed.conditions[0].status.as_str(), &healed.conditions[0].last_transition_time),
            ("True", &later)
        );
        object.status = healed.clone();
        let latest = Time(jiff::Timestamp::from_second(120).unwrap());
        assert_eq!(dns_status(&object, &services(), latest), healed, "nothing changes, not even the time");
    }

    #[test]
    fn the_first_who_wants_a_path_has_it() {
        let first = dns(json!([{"path": "/", "service": "cart", "port": 80}]));
        let ingress: Ingress = serde_json::from_value(json!({"metadata": {"namespace": "default", "name": "i"}, "spec": {
            "tls": [{"hosts": ["shop.example.com"], "secretName": "cert"}],
            "rules": [{"host": "shop.example.com", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "pay", "port": {"number": 80}}}},
                {"path": "/x", "pathType": "Exact", "backend": {"service": {"name": "cart", "port": {"name": "http"}}}}]}}]}}))
        .unwrap();
        let all = sites([first].iter(), [ingress].iter(), &services());
        let site = &all.hosts["shop.example.com"];
        assert_eq!(site.tls, Some(("default".to_owned(), "cert".to_owned())));
        let at = Backend::At("10.96.0.5:80".parse().unwrap());
        let expected = [
            PathRule { path: "/".into(), matching: Match::Stripped, backend: at.clone() },
            PathRule { path: "/x".into(), matching: Match::Exact, backend: at },
        ];
        assert_eq!(site.paths, expected);
    }
}
