//! Ways to pods: services, what is behind them, and who may use them.

use super::page::{Page, items, joined, or, shown, text};
use serde_json::Value;

pub fn service(service: &Value, slices: &Value, page: &mut Page) {
    let spec = &service["spec"];
    page.opening(service);
    page.field("Selector", &api::printing::labels(spec.get("selector")));
    page.field("Type", text(spec, "/type"));
    page.given("IP Family Policy", spec.get("ipFamilyPolicy"));
    page.field("IP Families", or(&joined(&spec["ipFamilies"], ","), "<none>"));
    page.field("IP", text(spec, "/clusterIP"));
    page.field("IPs", or(&joined(&spec["clusterIPs"], ","), "<none>"));
    if spec["externalIPs"].is_array() {
        page.field("External IPs", &joined(&spec["externalIPs"], ","));
    }
    page.given("Desired LoadBalancer IP", spec.get("loadBalancerIP"));
    page.given("External Name", spec.get("externalName"));
    let ingress: Vec<String> = items(service, "/status/loadBalancer/ingress")
        .map(|point| match (text(point, "/ip"), text(point, "/ipMode")) {
            ("", _) => text(point, "/hostname").to_owned(),
            (ip, "") => ip.to_owned(),
            (ip, mode) => format!("{ip} ({mode})"),
        })
        .collect();
    if !ingress.is_empty() {
        page.field("LoadBalancer Ingress", &ingress.join(", "));
    }
    for port in items(spec, "/ports") {
        let name = or(text(port, "/name"), "<unset>");
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        page.line(&format!("Port:\t{name}\t{}/{protocol}", shown(&port["port"])));
        let target = if port["targetPort"].is_null() { &port["port"] } else { &port["targetPort"] };
        page.line(&format!("TargetPort:\t{}/{protocol}", shown(target)));
        if port["nodePort"].is_i64() {
            page.line(&format!("NodePort:\t{name}\t{}/{protocol}", shown(&port["nodePort"])));
        }
        page.field("Endpoints", &endpoints_of(slices, text(port, "/name")));
    }
    page.field("Session Affinity", spec["sessionAffinity"].as_str().unwrap_or("None"));
    page.given("External Traffic Policy", spec.get("externalTrafficPolicy"));
    page.given("Internal Traffic Policy", spec.get("internalTrafficPolicy"));
    page.given("HealthCheck NodePort", spec.get("healthCheckNodePort").filter(|port| **port != 0));
    if spec["loadBalancerSourceRanges"].is_array() {
        page.field("LoadBalancer Source Ranges", &joined(&spec["loadBalancerSourceRanges"], ","));
    }
    page.given("Traffic Distribution", spec.get("trafficDistribution"));
}

/// The addresses behind a port that are ready; a few of them, and how many more.
fn endpoints_of(slices: &Value, port: &str) -> String {
    const SHOWN: usize = 3;
    if items(slices, "/items").next().is_none() {
        return "<none>".to_owned();
    }
    let mut found = Vec::new();
    for slice in items(slices, "/items") {
        let address = |endpoint: &Value| text(endpoint, "/addresses/0").to_owned();
        let ready = || items(slice, "/endpoints").filter(|endpoint| endpoint["conditions"]["ready"] != false);
        if items(slice, "/ports").next().is_none() {
            found.extend(ready().map(address));
        }
        for own in items(slice, "/ports").filter(|own| text(own, "/name") == port) {
            let number = shown(&own["port"]);
            found.extend(ready().map(address).map(|address| match address.contains(':') {
                true => format!("[{address}]:{number}"),
                false => format!("{address}:{number}"),
            }));
        }
    }
    match found.len() {
        count if count > SHOWN => format!("{} + {} more...", found[..SHOWN].join(","), count - SHOWN),
        _ => found.join(","),
    }
}

/// What is known of the services that backends name: each with its slices.
pub type Backends = std::collections::BTreeMap<String, Result<(Value, Value), String>>;

/// The services that an ingress leads to.
pub fn backends_of(ingress: &Value) -> Vec<&str> {
    let rules = items(ingress, "/spec/rules").flat_map(|rule| items(rule, "/http/paths"));
    let backends = rules.map(|path| &path["backend"]).chain([&ingress["spec"]["defaultBackend"]]);
    backends.filter_map(|backend| backend["service"]["name"].as_str()).collect()
}

