//! Ingresses: which are ours, what they lead to, and what is said of them.

use super::{Backend, Match, Owner, Reserved, Services, Sites, Troubles};
use api::kinds::networking::ingress::CLASS_ANNOTATION;
use api::kinds::networking::ingress_class::{OWN_CLASS, OWN_CONTROLLER};
use k8s_openapi::api::networking::v1::{
    Ingress, IngressBackend, IngressClass, IngressLoadBalancerIngress, IngressSpec,
};
use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

/// The classes that are ours.
#[derive(Clone, Debug)]
pub struct Classes(HashSet<String>);

impl Default for Classes {
    fn default() -> Self {
        Classes::new(std::iter::empty())
    }
}

impl Classes {
    /// Those that name us as their controller, and the one that is called after us.
    pub fn new<'a>(classes: impl Iterator<Item = &'a IngressClass>) -> Classes {
        let ours = classes.filter(|class| {
            class.spec.as_ref().and_then(|spec| spec.controller.as_deref()) == Some(OWN_CONTROLLER)
        });
        let names = ours.filter_map(|class| class.metadata.name.clone());
        Classes(names.chain([OWN_CLASS.to_owned()]).collect())
    }

    /// Whether an ingress is ours: of one of these classes, or of none.
    pub fn have(&self, ingress: &Ingress) -> bool {
        let class = ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.as_ref());
        let older = ingress.metadata.annotations.as_ref().and_then(|all| all.get(CLASS_ANNOTATION));
        class.or(older).is_none_or(|class| self.0.contains(class))
    }
}

/// Adds what an ingress has to say.
pub(super) fn add(all: &mut Sites, ingress: &Ingress, owner: &Owner, services: &Services) {
    let Some(spec) = &ingress.spec else { return };
    let namespace = owner.namespace.as_str();
    for rule in spec.rules.iter().flatten() {
        let host = lower(rule.host.as_deref());
        if !all.has_host(&host, owner) {
            continue;
        }
        all.hosts.entry(host.clone()).or_default();
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            let matching = if path.path_type == "Exact" { Match::Exact } else { Match::Prefix };
            let backend = backend_of(namespace, &path.backend, services);
            all.add(&host, path.path.as_deref().unwrap_or("/"), matching, backend, owner);
        }
    }
    if let Some(backend) = &spec.default_backend {
        let backend = backend_of(namespace, backend, services);
        // Besides its own hosts those that nobody names; never those of others.
        for host in own_hosts(spec).into_iter().chain([String::new()]) {
            all.add_default(host, backend.clone(), owner);
        }
    }
    for host in own_hosts(spec) {
        if let Some(secret) = secret_of(spec, &host).filter(|_| all.has_host(&host, owner)) {
            let site = all.hosts.entry(host).or_default();
            site.tls.get_or_insert_with(|| (namespace.to_owned(), secret.to_owned()));
        }
    }
}

fn lower(host: Option<&str>) -> String {
    host.unwrap_or_default().to_ascii_lowercase()
}

/// The hosts that may have its certificates and its default backend: those of its rules, and those that it names for
/// TLS and leads to its default backend.
pub(super) fn own_hosts(spec: &IngressSpec) -> BTreeSet<String> {
    let ruled = spec.rules.iter().flatten().map(|rule| lower(rule.host.as_deref()));
    let named = spec.tls.iter().flatten().flat_map(|tls| tls.hosts.iter().flatten());
    let named = named.filter(|_| spec.default_backend.is_some()).map(|host| lower(Some(host)));
    ruled.chain(named).collect()
}

/// The Secret with a host's certificate: one that names the host, before one that names all of its neighbours, before
/// one that names nobody and is for all.
fn secret_of<'a>(spec: &'a IngressSpec, host: &str) -> Option<&'a str> {
    let neighbours = host.split_once('.').map(|(_, domain)| format!("*.{domain}"));
    let find = |fits: &dyn Fn(&[String]) -> bool| {
        let mut entries = spec.tls.iter().flatten();
        let found =
            entries.find(|tls| tls.secret_name.is_some() && fits(tls.hosts.as_deref().unwrap_or_default()));
        found.and_then(|tls| tls.secret_name.as_deref())
    };
    let names = |hosts: &[String], name: &str| hosts.iter().any(|host| host.eq_ignore_ascii_case(name));
    find(&|hosts| names(hosts, host))
        .or_else(|| find(&|hosts| neighbours.as_ref().is_some_and(|name| names(hosts, name))))
        .or_else(|| find(&|hosts| hosts.is_empty()))
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

