//! Endpoints: addresses behind a service, as EndpointSlices superseded them.

use crate::field::{Errors, Field, Reason};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec::{fill, list_mut};
use crate::names;
use crate::printing::{NONE, age_column, int, items, name_column, text};
use k8s_openapi::api::core::v1::Endpoints;
use serde_json::Value;
use std::net::IpAddr;

/// More addresses than this do not fit a column.
const MOST_SHOWN: usize = 3;

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        create_on_update: true,
        deprecated: Some(
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into(),
        ),
        default,
        validate,
        columns: vec![
            name_column(),
            column("Endpoints", "string", |endpoints, _| addresses(endpoints).into()),
            age_column(),
        ],
        ..Kind::new::<Endpoints>().short(&["ep"])
    }
}

/// Complains about an address that no endpoint can have.
pub fn validate_endpoint_ip(address: &Field<'_>, errors: &mut Errors) {
    let Ok(ip) = address.text().parse::<IpAddr>() else {
        address.invalid_value(address.text(), "must be a valid IP address", errors);
        return;
    };
    let (link_local, link_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0 == 0xfe80, ip.segments()[0] & 0xff0f == 0xff02),
    };
    if ip.is_unspecified() {
        address.invalid(format!("may not be unspecified ({})", address.text()), errors);
    }
    if ip.is_loopback() {
        address.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)", errors);
    }
    if link_local {
        address.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)", errors);
    }
    if link_local_multicast {
        address.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)", errors);
    }
}

fn default(endpoints: &mut Value) {
    for subset in list_mut(endpoints, "subsets") {
        for port in list_mut(subset, "ports") {
            fill(port, "protocol", "TCP");
        }
    }
}

fn validate(endpoints: &Field<'_>, errors: &mut Errors) {
    for subset in endpoints.get("subsets").items() {
        if subset.get("addresses").is_empty() && subset.get("notReadyAddresses").is_empty() {
            subset.complain(Reason::Required, "must specify `addresses` or `notReadyAddresses`", errors);
        }
        for list in ["addresses", "notReadyAddresses"] {
            for address in subset.get(list).items() {
                validate_address(&address, errors);
            }
        }
        let ports = subset.get("ports");
        for port in ports.items() {
            validate_port(&port, ports.len() > 1, errors);
        }
    }
}

fn validate_address(address: &Field<'_>, errors: &mut Errors) {
    let (ip, hostname, node) = (address.get("ip"), address.get("hostname"), address.get("nodeName"));
    ip.conforms(names::is_legacy_ip, errors);
    if !hostname.text().is_empty() {
        hostname.conforms(names::is_dns1123_label, errors);
    }
    if node.exists() {
        node.conforms(names::is_dns1123_subdomain, errors);
    }
    validate_endpoint_ip(&ip, errors);
}

fn validate_port(port: &Field<'_>, needs_name: bool, errors: &mut Errors) {
    let (name, number) = (port.get("name"), port.get("port"));
    if !name.text().is_empty() {
        name.conforms(names::is_dns1123_label, errors);
    } else if needs_name {
        name.required(errors);
    }
    if !(1..=65535).contains(&number.int().unwrap_or(0)) {
        number.invalid_value(number.int().unwrap_or(0), "must be between 1 and 65535, inclusive", errors);
    }
    port.get("protocol").required_one_of(&["SCTP", "TCP", "UDP"], errors);
    let app = port.get("appProtocol");
    if app.exists() {
        app.conforms(names::is_qualified_name, errors);
    }
}

fn addresses(endpoints: &Value) -> String {
    let subsets = items(endpoints, "subsets");
    if subsets.is_empty() {
        return NONE.into();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let ips = || items(subset, "addresses").iter().map(|address| text(address, "ip"));
        let ports = items(subset, "ports");
        if ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for port in ports {
            let number = int(port, "port");
            all.extend(ips().map(|ip| {
                if ip.contains(':') { format!("[{ip}]:{number}") } else { format!("{ip}:{number}") }
            }));
        }
    }
    let shown = all[..all.len().min(MOST_SHOWN)].join(",");
    if all.len() > MOST_SHOWN { format!("{shown} + {} more...", all.len() - MOST_SHOWN) } else { shown }
}
