//! Hosts and paths: DNS objects and ingresses as one nginx configuration, made without looking at the machine.
//!
//! ```text
//! DNS     shop.example.com/cart ──> service cart:80      the path is taken off: the service sees /
//! Ingress shop.example.com/cart ──> service cart:http    the path stays, as Kubernetes has it
//! ```
//!
//! A backend that does not exist answers 503 and says why, in the answer and in the DNS object's status.

mod holders;
mod ingress;
mod nginx;
mod owner;
mod sites;

pub use ingress::{Classes, ingress_points, ingress_troubles};
pub use nginx::{CertificateFiles, Listen, render, temporary};
pub use owner::{Owner, Reserved};
pub use sites::{Backend, Match, PathRule, Site, Sites, Troubles, dns_status, dns_troubles, sites};

use crate::record::{Service, Slice};
use client::Key;
use network::Protocol;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where services are.
#[derive(Debug, Default)]
pub struct Services(HashMap<Key, Place>);

#[derive(Debug)]
struct Place {
    address: Address,
    ports: Vec<(String, i32)>,
}

#[derive(Debug)]
enum Address {
    /// Of the cluster.
    Cluster(IpAddr),
    /// Its endpoints' own: it is headless.
    Endpoints(Vec<Arc<Slice>>),
    /// None: it is but a name for something else.
    Outside,
}

impl Services {
    /// From the objects. Slices are asked for of headless services only.
    pub fn new<'a>(
        services: impl Iterator<Item = &'a Service>,
        slices_of: impl Fn(&Key) -> Vec<Arc<Slice>>,
    ) -> Services {
        // An upstream is called after its service; a name that is none could say more than that.
        let services = services.filter(|service| is_name(service.namespace()) && is_name(service.name()));
        let places = services.map(|service| {
            let key = Key::new(service.namespace(), service.name());
            let ports = service.ports.iter().map(|port| (port.name.to_string(), port.port.into())).collect();
            let address = match service.cluster_ips.first() {
                Some(address) => Address::Cluster(*address),
                None if service.is_headless() => Address::Endpoints(slices_of(&key)),
                None => Address::Outside,
            };
            (key, Place { address, ports })
        });
        Services(places.collect())
    }

    /// Where a port of a service is, by number or by name.
    fn find(&self, namespace: &str, name: &str, number: Option<i32>, port_name: Option<&str>) -> Backend {
        let Some(place) = self.0.get(&Key::new(namespace, name)) else {
            return Backend::Missing("ServiceNotFound", format!("service \"{name}\" not found"));
        };
        let wanted =
            number.map_or_else(|| port_name.unwrap_or_default().to_owned(), |number| number.to_string());
        let port =
            place.ports.iter().find(|(name, port)| Some(*port) == number || Some(name.as_str()) == port_name);
        let port = port.and_then(|(name, port)| Some((name, u16::try_from(*port).ok()?)));
        let Some((port_name, port)) = port else {
            return Backend::Missing("PortNotFound", format!("service \"{name}\" has no port {wanted}"));
        };
        match &place.address {
            Address::Cluster(address) => Backend::At(SocketAddr::new(*address, port)),
            Address::Endpoints(slices) => {
                // There is no underscore in any of these names.
                Backend::Among(format!("{namespace}_{name}_{port}"), ready(slices, port_name))
            }
            Address::Outside => {
                Backend::Missing("NoClusterIP", format!("service \"{name}\" has no address in the cluster"))
            }
        }
    }
}

/// Whether a text is nothing but a name, as the API has them.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.')
}

/// Where a port is served.
fn ready(slices: &[Arc<Slice>], port: &str) -> BTreeSet<SocketAddr> {
    let of_slice = |slice: &Arc<Slice>| {
        let is_it = |it: &&crate::record::Port| *it.name == *port && it.protocol == Protocol::Tcp;
        let number = slice.ports.iter().find(is_it).map(|it| it.number);
        let places = slice.endpoints.iter().filter(|place| place.ready).map(|place| place.address);
        let at = |number| places.map(move |address| SocketAddr::new(address, number));
        number.map(at).into_iter().flatten().collect::<Vec<_>>()
    };
    slices.iter().flat_map(of_slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_headless_service_is_where_its_ready_endpoints_are() {
        let service = |spec: Value| -> Service {
            let metadata = json!({"namespace": "ns", "name": "db"});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let slice = |ports: Value| -> Arc<Slice> {
            let slice = json!({"addressType": "IPv4", "ports": ports, "endpoints": [
                {"addresses": ["10.244.1.8"]},
                {"addresses": ["10.244.1.7"], "conditions": {"ready": true}},
                {"addresses": ["10.244.1.9"], "conditions": {"ready": false}}]});
            Arc::new(serde_json::from_value(slice).unwrap())
        };
        let ports = json!([{"name": "sql", "port": 5432}, {"name": "web", "port": 80}]);
        let slices = vec![
            slice(json!([{"name": "web", "port": 8080}, {"name": "sql", "port": 15432}])),
            slice(json!([{"name": "sql", "port": 5432}])),
        ];
        let find = |service: Service, number: Option<i32>, name: Option<&str>| {
            Services::new([service].iter(), |_| slices.clone()).find("ns", "db", number, name)
        };
        let headless = || service(json!({"clusterIP": "None", "ports": ports}));
        let among = |name: &str, places: &[&str]| {
            Backend::Among(name.to_owned(), places.iter().map(|place| place.parse().unwrap()).collect())
        };
        let web = among("ns_db_80", &["10.244.1.7:8080", "10.244.1.8:8080"]);
        assert_eq!(find(headless(), Some(80), None), web);
        assert_eq!(find(headless(), None, Some("web")), web);
        let both = ["10.244.1.7:5432", "10.244.1.7:15432", "10.244.1.8:5432", "10.244.1.8:15432"];
        assert_eq!(find(headless(), Some(5432), None), among("ns_db_5432", &both));
        assert!(matches!(find(headless(), Some(81), None), Backend::Missing("PortNotFound", _)));
        let external = json!({"type": "ExternalName", "externalName": "example.org", "ports": ports});
        assert!(matches!(find(service(external), Some(80), None), Backend::Missing("NoClusterIP", _)));
    }
}