/// What is wrong with an ingress. `certificate` says what is wrong with a Secret of its namespace.
pub fn ingress_troubles(
    ingress: &Ingress,
    services: &Services,
    sites: &Sites,
    reserved: &Reserved,
    certificate: impl Fn(&str) -> Option<String>,
) -> Troubles {
    let Some(spec) = &ingress.spec else { return Troubles::new() };
    let owner = Owner::of("Ingress", &ingress.metadata);
    let namespace = owner.namespace.as_str();
    let paths = spec.rules.iter().flatten().flat_map(|rule| rule.http.iter().flat_map(|http| &http.paths));
    let backends = spec.default_backend.iter().chain(paths.map(|path| &path.backend));
    let missing = backends.filter_map(|backend| match backend_of(namespace, backend, services) {
        Backend::Missing(reason, message) => Some((reason, message)),
        Backend::At(_) | Backend::Among(..) => None,
    });
    let of_hosts = own_hosts(spec);
    let of_hosts = of_hosts.iter().filter_map(|host| sites.trouble_of_host(host, &owner, reserved));
    let taken =
        sites.taken_from(&owner).map(|(place, (reason, message))| (*reason, format!("{place}: {message}")));
    let unusable = spec.tls.iter().flatten().filter_map(|tls| {
        let message = match &tls.secret_name {
            Some(name) => format!("secret \"{name}\": {}", certificate(name)?),
            None => "spec.tls: no secretName is given".to_owned(),
        };
        Some(("CertificateNotUsed", message))
    });
    missing.chain(of_hosts).chain(taken).chain(unusable).collect()
}

