//! Where a request goes: decided from objects, as the caches show them.

use super::connect::authority;
use crate::error::{ApiError, Result};
use crate::request::{Query, Target};
use crate::server::Server;
use api::{Value, object};
use serde_json::json;
use std::net::IpAddr;

/// How to speak there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// TLS, as nobody in particular.
    Https,
    /// TLS, with the certificate that kubelets know us by.
    Kubelet,
}

/// Where to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// How.
    pub scheme: Scheme,
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Place {
    /// `host:port`.
    pub fn authority(&self) -> String {
        authority((&self.host, self.port))
    }
}

/// The pod that a request is about.
pub fn pod(server: &Server, target: &Target<'_>) -> Result<Value> {
    let found = server.lookup("", "pods", target.namespace, &target.name);
    found.ok_or_else(|| ApiError::not_found(&server.kind("", "pods"), &target.name))
}

/// The node that a pod was given to; empty if to none yet.
pub fn node_name(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// The kubelet of a pod.
pub fn node_of(server: &Server, pod: &Value) -> Result<Place> {
    match node_name(pod) {
        "" => {
            let name = object::name(pod);
            Err(ApiError::bad_request(format!("pod {name} does not have a host assigned")))
        }
        name => node(server, name),
    }
}

/// The kubelet of a node.
pub fn node(server: &Server, name: &str) -> Result<Place> {
    let node = server.lookup("", "nodes", "", name);
    let node = node.ok_or_else(|| ApiError::not_found(&server.kind("", "nodes"), name))?;
    kubelet(&node, &server.config.kubelet_preferred_address_types).ok_or_else(|| {
        ApiError::internal(format!("no preferred addresses found; known addresses: {}", addresses(&node)))
    })
}

fn addresses(node: &Value) -> String {
    let known = node["status"]["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let known: Vec<String> =
        known.iter().map(|a| format!("{{{} {}}}", text(a, "type"), text(a, "address"))).collect();
    format!("[{}]", known.join(" "))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The address that comes first in the order of preference, and the port that the kubelet says it listens on.
fn kubelet(node: &Value, preferred: &[String]) -> Option<Place> {
    const PORT: u16 = 10250;
    let known = node["status"]["addresses"].as_array()?;
    let of_type = |wanted: &String| {
        known.iter().find(|address| text(address, "type") == wanted).map(|a| text(a, "address"))
    };
    let host = preferred.iter().find_map(of_type)?.to_owned();
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0).unwrap_or(PORT);
    Some(Place { scheme: Scheme::Kubelet, host, port })
}

/// The container that is meant: the one that is named, or the only one.
pub fn container(pod: &Value, wanted: &str) -> Result<String> {
    let names = |list: &str| -> Vec<String> {
        let list = pod["spec"][list].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().map(|container| text(container, "name").to_owned()).collect()
    };
    let name = object::name(pod);
    let plain = names("containers");
    let all: Vec<String> = [names("initContainers"), plain.clone(), names("ephemeralContainers")].concat();
    match (wanted, plain.as_slice()) {
        ("", [only]) => Ok(only.clone()),
        ("", []) => Err(ApiError::bad_request(format!("a container name must be specified for pod {name}"))),
        ("", _) => {
            let all = all.join(" ");
            Err(ApiError::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{all}]"
            )))
        }
        (wanted, _) if all.iter().any(|known| known == wanted) => Ok(wanted.to_owned()),
        (wanted, _) => Err(ApiError::bad_request(format!("container {wanted} is not valid for pod {name}"))),
    }
}

/// The kubelet's path of a log.
pub fn log(pod: &Value, container: &str, query: &Query) -> String {
    let mut wanted = Wanted::default();
    for name in ["follow", "previous", "timestamps"] {
        if query.flag(name) {
            wanted.add(name, "true");
        }
    }
    for name in ["sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream"] {
        if let Some(value) = query.get(name) {
            wanted.add(name, value);
        }
    }
    let path = ["containerLogs", object::namespace(pod), object::name(pod), container].map(escaped).join("/");
    format!("/{path}{}", wanted.0)
}

