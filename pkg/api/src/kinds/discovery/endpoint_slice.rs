//! EndpointSlice: some of the addresses behind a service.

use crate::field::{Errors, Field};
use crate::kind::{Kind, column};
use crate::kinds::pod_spec::list_mut;
use crate::kinds::rules;
use crate::object::set_default;
use crate::{equality, meta, names, printing};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::collections::HashSet;

const MOST_TOPOLOGY_LABELS: usize = 16;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;
const MOST_ENDPOINTS: usize = 1000;
const MOST_HINTS: usize = 8;
/// How many ports and addresses a cell shows.
const SHOWN: usize = 3;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: vec![
            printing::name_column(),
            column("AddressType", "string", |slice, _| printing::text(slice, "addressType").into()),
            column("Ports", "string", |slice, _| ports_cell(slice).into()),
            column("Endpoints", "string", |slice, _| endpoints_cell(slice).into()),
            printing::age_column(),
        ],
        validate_name: names::dns_subdomain_name,
        default: |slice| {
            for port in list_mut(slice, "ports") {
                set_default(port, "name", "");
                set_default(port, "protocol", "TCP");
            }
        },
        prepare,
        validate,
        validate_update: |new, old, errors| new.get("addressType").immutable(&old.get("addressType"), errors),
        ..Kind::new::<EndpointSlice>().with_generation()
    }
}

/// A slice belongs to the service that its labels name, so a change of labels counts, too.
fn prepare(slice: &mut Value, old: Option<&Value>) {
    let Some(old) = old else { return };
    if !equality::same(&slice["metadata"]["labels"], &old["metadata"]["labels"]) {
        slice["metadata"]["generation"] = json!(printing::int(old, "metadata.generation") + 1);
    }
}

fn validate(slice: &Field<'_>, errors: &mut Errors) {
    let address_type = slice.get("addressType");
    if address_type.required(errors) {
        address_type.one_of(&["FQDN", "IPv4", "IPv6"], errors);
    }
    validate_ports(&slice.get("ports"), errors);
    let endpoints = slice.get("endpoints");
    if endpoints.len() > MOST_ENDPOINTS {
        endpoints.too_many(MOST_ENDPOINTS, errors);
        return;
    }
    for endpoint in endpoints.items() {
        validate_endpoint(&endpoint, address_type.text(), errors);
    }
}

fn validate_ports(ports: &Field<'_>, errors: &mut Errors) {
    if ports.len() > MOST_PORTS {
        ports.too_many(MOST_PORTS, errors);
        return;
    }
    let mut seen = HashSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.text().is_empty() {
            name.conforms(names::is_dns1123_label, errors);
        }
        if !seen.insert(name.text().to_owned()) {
            name.duplicate(errors);
        }
        let protocol = port.get("protocol");
        if protocol.required(errors) {
            protocol.one_of(&["SCTP", "TCP", "UDP"], errors);
        }
        let app_protocol = port.get("appProtocol");
        if app_protocol.exists() {
            app_protocol.conforms(names::is_qualified_name, errors);
        }
    }
}

fn validate_endpoint(endpoint: &Field<'_>, address_type: &str, errors: &mut Errors) {
    let addresses = endpoint.get("addresses");
    addresses.required_because("must contain at least 1 address", errors);
    if addresses.len() > MOST_ADDRESSES {
        addresses.too_many(MOST_ADDRESSES, errors);
    }
    for address in addresses.items() {
        match address_type {
            "IPv4" => validate_ip(&addresses, &address, names::is_legacy_ip, address_type, errors),
            "IPv6" => validate_ip(&addresses, &address, names::is_ip, address_type, errors),
            "FQDN" => validate_domain_name(&address, errors),
            _ => {}
        }
    }
    let node = endpoint.get("nodeName");
    if node.exists() {
        node.conforms(names::is_dns1123_subdomain, errors);
    }
    let topology = endpoint.get("deprecatedTopology");
    if topology.len() > MOST_TOPOLOGY_LABELS {
        topology.too_many(MOST_TOPOLOGY_LABELS, errors);
    }
    meta::validate_labels(&topology, errors);
    let hostname = endpoint.get("hostname");
    if hostname.exists() {
        hostname.conforms(names::is_dns1123_label, errors);
    }
    let hints = endpoint.get("hints");
    for (name, check) in
        [("forZones", names::is_label_value as names::Check), ("forNodes", names::is_dns1123_subdomain)]
    {
        validate_hints(&hints.get(name), check, errors);
    }
}

fn validate_ip(
    addresses: &Field<'_>,
    address: &Field<'_>,
    check: names::Check,
    family: &str,
    errors: &mut Errors,
) {
    if !check(address.text()).is_empty() {
        address.conforms(check, errors);
        return;
    }
    let is_six = rules::parse_ip(address.text()).is_some_and(|ip| ip.is_ipv6());
    if is_six != (family == "IPv6") {
        addresses.invalid_value(address.text(), format!("must be an {family} address"), errors);
    }
    rules::validate_endpoint_ip(address, errors);
}

/// A domain of two segments or more, with or without the dot at the end.
fn validate_domain_name(address: &Field<'_>, errors: &mut Errors) {
    if !address.required(errors) {
        return;
    }
    let name = address.text().strip_suffix('.').unwrap_or(address.text());
    let faults = names::is_dns1123_subdomain(name);
    if !faults.is_empty() {
        address.invalid_value(name, faults.join(","), errors);
    } else if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        address.invalid_value(name, detail, errors);
    } else if let Some(label) = name.split('.').find(|label| !names::is_dns1123_label(label).is_empty()) {
        address.invalid_value(label, names::is_dns1123_label(label).join(","), errors);
    }
}

fn validate_hints(hints: &Field<'_>, check: names::Check, errors: &mut Errors) {
    if hints.len() > MOST_HINTS {
        hints.too_many(MOST_HINTS, errors);
        return;
    }
    let mut seen = HashSet::new();
    for hint in hints.items() {
        let name = hint.get("name");
        if !seen.insert(name.text().to_owned()) {
            name.duplicate(errors);
        }
        name.conforms(check, errors);
    }
}

fn ports_cell(slice: &Value) -> String {
    let ports = printing::items(slice, "ports");
    let cells: Vec<String> = ports
        .iter()
        .map(|port| match (port.get("port").and_then(Value::as_i64), port.get("name")) {
            (Some(number), _) => number.to_string(),
            (None, Some(name)) => name.as_str().unwrap_or_default().to_owned(),
            (None, None) => "*".into(),
        })
        .collect();
    with_more(&cells)
}

fn endpoints_cell(slice: &Value) -> String {
    let addresses: Vec<String> = printing::items(slice, "endpoints")
        .iter()
        .flat_map(|endpoint| printing::items(endpoint, "addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    with_more(&addresses)
}

fn with_more(cells: &[String]) -> String {
    match cells.len() {
        count if count > SHOWN => format!("{} + {} more...", cells[..SHOWN].join(","), count - SHOWN),
        _ => match cells.join(",") {
            text if text.is_empty() => "<unset>".into(),
            text => text,
        },
    }
}
