//! Hosts and paths: DNS objects and ingresses as one nginx configuration, made without looking at the machine.
//!
//! ```text
//! DNS     shop.example.com/cart ──> service cart:80      the path is taken off: the service sees /
//! Ingress shop.example.com/cart ──> service cart:http    the path stays, as Kubernetes has it
//! ```
//!
//! A backend that does not exist answers 503 and says why, in the answer and in the DNS object's status.

mod ingress;
mod nginx;
mod owner;
mod sites;

pub use ingress::{Classes, ingress_points, ingress_troubles};
pub use nginx::{CertificateFiles, Listen, render, temporary};
pub use owner::{Owner, Reserved};
pub use sites::{Backend, Match, PathRule, Site, Sites, Troubles, dns_status, dns_troubles, sites};

use crate::record::Service;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Where services are: (namespace, name) to address and ports.
#[derive(Debug, Default)]
pub struct Services(HashMap<(String, String), Place>);

#[derive(Debug, Default)]
struct Place {
    address: Option<IpAddr>,
    ports: Vec<(String, i32)>,
}

impl Services {
    /// From the objects.
    pub fn new<'a>(services: impl Iterator<Item = &'a Service>) -> Services {
        let places = services.map(|service| {
            let key = (service.namespace().to_owned(), service.name().to_owned());
            let ports = service.ports.iter().map(|port| (port.name.to_string(), port.port.into())).collect();
            (key, Place { address: service.cluster_ips.first().copied(), ports })
        });
        Services(places.collect())
    }

    /// Where a port of a service is, by number or by name.
    fn find(&self, namespace: &str, name: &str, number: Option<i32>, port_name: Option<&str>) -> Backend {
        let Some(place) = self.0.get(&(namespace.to_owned(), name.to_owned())) else {
            return Backend::Missing("ServiceNotFound", format!("service \"{name}\" not found"));
        };
        let wanted =
            number.map_or_else(|| port_name.unwrap_or_default().to_owned(), |number| number.to_string());
        let port =
            place.ports.iter().find(|(name, port)| Some(*port) == number || Some(name.as_str()) == port_name);
        let Some(port) = port.and_then(|(_, port)| u16::try_from(*port).ok()) else {
            return Backend::Missing("PortNotFound", format!("service \"{name}\" has no port {wanted}"));
        };
        match place.address {
            Some(address) => Backend::At(SocketAddr::new(address, port)),
            None => Backend::Missing("NoClusterIP", format!("service \"{name}\" has no ClusterIP")),
        }
    }
}