/// The kubelet's path of an exec, attach or port-forward.
pub fn stream(pod: &Value, subresource: &str, query: &Query) -> Result<String> {
    let mut wanted = Wanted::default();
    if subresource == "portforward" {
        let ports: Vec<&str> = query.all("ports").filter(|port| !port.is_empty()).collect();
        if !ports.is_empty() {
            wanted.add("port", &ports.join(","));
        }
        let path = ["portForward", object::namespace(pod), object::name(pod)].map(escaped).join("/");
        return Ok(format!("/{path}{}", wanted.0));
    }
    let container = container(pod, query.get("container").unwrap_or_default())?;
    for (ours, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if query.flag(ours) {
            wanted.add(theirs, "1");
        }
    }
    for word in query.all("command").filter(|_| subresource == "exec") {
        wanted.add("command", word);
    }
    let path = [subresource, object::namespace(pod), object::name(pod), &container].map(escaped).join("/");
    Ok(format!("/{path}{}", wanted.0))
}

/// What somebody wants who connects, as the API's own kind of it: what others are asked about.
pub fn connect_options(target: &Target<'_>, query: &Query) -> Value {
    let resource = match target.resource {
        "pods" => "Pod",
        "services" => "Service",
        _ => "Node",
    };
    let kind = match target.subresource {
        "exec" => "PodExecOptions".to_owned(),
        "attach" => "PodAttachOptions".to_owned(),
        "portforward" => "PodPortForwardOptions".to_owned(),
        _ => format!("{resource}ProxyOptions"),
    };
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    for name in ["stdin", "stdout", "stderr", "tty"].into_iter().filter(|name| query.flag(name)) {
        options[name] = true.into();
    }
    for name in ["container", "path"] {
        if let Some(text) = query.get(name) {
            options[name] = text.into();
        }
    }
    let command: Vec<&str> = query.all("command").collect();
    if target.subresource == "exec" {
        options["command"] = json!(command);
    }
    let ports: Vec<u16> =
        query.all("ports").flat_map(|ports| ports.split(',')).filter_map(|port| port.parse().ok()).collect();
    if !ports.is_empty() {
        options["ports"] = json!(ports);
    }
    options
}

/// A query string in the making.
#[derive(Default)]
struct Wanted(String);

impl Wanted {
    fn add(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&escaped(value));
    }
}

/// Text as it may stand in a path, a query, or the name of a header.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte))
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// `name`, `name:port` or `scheme:name:port`.
fn split(id: &str) -> Option<(Scheme, &str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme, name, port] => (*scheme, *name, *port),
        _ => return None,
    };
    let scheme = match scheme {
        "" | "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    (!name.is_empty()).then_some((scheme, name, port))
}

/// Where `nodes/…/proxy` goes: the kubelet, or another port of the node.
pub fn node_place(server: &Server, target: &Target<'_>) -> Result<Place> {
    let invalid = || ApiError::bad_request(format!("invalid node request {:?}", target.name));
    let (scheme, name, port) = split(&target.name).ok_or_else(invalid)?;
    let kubelet = node(server, name)?;
    // Before its port: both are the node's to say, and our certificate is shown there.
    if kubelet.host.parse().is_ok_and(|ip| !is_reachable(ip)) || kubelet.host == "localhost" {
        return Err(ApiError::bad_request("address not allowed"));
    }
    if port.is_empty() || port.parse() == Ok(kubelet.port) {
        return Ok(kubelet);
    }
    Ok(Place { scheme, port: port.parse().map_err(|_| invalid())?, ..kubelet })
}

/// Where `pods/…/proxy` goes: a port of the pod, by default the first that it names.
pub fn pod_place(server: &Server, target: &Target<'_>) -> Result<Place> {
    let invalid = || ApiError::bad_request(format!("invalid pod request {:?}", target.name));
    let (scheme, name, port) = split(&target.name).ok_or_else(invalid)?;
    let pod = pod(server, &Target { name: name.into(), ..target.clone() })?;
    let host = text(&pod["status"], "podIP").to_owned();
    if !host.parse().is_ok_and(is_reachable) {
        return Err(ApiError::bad_request("address not allowed"));
    }
    let port = match port {
        "" => first_port(&pod).unwrap_or(if scheme == Scheme::Https { 443 } else { 80 }),
        port => port.parse().map_err(|_| invalid())?,
    };
    Ok(Place { scheme, host, port })
}

fn first_port(pod: &Value) -> Option<u16> {
    let containers = pod["spec"]["containers"].as_array()?;
    let ports = containers
        .iter()
        .filter_map(|container| container["ports"].as_array()?.first()?["containerPort"].as_u64());
    ports.into_iter().next().and_then(|port| u16::try_from(port).ok())
}

