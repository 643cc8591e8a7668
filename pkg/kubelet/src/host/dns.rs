//! The names of a pod: its host name, `/etc/hosts`, `/etc/resolv.conf`.

use super::Dns;
use k8s_openapi::api::core::v1::{HostAlias, Pod, PodDNSConfigOption};

const LONGEST_LABEL: usize = 63;
const LONGEST_HOST_NAME: usize = 64;
const MOST_SERVERS: usize = 3;
const MOST_SEARCHES: usize = 32;

/// The host name of a pod, and its domain if it has one.
pub(super) fn host_name(pod: &Pod, cluster_domain: &str) -> (String, Option<String>) {
    let Some(spec) = &pod.spec else { return (String::new(), None) };
    if let Some(name) = &spec.hostname_override {
        return (name.clone(), None);
    }
    let mut name = spec.hostname.clone().unwrap_or_else(|| pod.metadata.name.clone().unwrap_or_default());
    if name.len() > LONGEST_LABEL {
        // Names of objects are ASCII.
        name.truncate(LONGEST_LABEL);
        name = name.trim_end_matches(['-', '.']).to_owned();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let domain = spec.subdomain.as_ref().filter(|subdomain| !subdomain.is_empty());
    (name, domain.map(|subdomain| format!("{subdomain}.{namespace}.svc.{cluster_domain}")))
}

/// What the kernel is told that its name is: with the domain, if the pod wants that.
pub(super) fn kernel_name(pod: &Pod, cluster_domain: &str) -> Result<String, String> {
    let (name, domain) = host_name(pod, cluster_domain);
    let is_full = pod.spec.as_ref().is_some_and(|spec| spec.set_hostname_as_fqdn == Some(true));
    let Some(domain) = domain.filter(|_| is_full) else { return Ok(name) };
    let full = format!("{name}.{domain}");
    match full.len() <= LONGEST_HOST_NAME {
        true => Ok(full),
        false => Err(format!(
            "failed to construct FQDN from Pod hostname and cluster domain, FQDN {full} is too long ({LONGEST_HOST_NAME} characters is the max, {} characters requested)",
            full.len()
        )),
    }
}

/// The text of `/etc/hosts`.
pub(super) fn hosts(addresses: &[String], name: &str, domain: Option<&str>, aliases: &[HostAlias]) -> String {
    let mut text = String::from("# Kubernetes-managed hosts file.\n");
    for line in [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet",
        "fe00::0\tip6-mcastprefix",
        "fe00::1\tip6-allnodes",
        "fe00::2\tip6-allrouters",
    ] {
        text.push_str(line);
        text.push('\n');
    }
    for address in addresses {
        match domain {
            Some(domain) => text.push_str(&format!("{address}\t{name}.{domain}\t{name}\n")),
            None => text.push_str(&format!("{address}\t{name}\n")),
        }
    }
    text.push_str(&alias_lines(aliases));
    text
}

/// The node's `/etc/hosts` with a pod's aliases, for pods in the node's network.
pub(super) fn node_hosts(node: &str, aliases: &[HostAlias]) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{node}{}", alias_lines(aliases))
}

fn alias_lines(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        text.push_str(&format!("{}\t{}\n", alias.ip, alias.hostnames.clone().unwrap_or_default().join("\t")));
    }
    text
}

/// What a resolver is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Resolver {
    servers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
}

impl Resolver {
    /// From the text of a resolv.conf.
    pub fn parse(text: &str) -> Resolver {
        let mut resolver = Resolver::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => resolver.servers.extend(words.next().map(Into::into)),
                Some("search" | "domain") => resolver.searches = words.map(Into::into).collect(),
                Some("options") => resolver.options = words.map(Into::into).collect(),
                _ => {}
            }
        }
        resolver
    }

    /// As a resolv.conf.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.searches.is_empty() {
            text.push_str(&format!("search {}\n", self.searches.join(" ")));
        }
        for server in &self.servers {
            text.push_str(&format!("nameserver {server}\n"));
        }
        if !self.options.is_empty() {
            text.push_str(&format!("options {}\n", self.options.join(" ")));
        }
        text
    }
}