pub fn ingress(object: &Value, services: &Backends, page: &mut Page) {
    let spec = &object["spec"];
    page.field("Name", text(object, "/metadata/name"));
    page.map("Labels", &object["metadata"]["labels"], "=");
    page.field("Namespace", text(object, "/metadata/namespace"));
    let mut addresses: Vec<&str> = items(object, "/status/loadBalancer/ingress")
        .map(|point| or(text(point, "/ip"), text(point, "/hostname")))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    page.field("Address", &addresses.join(","));
    page.field("Ingress Class", or(text(spec, "/ingressClassName"), "<none>"));
    let default = match &spec["defaultBackend"] {
        Value::Null => "<default>".to_owned(),
        own => backend(own, services),
    };
    page.field("Default backend", &default);
    if items(spec, "/tls").next().is_some() {
        page.line("TLS:");
    }
    for tls in items(spec, "/tls") {
        let hosts = joined(&tls["hosts"], ",");
        page.line(&match text(tls, "/secretName") {
            "" => format!("  SNI routes {hosts}"),
            secret => format!("  {secret} terminates {hosts}"),
        });
    }
    page.line("Rules:\n  Host\tPath\tBackends\n  ----\t----\t--------");
    let mut rules = items(spec, "/rules").filter(|rule| rule["http"].is_object()).peekable();
    if rules.peek().is_none() {
        page.line(&format!("  *\t*\t{default}"));
    }
    for rule in rules {
        page.line(&format!("  {}\t", or(text(rule, "/host"), "*")));
        for path in items(rule, "/http/paths") {
            page.line(&format!("    \t{} \t{}", text(path, "/path"), backend(&path["backend"], services)));
        }
    }
    page.annotations("Annotations", &object["metadata"]["annotations"]);
}

fn backend(backend: &Value, services: &Backends) -> String {
    let resource = &backend["resource"];
    if resource.is_object() {
        let group = or(text(resource, "/apiGroup"), "<none>");
        return format!(
            "APIGroup: {group}, Kind: {}, Name: {}",
            text(resource, "/kind"),
            text(resource, "/name")
        );
    }
    let (name, port) = (text(backend, "/service/name"), &backend["service"]["port"]);
    let wanted = if port["number"].is_i64() { &port["number"] } else { &port["name"] };
    let endpoints = match services.get(name) {
        Some(Ok((service, slices))) => {
            let own =
                items(service, "/spec/ports").find(|own| own["port"] == *wanted || own["name"] == *wanted);
            endpoints_of(slices, own.map_or("", |own| text(own, "/name")))
        }
        Some(Err(error)) => format!("<error: {error}>"),
        None => "<none>".to_owned(),
    };
    format!("{name}:{} ({endpoints})", shown(wanted))
}

pub fn ingress_class(object: &Value, page: &mut Page) {
    page.opening(object);
    page.field("Controller", text(object, "/spec/controller"));
    let parameters = &object["spec"]["parameters"];
    if parameters.is_object() {
        page.line("Parameters:");
        for (title, field) in [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")] {
            if let Some(value) = parameters[field].as_str() {
                page.line(&format!("  {title}:\t{value}"));
            }
        }
    }
}

pub fn service_range(object: &Value, page: &mut Page) {
    page.opening(object);
    page.field("CIDRs", &joined(&object["spec"]["cidrs"], ", "));
    if items(object, "/status/conditions").next().is_some() {
        page.line("Status:");
        page.timed_conditions(object);
    }
}