/// Nobody may reach the server's own machine, or what is next to it, through it.
fn is_reachable(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !is_local && !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast()
}

/// Where `services/…/proxy` goes: a pod behind the service.
pub fn service_place(server: &Server, target: &Target<'_>) -> Result<Place> {
    let invalid = || ApiError::bad_request(format!("invalid service request {:?}", target.name));
    let (scheme, name, port) = split(&target.name).ok_or_else(invalid)?;
    let service = server.lookup("", "services", target.namespace, name);
    let service = service.ok_or_else(|| ApiError::not_found(&server.kind("", "services"), name))?;
    let port = port_name(&service, name, port)?;
    let slices = slices(server, target.namespace, name);
    // We only go to addresses that are those of a pod.
    let is_pod = |reference: &Value, address: &str| {
        text(reference, "kind") == "Pod"
            && server
                .lookup("", "pods", target.namespace, text(reference, "name"))
                .is_some_and(|pod| has_address(&pod, address))
    };
    let Some((host, port)) = any(endpoints(&slices, &port, is_pod)) else {
        return Err(ApiError::unavailable(format!("no endpoints available for service {:?}", target.name)));
    };
    Ok(Place { scheme, host, port })
}

/// Somebody who serves a port of a service, for what the server itself asks of it: it may be on no node where the
/// service's address leads anywhere.
pub fn endpoint_of(server: &Server, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String> {
    let service = server.lookup("", "services", namespace, name);
    let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
    if service["spec"]["type"] == "ExternalName" {
        return Ok((text(&service["spec"], "externalName").to_owned(), port));
    }
    let port = port_name(&service, name, &port.to_string()).map_err(|error| error.message)?;
    let found = endpoints(&slices(server, namespace, name), &port, |_, _| true);
    any(found).ok_or_else(|| format!("no endpoints available for service {name:?}"))
}

/// Whether anything at all is said of who serves a service.
pub fn has_slices(server: &Server, namespace: &str, service: &str) -> bool {
    !slices(server, namespace, service).is_empty()
}

fn slices(server: &Server, namespace: &str, service: &str) -> Vec<Value> {
    server
        .registry
        .built_in("discovery.k8s.io", "endpointslices")
        .objects(Some(namespace))
        .iter()
        .filter_map(|slice| serde_json::from_slice(slice.as_json()).ok())
        .filter(|slice: &Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service)
        .collect()
}

/// One of them, each as likely as the others.
fn any<T>(mut found: Vec<T>) -> Option<T> {
    let index = (!found.is_empty()).then(|| uuid::Uuid::new_v4().as_u128() as usize % found.len())?;
    Some(found.swap_remove(index))
}

fn has_address(pod: &Value, address: &str) -> bool {
    let others = pod["status"]["podIPs"].as_array().map(Vec::as_slice).unwrap_or_default();
    text(&pod["status"], "podIP") == address || others.iter().any(|ip| text(ip, "ip") == address)
}

/// A number means the port of the service that has it; endpoints know ports by name.
fn port_name(service: &Value, name: &str, port: &str) -> Result<String> {
    let Ok(number) = port.parse::<u64>() else { return Ok(port.to_owned()) };
    let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = ports.iter().find(|port| port["port"].as_u64() == Some(number));
    found
        .map(|port| text(port, "name").to_owned())
        .ok_or_else(|| ApiError::unavailable(format!("no service port {number} found for service {name:?}")))
}

/// Addresses and ports that take connections for a port of a service.
fn endpoints(slices: &[Value], port: &str, is_pod: impl Fn(&Value, &str) -> bool) -> Vec<(String, u16)> {
    let mut found = Vec::new();
    for slice in slices {
        let list = |name: &str| slice[name].as_array().map(Vec::as_slice).unwrap_or_default();
        let number = list("ports")
            .iter()
            .find(|known| text(known, "name") == port)
            .and_then(|known| known["port"].as_u64());
        let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else { continue };
        for endpoint in list("endpoints") {
            let address = endpoint["addresses"][0].as_str().unwrap_or_default();
            let is_ready = endpoint["conditions"]["ready"].as_bool().unwrap_or(true);
            if is_ready && address.parse().is_ok_and(is_reachable) && is_pod(&endpoint["targetRef"], address)
            {
                found.push((address.to_owned(), number));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