/// What a pod's resolver is told, by its DNS policy.
pub(super) fn resolver(pod: &Pod, dns: &Dns, node: &Resolver) -> Resolver {
    let Some(spec) = &pod.spec else { return node.clone() };
    let is_host = spec.host_network == Some(true);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut resolver = match spec.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        "None" => Resolver::default(),
        "ClusterFirst" if is_host => node.clone(),
        "ClusterFirst" | "ClusterFirstWithHostNet" if !dns.servers.is_empty() => {
            let domain = &dns.domain;
            let mut searches = Vec::new();
            if !domain.is_empty() {
                searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
            }
            for search in &node.searches {
                if !searches.contains(search) {
                    searches.push(search.clone());
                }
            }
            Resolver { servers: dns.servers.clone(), searches, options: vec!["ndots:5".into()] }
        }
        _ => node.clone(),
    };
    if let Some(own) = &spec.dns_config {
        for server in own.nameservers.iter().flatten() {
            push_new(&mut resolver.servers, server);
        }
        for search in own.searches.iter().flatten() {
            push_new(&mut resolver.searches, search);
        }
        own.options.iter().flatten().for_each(|option| set_option(&mut resolver.options, option));
    }
    resolver.servers.truncate(MOST_SERVERS);
    resolver.searches.truncate(MOST_SEARCHES);
    resolver
}

fn push_new(list: &mut Vec<String>, item: &str) {
    if !list.iter().any(|known| known == item) {
        list.push(item.to_owned());
    }
}

fn set_option(options: &mut Vec<String>, option: &PodDNSConfigOption) {
    let Some(name) = &option.name else { return };
    let text = match option.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{name}:{value}"),
        _ => name.clone(),
    };
    options.retain(|known| known.split(':').next() != Some(name));
    options.push(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = json!([]);
        serde_json::from_value(json!({"metadata": {"name": "web-0", "namespace": "shop"}, "spec": spec}))
            .expect("a pod")
    }

    #[test]
    fn dns_policies() {
        let node = Resolver::parse("search corp.example\nnameserver 192.0.2.53\noptions edns0\n");
        let dns =
            Dns { servers: vec!["10.96.0.10".into()], domain: "cluster.local".into(), ..Dns::default() };
        let cluster = "search shop.svc.cluster.local svc.cluster.local cluster.local corp.example\nnameserver 10.96.0.10\noptions ndots:5\n";
        let own = "search corp.example\nnameserver 192.0.2.53\noptions edns0\n";
        for (spec, expected) in [
            (json!({}), cluster),
            (json!({"dnsPolicy": "Default"}), own),
            (json!({"hostNetwork": true}), own),
            (json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}), cluster),
            (
                json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": ["a"],
                    "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}]}}),
                "search a\nnameserver 1.1.1.1\noptions ndots:2 rotate\n",
            ),
        ] {
            assert_eq!(resolver(&pod(spec.clone()), &dns, &node).text(), expected, "{spec}");
        }
    }

    #[test]
    fn host_names() {
        let check = |spec: serde_json::Value, name: &str, domain: Option<&str>, kernel: &str| {
            let pod = pod(spec.clone());
            let found = host_name(&pod, "cluster.local");
            assert_eq!((found.0.as_str(), found.1.as_deref()), (name, domain), "{spec}");
            assert_eq!(kernel_name(&pod, "cluster.local").as_deref(), Ok(kernel), "{spec}");
        };
        check(json!({}), "web-0", None, "web-0");
        let domain = Some("db.shop.svc.cluster.local");
        check(json!({"hostname": "a", "subdomain": "db"}), "a", domain, "a");
        // The file of names knows it by its short name too.
        let full = json!({"hostname": "a", "subdomain": "db", "setHostnameAsFQDN": true});
        check(full, "a", domain, "a.db.shop.svc.cluster.local");
        check(json!({"hostname": "a", "setHostnameAsFQDN": true}), "a", None, "a");
        let long = json!({"hostname": "a".repeat(60), "subdomain": "db", "setHostnameAsFQDN": true});
        assert!(kernel_name(&pod(long), "cluster.local").is_err_and(|error| error.contains("is too long")));
    }

    #[test]
    fn the_hosts_file_knows_the_pod_and_its_aliases() {
        let alias = HostAlias { ip: "10.1.1.1".into(), hostnames: Some(vec!["x".into(), "y".into()]) };
        let text = hosts(&["10.0.0.2".into()], "web-0", Some("db.shop"), &[alias]);
        assert!(text.contains("10.0.0.2\tweb-0.db.shop\tweb-0\n"), "{text}");
        assert!(text.ends_with("# Entries added by HostAliases.\n10.1.1.1\tx\ty\n"), "{text}");
    }
}