/// Where an ingress is reached: every node serves it.
pub fn ingress_points(nodes: &[IpAddr]) -> Vec<IngressLoadBalancerIngress> {
    let point = |address: &IpAddr| IngressLoadBalancerIngress {
        ip: Some(address.to_string()),
        ..IngressLoadBalancerIngress::default()
    };
    nodes.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ingress(metadata: Value, spec: Value) -> Ingress {
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn others_classes_are_left_to_others() {
        let class = |name: &str, controller: &str| -> IngressClass {
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"controller": controller}}))
                .unwrap()
        };
        let classes = [class("edge", OWN_CONTROLLER), class("nginx", "k8s.io/ingress-nginx")];
        let classes = Classes::new(classes.iter());
        let annotated = |class: &str| json!({"annotations": {CLASS_ANNOTATION: class}});
        let check = |metadata: Value, spec: Value, expected: bool| {
            assert_eq!(classes.have(&ingress(metadata.clone(), spec.clone())), expected, "{metadata} {spec}");
        };
        check(json!({}), json!({}), true);
        check(json!({}), json!({"ingressClassName": "minik8s"}), true);
        check(json!({}), json!({"ingressClassName": "edge"}), true);
        check(json!({}), json!({"ingressClassName": "nginx"}), false);
        check(json!({}), json!({"ingressClassName": "unknown"}), false);
        check(annotated("nginx"), json!({}), false);
        check(annotated("edge"), json!({}), true);
    }

    #[test]
    fn what_is_wrong_is_said_once() {
        let path = |service: &str| json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"number": 80}}}});
        let object = ingress(
            json!({"namespace": "ns", "name": "late"}),
            json!({"rules": [{"host": "localhost", "http": {"paths": [path("pay"), path("pay")]}}],
                "tls": [{"secretName": "good"}, {"secretName": "bad"}, {"hosts": ["localhost"]}]}),
        );
        let mut sites = Sites::default();
        let first =
            Owner::of("DNS", &serde_json::from_value(json!({"namespace": "ns", "name": "first"})).unwrap());
        sites.add("localhost", "/", Match::Prefix, Backend::Missing("X", String::new()), &first);
        add(&mut sites, &object, &Owner::of("Ingress", &object.metadata), &Services::default());
        let certificate = |name: &str| (name == "bad").then(|| "it has no tls.key".to_owned());
        let expected = [
            ("CertificateNotUsed", "secret \"bad\": it has no tls.key".to_owned()),
            ("CertificateNotUsed", "spec.tls: no secretName is given".to_owned()),
            (
                "HostReserved",
                "localhost is a name of the cluster, of a node or of a registry, and does not lead here"
                    .to_owned(),
            ),
            ("PathTaken", "localhost/: it leads where DNS ns/first says, which is older".to_owned()),
            ("ServiceNotFound", "service \"pay\" not found".to_owned()),
        ];
        let found =
            ingress_troubles(&object, &Services::default(), &sites, &Reserved::default(), certificate);
        assert_eq!(found, expected.into());
    }

    #[test]
    fn a_default_backend_is_for_its_own_hosts() {
        let to = |service: &str| json!({"service": {"name": service, "port": {"number": 80}}});
        let rule = |host: &str| json!({"host": host, "http": {"paths": [{"path": "/x", "pathType": "Prefix", "backend": to("x")}]}});
        let mut all = Sites::default();
        // From the oldest to the youngest.
        for (namespace, spec) in [
            ("a", json!({"defaultBackend": to("a"), "rules": [rule("a.example"), rule("both.example")]})),
            ("b", json!({"rules": [rule("b.example")]})),
            (
                "c",
                json!({"defaultBackend": to("c"), "rules": [rule("both.example")], "tls": [{"hosts": ["c.example"]}]}),
            ),
            ("d", json!({"defaultBackend": to("d")})),
            ("e", json!({"defaultBackend": to("e"), "rules": []})),
        ] {
            let object = ingress(json!({"namespace": namespace, "name": "i"}), spec);
            add(&mut all, &object, &Owner::of("Ingress", &object.metadata), &Services::default());
        }
        let missing =
            |name: &str| Backend::Missing("ServiceNotFound", format!("service \"{name}\" not found"));
        let found: Vec<(&str, Option<Backend>)> = all
            .hosts
            .iter()
            .map(|(host, site)| (host.as_str(), site.default.clone().map(|it| it.0)))
            .collect();
        let expected = [
            ("", Some("a")),
            ("a.example", Some("a")),
            ("b.example", None),
            ("both.example", Some("a")),
            ("c.example", Some("c")),
        ];
        assert_eq!(found, expected.map(|(host, default)| (host, default.map(missing))));
        let of = |namespace: &str| {
            Owner::of("Ingress", &ingress(json!({"namespace": namespace, "name": "i"}), json!({})).metadata)
        };
        let late = of("c");
        let told: Vec<(&str, String)> =
            all.taken_from(&late).map(|(place, (_, said))| (place, said.clone())).collect();
        let older = || "it leads where Ingress a/i says, which is older".to_owned();
        let expected = [
            ("both.example/x", older()),
            ("default backend of all other hosts", older()),
            ("default backend of both.example", older()),
        ];
        assert_eq!(told, expected, "who comes later is told");
    }

    #[test]
    fn the_certificate_that_fits_best() {
        let rule = |host: &str| json!({"host": host, "http": {"paths": []}});
        let tls = |hosts: &[&str], secret: &str| json!({"hosts": hosts, "secretName": secret});
        let check = |spec: Value, expected: &[(&str, Option<&str>)]| {
            let mut all = Sites::default();
            let object = ingress(json!({"namespace": "ns"}), spec.clone());
            add(&mut all, &object, &Owner::of("Ingress", &object.metadata), &Services::default());
            let found: Vec<(&str, Option<&str>)> = all
                .hosts
                .iter()
                .map(|(host, site)| (host.as_str(), site.tls.as_ref().map(|(_, name)| name.as_str())))
                .collect();
            assert_eq!(found, expected, "{spec}");
        };
        let hosts = [rule("a.example.com"), rule("B.example.com"), rule("c.example.org")];
        check(
            json!({"rules": hosts, "tls": [tls(&["*.example.com"], "all"), tls(&["b.Example.com"], "b")]}),
            &[("a.example.com", Some("all")), ("b.example.com", Some("b")), ("c.example.org", None)],
        );
        check(
            json!({"rules": [rule("a.example.com"), {"http": {"paths": []}}], "tls": [tls(&[], "any")]}),
            &[("", Some("any")), ("a.example.com", Some("any"))],
        );
        check(
            json!({"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}, "tls": [tls(&["a.example.com"], "a")]}),
            &[("", None), ("a.example.com", Some("a"))],
        );
        // Somebody else's host is not given a certificate.
        check(
            json!({"rules": [rule("a.example.com")], "tls": [tls(&["b.example.com"], "b")]}),
            &[("a.example.com", None)],
        );
    }
}