pub fn address(object: &Value, page: &mut Page) {
    page.opening(object);
    let parent = &object["spec"]["parentRef"];
    if parent.is_object() {
        page.line("Parent Reference:");
        for (title, field) in
            [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")]
        {
            page.line(&format!("  {title}:\t{}", parent[field].as_str().unwrap_or_default()));
        }
    }
}

pub fn endpoints(object: &Value, page: &mut Page) {
    page.opening(object);
    page.line("Subsets:");
    for subset in items(object, "/subsets") {
        for (title, path) in [("Addresses", "/addresses"), ("NotReadyAddresses", "/notReadyAddresses")] {
            let all: Vec<&str> = items(subset, path).map(|address| text(address, "/ip")).collect();
            page.line(&format!("  {title}:\t{}", or(&all.join(","), "<none>")));
        }
        if items(subset, "/ports").next().is_some() {
            page.line("  Ports:\n    Name\tPort\tProtocol\n    ----\t----\t--------");
        }
        items(subset, "/ports").for_each(|own| page.line(&format!("    {}", port(own))));
        page.line("");
    }
}

fn port(port: &Value) -> String {
    let number = port.get("port").map_or_else(|| "<unset>".to_owned(), shown);
    format!("{}\t{number}\t{}", or(text(port, "/name"), "<unset>"), text(port, "/protocol"))
}

pub fn endpoint_slice(object: &Value, page: &mut Page) {
    page.opening(object);
    page.field("AddressType", text(object, "/addressType"));
    if items(object, "/ports").next().is_none() {
        page.line("Ports: <unset>");
    } else {
        page.line("Ports:\n  Name\tPort\tProtocol\n  ----\t----\t--------");
        items(object, "/ports").for_each(|own| page.line(&format!("  {}", port(own))));
    }
    let mut endpoints = items(object, "/endpoints").peekable();
    page.line(if endpoints.peek().is_none() { "Endpoints: <none>" } else { "Endpoints:" });
    for endpoint in endpoints {
        let or_unset = |field: &str| endpoint.get(field).map_or_else(|| "<unset>".to_owned(), shown);
        page.line(&format!("  - Addresses:\t{}", or(&joined(&endpoint["addresses"], ", "), "<none>")));
        let ready = endpoint["conditions"].get("ready").map_or_else(|| "<unset>".to_owned(), shown);
        page.line(&format!("    Conditions:\n      Ready:\t{ready}"));
        page.line(&format!("    Hostname:\t{}", or_unset("hostname")));
        let target = &endpoint["targetRef"];
        if target.is_object() {
            page.line(&format!("    TargetRef:\t{}/{}", text(target, "/kind"), text(target, "/name")));
        }
        page.line(&format!("    NodeName:\t{}\n    Zone:\t{}", or_unset("nodeName"), or_unset("zone")));
    }
}

pub fn policy(object: &Value, page: &mut Page) {
    let spec = &object["spec"];
    page.name(object);
    let created = text(object, "/metadata/creationTimestamp").parse::<jiff::Timestamp>().unwrap_or_default();
    let created =
        created.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %z %Z").to_string();
    page.field("Created on", &created);
    page.labels_and_annotations(object);
    page.line("Spec:");
    let pods = match api::printing::label_selector(spec.get("podSelector")).as_str() {
        "" | "<none>" => "<none> (Allowing the specific traffic to all pods in this namespace)".to_owned(),
        selector => selector.to_owned(),
    };
    page.line(&format!("  PodSelector:     {pods}"));
    let has = |kind: &str| items(spec, "/policyTypes").any(|own| own == kind);
    for (kind, list, direction, peers, restricted) in [
        ("Ingress", "/ingress", "ingress", "from", "From: <any> (traffic not restricted by source)"),
        ("Egress", "/egress", "egress", "to", "To: <any> (traffic not restricted by destination)"),
    ] {
        if !has(kind) {
            page.line(&format!("  Not affecting {direction} traffic"));
            continue;
        }
        page.line(&format!("  Allowing {direction} traffic:"));
        let rules: Vec<&Value> = items(spec, list).collect();
        if rules.is_empty() {
            page.line(&format!("    <none> (Selected pods are isolated for {direction} connectivity)"));
        }
        for (index, rule) in rules.iter().enumerate() {
            if index > 0 {
                page.line("    ----------");
            }
            rule_ports(rule, page);
            let list: Vec<&Value> = rule[peers].as_array().into_iter().flatten().collect();
            if list.is_empty() {
                page.line(&format!("    {restricted}"));
            }
            for peer in list {
                page.line(if peers == "from" { "    From:" } else { "    To:" });
                self::peer(peer, page);
            }
        }
    }
    let types = joined(&spec["policyTypes"], ", ");
    page.line(&format!("  Policy Types: {}", or(&types, "<none>")));
}

fn rule_ports(rule: &Value, page: &mut Page) {
    let mut ports = items(rule, "/ports").peekable();
    if ports.peek().is_none() {
        page.line("    To Port: <any> (traffic allowed to all ports)");
    }
    for port in ports {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let number = port.get("port").map_or_else(|| "<nil>".to_owned(), shown);
        page.line(&match port["endPort"].as_i64() {
            Some(end) => format!("    To Port Range: {number}-{end}/{protocol}"),
            None => format!("    To Port: {number}/{protocol}"),
        });
    }
}

fn peer(peer: &Value, page: &mut Page) {
    for (title, field) in [("NamespaceSelector", "namespaceSelector"), ("PodSelector", "podSelector")] {
        if peer[field].is_object() {
            page.line(&format!("      {title}: {}", api::printing::label_selector(peer.get(field))));
        }
    }
    let block = &peer["ipBlock"];
    if block.is_object() {
        page.line("      IPBlock:");
        page.line(&format!("        CIDR: {}", text(block, "/cidr")));
        page.line(&format!("        Except: {}", joined(&block["except"], ", ")));
    }
}
